//! Corrections of timestamps when they are pulled: clocksync, then dejitter, then monotonize.
//! The arithmetic gives liblsl's results bit for bit, so operations must not be reordered. Unlike
//! liblsl a missing clock offset is reported before anything has changed, so that no sample is
//! lost. Spec: lsl-protocol §11, vector time-postprocessing.

use crate::ProcessingOptions;

/// Answer to the question for the clock offset.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ClockOffset {
    /// Seconds to add to remote timestamps.
    pub offset_secs: f64,
    /// The remote clock is another one than at the last answer.
    pub was_reset: bool,
}

/// The timestamp cannot be processed before a clock offset is known; nothing has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no clock offset is known yet")]
pub struct NeedsOffset;

/// The state of all corrections for one inlet.
#[derive(Debug, Clone)]
pub struct PostProcessor {
    options: ProcessingOptions,
    nominal_srate: f64,
    halftime_secs: f32,
    sync: ClockSync,
    filter: Option<Dejitter>,
    /// Largest timestamp given out by monotonize.
    last: f64,
}

#[derive(Debug, Clone)]
struct ClockSync {
    /// Timestamps since the last question, in liblsl's eight bits.
    since_question: u8,
    next_question_at: f64,
    offset_secs: f64,
}

impl PostProcessor {
    /// Creates a processor without corrections. `nominal_srate` is in Hz; the half-time is dejitter's.
    pub fn new(nominal_srate: f64, halftime_secs: f32) -> Self {
        Self {
            options: ProcessingOptions::NONE,
            nominal_srate,
            halftime_secs,
            sync: ClockSync {
                since_question: SAMPLES_PER_QUESTION,
                next_question_at: f64::NEG_INFINITY,
                offset_secs: 0.0,
            },
            filter: None,
            last: f64::MIN,
        }
    }

    /// Chooses the corrections; one that is switched on or off forgets its past.
    pub fn set_options(&mut self, options: ProcessingOptions) {
        let changed = |bit| options.contains(bit) != self.options.contains(bit);
        let (dejitter, monotonize) = (
            changed(ProcessingOptions::DEJITTER),
            changed(ProcessingOptions::MONOTONIZE),
        );
        if dejitter {
            self.filter = None;
        }
        if monotonize {
            self.last = f64::MIN;
        }
        self.options = options;
    }

    /// Returns the corrections in use.
    pub const fn options(&self) -> ProcessingOptions {
        self.options
    }

    /// Changes the half-time of the dejitter filter; a filter that runs keeps the old one.
    pub fn set_halftime(&mut self, secs: f32) {
        self.halftime_secs = secs;
    }

    /// Changes the rate after recovery to another outlet; a filter that runs keeps the old one.
    pub fn set_nominal_srate(&mut self, nominal_srate: f64) {
        self.nominal_srate = nominal_srate;
    }

    /// Returns whether the next timestamp will ask for the offset. Lets the caller wait for one
    /// before it takes a sample out of its queue.
    pub fn needs_offset(&self, now: f64) -> bool {
        self.options.contains(ProcessingOptions::CLOCKSYNC)
            && self.sync.since_question.wrapping_add(1) > SAMPLES_PER_QUESTION
            && now > self.sync.next_question_at
    }

