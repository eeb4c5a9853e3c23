//! Limits the handshakes of one process and orders them: pure bookkeeping with a clock passed in.
//! Spec: LSS/1 §6.2.
//!
//! Every connection that is not authenticated holds a [`Ticket`]. Asymmetric work costs a token of its
//! source and one of the process; success gives both back, so only failures count.
//!
//! A caller that must wait sleeps until the time it was given and asks again. Somebody else's call may
//! have handed it its token long before: after each call of `turn`, `succeeded` and `failed`, wake the
//! tickets that [`Admission::next`] names. Without that all still works, but in a flood of hundreds of
//! sources it takes twice as long, since sleepers are pushed out.

mod held;
mod pool;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::net::IpAddr;

pub use self::held::{Held, HeldSockets};

use self::pool::Pool;
use crate::{Host, TokenBucket};

/// Limits of one process, over all its outlets.
#[derive(Debug)]
pub struct Admission {
    max_pending: usize,
    pool: Pool,
    /// Progress of each pending connection.
    stages: HashMap<Ticket, Stage>,
    sources: HashMap<Host, Memory>,
    all: TokenBucket,
    /// Sources that wait for tokens: those never served first, by the length of their wait, then by
    /// their last turn. A source that is pushed out and comes back keeps its place, unlike in a
    /// ring.
    line: BTreeSet<QueuePosition>,
    /// Tokens handed out so far.
    turns: u64,
    /// Tickets that got their token since and do not know it.
    awarded: Vec<Ticket>,
}

/// One connection that is not authenticated yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(u64);

/// Decision about a new connection.
#[derive(Debug, PartialEq, Eq)]
pub enum Arrival {
    /// Serve it. If there is a second ticket, close that connection (with 503 before M2): it is the
    /// oldest of the source that has most. Its ticket is void; telling [`Admission::failed`] is allowed.
    Serve(Ticket, Option<Ticket>),
    /// Answer 503: its source has too many, or all others belong to known sources.
    Refuse,
}

/// Whether asymmetric work may start.
#[derive(Debug, PartialEq)]
pub enum Turn {
    /// Yes; a token is taken. Asking again changes nothing.
    Now,
    /// Ask again at this time (`local_clock`), at most 0.1 s from now, or when [`Admission::next`] names
    /// the ticket. At the connection's own deadline give up: 503 and [`Admission::failed`]. Infinite for
    /// a ticket that is void.
    Wait(f64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// M1 is not complete yet.
    Arrived,
    /// Waits for a token to start asymmetric work.
    Waiting,
    /// Has taken a token; asymmetric work is going on.
    Working,
}

/// Position of a source in the line: the number of its last turn (0: none) and its longest waiting
/// ticket.
type QueuePosition = (u64, Ticket, Host);

/// Limits and history of one source.
#[derive(Debug)]
struct Memory {
    bucket: TokenBucket,
    /// Waiting tickets of the source, the longest first.
    waiting: VecDeque<Ticket>,
    last_turn: u64,
    live: usize,
    /// Known until then without a live session.
    known_until: f64,
    seen: f64,
}

impl Admission {
    /// Creates the limits; `max_pending` is min(1024, RLIMIT_NOFILE/4), at least 1.
    pub fn new(max_pending: usize) -> Self {
        Self {
            max_pending: max_pending.max(1),
            pool: Pool::default(),
            stages: HashMap::new(),
            sources: HashMap::new(),
            all: TokenBucket::new(ALL_PER_SECOND, ALL_BURST),
            line: BTreeSet::new(),
            turns: 0,
            awarded: Vec::new(),
        }
    }

    /// Registers an accepted connection of `source` at the time `now`.
    pub fn arrive(&mut self, source: IpAddr, now: f64) -> Arrival {
        let source = Host::from(source);
        if self.pool.count(source) >= MAX_PENDING_PER_SOURCE {
            return Arrival::Refuse;
        }
        self.remember(source, now);
        let ticket = Ticket(self.pool.insert(source));
        self.stages.insert(ticket, Stage::Arrived);
        if self.pool.len() <= self.max_pending {
            return Arrival::Serve(ticket, None);
        }
        // The newcomer counts: one source too many does not push out a known one.
        let sources = &self.sources;
        let is_known = |source| {
            sources
                .get(&source)
                .is_some_and(|found| found.is_known(now))
        };
        let victim = self.pool.oldest_of_largest(is_known).map(Ticket);
        match victim {
            Some(victim) if victim != ticket => {
                self.forget(victim);
                Arrival::Serve(ticket, Some(victim))
            }
            _ => {
                self.forget(ticket);
                Arrival::Refuse
            }
        }
    }

