//! Pushing text: NUL-terminated (`str`) and with lengths (`buf`). Spec: c-abi §7.2, §9.4, §9.5.

use std::ffi::{c_char, c_ulong};

use super::find;
use super::push::ChunkStamps;
use crate::guard::code;
use crate::handle::Handle;
use crate::memory::{Outcome, elements, length, refuse, status};
use crate::strings;

/// The caller's arrays of texts.
#[derive(Clone, Copy)]
enum Texts {
    /// Texts that end with a NUL.
    Terminated(*const *const c_char),
    /// Texts with an array of lengths.
    Sized(*const *const c_char, *const u32),
}

impl Texts {
    /// Reads the caller's `count` texts. -4 for NULL, except for a text without bytes in a sized array.
    ///
    /// # Safety
    /// The arrays are NULL or have `count` entries, each NULL or a text as the variant says, which
    /// stay unchanged while the result is used.
    unsafe fn read<'a>(self, count: usize) -> Outcome<Vec<&'a [u8]>> {
        match self {
            Self::Terminated(texts) => {
                // SAFETY: the caller vouches for it.
                let texts = unsafe { elements(texts, count) }?;
                let read = texts.iter().map(|&text| {
                    // SAFETY: as above.
                    unsafe { strings::bytes(text) }.ok_or_else(null_text)
                });
                read.collect()
            }
            Self::Sized(texts, lengths) => {
                // SAFETY: the caller vouches for it.
                let texts = unsafe { elements(texts, count) }?;
                // SAFETY: as above.
                let lengths = unsafe { elements(lengths, count) }?;
                let read = texts.iter().zip(lengths.iter()).map(|(&text, &length)| {
                    // SAFETY: as above.
                    unsafe { sized(text, length) }
                });
                read.collect()
            }
        }
    }
}

/// # Safety
/// `text` is NULL or points to `length` bytes that stay unchanged while the result is used.
unsafe fn sized<'a>(text: *const c_char, length: u32) -> Outcome<&'a [u8]> {
    match (text.is_null(), length) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(null_text()),
        (false, length) => {
            // SAFETY: not NULL, and the caller vouches for the rest; bytes need no alignment.
            Ok(unsafe { std::slice::from_raw_parts(text.cast(), length as usize) })
        }
    }
}

fn null_text() -> i32 {
    refuse(code::INTERNAL, "a text is NULL")
}

/// # Safety
/// As [`Texts::read`] for one text per channel.
unsafe fn push_sample(out: Handle, texts: Texts, timestamp: f64, through: i32) -> i32 {
    status(|| {
        let object = find(out)?;
        // SAFETY: the caller vouches for it.
        let values = unsafe { texts.read(object.channels) }?;
        object.push_one(&values, timestamp, through)
    })
}

/// # Safety
/// As [`Texts::read`] for `count` texts; a pointer in `stamps` is NULL or points to one timestamp
/// per sample.
unsafe fn push_chunk(
    out: Handle,
    texts: Texts,
    count: c_ulong,
    stamps: ChunkStamps,
    through: i32,
) -> i32 {
    status(|| {
        let object = find(out)?;
        let count = length(count)?;
        // Unlike with numbers, an empty chunk is no error, whatever the pointers are.
        if count == 0 {
            return Ok(());
        }
        object.samples_in(count)?;
        // SAFETY: the caller vouches for it.
        let values = unsafe { texts.read(count) }?;
        // SAFETY: as above.
        unsafe { object.push_many(&values, stamps, through) }
    })
}

