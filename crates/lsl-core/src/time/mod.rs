//! Time: how far another clock is from ours, and what becomes of timestamps on the way to the
//! user. Both machines take `now` and numbers; neither sends, waits or reads a clock.
//! Spec: lsl-protocol §5.2, §11.

mod offset;
mod postprocess;
mod watch;

pub use self::offset::{Action, OffsetEstimator, ProbeSchedule, RejectedReply, ReplyCounts};
pub use self::postprocess::{ClockOffset, NeedsOffset, PostProcessor};
pub use self::watch::{TimeAlarm, TimeWatch};

/// How to map the timestamps of a stream onto `local_clock`. All values are in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TimeCorrection {
    /// Add this to a remote timestamp to get the local time.
    pub offset_secs: f64,
    /// Round-trip time of the measurement; the error of `offset_secs` is at most half of it.
    pub uncertainty_secs: f64,
    /// When it was measured, on the remote clock.
    pub remote_time: f64,
}

impl TimeCorrection {
    /// The largest possible error of `offset_secs` if both computers are honest, whatever delays
    /// somebody adds on the way. Proven only with encryption: else anybody can answer.
    /// Spec: LSS/1 §9.4.
    pub fn max_error_secs(&self) -> f64 {
        self.uncertainty_secs / 2.0
    }
}
