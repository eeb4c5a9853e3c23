//! Estimator of the clock offset of one outlet: sends waves of probes, keeps of each wave the
//! answer with the shortest round trip. The schedule is liblsl's, but the first wave begins with a
//! quick burst. It has an estimate as soon as a wave's worth of answers is in; further answers with
//! shorter round trips refine it. Unlike liblsl it takes only answers to probes that it sent in the
//! current wave, each once. It knows no socket and no wire text. Spec: lsl-protocol §5.2.

use std::cmp::Ordering;

use super::TimeCorrection;
use crate::config::Tuning;

/// Schedule of probes, and the rule by which their answers count.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ProbeSchedule {
    /// Probes in a wave; 0 counts as 1.
    pub probe_count: u32,
    /// From one probe to the next.
    pub probe_interval_secs: f64,
    /// From the last probe interval to the end of the wave.
    pub max_rtt_secs: f64,
    /// From the start of a wave to the start of the next.
    pub update_interval_secs: f64,
    /// Fewest answers; with fewer, a wave changes nothing.
    pub min_replies: u32,
    /// Probes in a quick burst at the start of the first wave, the first probe of the wave among
    /// them; 1 or less for none.
    pub opening_count: u32,
    /// From one probe of the burst to the next.
    pub opening_interval_secs: f64,
}

impl From<&Tuning> for ProbeSchedule {
    fn from(tuning: &Tuning) -> Self {
        Self {
            probe_count: tuning.time_probe_count,
            probe_interval_secs: tuning.time_probe_interval_secs,
            max_rtt_secs: tuning.time_probe_max_rtt_secs,
            update_interval_secs: tuning.time_update_interval_secs,
            min_replies: tuning.time_update_min_probes,
            opening_count: tuning.time_probe_count,
            opening_interval_secs: OPENING_INTERVAL_SECS,
        }
    }
}

impl ProbeSchedule {
    /// Returns the schedule with usable values: at least one probe, never without a pause.
    pub(super) fn usable(self) -> Self {
        Self {
            probe_count: self.probe_count.max(1),
            probe_interval_secs: whole_milliseconds(self.probe_interval_secs),
            max_rtt_secs: self.max_rtt_secs.max(0.0),
            update_interval_secs: whole_milliseconds(self.update_interval_secs),
            min_replies: self.min_replies.max(1),
            opening_count: self.opening_count.max(1),
            opening_interval_secs: whole_milliseconds(self.opening_interval_secs),
        }
    }
}

/// Instruction to the owner of the socket.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Action {
    /// Send `LSL:timedata` with these two numbers now and poll again.
    SendProbe {
        /// Same for all probes of a wave; never negative.
        wave_id: i32,
        /// Time of sending, rounded to 16 significant digits.
        t0: f64,
    },
    /// Poll again at this time, and after `invalidate`.
    WaitUntil(f64),
}

/// Reason for which an answer was not counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RejectedReply {
    /// Of an earlier wave, or not meant for us.
    #[error("the reply does not belong to the current wave")]
    OtherWave,
    /// Carries a time at which no probe of this wave was sent.
    #[error("no probe was sent at the time that the reply names")]
    UnknownProbe,
    /// The same probe was answered before.
    #[error("the probe was answered before")]
    Duplicate,
    /// Infinite or not a number.
    #[error("the reply has a time that is not finite")]
    NotFinite,
    /// The peer claims to have held it for longer than the whole round trip.
    #[error("the reply has an impossible round-trip time")]
    NegativeRoundTrip,
}

/// Measures the offset of one remote clock, for as long as it is polled.
#[derive(Debug, Clone)]
pub struct OffsetEstimator {
    schedule: ProbeSchedule,
    random: u32,
    wave: Option<Wave>,
    next_wave_at: f64,
    estimate: Option<TimeCorrection>,
    /// The estimate is the best so far of an unfinished wave.
    is_provisional: bool,
    silence: Silence,
    was_reset: bool,
}

/// Waves without any answer, since the last answer.
#[derive(Debug, Clone, Copy, Default)]
struct Silence {
    waves: u32,
    /// Start of the first of them, in seconds of `local_clock`.
    since: f64,
}

#[derive(Debug, Clone)]
struct Wave {
    id: i32,
    started: f64,
    probes: Vec<Probe>,
    /// Probes to send in all.
    probe_count: u32,
    /// Probes of these that form the opening burst.
    opening_count: u32,
    next_probe_at: f64,
    ends_at: f64,
    replies: u32,
    best: Option<TimeCorrection>,
}

#[derive(Debug, Clone, Copy)]
struct Probe {
    t0: f64,
    answered: bool,
}

