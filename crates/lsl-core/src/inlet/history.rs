//! Samples from before an inlet was opened, its position, and what was lost. Spec: resume §5, §6.

use lsl_proto::inlet::LostSamples;
use lsl_proto::wire::sequence::{Position, ReplayFrom};

use super::{Inlet, InletBuilder};
use crate::{Error, Result};

/// Past that an inlet asks its outlet for when it is opened for the first time. Spec: resume §2.2.
///
/// Outlets of liblsl, synchronous ones and those with `RetainSeconds = 0` have none: the inlet begins live.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
#[non_exhaustive]
pub enum History {
    /// Nothing that was pushed before.
    #[default]
    Live,
    /// The samples of so many seconds, as far as the outlet retains them.
    Seconds(f64),
    /// So many samples, as far as the outlet retains them.
    Samples(u64),
    /// Everything that the outlet retains.
    Oldest,
}

impl From<History> for ReplayFrom {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "saturates, and the header line has room for less"
    )]
    fn from(history: History) -> Self {
        match history {
            History::Live => Self::Live,
            History::Seconds(secs) => Self::LastMillis((secs * 1000.0).ceil() as u64),
            History::Samples(samples) => Self::LastSamples(samples),
            History::Oldest => Self::Oldest,
        }
    }
}

impl InletBuilder {
    /// Begins with samples from before the first connection, if the outlet has them. Default: none.
    #[must_use]
    pub fn history(mut self, history: History) -> Self {
        self.replay_from = Some(history.into());
        self
    }

    /// Begins where another inlet of the same stream ended, perhaps of another process: with the first sample that
    /// it had not received, as far as the outlet retains it. What is missing is in
    /// [`InletStats::lost_exact`](crate::InletStats::lost_exact).
    #[must_use]
    pub fn resume_at(mut self, position: Position) -> Self {
        self.replay_from = Some(ReplayFrom::At(position));
        self
    }
}

impl Inlet {
    /// As [`InletBuilder::history`], for an inlet that exists already.
    ///
    /// # Errors
    /// [`Error::Argument`] after the first call that needed data, and if the configuration has `Resume = 0`.
    pub fn ask_history(&self, history: History) -> Result<()> {
        self.ask(history.into())
    }

    /// As [`InletBuilder::resume_at`], for an inlet that exists already.
    ///
    /// # Errors
    /// As [`ask_history`](Self::ask_history).
    pub fn ask_from(&self, position: Position) -> Result<()> {
        self.ask(ReplayFrom::At(position))
    }

    pub(super) fn ask(&self, from: ReplayFrom) -> Result<()> {
        let argument = |text: &str| Err(Error::Argument(text.into()));
        if self.shared.has_begun() {
            return argument("an inlet can only be asked for the past before its first pull");
        }
        let mut state = self.shared.feed.lock();
        if state.feed.asked().is_none() {
            return argument("the configuration has Resume = 0: no outlet is asked for the past");
        }
        state.feed.ask_for(from);
        Ok(())
    }

    /// Returns the number of the first sample that was not received yet, and whose numbering that is; `None` before
    /// the stream flows, after [`close`](Self::close), and if the outlet does not number its samples. Samples that
    /// wait here count as received.
    pub fn position(&self) -> Option<Position> {
        self.shared.feed.lock().feed.position()
    }

    /// Returns the losses since the last call, the newest 1,024: between which samples, how many and why.
    pub fn take_gaps(&self) -> Vec<LostSamples> {
        self.shared.feed.lock().feed.take_gaps()
    }
}
