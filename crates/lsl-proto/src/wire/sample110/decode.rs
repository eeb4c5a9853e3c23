//! Decoder of protocol 1.10.
//!
//! Numeric samples have one of two lengths, known from the first byte: whole ones are handed over
//! straight out of the input, one that is cut waits in `partial`. Strings announce their length
//! one by one, so they go through a small machine whose every step keeps at most eight bytes. The
//! gap records of granted feeds wait in `partial` until they are complete. Spec: resume §2.4.

use super::{DecodeLimits, STAMPED_HEAD, SampleSink, TAG_DEDUCED, TAG_TRANSMITTED, swap_values};
use crate::value::raw_sample_len;
use crate::wire::sequence::Gap;
use crate::{ByteOrder, ChannelFormat, DEDUCED_TIMESTAMP, Error, Result};

/// Incremental reader of a 1.10 feed, from the first byte after the response header (so the test
/// patterns come out as the first two samples). Spec: lsl-protocol §7.5.
///
/// After an error the position in the stream is lost: close the connection.
#[derive(Debug, Clone)]
pub struct Decoder110 {
    shape: Shape,
    limits: DecodeLimits,
    /// Whether the feed is a granted one, with gap records and no unknown tags.
    granted: bool,
    /// Numeric: the beginning of a sample whose end has not arrived, as it is on the wire.
    /// Strings: the sample so far, in the raw layout. Both: the beginning of a gap record.
    partial: Vec<u8>,
    /// Buffer in which values are swapped and flushed, if they have to be.
    scratch: Vec<u8>,
    /// Strings: the next step, and timestamp and channel of the sample so far.
    text: TextStep,
    stamp: Option<f64>,
    channel: usize,
}

#[derive(Debug, Clone, Copy)]
struct Shape {
    format: ChannelFormat,
    channels: usize,
    order: ByteOrder,
    suppress_subnormals: bool,
}

/// State inside a string sample: the part to which the next byte belongs.
#[derive(Debug, Clone, Copy)]
enum TextStep {
    Tag,
    Timestamp(Field),
    Width,
    Length(Field),
    /// So many bytes of a string are missing.
    Bytes(usize),
    /// A gap record, if this tag says so. It is in `partial`, too.
    Gap(u8),
}

impl Decoder110 {
    /// Creates a decoder for a feed of this shape and the negotiated byte order, with the default limits.
    pub fn new(format: ChannelFormat, channels: u32, order: ByteOrder) -> Self {
        let channels = channels as usize;
        Self {
            shape: Shape {
                format,
                channels,
                order,
                suppress_subnormals: false,
            },
            limits: DecodeLimits::default(),
            granted: false,
            partial: Vec::new(),
            scratch: Vec::new(),
            text: TextStep::Tag,
            stamp: None,
            channel: 0,
        }
    }

    /// Replaces the limits on memory.
    #[must_use]
    pub fn with_limits(self, limits: DecodeLimits) -> Self {
        Self { limits, ..self }
    }

    /// Chooses whether the feed is a granted one: then it may have gap records, and tags that are
    /// unknown are an error. Otherwise every unknown tag means that a timestamp follows.
    #[must_use]
    pub fn with_gaps(self, granted: bool) -> Self {
        Self { granted, ..self }
    }

    /// Chooses whether subnormal floats become zero of the same sign (`Suppress-Subnormals: 1`).
    #[must_use]
    pub fn with_subnormals_suppressed(mut self, suppress: bool) -> Self {
        self.shape.suppress_subnormals = suppress;
        self
    }

    /// Reads all of `input`; returns the number of samples handed to `sink`.
    ///
    /// # Errors
    /// `Protocol` when a string or a sample is larger than the limits, or a length has a width
    /// other than 1, 2, 4, 8. In granted feeds also for unknown tags and for gaps that lead nowhere, and
    /// what the sink returns. Samples before it have been handed over.
    pub fn decode(&mut self, mut input: &[u8], sink: &mut impl SampleSink) -> Result<usize> {
        self.decode_up_to(usize::MAX, &mut input, sink)
    }

    /// Reads at most `samples` samples and leaves in `input` the bytes after them, also a gap record.
    ///
    /// # Errors
    /// As [`decode`](Self::decode).
    pub fn decode_up_to(
        &mut self,
        samples: usize,
        input: &mut &[u8],
        sink: &mut impl SampleSink,
    ) -> Result<usize> {
        let len = match raw_sample_len(self.shape.format, self.shape.channels) {
            None if self.shape.format == ChannelFormat::String => {
                return self.decode_text(samples, input, sink);
            }
            Some(len) if len <= self.limits.sample_bytes => len,
            _ => return Err(too_large("sample", self.limits.sample_bytes)),
        };
        self.decode_numbers(len, samples, input, sink)
    }

