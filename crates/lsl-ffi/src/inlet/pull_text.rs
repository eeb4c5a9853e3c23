//! Pulling text: NUL-terminated (`str`) and with lengths (`buf`). Every text is a `malloc`ed copy that
//! the caller releases; all are terminated, whatever their kind. Spec: c-abi §8.3, §8.4, §9.

use std::ffi::{c_char, c_ulong};
use std::ptr;

use super::find_for;
use crate::guard::code;
use crate::handle::Handle;
use crate::memory::{Outcome, behind, length, refuse, with_optional_slots, with_slots};
use crate::strings;
use crate::turns::{Progress, Turn, with_code_in_turns};

/// The caller's arrays for texts and their lengths.
#[derive(Clone, Copy)]
struct Slots {
    texts: *mut *mut c_char,
    /// NULL for functions without lengths.
    lengths: *mut u32,
    sized: bool,
}

impl Slots {
    fn terminated(texts: *mut *mut c_char) -> Self {
        Self {
            texts,
            lengths: ptr::null_mut(),
            sized: false,
        }
    }

    fn sized(texts: *mut *mut c_char, lengths: *mut u32) -> Self {
        Self {
            texts,
            lengths,
            sized: true,
        }
    }

    /// Returns the slots behind the first `count`.
    fn behind(self, count: usize) -> Self {
        Self {
            texts: behind(self.texts, count),
            lengths: behind(self.lengths, count),
            ..self
        }
    }

    /// Fails with -4 if an array is missing, before a sample is consumed.
    fn check(self) -> Outcome<()> {
        if self.texts.is_null() || (self.sized && self.lengths.is_null()) {
            return Err(refuse(code::INTERNAL, "an array is NULL"));
        }
        Ok(())
    }

    /// Fills `count` slots: copies of `texts`, then NULLs of length 0.
    ///
    /// # Safety
    /// Each array is NULL or has room for `count` entries that the call alone uses.
    unsafe fn fill(self, count: usize, texts: &[Vec<u8>]) -> Outcome<()> {
        let fill = |slots: &mut [*mut c_char]| {
            let (filled, rest) = slots.split_at_mut(texts.len());
            for (slot, text) in filled.iter_mut().zip(texts) {
                *slot = strings::allocate(text);
            }
            rest.fill(ptr::null_mut());
            Ok(())
        };
        // SAFETY: the caller vouches for it.
        unsafe { with_slots(self.texts, count, fill) }?;
        let fill = |slots: Option<&mut [u32]>| {
            let (filled, rest) = match slots {
                Some(slots) => slots.split_at_mut(texts.len()),
                None => return Ok(()),
            };
            for (slot, text) in filled.iter_mut().zip(texts) {
                *slot = u32::try_from(text.len()).unwrap_or(u32::MAX);
            }
            rest.fill(0);
            Ok(())
        };
        // SAFETY: as above.
        unsafe { with_optional_slots(self.lengths, count, fill) }
    }
}

/// Allocates room for `count` texts, without a heap block for each.
fn room(count: usize) -> Outcome<Vec<Vec<u8>>> {
    let mut texts = Vec::new();
    texts
        .try_reserve_exact(count)
        .map_err(|_| refuse(code::INTERNAL, "there is no memory for that many texts"))?;
    texts.resize_with(count, Vec::new);
    Ok(texts)
}

/// # Safety
/// The arrays of `slots` are NULL or have room for `count` entries that the call alone uses; `ec` is NULL
/// or may be written.
unsafe fn pull_sample(inlet: Handle, slots: Slots, count: i32, timeout: f64, ec: *mut i32) -> f64 {
    let body = |turn: Turn| {
        let object = find_for(inlet, turn)?;
        // Slots beyond the channels stay untouched.
        if usize::try_from(count).map_or(true, |count| count < object.channels) {
            let wanted = format!(
                "The number of buffer elements ({count}) is smaller than the stream's channel count \
                 ({}).",
                object.channels
            );
            return object.pull_mismatch(&wanted, turn);
        }
        slots.check()?;
        let mut texts = room(object.channels)?;
        let Some(timestamp) = object.try_one(&mut texts, turn)? else {
            return Ok(turn.nothing(0.0));
        };
        // SAFETY: the caller vouches for at least that many.
        unsafe { slots.fill(object.channels, &texts) }?;
        Ok(Progress::Break(timestamp))
    };
    // SAFETY: the caller vouches for `ec`.
    unsafe { with_code_in_turns(ec, 0.0, timeout, body) }
}

