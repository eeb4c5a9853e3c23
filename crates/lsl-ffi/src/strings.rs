//! Texts across the boundary: reading the caller's, and handing out `malloc`ed copies that `free` and
//! `lsl_destroy_string` release alike. Spec: c-abi §1 (heap contract), §11.

use std::ffi::{CStr, c_char};
use std::ptr;

/// Reads the caller's text without its NUL; `None` for NULL.
///
/// # Safety
/// `text` is NULL or a NUL-terminated text that stays unchanged while the result is used.
pub(crate) unsafe fn bytes<'a>(text: *const c_char) -> Option<&'a [u8]> {
    if text.is_null() {
        return None;
    }
    // SAFETY: not NULL, and the caller vouches for the rest.
    Some(unsafe { CStr::from_ptr(text) }.to_bytes())
}

/// Copies a text, NUL-terminated, into `malloc`ed memory for the caller of the library; NULL without
/// memory. A text may contain NULs: its length is passed apart then.
pub(crate) fn allocate(text: &[u8]) -> *mut c_char {
    // SAFETY: `malloc` may be called with any size.
    let copy = unsafe { libc::malloc(text.len() + 1) }.cast::<u8>();
    if copy.is_null() {
        return ptr::null_mut();
    }
    // SAFETY: `copy` has room for the text and does not overlap it, being new.
    unsafe { ptr::copy_nonoverlapping(text.as_ptr(), copy, text.len()) };
    // SAFETY: the last of the allocated bytes.
    let end = unsafe { copy.add(text.len()) };
    // SAFETY: it is writable, as all of them.
    unsafe { end.write(0) };
    copy.cast()
}

/// Releases a text of [`allocate`]; NULL is ignored.
///
/// # Safety
/// `text` is NULL or came from `malloc` and was not released yet.
pub(crate) unsafe fn release(text: *mut c_char) {
    // SAFETY: the caller vouches for it.
    unsafe { libc::free(text.cast()) };
}
