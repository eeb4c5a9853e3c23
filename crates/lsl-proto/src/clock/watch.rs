//! Watches the estimates of one outlet's clock for an attacker who delays authentic probes. Errors
//! stay below half the round trip, so the watch checks whether that grows, and whether two
//! estimates contradict each other. Spec: LSS/1 §9.4.

use std::collections::VecDeque;

use super::TimeCorrection;

/// Alarm about a clock, for auditors. All values are in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum TimeAlarm {
    /// The offset changed by more than both errors and the drift of two clocks allow.
    Step {
        /// Change of the offset between two estimates.
        change_secs: f64,
        /// Largest change that errors and drift allow.
        possible_secs: f64,
    },
    /// The shortest round trips became four times as long as they were once.
    RttRise {
        /// Shortest round trip since the start.
        before_secs: f64,
        /// Shortest round trip of the last waves.
        now_secs: f64,
    },
    /// The error may be larger than wanted, for several waves in a row.
    Uncertain {
        /// Half the shortest round trip of the last waves.
        error_secs: f64,
    },
}

/// Observations of one outlet's clock. See the module's documentation.
#[derive(Debug, Clone)]
pub struct TimeWatch {
    warn_secs: f64,
    last: Option<(f64, TimeCorrection)>,
    shortest_secs: f64,
    recent: VecDeque<f64>,
    is_risen: bool,
    is_uncertain: bool,
}

impl TimeWatch {
    /// Creates a watch that reports errors above `warn_secs`.
    pub fn new(warn_secs: f64) -> Self {
        Self {
            warn_secs,
            last: None,
            shortest_secs: f64::INFINITY,
            recent: VecDeque::with_capacity(WAVES),
            is_risen: false,
            is_uncertain: false,
        }
    }

    /// Records an estimate of the first wave before it is over, which later ones must not
    /// contradict. Only the very first counts.
    pub fn begin(&mut self, now: f64, estimate: TimeCorrection) {
        self.last.get_or_insert((now, estimate));
    }

    /// Checks the estimate that was ready at `now` (seconds of `local_clock`). A lasting condition
    /// is reported once, when it begins.
    pub fn observe(&mut self, now: f64, estimate: TimeCorrection) -> Vec<TimeAlarm> {
        let mut alarms = Vec::new();
        if let Some((at, before)) = self.last.replace((now, estimate)) {
            let change_secs = (estimate.offset_secs - before.offset_secs).abs();
            let drift_secs = DRIFT * (now - at).max(0.0);
            let possible_secs = estimate.max_error_secs() + before.max_error_secs() + drift_secs;
            if change_secs > possible_secs {
                alarms.push(TimeAlarm::Step {
                    change_secs,
                    possible_secs,
                });
            }
        }
        if self.recent.len() == WAVES {
            self.recent.pop_front();
        }
        self.recent.push_back(estimate.uncertainty_secs);
        let full = self.recent.len() == WAVES;
        let now_secs = self.recent.iter().copied().fold(f64::INFINITY, f64::min);
        let before_secs = self.shortest_secs.max(SHORTEST_RTT_SECS);
        let rises = full && before_secs.is_finite() && now_secs > RISE * before_secs;
        if rises && !self.is_risen {
            alarms.push(TimeAlarm::RttRise {
                before_secs: self.shortest_secs,
                now_secs,
            });
        }
        self.is_risen = rises;
        let error_secs = now_secs / 2.0;
        let uncertain = full && error_secs > self.warn_secs;
        if uncertain && !self.is_uncertain {
            alarms.push(TimeAlarm::Uncertain { error_secs });
        }
        self.is_uncertain = uncertain;
        self.shortest_secs = self.shortest_secs.min(estimate.uncertainty_secs);
        alarms
    }
}

/// Largest relative drift of two quartz clocks.
const DRIFT: f64 = 500e-6;

/// Factor by which round trips grow in a rise.
const RISE: f64 = 4.0;

/// Shortest round trip that is compared: shorter ones differ by scheduling alone.
const SHORTEST_RTT_SECS: f64 = 0.000_5;

/// Waves (of 2 s) that a condition must last.
const WAVES: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;

    /// Observes waves of (offset, round trip) in milliseconds, 2 s apart; `expected` are alarms by wave.
    fn check(waves: &[(f64, f64)], expected: &[(usize, &str)]) {
        let mut watch = TimeWatch::new(0.005);
        let mut seen = Vec::new();
        for (index, (offset, rtt)) in (0_u32..).zip(waves) {
            let estimate = TimeCorrection {
                offset_secs: offset / 1000.0,
                uncertainty_secs: rtt / 1000.0,
                remote_time: 0.0,
                is_low_quality: false,
            };
            for alarm in watch.observe(100.0 + 2.0 * f64::from(index), estimate) {
                let name = match alarm {
                    TimeAlarm::Step { .. } => "step",
                    TimeAlarm::RttRise { .. } => "rise",
                    TimeAlarm::Uncertain { .. } => "uncertain",
                };
                seen.push((index as usize, name));
            }
        }
        assert_eq!(seen, expected, "{waves:?}");
    }

    #[test]
    fn honest_clocks_raise_no_alarm() {
        check(&[], &[]);
        check(&[(5.0, 0.2); 20], &[]);
        // 2 s allow 1 ms of drift, and the errors add up.
        check(&[(0.0, 0.4), (1.3, 0.4), (0.0, 0.4)], &[]);
        // One slow wave, and round trips too short to compare.
        check(
            &[(0.0, 1.0), (0.0, 90.0), (0.0, 1.0), (0.0, 1.0), (0.0, 1.0)],
            &[],
        );
        check(&[&[(0.0, 0.02)][..], &[(0.0, 1.9); 9]].concat(), &[]);
    }

    #[test]
    fn contradictions_are_steps() {
        check(&[(0.0, 0.4), (1.5, 0.4)], &[(1, "step")]);
        check(&[(0.0, 0.4), (-1.5, 0.4), (-1.5, 0.4)], &[(1, "step")]);
        check(&[(0.0, 4.0), (1.5, 4.0)], &[]);
    }

    #[test]
    fn the_first_wave_must_not_contradict_what_was_said_early() {
        let estimate = |offset_secs| TimeCorrection {
            offset_secs,
            uncertainty_secs: 0.000_4,
            remote_time: 0.0,
            is_low_quality: false,
        };
        let mut watch = TimeWatch::new(0.005);
        watch.begin(100.0, estimate(0.0));
        watch.begin(100.1, estimate(3.0));
        let alarms = watch.observe(100.6, estimate(3.0));
        assert!(matches!(alarms[..], [TimeAlarm::Step { .. }]), "{alarms:?}");
        watch.begin(100.7, estimate(0.0));
        assert_eq!(watch.observe(102.6, estimate(3.0)), []);
    }

    #[test]
    fn lasting_conditions_are_reported_once_until_they_end() {
        let rise = [&[(0.0, 1.0); 3][..], &[(0.0, 4.1); 9]].concat();
        check(&rise, &[(7, "rise")]);
        let again = [&rise[..], &[(0.0, 1.0)], &[(0.0, 9.0); 5]].concat();
        check(&again, &[(7, "rise"), (17, "rise")]);
        check(&[(0.0, 10.2); 12], &[(4, "uncertain")]);
        check(&[(0.0, 9.8); 12], &[]);
    }
}
