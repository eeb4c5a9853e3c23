//! Decoder from bytes to events. It holds no bytes: it looks at a window that the caller fills, and returns
//! the number of bytes used, or needed at once. Damage is never fatal: it is reported as a [`Problem`], and
//! reading goes on behind the chunk or at the next boundary.
//!
//! A chunk of samples is delivered in batches, so memory does not depend on the length that it claims.
//! Spec: recorder §1, §2.
#![deny(clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod problem;
mod samples;
#[cfg(test)]
mod tests;

use std::collections::HashMap;

use crate::chunk::{BOUNDARY_UUID, Head, MAGIC, Parsed, Tag, read_head, read_varlen};
use crate::markup::MAX_XML_BYTES;
use crate::stream::{FileHeader, StreamFooter, StreamHeader};
use crate::values::Values;
use crate::{Error, Result};

pub use problem::{Problem, ProblemKind};
use samples::{Taken, Track, take};

/// Longest chunk that is read as a whole: XML, and private content.
pub const MAX_WHOLE_BYTES: usize = MAX_XML_BYTES + 4;

/// Longest sample in bytes; longer ones are a problem.
pub const MAX_SAMPLE_BYTES: usize = 64 << 20;

/// Largest number of streams in one file.
pub const MAX_STREAMS: usize = 65_536;

/// Bytes of samples that are delivered as one batch.
const BATCH_BYTES: usize = 256 << 10;

/// Content of a file, piece by piece.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Event {
    /// The header of the file.
    FileHeader(FileHeader),
    /// A stream begins, or is described anew.
    StreamHeader {
        /// Number of the stream in this file.
        stream: u32,
        /// Description of the stream in its header.
        header: StreamHeader,
    },
    /// Samples of a stream whose header came before.
    Samples(Batch),
    /// A measured offset between two clocks.
    ClockOffset {
        /// Number of the stream in this file.
        stream: u32,
        /// Time of the measurement by the stream's clock, in seconds.
        time: f64,
        /// Seconds to add to the stream's clock to get the recorder's.
        value: f64,
    },
    /// A boundary, where readers can resume.
    Boundary,
    /// The footer of a stream that has ended.
    StreamFooter {
        /// Number of the stream in this file.
        stream: u32,
        /// Summary of the data that was recorded.
        footer: StreamFooter,
    },
    /// A chunk of a tag that XDF 1.0 does not know.
    Private {
        /// Number of the tag in the file.
        tag: u16,
        /// Bytes that follow the tag.
        content: Vec<u8>,
    },
    /// The content of a samples chunk of a stream without header; on request only.
    Orphan {
        /// The number of the stream.
        stream: u32,
        /// Bytes that follow that number in the chunk.
        content: Vec<u8>,
    },
    /// Damage at this place; the rest is read nevertheless.
    Problem(Problem),
}

/// Samples of one stream in the order of the file: a chunk, or a part of a long one.
#[derive(Debug, Clone, PartialEq)]
pub struct Batch {
    /// The stream's number in this file.
    pub stream: u32,
    /// Timestamp of each sample, elided ones computed.
    pub stamps: Vec<f64>,
    /// Values of the samples, one sample after the other.
    pub values: Values,
    /// Number of timestamps that stood in the file.
    pub full_stamps: usize,
}

/// Event with the position of its chunk in the file.
#[derive(Debug, Clone)]
pub struct Located {
    /// Bytes from the beginning of the file.
    pub at: u64,
    /// Event at this place of the file.
    pub event: Event,
}

/// Result of one step of the decoder.
#[derive(Debug)]
pub enum DecodeStep {
    /// These many bytes of the window were used; they may make an event.
    Used(usize, Option<Located>),
    /// The window must have at least this many bytes, unless the file ends. Grows with the window, so one
    /// of that size never holds more than twice the bytes that exist.
    Need(usize),
    /// The end of the file.
    End,
}

