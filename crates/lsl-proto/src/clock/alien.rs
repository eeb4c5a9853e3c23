//! Stamps that are on no clock of LSL, judged by how old samples seem when they come. Spec: doctor §2.4.

use std::fmt;

use super::TimeCorrection;

/// What is wrong with the stamps of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClockSuspect {
    /// They are seconds since 1970.
    Unix,
    /// They are of another clock.
    Foreign,
    /// They lie ahead of the time at which they come.
    Future,
    /// They are of a clock that is too fast or too slow.
    Drifting,
}

impl ClockSuspect {
    /// Judges a sample that came `lag_secs` after the time of its `stamp`, which is told as it was sent; the clock that it
    /// should be of is known to `uncertainty_secs`. `unix_secs` is the time of day when it came, if it is known.
    pub fn of_sample(
        lag_secs: f64,
        stamp: f64,
        unix_secs: Option<f64>,
        uncertainty_secs: f64,
    ) -> Option<Self> {
        if !(-ALIEN_SECS..=BACKLOG_SECS).contains(&lag_secs) {
            let is_of_day = unix_secs.is_some_and(|day| (stamp - day).abs() < YEAR_SECS);
            return Some(if is_of_day { Self::Unix } else { Self::Foreign });
        }
        (lag_secs < -(uncertainty_secs + TOLERANCE_SECS)).then_some(Self::Future)
    }

    /// Returns whether nothing can be said about when samples were taken.
    pub fn is_other_clock(self) -> bool {
        matches!(self, Self::Unix | Self::Foreign)
    }
}

impl fmt::Display for ClockSuspect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unix => "they are seconds since 1970",
            Self::Foreign => "they are of another clock",
            Self::Future => "they lie ahead of the time at which they come",
            Self::Drifting => "they are of a clock that is too fast or too slow",
        })
    }
}

/// Watches the stamps of a stream as they come: second by second the smallest lag. Times are seconds of `local_clock`.
#[derive(Debug)]
pub struct StampWatch {
    /// `None` while the outlet's clock is not known. Then nobody looks.
    clock: Option<Known>,
    /// Estimates of the outlet's clock so far.
    estimates: u64,
    next_look: f64,
    second_ends: f64,
    nominal_srate: f64,
    /// Whether this is the first second of a connection, which has what waited for it.
    is_first: bool,
    /// The one of this second with the smallest lag.
    smallest: Option<Look>,
    drift: Drift,
    doubt: Option<Doubt>,
    verdict: Option<ClockSuspect>,
    has_told: bool,
}

#[derive(Debug, Clone, Copy)]
struct Known {
    correction: TimeCorrection,
    /// Time of day less `local_clock`.
    unix_ahead_secs: f64,
}

/// A sample that was looked at.
#[derive(Debug, Clone, Copy)]
struct Look {
    lag: f64,
    stamp: f64,
    /// Samples that had come by then.
    samples: u64,
}

/// Something that may be wrong, until it lasts: a machine that slept has an old estimate for a while.
#[derive(Debug, Clone, Copy)]
struct Doubt {
    suspect: ClockSuspect,
    seconds: u32,
    /// Estimates when it began.
    estimates: u64,
}

impl Default for StampWatch {
    fn default() -> Self {
        Self {
            clock: None,
            estimates: 0,
            next_look: f64::INFINITY,
            second_ends: f64::NEG_INFINITY,
            nominal_srate: 0.0,
            is_first: true,
            smallest: None,
            drift: Drift::default(),
            doubt: None,
            verdict: None,
            has_told: false,
        }
    }
}

impl StampWatch {
    /// Takes another estimate of the outlet's clock, or that there is none. The time of day is so far ahead of
    /// `local_clock`.
    pub fn set_clock(&mut self, correction: Option<&TimeCorrection>, unix_ahead_secs: f64) {
        let Some(correction) = correction else {
            *self = Self {
                estimates: self.estimates,
                has_told: self.has_told,
                nominal_srate: self.nominal_srate,
                ..Self::default()
            };
            return;
        };
        let was_known = self.clock.replace(Known {
            correction: *correction,
            unix_ahead_secs,
        });
        if was_known.is_none() {
            self.begin();
        }
        self.estimates += 1;
    }

    /// Takes the rate that the stream announces.
    pub fn set_nominal_srate(&mut self, srate: f64) {
        self.nominal_srate = srate;
    }

    /// Begins with a connection.
    pub fn begin(&mut self) {
        if self.clock.is_some() {
            self.next_look = f64::NEG_INFINITY;
        }
        (self.second_ends, self.smallest) = (f64::NEG_INFINITY, None);
        (self.drift, self.doubt) = (Drift::default(), None);
    }

    /// Returns when to [`look`](Self::look) again: a few times a second, never while nothing can be told.
    #[inline]
    pub fn next_look(&self) -> f64 {
        self.next_look
    }