    /// M1 is complete and wants its asymmetric work. Round robin over sources, known ones first.
    pub fn turn(&mut self, ticket: Ticket, now: f64) -> Turn {
        let (Some(stage), Some(source)) =
            (self.stages.get_mut(&ticket), self.pool.source(ticket.0))
        else {
            return Turn::Wait(f64::INFINITY);
        };
        if *stage == Stage::Arrived {
            *stage = Stage::Waiting;
            self.remember(source, now);
            self.change_line(source, |memory| memory.waiting.push_back(ticket));
        }
        self.hand_out(now);
        if self.stages.get(&ticket) == Some(&Stage::Working) {
            self.awarded.retain(|other| *other != ticket);
            Turn::Now
        } else {
            Turn::Wait(now + self.delay_secs(source, ticket))
        }
    }

    /// Returns the tickets whose turn has come since the last call: wake them, [`turn`](Self::turn)
    /// answers them with [`Turn::Now`]. Each is named once.
    pub fn next(&mut self, now: f64) -> Vec<Ticket> {
        self.hand_out(now);
        std::mem::take(&mut self.awarded)
    }

    /// M3 was accepted: the token comes back and the source is known while it has a session and for
    /// 10 minutes after it. Tell [`session_closed`](Self::session_closed) when this one ends.
    pub fn succeeded(&mut self, ticket: Ticket, now: f64) {
        let Some(source) = self.pool.source(ticket.0) else {
            return;
        };
        let stage = self.forget(ticket);
        let memory = self.remember(source, now);
        memory.live += 1;
        if stage == Some(Stage::Working) {
            memory.bucket.charge(-1.0, now);
            self.all.charge(-1.0, now);
        }
    }

    /// The connection ended before M3 was accepted. Its token, if it had one, is lost.
    pub fn failed(&mut self, ticket: Ticket, now: f64) {
        if let Some(source) = self.pool.source(ticket.0) {
            self.remember(source, now);
        }
        self.forget(ticket);
    }

    /// A session that began with [`succeeded`](Self::succeeded) is over.
    pub fn session_closed(&mut self, source: IpAddr, now: f64) {
        let memory = self.remember(Host::from(source), now);
        if memory.live > 0 {
            memory.live -= 1;
            memory.known_until = now + KNOWN_SECS;
        }
    }

    /// Connections that are not authenticated now.
    pub fn pending(&self) -> usize {
        self.pool.len()
    }

    /// Gives tokens to those who wait, while there are any.
    fn hand_out(&mut self, now: f64) {
        while self.all.ready_at(now) <= now {
            // A source that used up its own tokens stays in the line and is passed over. There are few
            // of them: to get there it takes 256 tokens of the 1024, or a tenth of 200 a second.
            let mut next = None;
            for (_, _, source) in &self.line {
                let Some(memory) = self.sources.get_mut(source) else {
                    continue;
                };
                if memory.bucket.ready_at(now) <= now {
                    if memory.is_known(now) {
                        next = Some(*source);
                        break;
                    }
                    next = next.or(Some(*source));
                }
            }
            let Some(source) = next else {
                return;
            };
            self.turns += 1;
            let turn = self.turns;
            let ticket = self.change_line(source, |memory| {
                memory.last_turn = turn;
                memory.bucket.take(now);
                memory.waiting.pop_front()
            });
            self.all.take(now);
            if let Some(ticket) = ticket.flatten() {
                self.stages.insert(ticket, Stage::Working);
                self.awarded.push(ticket);
            }
        }
    }

    /// Changes a source that waits, or stops or begins to, and its place in the line.
    fn change_line<T>(&mut self, source: Host, change: impl FnOnce(&mut Memory) -> T) -> Option<T> {
        let memory = self.sources.get_mut(&source)?;
        if let Some(place) = memory.place(source) {
            self.line.remove(&place);
        }
        let result = change(memory);
        if let Some(place) = memory.place(source) {
            self.line.insert(place);
        }
        Some(result)
    }

