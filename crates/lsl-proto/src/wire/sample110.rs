//! Samples as protocol 1.10 frames them: a tag, perhaps a timestamp, the values, nothing else.
//!
//! The encoder takes the caller's values in one conversion pass; the decoder takes bytes cut
//! anywhere and hands complete samples to a sink, straight out of the input where it can.
//! Spec: lsl-protocol §7.5. Byte order and subnormals are negotiated elsewhere (`negotiate`).

mod decode;
#[cfg(test)]
mod tests;

use super::sequence::Gap;
use super::testpattern;
use crate::value::{PushElement, RawStrings, append_numbers, raw_sample_len, write_numbers};
use crate::{ByteOrder, ChannelFormat, DEDUCED_TIMESTAMP, Error, Result};

pub use decode::Decoder110;
pub(super) use decode::{KEPT_CAPACITY, admit_string, explicit, take_byte, take_bytes, too_large};

/// Tag of a sample without a timestamp; readers take every other value as "timestamp follows".
const TAG_DEDUCED: u8 = 1;
const TAG_TRANSMITTED: u8 = 2;

/// Receiver of the complete samples of a decoder.
pub trait SampleSink {
    /// Receives one sample. `timestamp` is in seconds of the sender's clock, `None` if it is to be
    /// deduced ([`TimestampDeducer`]); `raw` holds the values in the raw layout of [`crate::value`].
    fn sample(&mut self, timestamp: Option<f64>, raw: &[u8]);

    /// Receives a gap before the next sample. Only granted feeds have gaps, and who decodes one counts:
    /// the decoder does not know the number of a sample.
    ///
    /// # Errors
    /// Those of the receiver, as [`Gap::lost`]; they end the decoding.
    fn gap(&mut self, _gap: Gap) -> Result<()> {
        Ok(())
    }
}

impl<F: FnMut(Option<f64>, &[u8])> SampleSink for F {
    fn sample(&mut self, timestamp: Option<f64>, raw: &[u8]) {
        self(timestamp, raw);
    }
}

/// Limits on the memory that a peer may make a decoder hold, in bytes. It grows only as bytes
/// arrive. Spec: lsl-protocol §15.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DecodeLimits {
    /// Longest string value; 256 MiB unless told.
    pub string_bytes: usize,
    /// Largest sample in the raw layout; 512 MiB unless told.
    pub sample_bytes: usize,
    /// Longest stream info at the head of a 1.00 feed; 64 MiB unless told.
    pub shortinfo_bytes: usize,
}

impl Default for DecodeLimits {
    fn default() -> Self {
        const MIB: usize = 1 << 20;
        Self {
            string_bytes: 256 * MIB,
            sample_bytes: 512 * MIB,
            shortinfo_bytes: 64 * MIB,
        }
    }
}

/// Gives deduced samples their timestamps: the previous one plus the nominal interval, summed
/// stepwise as liblsl does, counting from 0.0. Spec: lsl-protocol §9.2.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TimestampDeducer {
    last: f64,
    interval_secs: f64,
}

impl TimestampDeducer {
    /// Creates a deducer for a new connection to a stream of this nominal rate in Hz; 0 = irregular.
    pub fn new(nominal_srate: f64) -> Self {
        let interval_secs = if nominal_srate == 0.0 {
            0.0
        } else {
            1.0 / nominal_srate
        };
        Self {
            last: 0.0,
            interval_secs,
        }
    }

    /// Returns the timestamp of the last sample; 0.0 before the first.
    #[inline]
    pub fn last(&self) -> f64 {
        self.last
    }

    /// Goes on after a sample of an earlier connection. Spec: resume §4.2.
    pub fn resume(&mut self, last: f64) {
        self.last = last;
    }

    /// Returns the timestamp of the next sample, given the received one.
    pub fn next(&mut self, received: Option<f64>) -> f64 {
        self.last = received
            .filter(|timestamp| *timestamp != DEDUCED_TIMESTAMP)
            .unwrap_or(self.last + self.interval_secs);
        self.last
    }
}

/// Reads and writes the timestamps of encoded samples. Spec: resume §4.2.
#[derive(Debug, Clone, Copy)]
pub struct Restamper {
    order: ByteOrder,
    interval_secs: f64,
}

impl Restamper {
    /// Creates one for frames of this byte order, of a stream of this nominal rate in Hz as receivers read it.
    pub fn new(order: ByteOrder, nominal_srate: f64) -> Self {
        let TimestampDeducer { interval_secs, .. } = TimestampDeducer::new(nominal_srate);
        Self {
            order,
            interval_secs,
        }
    }

