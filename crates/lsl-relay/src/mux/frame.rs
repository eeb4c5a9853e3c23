//! Frames of a link on the wire. Spec: relay §4.2.

use std::fmt;

/// Bytes before the payload of a frame.
pub const HEADER_LEN: usize = 8;

/// Most bytes of a payload: with its header it fills one record.
pub const MAX_PAYLOAD: usize = RECORD_LEN - HEADER_LEN;

/// Most bytes of a record of the session below, which no frame crosses.
pub const RECORD_LEN: usize = 16_384;

/// Most bytes of the text of a RESET or BYE.
pub const MAX_TEXT: usize = 255;

/// Kind of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Open = 1,
    Data = 2,
    Credit = 3,
    End = 4,
    Reset = 5,
    Ping = 6,
    Pong = 7,
    Bye = 8,
}

/// Header of a frame, its kind and length checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) kind: Kind,
    pub(super) len: usize,
    pub(super) substream: u32,
}

impl Header {
    /// Parses the head of a frame; the text names its mistake.
    pub(super) fn parse(bytes: [u8; HEADER_LEN]) -> Result<Self, &'static str> {
        let [kind, flags, len_high, len_low, id @ ..] = bytes;
        let len = usize::from(u16::from_be_bytes([len_high, len_low]));
        let (kind, lens, on_link) = match kind {
            1 => (Kind::Open, 1..=MAX_PAYLOAD, false),
            2 => (Kind::Data, 1..=MAX_PAYLOAD, false),
            3 => (Kind::Credit, 4..=4, false),
            4 => (Kind::End, 0..=0, false),
            5 => (Kind::Reset, 2..=2 + MAX_TEXT, false),
            6 => (Kind::Ping, 8..=8, true),
            7 => (Kind::Pong, 24..=24, true),
            8 => (Kind::Bye, 2..=2 + MAX_TEXT, true),
            _ => return Err("a frame of an unknown kind"),
        };
        let substream = u32::from_be_bytes(id);
        if flags != 0 {
            Err("a frame with unknown flags")
        } else if !lens.contains(&len) {
            Err("a frame of a wrong length")
        } else if (substream == 0) != on_link {
            Err("a frame on the wrong substream")
        } else {
            Ok(Self {
                kind,
                len,
                substream,
            })
        }
    }

    pub(super) fn to_bytes(self) -> [u8; HEADER_LEN] {
        let [.., high, low] = self.len.to_be_bytes();
        let [a, b, c, d] = self.substream.to_be_bytes();
        [self.kind as u8, 0, high, low, a, b, c, d]
    }
}

/// Appends a frame.
pub(super) fn append(out: &mut Vec<u8>, kind: Kind, substream: u32, parts: &[&[u8]]) {
    let len = parts.iter().map(|part| part.len()).sum();
    let header = Header {
        kind,
        len,
        substream,
    };
    out.extend_from_slice(&header.to_bytes());
    for part in parts {
        out.extend_from_slice(part);
    }
}

/// Reads the `at`-th 8 bytes as a time, counted from 0.
pub(super) fn time(payload: &[u8], at: usize) -> Option<f64> {
    let bytes = payload.chunks_exact(8).nth(at)?;
    Some(f64::from_be_bytes(bytes.try_into().ok()?))
}

/// Returns the code and text of a RESET or BYE; bytes that are no UTF-8 are replaced, control characters left out.
pub(super) fn reason(payload: &[u8]) -> (Code, String) {
    let (code, text) = payload.split_first_chunk().unwrap_or((&[0; 2], b""));
    let text = String::from_utf8_lossy(text);
    let text = text.chars().filter(|c| !c.is_control()).collect();
    (Code(u16::from_be_bytes(*code)), text)
}

/// Cuts a text to what a RESET or BYE may carry.
pub(super) fn short(text: &str) -> &str {
    let mut end = text.len().min(MAX_TEXT);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default()
}

/// Reason in a RESET or BYE.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Code(pub u16);

impl Code {
    /// All is said.
    pub const DONE: Self = Self(1);
    /// The request is not granted.
    pub const REFUSED: Self = Self(2);
    /// There are too many substreams.
    pub const LIMIT: Self = Self(3);
    /// The peer broke a rule of the protocol.
    pub const PROTOCOL: Self = Self(4);
    /// The relay ends.
    pub const SHUTDOWN: Self = Self(5);
    /// Another link to the same relay stays.
    pub const DUPLICATE: Self = Self(6);
    /// The reader gave no credit for a minute.
    pub const TOO_SLOW: Self = Self(7);
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match *self {
            Self::DONE => "done",
            Self::REFUSED => "refused",
            Self::LIMIT => "limit",
            Self::PROTOCOL => "protocol",
            Self::SHUTDOWN => "shutting down",
            Self::DUPLICATE => "duplicate",
            Self::TOO_SLOW => "too slow",
            Self(other) => return write!(f, "code {other}"),
        })
    }
}