#[derive(Debug)]
enum DecodeState {
    Magic,
    Head,
    /// Reading a chunk as a whole.
    Whole(Head),
    /// Inside a samples chunk: bytes and samples left.
    Samples {
        stream: u32,
        left: u64,
        samples: u64,
    },
    /// Skipping the rest of a chunk.
    Skip {
        left: u64,
        lost: Problem,
        /// Whether the length is in doubt, so that a boundary inside counts.
        doubtful: bool,
    },
    /// Searching for the next boundary.
    Scan(Problem),
    End,
}

/// State machine that decodes a file window by window.
#[derive(Debug)]
pub struct Decoder {
    position: u64,
    /// Position where the current chunk begins.
    chunk_at: u64,
    /// Position where the last chunk with a known end ended.
    complete: u64,
    state: DecodeState,
    streams: HashMap<u32, Track>,
    keep_orphans: bool,
    needs_magic: bool,
    /// Problem to report before reading goes on.
    pending: Option<Problem>,
}

impl Default for Decoder {
    fn default() -> Self {
        Self::new()
    }
}

impl Decoder {
    /// Creates a decoder at the beginning of a file.
    pub fn new() -> Self {
        Self {
            position: 0,
            chunk_at: 0,
            complete: 0,
            state: DecodeState::Magic,
            streams: HashMap::new(),
            keep_orphans: false,
            needs_magic: true,
            pending: None,
        }
    }

    /// Delivers samples of streams without header as [`Event::Orphan`] instead of a problem alone.
    #[must_use]
    pub fn with_orphans(mut self) -> Self {
        self.keep_orphans = true;
        self
    }

    /// Accepts a file with damage in its first four bytes: that is a problem then, not an error.
    #[must_use]
    pub fn without_magic(mut self) -> Self {
        self.needs_magic = false;
        self
    }

    /// Registers a stream as if its header stood here.
    pub fn declare(&mut self, stream: u32, header: &StreamHeader) {
        self.streams.insert(stream, Track::new(header));
    }

    /// Returns the position in the file of the next byte of the window.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Returns the position where the last chunk with a known end ended, read or skipped. Bytes behind it
    /// are cut.
    pub fn complete_until(&self) -> u64 {
        self.complete
    }

    /// Reads the content of an [`Event::Orphan`], once its stream is [declared](Self::declare). Returns
    /// `None` if it is invalid.
    pub fn adopt(&mut self, stream: u32, content: &[u8]) -> Option<Batch> {
        let Parsed::Done(samples, at) = read_varlen(content) else {
            return None;
        };
        let track = self.streams.get_mut(&stream)?;
        let content = content.get(at..).unwrap_or_default();
        take(track, stream, content, samples, usize::MAX).batch
    }

    /// Reads a piece of `window`, the bytes from [`position`](Self::position) on. `ended` means that
    /// nothing follows the window.
    ///
    /// # Errors
    /// [`Error::NotXdf`] at the very beginning only.
    pub fn step(&mut self, window: &[u8], ended: bool) -> Result<DecodeStep> {
        if let Some(problem) = self.pending.take() {
            return Ok(self.tell(0, Event::Problem(problem)));
        }
        match std::mem::replace(&mut self.state, DecodeState::End) {
            DecodeState::Magic => self.magic(window, ended),
            DecodeState::Head => Ok(self.head(window, ended)),
            DecodeState::Whole(head) => Ok(self.whole(head, window, ended)),
            DecodeState::Samples {
                stream,
                left,
                samples,
            } => Ok(self.samples(stream, left, samples, window, ended)),
            DecodeState::Skip {
                left,
                lost,
                doubtful,
            } => Ok(self.skip(left, lost, doubtful, window, ended)),
            DecodeState::Scan(lost) => Ok(self.scan(lost, window, ended)),
            DecodeState::End => Ok(DecodeStep::End),
        }
    }

    fn used(&mut self, bytes: usize) -> DecodeStep {
        self.position += bytes as u64;
        DecodeStep::Used(bytes, None)
    }

