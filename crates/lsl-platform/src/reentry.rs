//! Whether a call interrupts another one of the same thread, as in a signal handler. What it interrupts
//! may hold any lock, which then never opens.

use std::cell::Cell;

thread_local! {
    /// Calls that the thread is in. Without a destructor, so that there is one at any time.
    static CALLS: Cell<u32> = const { Cell::new(0) };
}

/// Counts a call of this thread for as long as it exists.
#[derive(Debug)]
pub struct Call {
    before: u32,
}

impl Call {
    /// Begins a call.
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

/// Whether the innermost call of this thread interrupts another one.
pub fn is_interrupting() -> bool {
    CALLS.get() > 1
}

/// Runs a part of a call that others may interrupt: foreign code, or a wait without any lock that they
/// need.
pub fn interruptible<R>(part: impl FnOnce() -> R) -> R {
    let _call = Call {
        before: CALLS.replace(0),
    };
    part()
}

/// Keeps the program's signal handlers off this thread, which is the library's own: a handler that called
/// the library there would wait for locks that the thread holds. Not those that a thread raises itself
/// by what it does, nor those of profilers and of garbage collectors, which suspend threads by signals.
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

/// There are no signal handlers of that kind on Windows.
#[cfg(windows)]
pub fn block_signals() {}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the begin of a call sees it.
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