    /// About how long a waiting ticket will wait: for the sources before its own, and for all in the
    /// line between two turns of its own. Only an estimate, since others give up, succeed or are known.
    fn delay_secs(&self, source: Host, ticket: Ticket) -> f64 {
        let Some(memory) = self.sources.get(&source) else {
            return LONGEST_NAP_SECS;
        };
        // Sources further back sleep for the longest time anyhow.
        let before = memory.place(source).map_or(0, |place| {
            let before = self.line.range(..place);
            before.take(MAX_COUNTED).count()
        });
        let own = memory.waiting.iter().take(MAX_COUNTED);
        let rounds = own.take_while(|other| **other != ticket).count();
        #[expect(clippy::cast_precision_loss, reason = "at most 20 times 1024")]
        let turns = (before + rounds * self.line.len() + 1) as f64;
        (turns / ALL_PER_SECOND).clamp(SHORTEST_NAP_SECS, LONGEST_NAP_SECS)
    }

    /// The ticket is void from here.
    fn forget(&mut self, ticket: Ticket) -> Option<Stage> {
        let source = self.pool.remove(ticket.0)?;
        let stage = self.stages.remove(&ticket);
        self.awarded.retain(|other| *other != ticket);
        if stage == Some(Stage::Waiting) {
            self.change_line(source, |memory| {
                memory.waiting.retain(|other| *other != ticket);
            });
        }
        stage
    }

    /// Returns the record of a source seen just now, creating it if needed.
    fn remember(&mut self, source: Host, now: f64) -> &mut Memory {
        if self.sources.len() >= MAX_SOURCES && !self.sources.contains_key(&source) {
            self.make_room(now);
        }
        let memory = self.sources.entry(source).or_insert_with(|| Memory {
            bucket: TokenBucket::new(SOURCE_PER_SECOND, SOURCE_BURST),
            waiting: VecDeque::new(),
            last_turn: 0,
            live: 0,
            known_until: f64::NEG_INFINITY,
            seen: now,
        });
        memory.seen = memory.seen.max(now);
        memory
    }

    /// Forgets sources: those that would be met like new ones, then the longest unseen, strangers
    /// first. A quarter of them at once, so that a flood of addresses does not pay this each time.
    fn make_room(&mut self, now: f64) {
        let pool = &self.pool;
        self.sources.retain(|source, memory| {
            pool.count(*source) > 0 || memory.is_known(now) || !memory.bucket.is_full(now)
        });
        let room = MAX_SOURCES / 4 * 3;
        if self.sources.len() <= room {
            return;
        }
        let idle = self.sources.iter().filter(|(source, memory)| {
            // Bounded by descriptors, and needed to count.
            pool.count(**source) == 0 && memory.live == 0
        });
        let mut idle: Vec<_> = idle
            .map(|(source, memory)| (memory.is_known(now), memory.seen, *source))
            .collect();
        idle.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
        for (_, _, source) in idle.into_iter().take(self.sources.len() - room) {
            self.sources.remove(&source);
        }
    }
}

impl Memory {
    fn is_known(&self, now: f64) -> bool {
        self.live > 0 || now < self.known_until
    }

    fn place(&self, source: Host) -> Option<QueuePosition> {
        Some((self.last_turn, *self.waiting.front()?, source))
    }
}

/// Connections before M3 is accepted, of one source.
const MAX_PENDING_PER_SOURCE: usize = 256;
/// Failures that one source may cause.
const SOURCE_PER_SECOND: f64 = 20.0;
const SOURCE_BURST: f64 = 256.0;
/// Failures that all sources may cause.
const ALL_PER_SECOND: f64 = 200.0;
const ALL_BURST: f64 = 1024.0;
/// Time that a source stays known after its last session.
const KNOWN_SECS: f64 = 600.0;
/// Sources that are remembered without a connection or a session.
const MAX_SOURCES: usize = 4096;
/// Time in which all sources together earn one token.
const SHORTEST_NAP_SECS: f64 = 0.005;
const LONGEST_NAP_SECS: f64 = 0.1;
/// Turns in the longest nap.
const MAX_COUNTED: usize = 20;

#[cfg(test)]
mod pacing;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;
