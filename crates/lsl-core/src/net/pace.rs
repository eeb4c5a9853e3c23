//! Turns for what all inlets of a process want in the same moment.
//!
//! When 2,000 streams are silent by nature, each of their watchdogs asks whether the outlet is still
//! there. Few do so at once. Many take turns, or their questions would drown the network, and the
//! answers with them.

use std::time::Duration;

use lsl_platform::clock::local_clock;
use tokio::sync::Mutex;

use crate::net::per_process::PerProcess;

/// Lets a burst pass, and after it so many a second, in the order in which they came.
#[derive(Debug)]
pub(crate) struct Pace {
    allowance: Mutex<Allowance>,
}

#[derive(Debug, Clone, Copy)]
struct Allowance {
    interval_secs: f64,
    burst: f64,
    /// When all turns of a burst will be free again.
    whole_at: f64,
}

impl Pace {
    fn new(interval_secs: f64, burst: u32) -> Self {
        Self {
            allowance: Mutex::new(Allowance {
                interval_secs,
                burst: f64::from(burst),
                whole_at: f64::NEG_INFINITY,
            }),
        }
    }

    /// Waits for a turn and takes it. Whoever gives up waiting leaves no gap.
    pub(crate) async fn turn(&self) {
        // Queues in order of arrival; only the first in the queue sleeps.
        let mut allowance = self.allowance.lock().await;
        loop {
            let pause = allowance.take(local_clock());
            if pause <= 0.0 {
                return;
            }
            tokio::time::sleep(Duration::from_secs_f64(pause)).await;
        }
    }
}

impl Allowance {
    /// Takes a turn, or says how long there is none.
    fn take(&mut self, now: f64) -> f64 {
        let pause = self.whole_at - (self.burst - 1.0) * self.interval_secs - now;
        if pause <= 0.0 {
            self.whole_at = self.whole_at.max(now) + self.interval_secs;
        }
        pause
    }
}

/// The questions to outlets that are silent whether they are still there.
pub(crate) fn questions() -> &'static Pace {
    &QUESTIONS.get().0
}

#[derive(Debug)]
struct Questions(Pace);

impl Default for Questions {
    fn default() -> Self {
        Self(Pace::new(QUESTION_INTERVAL_SECS, QUESTION_BURST))
    }
}

static QUESTIONS: PerProcess<Questions> = PerProcess::new();

/// A question is a datagram, and the answer another.
const QUESTION_INTERVAL_SECS: f64 = 0.001;
/// A receive buffer of usual size holds as many.
const QUESTION_BURST: u32 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn allowance() -> Allowance {
        Allowance {
            interval_secs: 0.5,
            burst: 3.0,
            whole_at: f64::NEG_INFINITY,
        }
    }

    #[test]
    fn few_do_not_wait_and_many_take_turns() {
        let mut allowance = allowance();
        for now in [10.0, 10.0, 10.0] {
            assert!(allowance.take(now) <= 0.0);
        }
        let pauses = [10.0, 10.25, 10.5, 10.5].map(|now| allowance.take(now));
        // Asking costs nothing.
        for (pause, expected) in pauses.into_iter().zip([0.5_f64, 0.25, 0.0, 0.5]) {
            assert!((pause - expected).abs() < 1e-9, "{pauses:?}");
        }
    }

    #[test]
    fn a_pause_brings_the_burst_back_and_no_more() {
        let mut allowance = allowance();
        for _ in 0..2 {
            let now = allowance.whole_at.max(0.0) + 1000.0;
            let passed = (0..10).filter(|_| allowance.take(now) <= 0.0).count();
            assert_eq!(passed, 3);
        }
    }

    #[test]
    fn over_time_there_are_as_many_turns_as_promised() {
        let mut allowance = allowance();
        let mut passed = 0;
        for tick in 0..10_000 {
            let now = 1.0 + f64::from(tick) * 0.01;
            passed += u32::from(allowance.take(now) <= 0.0);
        }
        // 100 seconds with two turns each, and the first burst.
        assert!((200..=203).contains(&passed), "{passed}");
    }
}
