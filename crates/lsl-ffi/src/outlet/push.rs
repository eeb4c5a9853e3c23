//! Pushing numbers, and raw samples in the stream's own type. Spec: c-abi §7.2, §9.

use std::ffi::{c_char, c_ulong, c_void};

use lsl_core::{ChannelFormat, PushElement, Stamps};

use super::{OutletObject, find, pushthrough};
use crate::guard::{code, fail};
use crate::handle::Handle;
use crate::memory::{Outcome, elements, length, refuse, status};

/// Timestamps of a chunk as C passes them.
#[derive(Clone, Copy)]
pub(super) enum ChunkStamps {
    /// Timestamp of the last sample; 0.0 is now.
    Last(f64),
    /// One timestamp for each sample.
    Each(*const f64),
}

impl OutletObject {
    /// Returns the number of samples in `values` channel values; -4 if it is not whole.
    pub(super) fn samples_in(&self, values: usize) -> Outcome<usize> {
        if self.channels != 0 && values.is_multiple_of(self.channels) {
            return Ok(values / self.channels);
        }
        let text = format!(
            "The number of buffer elements to send ({values}) is not a multiple of the stream's \
             channel count ({}).",
            self.channels
        );
        Err(refuse(code::INTERNAL, &text))
    }

    /// Pushes one sample of checked length.
    pub(super) fn push_one<T: PushElement>(
        &self,
        values: &[T],
        timestamp: f64,
        through: i32,
    ) -> Outcome<()> {
        self.outlet
            .push_with(values, timestamp, pushthrough(through))
            .map_err(|error| fail(&error))
    }

    /// Pushes a chunk of whole samples.
    ///
    /// # Safety
    /// A pointer in `stamps` is NULL or points to one timestamp per sample.
    pub(super) unsafe fn push_many<T: PushElement>(
        &self,
        values: &[T],
        stamps: ChunkStamps,
        through: i32,
    ) -> Outcome<()> {
        let samples = self.samples_in(values.len())?;
        let each;
        let stamps = match stamps {
            ChunkStamps::Last(last) => Stamps::Last(last),
            ChunkStamps::Each(first) => {
                // SAFETY: the caller vouches for it.
                each = unsafe { elements(first, samples) }?;
                Stamps::Each(&each)
            }
        };
        self.outlet
            .push_chunk_with(values, stamps, pushthrough(through))
            .map_err(|error| fail(&error))
    }
}

/// # Safety
/// `data` is NULL or points to one value per channel.
unsafe fn push_sample<T: PushElement + Copy>(
    out: Handle,
    data: *const T,
    timestamp: f64,
    through: i32,
) -> i32 {
    status(|| {
        let object = find(out)?;
        // SAFETY: the caller vouches for it.
        let values = unsafe { elements(data, object.channels) }?;
        object.push_one(&values, timestamp, through)
    })
}

/// # Safety
/// `data` is NULL or points to `count` values, a pointer in `stamps` is NULL or points to one
/// timestamp per sample.
unsafe fn push_chunk<T: PushElement + Copy>(
    out: Handle,
    data: *const T,
    count: c_ulong,
    stamps: ChunkStamps,
    through: i32,
) -> i32 {
    status(|| {
        let object = find(out)?;
        let count = length(count)?;
        object.samples_in(count)?;
        // SAFETY: the caller vouches for it.
        let values = unsafe { elements(data, count) }?;
        // SAFETY: as above.
        unsafe { object.push_many(&values, stamps, through) }
    })
}

/// # Safety
/// `data` is NULL or points to one sample in the stream's own type.
unsafe fn push_raw(out: Handle, data: *const c_void, timestamp: f64, through: i32) -> i32 {
    status(|| {
        let object = find(out)?;
        match object.format {
            // SAFETY: the caller vouches for all of these: it is the type of the stream.
            ChannelFormat::Float32 => unsafe {
                push_raw_as::<f32>(&object, data, timestamp, through)
            },
            // SAFETY: as above.
            ChannelFormat::Double64 => unsafe {
                push_raw_as::<f64>(&object, data, timestamp, through)
            },
            // SAFETY: as above.
            ChannelFormat::Int64 => unsafe {
                push_raw_as::<i64>(&object, data, timestamp, through)
            },
            // SAFETY: as above.
            ChannelFormat::Int32 => unsafe {
                push_raw_as::<i32>(&object, data, timestamp, through)
            },
            // SAFETY: as above.
            ChannelFormat::Int16 => unsafe {
                push_raw_as::<i16>(&object, data, timestamp, through)
            },
            // SAFETY: as above.
            ChannelFormat::Int8 => unsafe { push_raw_as::<i8>(&object, data, timestamp, through) },
            // Samples of a stream without a format are empty, and no inlet reads them.
            ChannelFormat::Undefined => Ok(()),
            ChannelFormat::String => Err(refuse(
                code::ARGUMENT,
                "Cannot assign untyped data to a string-formatted sample.",
            )),
        }
    })
}

