//! Calls that wait, made in turns of a second, so that a thread in one of them can be cancelled
//! (`pthread_cancel`).
//!
//! Inside a turn it cannot be: glibc ends a thread by unwinding its stack, which Rust permits through
//! frames alone that have nothing to drop. Between two turns there are no others: all that is on the stack
//! here is `Copy`, and exported functions that wait are `extern "C-unwind"`.

use std::ops::ControlFlow;

use lsl_core::{Timeout, local_clock};
use lsl_platform::cancel::end_if_cancelled;

use crate::memory::{Outcome, with_code};

/// What a turn came to: the call's result, or how much of it is done.
pub(crate) type Progress<R> = ControlFlow<R, usize>;

/// One turn of a call that waits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Turn {
    secs: f64,
    /// What the turns before came to.
    pub(crate) done: usize,
    pub(crate) is_first: bool,
    /// Whether the time of the call is up afterwards.
    pub(crate) is_last: bool,
}

impl Turn {
    /// How long it may wait.
    pub(crate) fn timeout(self) -> Timeout {
        Timeout::from_secs(self.secs)
    }

    /// Nothing came: `result`, if the time of the call is up.
    pub(crate) fn nothing<R>(self, result: R) -> Progress<R> {
        if self.is_last {
            Progress::Break(result)
        } else {
            Progress::Continue(self.done)
        }
    }
}

/// Makes a call that may wait for `timeout` seconds. It is a point at which a cancelled thread ends if it
/// may wait at all. The last turn gives a result.
#[inline]
pub(crate) fn in_turns<R: Copy>(timeout: f64, call: impl Fn(Turn) -> Progress<R> + Copy) -> R {
    let is_long = timeout > TURN_SECS;
    let mut turn = Turn {
        secs: if is_long { TURN_SECS } else { timeout },
        done: 0,
        is_first: true,
        is_last: !is_long,
    };
    // Of calls with a second turn: most find in the first one what they wait for, and read no clock here.
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

/// As [`in_turns`], with the error code of the call in `*ec`.
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

/// One turn, in a frame of its own. Merged with a caller, what it drops would give that a personality for
/// unwinding, whose library need not be that of glibc.
#[inline(never)]
fn take<R>(turn: Turn, call: impl Fn(Turn) -> Progress<R>) -> Progress<R> {
    call(turn)
}

/// How long a cancelled thread may still wait. Shorter time-outs are one turn.
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
