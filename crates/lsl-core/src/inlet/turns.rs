//! Calls that wait in turns, for `lsl-ffi`: only the first turn connects, or an inlet that another thread closes
//! meanwhile would be opened again.

use lsl_platform::clock::local_clock;

use super::{BlockingInlet, Inlet, OPEN_TIMEOUT, opened};
use crate::{Result, Timeout};

impl Inlet {
    /// Begins to connect, as [`open`](Self::open) without waiting. Returns what [`BlockingInlet::opened`] waits with.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io) if no thread is to be had.
    #[doc(hidden)]
    pub fn begin_open(&self) -> Result<u64> {
        self.shared.start_epoch()
    }
}

impl BlockingInlet<'_> {
    /// Waits for what [`Inlet::begin_open`] began.
    ///
    /// # Errors
    /// As [`Inlet::open`].
    #[doc(hidden)]
    pub fn opened(&self, epoch: u64, timeout: impl Into<Timeout>) -> Result<()> {
        let deadline = timeout.into().deadline(local_clock());
        let feed = &self.inlet.shared.feed;
        feed.wait_blocking(deadline, opened(epoch))
            .unwrap_or(Err(OPEN_TIMEOUT))
    }

    /// Returns the same calls, whose pulls do not connect.
    #[doc(hidden)]
    #[must_use]
    pub fn without_connecting(self) -> Self {
        Self {
            connects: false,
            ..self
        }
    }

    /// Connects for a pull, unless it shall not. Returns its deadline.
    #[inline]
    pub(super) fn begin(&self, timeout: impl Into<Timeout>) -> Result<f64> {
        if self.connects {
            return self.inlet.begin(timeout);
        }
        Ok(timeout.into().deadline(local_clock()))
    }
}
