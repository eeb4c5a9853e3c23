//! Calls that wait, in turns of a second, so that a thread in one of them can be cancelled
//! (`pthread_cancel`).
//!
//! Cancellation is off inside a turn: glibc ends a thread by unwinding its stack, which Rust permits only
//! through frames with nothing to drop. Between two turns all frames are such: everything on the stack here
//! is `Copy`, and exported functions that wait are `extern "C-unwind"`.

use std::ops::ControlFlow;

use lsl_core::{Timeout, local_clock};
use lsl_platform::cancel::end_if_cancelled;

use crate::memory::{Outcome, with_code};

/// Result of a turn: that of the call, or the amount done so far.
pub(crate) type Progress<R> = ControlFlow<R, usize>;

/// One turn of a call that waits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Turn {
    secs: f64,
    /// Amount done by the turns before.
    pub(crate) done: usize,
    pub(crate) is_first: bool,
    /// Whether the time of the call is up after this turn.
    pub(crate) is_last: bool,
}

impl Turn {
    /// Returns the time limit of this turn.
    pub(crate) fn timeout(self) -> Timeout {
        Timeout::from_secs(self.secs)
    }

    /// Ends the call with `result` if its time is up, else continues it.
    pub(crate) fn nothing<R>(self, result: R) -> Progress<R> {
        if self.is_last {
            Progress::Break(result)
        } else {
            Progress::Continue(self.done)
        }
    }
}

/// Runs a call that may wait for `timeout` seconds. If it may wait at all, it is a cancellation point. The
/// last turn gives a result.
#[inline]
pub(crate) fn in_turns<R: Copy>(timeout: f64, call: impl Fn(Turn) -> Progress<R> + Copy) -> R {
    let is_long = timeout > TURN_SECS;
    let mut turn = Turn {
        secs: if is_long { TURN_SECS } else { timeout },
        done: 0,
        is_first: true,
        is_last: !is_long,
    };
    // For a second turn only: most calls end in the first one and read no clock here.
    let mut end = 0.0;
    loop {
        if timeout > 0.0 {
            // SAFETY: as the module says.
            unsafe { end_if_cancelled() };
        }
        match take(turn, call) {
            Progress::Break(result) => return result,
            Progress::Continue(done) => turn.done = done,
        }
        let now = local_clock();
        if turn.is_first {
            end = Timeout::from_secs(timeout).deadline(now - TURN_SECS);
            turn.is_first = false;
        }
        let left = end - now;
        turn.is_last = left <= TURN_SECS;
        turn.secs = left.min(TURN_SECS);
    }
}

/// Runs a call as [`in_turns`] does, with its error code in `*ec`.
///
/// # Safety
/// `ec` is NULL or may be written.
#[inline]
pub(crate) unsafe fn with_code_in_turns<R: Copy>(
    ec: *mut i32,
    fallback: R,
    timeout: f64,
    call: impl Fn(Turn) -> Outcome<Progress<R>> + Copy,
) -> R {
    in_turns(timeout, |turn| {
        // SAFETY: the caller vouches for it.
        unsafe { with_code(ec, Progress::Break(fallback), || call(turn)) }
    })
}

/// Runs one turn in a frame of its own. Merged with a caller, its drops would give that a personality for
/// unwinding, whose library need not be that of glibc.
#[inline(never)]
fn take<R>(turn: Turn, call: impl Fn(Turn) -> Progress<R>) -> Progress<R> {
    call(turn)
}

/// Longest further wait of a cancelled thread. Shorter time-outs are one turn.
const TURN_SECS: f64 = 1.0;

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn calls_that_wait_at_most_a_second_are_one_turn() {
        for timeout in [0.0, -1.0, f64::NAN, 0.2, TURN_SECS] {
            let result = in_turns(timeout, |turn| {
                assert!(turn.is_first && turn.is_last);
                assert_eq!(turn.timeout(), Timeout::from_secs(timeout));
                turn.nothing(7)
            });
            assert_eq!(result, 7);
        }
    }

    #[test]
    fn longer_calls_go_on_where_they_were() {
        for timeout in [1e6, f64::INFINITY] {
            let turns = Cell::new(0);
            let result = in_turns(timeout, |turn| {
                assert_eq!(turn.is_first, turns.get() == 0);
                assert!(!turn.is_last);
                assert_eq!(turn.done, 10 * turns.get());
                assert_eq!(turn.timeout(), Timeout::from_secs(TURN_SECS));
                turns.set(turns.get() + 1);
                if turns.get() == 3 {
                    Progress::Break(turn.done)
                } else {
                    Progress::Continue(turn.done + 10)
                }
            });
            assert_eq!(result, 20);
        }
    }
}