    /// Returns whether the bytes so far end between two samples; if not, a close now cuts one.
    pub fn is_between_samples(&self) -> bool {
        self.partial.is_empty() && matches!(self.text, TextStep::Tag)
    }

    /// Returns the memory held between calls, in bytes: at most about twice what the limits allow.
    pub fn held_bytes(&self) -> usize {
        self.partial.capacity() + self.scratch.capacity()
    }

    fn decode_numbers(
        &mut self,
        raw_len: usize,
        samples: usize,
        input: &mut &[u8],
        sink: &mut impl SampleSink,
    ) -> Result<usize> {
        let mut decoded = 0;
        while decoded < samples {
            let Some(tag) = self.partial.first().or_else(|| input.first()) else {
                break;
            };
            let tag = *tag;
            if tag != TAG_DEDUCED && tag != TAG_TRANSMITTED && self.granted {
                if !self.take_gap(tag, input, sink)? {
                    break;
                }
                continue;
            }
            let head = if tag == TAG_DEDUCED { 1 } else { STAMPED_HEAD };
            let missing = (head + raw_len).saturating_sub(self.partial.len());
            let Some((bytes, rest)) = input.split_at_checked(missing) else {
                self.partial.extend_from_slice(input);
                *input = &[];
                break;
            };
            *input = rest;
            decoded += 1;
            let whole = if self.partial.is_empty() {
                bytes
            } else {
                self.partial.extend_from_slice(bytes);
                &self.partial
            };
            self.shape.deliver(whole, head, &mut self.scratch, sink);
            self.partial.clear();
        }
        Ok(decoded)
    }

    /// Collects a gap record in `partial` and hands it over. Returns false as long as bytes are missing.
    #[cold]
    #[inline(never)]
    fn take_gap(&mut self, tag: u8, input: &mut &[u8], sink: &mut impl SampleSink) -> Result<bool> {
        if tag != Gap::TAG {
            return Err(Error::Protocol(format!("unknown tag {tag}")));
        }
        let mut missing = Gap::LEN.saturating_sub(self.partial.len());
        let complete = take_bytes(input, &mut missing, &mut self.partial);
        if let Some(record) = self.partial.first_chunk().filter(|_| complete) {
            sink.gap(Gap::parse(record, self.shape.order)?)?;
            self.partial.clear();
        }
        Ok(complete)
    }

    fn decode_text(
        &mut self,
        samples: usize,
        input: &mut &[u8],
        sink: &mut impl SampleSink,
    ) -> Result<usize> {
        let order = self.shape.order;
        let mut decoded = 0;
        while decoded < samples {
            self.text = match self.text {
                TextStep::Tag => {
                    let Some(tag) = take_byte(input) else { break };
                    (self.stamp, self.channel) = (None, 0);
                    match tag {
                        TAG_DEDUCED => TextStep::Width,
                        tag if tag != TAG_TRANSMITTED && self.granted => {
                            self.partial.push(tag);
                            TextStep::Gap(tag)
                        }
                        _ => TextStep::Timestamp(Field::new(8)),
                    }
                }
                TextStep::Gap(tag) => {
                    if !self.take_gap(tag, input, sink)? {
                        break;
                    }
                    TextStep::Tag
                }
                TextStep::Timestamp(ref mut field) => {
                    let Some(bits) = field.take(input, order) else {
                        break;
                    };
                    self.stamp = explicit(f64::from_bits(bits));
                    TextStep::Width
                }
                TextStep::Width if self.channel == self.shape.channels => {
                    sink.sample(self.stamp, &self.partial);
                    decoded += 1;
                    self.partial.clear();
                    // One huge string must not pin its memory for the life of the stream.
                    self.partial.shrink_to(KEPT_CAPACITY);
                    TextStep::Tag
                }
                TextStep::Width => {
                    let Some(width) = take_byte(input) else { break };
                    if !matches!(width, 1 | 2 | 4 | 8) {
                        return Err(Error::Protocol(format!("string length of {width} bytes")));
                    }
                    TextStep::Length(Field::new(width))
                }
                TextStep::Length(ref mut field) => {
                    let Some(len) = field.take(input, order) else {
                        break;
                    };
                    let missing = admit_string(len, self.partial.len(), &self.limits)?;
                    self.partial.extend_from_slice(&len.to_ne_bytes());
                    TextStep::Bytes(missing)
                }
                TextStep::Bytes(ref mut missing) => {
                    if !take_bytes(input, missing, &mut self.partial) {
                        break;
                    }
                    self.channel += 1;
                    TextStep::Width
                }
            };
        }
        Ok(decoded)
    }
}

