//! Paces the queries of a search: a millisecond between two multicast copies and longer while answers come in
//! numbers, 64 unicast queries a millisecond. Spec: lsl-protocol §3.3, §3.4.

use std::collections::VecDeque;
use std::net::SocketAddr;

use crate::config::InterfaceAddress;

/// A query to send now, from the socket of its target's family.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Transmit {
    /// Target: a group, a broadcast address or a host.
    pub to: SocketAddr,
    /// Interface that it leaves by, for a group.
    pub interface: Option<InterfaceAddress>,
    /// Pause before it, in seconds.
    pub pause_secs: f64,
}

impl From<SocketAddr> for Transmit {
    fn from(to: SocketAddr) -> Self {
        Self {
            to,
            interface: None,
            pause_secs: 0.0,
        }
    }
}

/// Queries of the waves under way, and when they may leave.
#[derive(Debug, Default)]
pub(super) struct QueryPacer {
    multicast: VecDeque<Transmit>,
    /// Set from the first query of a wave until the answers to its last are in.
    lull: Option<Lull>,
    unicast: VecDeque<SocketAddr>,
    unicast_at: f64,
    /// Unicast queries of this wave that were sent.
    unicast_sent: usize,
    /// Datagrams that came, whatever they were.
    received: u64,
    /// Whether answers came faster than they were read.
    is_slow: bool,
}

/// Pause after a multicast query.
#[derive(Debug, Clone, Copy)]
struct Lull {
    ends_at: f64,
    ticks: u32,
    /// Datagrams that had come at the last tick.
    received: u64,
}

impl QueryPacer {
    /// Returns whether the multicast queries of a wave are still on their way, as on a host with very many
    /// interfaces.
    pub(super) fn is_spreading(&self) -> bool {
        self.lull.is_some()
    }

    /// Starts the multicast queries of a wave, unless those of the last one are on their way.
    pub(super) fn spread(&mut self, queries: Vec<Transmit>, now: f64) {
        if self.lull.is_none() && !queries.is_empty() {
            self.multicast = queries.into();
            self.lull = Some(Lull {
                ends_at: now,
                ticks: MOST_TICKS,
                received: self.received,
            });
        }
    }

    /// Starts the unicast queries of a wave, unless those of the last one are on their way: from 32,000 targets a
    /// wave takes longer than the pause after it, and what waits must stay bounded.
    pub(super) fn send(&mut self, targets: impl IntoIterator<Item = SocketAddr>, now: f64) {
        if self.unicast.is_empty() {
            self.unicast_at = self.unicast_at.max(now);
            self.unicast_sent = 0;
            self.unicast.extend(targets);
        }
    }

    /// Lets multicast queries leave more slowly from now on. Returns false if they do already.
    pub(super) fn slow_down(&mut self) -> bool {
        !std::mem::replace(&mut self.is_slow, true)
    }

    /// Counts a datagram that came.
    pub(super) fn on_datagram(&mut self) {
        self.received += 1;
    }

    /// Returns the next query to send at `now`, if one is due.
    pub(super) fn poll_transmit(&mut self, now: f64) -> Option<Transmit> {
        // First, so that the streams of this host get its loopback address.
        if now >= self.unicast_at
            && let Some(to) = self.unicast.pop_front()
        {
            self.unicast_sent += 1;
            if self.unicast_sent.is_multiple_of(UNICAST_BURST) {
                // Many peers times 32 ports in one go would overrun the queues of a network card.
                self.unicast_at = now + TICK_SECS;
            }
            return Some(to.into());
        }
        let lull = self.lull.as_mut().filter(|lull| now >= lull.ends_at)?;
        // liblsl answers every copy, once for each of an outlet's sockets: the answers of 200 of its
        // outlets to all copies together would overrun any receive buffer.
        let is_flood = self.received - lull.received >= FLOOD;
        lull.ticks += 1;
        if is_flood && lull.ticks < MOST_TICKS {
            lull.received = self.received;
            lull.ends_at = now + TICK_SECS;
            return None;
        }
        if let Some(next) = self.multicast.front_mut()
            && next.pause_secs > 0.0
        {
            lull.ticks = MOST_TICKS;
            lull.ends_at = now + std::mem::take(&mut next.pause_secs);
            return None;
        }
        let Some(query) = self.multicast.pop_front() else {
            self.lull = None;
            return None;
        };
        let pause_secs = if self.is_slow { SLOW_SECS } else { TICK_SECS };
        self.lull = Some(Lull {
            ends_at: now + pause_secs,
            ticks: 0,
            received: self.received,
        });
        Some(query)
    }

