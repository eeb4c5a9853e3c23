//! What goes wrong with a server of any kind.

use std::collections::VecDeque;

use crate::engine::{EngineError, ErrorKind};
use crate::shell::engine::redis::ConnectionId;

/// How likely what goes wrong is, out of 1000 requests.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Chaos {
    pub(super) cuts: u64,
    pub(super) late: u64,
    pub(super) full: u64,
    pub(super) failovers: u64,
    pub(super) restarts: u64,
}

/// Random numbers that a seed decides (splitmix64).
#[derive(Debug, Clone)]
pub(super) struct Random(pub(super) u64);

impl Random {
    /// Returns a number below `limit`.
    pub(super) fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (x ^ (x >> 31)) % limit
    }

    pub(super) fn index(&mut self, limit: usize) -> usize {
        usize::try_from(self.below(limit as u64)).unwrap()
    }
}

/// A server that loses connections, replies, room and itself.
#[derive(Debug)]
pub(super) struct World<Store, Request> {
    pub(super) chaos: Chaos,
    pub(super) random: Random,
    pub(super) now: f64,
    pub(super) appends: usize,
    pub(super) store: Store,
    /// What replicas that lag have, or a disk to which it was written.
    before: VecDeque<Store>,
    pub(super) connection: ConnectionId,
    /// What waits in the buffers of connections that are gone, and for how many requests.
    late: Vec<(u64, Request)>,
    /// Requests for which there is no room, or data are being loaded.
    pub(super) full_for: u64,
    pub(super) loading_for: u64,
}

impl<Store: Clone + Default, Request> World<Store, Request> {
    pub(super) fn new(seed: u64, chaos: Chaos) -> Self {
        Self {
            chaos,
            random: Random(seed),
            now: 0.0,
            appends: 0,
            store: Store::default(),
            before: VecDeque::new(),
            connection: 1,
            late: Vec::new(),
            full_for: 0,
            loading_for: 0,
        }
    }

    /// Has a request arrive later, and ends its connection.
    pub(super) fn delay(&mut self, request: Request) {
        let after = self.random.below(12);
        self.late.push((after, request));
        self.connection += 1;
    }

    /// Has happen what does between requests. Returns those that arrive now, of connections that are gone.
    pub(super) fn happen(&mut self) -> Vec<Request> {
        let chaos = self.chaos;
        let mut rolls = |likely: u64| self.random.below(1000) < likely;
        let (full, failover, restart) = (
            rolls(chaos.full),
            rolls(chaos.failovers),
            rolls(chaos.restarts),
        );
        if full {
            self.full_for = self.random.below(30);
        }
        if failover && !self.before.is_empty() {
            let at = self.random.index(self.before.len());
            self.store = self.before[at].clone();
            self.before.clear();
        }
        if restart {
            self.store = Store::default();
            self.before.clear();
            self.loading_for = self.random.below(4);
        }
        if failover || restart {
            self.connection += 1;
            self.late.clear();
        }
        if chaos.failovers > 0 && self.random.below(5) == 0 {
            self.before.push_back(self.store.clone());
            if self.before.len() > 6 {
                self.before.pop_front();
            }
        }
        self.full_for = self.full_for.saturating_sub(1);
        self.loading_for = self.loading_for.saturating_sub(1);
        for (after, _) in &mut self.late {
            *after = after.saturating_sub(1);
        }
        let arrived = self.late.extract_if(.., |(after, _)| *after == 0);
        arrived.map(|(_, request)| request).collect()
    }
}

/// Returns the error of a connection that is gone.
pub(super) fn lost() -> EngineError {
    EngineError::new(ErrorKind::Retry, "lost")
}
