//! `pthread_cancel`: points inside the library's calls at which a thread of the program may end.
//!
//! Most calls of the C library are points at which a cancelled thread ends, which glibc does by unwinding
//! its stack. Rust permits that through frames alone that have nothing to drop, and anything else ends the
//! process. Windows, Android and Miri cancel no threads.

/// Guard that keeps the calling thread from being cancelled; requests wait until it is dropped.
#[derive(Debug)]
pub struct Uncancellable {
    #[cfg(all(unix, not(any(target_os = "android", miri))))]
    before: std::ffi::c_int,
}

#[cfg(all(unix, not(any(target_os = "android", miri))))]
mod system {
    use std::ffi::c_int;

    use super::Uncancellable;

    #[expect(unsafe_code, reason = "the crate libc has neither of them")]
    unsafe extern "C-unwind" {
        fn pthread_testcancel();
        fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
    }

    /// Value of `PTHREAD_CANCEL_DISABLE` on this system.
    const DISABLED: c_int = if cfg!(target_vendor = "apple") { 0 } else { 1 };

    impl Uncancellable {
        /// Disables cancellation until the guard is dropped.
        #[inline]
        pub fn begin() -> Self {
            Self {
                before: set(DISABLED),
            }
        }
    }

    impl Drop for Uncancellable {
        #[inline]
        fn drop(&mut self) {
            set(self.before);
        }
    }

    /// Ends the calling thread if it was cancelled and may end.
    ///
    /// # Safety
    /// The call may unwind all its callers up to the C program. They have nothing to drop, and the function
    /// that C calls is `extern "C-unwind"`.
    #[inline]
    #[expect(unsafe_code, reason = "std has no cancellation")]
    pub unsafe fn end_if_cancelled() {
        // SAFETY: it takes nothing, and the caller vouches for what it unwinds.
        unsafe { pthread_testcancel() };
    }

    #[inline]
    #[expect(unsafe_code, reason = "std has no cancellation")]
    fn set(state: c_int) -> c_int {
        let mut before = DISABLED;
        // SAFETY: the place is ours. An invalid state is an error and changes nothing.
        unsafe { pthread_setcancelstate(state, &raw mut before) };
        before
    }
}

#[cfg(not(all(unix, not(any(target_os = "android", miri)))))]
mod system {
    use super::Uncancellable;

    impl Uncancellable {
        /// Does nothing: this system cancels no threads.
        pub fn begin() -> Self {
            Self {}
        }
    }

    /// Does nothing: this system cancels no threads.
    ///
    /// # Safety
    /// As on the other systems.
    #[expect(unsafe_code, reason = "as on other systems")]
    pub unsafe fn end_if_cancelled() {}
}

pub use system::end_if_cancelled;
