//! The signal of a terminal that is gone. Whoever starts a program with `nohup` has it ignored, and that
//! must stay so whatever signals the program catches.

/// Does something that may catch the signal; if it was ignored before, it is afterwards.
#[cfg(unix)]
#[expect(
    unsafe_code,
    reason = "std and rustix know nothing of signals' dispositions"
)]
pub fn kept_ignored<T>(action: impl FnOnce() -> T) -> T {
    // SAFETY: it is a structure of numbers and null pointers.
    let mut before: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: only asks, and writes into that structure.
    unsafe {
        libc::sigaction(libc::SIGHUP, std::ptr::null(), &raw mut before);
    }
    let result = action();
    if before.sa_sigaction == libc::SIG_IGN {
        // SAFETY: to ignore a signal runs no code of ours.
        unsafe {
            libc::signal(libc::SIGHUP, libc::SIG_IGN);
        }
    }
    result
}

/// Does something; there is no such signal here.
#[cfg(not(unix))]
pub fn kept_ignored<T>(action: impl FnOnce() -> T) -> T {
    action()
}
