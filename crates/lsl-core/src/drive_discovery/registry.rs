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
use lsl_proto::limits::TokenBucket;
use lsl_proto::query::{EvalError, MAX_QUERY_BYTES, Query, QueryCache, costly_work, parse_work};
use lsl_proto::wire::discovery::{ReplyDatagram, Request, parse_datagram};
use lsl_proto::wire::timedata::TimeRequest;
use lsl_proto::xml::Document;
use lsl_secure::{Policy, Security};

use crate::Result;
use crate::drive_discovery::query_budget::{Host, QueryAccount, QueryBudget};
use crate::net::monitor::lock_ignoring_poison;
use crate::net::sealed_time::SealedClocks;

/// One stream that is announced.
#[derive(Debug)]
pub(crate) struct AnnouncedStream {
    shown: PublicView,
    /// What is shown as soon as the policy is `required`.
    later: Option<(Arc<Security>, PublicView)>,
}

/// What strangers may ask about a stream, and what they get.
#[derive(Debug)]
pub(crate) struct PublicView {
    /// Queries see this.
    pub document: Document,
    /// The short form of the info, rendered once: what resolvers get.
    pub shortinfo: Vec<u8>,
}

impl AnnouncedStream {
    /// A stream of which everything may be asked, `desc` included.
    #[cfg(test)]
    pub(crate) fn plain(info: &crate::StreamInfo) -> Self {
        Self {
            shown: PublicView {
                document: info.document().clone(),
                shortinfo: info.to_shortinfo_xml(),
            },
            later: None,
        }
    }

    /// A stream that is shown so, and in the other way once this security requires encryption.
    pub(crate) fn new(shown: PublicView, later: Option<(Arc<Security>, PublicView)>) -> Self {
        Self { shown, later }
    }

    /// What is shown now.
    pub(crate) fn shown(&self) -> &PublicView {
        if let Some((security, later)) = &self.later
            && security.policy() == Policy::Required
        {
            return later;
        }
        &self.shown
    }
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
    /// Send this, the time under the keys of a session, to where the probe came from, at once.
    SealedTime([u8; lsl_secure::TIME_PACKET_LEN]),
    /// Send the matching streams, in [`PendingQuery`].
    Streams(PendingQuery),
}

/// Something happened to a datagram that is worth counting.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// Queries whose matching streams were sent.
    pub answered: AtomicU64,
    /// Datagrams with our command that could not be read, and queries that are none.
    pub malformed: AtomicU64,
    /// Copies of queries that have an answer under way.
    pub duplicates: AtomicU64,
    /// Queries of senders or for ports that we do not answer.
    pub refused: AtomicU64,
    /// Queries dropped because too many were waiting to be answered.
    pub overflow: AtomicU64,
    /// Queries dropped because they were costly, and their source had no more work to spend.
    pub costly: AtomicU64,
    /// Work that queries took, in the units of [`MAX_WORK`](lsl_proto::query::MAX_WORK).
    pub query_work: AtomicU64,
    /// Clock probes without session, not authentic, replayed, or in plaintext where that is forbidden.
    pub time_dropped: AtomicU64,
}

/// The streams with their keys; whoever answers a query keeps the list as it was at the start.
type Streams = Arc<Vec<(u64, Arc<AnnouncedStream>)>>;

/// Adds one to a counter that nobody synchronises by.
pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// The announced streams of one context.
#[derive(Debug)]
pub(crate) struct Registry {
    streams: Mutex<Streams>,
    queries: Mutex<QueryCache>,
    recent: Mutex<RecentQueries>,
    interfaces: Mutex<Arc<[Interface]>>,
    sources: SourcePolicy,
    /// A token is a query of a stranger.
    strangers: Mutex<TokenBucket>,
    costly: Mutex<QueryBudget>,
    next_key: AtomicU64,
    /// Forbids answers in plaintext.
    security: Option<Arc<Security>>,
    /// Clock probes of sessions.
    pub clocks: Arc<SealedClocks>,
    /// What happened so far.
    pub counters: Counters,
}

impl Registry {
    /// Nothing announced yet. `max_queries` is `tuning.MaxCachedQueries`.
    pub(crate) fn new(max_queries: usize, sources: SourcePolicy) -> Self {
        Self {
            streams: Mutex::default(),
            queries: Mutex::new(QueryCache::new(max_queries)),
            recent: Mutex::default(),
            interfaces: Mutex::new(Arc::new([])),
            sources,
            strangers: Mutex::new(TokenBucket::new(STRANGERS_PER_SEC, STRANGERS_PER_SEC)),
            costly: Mutex::default(),
            next_key: AtomicU64::new(1),
            security: None,
            clocks: Arc::default(),
            counters: Counters::default(),
        }
    }

