//! Queue of answers to discovery queries: evaluates the queries of a [`Registry`](super::registry::Registry)
//! and paces what matches.
//!
//! Hosts share its time by the work they cost, as in fair queueing: next is who had least, so whoever
//! asks little waits for nobody. It pauses after a little work, however many streams that was, because
//! clock probes and samples share the thread. Answers leave in bursts short enough for the receive
//! buffer of a liblsl resolver, which holds about a hundred, and all together at a pace: whoever forges
//! senders has as many as they like. Spec: lsl-protocol §3, §15.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

use lsl_secure::Policy;

use super::evaluation::{Evaluator, QueryAccount};
use super::registry::Streams;
use crate::limits::Host;
use crate::query::Query;
use crate::wire::discovery::ReplyDatagram;

/// A query that deserves an answer. It is evaluated stream by stream, so that many streams or a costly
/// query do not keep a thread from clock probes.
#[derive(Debug)]
pub struct PendingQuery {
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

/// Result of looking at one stream for a [`PendingQuery`].
enum QueryStep {
    /// It matches: the datagram to send.
    Reply(Vec<u8>),
    /// The stream does not match the query.
    No,
    /// There is no stream left, or the query is none or too costly.
    End,
}

impl PendingQuery {
    pub(super) fn new(to: SocketAddr, due: f64, id: &[u8], text: &[u8], streams: Streams) -> Self {
        Self {
            to,
            due,
            id: id.to_vec(),
            text: text.to_vec(),
            query: None,
            account: QueryAccount::of(to.ip()),
            streams,
            next: 0,
        }
    }

    /// Returns when to start sending, in seconds of `local_clock`.
    pub fn due(&self) -> f64 {
        self.due
    }

    /// Returns whether this is not begun, and answers `copy` as well.
    fn answers_too(&self, copy: &Self) -> bool {
        self.next == 0 && (self.to, &self.id, &self.text) == (copy.to, &copy.id, &copy.text)
    }

    /// Looks at the next stream.
    fn step(&mut self, evaluator: &mut Evaluator, policy: Policy, now: f64) -> QueryStep {
        let account = &mut self.account;
        let query = match &self.query {
            Some(query) => query,
            None => match evaluator.parse(&self.text, account, now) {
                Ok(query) => &*self.query.insert(query),
                Err(_) => return QueryStep::End,
            },
        };
        let Some((_, stream)) = self.streams.get(self.next) else {
            return QueryStep::End;
        };
        self.next += 1;
        let view = stream.view(policy);
        account.look();
        match evaluator.evaluate(query, &view.document, account, now) {
            Ok(true) => {}
            Ok(false) => return QueryStep::No,
            Err(_) => return QueryStep::End,
        }
        account.spent += REPLY_WORK;
        let reply = ReplyDatagram {
            id: &self.id,
            xml: &view.shortinfo,
        };
        QueryStep::Reply(reply.to_bytes())
    }
}

/// An answer to be sent, by the socket `S` that the query came to.
#[derive(Debug)]
pub struct Reply<S> {
    /// Socket that the query came to.
    pub at: S,
    /// Endpoint that the query named.
    pub to: SocketAddr,
    /// Bytes of the datagram to send.
    pub bytes: Vec<u8>,
}

/// The queries that are not answered to the end, by host. See the module's documentation.
///
/// The driver pushes queries, sends what [`poll_transmit`](Self::poll_transmit) returns until that is
/// `None`, and calls it again at the time of [`poll_timeout`](Self::poll_timeout).
#[derive(Debug)]
pub struct AnswerQueue<S> {
    hosts: Vec<HostQueue<S>>,
    /// Copies of queries, whose answer is not due yet.
    delayed: Vec<(S, PendingQuery)>,
    /// The first time at which one of `delayed` is due.
    next_due: f64,
    /// Work that the host served last had before that.
    clock: u64,
    /// Answers since the last pause.
    sent: usize,
    turn: Option<HostTurn>,
    /// Nothing is sent before this time.
    paused_until: f64,
    /// Queries whose matching streams were sent.
    pub answered: u64,
    /// Queries dropped because too many were waiting.
    pub overflow: u64,
}

/// Queries of one host that wait for answers.
#[derive(Debug)]
struct HostQueue<S> {
    host: Host,
    /// Work it had, counted from that of the others when it came.
    had: u64,
    /// The first one is served during a [`HostTurn`].
    resolvers: VecDeque<ResolverQueue<S>>,
}

/// Queries of one resolver, one after the other: a search that is over, but still has thousands of
/// answers coming, must not hold up the next one of another resolver.
#[derive(Debug)]
struct ResolverQueue<S> {
    to: SocketAddr,
    queries: VecDeque<QueuedQuery<S>>,
    /// Answers since the last pause.
    sent: usize,
}

#[derive(Debug)]
struct QueuedQuery<S> {
    at: S,
    query: PendingQuery,
    is_answered: bool,
}

/// The turn of one host: it ends after so many answers or [`TURN_WORK`].
#[derive(Debug)]
struct HostTurn {
    /// Index of the host in `AnswerQueue::hosts`.
    host: usize,
    answers: usize,
    work: u64,
}

impl<S> HostQueue<S> {
    fn queries(&self) -> usize {
        self.resolvers.iter().map(|it| it.queries.len()).sum()
    }