    /// Returns the timestamp that a frame transmits.
    pub fn transmitted(&self, frame: &[u8]) -> Option<f64> {
        let (&tag, rest) = frame.split_first()?;
        let bytes = rest.first_chunk().filter(|_| tag != TAG_DEDUCED)?;
        explicit(match self.order {
            ByteOrder::Little => f64::from_le_bytes(*bytes),
            ByteOrder::Big => f64::from_be_bytes(*bytes),
        })
    }

    /// Returns the timestamp so many deduced samples after one of timestamp `last`, summed stepwise as receivers do.
    pub fn steps(&self, last: f64, samples: u64) -> f64 {
        (0..samples).fold(last, |last, _| last + self.interval_secs)
    }

    /// Returns the timestamp so many samples after one of timestamp `last`, none of which transmits its own.
    #[expect(clippy::cast_precision_loss, reason = "it is only as good as the rate")]
    pub fn after(&self, last: f64, samples: u64) -> f64 {
        last + samples as f64 * self.interval_secs
    }

    /// Appends `frame` with a transmitted timestamp.
    pub fn restamp(&self, frame: &[u8], stamp: f64, out: &mut Vec<u8>) {
        let head = match frame.first() {
            Some(&TAG_DEDUCED) => 1,
            _ => STAMPED_HEAD,
        };
        out.push(TAG_TRANSMITTED);
        out.extend_from_slice(&match self.order {
            ByteOrder::Little => stamp.to_le_bytes(),
            ByteOrder::Big => stamp.to_be_bytes(),
        });
        out.extend_from_slice(frame.get(head..).unwrap_or_default());
    }
}

/// Appends samples of one stream, for peers that negotiated one byte order.
///
/// Stateless: samples of several threads may be encoded with copies of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Encoder110 {
    format: ChannelFormat,
    channels: usize,
    order: ByteOrder,
}

impl Encoder110 {
    /// Creates an encoder for a stream of this shape. `order` is the order of everything in the
    /// feed, timestamps and string lengths included (Q10 is settled by the negotiation).
    pub const fn new(format: ChannelFormat, channels: u32, order: ByteOrder) -> Self {
        Self {
            format,
            channels: channels as usize,
            order,
        }
    }

