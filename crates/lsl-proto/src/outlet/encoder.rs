//! Encodes the samples of one push into the wire variants that consumers read.

use std::ops::Range;

use crate::outlet::timestamps::Timestamps;
use crate::value::{PushElement, RawSamples};
use crate::wire::archive100::Encoder100;
use crate::wire::sample110::Encoder110;
use crate::{ByteOrder, Result, StreamInfo};

/// Wire format of a feed. Consumers of one variant share every encoded byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Variant {
    /// Protocol 1.10 in this byte order.
    V110(ByteOrder),
    /// Protocol 1.00, the portable archive.
    V100,
}

impl Variant {
    /// Every variant, at its [`index`](Self::index).
    pub const ALL: [Self; 3] = [
        Self::V110(ByteOrder::Little),
        Self::V110(ByteOrder::Big),
        Self::V100,
    ];

    /// Returns the position in [`ALL`](Self::ALL).
    pub fn index(self) -> usize {
        match self {
            Self::V110(ByteOrder::Little) => 0,
            Self::V110(ByteOrder::Big) => 1,
            Self::V100 => 2,
        }
    }
}

/// Encodes pushes, with buffers that are kept from push to push.
#[derive(Debug)]
pub struct Encoder {
    codecs: [Codec; Variant::ALL.len()],
    channels: usize,
    /// Samples encoded by the last [`encode`](Self::encode).
    pub piece: Piece,
    /// Memory for the timestamps of a chunk.
    pub stamps: Vec<f64>,
}

/// Encoded samples of a push that are handed over together.
#[derive(Debug, Default)]
pub struct Piece {
    /// Samples, one after the other.
    pub bytes: Vec<u8>,
    /// End offset of each sample in `bytes`.
    pub ends: Vec<usize>,
}

#[derive(Debug, Clone, Copy)]
enum Codec {
    V110(Encoder110),
    V100(Encoder100),
}

impl Encoder {
    /// Creates the encoder of a stream.
    pub fn new(info: &StreamInfo) -> Self {
        Self {
            codecs: Variant::ALL.map(|variant| Codec::new(variant, info)),
            channels: info.channel_count() as usize,
            piece: Piece::default(),
            stamps: Vec::new(),
        }
    }

    /// Encodes the next piece of a push for one variant into [`piece`](Self::piece): those of `samples`
    /// that fit into 64 KiB, at least one. Returns the sample that the next piece begins with. `values` are
    /// those of the whole push.
    ///
    /// # Errors
    /// [`Error::Argument`](crate::Error::Argument) for values that the stream's format cannot hold.
    pub fn encode<T: PushElement>(
        &mut self,
        variant: Variant,
        values: &[T],
        stamps: Timestamps<'_>,
        samples: Range<usize>,
    ) -> Result<usize> {
        let (codec, channels) = (&self.codecs[variant.index()], self.channels);
        let Piece { bytes: out, ends } = &mut self.piece;
        if let Codec::V110(encoder) = codec
            && encoder.encode_run(
                &values[samples.start * channels..samples.end * channels],
                |n| stamps.stamp(samples.start + n),
                PIECE_BYTES,
                out,
                ends,
            )
        {
            return Ok(samples.start + ends.len());
        }
        out.clear();
        ends.clear();
        let mut length = 0;
        for at in samples.clone() {
            let sample = &values[at * channels..(at + 1) * channels];
            codec.encode_sample(out, stamps.stamp(at), sample)?;
            let last = out.len() - length;
            length = out.len();
            ends.push(length);
            // The next one, likely as long, would not fit any more.
            if length + last > PIECE_BYTES {
                break;
            }
        }
        Ok(samples.start + ends.len())
    }

    /// Encodes the next piece of samples that are passed on as they came, as [`encode`](Self::encode) does.
    /// `values` begins with the first of `samples`.
    ///
    /// # Errors
    /// [`Error::Argument`](crate::Error::Argument) for samples of another shape than the stream's.
    pub fn encode_raw(
        &mut self,
        variant: Variant,
        values: &mut RawSamples<'_>,
        stamps: Timestamps<'_>,
        samples: Range<usize>,
    ) -> Result<usize> {
        let codec = &self.codecs[variant.index()];
        let Piece { bytes: out, ends } = &mut self.piece;
        out.clear();
        ends.clear();
        for (at, sample) in samples.clone().zip(values) {
            codec.encode_raw(out, stamps.stamp(at), sample)?;
            ends.push(out.len());
            if out.len() >= PIECE_BYTES {
                break;
            }
        }
        Ok(samples.start + ends.len())
    }

    /// Gives back the memory of an exceptionally large push.
    #[inline]
    pub fn trim(&mut self) {
        if self.piece.bytes.capacity() > KEEP_BYTES {
            self.piece.bytes = Vec::new();
        }
        if self.stamps.capacity() * size_of::<f64>() > KEEP_BYTES {
            self.stamps = Vec::new();
        }
    }
}

impl Codec {
    fn new(variant: Variant, info: &StreamInfo) -> Self {
        let (format, channels) = (info.channel_format(), info.channel_count());
        match variant {
            Variant::V110(order) => Self::V110(Encoder110::new(format, channels, order)),
            Variant::V100 => Self::V100(Encoder100::new(format, channels)),
        }
    }

    fn encode_sample<T: PushElement>(
        &self,
        out: &mut Vec<u8>,
        timestamp: f64,
        values: &[T],
    ) -> Result<()> {
        match self {
            Self::V110(encoder) => encoder.encode_sample(out, timestamp, values),
            Self::V100(encoder) => encoder.encode_sample(out, timestamp, values),
        }
    }

    fn encode_raw(&self, out: &mut Vec<u8>, timestamp: f64, raw: &[u8]) -> Result<()> {
        match self {
            Self::V110(encoder) => encoder.encode_raw(out, timestamp, raw),
            Self::V100(encoder) => encoder.encode_raw(out, timestamp, raw),
        }
    }
}

/// Bytes of a push that are encoded and handed over together: what a large chunk takes, and how long
/// the flush task finds the lock taken.
const PIECE_BYTES: usize = if cfg!(lsl_loom) { 16 } else { 64 * 1024 };

/// Encoding space an outlet keeps between pushes.
const KEEP_BYTES: usize = 1 << 20;
