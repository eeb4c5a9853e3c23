//! Reading for those who pass samples on. Spec: relay §6, §8.

use std::sync::Arc;

use lsl_proto::inlet::Run;

use super::{Inlet, InletBuilder};
use crate::byte_stream::substream::OpenSubstream;
use crate::{Position, Result, Timeout};

impl InletBuilder {
    /// Reads the stream through a link between relays, for `lsl-relay`: each connection of the inlet is a substream,
    /// and the stream is lost with it if [`recover(false)`](Self::recover) was called. No clock is measured, so that
    /// [`Inlet::time_correction`] times out. Spec: relay §4.
    #[doc(hidden)]
    #[must_use]
    pub fn through(mut self, link: Arc<dyn OpenSubstream>) -> Self {
        self.link = Some(link);
        self
    }
}

impl Inlet {
    /// Pulls samples as they were received into `run`, in place of what it has, for `lsl-relay`: at most `most`, none
    /// of them behind a loss that another one comes before, not one of them converted or corrected. Waits for the
    /// first sample and takes what is there then; false if none came in time. Opens the stream.
    ///
    /// Dropping the future loses no sample.
    ///
    /// # Errors
    /// [`Error::Lost`](crate::Error::Lost) once the stream is lost and no sample waits.
    #[doc(hidden)]
    pub async fn pull_run(
        &self,
        most: usize,
        run: &mut Run,
        timeout: impl Into<Timeout>,
    ) -> Result<bool> {
        let deadline = self.begin(timeout)?;
        let pulled = self
            .shared
            .pull(deadline, |feed| match feed.take_run(most, run) {
                Ok(false) => None,
                Ok(true) => {
                    self.shared.note_pull(feed, run.stamps.len());
                    Some(Ok(true))
                }
                Err(error) => Some(Err(error)),
            });
        pulled.await.unwrap_or(Ok(false))
    }

    /// Returns the position of the first sample of the next run, for `lsl-relay`; `None` if nobody numbers them.
    #[doc(hidden)]
    pub fn next_run(&self) -> Option<Position> {
        self.shared.feed.lock().feed.first_of_ring()
    }
}