    /// Appends one sample, converting `values` (one per channel) to the stream's format.
    /// A `timestamp` of exactly -1.0 is sent as "to be deduced". Spec: lsl-protocol §9.1.
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
        self.append_stamp(out, timestamp);
        self.append_values(out, values);
        Ok(())
    }

    /// Encodes numeric samples (sample-major) up to `most_bytes`, at least one. Replaces the contents of
    /// `out`, and of `ends` by the end of each. `stamp` returns the timestamp of each, counted from the
    /// first. Returns false and changes nothing if samples of this stream differ in length.
    pub fn encode_run<T: PushElement>(
        &self,
        values: &[T],
        stamp: impl Fn(usize) -> f64,
        most_bytes: usize,
        out: &mut Vec<u8>,
        ends: &mut Vec<usize>,
    ) -> bool {
        let longest = self.sample_len(false);
        let Some(longest) = longest.filter(|_| self.channels > 0) else {
            return false;
        };
        // Making room once, instead of for each value, is most of the saving.
        let most = (most_bytes / longest).max(1);
        let samples = values.chunks_exact(self.channels).take(most);
        let room = samples.len() * longest;
        if out.len() < room {
            make_room(out, room);
        }
        ends.clear();
        ends.reserve(samples.len());
        let mut end = 0;
        for (n, sample) in samples.enumerate() {
            end += self.write_sample(out.split_at_mut(end).1, stamp(n), sample);
            ends.push(end);
        }
        out.truncate(end);
        true
    }

    /// Writes a numeric sample to the beginning of `out`, which has room for it. Returns its length.
    #[inline]
    fn write_sample<T: PushElement>(&self, out: &mut [u8], timestamp: f64, values: &[T]) -> usize {
        let Some((tag, rest)) = out.split_first_mut() else {
            return 0;
        };
        let raw_len = values.len() * self.format.value_size();
        if timestamp == DEDUCED_TIMESTAMP {
            *tag = TAG_DEDUCED;
            write_numbers(values, self.format, self.order, rest);
            return 1 + raw_len;
        }
        *tag = TAG_TRANSMITTED;
        if let Some((stamp, rest)) = rest.split_first_chunk_mut() {
            *stamp = self.stamp_bytes(timestamp);
            write_numbers(values, self.format, self.order, rest);
        }
        STAMPED_HEAD + raw_len
    }

    /// Appends one sample that is already in the raw layout of [`crate::value`].
    ///
    /// # Errors
    /// `Argument` when `raw` is not one sample of this stream; nothing is appended.
    pub fn encode_raw(&self, out: &mut Vec<u8>, timestamp: f64, raw: &[u8]) -> Result<()> {
        check_raw(self.format, self.channels, raw)?;
        self.append_stamp(out, timestamp);
        if self.format == ChannelFormat::String {
            RawStrings::new(raw).for_each(|text| self.append_string(out, text));
        } else {
            let start = out.len();
            out.extend_from_slice(raw);
            if self.order != ByteOrder::NATIVE {
                swap_values(self.format, out.split_at_mut(start).1);
            }
        }
        Ok(())
    }

    /// Appends the two samples that open every feed. Spec: lsl-protocol §7.6.
    pub fn encode_test_patterns(&self, out: &mut Vec<u8>) {
        testpattern::for_each(self.format, self.channels, |raw| {
            // The generator makes samples of exactly this shape.
            let _ = self.encode_raw(out, testpattern::TIMESTAMP, raw);
        });
    }

    /// Returns the bytes of one sample on the wire; `None` for strings.
    pub const fn sample_len(&self, deduced: bool) -> Option<usize> {
        match raw_sample_len(self.format, self.channels) {
            Some(raw) => raw.checked_add(if deduced { 1 } else { STAMPED_HEAD }),
            None => None,
        }
    }

    #[inline]
    fn append_stamp(&self, out: &mut Vec<u8>, timestamp: f64) {
        if timestamp == DEDUCED_TIMESTAMP {
            out.push(TAG_DEDUCED);
            return;
        }
        out.push(TAG_TRANSMITTED);
        out.extend_from_slice(&self.stamp_bytes(timestamp));
    }

    fn stamp_bytes(&self, timestamp: f64) -> [u8; 8] {
        match self.order {
            ByteOrder::Little => timestamp.to_le_bytes(),
            ByteOrder::Big => timestamp.to_be_bytes(),
        }
    }

    fn append_values<T: PushElement>(&self, out: &mut Vec<u8>, values: &[T]) {
        if self.format == ChannelFormat::String {
            let mut scratch = Vec::new();
            for value in values {
                self.append_string(out, value.text(&mut scratch));
            }
        } else {
            append_numbers(values, self.format, self.order, out);
        }
    }

    /// Appends width byte, length and bytes; widths 1, 4 and 8 are written, never 2 (Q7).
    fn append_string(&self, out: &mut Vec<u8>, text: &[u8]) {
        if let Ok(len) = u8::try_from(text.len()) {
            out.extend_from_slice(&[1, len]);
        } else if let Ok(len) = u32::try_from(text.len()) {
            out.push(4);
            out.extend_from_slice(&match self.order {
                ByteOrder::Little => len.to_le_bytes(),
                ByteOrder::Big => len.to_be_bytes(),
            });
        } else {
            let len = text.len() as u64;
            out.push(8);
            out.extend_from_slice(&match self.order {
                ByteOrder::Little => len.to_le_bytes(),
                ByteOrder::Big => len.to_be_bytes(),
            });
        }
        out.extend_from_slice(text);
    }
}

/// Extends a buffer that a log may keep: not beyond `room`.
#[inline(never)]
fn make_room(out: &mut Vec<u8>, room: usize) {
    out.reserve_exact(room - out.len());
    out.resize(room, 0);
}

/// Refuses bytes that are not one raw sample of a stream of this shape.
pub(super) fn check_raw(format: ChannelFormat, channels: usize, raw: &[u8]) -> Result<()> {
    let fits = match raw_sample_len(format, channels) {
        Some(len) if format != ChannelFormat::String => len == raw.len(),
        _ => {
            let mut strings = RawStrings::new(raw);
            strings.by_ref().take(channels).count() == channels && strings.rest().is_empty()
        }
    };
    if fits {
        return Ok(());
    }
    Err(Error::Argument(format!(
        "{} bytes are not one sample of {channels} {format} channels",
        raw.len()
    )))
}

pub(super) fn wrong_count(values: usize, channels: usize) -> Error {
    Error::Argument(format!(
        "{values} values do not fit a stream of {channels} channels"
    ))
}

/// Reverses the bytes of every value of a numeric sample.
fn swap_values(format: ChannelFormat, raw: &mut [u8]) {
    match format.value_size() {
        2 => reverse_each::<2>(raw),
        4 => reverse_each::<4>(raw),
        8 => reverse_each::<8>(raw),
        _ => {}
    }
}

fn reverse_each<const N: usize>(raw: &mut [u8]) {
    raw.as_chunks_mut::<N>()
        .0
        .iter_mut()
        .for_each(|value| value.reverse());
}

/// Bytes of tag and timestamp together.
const STAMPED_HEAD: usize = 9;