    /// Uses bytes and returns an event about the current chunk.
    fn tell(&mut self, bytes: usize, event: Event) -> DecodeStep {
        self.position += bytes as u64;
        let at = match &event {
            Event::Problem(problem) => problem.at,
            _ => self.chunk_at,
        };
        DecodeStep::Used(bytes, Some(Located { at, event }))
    }

    fn problem(&self, stream: Option<u32>, kind: ProblemKind) -> Problem {
        Problem::new(self.chunk_at, 0, stream, kind)
    }

    fn magic(&mut self, window: &[u8], ended: bool) -> Result<DecodeStep> {
        let Some(magic) = window.first_chunk::<4>() else {
            if ended {
                return Err(Error::NotXdf("it is shorter than the four bytes XDF:"));
            }
            self.state = DecodeState::Magic;
            return Ok(DecodeStep::Need(4));
        };
        if *magic != MAGIC && !self.needs_magic {
            let kind = ProblemKind::Framing("the file does not begin with XDF:");
            self.pending = Some(Problem::new(0, 4, None, kind));
        } else if *magic != MAGIC {
            return Err(Error::NotXdf("it does not begin with XDF:"));
        }
        self.state = DecodeState::Head;
        self.complete = 4;
        Ok(self.used(4))
    }

    fn head(&mut self, window: &[u8], ended: bool) -> DecodeStep {
        self.chunk_at = self.position;
        if ended && window.is_empty() {
            return DecodeStep::End;
        }
        match read_head(window) {
            Parsed::Need(need) => {
                if ended {
                    let lost = self.problem(None, ProblemKind::CutHead);
                    return self.lose(lost);
                }
                self.state = DecodeState::Head;
                DecodeStep::Need(need)
            }
            Parsed::Bad(reason) => {
                let lost = self.problem(None, ProblemKind::Framing(reason));
                self.lose(lost)
            }
            Parsed::Done(head, len) => {
                if head.tag == Tag::Samples {
                    // Read together with the number of the stream.
                    self.samples_head(head, len, window, ended)
                } else if head.content_len > MAX_WHOLE_BYTES as u64 {
                    let kind = ProblemKind::TooLong {
                        tag: head.tag,
                        claimed: head.content_len,
                    };
                    let lost = self.problem(None, kind);
                    self.state = DecodeState::Skip {
                        left: head.content_len,
                        lost,
                        doubtful: true,
                    };
                    self.used(len)
                } else {
                    self.state = DecodeState::Whole(head);
                    self.used(len)
                }
            }
        }
    }

    /// Searches for the next boundary, to go on there.
    fn lose(&mut self, lost: Problem) -> DecodeStep {
        self.state = DecodeState::Scan(lost);
        DecodeStep::Used(0, None)
    }

    /// Ends the current chunk, which was complete.
    fn close(&mut self, end: u64) {
        self.complete = end;
        self.state = DecodeState::Head;
    }

    fn whole(&mut self, head: Head, window: &[u8], ended: bool) -> DecodeStep {
        let len = usize::try_from(head.content_len).unwrap_or(usize::MAX);
        let Some(content) = window.get(..len) else {
            if ended {
                let kind = ProblemKind::Cut {
                    tag: head.tag,
                    claimed: head.content_len,
                    present: window.len() as u64,
                };
                let stream = (head.tag.is_of_stream()).then(|| window.first_chunk::<4>());
                let stream = stream.flatten().map(|id| u32::from_le_bytes(*id));
                let lost = self.problem(stream, kind);
                return self.lose(lost);
            }
            self.state = DecodeState::Whole(head);
            // Never far more than the bytes that exist.
            return DecodeStep::Need(len.min((window.len() * 2).max(4096)));
        };
        // A wrong length leads over readable chunks, up to a boundary that reveals it.
        let leads_over = if head.tag == Tag::Boundary {
            content != BOUNDARY_UUID
        } else {
            find_boundary(content).is_some()
        };
        if leads_over {
            let kind = ProblemKind::Framing("its length is wrong, it leads over a boundary");
            let lost = self.problem(None, kind);
            return self.lose(lost);
        }
        let event = self.interpret(head.tag, content);
        self.close(self.position + len as u64);
        self.tell(len, event)
    }

