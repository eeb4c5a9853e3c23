//! The receiving end of one data connection: request out, then response, test patterns and samples
//! in, whatever the boundaries of the reads. Spec: lsl-protocol §7, §8, §9.2.

use super::byte_queue::ByteQueue;
use super::resumption::{Asked, Numbering};
use super::ring::SampleRing;
use crate::wire::archive100::Decoder100;
use crate::wire::request::FeedRequest;
use crate::wire::response::{DataProtocol, FeedError, FeedResponse, ResponseParser};
use crate::wire::sample110::{Decoder110, SampleSink, TimestampDeducer};
use crate::wire::sequence::{Gap, Granted, ReplayFrom};
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
    info: StreamInfo,
    asked: Option<Asked>,
    received: Received,
    /// Replay for which the ring had no room.
    held: ByteQueue,
    /// Whether all that comes is samples for which nothing waits.
    is_live: bool,
}

/// Samples received so far.
#[derive(Debug)]
struct Received {
    samples: u64,
    deducer: TimestampDeducer,
    /// Of a granted feed.
    numbering: Option<Numbering>,
    /// Whether a granted feed has something that it may not have, or numbers that it may not have.
    is_contradictory: bool,
}

/// Receiver of the next ones.
struct Sink<'a> {
    ring: &'a mut SampleRing,
    received: &'a mut Received,
}

