//! Sequence numbers on the wire: the header lines by which inlets ask for replay and outlets grant
//! it, and the gap record of granted feeds. Nothing here counts samples. Spec: resume §2.
//!
//! Header values arrive trimmed and lower-cased, as [`super::request`] parses every line. Nothing
//! here allocates for what a peer sends.

use std::fmt;

use crate::{ByteOrder, Error, Result};

/// Least number that is no sequence number. Spec: resume §2.1.
pub const SEQUENCE_LIMIT: u64 = 1 << 63;

/// Version of the extension, the first token of both header values.
const VERSION: &[u8] = b"1";

/// Largest number after `last`: it has 15 digits.
const MAX_LAST: u64 = 999_999_999_999_999;

/// Largest number of seconds that may have a fraction: it has 9 digits.
const MAX_FRACTIONAL_SECS: u64 = 999_999_999;

/// Name of one numbering of samples: 1 to 64 characters of `0-9a-f-`. Spec: resume §1.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Generation {
    /// The characters, and zeros after them.
    text: [u8; Self::MAX_LEN],
    len: u8,
}

impl Generation {
    /// Most characters of a generation.
    pub const MAX_LEN: usize = 64;

    /// Parses the name of a numbering; `None` if it is empty, too long or has other characters.
    pub fn parse(name: &[u8]) -> Option<Self> {
        let known = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f' | b'-');
        let mut text = [0; Self::MAX_LEN];
        text.get_mut(..name.len())?.copy_from_slice(name);
        let len = u8::try_from(name.len()).ok().filter(|len| *len > 0)?;
        name.iter().all(known).then_some(Self { text, len })
    }

    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        let text = self.text.get(..usize::from(self.len)).unwrap_or_default();
        std::str::from_utf8(text).unwrap_or_default()
    }
}

impl fmt::Debug for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Generation({self})")
    }
}

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// First sample that a reader has not received yet. Spec: resume §1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Position {
    /// Numbering to which `next` belongs.
    pub generation: Generation,
    /// Sequence number of that sample, below [`SEQUENCE_LIMIT`].
    pub next: u64,
}

/// Beginning that an inlet asks of a feed. Spec: resume §2.1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ReplayFrom {
    /// The next sample pushed: no replay.
    Live,
    /// The first sample that was not received; and the milliseconds for which nothing came of the stream, if that
    /// is known. What another instance has pushed before that came in between what was received, hence is not asked
    /// for.
    At(Position, Option<u64>),
    /// So many samples before the next one pushed; 15 digits are written at most.
    LastSamples(u64),
    /// So many milliseconds before now. Above 9 digits of seconds whole seconds are written, rounded
    /// up, with 15 digits at most.
    LastMillis(u64),
    /// The oldest sample that the outlet still has.
    Oldest,
}

impl ReplayFrom {
    /// Parses the value of a request's header line; `None` if the line counts as absent.
    pub fn parse(value: &[u8]) -> Option<Self> {
        Some(match tokens(value) {
            [Some(VERSION), Some(b"live"), None, ..] => Self::Live,
            [Some(VERSION), Some(b"oldest"), None, ..] => Self::Oldest,
            [
                Some(VERSION),
                Some(b"at"),
                Some(generation),
                Some(next),
                silence,
                None,
            ] => {
                let position = Position {
                    generation: Generation::parse(generation)?,
                    next: parse_sequence(next)?,
                };
                let silent_millis = match silence {
                    Some(secs) => Some(parse_millis(secs)?),
                    None => None,
                };
                Self::At(position, silent_millis)
            }
            [
                Some(VERSION),
                Some(b"last"),
                Some(count),
                Some(b"n"),
                None,
                ..,
            ] => Self::LastSamples(decimal(count, 15)?),
            [
                Some(VERSION),
                Some(b"last"),
                Some(secs),
                Some(b"s"),
                None,
                ..,
            ] => Self::LastMillis(parse_millis(secs)?),
            _ => return None,
        })
    }

    /// Returns the header line of a request, with its line end.
    pub fn header_line(&self) -> String {
        format!("Lslx-Sequence: 1 {self}\r\n")
    }

    /// Returns what was asked for as it is so many seconds later: nothing came meanwhile.
    #[must_use]
    pub fn later(self, secs: f64) -> Self {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "rounded down, at least to 0"
        )]
        let millis = (secs * 1e3) as u64;
        match self {
            Self::At(position, Some(silence)) => {
                Self::At(position, Some(silence.saturating_add(millis)))
            }
            other => other,
        }
    }
}

