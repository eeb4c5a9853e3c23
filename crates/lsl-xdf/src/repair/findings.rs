//! Results of a survey, for people and for the repair.

use std::collections::BTreeMap;
use std::fmt;

use lsl_proto::ChannelFormat;

use super::Segment;
use super::suspect::SuspectRanges;
use crate::decode::Problem;
use crate::journal::JournalState;
use crate::stream::Tally;

/// Fact about a file that its users should know.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Finding {
    /// A part is unreadable, for this or for strict readers.
    Problem(Problem),
    /// The file has no file header.
    NoFileHeader,
    /// A stream was not closed.
    NoFooter {
        /// Number of the stream in the file.
        stream: u32,
    },
    /// A footer contradicts the number of samples.
    FooterCount {
        /// Number of the stream in the file.
        stream: u32,
        /// Number of samples in the footer.
        said: u64,
        /// Number of samples in the file.
        found: u64,
    },
    /// Samples came behind the footer.
    SamplesBehindFooter {
        /// Number of the stream in the file.
        stream: u32,
    },
    /// Timestamps of a stream go backwards.
    Backwards {
        /// Number of the stream in the file.
        stream: u32,
        /// Number of steps that go backwards.
        times: u64,
    },
    /// Timestamps or clock offsets are infinite or no number.
    NotFinite {
        /// Number of the stream in the file.
        stream: u32,
        /// Number of such timestamps and offsets.
        times: u64,
    },
    /// There are samples but no clock offsets: they cannot be aligned with other streams.
    NoOffsets {
        /// Number of the stream in the file.
        stream: u32,
    },
    /// A stream has a second header; pyxdf forgets the data before it.
    SecondHeader {
        /// Number of the stream in the file.
        stream: u32,
    },
    /// By the journal more bytes were on the disk than there are now.
    Missing {
        /// Length in the journal, in bytes.
        promised: u64,
        /// Length up to which chunks are whole, in bytes.
        found: u64,
    },
    /// The recorder did not finish: its journal still exists.
    Unfinished,
    /// There are more findings than are listed.
    More,
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

/// Stream as a survey has found it.
#[derive(Debug, Clone)]
pub struct StreamSummary {
    /// Name, at most 200 characters of it.
    pub name: String,
    /// Content type, at most 200 characters of it.
    pub stream_type: String,
    /// Format of one channel value.
    pub format: ChannelFormat,
    /// Number of values per sample.
    pub channels: usize,
    /// Samples per second as announced.
    pub nominal_srate: f64,
    /// Counts of its data in the repaired file.
    pub tally: Tally,
    /// Number of samples lost: those that damaged chunks hold or claim to hold.
    pub lost_samples: u64,
    /// Whether it has its footer.
    pub has_footer: bool,
}

/// Result of the survey of a file.
#[derive(Debug, Clone)]
pub struct Survey {
    /// Length of the file in bytes.
    pub len: u64,
    /// Streams by their number in the file.
    pub streams: BTreeMap<u32, StreamSummary>,
    /// Findings in order, the first 10,000.
    pub findings: Vec<Finding>,
    /// Bytes that a repair leaves out.
    pub dropped_bytes: u64,
    /// Number of boundaries in the file.
    pub boundaries: u64,
    pub(crate) segments: Vec<Segment>,
    pub(crate) suspects: SuspectRanges,
}

impl Survey {
    /// Returns whether a repair would change nothing.
    pub fn is_whole(&self) -> bool {
        self.segments == [Segment::Keep(0..self.len)]
    }

    /// Returns the length of the repaired file in bytes.
    pub fn repaired_len(&self) -> u64 {
        let len = |segment: &Segment| match segment {
            Segment::Keep(range) => range.end - range.start,
            Segment::Write(bytes) => bytes.len() as u64,
        };
        self.segments.iter().map(len).sum()
    }

    /// Returns the length of the beginning that stays, and the bytes to append; `None` if a repair needs
    /// more. Whether the removed bytes were useless is checked by
    /// [`repair_in_place`](super::repair_in_place).
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

    /// Adds the findings of a comparison with the journal.
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
