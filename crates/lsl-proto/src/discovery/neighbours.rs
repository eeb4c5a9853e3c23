//! When searches without a result ask the neighbours of this host: soon, and then ever more seldom, however many
//! searches of the context follow each other. Spec: doctor §2.1.

use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, PoisonError};

/// The rounds of a context so far.
#[derive(Debug, Clone, Default)]
pub struct NeighbourRounds(Arc<Mutex<Rounds>>);

#[derive(Debug, Default)]
struct Rounds {
    count: usize,
    /// Time before which nobody asks again.
    due: f64,
    /// The host that was asked last.
    last: Option<Ipv4Addr>,
}

/// The same, as one search sees them.
#[derive(Debug)]
pub(super) struct Neighbours {
    rounds: NeighbourRounds,
    first: f64,
}

impl Neighbours {
    /// Begins with a search.
    pub(super) fn new(rounds: NeighbourRounds, now: f64) -> Self {
        let first = now + FIRST_SECS;
        Self { rounds, first }
    }

    /// Returns whether they are to be asked now.
    pub(super) fn poll(&self, now: f64) -> bool {
        if now < self.due() {
            return false;
        }
        self.rounds.with(|rounds| {
            if now >= rounds.due + KEPT_SECS {
                rounds.count = 0;
            }
            let pause = PAUSES_SECS.get(rounds.count).or(PAUSES_SECS.last());
            rounds.count += 1;
            rounds.due = now + pause.copied().unwrap_or_default();
        });
        true
    }

    /// Returns when to ask again.
    pub(super) fn due(&self) -> f64 {
        self.rounds.with(|rounds| rounds.due).max(self.first)
    }
}

impl NeighbourRounds {
    /// Returns those of these hosts that one round asks: of many the next ones in the order of their addresses.
    pub fn take_turn(&self, mut hosts: Vec<Ipv4Addr>) -> Vec<Ipv4Addr> {
        hosts.sort_unstable();
        hosts.dedup();
        self.with(|rounds| {
            let asked = hosts.partition_point(|host| Some(*host) <= rounds.last);
            hosts.rotate_left(asked);
            hosts.truncate(MOST_ASKED);
            rounds.last = hosts.last().copied().or(rounds.last);
        });
        hosts
    }

    fn with<R>(&self, look: impl FnOnce(&mut Rounds) -> R) -> R {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Neighbours that are asked in one round.
const MOST_ASKED: usize = 64;

/// Whoever hears groups has answered by then.
const FIRST_SECS: f64 = 0.5;

/// From one round to the next.
const PAUSES_SECS: [f64; 3] = [5.0, 15.0, 60.0];

/// So long after its next turn a context counts as one that never asked.
const KEPT_SECS: f64 = 60.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_searches_ask_neighbours_as_one_that_is_long() {
        let asked_by = |search_secs: u32| {
            let rounds = NeighbourRounds::default();
            let mut search = Neighbours::new(rounds.clone(), 1000.0);
            let mut asked = Vec::new();
            for tenth in 0..2600_u32 {
                let now = 1000.0 + f64::from(tenth) / 10.0;
                if tenth % (10 * search_secs) == 0 {
                    search = Neighbours::new(rounds.clone(), now);
                }
                if search.poll(now) {
                    asked.push(tenth);
                }
            }
            asked
        };
        assert_eq!(asked_by(1000), [5, 55, 205, 805, 1405, 2005]);
        assert_eq!(asked_by(1), [5, 55, 205, 805, 1405, 2005]);
        let rounds = NeighbourRounds::default();
        assert!(Neighbours::new(rounds.clone(), 0.0).poll(0.5));
        // After a while it is as if nobody had asked.
        let later = Neighbours::new(rounds, 100.0);
        assert!(later.poll(100.5) && later.due() < 106.0);
    }

    #[test]
    fn many_neighbours_are_asked_in_turns() {
        let rounds = NeighbourRounds::default();
        let host = |last| Ipv4Addr::new(10, 0, 0, last);
        let all: Vec<_> = (0..100).rev().map(host).collect();
        let turn = |hosts: &[Ipv4Addr]| {
            let asked = rounds.take_turn(hosts.to_vec());
            let ends = [asked.first(), asked.last()].map(|it| it.map(|it| it.octets()[3]));
            (asked.len(), ends)
        };
        assert_eq!(turn(&all), (64, [Some(0), Some(63)]));
        assert_eq!(turn(&[]), (0, [None, None]));
        assert_eq!(turn(&all), (64, [Some(64), Some(27)]));
        // Two that were there twice, and a few in each of their rounds.
        let few = [host(9), host(3), host(9)];
        assert_eq!(turn(&few), (2, [Some(3), Some(9)]));
        assert_eq!(turn(&few), (2, [Some(3), Some(9)]));
    }
}