/// Defines the push functions of one kind of text: three for samples, five for chunks. `$texts` makes a
/// [`Texts`] of the arguments in the brackets.
macro_rules! text_push {
    ($kind:literal $texts:path [$($argument:ident: $type:ty),+]
     $sample:ident $sample_t:ident $sample_tp:ident
     $chunk:ident $chunk_t:ident $chunk_tp:ident $chunk_tn:ident $chunk_tnp:ident) => {
        #[doc = concat!(
            "`", stringify!($sample), "`: pushes one sample of ", $kind, " (one per channel, ",
            "converted to the stream's format), stamped now, sent at once. 0, or an error code. ",
            "Spec: c-abi §7.2, §9.\n\n# Safety\nArrays are NULL (-4) or have one entry per channel; ",
            "entries are NULL (-4) or such texts."
        )]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $sample(out: Handle, $($argument: $type),+) -> i32 {
            // SAFETY: the caller of this function vouches for it.
            unsafe { push_sample(out, $texts($($argument),+), 0.0, 1) }
        }

        #[doc = concat!(
            "`", stringify!($sample_t), "`: as `", stringify!($sample), "` with the time it was ",
            "taken (0.0: now, -1.0: deduced by the reader). Spec: c-abi §7.2.\n\n# Safety\nAs `",
            stringify!($sample), "`."
        )]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $sample_t(
            out: Handle,
            $($argument: $type,)+
            timestamp: f64,
        ) -> i32 {
            // SAFETY: the caller of this function vouches for it.
            unsafe { push_sample(out, $texts($($argument),+), timestamp, 1) }
        }

        #[doc = concat!(
            "`", stringify!($sample_tp), "`: as `", stringify!($sample_t), "`; with `pushthrough` ",
            "0 it waits for a later push. Spec: c-abi §7.2.\n\n# Safety\nAs `",
            stringify!($sample), "`."
        )]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $sample_tp(
            out: Handle,
            $($argument: $type,)+
            timestamp: f64,
            pushthrough: i32,
        ) -> i32 {
            // SAFETY: the caller of this function vouches for it.
            unsafe { push_sample(out, $texts($($argument),+), timestamp, pushthrough) }
        }

        #[doc = concat!(
            "`", stringify!($chunk), "`: pushes a chunk of ", $kind, ", sample after sample; ",
            "`data_elements` counts texts. The last sample is stamped now. 0, or an error code (-4 ",
            "for no whole number of samples). Spec: c-abi §7.2, §9.\n\n# Safety\nArrays are NULL ",
            "(-4) or have `data_elements` entries; entries are NULL (-4) or such texts."
        )]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $chunk(
            out: Handle,
            $($argument: $type,)+
            data_elements: c_ulong,
        ) -> i32 {
            let stamps = ChunkStamps::Last(0.0);
            // SAFETY: the caller of this function vouches for it.
            unsafe { push_chunk(out, $texts($($argument),+), data_elements, stamps, 1) }
        }

        #[doc = concat!(
            "`", stringify!($chunk_t), "`: as `", stringify!($chunk), "` with the time of the last ",
            "sample. Spec: c-abi §7.2.\n\n# Safety\nAs `", stringify!($chunk), "`."
        )]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $chunk_t(
            out: Handle,
            $($argument: $type,)+
            data_elements: c_ulong,
            timestamp: f64,
        ) -> i32 {
            let stamps = ChunkStamps::Last(timestamp);
            // SAFETY: the caller of this function vouches for it.
            unsafe { push_chunk(out, $texts($($argument),+), data_elements, stamps, 1) }
        }

        #[doc = concat!(
            "`", stringify!($chunk_tp), "`: as `", stringify!($chunk_t), "`; with `pushthrough` 0 ",
            "it waits for a later push. Spec: c-abi §7.2.\n\n# Safety\nAs `",
            stringify!($chunk), "`."
        )]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $chunk_tp(
            out: Handle,
            $($argument: $type,)+
            data_elements: c_ulong,
            timestamp: f64,
            pushthrough: i32,
        ) -> i32 {
            let stamps = ChunkStamps::Last(timestamp);
            // SAFETY: the caller of this function vouches for it.
            unsafe { push_chunk(out, $texts($($argument),+), data_elements, stamps, pushthrough) }
        }

        #[doc = concat!(
            "`", stringify!($chunk_tn), "`: as `", stringify!($chunk), "` with one timestamp for ",
            "each sample (-4 for NULL). Spec: c-abi §7.2.\n\n# Safety\nAs `", stringify!($chunk),
            "`, and `timestamps` is NULL or points to one for each sample."
        )]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $chunk_tn(
            out: Handle,
            $($argument: $type,)+
            data_elements: c_ulong,
            timestamps: *const f64,
        ) -> i32 {
            let stamps = ChunkStamps::Each(timestamps);
            // SAFETY: the caller of this function vouches for it.
            unsafe { push_chunk(out, $texts($($argument),+), data_elements, stamps, 1) }
        }

        #[doc = concat!(
            "`", stringify!($chunk_tnp), "`: as `", stringify!($chunk_tn), "`; with `pushthrough` ",
            "0 it waits for a later push. Spec: c-abi §7.2.\n\n# Safety\nAs `",
            stringify!($chunk_tn), "`."
        )]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $chunk_tnp(
            out: Handle,
            $($argument: $type,)+
            data_elements: c_ulong,
            timestamps: *const f64,
            pushthrough: i32,
        ) -> i32 {
            let stamps = ChunkStamps::Each(timestamps);
            // SAFETY: the caller of this function vouches for it.
            unsafe { push_chunk(out, $texts($($argument),+), data_elements, stamps, pushthrough) }
        }
    };
}

text_push!("NUL-terminated texts" Texts::Terminated [data: *const *const c_char]
    lsl_push_sample_str lsl_push_sample_strt lsl_push_sample_strtp
    lsl_push_chunk_str lsl_push_chunk_strt lsl_push_chunk_strtp
    lsl_push_chunk_strtn lsl_push_chunk_strtnp);
text_push!("texts with lengths" Texts::Sized [data: *const *const c_char, lengths: *const u32]
    lsl_push_sample_buf lsl_push_sample_buft lsl_push_sample_buftp
    lsl_push_chunk_buf lsl_push_chunk_buft lsl_push_chunk_buftp
    lsl_push_chunk_buftn lsl_push_chunk_buftnp);
