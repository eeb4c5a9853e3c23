//! The two clocks of [`Security`](super::Security), so that tests can turn them.

use std::fmt;
use std::time::Duration;

/// Sources of the time, which tests replace.
pub(super) struct Clock {
    utc: Box<dyn Fn() -> Duration + Send + Sync>,
    local: Box<dyn Fn() -> f64 + Send + Sync>,
}

impl Clock {
    pub(super) fn system() -> Self {
        Self {
            utc: Box::new(lsl_platform::clock::utc_now),
            local: Box::new(lsl_platform::clock::local_clock),
        }
    }

    pub(super) fn fake(
        utc: impl Fn() -> Duration + Send + Sync + 'static,
        local: impl Fn() -> f64 + Send + Sync + 'static,
    ) -> Self {
        Self {
            utc: Box::new(utc),
            local: Box::new(local),
        }
    }

    /// Returns the time since 1970; jumps if the system's clock is set.
    pub(super) fn utc(&self) -> Duration {
        (self.utc)()
    }

    pub(super) fn local(&self) -> f64 {
        (self.local)()
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::system()
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clock")
    }
}
