//! The asymmetric work of a handshake, to be done wherever its caller likes. Spec: LSS/1 §6.2.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::handshake::{
    Claim, HandshakeError, Initiator, Responder, Unconfirmed, VerifiedResponder, WaitM3,
};
use crate::{Random, Result};

/// Work to be done, once.
#[derive(Debug)]
pub struct Work(pub(super) Task);

#[derive(Debug)]
pub(super) enum Task {
    ReceiveM1(Responder, Vec<u8>),
    ReceiveM2(Initiator, Vec<u8>),
    MakeM3(VerifiedResponder),
    ReceiveM3(WaitM3, Vec<u8>),
}

/// Result of [`Work`], for [`Answer::Work`](super::Answer::Work).
#[derive(Debug)]
pub struct WorkDone(pub(super) Box<Done>);

#[derive(Debug)]
pub(super) enum Done {
    M1(Result<(WaitM3, Vec<u8>)>),
    M2(Result<VerifiedResponder, HandshakeError>),
    MadeM3(Result<(Box<Unconfirmed>, Vec<u8>)>),
    M3(Result<Claim, HandshakeError>),
}

impl Work {
    /// Does it; some 0.1 ms.
    pub fn run(self, random: &mut impl Random) -> WorkDone {
        let done = counted(|| match self.0 {
            Task::ReceiveM1(responder, m1) => Done::M1(responder.receive_m1(&m1, random)),
            Task::ReceiveM2(initiator, m2) => Done::M2(initiator.receive_m2(&m2)),
            Task::MakeM3(verified) => {
                let made = verified.accept();
                Done::MadeM3(made.map(|(unconfirmed, m3)| (Box::new(unconfirmed), m3)))
            }
            Task::ReceiveM3(wait, m3) => Done::M3(wait.receive_m3(&m3)),
        });
        WorkDone(Box::new(done))
    }
}

/// Does asymmetric work, and counts the threads that do.
pub(super) fn counted<R>(work: impl FnOnce() -> R) -> R {
    let running = RUNNING.fetch_add(1, Ordering::Relaxed) + 1;
    PEAK.fetch_max(running, Ordering::Relaxed);
    let done = work();
    RUNNING.fetch_sub(1, Ordering::Relaxed);
    done
}

/// The most threads that did asymmetric work at the same time so far: for tests of the limit.
#[doc(hidden)]
pub fn peak_of_asymmetric_work() -> usize {
    PEAK.load(Ordering::Relaxed)
}

static RUNNING: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);
