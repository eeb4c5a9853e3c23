//! Where a stream comes from that is passed on by a relay: its numbering and the clock of its source.
//! Spec: relay §2, §7.

use std::sync::{Arc, Mutex};

use lsl_platform::clock::local_clock;
use lsl_proto::clock::SourceClock;
use lsl_proto::transport::Control;
use lsl_proto::wire::sequence::Position;

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
pub struct StreamClock(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    estimate: Option<SourceClock>,
    last_asked: Option<f64>,
}

impl StreamClock {
    /// Replaces the estimate.
    pub fn set(&self, estimate: Option<SourceClock>) {
        lock_ignoring_poison(&self.0).estimate = estimate;
    }

    /// Returns when somebody last asked for this clock, in seconds of `local_clock`.
    pub fn last_asked(&self) -> Option<f64> {
        lock_ignoring_poison(&self.0).last_asked
    }

    /// Takes note that somebody asks for this clock now.
    pub(crate) fn ask(&self) {
        lock_ignoring_poison(&self.0).last_asked = Some(local_clock());
    }

    /// Returns the answer to a PING in the clock of the source. What else a peer must be told stays as it is.
    pub(crate) fn answer(&self, control: Control) -> Option<Control> {
        let Control::Pong { t0, t1, .. } = control else {
            return Some(control);
        };
        let now = local_clock();
        let mut state = lock_ignoring_poison(&self.0);
        state.last_asked = Some(now);
        let (first, second) = state.estimate?.shifts(now)?;
        Some(Control::Pong {
            t0,
            t1: t1 + first,
            t2_shift_secs: second,
        })
    }
}