    /// Looks at the stamp of a sample that comes `now`; with it so many have come.
    pub fn look(&mut self, stamp: f64, samples: u64, now: f64) {
        let Some(clock) = self.clock else {
            self.next_look = f64::INFINITY;
            return;
        };
        self.next_look = now + LOOK_SECS;
        if now >= self.second_ends {
            if let Some(look) = self.smallest.take().filter(|_| !self.is_first) {
                self.judge(clock, look, now);
            }
            self.is_first = self.second_ends.is_infinite();
            self.second_ends = now + 1.0;
        }
        let lag = now - (stamp + clock.correction.offset_secs);
        if lag.is_finite() && self.smallest.is_none_or(|smallest| lag < smallest.lag) {
            self.smallest = Some(Look {
                lag,
                stamp,
                samples,
            });
        }
    }

    fn judge(&mut self, clock: Known, look: Look, now: f64) {
        let unix = Some(now + clock.unix_ahead_secs);
        let uncertainty = clock.correction.uncertainty_secs;
        let seen = ClockSuspect::of_sample(look.lag, look.stamp, unix, uncertainty);
        let is_drifting = self.drift.note(look, self.nominal_srate, now);
        let seen = match seen {
            Some(suspect) if suspect.is_other_clock() => Some(suspect),
            _ if is_drifting => Some(ClockSuspect::Drifting),
            seen => seen,
        };
        let before = self.doubt.filter(|doubt| Some(doubt.suspect) == seen);
        let estimates = self.estimates;
        self.doubt = seen.map(|suspect| Doubt {
            suspect,
            seconds: before.map_or(1, |doubt| doubt.seconds + 1),
            estimates: before.map_or(estimates, |doubt| doubt.estimates),
        });
        match self.doubt {
            None => self.verdict = None,
            Some(doubt) if doubt.seconds >= LASTING_SECONDS && doubt.estimates < estimates => {
                self.verdict = Some(doubt.suspect);
            }
            Some(_) => {}
        }
    }

    /// Returns what is wrong with the stamps now.
    pub fn verdict(&self) -> Option<ClockSuspect> {
        self.verdict
    }

    /// Returns what is wrong with them, the first time that there is something.
    pub fn take_warning(&mut self) -> Option<ClockSuspect> {
        let warning = self.verdict.filter(|_| !self.has_told);
        self.has_told |= warning.is_some();
        warning
    }
}

/// The sample of a period with the smallest lag, and when it was looked at.
type Smallest = Option<(f64, Look)>;

/// How the smallest lag changes within a minute.
#[derive(Debug, Default)]
struct Drift {
    /// End of the present period.
    ends: Option<f64>,
    /// Of periods; the oldest first, the present one last.
    smallest: [Smallest; PERIODS + 1],
}

impl Drift {
    /// Notes the smallest lag of a second. Returns whether lags change steadily, and faster than those of any quartz. Those
    /// behind a network that carries a little less than comes grow so, too; but their stamps are as far apart as ever.
    fn note(&mut self, look: Look, nominal_srate: f64, now: f64) -> bool {
        if self.ends.is_none_or(|ends| now >= ends) {
            self.ends = Some(now + PERIOD_SECS);
            self.smallest.rotate_left(1);
            if let Some(last) = self.smallest.last_mut() {
                *last = None;
            }
        }
        if let Some(last) = self.smallest.last_mut()
            && last.is_none_or(|(_, smallest)| look.lag < smallest.lag)
        {
            *last = Some((now, look));
        }
        let slope = |(from, to): (&Smallest, &Smallest)| {
            let ((from_at, from), (to_at, to)) = ((*from)?, (*to)?);
            Some((to.lag - from.lag) / (to_at - from_at))
        };
        // How much too close together stamps are, as a part of what they should be.
        let closeness = |(from, to): (&Smallest, &Smallest)| {
            let ((_, from), (_, to)) = ((*from)?, (*to)?);
            let samples = u32::try_from(to.samples.saturating_sub(from.samples)).ok()?;
            Some(1.0 - (to.stamp - from.stamp) * nominal_srate / f64::from(samples))
        };
        // The present period is not over yet.
        let whole = self.smallest.get(..PERIODS).unwrap_or_default();
        let ends = whole.first().zip(whole.last());
        let Some(mean) = ends.and_then(slope) else {
            return false;
        };
        let mut steps = whole.iter().zip(whole.iter().skip(1)).map(slope);
        let is_steady = |step: Option<f64>| step.is_some_and(|it| STEADY.contains(&(it / mean)));
        DRIFTS.contains(&mean.abs())
            && steps.all(is_steady)
            && (mean < 0.0 || (nominal_srate > 0.0 && is_steady(ends.and_then(closeness))))
    }
}

/// Stamps so far ahead are of another clock.
const ALIEN_SECS: f64 = 10.0;

/// Stamps so old are of another clock: outlets keep 360 s for who reads slowly.
const BACKLOG_SECS: f64 = 370.0;

const YEAR_SECS: f64 = 365.25 * 86_400.0;
const TOLERANCE_SECS: f64 = 0.005;

/// Between two looks.
const LOOK_SECS: f64 = 0.05;

