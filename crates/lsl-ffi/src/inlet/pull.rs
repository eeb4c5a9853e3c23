//! Pulling numbers, and raw samples in the stream's own type. Spec: c-abi §8.3, §8.4, §9.

use std::ffi::{c_char, c_ulong, c_void};

use lsl_core::{ChannelFormat, PullElement};

use super::{InletObject, find_for};
use crate::guard::code;
use crate::handle::Handle;
use crate::memory::{Outcome, behind, length, refuse, with_optional_slots, with_slots};
use crate::turns::{Progress, Turn, with_code_in_turns};

impl InletObject {
    /// Pulls one sample into exactly one slot per channel. Returns `None` if none came in time.
    pub(super) fn try_one<T: PullElement>(
        &self,
        slots: &mut [T],
        turn: Turn,
    ) -> Outcome<Option<f64>> {
        let pulled = (self.pulls(turn))
            .pull(slots, turn.timeout())
            .map_err(|error| self.fail(&error))?;
        if pulled.is_none() && turn.is_last {
            self.nothing_came();
        }
        Ok(pulled)
    }

    /// Pulls one sample; 0.0 stands for none, as in C. A sample stamped 0.0 looks the same.
    fn pull_one<T: PullElement>(&self, slots: &mut [T], turn: Turn) -> Outcome<Progress<f64>> {
        let pulled = self.try_one(slots, turn)?;
        Ok(pulled.map_or_else(|| turn.nothing(0.0), Progress::Break))
    }

    /// Pulls with a buffer of the wrong size. Waits as always; a sample that comes is consumed, and the
    /// call fails with -3. Without a sample it is no error.
    pub(super) fn pull_mismatch(&self, wanted: &str, turn: Turn) -> Outcome<Progress<f64>> {
        // The smallest type: the values are discarded.
        let mut nowhere = vec![0_i8; self.channels];
        match self.try_one(&mut nowhere, turn)? {
            None => Ok(turn.nothing(0.0)),
            Some(_) => Err(refuse(code::ARGUMENT, wanted)),
        }
    }

    /// Returns the number of samples that fit into a chunk's buffers; -4 if the sizes do not match.
    pub(super) fn samples_for(&self, values: usize, timestamps: Option<usize>) -> Outcome<usize> {
        let channels = self.channels;
        if channels == 0 || !values.is_multiple_of(channels) {
            let text = format!(
                "The number of buffer elements ({values}) must be a multiple of the stream's \
                 channel count ({channels})."
            );
            return Err(refuse(code::INTERNAL, &text));
        }
        let samples = values / channels;
        match timestamps {
            Some(stamps) if stamps != samples => {
                let text = format!(
                    "The timestamp buffer has room for {stamps} samples, the data buffer for \
                     {samples}."
                );
                Err(refuse(code::INTERNAL, &text))
            }
            _ => Ok(samples),
        }
    }

    /// Continues a chunk in the rest of buffers of checked sizes. Returns the number of channel values.
    pub(super) fn pull_many<T: PullElement>(
        &self,
        slots: &mut [T],
        timestamps: Option<&mut [f64]>,
        turn: Turn,
    ) -> Outcome<Progress<usize>> {
        let samples = match (self.pulls(turn)).pull_chunk(slots, timestamps, turn.timeout()) {
            Ok(samples) => samples,
            // Samples come first: the next call reports the same error.
            Err(_) if turn.done > 0 => return Ok(Progress::Break(turn.done)),
            Err(error) => return Err(self.fail(&error)),
        };
        let done = turn.done + samples * self.channels;
        if done == 0 && turn.is_last {
            self.nothing_came();
        }
        let is_over = turn.is_last || samples * self.channels == slots.len();
        Ok(if is_over {
            Progress::Break(done)
        } else {
            Progress::Continue(done)
        })
    }
}

