//! Directory of a relay on the wire: the request for it, and its records, for both sides.
//! Spec: relay §5.1.
//!
//! Nothing here knows which streams there are, or how many may be: a parser keeps one record, which grows
//! as its bytes arrive and not by what is claimed.

use crate::Error;
use crate::text::{DIGITS_EXACT, write_general_short};
use crate::wire::discovery::{MAX_QUERY_BYTES, parse_ascii, push_one_line, split_line};

/// First word of the request.
pub const WATCH_COMMAND: &[u8] = b"LSL:watch/1";

/// Most bytes of a uid, which is a word of printable ASCII.
pub const MAX_UID_BYTES: usize = 64;

/// Most bytes of a stream's document.
pub const MAX_DOCUMENT_BYTES: usize = 1 << 20;

/// Most bytes of a record's line, its line end included. The longest one tells a clock.
const MAX_LINE_BYTES: usize = 160;

/// Request for the directory of a relay.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WatchRequest {
    /// Whether the answer ends after the first [`Record::Known`].
    pub once: bool,
    /// Whether streams are told of, too, that only history has.
    pub past: bool,
    /// Predicate text without surrounding blanks; at most [`MAX_QUERY_BYTES`].
    pub query: Vec<u8>,
}

impl WatchRequest {
    /// Parses the first line of a request: the options, and no query yet. `None` if it asks for
    /// something else.
    pub fn parse_command(line: &[u8]) -> Option<Self> {
        let mut words = line.trim_ascii().split(|byte| *byte == b' ');
        let mut request = Self::default();
        if words.next() != Some(WATCH_COMMAND) {
            return None;
        }
        for word in words {
            match word {
                b"once" if !request.once && !request.past => request.once = true,
                b"past" if !request.past => request.past = true,
                _ => return None,
            }
        }
        Some(request)
    }

    /// Parses a complete request, with or without its last line end; `None` if it asks for something else or
    /// its query is too long.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let (command, rest) = split_line(text);
        let query = split_line(rest).0.trim_ascii();
        let request = Self::parse_command(command)?;
        (query.len() <= MAX_QUERY_BYTES).then(|| Self {
            query: query.to_vec(),
            ..request
        })
    }

    /// Writes the request; line ends in the query become blanks.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = WATCH_COMMAND.to_vec();
        for (option, is_set) in [(&b" once"[..], self.once), (b" past", self.past)] {
            out.extend_from_slice(if is_set { option } else { b"" });
        }
        out.extend_from_slice(b"\r\n");
        push_one_line(&mut out, &self.query);
        out.extend_from_slice(b"\r\n");
        out
    }
}

/// Reason for which a stream is told of no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Withdrawal {
    /// Its outlet was closed.
    Ended,
    /// No way leads to it any more.
    Lost,
    /// The asker may not read it any more.
    Hidden,
}

impl Withdrawal {
    const fn word(self) -> &'static [u8] {
        match self {
            Self::Ended => b"ended",
            Self::Lost => b"lost",
            Self::Hidden => b"hidden",
        }
    }
}

/// Clock of a stream's source as a relay knows it: as of one moment, so that what waits on its way to others is told
/// no worse for it. Spec: relay §7.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SourceClock {
    /// Clock of the source minus that of the relay, in seconds.
    pub offset_secs: f64,
    /// Uncertainty of the offset as of then, in seconds: a round trip, or the sum of those on the way.
    pub uncertainty_secs: f64,
    /// Time of the oldest measurement in it, in seconds of the relay's clock.
    pub measured_at: f64,
}

/// One record of a directory.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Record<'a> {
    /// A stream is new, or its document changed.
    Stream {
        /// Identity of the stream's origin.
        uid: &'a [u8],
        /// Its full info, at most [`MAX_DOCUMENT_BYTES`].
        xml: &'a [u8],
    },
    /// A stream is gone.
    Gone {
        /// Identity of the stream's origin.
        uid: &'a [u8],
        /// Reason of the relay.
        reason: Withdrawal,
    },
    /// The clock of a stream's source; links alone are told.
    Clock {
        /// Identity of the stream's origin.
        uid: &'a [u8],
        /// What the relay knows of it.
        clock: SourceClock,
    },
    /// All that was known has been said; later a sign of life.
    Known,
}

