//! Limits of what peers, and many streams of one process, may ask for.

pub use lsl_secure::{Host, TokenBucket};

/// Whether one more reader from `host` may have one of `most` places beside those of `present`. The last tenth
/// is for hosts that have none, so that one alone cannot take them all.
pub fn has_place(
    mut present: impl ExactSizeIterator<Item = Host>,
    host: Host,
    most: usize,
) -> bool {
    let taken = present.len();
    taken < most && (taken < most - most / 10 || !present.any(|other| other == host))
}

/// Returns the pause before an inlet tries again what failed for a reason of security, in seconds: 0.25 to 1
/// if the outlet was busy (503); else 0.5, doubling to 10 with each failure, a quarter more or less.
/// Spec: LSS/1 §4.2.
pub fn retry_delay_secs(is_busy: bool, failures: u32, random: u32) -> f64 {
    let fraction = f64::from(random) / f64::from(u32::MAX);
    if is_busy {
        return 0.25 + 0.75 * fraction;
    }
    let doublings = failures.saturating_sub(1).min(16);
    (0.5 * f64::from(1_u32 << doublings)).min(10.0) * (0.75 + 0.5 * fraction)
}

/// Gives turns in the order in which they are asked for: a burst at once, and after it so many a second.
///
/// When 2,000 streams are silent by nature, each of their watchdogs asks in the same moment whether the outlet
/// is still there. Without turns the questions would drown the network, and the answers with them.
#[derive(Debug)]
pub struct Pacer {
    bucket: TokenBucket,
}

impl Default for Pacer {
    fn default() -> Self {
        Self {
            bucket: TokenBucket::new(QUESTIONS_PER_SEC, QUESTION_BURST),
        }
    }
}

impl Pacer {
    /// Returns the time of the next free turn, which is taken.
    pub fn take(&mut self, now: f64) -> f64 {
        let turn = self.bucket.ready_at(now);
        self.bucket.charge(1.0, now);
        turn
    }
}

/// A question is a datagram, and the answer another.
const QUESTIONS_PER_SEC: f64 = 1000.0;

/// A receive buffer of usual size holds as many.
const QUESTION_BURST: f64 = 64.0;

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    #[test]
    fn questions_go_at_once_or_one_after_the_other() {
        let mut pacer = Pacer::default();
        let turns: Vec<_> = (0..164).map(|_| pacer.take(5.0)).collect();
        assert!(turns.is_sorted() && turns[..64].iter().all(|turn| *turn <= 5.0));
        assert!((turns[163] - 5.1).abs() < 1e-6, "{}", turns[163]);
        assert!(pacer.take(9.0) <= 9.0);
    }

    #[test]
    fn retries_slow_down_but_never_stop() {
        let check = |is_busy, failures, shortest: f64, longest: f64| {
            for (random, secs) in [(0, shortest), (u32::MAX, longest)] {
                let delay = retry_delay_secs(is_busy, failures, random);
                assert!((delay - secs).abs() < 1e-6, "{is_busy} {failures}: {delay}");
            }
        };
        check(true, 1, 0.25, 1.0);
        check(true, 50, 0.25, 1.0);
        check(false, 0, 0.375, 0.625);
        check(false, 1, 0.375, 0.625);
        check(false, 2, 0.75, 1.25);
        check(false, 5, 6.0, 10.0);
        check(false, 6, 7.5, 12.5);
        check(false, u32::MAX, 7.5, 12.5);
    }

    #[test]
    fn one_host_leaves_places_to_others() {
        for (most, by_one_host) in [(1, 1), (2, 2), (10, 9), (1000, 900)] {
            let mut present = Vec::new();
            let mut enter = |address: IpAddr| {
                let host = Host::from(address);
                let enters = has_place(present.iter().copied(), host, most);
                present.extend(enters.then_some(host));
                enters
            };
            let greedy = (0..2000).filter(|_| enter([10, 0, 0, 1].into()));
            assert_eq!(greedy.count(), by_one_host, "of {most}");
            let others = (0..200).filter(|number| enter([10, 0, 1, *number].into()));
            assert_eq!(others.count(), most - by_one_host, "of {most}");
        }
    }
}