/// # Safety
/// `buffer` is NULL or points to room for `count` values that the call alone uses; `ec` is NULL or may be
/// written.
unsafe fn pull_sample<T: PullElement + Copy>(
    inlet: Handle,
    buffer: *mut T,
    count: i32,
    timeout: f64,
    ec: *mut i32,
) -> f64 {
    let body = |turn: Turn| {
        let object = find_for(inlet, turn)?;
        if usize::try_from(count) != Ok(object.channels) {
            let wanted = format!(
                "The number of buffer elements ({count}) does not match the stream's channel count \
                 ({}).",
                object.channels
            );
            return object.pull_mismatch(&wanted, turn);
        }
        let pull = |slots: &mut [T]| object.pull_one(slots, turn);
        // SAFETY: the caller vouches for it, the count is that of the caller.
        unsafe { with_slots(buffer, object.channels, pull) }
    };
    // SAFETY: the caller vouches for `ec`.
    unsafe { with_code_in_turns(ec, 0.0, timeout, body) }
}

/// # Safety
/// `data` is NULL or points to room for `count` values, `timestamps` is NULL or points to room for
/// `stamps`. The call alone uses them; `ec` is NULL or may be written.
unsafe fn pull_chunk<T: PullElement + Copy>(
    inlet: Handle,
    data: *mut T,
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
        let timestamps = behind(timestamps, turn.done / object.channels);
        let samples = samples - turn.done / object.channels;
        let pull = |slots: &mut [T]| {
            let pull = |stamps: Option<&mut [f64]>| object.pull_many(slots, stamps, turn);
            // SAFETY: the caller vouches for it, the count is that of the caller.
            unsafe { with_optional_slots(timestamps, samples, pull) }
        };
        // SAFETY: as above.
        unsafe { with_slots(behind(data, turn.done), count - turn.done, pull) }
    };
    // SAFETY: the caller vouches for `ec`.
    let values = unsafe { with_code_in_turns(ec, 0, timeout, body) };
    // It is at most the count asked for.
    c_ulong::try_from(values).unwrap_or(c_ulong::MAX)
}

/// Defines the pull functions of one numeric type. `$c` is the type in the header, `$element` in Rust.
macro_rules! numeric_pull {
    ($c:ty as $element:ty: $sample:ident $chunk:ident) => {
        #[doc = concat!(
            "`", stringify!($sample), "`: pulls one sample, converted to `", stringify!($element),
            "`, waiting up to `timeout` seconds. Returns its timestamp, or 0.0 with 0 in `*ec` and an ",
            "untouched buffer if none came. -2: the stream is lost; -3: `buffer_elements` is not the ",
            "number of channels (the sample is gone); -4: NULL. Spec: c-abi §8.3, §9.\n\n# Safety\n",
            "`buffer` is NULL or has room for `buffer_elements` values; `ec` is NULL or may be written."
        )]
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $sample(
            inlet: Handle,
            buffer: *mut $c,
            buffer_elements: i32,
            timeout: f64,
            ec: *mut i32,
        ) -> f64 {
            let buffer = buffer.cast::<$element>();
            // SAFETY: the caller of this function vouches for it.
            unsafe { pull_sample(inlet, buffer, buffer_elements, timeout, ec) }
        }

        #[doc = concat!(
            "`", stringify!($chunk), "`: pulls samples, converted to `", stringify!($element), "`, ",
            "until `data_buffer` is full or `timeout` seconds passed; with 0.0 what is there. Returns ",
            "the number of channel values. -2: the stream is lost; -4: no whole number of samples, or ",
            "another number of timestamps. Spec: c-abi §8.4, §9.\n\n# Safety\n`data_buffer` is NULL ",
            "(-4) or has room for `data_buffer_elements` values, `timestamp_buffer` is NULL or has ",
            "room for `timestamp_buffer_elements`; `ec` is NULL or may be written."
        )]
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $chunk(
            inlet: Handle,
            data_buffer: *mut $c,
            timestamp_buffer: *mut f64,
            data_buffer_elements: c_ulong,
            timestamp_buffer_elements: c_ulong,
            timeout: f64,
            ec: *mut i32,
        ) -> c_ulong {
            let data = data_buffer.cast::<$element>();
            let counts = (data_buffer_elements, timestamp_buffer_elements);
            // SAFETY: the caller of this function vouches for it.
            unsafe { pull_chunk(inlet, data, timestamp_buffer, counts, timeout, ec) }
        }
    };
}