    fn may_send(&self) -> Option<usize> {
        self.resolvers.iter().position(|it| it.sent < BURST)
    }
}

impl<S> Default for AnswerQueue<S> {
    fn default() -> Self {
        Self {
            hosts: Vec::new(),
            delayed: Vec::new(),
            next_due: f64::INFINITY,
            clock: 0,
            sent: 0,
            turn: None,
            paused_until: f64::NEG_INFINITY,
            answered: 0,
            overflow: 0,
        }
    }
}

impl<S: Clone> AnswerQueue<S> {
    /// Takes a query that came to the socket `at`. If there are too many, one goes of the host that has
    /// most.
    pub fn push(&mut self, at: S, query: PendingQuery, now: f64) {
        if query.due <= now {
            self.enqueue(at, query);
        } else if self.delayed.len() < MAX_WAITING {
            self.next_due = self.next_due.min(query.due);
            self.delayed.push((at, query));
        } else {
            self.overflow += 1;
        }
    }

    fn enqueue(&mut self, at: S, query: PendingQuery) {
        let (to, host) = (query.to, query.account.host);
        let query = QueuedQuery {
            at,
            query,
            is_answered: false,
        };
        let index = self.hosts.iter().position(|known| known.host == host);
        let index = index.unwrap_or_else(|| {
            self.hosts.push(HostQueue {
                host,
                had: self.clock,
                resolvers: VecDeque::new(),
            });
            self.hosts.len() - 1
        });
        let resolvers = &mut self.hosts[index].resolvers;
        match resolvers.iter_mut().find(|resolver| resolver.to == to) {
            Some(resolver) => {
                // Copies come for as long as it takes to answer the first, and one answer that is not
                // begun is enough for them: 2,000 streams would be sent a dozen times in each wave.
                let queries = &mut resolver.queries;
                let same = |other: &&mut QueuedQuery<S>| other.query.answers_too(&query.query);
                match queries.iter_mut().find(same) {
                    Some(same) => *same = query,
                    None => queries.push_back(query),
                }
            }
            None => resolvers.push_back(ResolverQueue {
                to,
                queries: VecDeque::from([query]),
                sent: 0,
            }),
        }
        if self.hosts.iter().map(HostQueue::queries).sum::<usize>() > MAX_WAITING {
            self.overflow += 1;
            self.drop_one();
        }
    }

    fn drop_one(&mut self) {
        self.end_turn();
        let most = self.hosts.iter_mut().max_by_key(|host| host.queries());
        let longest = most.and_then(|host| {
            let resolvers = host.resolvers.iter_mut();
            resolvers.max_by_key(|resolver| resolver.queries.len())
        });
        if let Some(resolver) = longest {
            resolver.queries.pop_back();
        }
        for host in &mut self.hosts {
            host.resolvers
                .retain(|resolver| !resolver.queries.is_empty());
        }
        self.hosts.retain(|host| !host.resolvers.is_empty());
    }

