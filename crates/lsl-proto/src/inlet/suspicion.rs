//! Whether a stream that flowed and is silent now is still there: when its outlet is asked where it is, and when its
//! connection is probed or given up. Spec: doctor §2.4.

use crate::limits::TokenBucket;

/// Pauses between the arrivals of a stream, of which the longest is known. Noted per read, not per sample.
#[derive(Debug, Default)]
pub(super) struct Pauses {
    /// Whether samples are to be expected at all times.
    pub(super) is_regular: bool,
    /// Beginning of the present period.
    since: Option<f64>,
    arrivals: u32,
    /// In the present period.
    longest: f64,
    /// In the one before it, once there was one.
    longest_before: Option<f64>,
}

impl Pauses {
    /// Notes an arrival at `now`, so long after the one before.
    #[inline]
    pub(super) fn note(&mut self, pause: f64, now: f64) {
        self.longest = self.longest.max(pause);
        self.arrivals += 1;
        if self.arrivals >= PERIOD_ARRIVALS {
            self.end_period(now);
        }
    }

    /// Reads of one chunk, or of one second, say little about a stream.
    #[cold]
    fn end_period(&mut self, now: f64) {
        let since = *self.since.get_or_insert(now);
        if now - since >= PERIOD_SECS {
            self.longest_before = Some(self.longest);
            (self.since, self.arrivals, self.longest) = (Some(now), 0, 0.0);
        } else {
            self.arrivals = PERIOD_ARRIVALS / 2;
        }
    }

    /// Notes that a connection begins at `now`: what came before it is no pause of the stream.
    pub(super) fn begin(&mut self, now: f64) {
        self.since.get_or_insert(now);
    }

    /// Returns how long this stream may be silent, `None` if that is not known: it has not flowed for long, until
    /// `last_arrival`.
    pub(super) fn patience_secs(&self, last_arrival: f64) -> Option<f64> {
        let flowed_secs = last_arrival - self.since.filter(|_| self.is_regular)?;
        let is_known = self.arrivals >= LEAST_ARRIVALS && flowed_secs >= LEAST_FLOW_SECS;
        (is_known || self.longest_before.is_some()).then(|| {
            let longest = self.longest.max(self.longest_before.unwrap_or(0.0));
            (PAUSES * longest).max(LEAST_SILENCE_SECS)
        })
    }
}

/// What a feed tells those who watch it.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Flow {
    /// Samples received so far.
    pub samples: u64,
    /// Time of the last sample or connection, in seconds of `local_clock`.
    pub last_arrival: Option<f64>,
    /// Silence after which the stream is suspect, in seconds; `None` if it may be silent for as long as it likes.
    pub patience_secs: Option<f64>,
    /// Whether another connection can go on where this one ends.
    pub is_numbered: bool,
}

impl Flow {
    /// Returns whether the stream is silent for longer than it ever is.
    pub fn is_silent(&self, now: f64) -> bool {
        let silent = |(arrival, patience)| now - arrival >= patience;
        self.last_arrival
            .zip(self.patience_secs)
            .is_some_and(silent)
    }
}

/// What is to be done about a stream that is silent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Doubt {
    /// Ask the outlet where it is.
    Ask,
    /// Probe the connection: the outlet is there, and perhaps pauses.
    Probe,
    /// Give the connection up: the outlet was not there, is again, and another one goes on where this one ends.
    Reconnect,
}

/// Suspicion that the connection of a feed leads nowhere. Times are seconds of `local_clock`.
#[derive(Debug)]
pub(super) struct Suspicion {
    step: Step,
    /// Samples that had come when somebody looked last.
    samples: u64,
    /// No question before this.
    not_before: f64,
    /// When to ask whatever the stream is, unless samples come: the network changed.
    check_at: Option<f64>,
    checks: TokenBucket,
    next_look: f64,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Step {
    Calm,
    /// The outlet is asked, or did not answer at this time and is looked for.
    Asked {
        missed: Option<f64>,
    },
    /// It answered, and perhaps did not before.
    Answered {
        was_missed: bool,
    },
    /// The connection was probed, or is another one. Nothing more is to be done about this silence.
    Settled,
}

impl Default for Suspicion {
    fn default() -> Self {
        Self {
            step: Step::Calm,
            samples: 0,
            not_before: f64::NEG_INFINITY,
            check_at: None,
            checks: TokenBucket::new(MOST_CHECKS / 60.0, MOST_CHECKS),
            next_look: f64::INFINITY,
        }
    }
}

impl Suspicion {
    /// Begins to watch a connection that flows from `now` on.
    pub(super) fn watch(&mut self, now: f64) {
        if self.step != Step::Settled {
            self.step = Step::Calm;
        }
        self.next_look = now + LEAST_SILENCE_SECS;
    }

