//! Where the outlet of an inlet is at present, and what to do when it is gone: which query finds a
//! successor, what the answers mean, and when to try again. Spec: lsl-protocol §2.4, §3.5, §10.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};

use crate::StreamInfo;
use crate::config::Ipv6Mode;
use crate::describe::descriptor;
use crate::query::quote_bytes;

/// Addresses of one outlet in one family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Endpoint {
    /// Address that accepts data connections by TCP.
    pub data: SocketAddr,
    /// Address that answers queries and clock probes by UDP.
    pub service: SocketAddr,
}

/// State of the search for an outlet to connect with.
#[derive(Debug)]
pub struct Recovery {
    present: StreamInfo,
    ipv6: Ipv6Mode,
    /// Looks up the interface that a link-local address names.
    scope_of: fn(&str) -> u32,
    /// Whether IPv6 is in use; kept across a recovery if possible.
    is_v6: Option<bool>,
    /// Number of changes of outlet or address so far.
    moves: u64,
    /// Tries in a row to connect the feed that came to nothing.
    failures: u32,
    /// Whether the outlet took the place of another.
    is_adopted: bool,
    /// Successors that could not be read, since there was a feed.
    refused: Refused,
}

/// What to do after a search.
#[derive(Debug)]
pub enum Recovered {
    /// The outlet we know answers as before: reconnect, but not in a hurry.
    Same,
    /// The outlet answers, but with another description or address: ask it where it was. If it is there no
    /// more, [`move_to`](Recovery::move_to) this.
    AskWhereItWas(Box<StreamInfo>),
    /// There is another outlet now: connect at once.
    Moved,
    /// Search again, and collect answers for longer. So many outlets could be the one that was lost.
    SearchAgain {
        /// Number of outlets that could be it.
        candidates: usize,
    },
}

impl Recovery {
    /// Starts with the outlet that `info` describes. `scope_of` returns the index of a named interface, 0
    /// if there is none.
    pub fn new(info: StreamInfo, ipv6: Ipv6Mode, scope_of: fn(&str) -> u32) -> Self {
        Self {
            present: info,
            ipv6,
            scope_of,
            is_v6: None,
            moves: 0,
            failures: 0,
            is_adopted: false,
            refused: Refused::default(),
        }
    }

    /// Returns the stream as its present outlet describes it.
    pub fn info(&self) -> &StreamInfo {
        &self.present
    }

    /// Returns the number of changes of outlet or address so far.
    pub fn moves(&self) -> u64 {
        self.moves
    }

    /// Returns where to connect now, and counts it as being in use; `None` if no address is known or
    /// allowed.
    pub fn endpoint(&mut self) -> Option<Endpoint> {
        let endpoint = self.endpoint_of(&self.present, self.is_v6);
        if let Some(endpoint) = endpoint {
            self.use_endpoint(endpoint);
        }
        endpoint
    }

    /// Returns where the outlet of `info` can be reached besides `peer`: in the other family.
    pub fn other_endpoint(&self, info: &StreamInfo, peer: SocketAddr) -> Option<Endpoint> {
        let wants_v6 = peer.is_ipv4();
        let other = self.endpoint_of(info, Some(wants_v6));
        other.filter(|other| other.data.is_ipv6() == wants_v6)
    }

    /// Prefers the family of `endpoint` from now on.
    pub fn use_endpoint(&mut self, endpoint: Endpoint) {
        self.is_v6 = Some(endpoint.data.is_ipv6());
    }

    /// Prefers IPv4, or IPv6 if that was in use. Spec: lsl-protocol §2.4.
    fn endpoint_of(&self, info: &StreamInfo, is_v6: Option<bool>) -> Option<Endpoint> {
        let v4 = || {
            let address = IpAddr::V4(info.v4_address().parse().ok()?);
            let allowed = self.ipv6 != Ipv6Mode::Force;
            (allowed.then(|| endpoint(address, 0, info.v4_data_port(), info.v4_service_port())))?
        };
        let v6 = || {
            let text = info.v6_address();
            let (address, scope) = text.split_once('%').unwrap_or((&text, ""));
            let address = IpAddr::V6(address.parse().ok()?);
            let allowed = self.ipv6 != Ipv6Mode::Disable;
            let scope = match scope {
                "" => 0,
                name => (name.parse()).unwrap_or_else(|_| (self.scope_of)(name)),
            };
            (allowed
                .then(|| endpoint(address, scope, info.v6_data_port(), info.v6_service_port())))?
        };
        if is_v6 == Some(true) {
            v6().or_else(v4)
        } else {
            v4().or_else(v6)
        }
    }

    /// Notes that the feed flows.
    pub fn on_connected(&mut self) {
        self.failures = 0;
        self.refused = Refused::default();
    }

    /// Notes that a try to connect the feed came to nothing, or that it ended.
    pub fn on_failed(&mut self) {
        self.failures = self.failures.saturating_add(1);
    }

    /// Notes that the outlet with this uid, or we, refused a feed. Returns true if it is a successor, which
    /// gives way to others from now on.
    pub fn on_refused(&mut self, uid: &[u8]) -> bool {
        let is_successor = self.is_adopted && self.present.uid_bytes() == uid;
        if is_successor {
            self.refused.note(uid);
        }
        is_successor
    }

    /// Returns whether successors give way because they refused or were refused.
    pub fn has_refusals(&self) -> bool {
        !self.refused.is_empty()
    }

    /// Forgets who refused or was refused, because others are trusted now.
    pub fn forget_refusals(&mut self) {
        self.refused = Refused::default();
    }

