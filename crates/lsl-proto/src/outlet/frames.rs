//! Samples of one stream as frames of protocol 1.10, apart from any connection: as an outlet keeps them, and as
//! whoever stores them reads and writes them. Spec: relay §9, §12.

use crate::value::RawSamples;
use crate::wire::sample110::{Decoder110, Encoder110, TimestampDeducer};
use crate::{ByteOrder, Error, Result, StreamInfo};

/// Samples that follow each other without a gap, as frames in the byte order of this host. The first transmits its
/// timestamp.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Frames {
    /// Sequence number of the first sample.
    pub first: u64,
    /// Number of samples.
    pub count: u64,
    /// The frames.
    pub bytes: Vec<u8>,
}

impl Frames {
    /// Returns the sequence number after the last sample.
    pub fn end(&self) -> u64 {
        self.first + self.count
    }

    /// Returns the samples from the number `next` on.
    ///
    /// # Errors
    /// [`Error::Protocol`] for bytes that are no frames.
    pub fn starting_at(&self, next: u64, codec: &FrameCodec) -> Result<Self> {
        let (mut stamps, mut values) = (Vec::new(), Vec::new());
        codec.decode(self, &mut stamps, &mut values)?;
        let skipped = next.saturating_sub(self.first).min(self.count);
        let index = usize::try_from(skipped).unwrap_or(usize::MAX);
        let info = &codec.info;
        let shape = (info.channel_format(), info.channel_count() as usize);
        let samples = RawSamples::new(&values, shape.0, shape.1, stamps.len())?;
        let dropped: usize = samples.take(index).map(<[u8]>::len).sum();
        let mut rest = Self {
            first: self.first + skipped,
            ..Self::default()
        };
        let stamps = stamps.get(index..).unwrap_or_default();
        codec.encode(stamps, values.get(dropped..).unwrap_or_default(), &mut rest)?;
        Ok(rest)
    }
}

/// Converts the samples of one stream from and to frames.
#[derive(Debug, Clone)]
pub struct FrameCodec {
    info: StreamInfo,
    encoder: Encoder110,
}

impl FrameCodec {
    /// Creates the codec of a stream.
    pub fn new(info: &StreamInfo) -> Self {
        let (format, channels) = (info.channel_format(), info.channel_count());
        Self {
            encoder: Encoder110::new(format, channels, ByteOrder::NATIVE),
            info: info.clone(),
        }
    }

    /// Appends the timestamps of samples, as a receiver computes them, and their values in the raw layout of
    /// [`value`](crate::value).
    ///
    /// # Errors
    /// [`Error::Protocol`] for bytes that are no frames, or not so many; some may be appended then.
    pub fn decode(
        &self,
        frames: &Frames,
        stamps: &mut Vec<f64>,
        values: &mut Vec<u8>,
    ) -> Result<()> {
        let info = &self.info;
        let (format, channels) = (info.channel_format(), info.channel_count());
        let mut decoder = Decoder110::new(format, channels, ByteOrder::NATIVE);
        let mut deducer = TimestampDeducer::new(info.nominal_srate());
        let mut count = 0;
        decoder.decode(&frames.bytes, &mut |stamp: Option<f64>, raw: &[u8]| {
            stamps.push(deducer.next(stamp));
            values.extend_from_slice(raw);
            count += 1;
        })?;
        if count != frames.count || !decoder.is_between_samples() {
            return Err(Error::Protocol(format!(
                "{count} whole samples where {} are expected",
                frames.count
            )));
        }
        Ok(())
    }

    /// Replaces the bytes and the count of `frames` by samples with these timestamps, all of which are transmitted;
    /// `values` are in the raw layout of [`value`](crate::value).
    ///
    /// # Errors
    /// [`Error::Argument`] if `values` are not so many samples of this stream.
    pub fn encode(&self, stamps: &[f64], values: &[u8], frames: &mut Frames) -> Result<()> {
        let (format, channels) = (self.info.channel_format(), self.info.channel_count());
        let samples = RawSamples::new(values, format, channels as usize, stamps.len())?;
        frames.bytes.clear();
        frames.count = stamps.len() as u64;
        for (stamp, sample) in stamps.iter().zip(samples) {
            self.encoder.encode_raw(&mut frames.bytes, *stamp, sample)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ChannelFormat;
    use crate::value::append_raw;

    #[test]
    fn what_was_encoded_is_decoded_and_nothing_else_is() {
        for (format, texts) in [
            (ChannelFormat::Int16, ["1", "-2", "3", "4"]),
            (ChannelFormat::String, ["", "a", "bb", "c"]),
        ] {
            let info = StreamInfo::new("a", "", 2, 10.0, format, "a").unwrap();
            let codec = FrameCodec::new(&info);
            let mut raw = Vec::new();
            append_raw(&texts, format, &mut raw);
            let mut frames = Frames::default();
            codec.encode(&[1.5, 2.5], &raw, &mut frames).unwrap();
            let (mut stamps, mut values) = (Vec::new(), Vec::new());
            codec.decode(&frames, &mut stamps, &mut values).unwrap();
            assert_eq!((stamps, values), (vec![1.5, 2.5], raw.clone()));
            for cut in 0..frames.bytes.len() {
                let cut = Frames {
                    bytes: frames.bytes[..cut].to_vec(),
                    ..frames
                };
                let decoded = codec.decode(&cut, &mut Vec::new(), &mut Vec::new());
                assert!(decoded.is_err());
            }
            frames.first = 7;
            assert_eq!(frames.starting_at(7, &codec).unwrap(), frames);
            let rest = frames.starting_at(8, &codec).unwrap();
            let (mut stamps, mut rest_values) = (Vec::new(), Vec::new());
            codec.decode(&rest, &mut stamps, &mut rest_values).unwrap();
            assert_eq!((rest.first, rest.count, stamps), (8, 1, vec![2.5]));
            assert!(raw.ends_with(&rest_values) && !rest_values.is_empty());
            assert!(codec.encode(&[1.5], &raw, &mut frames).is_err());
        }
    }
}
