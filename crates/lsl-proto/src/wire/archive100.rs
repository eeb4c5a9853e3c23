//! Samples as protocol 1.00 carries them: one continuous portable archive, always little endian,
//! integers without their leading bytes. Kept for peers configured to 1.00 and for pre-1.10 ones.
//!
//! Spec: lsl-protocol §8. The same sink and the same raw samples as 1.10 (`sample110`).

mod decode;
#[cfg(test)]
mod tests;

use super::sample110::{check_raw, wrong_count};
use super::testpattern;
use crate::value::{PushElement, RawStrings};
use crate::{ChannelFormat, DEDUCED_TIMESTAMP, Result};

pub use decode::Decoder100;

/// First byte of every archive.
const MAGIC: u8 = 0x7f;
/// Version that archives are written in.
const ARCHIVE_VERSION: u64 = 9;
/// Readers accept versions up to this one.
const NEWEST_ARCHIVE_VERSION: u64 = 17;
/// Class header before the very first sample object (Q8): two integer items of 0.
const CLASS_HEADER: [u8; 2] = [0, 0];
const TAG_DEDUCED: u8 = 1;
const TAG_TRANSMITTED: u8 = 2;

/// Appends samples of one stream as archive items.
///
/// Stateless: [`encode_preamble`](Self::encode_preamble) writes the part that comes once per connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Encoder100 {
    format: ChannelFormat,
    channels: usize,
}

impl Encoder100 {
    /// Creates an encoder for a stream of this shape.
    pub const fn new(format: ChannelFormat, channels: u32) -> Self {
        Self {
            format,
            channels: channels as usize,
        }
    }

    /// Appends all that comes before the first sample of the stream: archive header, the stream
    /// info (short form, XML), class header, test patterns. Spec: lsl-protocol §8.
    pub fn encode_preamble(&self, out: &mut Vec<u8>, shortinfo: &[u8]) {
        out.push(MAGIC);
        append_unsigned(out, ARCHIVE_VERSION);
        append_string(out, shortinfo);
        self.encode_test_patterns(out);
    }

    /// Appends the class header and the two test patterns.
    pub fn encode_test_patterns(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&CLASS_HEADER);
        testpattern::for_each(self.format, self.channels, |raw| {
            // The generator makes samples of exactly this shape.
            let _ = self.encode_raw(out, testpattern::TIMESTAMP, raw);
        });
    }

    /// Appends one sample, converting `values` (one per channel) to the stream's format.
    /// A `timestamp` of exactly -1.0 is sent as "to be deduced".
    ///
    /// # Errors
    /// `Argument` when the number of values is not the number of channels; nothing is appended.
    pub fn encode_sample<T: PushElement>(
        &self,
        out: &mut Vec<u8>,
        timestamp: f64,
        values: &[T],
    ) -> Result<()> {
        if values.len() != self.channels {
            return Err(wrong_count(values.len(), self.channels));
        }
        append_stamp(out, timestamp);
        let mut scratch = Vec::new();
        for value in values {
            match self.format {
                ChannelFormat::Float32 => append_f32(out, value.f32()),
                ChannelFormat::Double64 => append_f64(out, value.f64()),
                ChannelFormat::Int64 => append_signed(out, value.i64()),
                ChannelFormat::Int32 => append_signed(out, value.i32().into()),
                ChannelFormat::Int16 => append_signed(out, value.i16().into()),
                ChannelFormat::Int8 => append_signed(out, value.i8().into()),
                ChannelFormat::String => append_string(out, value.text(&mut scratch)),
                ChannelFormat::Undefined => {}
            }
        }
        Ok(())
    }

    /// Appends one sample that is already in the raw layout of [`crate::value`].
    ///
    /// # Errors
    /// `Argument` when `raw` is not one sample of this stream; nothing is appended.
    pub fn encode_raw(&self, out: &mut Vec<u8>, timestamp: f64, raw: &[u8]) -> Result<()> {
        fn each<const N: usize>(raw: &[u8], mut append: impl FnMut([u8; N])) {
            raw.as_chunks::<N>()
                .0
                .iter()
                .for_each(|value| append(*value));
        }
        check_raw(self.format, self.channels, raw)?;
        append_stamp(out, timestamp);
        match self.format {
            ChannelFormat::Float32 => each(raw, |v| append_f32(out, f32::from_ne_bytes(v))),
            ChannelFormat::Double64 => each(raw, |v| append_f64(out, f64::from_ne_bytes(v))),
            ChannelFormat::Int64 => each(raw, |v| append_signed(out, i64::from_ne_bytes(v))),
            ChannelFormat::Int32 => each(raw, |v| append_signed(out, i32::from_ne_bytes(v).into())),
            ChannelFormat::Int16 => each(raw, |v| append_signed(out, i16::from_ne_bytes(v).into())),
            ChannelFormat::Int8 => each(raw, |v| append_signed(out, i8::from_ne_bytes(v).into())),
            ChannelFormat::String => {
                RawStrings::new(raw).for_each(|text| append_string(out, text));
            }
            ChannelFormat::Undefined => {}
        }
        Ok(())
    }
}

fn append_stamp(out: &mut Vec<u8>, timestamp: f64) {
    if timestamp == DEDUCED_TIMESTAMP {
        append_unsigned(out, TAG_DEDUCED.into());
    } else {
        append_unsigned(out, TAG_TRANSMITTED.into());
        append_f64(out, timestamp);
    }
}

fn append_f32(out: &mut Vec<u8>, value: f32) {
    // The archive knows one NaN.
    let bits = if value.is_nan() {
        0x7fff_ffff
    } else {
        value.to_bits()
    };
    append_unsigned(out, bits.into());
}

fn append_f64(out: &mut Vec<u8>, value: f64) {
    append_unsigned(
        out,
        if value.is_nan() {
            u64::MAX >> 1
        } else {
            value.to_bits()
        },
    );
}

fn append_string(out: &mut Vec<u8>, text: &[u8]) {
    append_unsigned(out, text.len() as u64);
    out.extend_from_slice(text);
}

/// Appends the size byte and the bytes left after stripping zero bytes from the top; zero is one byte.
fn append_unsigned(out: &mut Vec<u8>, value: u64) {
    append_item(out, value.leading_zeros() / 8, false, value);
}

/// Appends the same with the sign in the size byte: negative values lose their top bytes of ones.
fn append_signed(out: &mut Vec<u8>, value: i64) {
    if value < 0 {
        let stripped = (value.leading_ones() / 8).min(7);
        append_item(out, stripped, true, value.cast_unsigned());
    } else {
        append_unsigned(out, value.cast_unsigned());
    }
}

/// Appends all but the top `stripped` bytes of the eight.
fn append_item(out: &mut Vec<u8>, stripped: u32, negative: bool, value: u64) {
    const SIZES: [u8; 9] = [8, 7, 6, 5, 4, 3, 2, 1, 0];
    let size = SIZES.get(stripped as usize).copied().unwrap_or_default();
    out.push(if negative { size.wrapping_neg() } else { size });
    out.extend(value.to_le_bytes().iter().take(size.into()));
}