    /// Expects nothing of a connection that does not flow yet.
    pub(super) fn rest(&mut self) {
        self.check_at = None;
        self.next_look = f64::INFINITY;
    }

    /// Looks at the feed; most streams are well. Returns whether samples came meanwhile, and what to do if something
    /// can be done now (`may_act`).
    pub(super) fn look(&mut self, flow: &Flow, now: f64, may_act: bool) -> (bool, Option<Doubt>) {
        let has_come = flow.samples > std::mem::replace(&mut self.samples, flow.samples);
        if has_come {
            self.step = Step::Calm;
            self.check_at = None;
        }
        self.next_look = f64::INFINITY;
        let doubt = match self.step {
            Step::Calm => {
                let due = flow.last_arrival.zip(flow.patience_secs);
                let due = due.map(|(arrival, patience)| (arrival + patience).max(self.not_before));
                let due = match self.check_at {
                    Some(at) => Some(due.map_or(at, |due| due.min(at))),
                    None => due,
                };
                if due.is_some_and(|due| due <= now && may_act) {
                    self.not_before = now + QUESTION_SECS;
                    self.step = Step::Asked { missed: None };
                    self.check_at = None;
                    Some(Doubt::Ask)
                } else {
                    if let Some(due) = due.or_else(|| has_come.then_some(now + LEAST_FLOW_SECS)) {
                        // Many look in the same moment, which wakes the thread once.
                        self.next_look = (due.max(now + LOOK_SECS) / LOOK_SECS).ceil() * LOOK_SECS;
                    }
                    None
                }
            }
            Step::Answered { was_missed } if may_act => {
                self.step = Step::Settled;
                // Without numbers all would be lost that TCP still has to send again.
                Some(if was_missed && flow.is_numbered {
                    Doubt::Reconnect
                } else {
                    Doubt::Probe
                })
            }
            Step::Answered { .. } => {
                self.next_look = now + LOOK_SECS;
                None
            }
            Step::Asked { missed: Some(_) } => {
                self.next_look = now + LEAST_FLOW_SECS;
                None
            }
            Step::Asked { missed: None } | Step::Settled => None,
        };
        (has_come, doubt)
    }

    /// Has the outlet asked soon, unless samples come or it is asked already, because the network changed: at once if
    /// that took the address of this end away (`is_cut`). Six times a minute at most.
    /// Returns false above that.
    pub(super) fn check(&mut self, flow: &Flow, is_cut: bool, now: f64) -> bool {
        if !self.checks.take(now) {
            return false;
        }
        if let Step::Calm | Step::Settled = self.step {
            // What came before says nothing. Nobody has looked since it did, if the stream is irregular.
            (self.step, self.samples) = (Step::Calm, flow.samples);
            let at = if is_cut {
                now
            } else {
                now + LEAST_SILENCE_SECS
            };
            self.check_at = Some(at);
            self.next_look = self.next_look.min(at);
        }
        true
    }

    /// Takes the answer of the outlet, or that there was none.
    pub(super) fn answered(&mut self, is_there: bool, now: f64) {
        if is_there {
            self.step = Step::Answered { was_missed: false };
            self.next_look = now;
        } else {
            self.step = Step::Asked { missed: Some(now) };
            self.next_look = now + LEAST_FLOW_SECS;
        }
    }

    /// Notes that a search found the outlet where it was, after it did not answer there.
    pub(super) fn found_in_place(&mut self, now: f64) {
        if let Step::Asked { missed: Some(_) } = self.step {
            self.step = Step::Answered { was_missed: true };
            self.next_look = now;
        }
    }

    /// Notes that other work took the place of what was to be done: the outlet is asked again, after a while.
    pub(super) fn interrupted(&mut self) {
        self.step = Step::Calm;
        self.next_look = self.not_before;
    }

