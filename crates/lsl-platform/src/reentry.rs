//! Detection of calls that interrupt another call of the same thread, as in a signal handler. The
//! interrupted call may hold any lock, which is then never released.

use std::cell::Cell;

thread_local! {
    /// Depth of calls on the thread. Has no destructor, so that it can be read at any time.
    static CALLS: Cell<u32> = const { Cell::new(0) };
}

/// Guard that counts a call of this thread for as long as it exists.
#[derive(Debug)]
pub struct Call {
    before: u32,
}

impl Call {
    /// Increments the thread's depth of calls; dropping the guard restores it.
    pub fn begin() -> Self {
        Self {
            before: CALLS.replace(CALLS.get() + 1),
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        CALLS.set(self.before);
    }
}

/// Returns whether the innermost call of this thread interrupts another one.
pub fn is_interrupting() -> bool {
    CALLS.get() > 1
}

/// Runs a part of a call that others may interrupt: foreign code, or a wait without any lock that they
/// need. The depth is 0 meanwhile.
pub fn interruptible<R>(part: impl FnOnce() -> R) -> R {
    let _call = Call {
        before: CALLS.replace(0),
    };
    part()
}

/// Blocks the program's signal handlers on this thread, which must be the library's own. A handler that
/// called the library would wait for locks that the thread holds. Signals of faults, of profilers and of
/// garbage collectors, which suspend threads by them, stay unblocked.
#[cfg(unix)]
#[expect(unsafe_code, reason = "std has no signal masks")]
pub fn block_signals() {
    let mut signals = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: room for a set, which is filled here.
    if unsafe { libc::sigfillset(signals.as_mut_ptr()) } != 0 {
        return;
    }
    let needed = [
        libc::SIGSEGV,
        libc::SIGBUS,
        libc::SIGFPE,
        libc::SIGILL,
        libc::SIGABRT,
        libc::SIGTRAP,
        libc::SIGSYS,
        libc::SIGPROF,
        libc::SIGXCPU,
    ];
    // Mono and the collector of Boehm suspend threads by SIGPWR, or by a real-time signal.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    let needed = (needed.into_iter())
        .chain([libc::SIGPWR])
        .chain(libc::SIGRTMIN()..=libc::SIGRTMAX());
    for own in needed {
        // SAFETY: the set was filled above. An unknown signal is an error and changes nothing.
        unsafe { libc::sigdelset(signals.as_mut_ptr(), own) };
    }
    // SAFETY: the set is complete; only this thread's mask changes.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, signals.as_ptr(), std::ptr::null_mut()) };
}

/// Does nothing: Windows has no signal handlers of that kind.
#[cfg(windows)]
pub fn block_signals() {}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads the state as the begin of a call sees it.
    fn interrupts() -> bool {
        let _call = Call::begin();
        is_interrupting()
    }

    #[test]
    fn a_call_within_a_call_interrupts_it_unless_that_waits() {
        assert!(!interrupts());
        let outer = Call::begin();
        assert!(!is_interrupting());
        assert!(interrupts());
        interruptible(|| assert!(!interrupts()));
        assert!(interrupts());
        assert!(!std::thread::spawn(interrupts).join().unwrap());
        drop(outer);
        assert!(!interrupts());
    }
}