impl Shape {
    /// Hands over one complete numeric sample as it is on the wire.
    #[inline]
    fn deliver(self, wire: &[u8], head: usize, scratch: &mut Vec<u8>, sink: &mut impl SampleSink) {
        let (stamp, raw) = wire.split_at(head.min(wire.len()));
        let stamp = stamp.last_chunk::<8>().map(|bytes| match self.order {
            ByteOrder::Little => f64::from_le_bytes(*bytes),
            ByteOrder::Big => f64::from_be_bytes(*bytes),
        });
        let stamp = stamp.and_then(explicit);
        let swap = self.order != ByteOrder::NATIVE && self.format.value_size() > 1;
        let suppress = self.suppress_subnormals && self.format.is_float();
        let raw = if swap || suppress {
            scratch.clear();
            scratch.extend_from_slice(raw);
            if swap {
                swap_values(self.format, scratch);
            }
            if suppress {
                suppress_subnormals(self.format, scratch);
            }
            scratch
        } else {
            raw
        };
        // Called in one place, so that it can be a part of the loop.
        sink.sample(stamp, raw);
    }
}

/// A number whose bytes may arrive one by one.
#[derive(Debug, Clone, Copy)]
struct Field {
    width: u8,
    filled: u8,
    value: u64,
}

impl Field {
    const fn new(width: u8) -> Self {
        Self {
            width,
            filled: 0,
            value: 0,
        }
    }

    fn take(&mut self, input: &mut &[u8], order: ByteOrder) -> Option<u64> {
        while self.filled < self.width {
            let byte = u64::from(take_byte(input)?);
            self.value = match order {
                ByteOrder::Little => self.value | (byte << (8 * self.filled)),
                ByteOrder::Big => (self.value << 8) | byte,
            };
            self.filled += 1;
        }
        Some(self.value)
    }
}

pub(in crate::wire) fn take_byte(input: &mut &[u8]) -> Option<u8> {
    let (byte, rest) = input.split_first()?;
    *input = rest;
    Some(*byte)
}

/// Moves as many of `missing` bytes as there are; returns true when none is missing any more.
pub(in crate::wire) fn take_bytes(
    input: &mut &[u8],
    missing: &mut usize,
    into: &mut Vec<u8>,
) -> bool {
    let (bytes, rest) = input.split_at((*missing).min(input.len()));
    into.extend_from_slice(bytes);
    *input = rest;
    *missing -= bytes.len();
    *missing == 0
}

/// Returns the timestamp, unless it is -1.0, which means the same as none. Spec: lsl-protocol §9.2.
pub(in crate::wire) fn explicit(timestamp: f64) -> Option<f64> {
    (timestamp != DEDUCED_TIMESTAMP).then_some(timestamp)
}

/// Checks the length of a string that may follow `held` bytes of its sample.
pub(in crate::wire) fn admit_string(len: u64, held: usize, limits: &DecodeLimits) -> Result<usize> {
    let len = usize::try_from(len)
        .ok()
        .filter(|len| *len <= limits.string_bytes)
        .ok_or_else(|| too_large("string", limits.string_bytes))?;
    let total = held.saturating_add(8).saturating_add(len);
    if total <= limits.sample_bytes {
        Ok(len)
    } else {
        Err(too_large("sample", limits.sample_bytes))
    }
}

pub(in crate::wire) fn too_large(what: &str, limit: usize) -> Error {
    Error::Protocol(format!("{what} larger than {limit} bytes"))
}

/// Replaces magnitudes below the smallest normal number by zero; the sign stays.
fn suppress_subnormals(format: ChannelFormat, raw: &mut [u8]) {
    if format == ChannelFormat::Float32 {
        for value in raw.as_chunks_mut::<4>().0 {
            let bits = u32::from_ne_bytes(*value);
            let flushed = if bits & 0x7f80_0000 == 0 {
                bits & 0x8000_0000
            } else {
                bits
            };
            *value = flushed.to_ne_bytes();
        }
    } else {
        for value in raw.as_chunks_mut::<8>().0 {
            let bits = u64::from_ne_bytes(*value);
            let flushed = if bits & (0x7ff << 52) == 0 {
                bits & (1 << 63)
            } else {
                bits
            };
            *value = flushed.to_ne_bytes();
        }
    }
}

/// Memory that a text decoder keeps between samples, in bytes.
pub(in crate::wire) const KEPT_CAPACITY: usize = 1 << 20;
