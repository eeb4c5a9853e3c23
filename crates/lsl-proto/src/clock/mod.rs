//! Time: the offset of another clock from ours, and the corrections of timestamps on the way to the
//! user. No machine here sends, waits or reads a clock. Spec: lsl-protocol §5.2, §11.

mod alien;
mod machine;
mod offset;
mod pings;
mod postprocess;
mod source;
mod watch;

pub use self::alien::{ClockSuspect, StampWatch};
pub use self::machine::{Clock, ClockEvent, ClockLimits, Probe};
pub use self::offset::{Action, OffsetEstimator, ProbeSchedule, RejectedReply};
pub use self::pings::{PingAction, PingWaves};
pub use self::postprocess::{ClockOffset, NeedsOffset, PostProcessor};
pub use self::source::SourceClock;
pub use self::watch::{TimeAlarm, TimeWatch};

/// Mapping of the timestamps of a stream onto `local_clock`. All values are in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TimeCorrection {
    /// Add this to a remote timestamp to get the local time.
    pub offset_secs: f64,
    /// Round-trip time of the measurement; the error of `offset_secs` is at most half of it.
    pub uncertainty_secs: f64,
    /// Time of the measurement, on the remote clock.
    pub remote_time: f64,
    pub(crate) is_low_quality: bool,
}

impl TimeCorrection {
    /// Returns the largest possible error of `offset_secs` if both computers are honest, whatever
    /// delays an attacker adds on the way. Proven only with encryption: else anybody can answer.
    /// Spec: LSS/1 §9.4.
    pub fn max_error_secs(&self) -> f64 {
        self.uncertainty_secs / 2.0
    }

    /// Returns whether this was measured over an encrypted data connection, because UDP gave no
    /// answer. [`max_error_secs`](Self::max_error_secs) holds all the same, but samples and lost
    /// packets hold up one direction more than the other: expect more of that error than over UDP.
    /// Spec: LSS/1 §9.5.
    pub fn is_low_quality(&self) -> bool {
        self.is_low_quality
    }

    /// Computes the correction from one probe: sent at `t0` and back at `t3` of our clock, received
    /// at `t1` and answered at `t2` of the other.
    fn measured([t0, t1, t2, t3]: [f64; 4]) -> Self {
        Self {
            offset_secs: -f64::midpoint(t1 - t0, t2 - t3),
            uncertainty_secs: (t3 - t0) - (t2 - t1),
            remote_time: f64::midpoint(t1, t2),
            is_low_quality: false,
        }
    }

    /// Clamps the uncertainty to 0 or more: rounding may have made a short round trip negative.
    fn with_possible_uncertainty(self) -> Self {
        Self {
            uncertainty_secs: self.uncertainty_secs.max(0.0),
            ..self
        }
    }

    fn is_finite(&self) -> bool {
        let values = [self.offset_secs, self.uncertainty_secs, self.remote_time];
        values.into_iter().all(f64::is_finite)
    }
}