    /// Interprets a complete chunk other than samples.
    fn interpret(&mut self, tag: Tag, content: &[u8]) -> Event {
        let (stream, rest) = match content.split_first_chunk::<4>() {
            Some((id, rest)) if tag.is_of_stream() => (Some(u32::from_le_bytes(*id)), rest),
            None if tag.is_of_stream() => {
                return self.damaged(None, tag, content, "it is too short");
            }
            _ => (None, content),
        };
        match (tag, stream) {
            (Tag::FileHeader, _) => match FileHeader::parse(rest) {
                Ok((header, flaw)) => {
                    self.pending = flaw.map(|flaw| self.flaw(None, tag, flaw));
                    Event::FileHeader(header)
                }
                Err(reason) => self.damaged(None, tag, content, &reason),
            },
            (Tag::StreamHeader, Some(stream)) => match StreamHeader::parse(rest) {
                Ok((header, flaw)) => {
                    if self.streams.len() >= MAX_STREAMS && !self.streams.contains_key(&stream) {
                        let problem = self.problem(Some(stream), ProblemKind::TooManyStreams);
                        return Event::Problem(self.sized(problem, content.len()));
                    }
                    self.streams.insert(stream, Track::new(&header));
                    self.pending = flaw.map(|flaw| self.flaw(Some(stream), tag, flaw));
                    Event::StreamHeader { stream, header }
                }
                Err(reason) => self.damaged(Some(stream), tag, content, &reason),
            },
            (Tag::ClockOffset, Some(stream)) => {
                let numbers = rest.first_chunk::<16>().map(|bytes| {
                    let (time, value) = bytes.split_at(8);
                    [time, value]
                        .map(|half| half.first_chunk::<8>().map(|n| f64::from_le_bytes(*n)))
                });
                let Some([Some(time), Some(value)]) = numbers else {
                    return self.damaged(Some(stream), tag, content, "it is too short");
                };
                if !self.streams.contains_key(&stream) {
                    let problem = self.problem(Some(stream), ProblemKind::NoHeader { tag });
                    self.pending = Some(self.sized(problem, content.len()));
                }
                Event::ClockOffset {
                    stream,
                    time,
                    value,
                }
            }
            (Tag::StreamFooter, Some(stream)) => match StreamFooter::parse(rest) {
                Ok((footer, flaw)) => {
                    self.pending = if self.streams.contains_key(&stream) {
                        flaw.map(|flaw| self.flaw(Some(stream), tag, flaw))
                    } else {
                        let problem = self.problem(Some(stream), ProblemKind::NoHeader { tag });
                        Some(self.sized(problem, content.len()))
                    };
                    Event::StreamFooter { stream, footer }
                }
                Err(reason) => self.damaged(Some(stream), tag, content, &reason),
            },
            (Tag::Boundary, _) => Event::Boundary,
            (tag, _) => Event::Private {
                tag: tag.code(),
                content: rest.to_vec(),
            },
        }
    }

    /// Sets the length of a problem in the current chunk, with `content` more bytes about to be used.
    fn sized(&self, mut problem: Problem, content: usize) -> Problem {
        problem.len = self.position - self.chunk_at + content as u64;
        problem
    }

    fn damaged(&self, stream: Option<u32>, tag: Tag, content: &[u8], reason: &str) -> Event {
        let reason = reason.to_owned();
        let problem = self.problem(stream, ProblemKind::Unreadable { tag, reason });
        Event::Problem(self.sized(problem, content.len()))
    }

    fn flaw(&self, stream: Option<u32>, tag: Tag, reason: &'static str) -> Problem {
        self.problem(stream, ProblemKind::Flaw { tag, reason })
    }

