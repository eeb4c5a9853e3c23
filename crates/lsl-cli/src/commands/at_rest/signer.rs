//! Judges the signer of a recording: by the trust file's entry for the key, and by the recording's
//! own description. Spec: LSS/1 §3.1, §3.2.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::{self, Read};

use lsl_core::secure::trust::{Date, TrustList, TrustedRole};
use lsl_core::secure::{Descriptor, PublicKey, Role};
use lsl_proto::describe::stream_queries;
use lsl_xdf::chunk::Tag;
use lsl_xdf::{Decoder, Event, Problem, ProblemKind, StreamHeader};

use crate::files::place::SecurityConfig;
use crate::files::trust;
use crate::ui::text::printable;

/// Keys known here: wanted, own and trusted ones.
pub(super) struct Keys {
    wanted: Option<PublicKey>,
    own: Option<PublicKey>,
    trusted: TrustList,
    today: Date,
}

/// Judgement of a signing key.
#[derive(Debug, PartialEq)]
pub(super) struct Judged {
    /// Our name for its owner.
    pub(super) name: Option<String>,
    /// Reason why its signature does not count.
    pub(super) trouble: Option<String>,
}

impl Keys {
    /// Collects the keys of the encryption set up here, if it is. An unusable trust file is
    /// reported and trusts no key.
    pub(super) fn find(wanted: Option<PublicKey>) -> Self {
        let place = SecurityConfig::find(None).ok();
        let file = place.as_ref().and_then(|place| place.trust_file().ok());
        let file = file.filter(|path| path.exists());
        let trusted = file.map(trust::read).transpose().unwrap_or_else(|failure| {
            crate::ui::notice::note(format_args!("lsl: {failure}\nlsl: so nobody is trusted"));
            None
        });
        Self {
            wanted,
            own: place.as_ref().and_then(SecurityConfig::public_key_if_open),
            trusted: trusted.unwrap_or_default(),
            today: trust::today_for(file),
        }
    }

    /// Judges the owner of `key` as the signer of a recording.
    pub(super) fn judge(&self, key: &PublicKey, recording: &Content) -> Judged {
        let peer = self.trusted.find(key);
        let is_own = self.own.as_ref() == Some(key);
        let name = match peer {
            _ if is_own => Some("this device".to_owned()),
            Some(peer) => Some(peer.name.clone()),
            None => None,
        };
        if let Some(wanted) = &self.wanted {
            // A key named by the user decides alone.
            let is_wanted = wanted == key;
            return Judged {
                name: name.or_else(|| is_wanted.then(|| "the key that was named".into())),
                trouble: (!is_wanted)
                    .then(|| "another key than the one that was named signed it".into()),
            };
        }
        let trouble = match peer {
            _ if is_own => None,
            None => Some("nobody that we know signed it".into()),
            Some(peer) => {
                let who = printable(&peer.name);
                let other = recording.streams.values().find(|stream| {
                    let covered = peer.covers(stream, Some(&stream_queries()));
                    !covered
                });
                if !peer.role.allows(Role::Inlet) {
                    let role = TrustedRole::Outlet.name();
                    Some(format!(
                        "{who} is trusted as {role} only, not as one who records"
                    ))
                } else if let Some(last) = peer.not_after.filter(|last| *last < self.today) {
                    Some(format!(
                        "the trust in {who} ended on {last}, and only the signer says when this was \
                         recorded; to accept it, name the key with --signer"
                    ))
                } else {
                    other.map(|stream| {
                        let name = printable(&String::from_utf8_lossy(&stream.name));
                        format!("{who} is trusted for other streams than '{name}' (streams)")
                    })
                }
            }
        };
        Judged { name, trouble }
    }
}

/// Contents of a recording by its own description, gathered while something else reads it.
#[derive(Debug, Default)]
pub(super) struct Content {
    /// Begin of the recording, by its file header.
    pub(super) date: Option<String>,
    streams: BTreeMap<u32, Descriptor>,
    /// Reason why other readers may find other streams in it.
    pub(super) doubt: Option<String>,
}

