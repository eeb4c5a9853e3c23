//! Has fast streams read together, once there is so much to read that each sample would wake a thread for itself.
//! Spec: relay §8.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{MissedTickBehavior, interval};

use crate::book::Way;

/// When the tasks that read streams have their turns.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// Steps from one turn of direct streams to the next; 0 while samples are read as they come.
    steps: AtomicU32,
    changed: Notify,
    direct: Notify,
    linked: Notify,
}

impl Pace {
    /// Takes how many samples come per second now.
    pub(super) fn set(&self, samples_per_s: f64) {
        let before = self.steps.load(Ordering::Relaxed);
        // Not to and fro: what was left is entered again a quarter above.
        let is_above = |limit: f64, steps: u32| {
            let limit = if before >= steps { limit * 0.8 } else { limit };
            samples_per_s >= limit
        };
        let steps = if is_above(MANY, FAR_STEPS) {
            FAR_STEPS
        } else {
            u32::from(is_above(SOME, 1))
        };
        self.steps.store(steps, Ordering::Relaxed);
        if steps != before {
            tracing::debug!("direct streams are read every {steps} x {STEP:?}");
            self.changed.notify_one();
        }
    }

    /// Waits for the next turn of streams that come this way. False, at once, while they have none.
    pub(super) async fn turn(&self, way: Way) -> bool {
        if self.steps.load(Ordering::Relaxed) == 0 {
            return false;
        }
        match way {
            Way::Direct(_) => self.direct.notified().await,
            Way::Link(_) => self.linked.notified().await,
            // It comes in batches.
            Way::River => return false,
        }
        true
    }

    /// Gives the turns.
    pub(super) async fn keep(&self) {
        loop {
            let mut step = interval(STEP);
            step.set_missed_tick_behavior(MissedTickBehavior::Skip);
            let mut number = 0_u32;
            loop {
                let steps = self.steps.load(Ordering::Relaxed);
                if steps == 0 {
                    break;
                }
                step.tick().await;
                number = number.wrapping_add(1);
                self.linked.notify_waiters();
                if number.is_multiple_of(steps) {
                    self.direct.notify_waiters();
                }
            }
            // Who waits still is to read as before.
            self.linked.notify_waiters();
            self.direct.notify_waiters();
            self.changed.notified().await;
        }
    }
}

/// Whether one stream gains by turns. One that is pushed in chunks comes seldom enough as it is, and would be looked
/// at in vain; of one that brings much at a time each wake-up is worth its while.
#[derive(Debug)]
pub(super) struct Gain {
    is_hoped_for: bool,
    turns: u32,
    in_vain: u32,
}

impl Gain {
    /// Begins with a stream of this nominal rate, and so many bytes a sample.
    pub(super) fn of(rate: f64, sample_bytes: f64) -> Self {
        Self {
            is_hoped_for: rate > FAST_HZ && rate * sample_bytes < MUCH_PER_S,
            turns: 0,
            in_vain: 0,
        }
    }

    pub(super) fn is_hoped_for(&self) -> bool {
        self.is_hoped_for
    }

    /// Notes whether something came in a turn, and not much.
    pub(super) fn note(&mut self, is_gain: bool) {
        self.turns += 1;
        self.in_vain += u32::from(!is_gain);
        if self.turns == SOME_TURNS {
            self.is_hoped_for &= self.in_vain < SOME_TURNS / 4;
            (self.turns, self.in_vain) = (0, 0);
        }
    }
}

/// Turns after which it is seen whether they are a gain.
const SOME_TURNS: u32 = 64;

/// Streams slower than this are read as they come: waking for them costs little.
const FAST_HZ: f64 = 50.0;

/// Bytes per second of a stream of which each turn, of 5 ms, would bring more than 64 KiB.
const MUCH_PER_S: f64 = 13e6;

/// Samples per second from which on streams are read together, and from which on less often.
const SOME: f64 = 20_000.0;
const MANY: f64 = 100_000.0;

/// Time between turns of streams that come through links, whose bytes are here already.
const STEP: Duration = Duration::from_millis(5);

/// Turns of these to one of direct streams, where there is much.
const FAR_STEPS: u32 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(pace: &Pace, rates: &[f64]) -> Vec<u32> {
        let after = |rate: &f64| {
            pace.set(*rate);
            pace.steps.load(Ordering::Relaxed)
        };
        rates.iter().map(after).collect()
    }

    #[test]
    fn much_is_read_together_and_little_at_once() {
        let rates = [1e3, 1.9e4, 2e4, 1.7e4, 1.5e4, 1.9e4, 1e5, 9e4, 7e4, 0.0];
        let expected = [0, 0, 1, 1, 0, 0, 4, 4, 1, 0];
        assert_eq!(steps(&Pace::default(), &rates), expected);
    }

    #[test]
    fn streams_that_bring_nothing_or_much_in_a_turn_have_none() {
        let after = |rate, every: u32| {
            let mut gain = Gain::of(rate, 32.0);
            (0..SOME_TURNS).for_each(|turn| gain.note(!turn.is_multiple_of(every)));
            gain.is_hoped_for()
        };
        assert_eq!(
            [after(250.0, 5), after(250.0, 3), after(50.0, 100)],
            [true, false, false]
        );
        assert!(!Gain::of(32_000.0, 768.0).is_hoped_for());
    }
}
