//! The two samples that open every feed, by which both sides check that they agree on the layout.
//! Spec: lsl-protocol §7.6, `test-patterns.json`.

#[cfg(test)]
mod tests;

use std::io::Write as _;

use super::sample110::SampleSink;
use super::sequence::Gap;
use crate::value::{RawStrings, append_raw, append_raw_string, raw_sample_len};
use crate::{ChannelFormat, Error};

/// Timestamp of both samples, in seconds.
pub const TIMESTAMP: f64 = 123_456.789;

/// Numbers added to the channel number, in the order of the samples.
pub const OFFSETS: [u32; 2] = [4, 2];

/// Appends the pattern with this offset in the raw layout of [`crate::value`].
pub fn append_pattern(format: ChannelFormat, channels: usize, offset: u32, raw: &mut Vec<u8>) {
    if format == ChannelFormat::String {
        let mut text = Vec::new();
        for channel in 0..channels {
            write_text(channel, &mut text);
            append_raw_string(&text, raw);
        }
    } else {
        for channel in 0..channels {
            append_raw(&[number(format, channel, offset)], format, raw);
        }
    }
}

/// Makes both patterns in order and passes each to `visit`.
pub fn for_each(format: ChannelFormat, channels: usize, mut visit: impl FnMut(&[u8])) {
    let mut raw = Vec::new();
    for offset in OFFSETS {
        raw.clear();
        append_pattern(format, channels, offset, &mut raw);
        visit(&raw);
    }
}

/// Returns whether a decoded sample is, bit by bit, the pattern with this offset. Allocates nothing
/// that grows with the number of channels, which a peer may have claimed.
pub fn verify(
    format: ChannelFormat,
    channels: usize,
    offset: u32,
    timestamp: Option<f64>,
    raw: &[u8],
) -> bool {
    if timestamp.map(f64::to_bits) != Some(TIMESTAMP.to_bits()) {
        return false;
    }
    let mut expected = Vec::new();
    if format == ChannelFormat::String {
        let mut strings = RawStrings::new(raw);
        return (0..channels).all(|channel| {
            write_text(channel, &mut expected);
            strings.next() == Some(expected.as_slice())
        }) && strings.rest().is_empty();
    }
    raw_sample_len(format, channels) == Some(raw.len())
        && raw
            .chunks_exact(format.value_size().max(1))
            .enumerate()
            .all(|(channel, value)| {
                expected.clear();
                append_raw(&[number(format, channel, offset)], format, &mut expected);
                value == expected
            })
}

/// Sink that verifies the first two samples of a feed.
#[derive(Debug, Clone)]
pub struct PatternCheck {
    format: ChannelFormat,
    channels: usize,
    seen: usize,
    matched: bool,
}

impl PatternCheck {
    /// Creates a check for a feed of this shape.
    pub const fn new(format: ChannelFormat, channels: u32) -> Self {
        Self {
            format,
            channels: channels as usize,
            seen: 0,
            matched: true,
        }
    }

    /// Returns the number of samples still to come, an argument for a decoder's `decode_up_to`.
    pub const fn missing(&self) -> usize {
        OFFSETS.len().saturating_sub(self.seen)
    }

    /// Returns whether every sample so far was the right pattern. A mismatch drops the connection.
    pub const fn matched(&self) -> bool {
        self.matched
    }
}

impl SampleSink for PatternCheck {
    fn sample(&mut self, timestamp: Option<f64>, raw: &[u8]) {
        self.matched &= OFFSETS
            .get(self.seen)
            .is_some_and(|offset| verify(self.format, self.channels, *offset, timestamp, raw));
        self.seen += 1;
    }

    /// A gap before or between the patterns is as wrong as another pattern: they are not numbered.
    fn gap(&mut self, _gap: Gap) -> Result<(), Error> {
        self.matched = false;
        Ok(())
    }
}

/// Returns the value of a numeric channel before it takes its format. Wide enough for every channel
/// number; float32 rounds it once, as the sender does.
fn number(format: ChannelFormat, channel: usize, offset: u32) -> i64 {
    let count = channel.cast_signed() as i64 + i64::from(offset);
    let magnitude = match format {
        ChannelFormat::Double64 => count + 16_777_217,
        ChannelFormat::Int64 => count + 2_147_483_649,
        ChannelFormat::Int32 => (count + 65_537) % 2_147_483_647,
        ChannelFormat::Int16 => (count + 257) % 32_767,
        ChannelFormat::Int8 => (count + 1) % 127,
        ChannelFormat::Float32 | ChannelFormat::String | ChannelFormat::Undefined => count,
    };
    signed(channel, magnitude)
}

/// Writes the text of a channel, which does not depend on the offset.
fn write_text(channel: usize, text: &mut Vec<u8>) {
    text.clear();
    // Writing to a vector cannot fail.
    let _ = write!(
        text,
        "{}",
        signed(channel, channel.cast_signed() as i64 + 10)
    );
}

const fn signed(channel: usize, magnitude: i64) -> i64 {
    if channel.is_multiple_of(2) {
        magnitude
    } else {
        -magnitude
    }
}
