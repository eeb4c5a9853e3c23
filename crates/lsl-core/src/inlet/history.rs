//! Samples from before an inlet was opened, its position, and what was lost. Spec: resume §5, §6.

use std::sync::Arc;
use std::time::Duration;

use lsl_platform::clock::local_clock;
use lsl_proto::inlet::{Asked, LostSamples};
use lsl_proto::wire::sequence::{Generation, Position, ReplayFrom, SEQUENCE_LIMIT};

use super::{Inlet, InletBuilder};
use crate::net::monitor::Monitor;
use crate::net::runtime::{self, AbortOnDrop};
use crate::{Error, Result, Timeout};

/// Past that an inlet asks its outlet for when it is opened for the first time. Spec: resume §2.2.
///
/// Outlets of liblsl, synchronous ones and those with `RetainSeconds = 0` have none: the inlet begins live.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
#[non_exhaustive]
pub enum History {
    /// Nothing that was pushed before.
    #[default]
    Live,
    /// The samples of so many seconds, as far as the outlet retains them; neither negative nor NaN.
    Seconds(f64),
    /// So many samples, as far as the outlet retains them.
    Samples(u64),
    /// Everything that the outlet retains.
    Oldest,
}

/// Samples that an outlet retains, by their sequence numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Retained {
    /// Numbering of the samples.
    pub generation: Generation,
    /// Number of the oldest retained sample; that of the next pushed one if none is retained.
    pub first: u64,
    /// Number that the next pushed sample gets.
    pub live: u64,
}

impl History {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "saturates, and the header line has room for less"
    )]
    fn beginning(self) -> Result<ReplayFrom> {
        Ok(match self {
            Self::Live => ReplayFrom::Live,
            Self::Seconds(secs) if secs >= 0.0 => {
                ReplayFrom::LastMillis((secs * 1000.0).ceil() as u64)
            }
            Self::Seconds(secs) => {
                return Err(Error::Argument(format!("there is no past of {secs} s")));
            }
            Self::Samples(samples) => ReplayFrom::LastSamples(samples),
            Self::Oldest => ReplayFrom::Oldest,
        })
    }
}

impl InletBuilder {
    /// Begins with samples from before the first connection, if the outlet has them. Default: none. Of this and
    /// [`resume_at`](Self::resume_at) the last call counts.
    #[must_use]
    pub fn history(mut self, history: History) -> Self {
        (self.history, self.asked) = (history, None);
        self
    }

    /// Begins where another inlet of the same stream ended, perhaps of another process: with the first sample that
    /// it had not received, as far as the outlet retains it. What is missing is in
    /// [`InletStats::lost_exact`](crate::InletStats::lost_exact).
    #[must_use]
    pub fn resume_at(mut self, position: Position) -> Self {
        self.asked = Some(ReplayFrom::At(position, None).into());
        self
    }

    /// As [`resume_at`](Self::resume_at), with the timestamp of the last sample that was received, as the outlet gave
    /// it. If no sample is missing after that one, timestamps go on as if one inlet had read all of them, also those
    /// that are deduced from the one before. Spec: resume §4.2.
    #[must_use]
    pub fn resume_after(mut self, position: Position, last_stamp: f64) -> Self {
        self.asked = Some(Asked {
            from: ReplayFrom::At(position, None),
            last_stamp,
        });
        self
    }
}

impl Inlet {
    /// As [`InletBuilder::history`], for an inlet that exists already.
    ///
    /// # Errors
    /// [`Error::Argument`] after the first call that needed the outlet (also its full info or clock), if the
    /// configuration has `Resume = 0` and something was asked for, and for seconds and numbers that cannot be.
    pub fn ask_history(&self, history: History) -> Result<()> {
        self.ask(history.beginning()?.into())
    }

    /// As [`InletBuilder::resume_at`], for an inlet that exists already.
    ///
    /// # Errors
    /// As [`ask_history`](Self::ask_history).
    pub fn ask_from(&self, position: Position) -> Result<()> {
        self.ask(ReplayFrom::At(position, None).into())
    }

    pub(super) fn ask(&self, asked: Asked) -> Result<()> {
        let argument = |text: &str| Err(Error::Argument(text.into()));
        if matches!(asked.from, ReplayFrom::At(position, _) if position.next >= SEQUENCE_LIMIT) {
            return argument("no sample has a number of 2^63 or more");
        }
        let may_ask = self.shared.before_begin(|feed| {
            let asks = feed.asked(0.0).is_some();
            if asks {
                feed.ask_for(asked);
            }
            asks || asked.from == ReplayFrom::Live
        });
        match may_ask {
            Some(true) => Ok(()),
            Some(false) => argument(NO_RESUME),
            None => argument(
                "the past can be asked for only before the first call that needs the outlet",
            ),
        }
    }

    /// Asks the outlet which of its samples it retains, without becoming its reader: nothing is sent again for it, and
    /// nothing retained for longer. `None` if it numbers no samples, as those of liblsl. Blocks, `timeout` at the
    /// longest. Spec: resume §2.2.
    ///
    /// # Errors
    /// [`Error::Timeout`]; [`Error::Io`] and [`Error::Security`] if there is no connection; [`Error::Argument`] if the
    /// configuration has `Resume = 0`, and before the address of the stream is known.
    pub fn retained_blocking(&self, timeout: impl Into<Timeout>) -> Result<Option<Retained>> {
        if !self.shared.context.config().tuning().resume {
            return Err(Error::Argument(NO_RESUME.into()));
        }
        let limit = timeout.into().deadline(local_clock()) - local_clock();
        let limit = Duration::from_secs_f64(limit.clamp(0.0, LONGEST_SECS));
        let answer = Arc::new(Monitor::new(None));
        let (shared, place) = (Arc::clone(&self.shared), Arc::clone(&answer));
        let asking = runtime::spawn(async move {
            let retained = shared.source.retained(limit).await;
            place.update(|place| *place = Some(retained));
        })?;
        let _asking = AbortOnDrop(asking);
        let deadline = local_clock() + limit.as_secs_f64();
        let answered = answer.wait_blocking(deadline, |place: &mut Option<_>| place.take());
        let granted = answered.unwrap_or(Err(Error::Timeout {
            operation: "retained",
        }))?;
        Ok(granted.map(|granted| Retained {
            generation: granted.generation,
            first: granted.begin,
            live: granted.live,
        }))
    }

    /// Returns the number of the first sample that was not received yet, and whose numbering that is; `None` before
    /// the stream flows (whatever was asked for), after [`close`](Self::close), and if the outlet does not number its samples. Samples that
    /// wait here count as received.
    pub fn position(&self) -> Option<Position> {
        self.shared.feed.lock().feed.position()
    }

    /// Returns whether the stream is over and all that a relay kept of it was received. It is lost then, too.
    /// Spec: relay §9.
    pub fn has_ended(&self) -> bool {
        self.shared.feed.lock().feed.has_ended()
    }

    /// Returns the oldest losses that were not returned before, at most so many: between which samples, how many
    /// and why. The inlet keeps 1,024; how many older ones it forgot is in
    /// [`InletStats::gaps_forgotten`](crate::InletStats::gaps_forgotten).
    pub fn take_gaps(&self, most: usize) -> Vec<LostSamples> {
        self.shared.feed.lock().feed.take_gaps(most)
    }
}

const NO_RESUME: &str = "the configuration has Resume = 0: no outlet is asked for the past";

/// A wait without limit ends after an hour.
const LONGEST_SECS: f64 = 3600.0;