    /// Returns whether the feed seems to be hopeless: it waits for its turn, and its clock for the feed.
    pub fn is_hopeless(&self) -> bool {
        self.failures >= HOPELESS_FAILURES
    }

    /// Returns the pause before the next try in seconds, ever longer the more often it failed; `None` if it
    /// may follow at once.
    pub fn pause_secs(&self) -> Option<f64> {
        let doublings = self.failures.checked_sub(HOPELESS_FAILURES + 1)?;
        Some(RETRY_SECS * f64::from(1_u32 << doublings.min(MAX_DOUBLINGS)))
    }

    /// Returns the stream to search for. The answer of a present outlet that was refused would not do.
    pub fn sought(&self) -> StreamInfo {
        let mut sought = self.present.clone();
        if self.refused.contains(sought.uid_bytes()) {
            sought.reset_uid("");
        }
        sought
    }

    /// Takes the answers to a search for [`sought`](Self::sought).
    pub fn on_answers(&mut self, mut answers: Vec<StreamInfo>) -> Recovered {
        self.refused.leave_out(&self.present, &mut answers);
        match judge(&self.present, answers) {
            SearchVerdict::Same(found) => {
                // Somebody may have hidden from us that it encrypts, or make that up now.
                let in_use = self.endpoint_of(&self.present, self.is_v6);
                let is_there = self.endpoint_of(&found, self.is_v6) == in_use;
                if is_there && is_described_alike(&found, &self.present) {
                    Recovered::Same
                } else {
                    Recovered::AskWhereItWas(found)
                }
            }
            SearchVerdict::Adopt(found) => {
                self.is_adopted = true;
                self.move_to(*found);
                Recovered::Moved
            }
            SearchVerdict::AskAgain { candidates } => Recovered::SearchAgain { candidates },
        }
    }

    /// Goes on with the outlet that `info` describes.
    pub fn move_to(&mut self, info: StreamInfo) {
        self.moves += 1;
        self.present = info;
    }
}

/// Returns whether discovery says the same of an outlet as before. If not, one of the two may be a lie.
pub fn is_described_alike(found: &StreamInfo, present: &StreamInfo) -> bool {
    let same_content = descriptor(found)
        .differs_from(&descriptor(present))
        .is_none();
    same_content && found.security_advert() == present.security_advert()
}

fn endpoint(address: IpAddr, scope: u32, data: u16, service: u16) -> Option<Endpoint> {
    let at = |port| match address {
        IpAddr::V4(_) => SocketAddr::new(address, port),
        IpAddr::V6(address) => SocketAddr::V6(SocketAddrV6::new(address, port, 0, scope)),
    };
    (data != 0 && service != 0).then(|| Endpoint {
        data: at(data),
        service: at(service),
    })
}

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

/// What the answers to a recovery query mean.
#[derive(Debug)]
pub enum SearchVerdict {
    /// The outlet we know still lives; reconnect to it. The info carries its present addresses.
    Same(Box<StreamInfo>),
    /// Exactly one other outlet of the stream lives: it is the successor.
    Adopt(Box<StreamInfo>),
    /// Nobody answered, or several did and none is the one we know: ask again.
    AskAgain {
        /// Number of outlets of the stream that answered.
        candidates: usize,
    },
}

/// Judges the answers to a recovery query for the outlet that `lost` describes. Answers that the
/// query does not select are nobody's, or a lie: they are ignored.
pub fn judge(lost: &StreamInfo, mut answers: Vec<StreamInfo>) -> SearchVerdict {
    answers.retain(|answer| is_same_stream(lost, answer));
    let known = |answer: &StreamInfo| answer.uid_bytes() == lost.uid_bytes();
    if let Some(index) = answers.iter().position(known) {
        return SearchVerdict::Same(Box::new(answers.swap_remove(index)));
    }
    match answers.len() {
        1 => SearchVerdict::Adopt(Box::new(answers.swap_remove(0))),
        candidates => SearchVerdict::AskAgain { candidates },
    }
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
pub struct Refused {
    uids: VecDeque<Vec<u8>>,
}

impl Refused {
    /// Remembers the uid of a refused successor.
    pub fn note(&mut self, uid: &[u8]) {
        if !self.contains(uid) {
            self.uids.truncate(MAX_REFUSED - 1);
            self.uids.push_front(uid.to_vec());
        }
    }

    /// Returns whether the successor with this uid is remembered.
    pub fn contains(&self, uid: &[u8]) -> bool {
        self.uids.iter().any(|refused| refused == uid)
    }

    /// Returns whether no successor is remembered.
    pub fn is_empty(&self) -> bool {
        self.uids.is_empty()
    }

    /// Removes them from the answers for the outlet that `lost` describes, if others answered too. If
    /// only they did, all but the present one may be tried again, after a pause.
    pub fn leave_out(&mut self, lost: &StreamInfo, answers: &mut Vec<StreamInfo>) {
        let is_other = |answer: &StreamInfo| !self.contains(answer.uid_bytes());
        if (answers.iter()).any(|answer| is_same_stream(lost, answer) && is_other(answer)) {
            answers.retain(is_other);
        } else if !answers.is_empty() {
            self.uids.retain(|uid| uid == lost.uid_bytes());
        }
    }
}

const MAX_REFUSED: usize = 16;

/// From so many tries in a row on a feed counts as hopeless.
const HOPELESS_FAILURES: u32 = 2;

/// Pause before connecting again to an outlet that answers queries but refused the connection, in seconds.
pub const RETRY_SECS: f64 = 0.5;

/// Of the pause between tries, up to 8 s.
const MAX_DOUBLINGS: u32 = 4;

#[cfg(test)]
mod tests;