/// # Safety
/// The arrays of `slots` are NULL or have room for `count` entries, `timestamps` is NULL or has room for
/// `stamps`. The call alone uses them; `ec` is NULL or may be written.
unsafe fn pull_chunk(
    inlet: Handle,
    slots: Slots,
    timestamps: *mut f64,
    (count, stamps): (c_ulong, c_ulong),
    timeout: f64,
    ec: *mut i32,
) -> c_ulong {
    let body = |turn: Turn| {
        let object = find_for(inlet, turn)?;
        if count == 0 {
            return Ok(Progress::Break(0));
        }
        let count = length(count)?;
        let stamps = (!timestamps.is_null())
            .then(|| length(stamps))
            .transpose()?;
        let samples = object.samples_for(count, stamps)?;
        slots.check()?;
        let mut texts = room(count - turn.done)?;
        let timestamps = behind(timestamps, turn.done / object.channels);
        let samples = samples - turn.done / object.channels;
        let pull = |stamps: Option<&mut [f64]>| object.pull_many(&mut texts, stamps, turn);
        // SAFETY: the caller vouches for it, the count is that of the caller.
        let progress = unsafe { with_optional_slots(timestamps, samples, pull) }?;
        // Callers release every entry of the array: on success all slots are written in the end.
        let (values, written) = match progress {
            Progress::Break(values) => (values, count),
            Progress::Continue(values) => (values, values),
        };
        let slots = slots.behind(turn.done);
        // SAFETY: as above.
        unsafe { slots.fill(written - turn.done, &texts[..values - turn.done]) }?;
        Ok(progress)
    };
    // SAFETY: the caller vouches for `ec`.
    let values = unsafe { with_code_in_turns(ec, 0, timeout, body) };
    // It is at most the count asked for.
    c_ulong::try_from(values).unwrap_or(c_ulong::MAX)
}

/// `lsl_pull_sample_str`: pulls one sample as NUL-terminated texts, which the caller releases, waiting
/// up to `timeout` seconds. Returns its timestamp, or 0.0 with 0 in `*ec` and untouched slots if none
/// came. -2: the stream is lost; -3: fewer slots than channels (the sample is gone); -4: NULL.
/// Spec: c-abi §8.3, §9.
///
/// # Safety
/// `buffer` is NULL or has room for `buffer_elements` pointers; `ec` is NULL or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn lsl_pull_sample_str(
    inlet: Handle,
    buffer: *mut *mut c_char,
    buffer_elements: i32,
    timeout: f64,
    ec: *mut i32,
) -> f64 {
    // SAFETY: the caller of this function vouches for it.
    unsafe {
        pull_sample(
            inlet,
            Slots::terminated(buffer),
            buffer_elements,
            timeout,
            ec,
        )
    }
}

/// `lsl_pull_sample_buf`: as [`lsl_pull_sample_str`] with the lengths of the texts, which may contain
/// NULs. Spec: c-abi §8.3, §9.
///
/// # Safety
/// As [`lsl_pull_sample_str`], and `buffer_lengths` is NULL (-4) or has room for as many lengths.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn lsl_pull_sample_buf(
    inlet: Handle,
    buffer: *mut *mut c_char,
    buffer_lengths: *mut u32,
    buffer_elements: i32,
    timeout: f64,
    ec: *mut i32,
) -> f64 {
    let slots = Slots::sized(buffer, buffer_lengths);
    // SAFETY: the caller of this function vouches for it.
    unsafe { pull_sample(inlet, slots, buffer_elements, timeout, ec) }
}

/// `lsl_pull_chunk_str`: pulls samples as NUL-terminated texts until the buffer is full or `timeout`
/// seconds passed; with 0.0 it does not wait. Returns the number of texts. On success every slot is
/// written, those without a text with NULL; on error none. -2: the stream is lost; -4: no whole number of
/// samples, or another number of timestamps. Spec: c-abi §8.4, §9.
///
/// # Safety
/// `data_buffer` is NULL (-4) or has room for `data_buffer_elements` pointers, `timestamp_buffer` is
/// NULL or has room for `timestamp_buffer_elements`; `ec` is NULL or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn lsl_pull_chunk_str(
    inlet: Handle,
    data_buffer: *mut *mut c_char,
    timestamp_buffer: *mut f64,
    data_buffer_elements: c_ulong,
    timestamp_buffer_elements: c_ulong,
    timeout: f64,
    ec: *mut i32,
) -> c_ulong {
    let slots = Slots::terminated(data_buffer);
    let counts = (data_buffer_elements, timestamp_buffer_elements);
    // SAFETY: the caller of this function vouches for it.
    unsafe { pull_chunk(inlet, slots, timestamp_buffer, counts, timeout, ec) }
}

/// `lsl_pull_chunk_buf`: as [`lsl_pull_chunk_str`] with the lengths of the texts, which may contain
/// NULs. Spec: c-abi §8.4, §9.
///
/// # Safety
/// As [`lsl_pull_chunk_str`], and `lengths_buffer` is NULL (-4) or has room for as many lengths.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn lsl_pull_chunk_buf(
    inlet: Handle,
    data_buffer: *mut *mut c_char,
    lengths_buffer: *mut u32,
    timestamp_buffer: *mut f64,
    data_buffer_elements: c_ulong,
    timestamp_buffer_elements: c_ulong,
    timeout: f64,
    ec: *mut i32,
) -> c_ulong {
    let slots = Slots::sized(data_buffer, lengths_buffer);
    let counts = (data_buffer_elements, timestamp_buffer_elements);
    // SAFETY: the caller of this function vouches for it.
    unsafe { pull_chunk(inlet, slots, timestamp_buffer, counts, timeout, ec) }
}
