//! Decoder of protocol 1.00: a machine whose every step waits for one item.

use super::{MAGIC, NEWEST_ARCHIVE_VERSION, TAG_DEDUCED};
use crate::value::raw_sample_len;
use crate::wire::sample110::{
    DecodeLimits, KEPT_CAPACITY, SampleSink, admit_string, explicit, take_byte, take_bytes,
    too_large,
};
use crate::{ChannelFormat, Error, Result};

/// Incremental reader of a 1.00 feed, from its first byte: first the stream info, then the test
/// patterns as ordinary samples, then the samples. Spec: lsl-protocol §8.
///
/// After an error the position in the stream is lost: close the connection.
#[derive(Debug, Clone)]
pub struct Decoder100 {
    format: ChannelFormat,
    channels: usize,
    limits: DecodeLimits,
    step: Step,
    item: Item,
    shortinfo: Vec<u8>,
    /// The sample so far: in the raw layout, with its timestamp and the number of its whole channels.
    partial: Vec<u8>,
    stamp: Option<f64>,
    channel: usize,
}

/// State of the decoder: the part to which the next byte belongs.
#[derive(Debug, Clone, Copy)]
enum Step {
    Magic,
    Version,
    InfoLength,
    Info {
        missing: usize,
    },
    /// Two items before the first sample only.
    Class {
        items: u8,
    },
    Tag,
    Timestamp,
    Value,
    Text {
        missing: usize,
    },
}

impl Decoder100 {
    /// Creates a decoder for a feed of this shape, with the default limits.
    pub fn new(format: ChannelFormat, channels: u32) -> Self {
        // A stream without a format has no values, however many channels it claims.
        let channels = if format == ChannelFormat::Undefined {
            0
        } else {
            channels as usize
        };
        Self {
            format,
            channels,
            limits: DecodeLimits::default(),
            step: Step::Magic,
            item: Item::default(),
            shortinfo: Vec::new(),
            partial: Vec::new(),
            stamp: None,
            channel: 0,
        }
    }

    /// Replaces the limits on memory.
    #[must_use]
    pub fn with_limits(self, limits: DecodeLimits) -> Self {
        Self { limits, ..self }
    }

    /// Returns the stream info (short form, XML) once it is complete; its uid must be the expected one.
    pub fn shortinfo(&self) -> Option<&[u8]> {
        self.has_shortinfo().then_some(&self.shortinfo)
    }

    /// Returns whether the bytes so far end between two samples; if not, a close now cuts one.
    pub const fn is_between_samples(&self) -> bool {
        matches!(self.step, Step::Tag) && !self.item.started
    }

    /// Returns the memory held between calls, in bytes: at most about twice what the limits allow.
    pub fn held_bytes(&self) -> usize {
        self.partial.capacity() + self.shortinfo.capacity()
    }

    /// Reads all of `input`; returns the number of samples handed to `sink`.
    ///
    /// # Errors
    /// `Protocol` when the bytes are not an archive of version 0 to 17 or an item does not fit its
    /// type. Also when the stream info, a string or a sample is larger than the limits. Samples
    /// before it have been handed over.
    pub fn decode(&mut self, mut input: &[u8], sink: &mut impl SampleSink) -> Result<usize> {
        self.decode_up_to(usize::MAX, &mut input, sink)
    }

    /// Reads at most `samples` samples and leaves in `input` the bytes after them. With 0 only the
    /// stream info is read.
    ///
    /// # Errors
    /// As [`decode`](Self::decode).
    pub fn decode_up_to(
        &mut self,
        samples: usize,
        input: &mut &[u8],
        sink: &mut impl SampleSink,
    ) -> Result<usize> {
        if raw_sample_len(self.format, self.channels).is_some_and(|l| l > self.limits.sample_bytes)
        {
            return Err(too_large("sample", self.limits.sample_bytes));
        }
        let mut decoded = 0;
        while decoded < samples || !self.has_shortinfo() {
            self.step = match self.step {
                Step::Value if self.channel == self.channels => {
                    sink.sample(self.stamp, &self.partial);
                    decoded += 1;
                    self.partial.clear();
                    // One huge string must not pin its memory for the life of the stream.
                    self.partial.shrink_to(KEPT_CAPACITY);
                    Step::Tag
                }
                Step::Value if self.format == ChannelFormat::String => {
                    let Some(len) = self.item.take(input, 8, Sign::Refused)? else {
                        break;
                    };
                    let missing = admit_string(len, self.partial.len(), &self.limits)?;
                    self.partial.extend_from_slice(&len.to_ne_bytes());
                    Step::Text { missing }
                }
                Step::Value => {
                    if !self.take_number(input)? {
                        break;
                    }
                    self.channel += 1;
                    Step::Value
                }
                Step::Text { ref mut missing } => {
                    if !take_bytes(input, missing, &mut self.partial) {
                        break;
                    }
                    self.channel += 1;
                    Step::Value
                }
                Step::Tag => {
                    let Some(tag) = self.item.take(input, 1, Sign::Allowed)? else {
                        break;
                    };
                    (self.stamp, self.channel) = (None, 0);
                    if tag == u64::from(TAG_DEDUCED) {
                        Step::Value
                    } else {
                        Step::Timestamp
                    }
                }
                Step::Timestamp => {
                    let Some(bits) = self.item.take(input, 8, Sign::Refused)? else {
                        break;
                    };
                    self.stamp = explicit(f64::from_bits(bits));
                    Step::Value
                }
                _ => match self.preamble_step(input)? {
                    Some(step) => step,
                    None => break,
                },
            };
        }
        Ok(decoded)
    }