    fn samples_head(&mut self, head: Head, len: usize, window: &[u8], ended: bool) -> DecodeStep {
        let content = window.get(len..).unwrap_or_default();
        // Nothing is read from behind the chunk, however many bytes are there already.
        let whole = usize::try_from(head.content_len).ok();
        let whole = whole.and_then(|whole| content.get(..whole));
        let content = whole.unwrap_or(content);
        let id = content.first_chunk::<4>().map(|id| u32::from_le_bytes(*id));
        let count = content.get(4..).map_or(Parsed::Need(1), read_varlen);
        let (Some(stream), Parsed::Done(samples, count_len)) = (id, count) else {
            if let (false, None, Parsed::Need(need)) = (ended, whole, count) {
                self.state = DecodeState::Head;
                return DecodeStep::Need(len + 4 + need);
            }
            let kind = match count {
                Parsed::Bad(reason) => ProblemKind::Framing(reason),
                _ if whole.is_some() => {
                    ProblemKind::Framing("samples without room for their number")
                }
                _ => ProblemKind::Cut {
                    tag: Tag::Samples,
                    claimed: head.content_len,
                    present: content.len() as u64,
                },
            };
            let lost = self.problem(id, kind);
            return self.lose(lost);
        };
        let left = head.content_len.saturating_sub(4 + count_len as u64);
        if !self.streams.contains_key(&stream) {
            let fits = head.content_len <= MAX_WHOLE_BYTES as u64;
            if self.keep_orphans && fits {
                return self.orphan(head, len, window, ended);
            }
            let lost = self.problem(Some(stream), ProblemKind::NoHeader { tag: Tag::Samples });
            self.state = DecodeState::Skip {
                left,
                lost,
                doubtful: !fits,
            };
            return self.used(len + 4 + count_len);
        }
        self.state = DecodeState::Samples {
            stream,
            left,
            samples,
        };
        self.used(len + 4 + count_len)
    }

    /// Delivers a whole samples chunk of an unknown stream.
    fn orphan(&mut self, head: Head, len: usize, window: &[u8], ended: bool) -> DecodeStep {
        let end = len + usize::try_from(head.content_len).unwrap_or(usize::MAX - len);
        let Some(content) = window.get(len..end) else {
            if ended {
                let kind = ProblemKind::Cut {
                    tag: Tag::Samples,
                    claimed: head.content_len,
                    present: (window.len() - len) as u64,
                };
                let lost = self.problem(None, kind);
                return self.lose(lost);
            }
            self.state = DecodeState::Head;
            return DecodeStep::Need(end.min((window.len() * 2).max(4096)));
        };
        let (id, content) = content.split_first_chunk::<4>().unwrap_or((&[0; 4], &[]));
        let event = Event::Orphan {
            stream: u32::from_le_bytes(*id),
            content: content.to_vec(),
        };
        self.close(self.position + end as u64);
        self.tell(end, event)
    }