impl fmt::Display for ReplayFrom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Live => f.write_str("live"),
            // No outlet has numbered so far: the largest number means the same.
            Self::At(Position { generation, next }, silent_millis) => {
                write!(f, "at {generation} {}", next.min(SEQUENCE_LIMIT - 1))?;
                match silent_millis {
                    Some(millis) => write!(f, " {}", Secs(millis)),
                    None => Ok(()),
                }
            }
            Self::LastSamples(count) => write!(f, "last {} n", count.min(MAX_LAST)),
            Self::LastMillis(millis) => write!(f, "last {} s", Secs(millis)),
            Self::Oldest => f.write_str("oldest"),
        }
    }
}

/// Writes milliseconds as seconds: whole ones, rounded up, where nobody needs a fraction.
struct Secs(u64);

impl fmt::Display for Secs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (secs, fraction) = (self.0 / 1000, self.0 % 1000);
        if fraction == 0 || secs > MAX_FRACTIONAL_SECS {
            write!(f, "{}", self.0.div_ceil(1000).min(MAX_LAST))
        } else {
            write!(f, "{secs}.{fraction:03}")
        }
    }
}

/// Numbers of a granted feed, from the reply of the outlet. Spec: resume §2.2.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Granted {
    /// Numbering of the outlet.
    pub generation: Generation,
    /// Sequence number of the first sample after the test patterns.
    pub begin: u64,
    /// Sequence number that the next pushed sample got; those from `begin` to it are replay.
    pub live: u64,
    /// Sequence number at which an ended stream ends, from a line of its own.
    pub end: Option<u64>,
}

impl Granted {
    /// Parses the value of a reply's header line, which does not tell `end`; `None` if it is malformed.
    pub fn parse(value: &[u8]) -> Option<Self> {
        let [
            Some(VERSION),
            Some(generation),
            Some(begin),
            Some(live),
            None,
            ..,
        ] = tokens(value)
        else {
            return None;
        };
        Some(Self {
            generation: Generation::parse(generation)?,
            begin: parse_sequence(begin)?,
            live: parse_sequence(live)?,
            end: None,
        })
    }

    /// Returns the header lines of a reply, with their line ends.
    pub fn header_lines(&self) -> String {
        let Self {
            generation,
            begin,
            live,
            end,
        } = self;
        let end = end.map_or_else(String::new, |end| format!("Lslx-End: {end}\r\n"));
        format!("Lslx-Sequence: 1 {generation} {begin} {live}\r\n{end}")
    }

    /// Checks the numbers against each other and against the request.
    ///
    /// # Errors
    /// The contradiction. Samples of such a feed could be delivered twice: close the connection.
    pub fn check(&self, asked: &ReplayFrom) -> Result<(), &'static str> {
        let repeats = |position: &Position| {
            position.generation == self.generation && self.begin < position.next
        };
        if self.begin > self.live {
            Err("the feed begins after its live edge")
        } else if self.end.is_some_and(|end| end < self.live) {
            Err("the feed ends before its live edge")
        } else if matches!(asked, ReplayFrom::At(position, _) if repeats(position)) {
            Err("the feed begins before the first sample that was asked for")
        } else {
            Ok(())
        }
    }

    /// Returns the number of samples between a position and the beginning of this feed; `None` if the
    /// position belongs to another numbering, so nobody knows. Spec: resume §5.3.
    pub fn lost_since(&self, position: &Position) -> Option<u64> {
        (position.generation == self.generation).then(|| self.begin.saturating_sub(position.next))
    }
}

/// Parses a sequence number: 1 to 20 digits, below [`SEQUENCE_LIMIT`].
pub fn parse_sequence(text: &[u8]) -> Option<u64> {
    decimal(text, 20).filter(|number| *number < SEQUENCE_LIMIT)
}

/// Reason of a gap in a granted feed. Spec: resume §2.4.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum GapReason {
    /// The reader was too slow: its queue in the outlet dropped the oldest samples.
    ReaderTooSlow,
    /// The samples were lost on the way to the outlet, which is a relay.
    LostBefore,
    /// The program that pushes said that its device lost them.
    Skipped,
    /// The outlet does not retain them any more.
    NotRetained,
    /// Unknown: 0 or a code of a later version.
    Other(u8),
}

