//! Memory of the caller: arrays read and filled in place, and results stored through pointers. Also the two
//! shapes of calls: a status code, or a result with an error code beside it.
//!
//! C programs on x86-64 may pass packed, hence misaligned, arrays: those are copied, all others are used in
//! place. Spec: c-abi §3.

use std::borrow::Cow;
use std::ffi::c_ulong;
use std::ptr;

use crate::guard::{code, guard, set_last_error};

/// Result of a call's body. The error is the code for C, whose text was recorded already.
pub(crate) type Outcome<T> = Result<T, i32>;

/// Records the text of a refusal for `lsl_last_error` and returns its code.
pub(crate) fn refuse(code: i32, text: &str) -> i32 {
    set_last_error(text);
    code
}

/// Runs a call that returns 0 or an error code.
pub(crate) fn status(body: impl FnOnce() -> Outcome<()>) -> i32 {
    match guard(Err(code::INTERNAL), body) {
        Ok(()) => code::NONE,
        Err(code) => code,
    }
}

/// Runs a call that returns a value, or `fallback` with an error code in `*ec`. `*ec` is always stored
/// first: some callers pass an uninitialised variable and test it. Spec: c-abi §3.1.
///
/// # Safety
/// `ec` is NULL or may be written.
pub(crate) unsafe fn with_code<R>(
    ec: *mut i32,
    fallback: R,
    body: impl FnOnce() -> Outcome<R>,
) -> R {
    // SAFETY: the caller vouches for `ec`.
    unsafe { store(ec, code::NONE) };
    match guard(Err(code::INTERNAL), body) {
        Ok(result) => result,
        Err(code) => {
            // SAFETY: as above.
            unsafe { store(ec, code) };
            fallback
        }
    }
}

/// Stores a result unless `place` is NULL.
///
/// # Safety
/// `place` is NULL or may be written.
pub(crate) unsafe fn store<T>(place: *mut T, value: T) {
    if !place.is_null() {
        // SAFETY: not NULL, and the caller vouches for the rest; alignment does not matter.
        unsafe { place.write_unaligned(value) };
    }
}

/// Reads the caller's array of `count` values; -4 if it is NULL.
///
/// # Safety
/// `data` is NULL or points to `count` initialised values that stay unchanged while the result is
/// used.
pub(crate) unsafe fn elements<'a, T: Copy>(data: *const T, count: usize) -> Outcome<Cow<'a, [T]>> {
    check_array(data, count)?;
    if count == 0 {
        return Ok(Cow::Borrowed(&[]));
    }
    if data.is_aligned() {
        // SAFETY: not NULL, aligned, no longer than memory can be; the caller vouches for the rest.
        return Ok(Cow::Borrowed(unsafe {
            std::slice::from_raw_parts(data, count)
        }));
    }
    // SAFETY: the caller vouches for it.
    Ok(Cow::Owned(unsafe { copied(data, count) }))
}

/// Lets `body` fill the caller's array of `count` values; -4 if it is NULL.
///
/// # Safety
/// `data` is NULL or points to room for `count` values that the call alone uses. Every bit pattern is a
/// value of `T`, so that the room may be uninitialised for C.
pub(crate) unsafe fn with_slots<T: Copy, R>(
    data: *mut T,
    count: usize,
    body: impl FnOnce(&mut [T]) -> Outcome<R>,
) -> Outcome<R> {
    check_array(data, count)?;
    if count == 0 {
        return body(&mut []);
    }
    if data.is_aligned() {
        // SAFETY: not NULL, aligned, no longer than memory can be; the caller vouches for the rest.
        return body(unsafe { std::slice::from_raw_parts_mut(data, count) });
    }
    // SAFETY: the caller vouches for it.
    let mut slots = unsafe { copied(data, count) };
    let result = body(&mut slots);
    // SAFETY: as above; a vector of our own does not overlap it.
    unsafe {
        ptr::copy_nonoverlapping(
            slots.as_ptr().cast::<u8>(),
            data.cast(),
            size_of_val(&*slots),
        );
    };
    result
}

