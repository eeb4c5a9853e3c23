//! The announced streams of one context, and which datagram deserves an answer.
//!
//! Bytes, sender and time in, decisions out. Queries that deserve an answer go to an
//! [`AnswerQueue`](super::answers::AnswerQueue). A datagram costs bounded work and memory here, is counted,
//! and no query is evaluated. Spec: lsl-protocol §3.1, §3.2, §15.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use lsl_secure::{Policy, TIME_PREFIX};

use super::answers::PendingQuery;
use crate::StreamInfo;
use crate::config::Ipv4Network;
use crate::limits::TokenBucket;
use crate::query::MAX_QUERY_BYTES;
use crate::wire::discovery::{Request, parse_datagram};
use crate::wire::timedata::TimeRequest;
use crate::xml::Document;

/// A stream that is announced, as strangers see it.
#[derive(Debug)]
pub struct AnnouncedStream {
    view: PublicView,
    /// Replaces `view` as soon as the policy is `required`.
    strict: Option<PublicView>,
}

/// The part of a stream that strangers may ask about, and their answer.
#[derive(Debug)]
pub struct PublicView {
    /// Document that queries are evaluated on.
    pub document: Document,
    /// Short form of the info, rendered once: the answer to resolvers.
    pub shortinfo: Vec<u8>,
}

impl AnnouncedStream {
    /// Announces all of a stream: `desc` may be asked about too.
    pub fn open(info: &StreamInfo) -> Self {
        let view = PublicView {
            document: info.document().clone(),
            shortinfo: info.to_shortinfo_xml(),
        };
        Self::new(view, None)
    }

    /// Announces one view of a stream, and `strict` instead while the policy is `required`.
    pub fn new(view: PublicView, strict: Option<PublicView>) -> Self {
        Self { view, strict }
    }

    /// Returns the view that strangers have under this policy.
    pub fn view(&self, policy: Policy) -> &PublicView {
        let strict = self.strict.as_ref();
        strict
            .filter(|_| policy == Policy::Required)
            .unwrap_or(&self.view)
    }
}

/// Kind of the socket that a datagram arrived at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    /// A service port, which answers discovery and clock probes.
    Service,
    /// The multicast port, which answers discovery alone.
    Responder,
}

/// Reaction to a datagram, returned by [`Registry::handle_datagram`].
#[derive(Debug)]
pub enum Answer {
    /// Nothing is to be done.
    Ignore,
    /// The time is to be sent at once to the sender of the probe.
    Time(TimeRequest),
    /// The datagram claims to be a clock probe of a session, which the caller may know.
    SealedTime,
    /// The query goes into the queue of answers.
    Query(PendingQuery),
}

/// Counts of datagrams, by their fate.
#[derive(Debug, Default)]
pub struct Counters {
    /// Datagrams with our command that could not be read.
    pub malformed: u64,
    /// Copies of queries that have an answer under way.
    pub duplicates: u64,
    /// Queries of senders or for ports that get no answer.
    pub refused: u64,
    /// Queries dropped because too many were waiting to be answered.
    pub overflow: u64,
    /// Clock probes without session, not authentic, replayed, or in plaintext where that is forbidden.
    pub time_dropped: u64,
}

/// Announced streams with their keys. A query keeps the list as it was when it came.
pub(super) type Streams = Arc<Vec<(u64, Arc<AnnouncedStream>)>>;

/// The announced streams of one context. See the module's documentation.
#[derive(Debug)]
pub struct Registry {
    streams: Streams,
    recent: RecentQueries,
    subnets: Vec<Subnet>,
    sources: SourcePolicy,
    /// A token is a query of a stranger.
    strangers: TokenBucket,
    next_key: u64,
    /// Counters since the registry was created.
    pub counters: Counters,
}

impl Registry {
    /// Makes a registry without streams.
    pub fn new(sources: SourcePolicy) -> Self {
        Self {
            streams: Streams::default(),
            recent: RecentQueries::default(),
            subnets: Vec::new(),
            sources,
            strangers: TokenBucket::new(STRANGERS_PER_SEC, STRANGERS_PER_SEC),
            next_key: 1,
            counters: Counters::default(),
        }
    }