/// # Safety
/// `data` is NULL or points to one value per channel.
unsafe fn push_raw_as<T: PushElement + Copy>(
    object: &OutletObject,
    data: *const c_void,
    timestamp: f64,
    through: i32,
) -> Outcome<()> {
    // SAFETY: the caller vouches for it.
    let values = unsafe { elements(data.cast::<T>(), object.channels) }?;
    object.push_one(&values, timestamp, through)
}

/// Defines the push functions of one numeric type: three for samples, five for chunks. `$c` is the type in
/// the header, `$element` in Rust.
macro_rules! numeric_push {
    ($c:ty as $element:ty:
     $sample:ident $sample_t:ident $sample_tp:ident
     $chunk:ident $chunk_t:ident $chunk_tp:ident $chunk_tn:ident $chunk_tnp:ident) => {
        #[doc = concat!(
            "`", stringify!($sample), "`: pushes one sample of `", stringify!($element), "` (one ",
            "value per channel, converted to the stream's format), stamped now, sent at once. 0, or ",
            "an error code. Spec: c-abi §7.2, §9.\n\n# Safety\n`data` is NULL (-4) or points to one ",
            "value per channel."
        )]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $sample(out: Handle, data: *const $c) -> i32 {
            // SAFETY: the caller of this function vouches for it.
            unsafe { push_sample(out, data.cast::<$element>(), 0.0, 1) }
        }

        #[doc = concat!(
            "`", stringify!($sample_t), "`: as `", stringify!($sample), "` with the time it was ",
            "taken (0.0: now, -1.0: deduced by the reader). Spec: c-abi §7.2.\n\n# Safety\nAs `",
            stringify!($sample), "`."
        )]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $sample_t(out: Handle, data: *const $c, timestamp: f64) -> i32 {
            // SAFETY: the caller of this function vouches for it.
            unsafe { push_sample(out, data.cast::<$element>(), timestamp, 1) }
        }

        #[doc = concat!(
            "`", stringify!($sample_tp), "`: as `", stringify!($sample_t), "`; with `pushthrough` ",
            "0 it waits for a later push. Spec: c-abi §7.2.\n\n# Safety\nAs `",
            stringify!($sample), "`."
        )]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $sample_tp(
            out: Handle,
            data: *const $c,
            timestamp: f64,
            pushthrough: i32,
        ) -> i32 {
            // SAFETY: the caller of this function vouches for it.
            unsafe { push_sample(out, data.cast::<$element>(), timestamp, pushthrough) }
        }

        #[doc = concat!(
            "`", stringify!($chunk), "`: pushes a chunk of `", stringify!($element), "`, sample ",
            "after sample; `data_elements` counts channel values. The last sample is stamped now. 0, ",
            "or an error code (-4 for no whole number of samples). Spec: c-abi §7.2, §9.\n\n",
            "# Safety\n`data` is NULL (-4) or points to `data_elements` values."
        )]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $chunk(
            out: Handle,
            data: *const $c,
            data_elements: c_ulong,
        ) -> i32 {
            let stamps = ChunkStamps::Last(0.0);
            // SAFETY: the caller of this function vouches for it.
            unsafe { push_chunk(out, data.cast::<$element>(), data_elements, stamps, 1) }
        }

        #[doc = concat!(
            "`", stringify!($chunk_t), "`: as `", stringify!($chunk), "` with the time of the last ",
            "sample. Spec: c-abi §7.2.\n\n# Safety\nAs `", stringify!($chunk), "`."
        )]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $chunk_t(
            out: Handle,
            data: *const $c,
            data_elements: c_ulong,
            timestamp: f64,
        ) -> i32 {
            let stamps = ChunkStamps::Last(timestamp);
            // SAFETY: the caller of this function vouches for it.
            unsafe { push_chunk(out, data.cast::<$element>(), data_elements, stamps, 1) }
        }

        #[doc = concat!(
            "`", stringify!($chunk_tp), "`: as `", stringify!($chunk_t), "`; with `pushthrough` 0 ",
            "it waits for a later push. Spec: c-abi §7.2.\n\n# Safety\nAs `",
            stringify!($chunk), "`."
        )]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $chunk_tp(
            out: Handle,
            data: *const $c,
            data_elements: c_ulong,
            timestamp: f64,
            pushthrough: i32,
        ) -> i32 {
            let stamps = ChunkStamps::Last(timestamp);
            // SAFETY: the caller of this function vouches for it.
            unsafe { push_chunk(out, data.cast::<$element>(), data_elements, stamps, pushthrough) }
        }

        #[doc = concat!(
            "`", stringify!($chunk_tn), "`: as `", stringify!($chunk), "` with one timestamp for ",
            "each sample (-4 for NULL). Spec: c-abi §7.2.\n\n# Safety\nAs `", stringify!($chunk),
            "`, and `timestamps` is NULL or points to one for each sample."
        )]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $chunk_tn(
            out: Handle,
            data: *const $c,
            data_elements: c_ulong,
            timestamps: *const f64,
        ) -> i32 {
            let stamps = ChunkStamps::Each(timestamps);
            // SAFETY: the caller of this function vouches for it.
            unsafe { push_chunk(out, data.cast::<$element>(), data_elements, stamps, 1) }
        }

        #[doc = concat!(
            "`", stringify!($chunk_tnp), "`: as `", stringify!($chunk_tn), "`; with `pushthrough` ",
            "0 it waits for a later push. Spec: c-abi §7.2.\n\n# Safety\nAs `",
            stringify!($chunk_tn), "`."
        )]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $chunk_tnp(
            out: Handle,
            data: *const $c,
            data_elements: c_ulong,
            timestamps: *const f64,
            pushthrough: i32,
        ) -> i32 {
            let stamps = ChunkStamps::Each(timestamps);
            // SAFETY: the caller of this function vouches for it.
            unsafe { push_chunk(out, data.cast::<$element>(), data_elements, stamps, pushthrough) }
        }
    };
}

