//! An event that a caller's event loop can wait for; see the Unix version.

use std::ffi::c_void;
use std::io;
use std::os::windows::io::{AsRawHandle as _, FromRawHandle as _, OwnedHandle};

use windows_sys::Win32::System::Threading::{CreateEventW, ResetEvent, SetEvent};

/// Whether a signal is a descriptor. Here it is not: one of the C library cannot be waited for.
pub const IS_DESCRIPTOR: bool = false;

/// A manual-reset event, set while the signal is raised.
#[derive(Debug)]
pub struct Signal(OwnedHandle);

impl Signal {
    /// Creates a signal that is not raised.
    ///
    /// # Errors
    /// No memory is left.
    pub fn new() -> io::Result<Self> {
        Ok(Self(event(Reset::Manual)?))
    }

    /// Returns -1: see [`IS_DESCRIPTOR`].
    pub fn descriptor(&self) -> i32 {
        -1
    }

    /// Returns the event for `WaitForMultipleObjects` and its like. It lives as long as the signal.
    pub fn handle(&self) -> *mut c_void {
        self.0.as_raw_handle()
    }

    /// Raises the signal, from any thread.
    #[expect(unsafe_code, reason = "std has no events")]
    pub fn raise(&self) {
        // SAFETY: the handle is open. Setting an event fails for other handles only.
        unsafe { SetEvent(self.handle()) };
    }

    /// Lowers the signal until it is raised again.
    #[expect(unsafe_code, reason = "std has no events")]
    pub fn clear(&self) {
        // SAFETY: as in `raise`.
        unsafe { ResetEvent(self.handle()) };
    }
}

/// Who resets an event: its owner, or the wait that it ends.
#[derive(Clone, Copy)]
pub(crate) enum Reset {
    Manual,
    Auto,
}

/// Makes an event that is not set.
#[expect(unsafe_code, reason = "std has no events")]
pub(crate) fn event(reset: Reset) -> io::Result<OwnedHandle> {
    let is_manual = i32::from(matches!(reset, Reset::Manual));
    let nothing = std::ptr::null();
    // SAFETY: an event without a name, and of the usual rights.
    let event = unsafe { CreateEventW(nothing, is_manual, 0, nothing.cast()) };
    if event.is_null() {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it was made above, and belongs to nobody else.
    Ok(unsafe { OwnedHandle::from_raw_handle(event) })
}

#[cfg(test)]
mod tests {
    use windows_sys::Win32::Foundation::{WAIT_OBJECT_0, WAIT_TIMEOUT};
    use windows_sys::Win32::System::Threading::WaitForSingleObject;

    use super::*;

    #[test]
    #[expect(unsafe_code, reason = "what C programs get is a handle")]
    fn set_from_raising_to_clearing() {
        let signal = Signal::new().unwrap();
        // SAFETY: `signal` outlives it.
        let wait = |millis| unsafe { WaitForSingleObject(signal.handle(), millis) };
        assert_eq!(wait(0), WAIT_TIMEOUT);
        signal.raise();
        signal.raise();
        for _ in 0..2 {
            assert_eq!(wait(10_000), WAIT_OBJECT_0);
        }
        signal.clear();
        assert_eq!(wait(0), WAIT_TIMEOUT);
    }
}