/// Seconds with samples that something must last.
const LASTING_SECONDS: u32 = 3;

const PERIODS: usize = 7;
const PERIOD_SECS: f64 = 10.0;

/// Seconds per second.
const DRIFTS: std::ops::RangeInclusive<f64> = 0.001..=0.1;

/// Drift of one period, as a part of all.
const STEADY: std::ops::RangeInclusive<f64> = 0.5..=2.0;

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: f64 = 1_795_000_000.0;

    #[test]
    fn a_sample_is_judged_by_its_age() {
        for (lag, stamp, expected) in [
            (0.002, 500.0, None),
            (-0.010, 500.0, None),
            (300.0, 500.0, None),
            (-11.0, 500.0, Some(ClockSuspect::Foreign)),
            (-0.020, 500.0, Some(ClockSuspect::Future)),
            (-1.7e9, DAY, Some(ClockSuspect::Unix)),
            (-2.0e9, 2.0e9, Some(ClockSuspect::Foreign)),
            (400.0, 100.0, Some(ClockSuspect::Foreign)),
        ] {
            let judged = ClockSuspect::of_sample(lag, stamp, Some(DAY), 0.010);
            assert_eq!(judged, expected, "{lag}");
        }
    }

    /// Lets a stream of 50 Hz come for so many seconds, with an estimate of the clock every two, which is 40 s behind.
    /// `stamp` and `samples` tell the newest stamp at a time, and how many samples have come. Returns what was warned
    /// of, when, and what is wrong at the end. Times count from the beginning.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "they are thousands"
    )]
    fn watched(
        secs: u32,
        stamp: impl Fn(f64) -> f64,
        samples: impl Fn(f64) -> f64,
    ) -> (Vec<(u32, ClockSuspect)>, Option<ClockSuspect>) {
        let mut watch = StampWatch::default();
        watch.set_nominal_srate(50.0);
        let mut warnings = Vec::new();
        for tick in 0..secs * 50 {
            let at = f64::from(tick) / 50.0;
            let now = 1000.0 + at;
            if tick % 100 == 0 {
                let correction = TimeCorrection {
                    offset_secs: 40.0,
                    uncertainty_secs: 0.001,
                    remote_time: now,
                    is_low_quality: false,
                };
                watch.set_clock(Some(&correction), DAY - 1000.0);
            }
            if now >= watch.next_look() {
                watch.look(stamp(at), samples(at) as u64, now);
            }
            warnings.extend(watch.take_warning().map(|suspect| (tick / 50, suspect)));
        }
        (warnings, watch.verdict())
    }

    #[test]
    fn what_is_wrong_for_long_is_told_once() {
        use ClockSuspect::{Drifting, Foreign, Future, Unix};
        // Lag in seconds at a time, and when what is told.
        type Case = (
            fn(f64) -> f64,
            Option<(u32, ClockSuspect)>,
            Option<ClockSuspect>,
        );
        let cases: [Case; 8] = [
            (|_| 0.003, None, None),
            // What waited for the connection, and what the network held up.
            (|at| if at < 1.0 { 30.0 } else { 0.0 }, None, None),
            (
                |at| {
                    if (20.0..22.0).contains(&at) {
                        15.0
                    } else {
                        0.0
                    }
                },
                None,
                None,
            ),
            (|_| 1040.0 - DAY, Some((4, Unix)), Some(Unix)),
            (|_| 400.0, Some((4, Foreign)), Some(Foreign)),
            (|at| 500.0 * at, Some((4, Foreign)), Some(Foreign)),
            (|_| -0.020, Some((4, Future)), Some(Future)),
            (|at| 0.002 * at, Some((75, Drifting)), Some(Drifting)),
        ];
        let all = |at: f64| 50.0 * at;
        for (number, (lag, told, at_end)) in cases.into_iter().enumerate() {
            let (warnings, verdict) = watched(100, |at| 960.0 + at - lag(at), all);
            assert_eq!(warnings, Vec::from_iter(told), "case {number}");
            assert_eq!(verdict, at_end, "case {number}");
        }
        let once_wrong = |at: f64| if at < 20.0 { 0.0 } else { 960.0 + at };
        assert_eq!(watched(30, once_wrong, all), (vec![(4, Foreign)], None));
    }

    /// Then the outlet drops the oldest.
    #[test]
    fn a_network_that_carries_less_than_comes_is_no_clock() {
        for slope in [0.002, 0.02, 0.3, 5.0] {
            let sent = |at: f64| at - (slope * at).min(300.0);
            let told = watched(100, |at| 960.0 + sent(at), |at| 50.0 * sent(at).max(0.0));
            assert_eq!(told, (vec![], None), "{slope}");
        }
    }

    #[test]
    fn without_the_clock_of_the_outlet_nobody_looks() {
        let mut watch = StampWatch::default();
        watch.begin();
        assert!(watch.next_look().is_infinite() && watch.next_look() > 0.0);
        watch.look(DAY, 1, 1.0);
        assert_eq!(watch.verdict(), None);
    }
}