impl Wave {
    fn sent(&self) -> u32 {
        u32::try_from(self.probes.len()).unwrap_or(u32::MAX)
    }
}

impl OffsetEstimator {
    /// Creates an estimator whose first poll starts the first wave. `seed` should be random: wave
    /// ids follow from it, and whoever can guess them can forge answers.
    pub fn new(schedule: ProbeSchedule, seed: u32) -> Self {
        Self {
            schedule: schedule.usable(),
            random: seed,
            wave: None,
            next_wave_at: f64::NEG_INFINITY,
            estimate: None,
            is_provisional: false,
            silence: Silence::default(),
            was_reset: false,
        }
    }

    /// Returns the action at `now` (seconds of `local_clock`). Late polls delay probes, without bunching.
    pub fn poll(&mut self, now: f64) -> Action {
        if self.wave.as_ref().is_some_and(|wave| now >= wave.ends_at)
            && let Some(wave) = self.wave.take()
        {
            self.aggregate(&wave);
            self.note_silence(&wave);
        }
        if self.wave.is_none() && now >= self.next_wave_at {
            self.start_wave(now);
        }
        let Some(wave) = &mut self.wave else {
            return Action::WaitUntil(self.next_wave_at);
        };
        if wave.sent() >= wave.probe_count {
            return Action::WaitUntil(wave.ends_at);
        }
        if now < wave.next_probe_at {
            return Action::WaitUntil(wave.next_probe_at.min(wave.ends_at));
        }
        let t0 = as_sent(now);
        wave.probes.push(Probe {
            t0,
            answered: false,
        });
        let regular_secs = self.schedule.probe_interval_secs;
        let quick_secs = regular_secs.min(self.schedule.opening_interval_secs);
        wave.next_probe_at = match wave.sent().cmp(&wave.opening_count) {
            Ordering::Less => now + quick_secs,
            // The wave goes on as if its first probe had been the only one.
            Ordering::Equal => (now + quick_secs).max(wave.started + regular_secs),
            Ordering::Greater => now + regular_secs,
        };
        Action::SendProbe {
            wave_id: wave.id,
            t0,
        }
    }

    /// Takes the answer received at `now`: `t0` is the time as sent, `t1` and `t2` the remote times
    /// of receiving and answering.
    ///
    /// # Errors
    /// Reason for which the answer was not counted; the caller need not react.
    pub fn on_reply(
        &mut self,
        now: f64,
        wave_id: i32,
        t0: f64,
        t1: f64,
        t2: f64,
    ) -> Result<(), RejectedReply> {
        let wave = self.wave.as_mut().filter(|wave| wave.id == wave_id);
        let wave = wave.ok_or(RejectedReply::OtherWave)?;
        if ![now, t0, t1, t2].into_iter().all(f64::is_finite) {
            return Err(RejectedReply::NotFinite);
        }
        let key = as_sent(t0).to_bits();
        let probe = wave
            .probes
            .iter_mut()
            .find(|probe| probe.t0.to_bits() == key);
        let probe = probe.ok_or(RejectedReply::UnknownProbe)?;
        if probe.answered {
            return Err(RejectedReply::Duplicate);
        }
        let measured = TimeCorrection::measured([t0, t1, t2, now]);
        if !measured.is_finite() {
            return Err(RejectedReply::NotFinite);
        }
        let rtt = measured.uncertainty_secs;
        if rtt < -ROUND_TRIP_TOLERANCE_SECS {
            return Err(RejectedReply::NegativeRoundTrip);
        }
        probe.answered = true;
        wave.replies += 1;
        if wave.best.is_none_or(|best| rtt < best.uncertainty_secs) {
            wave.best = Some(measured);
        }
        self.silence = Silence::default();
        self.estimate_early();
        Ok(())
    }

    /// Returns the result of the last good wave, or the best of the first one so far. `None` before
    /// there is any and after `invalidate`.
    pub fn estimate(&self) -> Option<TimeCorrection> {
        self.estimate
    }

    /// Returns the result of the last good wave.
    pub fn settled_estimate(&self) -> Option<TimeCorrection> {
        self.estimate.filter(|_| !self.is_provisional)
    }

    /// Returns the time from which measuring in another way is worth it; infinite while answers come. Two
    /// whole waves must be without any answer, or one and 1.5 s if there is nothing better yet.
    pub fn unanswered_from(&self) -> f64 {
        let has_own = self.estimate.is_some_and(|known| !known.is_low_quality);
        match self.silence.waves {
            0 => f64::INFINITY,
            1 if has_own => f64::INFINITY,
            1 => self.silence.since + FIRST_PATIENCE_SECS,
            _ => f64::NEG_INFINITY,
        }
    }

