//! Which streams this context announces, and what a datagram about them deserves as an answer.
//!
//! Pure decisions: bytes, sender and clock in, answers out. Sockets belong to `service` and
//! `responder`. Whatever a stranger sends costs bounded work and memory, is counted and never
//! answered more than once. Spec: lsl-protocol §3.1, §3.2, §15.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use lsl_platform::interfaces::Interface;

use crate::StreamInfo;
use crate::net::monitor::lock_ignoring_poison;
use crate::query::{Query, QueryCache};
use crate::wire::discovery::{ReplyDatagram, Request, parse_datagram};
use crate::wire::timedata::TimeRequest;

/// One stream that is announced.
#[derive(Debug)]
pub(crate) struct Advertised {
    /// The stream with everything a query may ask about, `desc` included.
    pub info: StreamInfo,
    /// The short form of the info, rendered once: what resolvers get.
    pub shortinfo: Vec<u8>,
}

/// Where a datagram arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// At the service port, which answers discovery and clock probes.
    Service,
    /// At the multicast port, which answers discovery alone.
    Responder,
}

/// What to do about a datagram.
#[derive(Debug)]
pub(crate) enum Answer {
    /// Nothing.
    Ignore,
    /// Send the time to where the probe came from, at once.
    Time(TimeRequest),
    /// Send the matching streams, in [`Matches`].
    Streams(Matches),
}

/// Something happened to a datagram that is worth counting.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// Queries whose matching streams were sent.
    pub answered: AtomicU64,
    /// Datagrams with our command that could not be read.
    pub malformed: AtomicU64,
    /// Queries seen a moment ago already.
    pub duplicates: AtomicU64,
    /// Queries of senders or for ports that we do not answer.
    pub refused: AtomicU64,
    /// Queries dropped because too many were waiting to be answered.
    pub overflow: AtomicU64,
}

/// Adds one to a counter that nobody synchronises by.
pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// The announced streams of one context.
#[derive(Debug)]
pub(crate) struct Announced {
    streams: Mutex<Arc<Vec<(u64, Arc<Advertised>)>>>,
    queries: Mutex<QueryCache>,
    recent: Mutex<RecentQueries>,
    interfaces: Mutex<Arc<[Interface]>>,
    sources: SourcePolicy,
    next_key: AtomicU64,
    /// What happened so far.
    pub counters: Counters,
}

impl Announced {
    /// Nothing announced yet. `max_queries` is `tuning.MaxCachedQueries`.
    pub(crate) fn new(max_queries: usize, sources: SourcePolicy) -> Self {
        Self {
            streams: Mutex::default(),
            queries: Mutex::new(QueryCache::new(max_queries)),
            recent: Mutex::default(),
            interfaces: Mutex::new(Arc::new([])),
            sources,
            next_key: AtomicU64::new(1),
            counters: Counters::default(),
        }
    }

    /// Starts to announce a stream; the key takes it back.
    pub(crate) fn add(&self, stream: Advertised) -> u64 {
        let key = self.next_key.fetch_add(1, Ordering::Relaxed);
        Arc::make_mut(&mut lock_ignoring_poison(&self.streams)).push((key, Arc::new(stream)));
        key
    }

    /// Stops to announce a stream.
    pub(crate) fn remove(&self, key: u64) {
        Arc::make_mut(&mut lock_ignoring_poison(&self.streams)).retain(|(other, _)| *other != key);
    }

    /// Tells which subnets this host is in, for the decision whom to answer.
    pub(crate) fn set_interfaces(&self, interfaces: Arc<[Interface]>) {
        *lock_ignoring_poison(&self.interfaces) = interfaces;
    }

