//! Whom a search asks beside its waves: hosts of networks, and over TCP. Spec: doctor §2.1, §2.4.

use std::net::SocketAddr;

use super::{Goal, SHORTEST_UNICAST_SECS, Search};
use crate::discovery::asked::AskedHosts;
use crate::discovery::fallback::{Fallback, ProbeEnd};
use crate::discovery::neighbours::{NeighbourRounds, Neighbours};
use crate::wire::discovery::QueryDatagram;

impl Search {
    /// Also asks hosts over TCP that are asked by unicast and say nothing, with regard to what other searches of the
    /// context asked.
    #[must_use]
    pub fn with_fallback(mut self, asked: AskedHosts) -> Self {
        let sought = (self.rescue.is_some(), &self.query);
        self.fallback = Some(Fallback::new(asked, &sought));
        self
    }

    /// Starts the unicast queries of a wave. Those of the last wave, if they are still on their way, go on instead.
    pub fn send_unicast(&mut self, targets: impl IntoIterator<Item = SocketAddr>, now: f64) {
        let asked = &mut self.asked;
        let targets = targets.into_iter().inspect(|target| {
            asked.insert(target.ip());
        });
        self.queries.send(targets, now);
    }

    /// Asks these data ports over TCP, unless they are still being asked (§3.6).
    pub fn probe_tcp(&mut self, targets: &[SocketAddr]) {
        self.probes.add(targets);
    }

    /// Also asks the neighbours of this host while there is no result, with regard to what other searches asked.
    #[must_use]
    pub fn with_neighbours(mut self, rounds: NeighbourRounds, now: f64) -> Self {
        self.neighbours = Some(Neighbours::new(rounds, now));
        self
    }

    /// Takes note of ports at which hosts can be asked over TCP if they say nothing, the best first.
    pub fn remember(&mut self, targets: impl IntoIterator<Item = SocketAddr>, now: f64) {
        if let Some(fallback) = &mut self.fallback {
            fallback.watch(targets, now);
        }
    }

    /// Takes note of what became of a port that was asked over TCP.
    pub fn handle_probe_ended(&mut self, target: SocketAddr, end: ProbeEnd, now: f64) {
        self.probes.on_ended(target);
        if let Some(fallback) = &mut self.fallback {
            fallback.on_ended(target, end, now);
        }
    }

    /// Returns what asks over TCP, unless there are results enough.
    pub(super) fn fallback(&mut self, now: f64) -> Option<&mut Fallback> {
        let has_enough = match self.goal {
            Goal::Once { minimum, .. } => minimum > 0 && self.len_at(now) >= minimum,
            Goal::Continuous { .. } => false,
        };
        self.fallback.as_mut().filter(|_| !has_enough)
    }

    /// Knows answers to [sweeps](super::super::sweep) of networks by this id.
    /// They ask with the empty query, which any program there answers, whatever it offers.
    #[must_use]
    pub fn with_sweeps(mut self, id: u64) -> Self {
        self.sweep_id = Some(id.to_string().into_bytes());
        self
    }

    /// Returns the datagram of a sweep; `None` without [`with_sweeps`](Self::with_sweeps).
    pub fn sweep_datagram(&self, return_port: u16) -> Option<Vec<u8>> {
        let id = self.sweep_id.as_deref()?;
        let datagram = QueryDatagram {
            query: b"",
            return_port,
            id,
        };
        Some(datagram.to_bytes())
    }

    /// Asks by unicast soon, as there are hosts that were not asked yet.
    pub fn ask_soon(&mut self, now: f64) {
        let soon = now.max(self.last_unicast + SHORTEST_UNICAST_SECS);
        self.next_unicast = self.next_unicast.min(soon);
    }
}