    /// Returns when to ask again, in seconds of `local_clock`.
    pub(super) fn poll_timeout(&self) -> f64 {
        let mut timeout = self.lull.map_or(f64::INFINITY, |lull| lull.ends_at);
        if !self.unicast.is_empty() {
            timeout = timeout.min(self.unicast_at);
        }
        timeout
    }
}

/// Waves that began because something happened, which must not make a flood of a network that flaps.
#[derive(Debug, Default)]
pub(super) struct EventWaves {
    /// Times of the last minute and the next second, oldest first.
    begun: VecDeque<f64>,
}

impl EventWaves {
    /// Takes note of an event. Returns when its wave may begin, unless one is still to come or there were enough.
    pub(super) fn schedule(&mut self, now: f64) -> Option<f64> {
        let is_old = |time: &f64| now - time >= EVENT_WINDOW_SECS;
        while self.begun.front().is_some_and(is_old) {
            self.begun.pop_front();
        }
        let last = self.begun.back().copied().unwrap_or(f64::NEG_INFINITY);
        if last > now || self.begun.len() >= MOST_EVENT_WAVES {
            return None;
        }
        let at = now.max(last + EVENT_PAUSE_SECS);
        self.begun.push_back(at);
        Some(at)
    }
}

const EVENT_WINDOW_SECS: f64 = 60.0;
const MOST_EVENT_WAVES: usize = 6;
const EVENT_PAUSE_SECS: f64 = 1.0;

/// Between two copies of a multicast query. What the first finds it finds at once; the others are for
/// networks that carry only one of the groups, and for interfaces in turn. Also between two bursts.
const TICK_SECS: f64 = 0.001;
/// The same once answers were lost.
const SLOW_SECS: f64 = 0.005;
/// So many answers in a tick are a flood, whose end is waited for, at most for so many ticks.
const FLOOD: u64 = 32;
const MOST_TICKS: u32 = 25;
const UNICAST_BURST: usize = 64;

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn targets(count: u16) -> impl Iterator<Item = SocketAddr> {
        (1..=count).map(|port| (Ipv4Addr::LOCALHOST, port).into())
    }

    /// Lets time pass from deadline to deadline, with so many answers in each millisecond. Returns the
    /// milliseconds at which queries left.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "milliseconds of a test"
    )]
    fn run(pacer: &mut QueryPacer, answers: u64) -> Vec<u32> {
        let (mut now, mut left) = (100.0, Vec::new());
        while pacer.poll_timeout().is_finite() {
            while pacer.poll_transmit(now).is_some() {
                left.push(((now - 100.0) * 1e3).round() as u32);
            }
            if pacer.poll_timeout() > now {
                pacer.received += answers;
                now = now.max(pacer.poll_timeout().min(now + 0.001));
            }
        }
        left
    }

    #[test]
    fn copies_of_a_query_leave_a_millisecond_apart_and_wait_for_floods_of_answers() {
        for (answers, expected) in [(0, [0, 1, 4]), (31, [0, 1, 4]), (32, [0, 25, 52])] {
            let mut pacer = QueryPacer::default();
            let mut wave: Vec<Transmit> = targets(3).map(Into::into).collect();
            wave[2].pause_secs = 0.002;
            pacer.spread(wave.clone(), 100.0);
            assert!(pacer.is_spreading());
            pacer.spread(wave, 100.0);
            assert_eq!(run(&mut pacer, answers), expected, "{answers}");
            assert!(!pacer.is_spreading());
        }
    }

    #[test]
    fn once_answers_were_lost_copies_leave_more_slowly() {
        let mut pacer = QueryPacer::default();
        assert!(pacer.slow_down() && !pacer.slow_down());
        pacer.spread(targets(3).map(Transmit::from).collect(), 100.0);
        assert_eq!(run(&mut pacer, 0), [0, 5, 10]);
    }

    #[test]
    #[expect(clippy::cast_possible_truncation, reason = "tenths of a second")]
    fn events_begin_a_wave_a_second_and_six_a_minute() {
        let mut waves = EventWaves::default();
        let begun: Vec<i64> = (0..1400)
            .filter_map(|tenth| waves.schedule(f64::from(tenth) / 10.0))
            .map(|secs| (secs * 10.0).round() as i64)
            .collect();
        let expected = [0, 10, 20, 30, 40, 50, 600, 610, 620, 630, 640, 650];
        assert_eq!(begun[..12], expected);
        assert_eq!(begun.len(), 18);
    }

    #[test]
    fn unicast_queries_leave_in_bursts_and_a_wave_at_a_time() {
        let mut pacer = QueryPacer::default();
        pacer.send(targets(150), 100.0);
        pacer.send(targets(50), 100.0);
        let left = run(&mut pacer, 1000);
        let at = |ms| left.iter().filter(|&&time| time == ms).count();
        assert_eq!([at(0), at(1), at(2), left.len()], [64, 64, 22, 150]);
    }
}