    /// Returns whether it is not known yet whether the outlet is there, or its connection.
    pub(super) fn is_open(&self) -> bool {
        matches!(self.step, Step::Asked { .. } | Step::Answered { .. })
    }

    /// Returns whether the outlet has just been asked in vain.
    pub(super) fn is_missed_since(&self, now: f64) -> bool {
        matches!(self.step, Step::Asked { missed: Some(at) } if now - at < MISSED_SECS)
    }

    /// Returns when to look, infinity if nothing is to be expected.
    pub(super) fn next_look(&self) -> f64 {
        self.next_look
    }
}

/// Arrivals, and time, of which the pauses are remembered at least; at most twice as long.
const PERIOD_ARRIVALS: u32 = 64;
const PERIOD_SECS: f64 = 10.0;

/// Before this nobody knows what is usual.
const LEAST_ARRIVALS: u32 = 8;
const LEAST_FLOW_SECS: f64 = 1.0;

/// A stream is suspect after so many of its longest pauses, and not before so many seconds.
const PAUSES: f64 = 3.0;
const LEAST_SILENCE_SECS: f64 = 0.5;

/// Questions a minute because something happened.
const MOST_CHECKS: f64 = 6.0;

/// Looks fall on multiples of this.
const LOOK_SECS: f64 = 0.05;

/// Least time between two questions while nothing changes, in seconds.
const QUESTION_SECS: f64 = 15.0;

/// How long it holds that the outlet does not answer where it was, in seconds.
const MISSED_SECS: f64 = 5.0;

#[cfg(test)]
#[expect(clippy::float_cmp, reason = "these times are exact")]
mod tests {
    use super::*;

    /// The patience with a stream that came at these times.
    fn patience(arrivals: impl IntoIterator<Item = f64>) -> Option<f64> {
        let mut pauses = Pauses {
            is_regular: true,
            ..Pauses::default()
        };
        let mut last = None;
        for now in arrivals {
            match last.replace(now) {
                Some(before) => pauses.note(now - before, now),
                None => pauses.begin(now),
            }
        }
        pauses.patience_secs(last?)
    }

    #[test]
    fn patience_is_as_long_as_the_pauses_of_a_stream_demand() {
        let every = |secs: f64, count: u32| (0..count).map(move |at| f64::from(at) * secs);
        let chunks = |count: u32| {
            let parts = move |chunk: u32| (0..100).map(move |part| (chunk, part));
            let at = |(chunk, part): (u32, u32)| 4.0 * f64::from(chunk) + 1e-4 * f64::from(part);
            (0..count).flat_map(parts).map(at)
        };
        assert_eq!(patience(every(0.02, 8)), None, "too short");
        assert_eq!(patience(every(0.02, 60)), Some(0.5));
        assert_eq!(patience(every(0.02, 10_000)), Some(0.5));
        assert_eq!(patience(every(0.5, 10)), Some(1.5));
        // A chunk is read in many parts, and says nothing about the next one.
        assert_eq!(patience(chunks(1)), None);
        for count in 2..40 {
            let secs = patience(chunks(count)).unwrap();
            assert!(secs > 11.9, "{count} chunks: {secs}");
        }
        // What is long ago is forgotten.
        let again = every(0.02, 2000).map(|at| 5.0 + at);
        assert_eq!(patience(every(0.02, 60).chain(again)), Some(0.5));
    }

    fn flow(samples: u64, last_arrival: f64) -> Flow {
        Flow {
            samples,
            last_arrival: Some(last_arrival),
            patience_secs: Some(0.5),
            is_numbered: true,
        }
    }

