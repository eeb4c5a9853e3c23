//! Writes the lines that still wait when the process exits. Contexts live as long as their process,
//! so that no destructor would do it.
//!
//! The list of logs only grows, and reading it takes no lock: a thread may hold any lock when another
//! one forks or exits.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{OnceLock, Weak};

use lsl_platform::clock::local_clock;
use lsl_platform::exit::at_exit;
use lsl_platform::fork::Generation;

use super::{AuditShared, LAST_WORDS};

/// One log of one process, and the next.
#[derive(Debug)]
struct Known {
    owner: Generation,
    shared: Weak<AuditShared>,
    next: OnceLock<Box<Self>>,
}

/// Whatever is made after this call has its own last moments before the logs have theirs.
pub(super) fn prepare() {
    if !HAS_HOOK.swap(true, Ordering::Relaxed)
        && let Err(error) = at_exit(write_all)
    {
        tracing::warn!("what is recorded in the last moments may be lost at exit: {error}");
    }
}

/// Returns true once the process is exiting: later lines must not wait for others.
pub(super) fn is_over() -> bool {
    IS_OVER.load(Ordering::Relaxed)
}

/// Has the lines of `shared` written when this process exits, if [`prepare`] was called.
pub(super) fn register(shared: Weak<AuditShared>) {
    let mut known = Box::new(Known {
        owner: Generation::current(),
        shared,
        next: OnceLock::new(),
    });
    let mut place = &FIRST;
    loop {
        if let Err(taken) = place.set(known) {
            known = taken;
        } else {
            return;
        }
        if let Some(other) = place.get() {
            place = &other.next;
        }
    }
}

/// Asks for all lines of all logs first, so that one slow disk does not use up the time of the others.
extern "C" fn write_all() {
    IS_OVER.store(true, Ordering::Relaxed);
    let deadline = local_clock() + LAST_WORDS.as_secs_f64();
    let next = |known: &&'static Known| known.next.get().map(Box::as_ref);
    let all = std::iter::successors(FIRST.get().map(Box::as_ref), next);
    // The others are those of a parent, which writes them itself.
    let own = all.filter(|known| known.owner.is_current());
    let own: Vec<_> = own.filter_map(|known| known.shared.upgrade()).collect();
    let asked = own.iter().map(|shared| shared.ask_for_all(deadline));
    let asked: Vec<_> = asked.collect();
    for (shared, queued) in own.iter().zip(asked) {
        if let Some(queued) = queued {
            shared.wait_until_done(queued, deadline);
        }
    }
}

static FIRST: OnceLock<Box<Known>> = OnceLock::new();
/// Whether the exit hook is registered; forked children inherit it.
static HAS_HOOK: AtomicBool = AtomicBool::new(false);
static IS_OVER: AtomicBool = AtomicBool::new(false);