    /// Works a little for the host that had least. Returns the next answer to send, or `None` when its
    /// turn is over or nothing may be sent now.
    pub fn poll_transmit(
        &mut self,
        evaluator: &mut Evaluator,
        policy: Policy,
        now: f64,
    ) -> Option<Reply<S>> {
        if now < self.paused_until {
            return None;
        }
        if now >= self.next_due {
            self.enqueue_due(now);
        }
        let mut turn = match self.turn.take() {
            Some(turn) => turn,
            None => self.begin_turn(now)?,
        };
        let host = self.hosts.get_mut(turn.host)?;
        let resolver = host.resolvers.front_mut()?;
        let mut reply = None;
        while reply.is_none()
            && turn.answers > 0
            && turn.work < TURN_WORK
            && let Some(queued) = resolver.queries.front_mut()
        {
            let step = queued.query.step(evaluator, policy, now);
            turn.work += std::mem::take(&mut queued.query.account.spent);
            match step {
                QueryStep::Reply(bytes) => {
                    if !std::mem::replace(&mut queued.is_answered, true) {
                        self.answered += 1;
                    }
                    turn.answers -= 1;
                    resolver.sent += 1;
                    self.sent += 1;
                    reply = Some(Reply {
                        at: queued.at.clone(),
                        to: resolver.to,
                        bytes,
                    });
                }
                QueryStep::No => {}
                QueryStep::End => drop(resolver.queries.pop_front()),
            }
        }
        self.turn = Some(turn);
        if reply.is_none() {
            self.end_turn();
        }
        reply
    }

    /// Returns when to call [`poll_transmit`](Self::poll_transmit) again, in seconds of `local_clock`:
    /// `now` while there is work, after which others must have had the thread.
    pub fn poll_timeout(&self, now: f64) -> Option<f64> {
        let next = if self.hosts.is_empty() {
            self.next_due
        } else {
            now
        };
        next.is_finite().then(|| next.max(self.paused_until))
    }

    /// Returns whether no query can be worked on, though some may be due later.
    pub fn is_idle(&self) -> bool {
        self.hosts.is_empty()
    }

    /// Drops the query whose last answer could not be sent.
    pub fn handle_unsent(&mut self) {
        if let Some(turn) = &self.turn
            && let Some(host) = self.hosts.get_mut(turn.host)
            && let Some(resolver) = host.resolvers.front_mut()
        {
            resolver.queries.pop_front();
        }
    }

    fn enqueue_due(&mut self, now: f64) {
        let due: Vec<_> = self
            .delayed
            .extract_if(.., |(_, query)| query.due <= now)
            .collect();
        let next = self.delayed.iter().map(|(_, query)| query.due);
        self.next_due = next.fold(f64::INFINITY, f64::min);
        for (at, query) in due {
            self.enqueue(at, query);
        }
    }

    /// Chooses the next host, or begins a pause if all have had their answers.
    fn begin_turn(&mut self, now: f64) -> Option<HostTurn> {
        if self.hosts.is_empty() {
            return None;
        }
        let next = (self.hosts.iter_mut().enumerate())
            .filter_map(|(index, host)| Some((index, host.may_send()?, host)))
            .min_by_key(|(_, _, host)| host.had);
        let Some((index, resolver, host)) = next.filter(|_| self.sent < MOST_AT_ONCE) else {
            self.sent = 0;
            for host in &mut self.hosts {
                host.resolvers.iter_mut().for_each(|it| it.sent = 0);
            }
            self.paused_until = now + BURST_PAUSE_SECS;
            return None;
        };
        self.clock = host.had;
        let resolver = host.resolvers.remove(resolver)?;
        let answers = (MOST_AT_ONCE - self.sent).min(BURST - resolver.sent);
        host.resolvers.push_front(resolver);
        Some(HostTurn {
            host: index,
            answers,
            work: 0,
        })
    }

    fn end_turn(&mut self) {
        let Some(turn) = self.turn.take() else {
            return;
        };
        if let Some(host) = self.hosts.get_mut(turn.host) {
            host.had += turn.work;
            let served = host.resolvers.pop_front();
            // Its next turn comes after those of the host's other resolvers.
            let rest = served.filter(|resolver| !resolver.queries.is_empty());
            host.resolvers.extend(rest);
        }
        self.hosts.retain(|host| !host.resolvers.is_empty());
    }
}

/// Queries that wait to be answered: those of some thousand readers on one host that lost their streams
/// together. More are dropped.
pub const MAX_WAITING: usize = 2048;
/// Answers to one resolver between two pauses.
const BURST: usize = 16;
/// Answers to all resolvers between two pauses.
const MOST_AT_ONCE: usize = 4 * BURST;
const BURST_PAUSE_SECS: f64 = 0.001;
/// After so much work the thread is for others: about 30 µs.
const TURN_WORK: u64 = 16 << 10;
/// Price of making and sending an answer.
const REPLY_WORK: u64 = 2 << 10;

#[cfg(test)]
mod tests;