impl Record<'_> {
    /// Appends the record to what is to be sent.
    ///
    /// # Errors
    /// [`RecordError`]: nothing was appended, as no reader would accept it.
    pub fn append_to(&self, out: &mut Vec<u8>) -> Result<(), RecordError> {
        let uid = match *self {
            Self::Stream { uid, .. } | Self::Gone { uid, .. } | Self::Clock { uid, .. } => uid,
            Self::Known => {
                out.extend_from_slice(b"=\r\n");
                return Ok(());
            }
        };
        if !is_uid(uid) {
            return Err(RecordError::Uid);
        }
        match *self {
            Self::Stream { xml, .. } => {
                if xml.len() > MAX_DOCUMENT_BYTES {
                    return Err(RecordError::TooLong);
                }
                let len = xml.len().to_string();
                append_all(out, &[b"+ ", uid, b" ", len.as_bytes(), b"\r\n", xml]);
            }
            Self::Gone { reason, .. } => {
                append_all(out, &[b"- ", uid, b" ", reason.word(), b"\r\n"]);
            }
            Self::Clock { clock, .. } => {
                if !clock.is_sound() {
                    return Err(RecordError::Number);
                }
                append_all(out, &[b"t ", uid]);
                for secs in [clock.offset_secs, clock.uncertainty_secs, clock.measured_at] {
                    out.push(b' ');
                    write_general_short(out, secs, DIGITS_EXACT);
                }
                out.extend_from_slice(b"\r\n");
            }
            Self::Known => {}
        }
        Ok(())
    }
}

impl SourceClock {
    /// Whether all are numbers, and may be true.
    pub fn is_sound(&self) -> bool {
        let numbers = [self.offset_secs, self.uncertainty_secs, self.measured_at];
        numbers.into_iter().all(f64::is_finite) && self.uncertainty_secs >= 0.0
    }
}

/// Mistake in a record: the connection is to be closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// A line is too long, or ends without CR LF.
    #[error("a line without an end")]
    Line,
    /// No record begins so.
    #[error("a record of an unknown kind")]
    Kind,
    /// A uid is empty, too long, or has other characters than printable ASCII.
    #[error("a malformed uid")]
    Uid,
    /// A document is longer than [`MAX_DOCUMENT_BYTES`].
    #[error("a document that is too long")]
    TooLong,
    /// A number is malformed, not finite, or less than 0 where it is a length of time.
    #[error("a malformed number")]
    Number,
}

impl From<RecordError> for Error {
    fn from(error: RecordError) -> Self {
        Self::Protocol(format!("directory of a relay: {error}"))
    }
}

/// Reads the records of a directory.
#[derive(Debug, Default)]
pub struct RecordParser {
    /// The line of the record that is read, as far as it came.
    line: Vec<u8>,
    /// Bytes that its document has, once its line is complete.
    document: Option<usize>,
    /// The document, as far as it came.
    xml: Vec<u8>,
    /// Whether a record was returned, whose bytes are still kept.
    is_complete: bool,
}

impl RecordParser {
    /// Creates a parser at the beginning of an answer.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes bytes off the front of `input`, at most up to the end of the next record, and returns that
    /// record. `None` means that all were taken and it is not complete.
    ///
    /// # Errors
    /// [`RecordError`]: what follows has no meaning.
    pub fn next(&mut self, input: &mut &[u8]) -> Result<Option<Record<'_>>, RecordError> {
        if std::mem::take(&mut self.is_complete) {
            self.line.clear();
            self.document = None;
            // Documents have a kilobyte; one that has many must not stay for the time of the connection.
            self.xml.clear();
            self.xml.shrink_to(KEEP_BYTES);
        }
        if self.document.is_none() {
            if !self.take_line(input)? {
                return Ok(None);
            }
            self.document = Some(document_len(&self.line)?);
        }
        let missing = self.document.unwrap_or_default() - self.xml.len();
        let (piece, rest) = input.split_at_checked(missing).unwrap_or((input, b""));
        self.xml.extend_from_slice(piece);
        *input = rest;
        if piece.len() < missing {
            return Ok(None);
        }
        self.is_complete = true;
        parse_line(&self.line, &self.xml).map(Some)
    }

    /// Takes bytes up to the end of the line; tells whether it is complete.
    fn take_line(&mut self, input: &mut &[u8]) -> Result<bool, RecordError> {
        let end = input.iter().position(|byte| *byte == b'\n');
        let len = end.map_or(input.len(), |end| end + 1);
        if self.line.len() + len > MAX_LINE_BYTES {
            return Err(RecordError::Line);
        }
        let (piece, rest) = input.split_at_checked(len).unwrap_or_default();
        self.line.extend_from_slice(piece);
        *input = rest;
        if end.is_some() && !self.line.ends_with(b"\r\n") {
            return Err(RecordError::Line);
        }
        Ok(end.is_some())
    }
}

