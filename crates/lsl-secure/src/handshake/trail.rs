//! How long the costly steps of a handshake take, for auditors. Spec: audit §1.1, §1.3.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::Role;
use crate::audit::{Span, probes};

/// Tree, begin and steps of one connection's handshake. Its caller keeps it, whatever becomes of the handshake:
/// a failure ends with the step that failed.
#[derive(Debug)]
pub struct Trail {
    span: Span,
    pub(crate) begun: f64,
    role: Role,
    /// Whether those who look by probes were told that it is there.
    is_open: AtomicBool,
    /// Without one, nothing is measured.
    clock: Option<fn() -> f64>,
    steps: Mutex<Vec<TimedStep>>,
}

/// A step of a handshake, or of the work on a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Makes a key share.
    Generate,
    /// Agrees on the secret of both shares.
    Derive,
    /// Signs and seals our identity.
    Sign,
    /// Opens and verifies the peer's identity.
    Verify,
    /// Derives the keys of the session.
    Schedule,
    /// Wraps the key of a file for its recipients.
    Wrap,
    /// Recovers the key of a file.
    Unwrap,
    /// Encrypts or decrypts the content of a file.
    Payload,
    /// Copies the content of a file, encrypted as it is.
    Copy,
    /// Brings a file to the disk.
    Sync,
}

/// A step and its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimedStep {
    /// What was done.
    pub step: Step,
    /// Microseconds from the begin of the handshake to that of the step.
    pub after_us: u32,
    /// Microseconds that it took.
    pub took_us: u32,
}

impl Trail {
    /// Begins the trail of this side of a connection at the time `begun`. `clock` is read around each step, and
    /// should be `None` where nobody wants to know.
    pub fn begin(role: Role, begun: f64, clock: Option<fn() -> f64>) -> Self {
        Self {
            span: Span::begin(),
            begun,
            role,
            is_open: AtomicBool::new(false),
            clock,
            steps: Mutex::default(),
        }
    }

    /// Begins a trail without times.
    pub(crate) fn untimed(role: Role) -> Arc<Self> {
        Arc::new(Self::begin(role, 0.0, None))
    }

    /// Returns the tree of the connection's events, for one of them: those who look by probes know it from now on.
    pub fn span(&self) -> Span {
        self.open();
        self.span
    }

    /// Returns the steps so far.
    pub fn steps(&self) -> Vec<TimedStep> {
        let steps = self.steps.lock();
        steps.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Tells those who look by probes that the handshake began, once.
    fn open(&self) {
        if !self.is_open.swap(true, Ordering::Relaxed) {
            probes::begin_handshake(self.span, self.role);
        }
    }

    /// Does a step, and notes its time, whatever comes of it.
    pub(super) fn time<R>(&self, step: Step, work: impl FnOnce() -> R) -> R {
        self.open();
        probes::begin_step(self.span, self.role, step);
        let Some(clock) = self.clock else {
            return work();
        };
        let start = clock();
        let done = work();
        let timed = TimedStep::new(step, start - self.begun, clock() - start);
        let mut steps = self.steps.lock().unwrap_or_else(PoisonError::into_inner);
        if steps.len() < MAX_STEPS {
            steps.push(timed);
        }
        done
    }
}

impl TimedStep {
    /// Creates one of times in seconds.
    pub fn new(step: Step, after_secs: f64, took_secs: f64) -> Self {
        Self {
            step,
            after_us: micros(after_secs),
            took_us: micros(took_secs),
        }
    }
}

impl Step {
    /// Returns the name in lines.
    pub fn name(self) -> &'static str {
        match self {
            Self::Generate => "generate",
            Self::Derive => "derive",
            Self::Sign => "sign",
            Self::Verify => "verify",
            Self::Schedule => "schedule",
            Self::Wrap => "wrap",
            Self::Unwrap => "unwrap",
            Self::Payload => "payload",
            Self::Copy => "copy",
            Self::Sync => "sync",
        }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "`as` saturates, and an hour is nothing to measure here"
)]
fn micros(secs: f64) -> u32 {
    (secs * 1e6) as u32
}

/// A handshake has no more, on either side.
pub(crate) const MAX_STEPS: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_before_the_first_step_has_a_tree_that_was_told_of() {
        let trail = Trail::untimed(Role::Outlet);
        assert!(!trail.is_open.load(Ordering::Relaxed));
        let _ = trail.span();
        assert!(trail.is_open.load(Ordering::Relaxed));
    }
}