    /// Starts to announce a stream. Returns the key for [`remove`](Self::remove).
    pub fn add(&mut self, stream: impl Into<Arc<AnnouncedStream>>) -> u64 {
        let key = self.next_key;
        self.next_key += 1;
        Arc::make_mut(&mut self.streams).push((key, stream.into()));
        key
    }

    /// Stops to announce a stream.
    pub fn remove(&mut self, key: u64) {
        Arc::make_mut(&mut self.streams).retain(|(other, _)| *other != key);
    }

    /// Replaces the subnets of this host, whose resolvers are answered without limit.
    pub fn set_subnets(&mut self, subnets: Vec<Subnet>) {
        self.subnets = subnets;
    }

    /// Replaces the hosts and networks that are answered without limit wherever they are.
    pub fn set_known(&mut self, peers: Vec<IpAddr>, networks: Vec<Ipv4Network>) {
        (self.sources.peers, self.sources.networks) = (peers, networks);
    }

    /// Decides about one datagram that came from `from` at `now`, in seconds of `local_clock`. `policy` is
    /// only asked for if the answer depends on it.
    pub fn handle_datagram(
        &mut self,
        arrival: Arrival,
        datagram: &[u8],
        from: SocketAddr,
        policy: impl FnOnce() -> Policy,
        now: f64,
    ) -> Answer {
        if datagram.starts_with(TIME_PREFIX) {
            // Spec: LSS/1 §9.3.
            return match arrival {
                Arrival::Service => Answer::SealedTime,
                Arrival::Responder => {
                    self.counters.time_dropped += 1;
                    Answer::Ignore
                }
            };
        }
        let query = match parse_datagram(datagram) {
            // Anybody could answer a clock probe in plaintext.
            Ok(Request::TimeData(_)) if policy() == Policy::Required => {
                self.counters.time_dropped += 1;
                return Answer::Ignore;
            }
            Ok(Request::TimeData(request)) if arrival == Arrival::Service => {
                // Not larger than the probe and back to its sender: no use for an attack.
                return Answer::Time(request);
            }
            Ok(Request::Discovery(query)) => query,
            Ok(Request::TimeData(_) | Request::Unknown) => return Answer::Ignore,
            Err(_) => {
                self.counters.malformed += 1;
                return Answer::Ignore;
            }
        };
        let may_ask = if self.sources.only_subnets {
            self.subnets.iter().any(|subnet| subnet.has(from))
        } else {
            self.sources.knows(from.ip(), &self.subnets) || self.strangers.take(now)
        };
        if query.return_port < FIRST_UNPRIVILEGED_PORT || !may_ask {
            self.counters.refused += 1;
            return Answer::Ignore;
        }
        if query.query.len() > MAX_QUERY_BYTES {
            self.counters.malformed += 1;
            return Answer::Ignore;
        }
        // Replies go to the port that the query names, not to the one it came from (Q4). A scope id
        // stays, or link-local resolvers could not be answered.
        let mut to = from;
        to.set_port(query.return_port);
        if self.streams.is_empty() {
            return Answer::Ignore;
        }
        let Some(due) = self.recent.due(to, query.id, query.query, now) else {
            self.counters.duplicates += 1;
            return Answer::Ignore;
        };
        let streams = Arc::clone(&self.streams);
        Answer::Query(PendingQuery::new(to, due, query.id, query.query, streams))
    }
}

/// Queries answered to all strangers together, a second and at once: several searches.
const STRANGERS_PER_SEC: f64 = 50.0;

/// An address of this host, and how much of it names the subnet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Subnet {
    /// Address of one of this host's interfaces.
    pub address: IpAddr,
    /// Netmask of that address, if it has one.
    pub netmask: Option<IpAddr>,
    /// Index of the interface; 0 if it is not known.
    pub index: u32,
}

impl Subnet {
    /// Returns whether a datagram from there came from this subnet. All interfaces have the same link-local one.
    pub fn has(&self, from: SocketAddr) -> bool {
        let is_of_link = match from {
            SocketAddr::V6(from) if from.ip().is_unicast_link_local() => {
                from.scope_id() == self.index || self.index == 0
            }
            _ => true,
        };
        is_of_link && self.contains(from.ip())
    }

