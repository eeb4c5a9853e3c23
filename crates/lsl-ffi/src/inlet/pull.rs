//! Pulling numbers, and raw samples in the stream's own type. Spec: c-abi §8.3, §8.4, §9.

use std::ffi::{c_char, c_ulong, c_void};

use lsl_core::{ChannelFormat, PullElement, Timeout};

use super::{InletObject, find};
use crate::guard::code;
use crate::handle::Handle;
use crate::memory::{Outcome, length, refuse, with_code, with_optional_slots, with_slots};

impl InletObject {
    /// Pulls one sample into exactly one slot per channel; `None` if none came in time.
    pub(super) fn try_one<T: PullElement>(
        &self,
        slots: &mut [T],
        timeout: f64,
    ) -> Outcome<Option<f64>> {
        let pulling = self.inlet.blocking();
        let pulled = pulling
            .pull(slots, Timeout::from_secs(timeout))
            .map_err(|error| self.fail(&error))?;
        if pulled.is_none() {
            self.nothing_came();
        }
        Ok(pulled)
    }

    /// The same with 0.0 for none, as C has it: a sample stamped 0.0 looks the same.
    fn pull_one<T: PullElement>(&self, slots: &mut [T], timeout: f64) -> Outcome<f64> {
        Ok(self.try_one(slots, timeout)?.unwrap_or(0.0))
    }

    /// What a pull into a buffer of the wrong size does: waits as always, and if a sample comes, takes
    /// it and fails with -3. Without a sample it is no error.
    pub(super) fn pull_mismatch(&self, wanted: &str, timeout: f64) -> Outcome<f64> {
        // The smallest type: the values go nowhere.
        let mut nowhere = vec![0_i8; self.channels];
        match self.try_one(&mut nowhere, timeout)? {
            None => Ok(0.0),
            Some(_) => Err(refuse(code::ARGUMENT, wanted)),
        }
    }

    /// Checks the sizes of a chunk's buffers and gives the number of samples that fit; -4 otherwise.
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

    /// Pulls a chunk into buffers of checked sizes; the number of channel values.
    pub(super) fn pull_many<T: PullElement>(
        &self,
        slots: &mut [T],
        timestamps: Option<&mut [f64]>,
        timeout: f64,
    ) -> Outcome<usize> {
        let samples = self
            .inlet
            .blocking()
            .pull_chunk(slots, timestamps, Timeout::from_secs(timeout))
            .map_err(|error| self.fail(&error))?;
        if samples == 0 {
            self.nothing_came();
        }
        Ok(samples * self.channels)
    }
}

/// # Safety
/// `buffer` is NULL or points to room for `count` values that nobody else uses during the call; `ec`
/// is NULL or may be written.
unsafe fn pull_sample<T: PullElement + Copy>(
    inlet: Handle,
    buffer: *mut T,
    count: i32,
    timeout: f64,
    ec: *mut i32,
) -> f64 {
    let body = || {
        let object = find(inlet)?;
        if usize::try_from(count) != Ok(object.channels) {
            let wanted = format!(
                "The number of buffer elements ({count}) does not match the stream's channel count \
                 ({}).",
                object.channels
            );
            return object.pull_mismatch(&wanted, timeout);
        }
        let pull = |slots: &mut [T]| object.pull_one(slots, timeout);
        // SAFETY: the caller vouches for it, the count is that of the caller.
        unsafe { with_slots(buffer, object.channels, pull) }
    };
    // SAFETY: the caller vouches for `ec`.
    unsafe { with_code(ec, 0.0, body) }
}

/// # Safety
/// `data` is NULL or points to room for `count` values, `timestamps` is NULL or points to room for
/// `stamps`, and nobody else uses them during the call; `ec` is NULL or may be written.
unsafe fn pull_chunk<T: PullElement + Copy>(
    inlet: Handle,
    data: *mut T,
    timestamps: *mut f64,
    (count, stamps): (c_ulong, c_ulong),
    timeout: f64,
    ec: *mut i32,
) -> c_ulong {
    let body = || {
        let object = find(inlet)?;
        if count == 0 {
            return Ok(0);
        }
        let count = length(count)?;
        let stamps = (!timestamps.is_null())
            .then(|| length(stamps))
            .transpose()?;
        let samples = object.samples_for(count, stamps)?;
        let pull = |slots: &mut [T]| {
            let pull = |stamps: Option<&mut [f64]>| object.pull_many(slots, stamps, timeout);
            // SAFETY: the caller vouches for it, the count is that of the caller.
            unsafe { with_optional_slots(timestamps, samples, pull) }
        };
        // SAFETY: as above.
        unsafe { with_slots(data, count, pull) }
    };
    // SAFETY: the caller vouches for `ec`.
    let values = unsafe { with_code(ec, 0, body) };
    // No more than was asked for.
    c_ulong::try_from(values).unwrap_or(c_ulong::MAX)
}

/// The pull functions of one numeric type. `$c` is what the header says, `$element` what it is.
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
        pub unsafe extern "C" fn $sample(
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
        pub unsafe extern "C" fn $chunk(
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
pub unsafe extern "C" fn lsl_pull_sample_v(
    inlet: Handle,
    buffer: *mut c_void,
    buffer_bytes: i32,
    timeout: f64,
    ec: *mut i32,
) -> f64 {
    let body = || {
        let object = find(inlet)?;
        if object.format == ChannelFormat::String {
            let text = "Cannot retrieve untyped data from a string-formatted sample.";
            return Err(refuse(code::ARGUMENT, text));
        }
        let bytes = object.channels.checked_mul(object.format.value_size());
        if usize::try_from(buffer_bytes).ok() != bytes {
            let wanted = "The size of the buffer does not match the size of a sample.";
            return object.pull_mismatch(wanted, timeout);
        }
        // SAFETY: the caller vouches for room of that many bytes, just compared.
        unsafe { pull_raw(&object, buffer, timeout) }
    };
    // SAFETY: the caller vouches for `ec`.
    unsafe { with_code(ec, 0.0, body) }
}

/// # Safety
/// `buffer` is NULL or has room for one sample in the stream's own type.
unsafe fn pull_raw(object: &InletObject, buffer: *mut c_void, timeout: f64) -> Outcome<f64> {
    match object.format {
        // SAFETY: the caller vouches for all of these: it is the type of the stream.
        ChannelFormat::Float32 => unsafe { pull_raw_as::<f32>(object, buffer, timeout) },
        // SAFETY: as above.
        ChannelFormat::Double64 => unsafe { pull_raw_as::<f64>(object, buffer, timeout) },
        // SAFETY: as above.
        ChannelFormat::Int64 => unsafe { pull_raw_as::<i64>(object, buffer, timeout) },
        // SAFETY: as above.
        ChannelFormat::Int32 => unsafe { pull_raw_as::<i32>(object, buffer, timeout) },
        // SAFETY: as above.
        ChannelFormat::Int16 => unsafe { pull_raw_as::<i16>(object, buffer, timeout) },
        // SAFETY: as above.
        ChannelFormat::Int8 => unsafe { pull_raw_as::<i8>(object, buffer, timeout) },
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
    timeout: f64,
) -> Outcome<f64> {
    let pull = |slots: &mut [T]| object.pull_one(slots, timeout);
    // SAFETY: the caller vouches for it.
    unsafe { with_slots(buffer.cast::<T>(), object.channels, pull) }
}