numeric_pull!(f32 as f32: lsl_pull_sample_f lsl_pull_chunk_f);
numeric_pull!(f64 as f64: lsl_pull_sample_d lsl_pull_chunk_d);
numeric_pull!(i64 as i64: lsl_pull_sample_l lsl_pull_chunk_l);
numeric_pull!(i32 as i32: lsl_pull_sample_i lsl_pull_chunk_i);
numeric_pull!(i16 as i16: lsl_pull_sample_s lsl_pull_chunk_s);
// `char` is a signed number here, whatever the platform's `char` is.
numeric_pull!(c_char as i8: lsl_pull_sample_c lsl_pull_chunk_c);

/// `lsl_pull_sample_v`: pulls one sample in the stream's own type. -3 if `buffer_bytes` is not its
/// size, and for string streams. Otherwise as [`lsl_pull_sample_f`]. Spec: c-abi §8.3.
///
/// # Safety
/// `buffer` is NULL or has room for `buffer_bytes` bytes; `ec` is NULL or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn lsl_pull_sample_v(
    inlet: Handle,
    buffer: *mut c_void,
    buffer_bytes: i32,
    timeout: f64,
    ec: *mut i32,
) -> f64 {
    let body = |turn: Turn| {
        let object = find_for(inlet, turn)?;
        if object.format == ChannelFormat::String {
            let text = "Cannot retrieve untyped data from a string-formatted sample.";
            return Err(refuse(code::ARGUMENT, text));
        }
        let bytes = object.channels.checked_mul(object.format.value_size());
        if usize::try_from(buffer_bytes).ok() != bytes {
            let wanted = "The size of the buffer does not match the size of a sample.";
            return object.pull_mismatch(wanted, turn);
        }
        // SAFETY: the caller vouches for room of that many bytes, just compared.
        unsafe { pull_raw(&object, buffer, turn) }
    };
    // SAFETY: the caller vouches for `ec`.
    unsafe { with_code_in_turns(ec, 0.0, timeout, body) }
}

/// # Safety
/// `buffer` is NULL or has room for one sample in the stream's own type.
unsafe fn pull_raw(
    object: &InletObject,
    buffer: *mut c_void,
    turn: Turn,
) -> Outcome<Progress<f64>> {
    match object.format {
        // SAFETY: the caller vouches for all of these: it is the type of the stream.
        ChannelFormat::Float32 => unsafe { pull_raw_as::<f32>(object, buffer, turn) },
        // SAFETY: as above.
        ChannelFormat::Double64 => unsafe { pull_raw_as::<f64>(object, buffer, turn) },
        // SAFETY: as above.
        ChannelFormat::Int64 => unsafe { pull_raw_as::<i64>(object, buffer, turn) },
        // SAFETY: as above.
        ChannelFormat::Int32 => unsafe { pull_raw_as::<i32>(object, buffer, turn) },
        // SAFETY: as above.
        ChannelFormat::Int16 => unsafe { pull_raw_as::<i16>(object, buffer, turn) },
        // SAFETY: as above.
        ChannelFormat::Int8 => unsafe { pull_raw_as::<i8>(object, buffer, turn) },
        ChannelFormat::Undefined | ChannelFormat::String => {
            Err(refuse(code::ARGUMENT, "this stream has no raw samples"))
        }
    }
}

/// # Safety
/// `buffer` is NULL or has room for one value per channel.
unsafe fn pull_raw_as<T: PullElement + Copy>(
    object: &InletObject,
    buffer: *mut c_void,
    turn: Turn,
) -> Outcome<Progress<f64>> {
    let pull = |slots: &mut [T]| object.pull_one(slots, turn);
    // SAFETY: the caller vouches for it.
    unsafe { with_slots(buffer.cast::<T>(), object.channels, pull) }
}