    #[test]
    fn a_silent_stream_is_asked_and_then_its_connection_once() {
        let mut suspicion = Suspicion::default();
        suspicion.watch(100.0);
        assert_eq!(suspicion.next_look(), 100.5);
        assert_eq!(suspicion.look(&flow(9, 100.3), 100.5, true), (true, None));
        assert!((suspicion.next_look() - 100.8).abs() < 0.06);
        let silent = flow(9, 100.3);
        assert_eq!(
            suspicion.look(&silent, 100.8, true),
            (false, Some(Doubt::Ask))
        );
        suspicion.answered(true, 100.9);
        assert_eq!(suspicion.look(&silent, 100.9, false), (false, None));
        assert_eq!(
            suspicion.look(&silent, 100.95, true),
            (false, Some(Doubt::Probe))
        );
        // Another connection is silent, too: the outlet pushes nothing.
        suspicion.watch(102.0);
        for now in [102.5, 117.0, 1000.0] {
            assert_eq!(suspicion.look(&flow(9, 102.0), now, true), (false, None));
            assert_eq!(suspicion.next_look(), f64::INFINITY);
        }
        // It goes on, and is silent again.
        assert!(suspicion.look(&flow(10, 1001.0), 1002.0, true).0);
        assert_eq!(
            suspicion.look(&flow(10, 1001.0), 1003.0, true).1,
            None,
            "asked at 1002"
        );
    }

    #[test]
    fn an_event_has_any_stream_asked_that_brings_nothing_then() {
        let irregular = |samples| Flow {
            patience_secs: None,
            ..flow(samples, 100.0)
        };
        let mut suspicion = Suspicion::default();
        suspicion.look(&irregular(1), 100.0, true);
        suspicion.look(&irregular(1), 101.0, true);
        assert_eq!(suspicion.next_look(), f64::INFINITY);
        suspicion.check(&irregular(2), false, 200.0);
        assert_eq!(suspicion.next_look(), 200.5);
        assert_eq!(suspicion.look(&irregular(3), 200.5, true), (true, None));
        assert_eq!(suspicion.look(&irregular(3), 300.0, true), (false, None));
        // A silence that was looked into, and a question a moment ago, do not matter.
        for (now, is_cut, at) in [(400.0, false, 400.5), (402.0, true, 402.0)] {
            suspicion.check(&irregular(9), is_cut, now);
            assert_eq!(suspicion.next_look(), at);
            let asked = suspicion.look(&irregular(9), at, true);
            assert_eq!(asked, (false, Some(Doubt::Ask)));
            suspicion.answered(true, at);
            let probed = suspicion.look(&irregular(9), at, true);
            assert_eq!(probed, (false, Some(Doubt::Probe)));
        }
        let asked = (0..600_u32).filter(|tenth| {
            let now = 500.0 + f64::from(*tenth) / 10.0;
            suspicion.check(&irregular(9), true, now);
            let (_, doubt) = suspicion.look(&irregular(9), now, true);
            suspicion.step = Step::Settled;
            doubt == Some(Doubt::Ask)
        });
        assert!((6..=12).contains(&asked.count()));
    }

    #[test]
    fn questions_are_fifteen_seconds_apart_and_samples_end_them() {
        let mut suspicion = Suspicion::default();
        suspicion.watch(0.0);
        let asked = (0..600_u32).filter(|tick| {
            let now = f64::from(*tick) * 0.1;
            // Samples come too late, again and again.
            let samples = u64::from(tick / 12);
            let last_arrival = f64::from(tick / 12) * 1.2;
            let (_, doubt) = suspicion.look(&flow(samples, last_arrival), now, true);
            if doubt == Some(Doubt::Ask) {
                suspicion.answered(true, now);
            }
            assert_ne!(doubt, Some(Doubt::Reconnect), "it was never missed");
            doubt == Some(Doubt::Ask)
        });
        assert!((3..=4).contains(&asked.count()));
    }

    #[test]
    fn who_was_missed_is_connected_again_if_nothing_is_lost_by_that() {
        let mut suspicion = Suspicion::default();
        suspicion.found_in_place(0.0);
        assert_eq!(suspicion.next_look(), f64::INFINITY, "nobody missed it");
        suspicion.look(&flow(1, 0.0), 1.0, true);
        suspicion.answered(false, 2.0);
        assert!(suspicion.is_missed_since(6.9) && !suspicion.is_missed_since(7.1));
        for (is_numbered, doubt) in [(true, Doubt::Reconnect), (false, Doubt::Probe)] {
            suspicion.answered(false, 2.0);
            suspicion.found_in_place(9.0);
            let flow = Flow {
                is_numbered,
                ..flow(1, 0.0)
            };
            assert_eq!(suspicion.look(&flow, 9.0, true), (false, Some(doubt)));
            assert_eq!(suspicion.look(&flow, 9.1, true), (false, None));
        }
    }
}