    /// Decides about one datagram that came from `from` at `now` (seconds of `local_clock`).
    pub(crate) fn answer(
        &self,
        arrival: Arrival,
        datagram: &[u8],
        from: SocketAddr,
        now: f64,
    ) -> Answer {
        let query = match parse_datagram(datagram) {
            Ok(Request::TimeData(request)) if arrival == Arrival::Service => {
                // Not larger than the probe and back to its sender: no use for an attack.
                return Answer::Time(request);
            }
            Ok(Request::Discovery(query)) => query,
            Ok(Request::TimeData(_) | Request::Unknown) => return Answer::Ignore,
            Err(_) => {
                count(&self.counters.malformed);
                return Answer::Ignore;
            }
        };
        let interfaces = Arc::clone(&lock_ignoring_poison(&self.interfaces));
        if query.return_port < FIRST_UNPRIVILEGED_PORT
            || !self.sources.allows(from.ip(), &interfaces)
        {
            count(&self.counters.refused);
            return Answer::Ignore;
        }
        // Replies go to the port that the query names, not to the one it came from (Q4). A scope id
        // stays, or link-local resolvers could not be answered.
        let mut to = from;
        to.set_port(query.return_port);
        let streams = Arc::clone(&lock_ignoring_poison(&self.streams));
        if streams.is_empty() {
            return Answer::Ignore;
        }
        if !lock_ignoring_poison(&self.recent).is_new(to, query.id, query.query, now) {
            count(&self.counters.duplicates);
            return Answer::Ignore;
        }
        let Ok(parsed) = lock_ignoring_poison(&self.queries).parse(query.query) else {
            count(&self.counters.malformed);
            return Answer::Ignore;
        };
        Answer::Streams(Matches {
            to,
            id: query.id.to_vec(),
            query: parsed,
            streams,
            next: 0,
        })
    }
}

/// A query on its way to being answered, stream by stream, so that many streams or a costly query
/// do not keep a thread from clock probes.
#[derive(Debug)]
pub(crate) struct Matches {
    to: SocketAddr,
    id: Vec<u8>,
    query: Arc<Query>,
    streams: Arc<Vec<(u64, Arc<Advertised>)>>,
    next: usize,
}

impl Matches {
    /// Where all replies of this query go.
    pub(crate) fn to(&self) -> SocketAddr {
        self.to
    }

    /// Looks at the next stream: `None` when there is none left, else the reply if it matches.
    pub(crate) fn step(&mut self) -> Option<Option<Vec<u8>>> {
        let (_, stream) = self.streams.get(self.next)?;
        self.next += 1;
        let document = stream.info.document();
        // A query too costly to evaluate counts as "no match".
        let matches = document
            .child(document.root(), "info")
            .and_then(|info| self.query.matches(document, info).ok())
            .unwrap_or(false);
        Some(matches.then(|| {
            ReplyDatagram {
                id: &self.id,
                xml: &stream.shortinfo,
            }
            .to_bytes()
        }))
    }
}

/// Whom discovery queries are answered to. A query may carry a forged sender, and the answer is ten
/// times as long; so strangers from the internet are not answered. Spec: lsl-protocol §15.
#[derive(Debug, Clone, Default)]
pub(crate) struct SourcePolicy {
    /// Answer everybody: the configuration asks for a scope beyond the site.
    pub allow_all: bool,
    /// Addresses that the configuration names as peers.
    pub peers: Vec<IpAddr>,
}

impl SourcePolicy {
    /// Whether a query from `source` may be answered: from addresses that the internet does not
    /// route, from subnets of this host, and from configured peers. While the subnets are unknown,
    /// everybody is answered.
    pub(crate) fn allows(&self, source: IpAddr, interfaces: &[Interface]) -> bool {
        self.allow_all
            || !is_routed(source)
            || interfaces.is_empty()
            || self.peers.contains(&source)
            || interfaces
                .iter()
                .any(|interface| interface.contains(source))
    }
}

/// Whether packets from this address can come from anywhere in the internet.
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
/// interfaces and addresses; the resolver needs one answer.
#[derive(Debug, Default)]
struct RecentQueries {
    hasher: RandomState,
    seen: HashMap<u64, f64>,
}

impl RecentQueries {
    fn is_new(&mut self, to: SocketAddr, id: &[u8], query: &[u8], now: f64) -> bool {
        // Keyed by a secret hash: nobody can aim at a collision, and chance ones do not happen.
        let key = self.hasher.hash_one((to, id, query));
        if self
            .seen
            .get(&key)
            .is_some_and(|&last| now - last < REPEAT_SECS)
        {
            return false;
        }
        if self.seen.len() >= MAX_RECENT_QUERIES {
            self.seen.retain(|_, last| now - *last < REPEAT_SECS);
            if self.seen.len() >= MAX_RECENT_QUERIES {
                // Tens of thousands of queries a second: answering some twice is the lesser evil.
                self.seen.clear();
            }
        }
        self.seen.insert(key, now);
        true
    }
}

/// Within this time a repeated query is not answered again; the fastest resolvers ask every 0.5 s.
const REPEAT_SECS: f64 = 0.1;
const MAX_RECENT_QUERIES: usize = 4096;

/// Ports below are system services, which no resolver listens on and an attacker may aim at.
const FIRST_UNPRIVILEGED_PORT: u16 = 1024;

#[cfg(test)]
mod tests;