    /// Takes a step of those that happen once per connection; `None` when more bytes are needed.
    fn preamble_step(&mut self, input: &mut &[u8]) -> Result<Option<Step>> {
        let next = match &mut self.step {
            Step::Magic => {
                let Some(byte) = take_byte(input) else {
                    return Ok(None);
                };
                if byte != MAGIC {
                    return Err(Error::Protocol(format!(
                        "byte {byte:#04x} begins no archive"
                    )));
                }
                Step::Version
            }
            Step::Version => {
                let Some(version) = self.item.take(input, 8, Sign::Refused)? else {
                    return Ok(None);
                };
                if version > NEWEST_ARCHIVE_VERSION {
                    return Err(Error::Protocol(format!(
                        "archive of unknown version {version}"
                    )));
                }
                Step::InfoLength
            }
            Step::InfoLength => {
                let Some(len) = self.item.take(input, 8, Sign::Refused)? else {
                    return Ok(None);
                };
                let limit = self.limits.shortinfo_bytes;
                let missing = usize::try_from(len)
                    .ok()
                    .filter(|len| *len <= limit)
                    .ok_or_else(|| too_large("stream info", limit))?;
                Step::Info { missing }
            }
            Step::Info { missing } => {
                if !take_bytes(input, missing, &mut self.shortinfo) {
                    return Ok(None);
                }
                Step::Class { items: 2 }
            }
            Step::Class { items: 0 } => Step::Tag,
            Step::Class { items } => {
                let Some(value) = self.item.take(input, 8, Sign::Refused)? else {
                    return Ok(None);
                };
                if value != 0 {
                    return Err(Error::Protocol("unknown class in the archive".into()));
                }
                Step::Class { items: *items - 1 }
            }
            other => *other,
        };
        Ok(Some(next))
    }

    /// Reads one channel value into the sample; false when more bytes are needed.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "an item never has more significant bytes than its target"
    )]
    fn take_number(&mut self, input: &mut &[u8]) -> Result<bool> {
        let Ok(size) = u8::try_from(self.format.value_size()) else {
            return Ok(false);
        };
        let sign = if self.format.is_float() {
            Sign::Refused
        } else {
            Sign::Allowed
        };
        let Some(bits) = self.item.take(input, size, sign)? else {
            return Ok(false);
        };
        match size {
            1 => self.partial.push(bits as u8),
            2 => self.partial.extend_from_slice(&(bits as u16).to_ne_bytes()),
            4 => self.partial.extend_from_slice(&(bits as u32).to_ne_bytes()),
            _ => self.partial.extend_from_slice(&bits.to_ne_bytes()),
        }
        Ok(true)
    }

    const fn has_shortinfo(&self) -> bool {
        !matches!(
            self.step,
            Step::Magic | Step::Version | Step::InfoLength | Step::Info { .. }
        )
    }
}

/// Whether an item may be negative: unsigned targets refuse.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sign {
    Allowed,
    Refused,
}

/// An integer item whose bytes may arrive one by one.
#[derive(Debug, Clone, Copy, Default)]
struct Item {
    started: bool,
    len: u8,
    filled: u8,
    value: u64,
}

impl Item {
    /// Returns the value, sign-extended to 64 bits, once all bytes are there. `size` is that of the
    /// target type in bytes.
    fn take(&mut self, input: &mut &[u8], size: u8, sign: Sign) -> Result<Option<u64>> {
        if !self.started {
            let Some(head) = take_byte(input) else {
                return Ok(None);
            };
            let head = head.cast_signed();
            let len = head.unsigned_abs();
            if len > size || (head < 0 && sign == Sign::Refused) {
                return Err(Error::Protocol(format!(
                    "archive item of size {head} for {size} bytes"
                )));
            }
            let value = if head < 0 { u64::MAX } else { 0 };
            *self = Self {
                started: true,
                len,
                filled: 0,
                value,
            };
        }
        while self.filled < self.len {
            let Some(byte) = take_byte(input) else {
                return Ok(None);
            };
            let shift = 8 * u32::from(self.filled);
            self.value = (self.value & !(0xff << shift)) | (u64::from(byte) << shift);
            self.filled += 1;
        }
        self.started = false;
        Ok(Some(self.value))
    }
}