    /// Adopts an estimate that was measured in another way, until there is a better one.
    pub fn adopt(&mut self, measured: TimeCorrection) {
        self.estimate = Some(measured);
        self.is_provisional = false;
    }

    /// Forgets the estimate, because the outlet was replaced by another, and starts anew.
    pub fn invalidate(&mut self) {
        self.was_reset |= self.estimate.is_some();
        self.estimate = None;
        self.is_provisional = false;
        // Answers on their way are the old outlet's.
        self.wave = None;
        self.next_wave_at = f64::NEG_INFINITY;
        self.silence = Silence::default();
    }

    /// Returns whether a known offset was invalidated since the last call.
    pub fn take_was_reset(&mut self) -> bool {
        std::mem::take(&mut self.was_reset)
    }

    fn start_wave(&mut self, now: f64) {
        let schedule = &self.schedule;
        let probing = schedule.probe_interval_secs * f64::from(schedule.probe_count);
        let ends_at = now + whole_milliseconds(schedule.max_rtt_secs + probing);
        // Later waves are not urgent, and a silent peer is not asked more often than by liblsl.
        let is_first = self.estimate.is_none() && self.silence.waves == 0;
        let opening_count = if is_first { schedule.opening_count } else { 1 };
        let probe_count = schedule.probe_count.saturating_add(opening_count - 1);
        // A wave that is longer than the interval is finished first.
        self.next_wave_at = (now + schedule.update_interval_secs).max(ends_at);
        self.wave = Some(Wave {
            id: self.next_wave_id(),
            started: now,
            probes: Vec::new(),
            probe_count,
            opening_count,
            next_probe_at: now,
            ends_at,
            replies: 0,
            best: None,
        });
    }

    /// Adopts the best answer at the end of a wave, if there were enough.
    fn aggregate(&mut self, wave: &Wave) {
        if wave.replies >= self.schedule.min_replies
            && let Some(best) = wave.best
        {
            self.estimate = Some(best.with_possible_uncertainty());
            self.is_provisional = false;
        }
    }

    /// Adopts the best answer before the end of a wave, while there is nothing better. Needs as
    /// many answers as a wave of liblsl has probes, so that the value is as good as its own.
    fn estimate_early(&mut self) {
        let needed = self.schedule.probe_count.max(self.schedule.min_replies);
        if (self.estimate.is_none() || self.is_provisional)
            && let Some(wave) = self.wave.as_ref().filter(|wave| wave.replies >= needed)
            && let Some(best) = wave.best
        {
            self.estimate = Some(best.with_possible_uncertainty());
            self.is_provisional = true;
        }
    }

    /// Counts a wave without answers. One cut short says nothing: it was stopped, or had no peer.
    fn note_silence(&mut self, wave: &Wave) {
        if wave.replies == 0 && wave.sent() >= wave.probe_count {
            if self.silence.waves == 0 {
                self.silence.since = wave.started;
            }
            self.silence.waves = self.silence.waves.saturating_add(1);
        }
    }

    /// Takes a step of a Weyl sequence, mixed (MurmurHash3's finalizer); consecutive ids differ.
    fn next_wave_id(&mut self) -> i32 {
        self.random = self.random.wrapping_add(0x9e37_79b9);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 16)).wrapping_mul(0x85eb_ca6b);
        mixed = (mixed ^ (mixed >> 13)).wrapping_mul(0xc2b2_ae35);
        // Without the sign bit: liblsl's ids come from `rand()`.
        ((mixed ^ (mixed >> 16)) >> 1).cast_signed()
    }
}

/// Interval of the opening burst, in seconds. Long enough that one slow moment of a scheduler does
/// not spoil the whole burst, short enough to go unnoticed.
const OPENING_INTERVAL_SECS: f64 = 0.004;

/// Silence from the start, in seconds, that is more than bad luck.
const FIRST_PATIENCE_SECS: f64 = 1.5;

/// Negative round trip that rounding can cause, with plenty to spare: answers pass through 16
/// decimal digits, which costs precision if a peer's clock is large.
const ROUND_TRIP_TOLERANCE_SECS: f64 = 0.001;

/// Rounds down to whole milliseconds, as liblsl's timers do; at least one, as less would spin.
fn whole_milliseconds(secs: f64) -> f64 {
    // The small addition keeps 0.064 from becoming 63 ms where the product falls short.
    ((secs * 1000.0 + 1e-6).floor() / 1000.0).max(0.001)
}

/// Returns `t0` after a journey as `%.16g`; applying it twice changes nothing.
fn as_sent(t0: f64) -> f64 {
    format!("{t0:.15e}").parse().unwrap_or(t0)
}

#[cfg(test)]
#[path = "offset_tests.rs"]
mod tests;
