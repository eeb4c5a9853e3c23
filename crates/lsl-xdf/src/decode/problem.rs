//! Problems in a file and their places.

use std::fmt;

use crate::chunk::Tag;

/// Problem in a stretch of a file.
#[derive(Debug, Clone, PartialEq)]
pub struct Problem {
    /// Position of the problem, in bytes from the beginning of the file.
    pub at: u64,
    /// Number of bytes that are lost by it.
    pub len: u64,
    /// Position of its chunk, in bytes from the beginning of the file.
    pub chunk_at: u64,
    /// Stream that is affected, if it is a single one.
    pub stream: Option<u32>,
    /// Kind of the problem, with details.
    pub kind: ProblemKind,
    /// Whether reading resumed behind a boundary, not behind the chunk.
    pub resumed: bool,
}

impl Problem {
    pub(crate) fn new(at: u64, len: u64, stream: Option<u32>, kind: ProblemKind) -> Self {
        Self {
            at,
            len,
            chunk_at: at,
            stream,
            kind,
            resumed: false,
        }
    }
}

/// Kind of a problem, with details.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum ProblemKind {
    /// No chunk begins where one should.
    Framing(&'static str),
    /// The file ends inside the head of a chunk.
    CutHead,
    /// The file ends inside a chunk.
    Cut {
        /// Kind of the incomplete chunk.
        tag: Tag,
        /// Bytes of content it claims.
        claimed: u64,
        /// Bytes of content that are there.
        present: u64,
    },
    /// The file ends inside a samples chunk; the samples before that were read.
    CutSamples {
        /// Number of missing samples, as the chunk claims.
        samples: u64,
    },
    /// A samples chunk is invalid from here on; the samples before that were read.
    BadSamples {
        /// Number of unread samples, as the chunk claims.
        samples: u64,
        /// Reason, in words for people.
        reason: &'static str,
    },
    /// A samples chunk is longer than its samples.
    TrailingBytes,
    /// A chunk is too long to be read.
    TooLong {
        /// Kind of the long chunk.
        tag: Tag,
        /// Bytes of content it claims.
        claimed: u64,
    },
    /// A chunk of a stream that has no header before it.
    NoHeader {
        /// Kind of the chunk without header.
        tag: Tag,
    },
    /// The content of a chunk cannot be read.
    Unreadable {
        /// Kind of the unreadable chunk.
        tag: Tag,
        /// Reason, in words for people.
        reason: String,
    },
    /// The content is readable here, but a strict reader refuses it, and pyxdf the whole file.
    Flaw {
        /// Kind of the chunk with the flaw.
        tag: Tag,
        /// Reason, in words for people.
        reason: &'static str,
    },
    /// Timestamps are counted from one that is lost or never existed.
    StampsGuessed,
    /// More streams than the decoder accepts.
    TooManyStreams,
}

impl ProblemKind {
    /// Converts the problem for a chunk that the file ends in, `missing` bytes too early.
    pub(crate) fn cut(self, missing: u64) -> Self {
        match self {
            Self::TooLong { tag, claimed } => Self::Cut {
                tag,
                claimed,
                present: claimed.saturating_sub(missing),
            },
            other => other,
        }
    }

    /// Returns whether nothing of the file is lost by it.
    pub fn is_harmless(&self) -> bool {
        matches!(self, Self::Flaw { .. } | Self::StampsGuessed)
    }
}

impl fmt::Display for ProblemKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Framing(reason) => write!(f, "no chunk begins here: {reason}"),
            Self::CutHead => f.write_str("the file ends inside the head of a chunk"),
            Self::Cut {
                tag,
                claimed,
                present,
            } => write!(
                f,
                "the file ends inside a {tag}: {present} of {claimed} bytes are there"
            ),
            Self::CutSamples { samples } => {
                write!(f, "the file ends inside samples: {samples} are missing")
            }
            Self::BadSamples { samples, reason } => {
                write!(f, "{samples} samples cannot be read: {reason}")
            }
            Self::TrailingBytes => f.write_str("a samples chunk is longer than its samples"),
            Self::TooLong { tag, claimed } => {
                write!(f, "a {tag} of {claimed} bytes is too long to be read")
            }
            Self::NoHeader { tag } => write!(f, "a {tag} of a stream without header"),
            Self::Unreadable { tag, reason } => write!(f, "a {tag} cannot be read: {reason}"),
            Self::Flaw { tag, reason } => write!(f, "strict readers refuse a {tag}: {reason}"),
            Self::StampsGuessed => {
                f.write_str("timestamps count on from one that is lost or never was")
            }
            Self::TooManyStreams => f.write_str("too many streams"),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at byte {}", self.at)?;
        if let Some(stream) = self.stream {
            write!(f, ", stream {stream}")?;
        }
        write!(f, ": {}", self.kind)?;
        if self.len > 0 {
            write!(f, " ({} bytes skipped)", self.len)?;
        }
        Ok(())
    }
}