/// Returns the number of bytes that follow a line.
fn document_len(line: &[u8]) -> Result<usize, RecordError> {
    if line.first() != Some(&b'+') {
        return Ok(0);
    }
    let [_, _, Some(len), None, ..] = words(line) else {
        return Err(RecordError::Kind);
    };
    let len = Some(len).filter(|len| len.iter().all(u8::is_ascii_digit));
    let len: usize = len.and_then(parse_ascii).ok_or(RecordError::Number)?;
    if len > MAX_DOCUMENT_BYTES {
        return Err(RecordError::TooLong);
    }
    Ok(len)
}

fn parse_line<'a>(line: &'a [u8], xml: &'a [u8]) -> Result<Record<'a>, RecordError> {
    let known = |uid: &'a [u8]| is_uid(uid).then_some(uid).ok_or(RecordError::Uid);
    Ok(match words(line) {
        [Some(b"="), None, ..] => Record::Known,
        [Some(b"+"), Some(uid), Some(_), None, ..] => Record::Stream {
            uid: known(uid)?,
            xml,
        },
        [Some(b"-"), Some(uid), Some(word), None, ..] => {
            let reasons = [Withdrawal::Ended, Withdrawal::Lost, Withdrawal::Hidden];
            let reason = reasons.into_iter().find(|reason| reason.word() == word);
            Record::Gone {
                uid: known(uid)?,
                reason: reason.ok_or(RecordError::Kind)?,
            }
        }
        [
            Some(b"t"),
            Some(uid),
            Some(offset),
            Some(uncertainty),
            Some(measured_at),
            None,
        ] => {
            let clock = SourceClock {
                offset_secs: seconds(offset)?,
                uncertainty_secs: seconds(uncertainty)?,
                measured_at: seconds(measured_at)?,
            };
            if !clock.is_sound() {
                return Err(RecordError::Number);
            }
            Record::Clock {
                uid: known(uid)?,
                clock,
            }
        }
        _ => return Err(RecordError::Kind),
    })
}

/// Returns the first six parts of a line that are separated by single blanks; five are expected.
fn words(line: &[u8]) -> [Option<&[u8]>; 6] {
    let line = line.strip_suffix(b"\r\n").unwrap_or(line);
    let mut words = line.split(|byte| *byte == b' ');
    std::array::from_fn(|_| words.next())
}

/// Parses a decimal number, which alone has a digit: `nan` and `inf` have none.
fn seconds(text: &[u8]) -> Result<f64, RecordError> {
    let number = text.iter().any(u8::is_ascii_digit).then_some(text);
    number.and_then(parse_ascii).ok_or(RecordError::Number)
}

/// Whether this is a uid that a request of one line can name.
pub fn is_uid(uid: &[u8]) -> bool {
    (1..=MAX_UID_BYTES).contains(&uid.len()) && uid.iter().all(u8::is_ascii_graphic)
}

fn append_all(out: &mut Vec<u8>, parts: &[&[u8]]) {
    for part in parts {
        out.extend_from_slice(part);
    }
}

/// Capacity in bytes that a parser keeps between documents.
const KEEP_BYTES: usize = 16 * 1024;

#[cfg(test)]
mod tests;