    /// The same under a policy; without one nothing in plaintext is forbidden.
    pub(crate) fn under(mut self, security: Option<Arc<Security>>) -> Self {
        self.security = security;
        self
    }

    /// Starts to announce a stream; the key takes it back.
    pub(crate) fn add(&self, stream: impl Into<Arc<AnnouncedStream>>) -> u64 {
        let key = self.next_key.fetch_add(1, Ordering::Relaxed);
        Arc::make_mut(&mut lock_ignoring_poison(&self.streams)).push((key, stream.into()));
        key
    }

    /// The answer to a clock probe under the keys of a session. Spec: LSS/1 §9.3.
    fn sealed_time(&self, arrival: Arrival, datagram: &[u8], now: f64) -> Answer {
        let answer = match arrival {
            Arrival::Service => self.clocks.answer(datagram, now),
            Arrival::Responder => None,
        };
        answer.map_or_else(
            || {
                count(&self.counters.time_dropped);
                Answer::Ignore
            },
            Answer::SealedTime,
        )
    }

    /// Whether clock probes in plaintext get no answer: anybody could give one.
    fn forbids_plain_time(&self) -> bool {
        (self.security.as_ref()).is_some_and(|security| security.policy() == Policy::Required)
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
        if SealedClocks::concerns(datagram) {
            return self.sealed_time(arrival, datagram, now);
        }
        let query = match parse_datagram(datagram) {
            Ok(Request::TimeData(_)) if self.forbids_plain_time() => {
                count(&self.counters.time_dropped);
                return Answer::Ignore;
            }
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
        let known = self.sources.knows(from.ip(), &interfaces);
        if query.return_port < FIRST_UNPRIVILEGED_PORT
            || !(known || lock_ignoring_poison(&self.strangers).take(now))
        {
            count(&self.counters.refused);
            return Answer::Ignore;
        }
        if query.query.len() > MAX_QUERY_BYTES {
            count(&self.counters.malformed);
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
        let due = lock_ignoring_poison(&self.recent).due(to, query.id, query.query, now);
        let Some(due) = due else {
            count(&self.counters.duplicates);
            return Answer::Ignore;
        };
        Answer::Streams(PendingQuery {
            to,
            due,
            id: query.id.to_vec(),
            text: query.query.to_vec(),
            query: None,
            account: QueryAccount::of(from.ip()),
            streams,
            next: 0,
        })
    }

    /// Whether the query of a TCP connection selects a document.
    ///
    /// # Errors
    /// [`Error::Query`](crate::Error::Query) if it is none or may not cost what it does.
    pub(crate) fn selects(
        &self,
        text: &[u8],
        from: IpAddr,
        document: &Document,
        now: f64,
    ) -> Result<bool> {
        let mut account = QueryAccount::of(from);
        let query = self.parse(text, &mut account, now)?;
        Ok(self.evaluate(&query, document, &mut account, now)?)
    }

    /// A parsed query, from the cache or at the expense of who asks.
    fn parse(&self, text: &[u8], account: &mut QueryAccount, now: f64) -> Result<Arc<Query>> {
        if let Some(query) = lock_ignoring_poison(&self.queries).get(text) {
            return Ok(query);
        }
        let price = parse_work(text.len());
        if !account.spend_cheap(price) {
            self.admit_costly(account, now)?;
            lock_ignoring_poison(&self.costly).charge(account.source, price, now);
        }
        self.counters.query_work.fetch_add(price, Ordering::Relaxed);
        let parsed = lock_ignoring_poison(&self.queries).parse(text);
        Ok(parsed.inspect_err(|_| count(&self.counters.malformed))?)
    }

    /// Whether a query selects a document. It is tried with the little that every query may spend, and
    /// again with more if whoever asks may spend it.
    fn evaluate(
        &self,
        query: &Query,
        document: &Document,
        account: &mut QueryAccount,
        now: f64,
    ) -> Result<bool, EvalError> {
        let Some(info) = document.child(document.root(), "info") else {
            return Ok(false);
        };
        let within = |work: &mut u64| {
            let allowed = *work;
            let matched = query.matches_within(document, info, work);
            let spent = allowed - *work;
            self.counters.query_work.fetch_add(spent, Ordering::Relaxed);
            (matched, spent)
        };
        let (matched, spent) = within(&mut account.cheap);
        account.spent += spent;
        if matched != Err(EvalError::TooExpensive) {
            return matched;
        }
        self.admit_costly(account, now)?;
        let (matched, spent) = within(&mut costly_work(document.len()));
        account.spent += spent;
        lock_ignoring_poison(&self.costly).charge(account.source, spent, now);
        matched
    }

    fn admit_costly(&self, account: &QueryAccount, now: f64) -> Result<(), EvalError> {
        if lock_ignoring_poison(&self.costly).admits(account.source, now) {
            return Ok(());
        }
        count(&self.counters.costly);
        Err(EvalError::TooExpensive)
    }
}

/// A query on its way to being answered, stream by stream, so that many streams or a costly query
/// do not keep a thread from clock probes.
#[derive(Debug)]
pub(crate) struct PendingQuery {
    to: SocketAddr,
    due: f64,
    id: Vec<u8>,
    text: Vec<u8>,
    /// Parsed when its turn has come.
    query: Option<Arc<Query>>,
    account: QueryAccount,
    streams: Streams,
    next: usize,
}

impl PendingQuery {
    /// Where all replies of this query go.
    pub(crate) fn to(&self) -> SocketAddr {
        self.to
    }

    /// Whether this is not begun, and answers `copy` as well.
    pub(crate) fn answers_too(&self, copy: &Self) -> bool {
        self.next == 0 && (self.to, &self.id, &self.text) == (copy.to, &copy.id, &copy.text)
    }

    /// When to start sending, in seconds of `local_clock`.
    pub(crate) fn due(&self) -> f64 {
        self.due
    }

    /// Who pays for this query.
    pub(crate) fn source(&self) -> Host {
        self.account.source
    }

    /// What was spent since the last call.
    pub(crate) fn take_spent(&mut self) -> u64 {
        std::mem::take(&mut self.account.spent)
    }

    /// Looks at the next stream at `now`. What is no query, or costs more than it may, ends.
    pub(crate) fn step(&mut self, registry: &Registry, now: f64) -> QueryStep {
        let account = &mut self.account;
        let query = match &self.query {
            Some(query) => query,
            None => match registry.parse(&self.text, account, now) {
                Ok(query) => &*self.query.insert(query),
                Err(_) => return QueryStep::End,
            },
        };
        let Some((_, stream)) = self.streams.get(self.next) else {
            return QueryStep::End;
        };
        self.next += 1;
        let shown = stream.shown();
        account.look();
        match registry.evaluate(query, &shown.document, account, now) {
            Ok(true) => {}
            Ok(false) => return QueryStep::No,
            Err(_) => return QueryStep::End,
        }
        account.spent += REPLY_WORK;
        let reply = ReplyDatagram {
            id: &self.id,
            xml: &shown.shortinfo,
        };
        QueryStep::Reply(reply.to_bytes())
    }
}

/// What became of one stream of [`PendingQuery`].
#[derive(Debug)]
pub(crate) enum QueryStep {
    /// It matches; send this.
    Reply(Vec<u8>),
    /// It does not match.
    No,
    /// There is no stream left.
    End,
}

/// Price of making and sending an answer.
const REPLY_WORK: u64 = 2 << 10;

/// Queries answered to all strangers together, a second and at once: several searches.
const STRANGERS_PER_SEC: f64 = 50.0;

/// Whose queries are answered without limit. A query may carry a forged sender, and the answer is ten
/// times as long; so all strangers from the internet together get few. Not none: a campus may give
/// its hosts routed addresses in many subnets. Spec: lsl-protocol §15.
#[derive(Debug, Clone, Default)]
pub(crate) struct SourcePolicy {
    /// Answer everybody: the configuration asks for a scope beyond the site.
    pub allow_all: bool,
    /// Addresses that the configuration names as peers.
    pub peers: Vec<IpAddr>,
}

impl SourcePolicy {
    /// Whether queries from `source` are always answered: from addresses that the internet does
    /// not route, from subnets of this host, and from configured peers. While the subnets are
    /// unknown, everybody is known.
    pub(crate) fn knows(&self, source: IpAddr, interfaces: &[Interface]) -> bool {
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
/// interfaces and addresses, and liblsl answers each copy. We answer the first at once and all the
/// others together a moment later: none at all would leave out a second search that follows the
/// first on the same port, which looks exactly like a copy.
#[derive(Debug, Default)]
struct RecentQueries {
    hasher: RandomState,
    /// When the last answer was, or will be.
    answers: HashMap<u64, f64>,
}

impl RecentQueries {
    /// When to answer a query that came `now`: at once, later, or not again.
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
