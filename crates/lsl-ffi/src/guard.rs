//! The boundary that every call crosses: a panic becomes an error code, an error becomes a code and the
//! text of `lsl_last_error`. Spec: c-abi §3.

use std::cell::UnsafeCell;
use std::ffi::c_char;
use std::panic::{AssertUnwindSafe, catch_unwind};

use lsl_core::{Error, ErrorKind};
use lsl_platform::cancel::Uncancellable;
use lsl_platform::reentry::Call;
use lsl_platform::terminal::printable;

/// Codes of `lsl_error_code_t`, zero and negative.
pub(crate) mod code {
    pub(crate) const NONE: i32 = 0;
    pub(crate) const TIMEOUT: i32 = -1;
    pub(crate) const LOST: i32 = -2;
    pub(crate) const ARGUMENT: i32 = -3;
    pub(crate) const INTERNAL: i32 = -4;
}

/// Bytes of the error text with its NUL, as in liblsl.
const TEXT_BYTES: usize = 512;

thread_local! {
    /// Stays at one address as long as the thread lives: callers keep the pointer.
    static TEXT: UnsafeCell<[u8; TEXT_BYTES]> = const { UnsafeCell::new([0; TEXT_BYTES]) };
}

/// Runs a call's body. After a panic it returns `fallback`, and the panic's text becomes the last error.
/// Cancellation of the thread is delayed: unwinding here would end the process.
pub(crate) fn guard<R>(fallback: R, body: impl FnOnce() -> R) -> R {
    let _whole = Uncancellable::begin();
    let _call = Call::begin();
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(result) => result,
        Err(panic) => {
            let text = panic
                .downcast_ref::<&str>()
                .map(|text| (*text).to_owned())
                .or_else(|| panic.downcast_ref::<String>().cloned());
            set_last_error(&text.unwrap_or_else(|| "internal error".to_owned()));
            fallback
        }
    }
}

/// Returns the code of an error and records its text as the thread's last error.
pub(crate) fn fail(error: &Error) -> i32 {
    set_last_error(&error.to_string());
    match error.kind() {
        ErrorKind::Timeout => code::TIMEOUT,
        ErrorKind::Lost => code::LOST,
        ErrorKind::Argument => code::ARGUMENT,
        _ => code::INTERNAL,
    }
}

/// Records a text for `lsl_last_error`, cut at 511 bytes. Words of a peer in it are escaped (LSS/1 §10).
pub(crate) fn set_last_error(text: &str) {
    // The text ends where C would end it.
    let text = text
        .as_bytes()
        .split(|&byte| byte == 0)
        .next()
        .unwrap_or_default();
    let text = printable(text, TEXT_BYTES - 1);
    let text = text.as_bytes();
    let _ = TEXT.try_with(|buffer| {
        // SAFETY: the cell belongs to this thread, nothing else refers to it while this runs, and
        // pointers handed to C are only read between calls.
        let buffer = unsafe { &mut *buffer.get() };
        buffer[..text.len()].copy_from_slice(text);
        buffer[text.len()] = 0;
    });
}

/// Returns the thread's last error, NUL-terminated; the same address for the life of the thread.
pub(crate) fn last_error() -> *const c_char {
    TEXT.try_with(|buffer| buffer.get().cast::<c_char>().cast_const())
        .unwrap_or_else(|_| c"".as_ptr())
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;

    use super::*;

    fn text() -> String {
        // SAFETY: `last_error` gives a NUL-terminated text that this thread alone may change.
        let text = unsafe { CStr::from_ptr(last_error()) };
        text.to_str().unwrap().to_owned()
    }

    #[test]
    fn texts_are_kept_per_thread_and_cut() {
        assert_eq!(text(), "");
        set_last_error("first");
        assert_eq!(text(), "first");
        assert_eq!(std::thread::spawn(text).join().unwrap(), "");
        set_last_error(&"x".repeat(2000));
        assert_eq!(text().len(), 511);
        set_last_error("a\0b");
        assert_eq!(text(), "a");
    }

    #[test]
    fn a_panic_becomes_the_fallback() {
        let result = guard(code::INTERNAL, || panic!("expected by this test"));
        assert_eq!((result, text().as_str()), (-4, "expected by this test"));
    }

    #[test]
    fn kinds_become_codes() {
        assert_eq!(fail(&Error::Argument("a".into())), code::ARGUMENT);
        assert_eq!(fail(&Error::Timeout { operation: "info" }), code::TIMEOUT);
        assert_eq!(text(), "The info() operation timed out.");
    }
}
