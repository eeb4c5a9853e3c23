//! The two clocks of [`Security`](super::Security), so that tests can turn them.

use std::fmt;
use std::time::Duration;

/// Where the time comes from.
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

    /// Since 1970; jumps when somebody sets it.
    pub(super) fn utc(&self) -> Duration {
        (self.utc)()
    }

    /// Seconds, steady.
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