impl Content {
    /// Returns the sessions of its streams, each once.
    pub(super) fn sessions(&self) -> Vec<String> {
        let sessions = self.streams.values().map(|stream| &stream.session_id);
        let mut sessions: Vec<_> = sessions
            .filter(|session| !session.is_empty())
            .map(|session| String::from_utf8_lossy(session).into_owned())
            .collect();
        sessions.sort();
        sessions.dedup();
        sessions
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::FileHeader(header) => {
                self.date = header.get("datetime").map(Cow::into_owned);
            }
            Event::StreamHeader { stream, header } => {
                let described = descriptor(&header);
                let before = self.streams.insert(stream, described.clone());
                if before.is_some_and(|before| before != described) {
                    self.doubt
                        .get_or_insert_with(|| format!("stream {stream} is described as two"));
                }
            }
            Event::Problem(problem) if hides_streams(&problem) => {
                self.doubt
                    .get_or_insert_with(|| format!("its streams cannot all be read: {problem}"));
            }
            _ => {}
        }
    }
}

/// Returns whether a stream may be described where nothing could be read.
fn hides_streams(problem: &Problem) -> bool {
    use ProblemKind::{Cut, CutHead, Framing, TooLong, TooManyStreams, Unreadable};
    problem.resumed
        || match &problem.kind {
            Unreadable { tag, .. } | TooLong { tag, .. } => *tag == Tag::StreamHeader,
            Framing(_) | CutHead | Cut { .. } | TooManyStreams => true,
            _ => false,
        }
}

/// Returns the stream of a header, as its outlet described it.
fn descriptor(header: &StreamHeader) -> Descriptor {
    let text = |name| header.get(name).unwrap_or_default().as_bytes().to_vec();
    Descriptor {
        uid: text("uid"),
        name: text("name"),
        stream_type: text("type"),
        source_id: text("source_id"),
        hostname: text("hostname"),
        session_id: text("session_id"),
        channel_count: u32::try_from(header.channel_count()).unwrap_or(u32::MAX),
        nominal_srate: header.nominal_srate(),
        channel_format: u8::try_from(header.channel_format() as i32).unwrap_or(0),
        created_at: header
            .get("created_at")
            .and_then(|it| it.parse().ok())
            .unwrap_or(0.0),
    }
    .canonical()
}

/// Reader that passes a file on and gathers its content in the same pass: the proved bytes are judged.
pub(super) struct Gathering<R> {
    input: R,
    decoder: Decoder,
    window: Vec<u8>,
    is_xdf: bool,
    content: Content,
}

impl<R: Read> Gathering<R> {
    pub(super) fn new(input: R) -> Self {
        Self {
            input,
            decoder: Decoder::new(),
            window: Vec::new(),
            is_xdf: true,
            content: Content::default(),
        }
    }

    /// Returns the input and its content, once everything was read.
    pub(super) fn end(mut self) -> (R, Content) {
        self.look(&[], true);
        (self.input, self.content)
    }

    fn look(&mut self, bytes: &[u8], ended: bool) {
        self.window.extend_from_slice(bytes);
        let mut used = 0;
        while self.is_xdf {
            match self
                .decoder
                .step(self.window.get(used..).unwrap_or_default(), ended)
            {
                Ok(lsl_xdf::DecodeStep::Used(bytes, found)) => {
                    used += bytes;
                    if let Some(found) = found {
                        self.content.take(found.event);
                    }
                }
                Ok(lsl_xdf::DecodeStep::Need(_) | lsl_xdf::DecodeStep::End) => break,
                Err(_) => self.is_xdf = false,
            }
        }
        if self.is_xdf {
            self.window.drain(..used.min(self.window.len()));
        } else {
            self.window = Vec::new();
        }
    }
}

impl<R: Read> Read for Gathering<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let len = self.input.read(out)?;
        if self.is_xdf {
            self.look(out.get(..len).unwrap_or_default(), false);
        }
        Ok(len)
    }
}

#[cfg(test)]
mod tests {
    use lsl_core::secure::SecretKey;
    use lsl_core::secure::trust::Peer;
    use lsl_xdf::chunk::{BOUNDARY_UUID, MAGIC, PADDING_TAG, append_chunk};

    use super::*;

