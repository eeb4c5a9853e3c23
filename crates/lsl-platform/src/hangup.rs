//! SIGHUP, the signal of a closed terminal. `nohup` starts programs with it ignored, and it must stay
//! ignored whatever signals the program catches.

/// Runs `action`, which may catch SIGHUP, and restores the signal's ignored state if it had been ignored.
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

/// Runs `action`: this system has no SIGHUP.
#[cfg(not(unix))]
pub fn kept_ignored<T>(action: impl FnOnce() -> T) -> T {
    action()
}
