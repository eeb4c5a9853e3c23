//! Measures a stream by the stamps of its samples and the moments at which they come. Sans-IO.

use crate::observe::Fed;

/// What came so far.
#[derive(Debug, Clone)]
pub struct Meter {
    /// Announced samples a second; 0 if irregular.
    rate: f64,
    began: f64,
    samples: u64,
    first: f64,
    last: f64,
    jumps: u64,
    /// Second by second, the smallest difference between arrival and stamp, not yet on one clock.
    ages: Vec<f64>,
}

impl Meter {
    /// Begins at a moment of the local clock.
    pub fn new(rate: f64, now: f64) -> Self {
        Self {
            rate,
            began: now,
            samples: 0,
            first: 0.0,
            last: 0.0,
            jumps: 0,
            ages: Vec::new(),
        }
    }

    /// Takes the stamps of samples that have just come, oldest first.
    pub fn take(&mut self, stamps: &[f64], now: f64) {
        for &stamp in stamps {
            if self.samples == 0 {
                self.first = stamp;
            } else if self.rate > 0.0 && (stamp - self.last) * self.rate > 1.5 {
                self.jumps += 1;
            }
            self.last = stamp;
            self.samples += 1;
        }
        let Some(newest) = stamps.last() else {
            return;
        };
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "seconds of one run"
        )]
        let second = ((now - self.began).max(0.0) as usize).min(MOST_SECONDS);
        if self.ages.len() <= second {
            // A second without samples has the age of those before it.
            let known = self.ages.last().copied().unwrap_or(f64::INFINITY);
            self.ages.resize(second, known);
            self.ages.push(f64::INFINITY);
        }
        if let Some(age) = self.ages.last_mut() {
            *age = age.min(now - newest);
        }
    }

    /// Returns what came until now, of an outlet whose clock is `offset` behind; without it, ages are unknown.
    pub fn ends(self, now: f64, offset: Option<f64>) -> Fed {
        let ages = self.ages.into_iter().filter(|age| age.is_finite());
        Fed {
            secs: now - self.began,
            samples: self.samples,
            span_secs: self.last - self.first,
            jumps: self.jumps,
            lags: offset.map_or_else(Vec::new, |offset| ages.map(|age| age - offset).collect()),
            stamp: (self.samples > 0).then_some(self.last),
            ..Fed::default()
        }
    }
}

impl Fed {
    /// Returns how many samples a second came, by their stamps; `None` for too few to tell.
    pub fn measured(&self) -> Option<f64> {
        #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
        let steps = self.samples.saturating_sub(1) as f64;
        (self.samples >= FEWEST && self.span_secs >= SHORTEST_SECS).then(|| steps / self.span_secs)
    }

    /// Returns whether so many samples are missing that it matters: those that were numbered, or those between which
    /// stamps jump while most do not.
    pub fn has_gaps(&self, rate: f64) -> bool {
        let is_short = self.measured().is_some_and(|it| it < rate * SHARE);
        self.lost > 0 || self.are_jumps_rare() && self.jumps > 0 && is_short
    }

    /// Returns the measured rate if it is less than it should be all the time.
    pub fn slow(&self, rate: f64) -> Option<f64> {
        self.measured()
            .filter(|it| *it < rate * SLOW && !(self.are_jumps_rare() && self.jumps > 0))
    }

    fn are_jumps_rare(&self) -> bool {
        self.jumps * 2 < self.samples
    }
}

const MOST_SECONDS: usize = 3600;
const FEWEST: u64 = 20;
const SHORTEST_SECS: f64 = 1.0;
/// A device's clock may be as far off.
const SHARE: f64 = 0.97;
const SLOW: f64 = 0.95;

#[cfg(test)]
mod tests {
    use super::*;

    /// Samples of three seconds at 100 Hz, of which `keeps` says which came, in chunks of ten.
    fn fed(step: f64, keeps: impl Fn(u32) -> bool) -> Fed {
        let mut meter = Meter::new(100.0, 50.0);
        let stamps: Vec<f64> = (0..300)
            .filter(|at| keeps(*at))
            .map(|at| 10.0 + f64::from(at) * step)
            .collect();
        for chunk in stamps.chunks(10) {
            let now = chunk.last().unwrap() + 40.002;
            meter.take(chunk, now);
        }
        meter.ends(53.0, Some(40.0))
    }

    #[test]
    fn rates_and_gaps_are_told_by_stamps() {
        let whole = fed(0.01, |_| true);
        assert!(!whole.has_gaps(100.0) && whole.slow(100.0).is_none());
        assert!(whole.lags.iter().all(|lag| (lag - 0.002).abs() < 1e-6));
        assert_eq!((whole.lags.len(), whole.jumps), (3, 0));
        let tenth = fed(0.01, |at| at % 10 != 5);
        assert!(
            tenth.has_gaps(100.0) && tenth.slow(100.0).is_none(),
            "{tenth:?}"
        );
        let half = fed(0.02, |_| true);
        assert!(!half.has_gaps(100.0), "{half:?}");
        assert!((half.slow(100.0).unwrap() - 50.0).abs() < 1.0);
        // A clock that is half a percent off loses nothing, and bursts are made up for.
        let device = fed(0.010_05, |_| true);
        assert!(!device.has_gaps(100.0) && device.slow(100.0).is_none());
        let mut meter = Meter::new(100.0, 0.0);
        for burst in 0..30 {
            meter.take(&[f64::from(burst) * 0.1; 10], f64::from(burst) * 0.1);
        }
        let bursts = meter.ends(3.0, None);
        assert_eq!((bursts.has_gaps(100.0), bursts.slow(100.0)), (false, None));
        let numbered = Fed {
            lost: 1,
            ..Fed::default()
        };
        assert!(numbered.has_gaps(100.0));
        assert_eq!(Fed::default().measured(), None);
    }
}
