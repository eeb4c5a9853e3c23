//! Waves of PINGs through a secure session, for outlets that do not answer UDP probes. One PING is
//! under way at a time, because the outlet answers only the newest. Of each wave the answer with the
//! shortest round trip counts, as over UDP; the result is marked, because samples and lost packets
//! hold up one direction more than the other. Sends nothing and reads no clock. Spec: LSS/1 §9.5.

use super::{ProbeSchedule, TimeCorrection};

/// Instruction to the owner of the session.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum PingAction {
    /// Send PING with this time now and poll again.
    Send {
        /// Time of sending, in seconds of `local_clock`.
        t0: f64,
    },
    /// A wave is over with this result. Poll again.
    Measured(TimeCorrection),
    /// Poll again at this time, or when something changed.
    WaitUntil(f64),
}

/// Measures the offset of one remote clock by PINGs, as long as that is wanted.
#[derive(Debug, Clone)]
pub struct PingWaves {
    schedule: ProbeSchedule,
    wave: Option<Wave>,
    next_wave_at: f64,
    is_relayed: bool,
}

#[derive(Debug, Clone)]
struct Wave {
    sent: u32,
    /// t0 of the PING that may still be answered.
    outstanding: Option<f64>,
    next_ping_at: f64,
    replies: u32,
    best: Option<TimeCorrection>,
}

impl PingWaves {
    /// Creates waves with as many probes, as often, and with as many answers needed, as over UDP.
    pub fn new(schedule: ProbeSchedule) -> Self {
        Self {
            schedule: schedule.usable(),
            wave: None,
            next_wave_at: f64::NEG_INFINITY,
            is_relayed: false,
        }
    }

    /// Says whether a relay answers: its t1 may come after its t2, by its own uncertainty. Spec: relay §3.1, §7.
    pub fn set_relayed(&mut self, is_relayed: bool) {
        self.is_relayed = is_relayed;
    }

    /// Returns the action at `now` (seconds of `local_clock`) if PINGs are wanted at `from` and
    /// later. Abandons a wave that is no longer wanted.
    pub fn poll(&mut self, now: f64, from: f64) -> PingAction {
        if now < from {
            self.wave = None;
            return PingAction::WaitUntil(from);
        }
        if self.wave.is_none() && now < self.next_wave_at {
            return PingAction::WaitUntil(self.next_wave_at);
        }
        let wave = self.wave.get_or_insert_with(|| {
            self.next_wave_at = now + self.schedule.update_interval_secs;
            Wave {
                sent: 0,
                outstanding: None,
                next_ping_at: now,
                replies: 0,
                best: None,
            }
        });
        if let Some(t0) = wave.outstanding {
            let until = t0 + PATIENCE_SECS;
            if now < until {
                return PingAction::WaitUntil(until);
            }
            wave.outstanding = None;
        }
        if wave.sent < self.schedule.probe_count {
            if now < wave.next_ping_at {
                return PingAction::WaitUntil(wave.next_ping_at);
            }
            wave.sent += 1;
            wave.outstanding = Some(now);
            wave.next_ping_at = now + self.schedule.probe_interval_secs;
            return PingAction::Send { t0: now };
        }
        let enough = wave.replies >= self.schedule.min_replies;
        let best = wave.best.filter(|_| enough);
        self.wave = None;
        // A wave that took longer than the interval is followed by the next as by another PING.
        let spaced = now + self.schedule.probe_interval_secs;
        self.next_wave_at = self.next_wave_at.max(spaced);
        best.map_or(
            PingAction::WaitUntil(self.next_wave_at),
            PingAction::Measured,
        )
    }

    /// Takes the answer that was opened at `now`: `t0` is the time as sent, `t1` and `t2` the
    /// remote times of opening and answering. Returns false if it does not count: not the
    /// outstanding one, of impossible times, or longer under way than `max_rtt_secs`.
    pub fn on_pong(&mut self, now: f64, [t0, t1, t2]: [f64; 3], max_rtt_secs: f64) -> bool {
        let Some(wave) = &mut self.wave else {
            return false;
        };
        let is_asked = |asked: &mut f64| asked.to_bits() == t0.to_bits();
        if wave.outstanding.take_if(is_asked).is_none() {
            return false;
        }
        let measured = TimeCorrection {
            is_low_quality: true,
            ..TimeCorrection::measured([t0, t1, t2, now])
        };
        let rtt = measured.uncertainty_secs;
        // Never negative between honest clocks, and such an answer would win every selection.
        let is_ordered = t1 <= t2 || self.is_relayed;
        if !(measured.is_finite() && is_ordered && (0.0..=max_rtt_secs).contains(&rtt)) {
            return false;
        }
        wave.replies += 1;
        if wave.best.is_none_or(|best| rtt < best.uncertainty_secs) {
            wave.best = Some(measured);
        }
        true
    }

    /// Starts anew, because the outlet was replaced by another.
    pub fn reset(&mut self) {
        self.wave = None;
        self.next_wave_at = f64::NEG_INFINITY;
    }
}

/// Longest wait for an answer before the next PING, in seconds. Exceeds any round trip that counts:
/// a PING that overtakes an answer would cost that answer.
const PATIENCE_SECS: f64 = 1.0;

#[cfg(test)]
#[path = "pings_tests.rs"]
mod tests;
