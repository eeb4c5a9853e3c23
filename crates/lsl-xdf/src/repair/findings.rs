//! What a look at a file has found.

use std::collections::BTreeMap;
use std::fmt;

use lsl_proto::ChannelFormat;

use super::Segment;
use super::doubt::Doubts;
use crate::decode::Problem;
use crate::journal::JournalState;
use crate::stream::Tally;

/// Something that somebody who depends on a file should know.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Finding {
    /// Something cannot be read, or not by everybody.
    Problem(Problem),
    /// There is no file header.
    NoFileHeader,
    /// A stream was not closed.
    NoFooter {
        /// The stream.
        stream: u32,
    },
    /// A footer says something else than the samples.
    FooterCount {
        /// The stream.
        stream: u32,
        /// Samples as it says.
        said: u64,
        /// Samples that are there.
        found: u64,
    },
    /// Samples came behind the footer.
    SamplesBehindFooter {
        /// The stream.
        stream: u32,
    },
    /// Timestamps go backwards.
    Backwards {
        /// The stream.
        stream: u32,
        /// How often.
        times: u64,
    },
    /// Timestamps or clock offsets are infinite or no number.
    NotFinite {
        /// The stream.
        stream: u32,
        /// How many.
        times: u64,
    },
    /// There are samples but no clock offsets: they cannot be aligned with other streams.
    NoOffsets {
        /// The stream.
        stream: u32,
    },
    /// A second header; pyxdf forgets what was before it.
    SecondHeader {
        /// The stream.
        stream: u32,
    },
    /// The journal says that more was on the disk than there is now.
    Missing {
        /// The length that had been promised.
        promised: u64,
        /// The length up to which chunks are whole.
        found: u64,
    },
    /// The recorder did not come to its end: there is a journal still.
    Unfinished,
    /// More was found than is listed.
    More,
}

impl Finding {
    /// Whether a repair does something about it.
    pub fn is_repairable(&self) -> bool {
        matches!(
            self,
            Self::Problem(_) | Self::NoFooter { .. } | Self::Unfinished
        )
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Problem(problem) => problem.fmt(f),
            Self::NoFileHeader => f.write_str("there is no file header"),
            Self::NoFooter { stream } => write!(f, "stream {stream} has no footer"),
            Self::FooterCount {
                stream,
                said,
                found,
            } => write!(
                f,
                "stream {stream} has {found} samples, its footer says {said}"
            ),
            Self::SamplesBehindFooter { stream } => {
                write!(f, "stream {stream} has samples behind its footer")
            }
            Self::Backwards { stream, times } => {
                write!(
                    f,
                    "timestamps of stream {stream} go backwards, {times} times"
                )
            }
            Self::NotFinite { stream, times } => {
                write!(
                    f,
                    "{times} timestamps or offsets of stream {stream} are no numbers"
                )
            }
            Self::NoOffsets { stream } => write!(f, "stream {stream} has no clock offsets"),
            Self::SecondHeader { stream } => {
                write!(f, "stream {stream} has more than one header")
            }
            Self::Missing { promised, found } => write!(
                f,
                "{promised} bytes had reached the disk, {found} are there"
            ),
            Self::Unfinished => f.write_str("the recorder did not come to its end"),
            Self::More => f.write_str("and more"),
        }
    }
}

/// A stream as a survey has found it.
#[derive(Debug, Clone)]
pub struct StreamSummary {
    /// Name, at most 200 characters of it.
    pub name: String,
    /// Content type, at most 200 characters of it.
    pub stream_type: String,
    /// What one value is.
    pub format: ChannelFormat,
    /// Values per sample.
    pub channels: usize,
    /// Samples per second as announced.
    pub nominal_srate: f64,
    /// What is in the repaired file of it.
    pub tally: Tally,
    /// Samples that cannot be read: those that damaged chunks claim to hold.
    pub lost_samples: u64,
    /// Whether it has its footer.
    pub has_footer: bool,
}

/// What a look at a file has found.
#[derive(Debug, Clone)]
pub struct Survey {
    /// How many bytes there are.
    pub len: u64,
    /// The streams by number.
    pub streams: BTreeMap<u32, StreamSummary>,
    /// Everything worth telling, the first 10,000.
    pub findings: Vec<Finding>,
    /// Bytes that a repair leaves out.
    pub dropped_bytes: u64,
    /// Boundaries.
    pub boundaries: u64,
    pub(crate) segments: Vec<Segment>,
    pub(crate) doubts: Doubts,
}

impl Survey {
    /// Whether a repair would change nothing.
    pub fn is_whole(&self) -> bool {
        self.segments == [Segment::Keep(0..self.len)]
    }

    /// How long the repaired file is.
    pub fn repaired_len(&self) -> u64 {
        let len = |segment: &Segment| match segment {
            Segment::Keep(range) => range.end - range.start,
            Segment::Write(bytes) => bytes.len() as u64,
        };
        self.segments.iter().map(len).sum()
    }

    /// How much of the begin stays and what follows it, if no more than that is to be done. Whether
    /// what goes was of any use is another question: [`repair_in_place`](super::repair_in_place) asks it.
    pub fn tail(&self) -> Option<(u64, Vec<u8>)> {
        let (first, rest) = self.segments.split_first()?;
        let Segment::Keep(range) = first else {
            return None;
        };
        let mut tail = Vec::new();
        for segment in rest {
            match segment {
                Segment::Write(bytes) => tail.extend_from_slice(bytes),
                Segment::Keep(_) => return None,
            }
        }
        (range.start == 0).then_some((range.end, tail))
    }

    /// Adds what a journal knows.
    pub(crate) fn compare(&mut self, journal: Option<JournalState>) {
        let Some(journal) = journal else { return };
        self.findings.push(Finding::Unfinished);
        let kept = match self.segments.first() {
            Some(Segment::Keep(range)) if range.start == 0 => range.end,
            _ => 0,
        };
        if kept < journal.len {
            self.findings.push(Finding::Missing {
                promised: journal.len,
                found: kept,
            });
        }
    }
}
