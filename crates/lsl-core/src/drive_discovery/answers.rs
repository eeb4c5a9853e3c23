//! Answers to discovery queries: one task evaluates the queries that came in and sends what matches.
//!
//! Sources share its time by what they cost it, as in fair queueing: next is who had least, so whoever
//! asks little waits for nobody. It yields after a little work, however many streams that was, because
//! clock probes and samples share the thread. Answers leave in bursts short enough for the receive
//! buffer of a liblsl resolver, which holds about a hundred, and all together at a pace: whoever forges
//! senders has as many as they like. Spec: lsl-protocol §3, §15.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use lsl_platform::clock::local_clock;
use tokio::net::UdpSocket;
use tokio::sync::mpsc;

use crate::drive_discovery::query_budget::Host;
use crate::drive_discovery::registry::{PendingQuery, QueryStep, Registry, count};

/// A query and the socket that it came in by, which is also the one that answers.
pub(crate) type Queued = (Arc<UdpSocket>, PendingQuery);

/// Evaluates and answers what comes, until nobody can send any more.
pub(crate) async fn send_answers(mut queue: mpsc::Receiver<Queued>, registry: Arc<Registry>) {
    let mut waiting = AnswerQueue::default();
    loop {
        if waiting.sources.is_empty() {
            match queue.recv().await {
                Some(queued) => waiting.push(queued, &registry),
                None => return,
            }
        }
        while let Ok(queued) = queue.try_recv() {
            waiting.push(queued, &registry);
        }
        match waiting.slice(&registry).await {
            Progress::GoOn => tokio::task::yield_now().await,
            Progress::Pause => tokio::time::sleep(BURST_PAUSE).await,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    GoOn,
    Pause,
}

/// The queries that are not answered to the end, by who asked.
#[derive(Default)]
struct AnswerQueue {
    sources: Vec<HostQueue>,
    /// What the source that was served last had before that.
    clock: u64,
    /// Answers since the last pause.
    sent: usize,
}

/// What one source waits for.
struct HostQueue {
    source: Host,
    /// Work it had, counted from what others had when it came.
    had: u64,
    lanes: VecDeque<ResolverQueue>,
}

/// The queries of one resolver, one after the other: a search that is over, but still has thousands of
/// answers coming, must not hold up the next one of another resolver.
struct ResolverQueue {
    to: SocketAddr,
    queries: VecDeque<Answering>,
    /// Answers since the last pause.
    sent: usize,
}

struct Answering {
    socket: Arc<UdpSocket>,
    matches: PendingQuery,
    is_answered: bool,
}

impl HostQueue {
    fn queries(&self) -> usize {
        self.lanes.iter().map(|lane| lane.queries.len()).sum()
    }

    fn may_send(&self) -> Option<usize> {
        self.lanes.iter().position(|lane| lane.sent < BURST)
    }
}

impl AnswerQueue {
    /// Takes a query. If there are too many, one goes of whoever has most.
    fn push(&mut self, (socket, matches): Queued, registry: &Registry) {
        let (to, source) = (matches.to(), matches.source());
        let query = Answering {
            socket,
            matches,
            is_answered: false,
        };
        let known = self.sources.iter().position(|known| known.source == source);
        let at = known.unwrap_or_else(|| {
            self.sources.push(HostQueue {
                source,
                had: self.clock,
                lanes: VecDeque::new(),
            });
            self.sources.len() - 1
        });
        let asking = &mut self.sources[at];
        match asking.lanes.iter_mut().find(|lane| lane.to == to) {
            Some(lane) => {
                // Copies come for as long as it takes to answer the first, and one answer that is not
                // begun is enough for them: 2,000 streams would be sent a dozen times in each wave.
                let queries = &mut lane.queries;
                let same = |other: &&mut Answering| other.matches.answers_too(&query.matches);
                match queries.iter_mut().find(same) {
                    Some(same) => *same = query,
                    None => queries.push_back(query),
                }
            }
            None => asking.lanes.push_back(ResolverQueue {
                to,
                queries: VecDeque::from([query]),
                sent: 0,
            }),
        }
        if self.sources.iter().map(HostQueue::queries).sum::<usize>() > MAX_WAITING {
            count(&registry.counters.overflow);
            self.drop_one();
        }
    }

    fn drop_one(&mut self) {
        let most = self
            .sources
            .iter_mut()
            .max_by_key(|asking| asking.queries());
        let longest = most.and_then(|asking| {
            let lanes = asking.lanes.iter_mut();
            lanes.max_by_key(|lane| lane.queries.len())
        });
        if let Some(lane) = longest {
            lane.queries.pop_back();
        }
        for asking in &mut self.sources {
            asking.lanes.retain(|lane| !lane.queries.is_empty());
        }
        self.sources.retain(|asking| !asking.lanes.is_empty());
    }

    /// Works a little for the source that had least.
    async fn slice(&mut self, registry: &Registry) -> Progress {
        let next = (self.sources.iter_mut())
            .filter_map(|asking| Some((asking.may_send()?, asking)))
            .min_by_key(|(_, asking)| asking.had);
        let Some((at, asking)) = next.filter(|_| self.sent < MOST_AT_ONCE) else {
            self.sent = 0;
            for asking in &mut self.sources {
                asking.lanes.iter_mut().for_each(|lane| lane.sent = 0);
            }
            return Progress::Pause;
        };
        self.clock = asking.had;
        if let Some(mut lane) = asking.lanes.remove(at) {
            let before = lane.sent;
            let most = (MOST_AT_ONCE - self.sent).min(BURST - lane.sent);
            asking.had += lane.slice(lane.sent + most, registry).await;
            self.sent += lane.sent - before;
            if !lane.queries.is_empty() {
                // Its next turn comes after those of the source's other resolvers.
                asking.lanes.push_back(lane);
            }
        }
        self.sources.retain(|asking| !asking.lanes.is_empty());
        Progress::GoOn
    }
}

impl ResolverQueue {
    /// Goes on with the first queries, until so many answers were sent or `SLICE_WORK` was done. Says how
    /// much work it was.
    async fn slice(&mut self, answers: usize, registry: &Registry) -> u64 {
        let mut work = 0;
        while let Some(query) = self.queries.front_mut()
            && self.sent < answers
            && work < SLICE_WORK
        {
            let step = query.matches.step(registry, local_clock());
            work += query.matches.take_spent();
            match step {
                QueryStep::Reply(reply) => match query.socket.send_to(&reply, self.to).await {
                    Ok(_) => {
                        if !std::mem::replace(&mut query.is_answered, true) {
                            count(&registry.counters.answered);
                        }
                        self.sent += 1;
                    }
                    Err(error) => {
                        tracing::debug!(%error, to = %self.to, "cannot answer a query");
                        self.queries.pop_front();
                    }
                },
                QueryStep::No => {}
                QueryStep::End => drop(self.queries.pop_front()),
            }
        }
        work
    }
}

/// Queries that wait to be answered: those of some thousand readers on one host that lost their streams
/// together. More are dropped.
pub(crate) const MAX_WAITING: usize = 2048;
/// Answers to one resolver between two pauses.
const BURST: usize = 16;
/// Answers to all resolvers between two pauses.
const MOST_AT_ONCE: usize = 4 * BURST;
const BURST_PAUSE: Duration = Duration::from_millis(1);
/// After so much work the thread is for others: about 30 µs.
const SLICE_WORK: u64 = 16 << 10;

#[cfg(test)]
mod tests;