/// Lets `body` fill an array as [`with_slots`] does; a NULL array is allowed.
///
/// # Safety
/// As [`with_slots`].
pub(crate) unsafe fn with_optional_slots<T: Copy, R>(
    data: *mut T,
    count: usize,
    body: impl FnOnce(Option<&mut [T]>) -> Outcome<R>,
) -> Outcome<R> {
    if data.is_null() {
        return body(None);
    }
    // SAFETY: the caller vouches for it.
    unsafe { with_slots(data, count, |slots| body(Some(slots))) }
}

/// Returns the caller's array behind its first `count` values; NULL for NULL.
pub(crate) fn behind<T>(data: *mut T, count: usize) -> *mut T {
    if data.is_null() {
        data
    } else {
        data.wrapping_add(count)
    }
}

/// Converts a count of the C ABI to a length; -4 if it is too large.
pub(crate) fn length(count: c_ulong) -> Outcome<usize> {
    usize::try_from(count).map_err(|_| refuse(code::INTERNAL, "the count is too large"))
}

/// # Safety
/// `data` points to `count` values; it need not be aligned.
unsafe fn copied<T: Copy>(data: *const T, count: usize) -> Vec<T> {
    let mut copy = Vec::<T>::with_capacity(count);
    let bytes = count * size_of::<T>();
    // SAFETY: the caller vouches for the source; the new vector has room and does not overlap it.
    unsafe { ptr::copy_nonoverlapping(data.cast::<u8>(), copy.as_mut_ptr().cast(), bytes) };
    // SAFETY: that many were just written.
    unsafe { copy.set_len(count) };
    copy
}

fn check_array<T>(data: *const T, count: usize) -> Outcome<()> {
    let fits = count
        .checked_mul(size_of::<T>())
        .is_some_and(|bytes| isize::try_from(bytes).is_ok());
    match (data.is_null(), fits) {
        (true, _) => Err(refuse(code::INTERNAL, "an array is NULL")),
        (_, false) => Err(refuse(code::INTERNAL, "an array is longer than memory")),
        (false, true) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::c_void;

    use super::*;

    #[test]
    fn arrays_are_used_in_place_or_copied_when_misaligned() {
        let values = [1_i32, 2, 3];
        // SAFETY: an array of three.
        let read = unsafe { elements(values.as_ptr(), 3) }.unwrap();
        assert!(matches!(read, Cow::Borrowed([1, 2, 3])));

        let mut packed = [0_u8; 9];
        packed[1..5].copy_from_slice(&7_i32.to_ne_bytes());
        let odd: *mut i32 = packed[1..].as_mut_ptr().cast::<c_void>().cast();
        // SAFETY: eight bytes follow.
        let read = unsafe { elements(odd.cast_const(), 2) }.unwrap();
        assert_eq!(*read, [7, 0]);
        let fill = |slots: &mut [i32]| {
            slots[1] = -1;
            Ok(())
        };
        // SAFETY: eight bytes follow, used by nobody else.
        unsafe { with_slots(odd, 2, fill) }.unwrap();
        assert_eq!(packed[1..5], 7_i32.to_ne_bytes());
        assert_eq!(packed[5..], [0xff; 4]);
    }

    #[test]
    fn null_and_impossible_arrays_are_internal_errors() {
        for (data, count) in [(ptr::null(), 0), (ptr::null(), 1)] {
            // SAFETY: NULL is refused.
            let read = unsafe { elements::<f64>(data, count) };
            assert_eq!(read, Err(code::INTERNAL));
        }
        // SAFETY: refused before anything is read.
        let read = unsafe { elements(&raw const IMPOSSIBLE, usize::MAX / 4) };
        assert_eq!(read, Err(code::INTERNAL));
    }

    static IMPOSSIBLE: f64 = 0.0;
}
