//! `pthread_cancel`: where a thread of the program may end inside a call of ours, and where not.
//!
//! Most calls of the C library are points at which a cancelled thread ends, which glibc does by unwinding
//! its stack. Rust permits that through frames alone that have nothing to drop, and anything else ends the
//! process. Windows, Android and Miri cancel no threads.

/// Keeps the calling thread from being cancelled for as long as it exists; what comes meanwhile waits.
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

    /// `PTHREAD_CANCEL_DISABLE`.
    const DISABLED: c_int = if cfg!(target_vendor = "apple") { 0 } else { 1 };

    impl Uncancellable {
        /// Begins such a time.
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
    /// Then no caller goes on: none has anything to drop, up to the C program, and the one that C calls is
    /// `extern "C-unwind"`.
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
        // SAFETY: the place is ours. A state that is none is an error and changes nothing.
        unsafe { pthread_setcancelstate(state, &raw mut before) };
        before
    }
}

#[cfg(not(all(unix, not(any(target_os = "android", miri)))))]
mod system {
    use super::Uncancellable;

    impl Uncancellable {
        /// Nothing is cancelled here.
        pub fn begin() -> Self {
            Self {}
        }
    }

    /// Nothing is cancelled here.
    ///
    /// # Safety
    /// That of the other systems.
    #[expect(unsafe_code, reason = "as on other systems")]
    pub unsafe fn end_if_cancelled() {}
}

pub use system::end_if_cancelled;