    /// Corrects a timestamp. `offset` is called at most once, and only when `needs_offset`; it
    /// must not wait. 0.0 means "no timestamp" and infinities mean nothing: both stay as they are.
    ///
    /// # Errors
    /// `NeedsOffset` if `offset` was called and gave `None`; then nothing has changed.
    pub fn process(
        &mut self,
        timestamp: f64,
        now: f64,
        offset: impl FnOnce() -> Option<ClockOffset>,
    ) -> Result<f64, NeedsOffset> {
        if timestamp == 0.0 || !timestamp.is_finite() {
            return Ok(timestamp);
        }
        let mut timestamp = timestamp;
        if self.options.contains(ProcessingOptions::CLOCKSYNC) {
            if self.needs_offset(now) {
                let answer = offset().ok_or(NeedsOffset)?;
                self.sync.since_question = 0;
                self.sync.next_question_at = now + SECS_PER_QUESTION;
                self.sync.offset_secs = answer.offset_secs;
                if answer.was_reset {
                    self.filter = None;
                    self.last = f64::MIN;
                }
            } else {
                self.sync.since_question = self.sync.since_question.wrapping_add(1);
            }
            timestamp += self.sync.offset_secs;
        }
        if self.options.contains(ProcessingOptions::DEJITTER) {
            timestamp = self.dejitter(timestamp);
        }
        if self.options.contains(ProcessingOptions::MONOTONIZE) {
            if timestamp < self.last {
                timestamp = self.last;
            } else {
                self.last = timestamp;
            }
        }
        Ok(timestamp)
    }

    /// Counts samples that were dropped without being pulled, so that the regression includes them.
    pub fn flush(&mut self, samples: u64) {
        if let Some(filter) = &mut self.filter {
            filter.samples = filter.samples.saturating_add(samples);
        }
    }

    fn dejitter(&mut self, timestamp: f64) -> f64 {
        let mut filter = match self.filter.take() {
            // A base of zero is liblsl's mark for "not initialised".
            Some(filter) if filter.base != 0.0 => filter,
            _ => match Dejitter::new(timestamp, self.nominal_srate, self.halftime_secs) {
                Some(filter) => filter,
                None => return timestamp,
            },
        };
        let smoothed = filter.update(timestamp);
        if !smoothed.is_finite() {
            // Absurd stamps overflowed it; start again rather than stay broken.
            return timestamp;
        }
        self.filter = Some(filter);
        smoothed
    }
}

const SAMPLES_PER_QUESTION: u8 = 50;
const SECS_PER_QUESTION: f64 = 0.5;

/// Recursive least squares of `timestamp - base = w0 + w1 * n` with exponential forgetting.
#[derive(Debug, Clone)]
struct Dejitter {
    base: f64,
    samples: u64,
    w0: f64,
    w1: f64,
    p00: f64,
    p01: f64,
    p11: f64,
    forget: f64,
}

impl Dejitter {
    /// Creates a filter; `None` where there is nothing to smooth: irregular streams, a half-time of 0.
    fn new(timestamp: f64, nominal_srate: f64, halftime_secs: f32) -> Option<Self> {
        if nominal_srate <= 0.0 {
            return None;
        }
        let forget = 2.0_f64.powf(-1.0 / (nominal_srate * f64::from(halftime_secs)));
        // Also false for a rate or a half-time that is not a number.
        (forget > 0.0).then(|| Self {
            base: timestamp.trunc(),
            samples: 0,
            w0: 0.0,
            w1: 1.0 / nominal_srate,
            p00: 1e10,
            p01: 0.0,
            p11: 1e10,
            forget,
        })
    }

    fn update(&mut self, timestamp: f64) -> f64 {
        let t = timestamp - self.base;
        #[expect(
            clippy::cast_precision_loss,
            reason = "exact for the first 285 years at 1 MHz"
        )]
        let n = self.samples as f64;
        self.samples = self.samples.saturating_add(1);
        let pi0 = self.p00 + n * self.p01;
        let pi1 = self.p01 + n * self.p11;
        let error = t - (self.w0 + n * self.w1);
        let gain = 1.0 / (self.forget + pi0 + pi1 * n);
        let grow = 1.0 / self.forget;
        self.p00 = grow * (self.p00 - pi0 * pi0 * gain);
        self.p01 = grow * (self.p01 - pi0 * pi1 * gain);
        self.p11 = grow * (self.p11 - pi1 * pi1 * gain);
        self.w0 += error * (self.p00 + self.p01 * n);
        self.w1 += error * (self.p01 + self.p11 * n);
        self.w0 + n * self.w1 + self.base
    }
}

#[cfg(test)]
#[path = "postprocess_tests.rs"]
mod tests;
