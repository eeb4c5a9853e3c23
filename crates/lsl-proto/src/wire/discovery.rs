//! Discovery datagrams: the query of a resolver, the reply of an outlet, and the first look at any
//! datagram that reaches an outlet. Spec: lsl-protocol §3.1, §3.2.
//!
//! Nothing here evaluates a query or reads a stream info: both stay bytes. Values borrow from the
//! datagram, so a responder that ignores most of its traffic allocates nothing for it.

use crate::Error;
use crate::wire::timedata::{self, TimeRequest};

/// Longest query that is looked at. liblsl has no limit; real queries stay far below this one,
/// which bounds what a stranger can make us evaluate. Spec: lsl-protocol §15.
pub const MAX_QUERY_BYTES: usize = 4096;

/// Longest query id that is echoed; liblsl sends at most 20 digits.
pub const MAX_QUERY_ID_BYTES: usize = 256;

/// First line of a query, on UDP and on TCP.
pub const SHORTINFO_COMMAND: &[u8] = b"LSL:shortinfo";

/// Reason for which a datagram is ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DatagramError {
    /// The first line is not the expected command.
    #[error("not the expected command")]
    Command,
    /// The query is longer than [`MAX_QUERY_BYTES`].
    #[error("the query is too long")]
    QueryTooLong,
    /// The return port is missing, zero or no 16-bit number.
    #[error("no usable return port")]
    ReturnPort,
    /// The query id is longer than [`MAX_QUERY_ID_BYTES`].
    #[error("the query id is too long")]
    QueryIdTooLong,
    /// A reply has no line feed between id and info.
    #[error("no line feed in the reply")]
    NoLineFeed,
    /// A number of a clock probe is missing, malformed, out of range or not finite.
    #[error("malformed number")]
    Number,
}

impl From<DatagramError> for Error {
    fn from(error: DatagramError) -> Self {
        Self::Protocol(format!("datagram ignored: {error}"))
    }
}

/// Question of a resolver to every outlet in reach. Spec: lsl-protocol §3.1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueryDatagram<'a> {
    /// Predicate text without surrounding blanks; may be empty, which matches everything.
    pub query: &'a [u8],
    /// UDP port to which replies go, at the address the query came from. Never 0.
    pub return_port: u16,
    /// Opaque token that the reply repeats; may be empty.
    pub id: &'a [u8],
}

impl<'a> QueryDatagram<'a> {
    /// Reads a query as leniently as liblsl: LF or CR LF, blanks around every item, the id on a line
    /// of its own or absent, no final line end.
    ///
    /// # Errors
    /// [`DatagramError`] names the mistake; such a datagram is not answered.
    pub fn parse(datagram: &'a [u8]) -> Result<Self, DatagramError> {
        let (command, rest) = split_line(datagram);
        if command.trim_ascii() != SHORTINFO_COMMAND {
            return Err(DatagramError::Command);
        }
        let (query, rest) = split_line(rest);
        let query = query.trim_ascii();
        if query.len() > MAX_QUERY_BYTES {
            return Err(DatagramError::QueryTooLong);
        }
        let rest = rest.trim_ascii_start();
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (port, rest) = rest
            .split_at_checked(digits)
            .ok_or(DatagramError::ReturnPort)?;
        let return_port = parse_ascii(port).filter(|&port| port != 0);
        let id = split_blank(rest).0;
        if id.len() > MAX_QUERY_ID_BYTES {
            return Err(DatagramError::QueryIdTooLong);
        }
        Ok(Self {
            query,
            return_port: return_port.ok_or(DatagramError::ReturnPort)?,
            id,
        })
    }

    /// Writes the datagram, byte for byte as liblsl sends it. Line ends inside the query become
    /// blanks, because the format has no way to carry them.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.query.len() + self.id.len() + 32);
        out.extend_from_slice(SHORTINFO_COMMAND);
        out.extend_from_slice(b"\r\n");
        push_one_line(&mut out, self.query);
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(self.return_port.to_string().as_bytes());
        out.push(b' ');
        out.extend_from_slice(self.id);
        out.extend_from_slice(b"\r\n");
        out
    }
}

/// Answer of an outlet whose stream matches. Spec: lsl-protocol §3.2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplyDatagram<'a> {
    /// The id of the query, without trailing blanks. A resolver ignores replies with a foreign id.
    pub id: &'a [u8],
    /// The short form of the stream info.
    pub xml: &'a [u8],
}