    fn samples(
        &mut self,
        stream: u32,
        left: u64,
        samples: u64,
        window: &[u8],
        ended: bool,
    ) -> DecodeStep {
        let within = usize::try_from(left).unwrap_or(usize::MAX);
        let have = window.len().min(within);
        let resume = DecodeState::Samples {
            stream,
            left,
            samples,
        };
        if samples > 0 && have < within.min(BATCH_BYTES) && !ended {
            self.state = resume;
            return DecodeStep::Need(within.min(BATCH_BYTES));
        }
        let content = window.get(..have).unwrap_or_default();
        let taken = match self.streams.get_mut(&stream) {
            Some(track) => take(track, stream, content, samples, BATCH_BYTES),
            None => Taken::default(),
        };
        if let Some(batch) = taken.batch {
            let left = left - taken.bytes as u64;
            let samples = samples - batch.stamps.len() as u64;
            if taken.guessed {
                let kind = ProblemKind::StampsGuessed;
                self.pending = Some(self.problem(Some(stream), kind));
            }
            self.state = DecodeState::Samples {
                stream,
                left,
                samples,
            };
            if left == 0 && samples == 0 {
                self.close(self.position + taken.bytes as u64);
            }
            return self.tell(taken.bytes, Event::Samples(batch));
        }
        if samples == 0 && left == 0 {
            self.close(self.position);
            return DecodeStep::Used(0, None);
        }
        let kind = if samples == 0 {
            ProblemKind::TrailingBytes
        } else if let Some(reason) = taken.bad {
            ProblemKind::BadSamples { samples, reason }
        } else if have == within {
            let reason = "the chunk ends inside a sample";
            ProblemKind::BadSamples { samples, reason }
        } else if ended {
            ProblemKind::CutSamples { samples }
        } else if have >= MAX_SAMPLE_BYTES {
            let reason = "a sample is too long";
            ProblemKind::BadSamples { samples, reason }
        } else {
            // A sample longer than a batch.
            self.state = resume;
            return DecodeStep::Need(within.min(have * 2).min(MAX_SAMPLE_BYTES));
        };
        if let Some(track) = self.streams.get_mut(&stream) {
            track.broken();
        }
        let mut lost = self.problem(Some(stream), kind);
        lost.at = self.position;
        self.state = DecodeState::Skip {
            left,
            lost,
            doubtful: true,
        };
        DecodeStep::Used(0, None)
    }

    fn skip(
        &mut self,
        left: u64,
        mut lost: Problem,
        doubtful: bool,
        window: &[u8],
        ended: bool,
    ) -> DecodeStep {
        let within = usize::try_from(left).unwrap_or(usize::MAX);
        let have = window.len().min(within);
        let content = window.get(..have).unwrap_or_default();
        if doubtful && let Some(end) = find_boundary(content) {
            return self.found(lost, end);
        }
        if have == within {
            lost.len = self.position + have as u64 - lost.at;
            self.close(self.position + have as u64);
            return self.tell(have, Event::Problem(lost));
        }
        if ended {
            lost.len = self.position + have as u64 - lost.at;
            lost.kind = lost.kind.cut(left - have as u64);
            return self.tell(have, Event::Problem(lost));
        }
        // A boundary may begin in the bytes kept.
        let keep = if doubtful { BOUNDARY_UUID.len() - 1 } else { 0 };
        let done = have.saturating_sub(keep);
        self.state = DecodeState::Skip {
            left: left - done as u64,
            lost,
            doubtful,
        };
        if done == 0 {
            return DecodeStep::Need(within.min(BOUNDARY_UUID.len().max(have + 1)));
        }
        self.used(done)
    }

    fn scan(&mut self, mut lost: Problem, window: &[u8], ended: bool) -> DecodeStep {
        if let Some(end) = find_boundary(window) {
            return self.found(lost, end);
        }
        if ended {
            lost.len = self.position + window.len() as u64 - lost.at;
            return self.tell(window.len(), Event::Problem(lost));
        }
        let done = window.len().saturating_sub(BOUNDARY_UUID.len() - 1);
        self.state = DecodeState::Scan(lost);
        if done == 0 {
            return DecodeStep::Need(BOUNDARY_UUID.len());
        }
        self.used(done)
    }

    /// Resumes reading behind a boundary, `end` bytes from here.
    fn found(&mut self, mut lost: Problem, end: usize) -> DecodeStep {
        for track in self.streams.values_mut() {
            track.broken();
        }
        lost.len = self.position + end as u64 - lost.at;
        lost.resumed = true;
        self.close(self.position + end as u64);
        self.tell(end, Event::Problem(lost))
    }
}

/// Returns the end of the first boundary.
fn find_boundary(bytes: &[u8]) -> Option<usize> {
    let [first, ..] = BOUNDARY_UUID;
    let mut from = 0;
    while let Some(rest) = bytes.get(from..) {
        let at = from + rest.iter().position(|&byte| byte == first)?;
        if bytes.get(at..)?.starts_with(&BOUNDARY_UUID) {
            return Some(at + BOUNDARY_UUID.len());
        }
        from = at + 1;
    }
    None
}
