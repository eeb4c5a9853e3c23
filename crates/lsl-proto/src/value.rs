//! Values: types that a caller may push or pull, formats that a stream stores, conversions between.
//!
//! A sample is converted twice: push type to stream format when pushed, stream format to pull type
//! when pulled. Both are bit-exact to liblsl on x86-64. Spec: c-abi §9, `conversions.json`.
//! The format is looked at once per call, never per value; nothing is allocated per number.
//!
//! # Raw samples
//!
//! Inside this crate a sample is a run of bytes, the *raw layout*:
//! * numeric formats: the channel values back to back in host byte order, no padding;
//! * strings: per channel the length in bytes as a `u64` in host byte order, then the bytes (any
//!   content, not terminated).
//!
//! Samples of one stream may follow each other directly. The inlet's buffer stores this layout, all
//! encoders take it, all decoders give it. Nothing here knows about timestamps or the wire.

mod convert;
mod parse;
#[cfg(test)]
mod tests;

use crate::{ByteOrder, ChannelFormat, Error, Result};

pub(crate) use convert::{append_numbers, sealed, write_numbers};
use sealed::ValueSource;

/// A type that may be pushed into a stream of any format: `f32 f64 i64 i32 i16 i8`, and text as
/// `String`, `Vec<u8>`, `&str`, `&[u8]`. Sealed. Spec: c-abi §7.2, §9.
pub trait PushElement: ValueSource {}

impl<T: ValueSource> PushElement for T {}

/// A type that may be pulled from a stream of any format: `f32 f64 i64 i32 i16 i8`, and text as
/// `Vec<u8>` (exact) or `String` (invalid UTF-8 becomes U+FFFD; LSL does not validate text). Sealed.
/// Spec: c-abi §9.
pub trait PullElement: sealed::ValueTarget {}

impl<T: sealed::ValueTarget> PullElement for T {}

/// Returns the bytes of one raw sample; `None` for strings, whose samples differ in length.
pub const fn raw_sample_len(format: ChannelFormat, channels: usize) -> Option<usize> {
    match format {
        ChannelFormat::String => None,
        _ => channels.checked_mul(format.value_size()),
    }
}

/// Converts `values` to `format` and appends them in the raw layout (see the module).
///
/// No value is refused. A stream of format `Undefined` has no values: nothing is appended.
/// Spec: c-abi §9.
pub fn append_raw<T: PushElement>(values: &[T], format: ChannelFormat, raw: &mut Vec<u8>) {
    if format == ChannelFormat::String {
        let mut scratch = Vec::new();
        for value in values {
            append_raw_string(value.text(&mut scratch), raw);
        }
    } else {
        append_numbers(values, format, ByteOrder::NATIVE, raw);
    }
}

/// Appends one string in the raw layout.
pub fn append_raw_string(text: &[u8], raw: &mut Vec<u8>) {
    raw.extend_from_slice(&(text.len() as u64).to_ne_bytes());
    raw.extend_from_slice(text);
}

/// Converts raw values of `format` to the type of `values`, filling all of them. `raw` may hold
/// several samples back to back. Text targets keep their allocation.
///
/// # Errors
/// `Argument` when `raw` does not hold exactly as many values as there are slots; the slots are
/// then untouched for numeric formats, and unspecified for strings. Spec: c-abi §8.3, §9.
pub fn read_raw<T: PullElement>(raw: &[u8], format: ChannelFormat, values: &mut [T]) -> Result<()> {
    let fits = if format == ChannelFormat::String {
        let mut strings = RawStrings::new(raw);
        let filled = values
            .iter_mut()
            .zip(&mut strings)
            .map(|(slot, text)| slot.set(&text));
        filled.count() == values.len() && strings.rest.is_empty()
    } else {
        raw_sample_len(format, values.len()) == Some(raw.len())
            && convert::read_numbers(raw, format, values)
    };
    if fits {
        Ok(())
    } else {
        Err(Error::Argument(format!(
            "{} values were asked of {} bytes of {format} data",
            values.len(),
            raw.len()
        )))
    }
}

/// Iterator over the samples of one stream in the raw layout, back to back.
#[derive(Debug, Clone)]
pub struct RawSamples<'a> {
    rest: &'a [u8],
    format: ChannelFormat,
    channels: usize,
}

impl<'a> RawSamples<'a> {
    /// Reads samples of this shape from `raw`.
    ///
    /// # Errors
    /// `Argument` when `raw` does not hold exactly so many samples.
    pub fn new(
        raw: &'a [u8],
        format: ChannelFormat,
        channels: usize,
        samples: usize,
    ) -> Result<Self> {
        let all = Self {
            rest: raw,
            format,
            channels,
        };
        let mut read = all.clone();
        if read.by_ref().take(samples).count() == samples && read.rest.is_empty() {
            return Ok(all);
        }
        let text = format!(
            "{} bytes are not {samples} samples of {channels} {format} channels",
            raw.len()
        );
        Err(Error::Argument(text))
    }
}

impl<'a> Iterator for RawSamples<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let len = raw_sample_len(self.format, self.channels).or_else(|| {
            let mut strings = RawStrings::new(self.rest);
            let is_whole = strings.by_ref().take(self.channels).count() == self.channels;
            is_whole.then(|| self.rest.len() - strings.rest.len())
        })?;
        let (sample, rest) = self.rest.split_at_checked(len)?;
        self.rest = rest;
        Some(sample)
    }
}

/// Iterator over the strings of a raw sample (or of several) in order.
///
/// Ends early where the bytes stop making sense, so that a damaged buffer cannot cause a panic.
#[derive(Debug, Clone)]
pub struct RawStrings<'a> {
    rest: &'a [u8],
}

impl<'a> RawStrings<'a> {
    /// Reads strings from the raw layout.
    pub const fn new(raw: &'a [u8]) -> Self {
        Self { rest: raw }
    }

    /// Returns the unread rest: the next sample's bytes once a sample's channels were taken.
    pub const fn rest(&self) -> &'a [u8] {
        self.rest
    }
}

impl<'a> Iterator for RawStrings<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let (len, rest) = self.rest.split_first_chunk::<8>()?;
        let len = usize::try_from(u64::from_ne_bytes(*len)).ok()?;
        let (text, rest) = rest.split_at_checked(len)?;
        self.rest = rest;
        Some(text)
    }
}