    /// Each could hide a stream without a trusted signer.
    #[test]
    fn streams_that_cannot_be_read_are_doubted() {
        let xml = |name: &str, channels: &str| {
            format!(
                "<?xml version=\"1.0\"?><info><name>{name}</name><channel_count>{channels}</channel_count>\
                 <channel_format>int8</channel_format></info>"
            )
        };
        let (one, other) = (xml("A", "1"), xml("B", "1"));
        let (vague, huge) = (xml("A", "many"), vec![b' '; lsl_xdf::MAX_XML_BYTES + 1]);
        let header = |id: u8, text: &[u8]| (Tag::StreamHeader, [&[id, 0, 0, 0], text].concat());
        let boundary = (Tag::Boundary, BOUNDARY_UUID.to_vec());
        let over = (Tag::Other(PADDING_TAG), BOUNDARY_UUID.to_vec());
        let check = |chunks: &[(Tag, Vec<u8>)], end: &[u8], doubt: Option<&str>| {
            let mut bytes = MAGIC.to_vec();
            for (tag, content) in chunks {
                append_chunk(&mut bytes, *tag, &[content]);
            }
            bytes.extend_from_slice(end);
            let mut gathering = Gathering::new(bytes.as_slice());
            io::copy(&mut gathering, &mut io::sink()).unwrap();
            let found = gathering.end().1.doubt;
            let fits = match (&found, doubt) {
                (None, None) => true,
                (Some(found), Some(part)) => found.contains(part),
                _ => false,
            };
            assert!(fits, "{found:?}, not {doubt:?}");
        };
        let first = header(1, one.as_bytes());
        let second = header(2, other.as_bytes());
        check(&[first.clone(), boundary, first.clone(), second], &[], None);
        let renamed = header(1, other.as_bytes());
        check(&[first.clone(), renamed], &[], Some("as two"));
        let vague = header(2, vague.as_bytes());
        check(&[first.clone(), vague], &[], Some("\"many\""));
        check(&[first.clone(), header(2, &huge)], &[], Some("too long"));
        let short = (Tag::StreamHeader, vec![2, 0]);
        check(&[first.clone(), short], &[], Some("too short"));
        check(&[first.clone(), over], &[], Some("over a boundary"));
        // Nothing follows by which reading could go on.
        check(&[first], &[0; 3], Some("no chunk begins here"));
    }

    #[test]
    fn the_entry_of_the_signer_decides() {
        let key = |seed| SecretKey::from_seed(&[seed; 32]).public();
        let entry = |role, not_after: Option<&str>, streams: &[&str]| Peer {
            name: "rec".into(),
            key: key(1),
            role,
            not_after: not_after.map(|day| day.parse().unwrap()),
            from: Vec::new(),
            streams: streams.iter().map(|&text| text.to_owned()).collect(),
        };
        let mut recording = Content::default();
        for (id, name) in [(1, "EEG"), (2, "Gaze")] {
            let stream = Descriptor {
                name: name.into(),
                channel_count: 1,
                channel_format: 1,
                ..Descriptor::default()
            };
            recording.streams.insert(id, stream);
        }
        let check = |peer: Peer, seed, wanted: Option<u8>, trouble: Option<&str>| {
            let keys = Keys {
                wanted: wanted.map(key),
                own: Some(key(9)),
                trusted: TrustList::from_peers(vec![peer]).unwrap(),
                today: "2026-11-22".parse().unwrap(),
            };
            let judged = keys.judge(&key(seed), &recording);
            let fits = match (&judged.trouble, trouble) {
                (None, None) => true,
                (Some(text), Some(part)) => text.contains(part),
                _ => false,
            };
            assert!(fits, "{judged:?}, not {trouble:?}");
        };
        let (both, inlet) = (TrustedRole::Both, TrustedRole::Inlet);
        check(entry(both, None, &[]), 1, None, None);
        check(entry(inlet, Some("2026-11-22"), &[]), 1, None, None);
        check(
            entry(inlet, Some("2026-11-21"), &[]),
            1,
            None,
            Some("ended on 2026-11-21"),
        );
        check(
            entry(TrustedRole::Outlet, None, &[]),
            1,
            None,
            Some("outlet only"),
        );
        check(
            entry(both, None, &["name='EEG'"]),
            1,
            None,
            Some("than 'Gaze'"),
        );
        check(
            entry(both, None, &["name='EEG'", "name='Gaze'"]),
            1,
            None,
            None,
        );
        check(
            entry(both, None, &["name='EEG"]),
            1,
            None,
            Some("other streams"),
        );
        // Revoked, by leaving the list.
        check(entry(both, None, &[]), 2, None, Some("nobody that we know"));
        check(entry(both, None, &[]), 9, None, None);
        check(
            entry(TrustedRole::Outlet, Some("2020-01-01"), &[]),
            1,
            Some(1),
            None,
        );
        check(entry(both, None, &[]), 1, Some(2), Some("another key"));
    }
}