impl GapReason {
    /// Returns the reason for a code of the wire.
    pub const fn from_code(code: u8) -> Self {
        match code {
            1 => Self::ReaderTooSlow,
            2 => Self::LostBefore,
            3 => Self::Skipped,
            4 => Self::NotRetained,
            _ => Self::Other(code),
        }
    }

    /// Returns the code for the wire.
    pub const fn code(self) -> u8 {
        match self {
            Self::ReaderTooSlow => 1,
            Self::LostBefore => 2,
            Self::Skipped => 3,
            Self::NotRetained => 4,
            Self::Other(code) => code,
        }
    }
}

impl fmt::Display for GapReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ReaderTooSlow => "reader too slow",
            Self::LostBefore => "lost on the way to the relay",
            Self::Skipped => "lost by the device",
            Self::NotRetained => "no longer retained",
            Self::Other(_) => "unknown reason",
        })
    }
}

/// Gap between two samples of a granted feed. Spec: resume §2.4.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Gap {
    /// Reason for which samples are missing.
    pub reason: GapReason,
    /// Sequence number of the next sample, below [`SEQUENCE_LIMIT`].
    pub to: u64,
}

impl Gap {
    /// Tag with which the record begins.
    pub const TAG: u8 = 3;

    /// Bytes of the record on the wire, the tag included.
    pub const LEN: usize = 10;

    /// Returns the record for a feed of this byte order.
    pub const fn to_bytes(self, order: ByteOrder) -> [u8; Self::LEN] {
        let mut record = [0; Self::LEN];
        let [tag, reason, to @ ..] = &mut record;
        *tag = Self::TAG;
        *reason = self.reason.code();
        *to = match order {
            ByteOrder::Little => self.to.to_le_bytes(),
            ByteOrder::Big => self.to.to_be_bytes(),
        };
        record
    }

    /// Parses the record of a feed of this byte order; its tag was looked at before.
    ///
    /// # Errors
    /// `Protocol` for a number that is no sequence number.
    pub fn parse(record: &[u8; Self::LEN], order: ByteOrder) -> Result<Self> {
        let [_, reason, to @ ..] = *record;
        let to = match order {
            ByteOrder::Little => u64::from_le_bytes(to),
            ByteOrder::Big => u64::from_be_bytes(to),
        };
        if to >= SEQUENCE_LIMIT {
            return Err(Error::Protocol(format!("gap to sequence number {to}")));
        }
        Ok(Self {
            reason: GapReason::from_code(reason),
            to,
        })
    }

    /// Returns the number of missing samples, if the sample after the last one has number `current`.
    ///
    /// # Errors
    /// `Protocol` for a gap that is empty or leads back.
    pub fn lost(&self, current: u64) -> Result<u64> {
        match self.to.checked_sub(current) {
            Some(lost @ 1..) => Ok(lost),
            _ => Err(Error::Protocol(format!(
                "gap from sequence number {current} to {}",
                self.to
            ))),
        }
    }
}

/// Returns the first six parts of a value that are separated by single blanks; five are expected at most.
fn tokens(value: &[u8]) -> [Option<&[u8]>; 6] {
    let mut tokens = value.split(|byte| *byte == b' ');
    std::array::from_fn(|_| tokens.next())
}

/// Parses an unsigned number of at most so many digits and nothing else.
fn decimal(text: &[u8], most_digits: usize) -> Option<u64> {
    if text.is_empty() || text.len() > most_digits {
        return None;
    }
    text.iter().try_fold(0_u64, |number, byte| {
        let digit = byte.is_ascii_digit().then(|| byte & 0x0f)?;
        number.checked_mul(10)?.checked_add(u64::from(digit))
    })
}

/// Parses seconds, perhaps with up to three digits behind the point, as milliseconds.
fn parse_millis(text: &[u8]) -> Option<u64> {
    let Some(point) = text.iter().position(|byte| *byte == b'.') else {
        return Some(decimal(text, 15)? * 1000);
    };
    let fraction = text.get(point + 1..)?;
    let unit = match fraction.len() {
        1 => 100,
        2 => 10,
        _ => 1,
    };
    Some(decimal(text.get(..point)?, 9)? * 1000 + decimal(fraction, 3)? * unit)
}

#[cfg(test)]
mod tests;
