//! The receiving end of one data connection: request out, then response, test patterns and samples
//! in, whatever the boundaries of the reads. Spec: lsl-protocol §7, §8, §9.2.

use super::ring::SampleRing;
use crate::wire::archive100::Decoder100;
use crate::wire::request::FeedRequest;
use crate::wire::response::{DataProtocol, FeedError, FeedResponse, ResponseParser};
use crate::wire::sample110::{Decoder110, TimestampDeducer};
use crate::wire::testpattern::PatternCheck;
use crate::{ByteOrder, Error, Result, StreamInfo};

/// Terms that an inlet asks of a feed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FeedOptions {
    /// Our protocol version (110, or what the configuration lowers it to).
    pub version: u32,
    /// Samples the outlet may hold back for us.
    pub max_buffer_samples: u32,
    /// Samples the outlet shall send together; 0 leaves it to the outlet.
    pub max_chunk_samples: u32,
}

/// Progress of a data connection through its handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FeedState {
    /// The handshake is not complete.
    Opening,
    /// The test patterns were right: everything from here on is samples.
    Established,
}

/// One data connection, without its socket. After an error it is of no further use.
#[derive(Debug)]
pub struct FeedDecoder {
    request: Vec<u8>,
    stage: Stage,
    patterns: PatternCheck,
    deducer: TimestampDeducer,
    info: StreamInfo,
    samples: u64,
}

#[derive(Debug)]
enum Stage {
    Response(ResponseParser),
    V110(Decoder110),
    V100 {
        decoder: Decoder100,
        uid_checked: bool,
    },
}

impl FeedDecoder {
    /// A session with the outlet that `info` describes. The shape of the samples (format, channels)
    /// and the nominal rate are those of `info`.
    pub fn new(info: &StreamInfo, terms: FeedOptions) -> Self {
        let (format, channels) = (info.channel_format(), info.channel_count());
        let version = terms.version.min(info.version());
        let request = FeedRequest {
            version,
            uid: info.uid_bytes(),
            byte_order: ByteOrder::NATIVE,
            format,
            max_buffer_samples: terms.max_buffer_samples,
            max_chunk_samples: terms.max_chunk_samples,
            hostname: info.hostname_bytes(),
            source_id: info.source_id_bytes(),
            session_id: info.session_id_bytes(),
            replay_from: None,
        };
        let stage = if request.expects_response() {
            let parser =
                ResponseParser::new(terms.version, info.uid_bytes(), format, ByteOrder::NATIVE);
            Stage::Response(parser)
        } else {
            Stage::archive(info)
        };
        Self {
            request: request.to_bytes(),
            stage,
            patterns: PatternCheck::new(format, channels),
            deducer: TimestampDeducer::new(info.nominal_srate()),
            info: info.clone(),
            samples: 0,
        }
    }

    /// The bytes to send first.
    pub fn request(&self) -> &[u8] {
        &self.request
    }

    /// Rate of the stream in samples per second.
    pub fn nominal_srate(&self) -> f64 {
        self.info.nominal_srate()
    }

    /// Returns the number of samples received on this connection.
    pub fn samples(&self) -> u64 {
        self.samples
    }

    /// Takes bytes as they arrive and puts complete samples into `ring`.
    ///
    /// # Errors
    /// Anything the outlet may not send, and its refusals. Close the connection.
    pub fn receive(&mut self, mut bytes: &[u8], ring: &mut SampleRing) -> Result<FeedState> {
        if let Stage::Response(parser) = &mut self.stage {
            match parser.feed(bytes)? {
                None => return Ok(FeedState::Opening),
                Some((response, consumed)) => {
                    bytes = bytes.get(consumed..).unwrap_or_default();
                    self.stage = Stage::samples(response, &self.info);
                }
            }
        }
        let missing = self.patterns.missing();
        if missing > 0 {
            match &mut self.stage {
                Stage::V110(decoder) => {
                    decoder.decode_up_to(missing, &mut bytes, &mut self.patterns)?;
                }
                Stage::V100 {
                    decoder,
                    uid_checked,
                } => {
                    // With 0 samples asked for, only the stream info is read.
                    decoder.decode_up_to(0, &mut bytes, &mut self.patterns)?;
                    if let (Some(shortinfo), false) = (decoder.shortinfo(), *uid_checked) {
                        if StreamInfo::from_xml(shortinfo)?.uid_bytes() != self.info.uid_bytes() {
                            return Err(FeedError::NotFound.into());
                        }
                        *uid_checked = true;
                    }
                    decoder.decode_up_to(missing, &mut bytes, &mut self.patterns)?;
                }
                Stage::Response(_) => return Ok(FeedState::Opening),
            }
            if !self.patterns.matched() {
                return Err(Error::Protocol("the test patterns do not match".into()));
            }
            if self.patterns.missing() > 0 {
                return Ok(FeedState::Opening);
            }
        }
        let Self {
            deducer, samples, ..
        } = self;
        let mut sink = |timestamp: Option<f64>, raw: &[u8]| {
            ring.push(deducer.next(timestamp), raw);
            *samples += 1;
        };
        match &mut self.stage {
            Stage::V110(decoder) => decoder.decode(bytes, &mut sink)?,
            Stage::V100 { decoder, .. } => decoder.decode(bytes, &mut sink)?,
            Stage::Response(_) => 0,
        };
        Ok(FeedState::Established)
    }

    /// The outlet closed the connection: why, as far as can be told.
    pub fn end(self) -> Error {
        match self.stage {
            Stage::Response(parser) => parser.finish().into(),
            _ if self.patterns.missing() > 0 => FeedError::Closed.into(),
            _ => Error::Protocol("the outlet closed the connection".into()),
        }
    }
}

impl Stage {
    fn samples(response: FeedResponse, info: &StreamInfo) -> Self {
        match response.data_protocol {
            DataProtocol::V110 => {
                let (format, channels) = (info.channel_format(), info.channel_count());
                let decoder = Decoder110::new(format, channels, response.byte_order);
                Self::V110(decoder.with_subnormals_suppressed(response.suppress_subnormals))
            }
            DataProtocol::V100 => Self::archive(info),
        }
    }

    fn archive(info: &StreamInfo) -> Self {
        let decoder = Decoder100::new(info.channel_format(), info.channel_count());
        Self::V100 {
            decoder,
            uid_checked: false,
        }
    }
}

#[cfg(test)]
mod tests;