    /// Returns whether `peer` is in the subnet, so that it is reached without a router.
    pub fn contains(&self, peer: IpAddr) -> bool {
        match (self.address, self.netmask, peer) {
            (IpAddr::V4(own), Some(IpAddr::V4(mask)), IpAddr::V4(peer)) => {
                let mask = u32::from(mask);
                mask != 0 && u32::from(own) & mask == u32::from(peer) & mask
            }
            (IpAddr::V6(own), Some(IpAddr::V6(mask)), IpAddr::V6(peer)) => {
                let mask = u128::from(mask);
                mask != 0 && u128::from(own) & mask == u128::from(peer) & mask
            }
            _ => false,
        }
    }
}

/// Decides whose queries are answered without limit. A query may carry a forged sender, and the answer is
/// ten times as long; so all strangers from the internet together get few. Not none: a campus may give
/// its hosts routed addresses in many subnets. Spec: lsl-protocol §15.
#[derive(Debug, Clone, Default)]
pub struct SourcePolicy {
    /// Answer everybody: the configuration asks for a scope beyond the site.
    pub allow_all: bool,
    /// Addresses that the configuration names as peers.
    pub peers: Vec<IpAddr>,
    /// Networks that it names.
    pub networks: Vec<Ipv4Network>,
    /// Answer nobody but the subnets: those of one face of a relay. Spec: relay §2.
    pub only_subnets: bool,
}

impl SourcePolicy {
    /// Returns whether queries from `source` are always answered: from addresses that the internet does
    /// not route, from subnets of this host, and from configured peers. While the subnets are
    /// unknown, everybody is known.
    pub fn knows(&self, source: IpAddr, subnets: &[Subnet]) -> bool {
        self.allow_all
            || !is_routed(source)
            || subnets.is_empty()
            || self.peers.contains(&source)
            || matches!(source, IpAddr::V4(v4) if self.networks.iter().any(|it| it.contains(v4)))
            || subnets.iter().any(|subnet| subnet.contains(source))
    }
}

/// Returns whether packets from this address can come from anywhere in the internet.
fn is_routed(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => {
            // 100.64.0.0/10 is shared address space: carrier NAT and virtual private networks.
            let [first, second, ..] = v4.octets();
            let shared = first == 100 && second & 0xc0 == 64;
            !(v4.is_loopback() || v4.is_private() || v4.is_link_local() || shared)
        }
        IpAddr::V6(v6) => !(v6.is_loopback() || v6.is_unique_local() || v6.is_unicast_link_local()),
    }
}

/// The queries of the last moment. One query reaches a host several times, by several groups,
/// interfaces and addresses, and liblsl answers each copy. We answer the first at once and all the
/// others together a moment later: none at all would leave out a second search that follows the
/// first on the same port, which looks exactly like a copy.
#[derive(Debug, Default)]
struct RecentQueries {
    hasher: RandomState,
    /// Time of the last answer, which may be in the future, by the hash of the query.
    answers: HashMap<u64, f64>,
}

impl RecentQueries {
    /// Returns when to answer a query that came `now`: at once or later; `None` means not again.
    fn due(&mut self, to: SocketAddr, id: &[u8], query: &[u8], now: f64) -> Option<f64> {
        // Keyed by a secret hash: nobody can aim at a collision, and chance ones do not happen.
        let key = self.hasher.hash_one((to, id, query));
        let due = match self.answers.get(&key) {
            Some(&last) if now < last => return None,
            Some(&last) if now < last + REPEAT_SECS => last + REPEAT_SECS,
            _ => now,
        };
        if self.answers.len() >= MAX_RECENT_QUERIES {
            self.answers.retain(|_, last| now < *last + REPEAT_SECS);
            if self.answers.len() >= MAX_RECENT_QUERIES {
                // Hundreds of thousands of queries a second: answering twice is the lesser evil.
                self.answers.clear();
            }
        }
        self.answers.insert(key, due);
        Some(due)
    }
}

/// At most one answer per query, return endpoint and this time. The copies of one query arrive
/// within it; the fastest resolvers ask anew every 0.5 s.
const REPEAT_SECS: f64 = 0.01;
const MAX_RECENT_QUERIES: usize = 4096;

/// Ports below are system services, which no resolver listens on and an attacker may aim at.
const FIRST_UNPRIVILEGED_PORT: u16 = 1024;

#[cfg(test)]
mod tests;
