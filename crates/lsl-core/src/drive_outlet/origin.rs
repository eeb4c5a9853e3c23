//! Where a stream comes from that is passed on by a relay: its numbering and the clock of its source.
//! Spec: relay §2, §7.

use std::sync::{Arc, Mutex};

use lsl_platform::clock::local_clock;
use lsl_proto::clock::SourceClock;
use lsl_proto::transport::Control;
use lsl_proto::wire::sequence::Position;
use tokio::sync::Notify;

use crate::net::monitor::lock_ignoring_poison;

/// Origin of a stream that is passed on.
#[derive(Debug, Clone)]
pub struct Origin {
    /// Position of the first sample that will be passed on.
    pub first: Position,
    /// Clock of the source, in which all readers are answered.
    pub clock: Arc<StreamClock>,
}

/// Clock of the source of a stream that is passed on, and the interest in it. Without an estimate nobody is answered.
#[derive(Debug, Default)]
pub struct StreamClock {
    state: Mutex<State>,
    bell: Option<Arc<Notify>>,
}

#[derive(Debug, Default)]
struct State {
    estimate: Option<SourceClock>,
    last_asked: Option<f64>,
    /// The clock that this one was lent from.
    lender: Option<Arc<StreamClock>>,
    is_taken_back: bool,
}

impl StreamClock {
    /// Creates a clock that tells when somebody asks for it after a time without interest.
    pub fn with_bell(bell: Arc<Notify>) -> Self {
        Self {
            state: Mutex::default(),
            bell: Some(bell),
        }
    }

    /// Creates a clock that answers as this one, until it is taken back.
    pub fn lend(self: &Arc<Self>) -> Arc<Self> {
        let lent = Self::default();
        lock_ignoring_poison(&lent.state).lender = Some(Arc::clone(self));
        Arc::new(lent)
    }

    /// Takes back a clock that was lent: nobody is answered, and connections that only ask for it end.
    pub fn take_back(&self) {
        *lock_ignoring_poison(&self.state) = State {
            is_taken_back: true,
            ..State::default()
        };
    }

    pub(crate) fn is_taken_back(&self) -> bool {
        lock_ignoring_poison(&self.state).is_taken_back
    }

    fn lender(&self) -> Option<Arc<Self>> {
        lock_ignoring_poison(&self.state).lender.clone()
    }

    /// Replaces the estimate.
    pub fn set(&self, estimate: Option<SourceClock>) {
        lock_ignoring_poison(&self.state).estimate = estimate;
    }

    /// Returns when somebody last asked for this clock, in seconds of `local_clock`.
    pub fn last_asked(&self) -> Option<f64> {
        lock_ignoring_poison(&self.state).last_asked
    }

    /// Takes note that somebody asks for this clock now.
    pub(crate) fn ask(&self) {
        let _ = self.shifts();
    }

    /// Returns what to add to the two times of an answer, so that they are of this clock; takes note that somebody
    /// asks for it.
    pub(crate) fn shifts(&self) -> Option<(f64, f64)> {
        if let Some(lender) = self.lender() {
            return lender.shifts();
        }
        let now = local_clock();
        let mut state = lock_ignoring_poison(&self.state);
        let before = state.last_asked.replace(now);
        let shifts = state.estimate.and_then(|estimate| estimate.shifts(now));
        drop(state);
        if let Some(bell) = &self.bell
            && before.is_none_or(|before| now - before > QUIET_SECS)
        {
            bell.notify_one();
        }
        shifts
    }

    /// Returns the answer to a PING in the clock of the source. What else a peer must be told stays as it is.
    pub(crate) fn answer(&self, control: Control) -> Option<Control> {
        let Control::Pong { t0, t1, .. } = control else {
            return Some(control);
        };
        let (first, second) = self.shifts()?;
        Some(Control::Pong {
            t0,
            t1: t1 + first,
            t2_shift_secs: second,
        })
    }
}

/// Time in seconds after which a question is news again.
const QUIET_SECS: f64 = 10.0;
