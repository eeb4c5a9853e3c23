//! Outlets that may take the place of a lost one: the query that finds them, and those that were refused.
//! Spec: lsl-protocol §3.5, §10.

use std::collections::VecDeque;

use crate::StreamInfo;
use crate::describe::descriptor;
use crate::query::quote_bytes;

/// The query that finds an outlet of the same stream. It names no session: liblsl does not either.
/// Bytes, because the texts of a stream need not be UTF-8.
pub fn recovery_query(info: &StreamInfo) -> Vec<u8> {
    let mut query = format!("channel_count='{}'", info.channel_count()).into_bytes();
    let texts = [
        ("name", info.name_bytes()),
        ("type", info.stream_type_bytes()),
        ("source_id", info.source_id_bytes()),
    ];
    for (key, value) in texts.into_iter().filter(|(_, value)| !value.is_empty()) {
        query.extend_from_slice(format!(" and {key}=").as_bytes());
        query.extend_from_slice(&quote_bytes(value));
    }
    query.extend_from_slice(format!(" and channel_format='{}'", info.channel_format()).as_bytes());
    query
}

/// Whether the recovery query for `lost` selects `answer`, judged by its fields.
pub fn is_same_stream(lost: &StreamInfo, answer: &StreamInfo) -> bool {
    let same_text = |wanted: &[u8], found: &[u8]| wanted.is_empty() || wanted == found;
    lost.channel_count() == answer.channel_count()
        && lost.channel_format() == answer.channel_format()
        && same_text(lost.name_bytes(), answer.name_bytes())
        && same_text(lost.stream_type_bytes(), answer.stream_type_bytes())
        && same_text(lost.source_id_bytes(), answer.source_id_bytes())
}

/// Successors that were adopted and then could not be read, for a reason of security: the newest 16.
/// As the present outlet they would else keep an inlet from the one that it lost.
#[derive(Debug, Default)]
pub(super) struct Refused {
    pub(super) uids: VecDeque<Vec<u8>>,
}

impl Refused {
    /// Remembers the uid of a refused successor.
    pub(super) fn note(&mut self, uid: &[u8]) {
        if !self.contains(uid) {
            self.uids.truncate(MAX_REFUSED - 1);
            self.uids.push_front(uid.to_vec());
        }
    }

    /// Returns whether the successor with this uid is remembered.
    pub(super) fn contains(&self, uid: &[u8]) -> bool {
        self.uids.iter().any(|refused| refused == uid)
    }

    /// Removes them from the answers for the outlet that `lost` describes, if others answered too. If
    /// only they did, all but the present one may be tried again, after a pause.
    pub(super) fn leave_out(&mut self, lost: &StreamInfo, answers: &mut Vec<StreamInfo>) {
        let is_other = |answer: &StreamInfo| !self.contains(answer.uid_bytes());
        if (answers.iter()).any(|answer| is_same_stream(lost, answer) && is_other(answer)) {
            answers.retain(is_other);
        } else if !answers.is_empty() {
            self.uids.retain(|uid| uid == lost.uid_bytes());
        }
    }
}

/// Returns whether discovery says the same of an outlet as before. If not, one of the two may be a lie.
pub fn is_described_alike(found: &StreamInfo, present: &StreamInfo) -> bool {
    let same_content = descriptor(found)
        .differs_from(&descriptor(present))
        .is_none();
    same_content && found.security_advert() == present.security_advert()
}

const MAX_REFUSED: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ChannelFormat;
    use crate::query::Query;

    #[test]
    fn a_name_in_an_old_encoding_is_asked_for_as_it_is() {
        let name = b"M\xfcller's \"EEG\"".to_vec();
        let info = StreamInfo::new(name.clone(), "", 1, 1.0, ChannelFormat::Int8, "s").unwrap();
        let query = recovery_query(&info);
        assert!(query.windows(1).any(|byte| byte == b"\xfc"), "{query:?}");
        assert!(info.matches(&Query::parse(&query).unwrap()).unwrap());
    }

    #[test]
    fn a_successor_that_was_refused_gives_way_to_any_other() {
        let info = |name: &str, uid: &str| {
            let info = StreamInfo::new(name, "EEG", 2, 1.0, ChannelFormat::Int8, "src");
            let mut info = info.unwrap();
            info.reset_uid(uid);
            info
        };
        let mut refused = Refused::default();
        refused.note(b"b");
        let present = info("n", "b");
        let left = |refused: &mut Refused, answers: &[(&str, &str)]| {
            let answers = answers.iter().map(|&(name, uid)| info(name, uid));
            let mut answers = answers.collect();
            refused.leave_out(&present, &mut answers);
            let uids = answers.iter().map(|answer| answer.uid().into_owned());
            uids.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(left(&mut refused, &[]), "");
        assert_eq!(left(&mut refused, &[("n", "b")]), "b");
        assert_eq!(left(&mut refused, &[("n", "b"), ("other", "c")]), "b c");
        assert_eq!(left(&mut refused, &[("n", "b"), ("n", "a")]), "a");
        // All have been in vain: the others come next, and this one after them.
        refused.note(b"a");
        assert_eq!(left(&mut refused, &[("n", "b"), ("n", "a")]), "b a");
        assert_eq!(left(&mut refused, &[("n", "b"), ("n", "a")]), "a");
        for number in 0..100 {
            refused.note(format!("forged-{number}").as_bytes());
        }
        assert_eq!(refused.uids.len(), MAX_REFUSED);
        assert!(refused.contains(b"forged-99") && !refused.contains(b"b"));
    }
}