impl SampleSink for Sink<'_> {
    #[expect(
        clippy::inline_always,
        reason = "counted: as a call in the decoder's loop it takes 24 more instructions a sample"
    )]
    #[inline(always)]
    fn sample(&mut self, timestamp: Option<f64>, raw: &[u8]) {
        self.ring.push(self.received.deducer.next(timestamp), raw);
        self.received.samples += 1;
    }

    #[cold]
    fn gap(&mut self, gap: Gap) -> Result<()> {
        let received = &mut *self.received;
        let Some(numbering) = &mut received.numbering else {
            return Ok(());
        };
        numbering.skip(gap, received.samples, received.deducer.last())
    }
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
        Self::asking(info, terms, None)
    }

    /// As [`new`](Self::new), for a feed that begins where `asked` says, if the outlet grants it. Spec: resume §2.
    pub fn asking(info: &StreamInfo, terms: FeedOptions, asked: Option<Asked>) -> Self {
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
            replay_from: asked.map(|asked| asked.from),
        };
        let stage = if request.expects_response() {
            let parser =
                ResponseParser::new(terms.version, info.uid_bytes(), format, ByteOrder::NATIVE);
            Stage::Response(parser.with_replay_from(request.replay_from))
        } else {
            Stage::archive(info)
        };
        Self {
            request: request.to_bytes(),
            stage,
            patterns: PatternCheck::new(format, channels),
            info: info.clone(),
            asked,
            received: Received {
                samples: 0,
                deducer: TimestampDeducer::new(info.nominal_srate()),
                numbering: None,
                is_contradictory: false,
            },
            held: ByteQueue::default(),
            is_live: false,
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
        self.received.samples
    }

    /// Returns the numbers of the feed, if it was granted.
    pub fn granted(&self) -> Option<&Granted> {
        (self.received.numbering.as_ref()).map(|numbering| &numbering.granted)
    }

    pub(super) fn numbering(&mut self) -> Option<&mut Numbering> {
        self.received.numbering.as_mut()
    }

    /// Returns the stamp of the last sample, in seconds of the outlet's clock.
    #[inline]
    pub(super) fn last_stamp(&self) -> f64 {
        self.received.deducer.last()
    }

    /// Returns whether the next sample is replay, for which the socket may wait. Spec: resume §5.4.
    #[inline]
    pub fn is_replaying(&self) -> bool {
        self.received.replay_left() > 0
    }

    /// Returns whether the live edge is reached: nothing waits for room in the ring, now or later.
    #[inline]
    pub fn is_live(&self) -> bool {
        self.is_live
    }

    /// Returns whether bytes that were received wait for room in the ring.
    #[inline]
    pub fn has_held(&self) -> bool {
        self.held.len() > 0
    }

    /// Returns the number of these bytes.
    pub fn held_bytes(&self) -> usize {
        self.held.len()
    }

    /// Returns whether what comes is samples.
    pub(super) fn is_established(&self) -> bool {
        let is_over = !matches!(self.stage, Stage::Response(_)) && self.patterns.missing() == 0;
        is_over && self.patterns.matched()
    }

    /// Returns whether a granted feed cannot be asked for what comes next: its numbers contradict each other or what
    /// was asked, or it has what no feed may have, which would come again.
    pub(super) fn is_contradictory(&self) -> bool {
        self.received.is_contradictory
    }

    /// Takes bytes as they arrive and puts complete samples into `ring`. Replay never makes it drop any: what
    /// finds no room waits for the next call.
    ///
    /// # Errors
    /// Anything the outlet may not send, and its refusals. Close the connection.
    #[inline]
    pub fn receive(&mut self, bytes: &[u8], ring: &mut SampleRing) -> Result<FeedState> {
        let taken = self.take(bytes, ring);
        if taken.is_err() {
            self.received.is_contradictory |= self.received.numbering.is_some();
        }
        taken
    }

    #[inline]
    fn take(&mut self, bytes: &[u8], ring: &mut SampleRing) -> Result<FeedState> {
        if self.is_live {
            return self.decode(bytes, ring);
        }
        if self.has_held() {
            return self.receive_behind_held(bytes, ring);
        }
        let (state, left) = self.begin(bytes, ring)?;
        if !left.is_empty() {
            self.held.extend(left);
        }
        Ok(state)
    }

    /// Does the work of [`receive`](Self::receive) for bytes that come after others.
    #[cold]
    fn receive_behind_held(&mut self, bytes: &[u8], ring: &mut SampleRing) -> Result<FeedState> {
        self.held.extend(bytes);
        if self.is_replaying() && ring.room() == 0 {
            return Ok(FeedState::Established);
        }
        let mut held = std::mem::take(&mut self.held);
        let (state, left) = self.begin(held.as_slice(), ring)?;
        let left = left.len();
        if left > 0 {
            held.consume(held.len() - left);
            self.held = held;
        }
        Ok(state)
    }

    /// Takes bytes before the live edge: of the response, the test patterns and replay. Returns those for which the
    /// ring has no room.
    #[cold]
    fn begin<'a>(
        &mut self,
        mut bytes: &'a [u8],
        ring: &mut SampleRing,
    ) -> Result<(FeedState, &'a [u8])> {
        if let Stage::Response(parser) = &mut self.stage {
            let response = parser.feed(bytes).inspect_err(|error| {
                self.received.is_contradictory = matches!(error, FeedError::Sequence(_));
            });
            match response? {
                None => return Ok((FeedState::Opening, &[])),
                Some((response, consumed)) => {
                    bytes = bytes.get(consumed..).unwrap_or_default();
                    self.stage = Stage::samples(response, &self.info);
                    self.number(response.granted);
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
                Stage::Response(_) => return Ok((FeedState::Opening, &[])),
            }
            if !self.patterns.matched() {
                return Err(Error::Protocol("the test patterns do not match".into()));
            }
            if self.patterns.missing() > 0 {
                return Ok((FeedState::Opening, &[]));
            }
        }
        if self.is_replaying() {
            bytes = self.replay(bytes, ring)?;
            if self.is_replaying() {
                return Ok((FeedState::Established, bytes));
            }
        }
        self.is_live = true;
        Ok((self.decode(bytes, ring)?, &[]))
    }

    #[inline]
    fn decode(&mut self, bytes: &[u8], ring: &mut SampleRing) -> Result<FeedState> {
        let received = &mut self.received;
        let mut sink = Sink { ring, received };
        match &mut self.stage {
            Stage::V110(decoder) => decoder.decode(bytes, &mut sink)?,
            Stage::V100 { decoder, .. } => decoder.decode(bytes, &mut sink)?,
            Stage::Response(_) => 0,
        };
        Ok(FeedState::Established)
    }

    /// Numbers the samples of a feed, if it is granted. Stamps are deduced from the last one received before if no
    /// sample is between. Spec: resume §4.2.
    fn number(&mut self, granted: Option<Granted>) {
        self.received.numbering = granted.map(Numbering::new);
        if let Some((granted, asked)) = granted.zip(self.asked)
            && let ReplayFrom::At(position, _) = asked.from
            && granted.lost_since(&position) == Some(0)
        {
            self.received.deducer.resume(asked.last_stamp);
        }
    }

    /// Decodes replay while the ring has room. Returns the bytes for which it has none, or which are not replay.
    fn replay<'a>(&mut self, mut bytes: &'a [u8], ring: &mut SampleRing) -> Result<&'a [u8]> {
        while !bytes.is_empty() && self.is_replaying() {
            let room = ring.room();
            let Stage::V110(decoder) = &mut self.stage else {
                break;
            };
            if room == 0 {
                break;
            }
            let most = room.min(usize::try_from(self.received.replay_left()).unwrap_or(usize::MAX));
            let received = &mut self.received;
            decoder.decode_up_to(most, &mut bytes, &mut Sink { ring, received })?;
        }
        Ok(bytes)
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

impl Received {
    /// Returns the number of samples to come before the live edge.
    #[inline]
    fn replay_left(&self) -> u64 {
        (self.numbering.as_ref()).map_or(0, |numbering| {
            (numbering.granted.live).saturating_sub(numbering.next(self.samples))
        })
    }
}

impl Stage {
    fn samples(response: FeedResponse, info: &StreamInfo) -> Self {
        match response.data_protocol {
            DataProtocol::V110 => {
                let (format, channels) = (info.channel_format(), info.channel_count());
                let decoder = Decoder110::new(format, channels, response.byte_order);
                let decoder = decoder.with_gaps(response.granted.is_some());
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