impl<'a> ReplyDatagram<'a> {
    /// Splits a reply at its first LF.
    ///
    /// # Errors
    /// [`DatagramError::NoLineFeed`].
    pub fn parse(datagram: &'a [u8]) -> Result<Self, DatagramError> {
        let end = datagram.iter().position(|&byte| byte == b'\n');
        let (id, xml) = end
            .and_then(|end| datagram.split_at_checked(end))
            .ok_or(DatagramError::NoLineFeed)?;
        // A leading blank is part of the id, so it makes the id foreign; liblsl agrees.
        Ok(Self {
            id: id.trim_ascii_end(),
            xml: xml.get(1..).unwrap_or_default(),
        })
    }

    /// Writes the datagram, byte for byte as liblsl sends it.
    pub fn to_bytes(&self) -> Vec<u8> {
        [self.id, b"\r\n", self.xml].concat()
    }
}

/// A datagram that reached an outlet.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Request<'a> {
    /// Question for matching streams; answered on every port.
    Discovery(QueryDatagram<'a>),
    /// Question for the time; answered on the service port alone, never on the multicast port.
    TimeData(TimeRequest),
    /// Any other datagram, which is ignored silently.
    Unknown,
}

/// Parses a datagram that arrived at a responder or service port.
///
/// # Errors
/// [`DatagramError`] when the command is ours but the rest is not acceptable. Malformed clock
/// probes get no answer; liblsl sends uninitialised memory. Spec: lsl-protocol §5.1.
pub fn parse_datagram(datagram: &[u8]) -> Result<Request<'_>, DatagramError> {
    let command = split_line(datagram).0.trim_ascii();
    if command == SHORTINFO_COMMAND {
        QueryDatagram::parse(datagram).map(Request::Discovery)
    } else if command == timedata::COMMAND {
        TimeRequest::parse(datagram).map(Request::TimeData)
    } else {
        Ok(Request::Unknown)
    }
}

/// Returns the id that liblsl gives a query: `std::hash<std::string>` of 64-bit libstdc++, in decimal.
/// Responders only echo it; sending the same one keeps captures comparable. Spec: lsl-protocol §3.1.
pub fn query_id(query: &[u8]) -> u64 {
    const MULTIPLIER: u64 = 0xc6a4_a793_5bd1_e995;
    const SEED: u64 = 0xc70f_6907;
    let mix = |value: u64| value ^ (value >> 47);
    let mut hash = SEED ^ (query.len() as u64).wrapping_mul(MULTIPLIER);
    let (words, tail) = query.as_chunks::<8>();
    for word in words {
        let word = mix(u64::from_le_bytes(*word).wrapping_mul(MULTIPLIER)).wrapping_mul(MULTIPLIER);
        hash = (hash ^ word).wrapping_mul(MULTIPLIER);
    }
    if !tail.is_empty() {
        let word = tail
            .iter()
            .rev()
            .fold(0, |word, &byte| word << 8 | u64::from(byte));
        hash = (hash ^ word).wrapping_mul(MULTIPLIER);
    }
    mix(mix(hash).wrapping_mul(MULTIPLIER))
}

/// Splits after the first LF; everything is the line when there is none.
pub(crate) fn split_line(text: &[u8]) -> (&[u8], &[u8]) {
    let mut parts = text.splitn(2, |&byte| byte == b'\n');
    (
        parts.next().unwrap_or_default(),
        parts.next().unwrap_or_default(),
    )
}

/// Returns the first blank-separated token and the text after it.
pub(crate) fn split_blank(text: &[u8]) -> (&[u8], &[u8]) {
    let text = text.trim_ascii_start();
    let end = text
        .iter()
        .position(u8::is_ascii_whitespace)
        .unwrap_or(text.len());
    text.split_at_checked(end).unwrap_or_default()
}

/// Parses a text that consists of nothing but the value.
pub(crate) fn parse_ascii<T: std::str::FromStr>(text: &[u8]) -> Option<T> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Appends text on one line: CR and LF become blanks.
pub(crate) fn push_one_line(out: &mut Vec<u8>, text: &[u8]) {
    out.extend(text.iter().map(|&byte| {
        if matches!(byte, b'\r' | b'\n') {
            b' '
        } else {
            byte
        }
    }));
}

#[cfg(test)]
pub(crate) mod tests;
