//! Time: how far another clock is from ours, and what becomes of timestamps on the way to the
//! user. Both machines take `now` and numbers; neither sends, waits or reads a clock.
//! Spec: lsl-protocol §5.2, §11.

mod offset;
mod postprocess;

pub use self::offset::{Action, OffsetEstimator, ProbeSchedule, RejectedReply, ReplyCounts};
pub use self::postprocess::{ClockOffset, NeedsOffset, PostProcessor};

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