numeric_push!(f32 as f32:
    lsl_push_sample_f lsl_push_sample_ft lsl_push_sample_ftp
    lsl_push_chunk_f lsl_push_chunk_ft lsl_push_chunk_ftp lsl_push_chunk_ftn lsl_push_chunk_ftnp);
numeric_push!(f64 as f64:
    lsl_push_sample_d lsl_push_sample_dt lsl_push_sample_dtp
    lsl_push_chunk_d lsl_push_chunk_dt lsl_push_chunk_dtp lsl_push_chunk_dtn lsl_push_chunk_dtnp);
numeric_push!(i64 as i64:
    lsl_push_sample_l lsl_push_sample_lt lsl_push_sample_ltp
    lsl_push_chunk_l lsl_push_chunk_lt lsl_push_chunk_ltp lsl_push_chunk_ltn lsl_push_chunk_ltnp);
numeric_push!(i32 as i32:
    lsl_push_sample_i lsl_push_sample_it lsl_push_sample_itp
    lsl_push_chunk_i lsl_push_chunk_it lsl_push_chunk_itp lsl_push_chunk_itn lsl_push_chunk_itnp);
numeric_push!(i16 as i16:
    lsl_push_sample_s lsl_push_sample_st lsl_push_sample_stp
    lsl_push_chunk_s lsl_push_chunk_st lsl_push_chunk_stp lsl_push_chunk_stn lsl_push_chunk_stnp);
// `char` is a signed number here, whatever the platform's `char` is.
numeric_push!(c_char as i8:
    lsl_push_sample_c lsl_push_sample_ct lsl_push_sample_ctp
    lsl_push_chunk_c lsl_push_chunk_ct lsl_push_chunk_ctp lsl_push_chunk_ctn lsl_push_chunk_ctnp);

/// `lsl_push_sample_v`: pushes one sample of the stream's own type as it lies in memory, stamped
/// now, sent at once. -3 for string streams. Spec: c-abi §7.2.
///
/// # Safety
/// `data` is NULL (-4) or points to one value of the stream's format per channel.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lsl_push_sample_v(out: Handle, data: *const c_void) -> i32 {
    // SAFETY: the caller of this function vouches for it.
    unsafe { push_raw(out, data, 0.0, 1) }
}

/// `lsl_push_sample_vt`: as [`lsl_push_sample_v`] with the time it was taken. Spec: c-abi §7.2.
///
/// # Safety
/// As [`lsl_push_sample_v`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lsl_push_sample_vt(
    out: Handle,
    data: *const c_void,
    timestamp: f64,
) -> i32 {
    // SAFETY: the caller of this function vouches for it.
    unsafe { push_raw(out, data, timestamp, 1) }
}

/// `lsl_push_sample_vtp`: as [`lsl_push_sample_vt`]; with `pushthrough` 0 it waits for a later push.
/// Spec: c-abi §7.2.
///
/// # Safety
/// As [`lsl_push_sample_v`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lsl_push_sample_vtp(
    out: Handle,
    data: *const c_void,
    timestamp: f64,
    pushthrough: i32,
) -> i32 {
    // SAFETY: the caller of this function vouches for it.
    unsafe { push_raw(out, data, timestamp, pushthrough) }
}
