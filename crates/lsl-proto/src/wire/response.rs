//! Responses to feed requests: the writer of outlets and the parser of inlets.
//! Spec: lsl-protocol §7.3, §7.4.
//!
//! The parser stops exactly where the samples begin and returns that position, because they arrive
//! in the same packet. `session` decides how to react to a failure; the variants of [`FeedError`]
//! are made for that.

use crate::wire::request::{FIRST_VERSION_WITH_HEADERS, Header, leading_int};
use crate::wire::sequence::{Granted, ReplayFrom, parse_sequence};
use crate::{ByteOrder, ChannelFormat, Error};

/// Longest response header that is read; liblsl sends 130 bytes.
pub const MAX_RESPONSE_BYTES: usize = 16 * 1024;

/// Encoding of the samples of a feed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DataProtocol {
    /// Portable archive. Spec: lsl-protocol §8.
    V100,
    /// Framed samples in a negotiated byte order. Spec: lsl-protocol §7.5.
    V110,
}

impl DataProtocol {
    /// Returns the number that stands for it in headers.
    pub const fn code(self) -> u32 {
        match self {
            Self::V100 => 100,
            Self::V110 => 110,
        }
    }

    /// Returns the data protocol of a version: everything before 1.10 is archive.
    pub const fn from_version(version: u32) -> Self {
        if version >= FIRST_VERSION_WITH_HEADERS {
            Self::V110
        } else {
            Self::V100
        }
    }
}

/// Encoding of a feed that was granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FeedResponse {
    /// Byte order of the samples. Without meaning for [`DataProtocol::V100`], which is little endian.
    pub byte_order: ByteOrder,
    /// Whether the outlet flushes subnormal floats to zero; then the test patterns are compared so.
    pub suppress_subnormals: bool,
    /// Data protocol that encodes the samples.
    pub data_protocol: DataProtocol,
    /// Numbers of the samples, if replay was asked for and granted. Spec: resume §2.2.
    pub granted: Option<Granted>,
}

impl FeedResponse {
    /// Writes the status line and headers of an outlet of protocol `version`; samples follow immediately.
    pub fn to_bytes(&self, version: u32, uid: &[u8]) -> Vec<u8> {
        let mut out = format!("LSL/{version} 200 OK\r\nUID: ").into_bytes();
        out.extend_from_slice(uid);
        let granted = self.granted.map(|granted| granted.header_lines());
        let granted = granted.unwrap_or_default();
        let rest = format!(
            "\r\nByte-Order: {}\r\nSuppress-Subnormals: {}\r\nData-Protocol-Version: {}\r\n{granted}\r\n",
            self.byte_order.code(),
            u8::from(self.suppress_subnormals),
            self.data_protocol.code(),
        );
        out.extend_from_slice(rest.as_bytes());
        out
    }
}

/// Reason for which an outlet grants no feed. The connection is closed after the status line, if any.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Refusal {
    /// The inlet speaks a newer major version.
    Version,
    /// The inlet wants another outlet than this one.
    NotFound,
    /// A synchronous outlet cannot write the archive the inlet would need.
    SynchronousNeeds110,
    /// The outlet has as many readers as it may.
    TooManyReaders,
    /// A relay serves as many as it may.
    RelayLimit,
    /// The inlet expects no status line.
    Silent,
}

impl Refusal {
    /// Returns the bytes to send before closing, without line end: the close ends them for inlets.
    /// Spec: lsl-protocol §7.3, §14 Q1.
    pub fn to_bytes(self, version: u32) -> Vec<u8> {
        let status = match self {
            Self::Version => "505 Version not supported",
            Self::NotFound => "404 Not found",
            Self::SynchronousNeeds110 => "505 Synchronous outlet requires data protocol 1.10",
            Self::TooManyReaders => "503 Too many readers",
            Self::RelayLimit => "503 Relay limit reached, try again",
            Self::Silent => return Vec::new(),
        };
        format!("LSL/{version} {status}").into_bytes()
    }
}

/// Reason for which an inlet gets no feed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FeedError {
    /// Another outlet lives at that address now (status 404 or a foreign uid): resolve again.
    #[error("the outlet is another one")]
    NotFound,
    /// The outlet does not support our version, or we not its: trying again cannot help.
    #[error("the protocol versions do not fit")]
    Version,
    /// The outlet sends us elsewhere, which LSL never defined: resolve again.
    #[error("the outlet redirects with status {0}")]
    Redirect(i32),
    /// The outlet reports another failure.
    #[error("the outlet refuses with status {0}")]
    Refused(i32),
    /// The byte order is unknown, such as 2134.
    #[error("unknown byte order {0}")]
    ByteOrder(i32),
    /// The numbers of the samples are malformed or contradict the request: ask for live samples once.
    #[error("malformed sequence numbers: {0}")]
    Sequence(&'static str),
    /// This is not a response of LSL; the text names the mistake.
    #[error("malformed response: {0}")]
    Malformed(&'static str),
    /// The header is longer than [`MAX_RESPONSE_BYTES`].
    #[error("the response header is too long")]
    TooLong,
    /// The connection ended before the header did: try again.
    #[error("the connection was closed")]
    Closed,
}

impl From<FeedError> for Error {
    fn from(error: FeedError) -> Self {
        Self::Protocol(format!("no feed: {error}"))
    }
}

/// Reads the response of an outlet up to the first sample.
#[derive(Debug)]
pub struct ResponseParser {
    version: u32,
    uid: Vec<u8>,
    format: ChannelFormat,
    /// The line that is not complete yet.
    line: Vec<u8>,
    received: usize,
    status_seen: bool,
    response: FeedResponse,
    asked: Option<ReplayFrom>,
    /// End of the stream, which may come before the line that it belongs to.
    end: Option<u64>,
}

impl ResponseParser {
    /// Creates a parser for the response to a request for `uid` of a stream of this `format`, by an
    /// inlet of protocol `version` and byte order `own_order`.
    pub fn new(version: u32, uid: &[u8], format: ChannelFormat, own_order: ByteOrder) -> Self {
        let response = FeedResponse {
            byte_order: own_order,
            suppress_subnormals: false,
            // The protocol of an outlet that names none.
            data_protocol: DataProtocol::V100,
            granted: None,
        };
        Self {
            version,
            // Header lines are lower-cased before they are compared, ours must be too.
            uid: uid.to_ascii_lowercase(),
            format,
            line: Vec::new(),
            received: 0,
            status_seen: false,
            response,
            asked: None,
            end: None,
        }
    }

    /// Tells the parser what the request asked for; without it, grants are ignored.
    #[must_use]
    pub fn with_replay_from(self, asked: Option<ReplayFrom>) -> Self {
        Self { asked, ..self }
    }

    /// Takes bytes in the order they arrived. Returns `None` if more are needed, else the granted
    /// feed and the number of these `bytes` that belong to the header; the rest are samples. The
    /// parser is done then.
    ///
    /// # Errors
    /// [`FeedError`]: the connection is of no use.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<Option<(FeedResponse, usize)>, FeedError> {
        let mut consumed = 0;
        for piece in bytes.split_inclusive(|&byte| byte == b'\n') {
            consumed += piece.len();
            self.received = self.received.saturating_add(piece.len());
            if self.received > MAX_RESPONSE_BYTES {
                return Err(FeedError::TooLong);
            }
            self.line.extend_from_slice(piece);
            if !piece.ends_with(b"\n") {
                break;
            }
            let line = std::mem::take(&mut self.line);
            if !self.status_seen {
                self.check_status(&line)?;
                self.status_seen = true;
            } else if line.starts_with(b"\r") {
                return Ok(Some((self.complete()?, consumed)));
            } else {
                self.take_header(&line)?;
            }
        }
        Ok(None)
    }

    /// Returns the meaning of a connection that ended before the header did. A status line without
    /// line end is valid: outlets write failures that way.
    pub fn finish(self) -> FeedError {
        if self.status_seen || self.line.is_empty() {
            return FeedError::Closed;
        }
        self.check_status(&self.line)
            .err()
            .unwrap_or(FeedError::Closed)
    }

    fn check_status(&self, line: &[u8]) -> Result<(), FeedError> {
        const MALFORMED: FeedError = FeedError::Malformed("status line");
        let mut parts = line
            .split(u8::is_ascii_whitespace)
            .filter(|part| !part.is_empty());
        let (Some(version), Some(status), Some(_text)) = (parts.next(), parts.next(), parts.next())
        else {
            return Err(MALFORMED);
        };
        let version = version
            .strip_prefix(b"LSL/")
            .and_then(leading_int)
            .ok_or(MALFORMED)?;
        let version = u32::try_from(version).map_err(|_| MALFORMED)?;
        let status = leading_int(status).ok_or(MALFORMED)?;
        if version / 100 > self.version / 100 {
            return Err(FeedError::Version);
        }
        match status {
            404 => Err(FeedError::NotFound),
            505 => Err(FeedError::Version),
            400.. => Err(FeedError::Refused(status)),
            300.. => Err(FeedError::Redirect(status)),
            _ => Ok(()),
        }
    }

    /// Returns the response, once all of its lines are there.
    fn complete(&self) -> Result<FeedResponse, FeedError> {
        let mut response = self.response;
        if let (Some(granted), Some(asked)) = (&mut response.granted, &self.asked) {
            granted.end = self.end;
            granted.check(asked).map_err(FeedError::Sequence)?;
            if response.data_protocol == DataProtocol::V100 {
                return Err(FeedError::Sequence("granted for an archive"));
            }
        }
        Ok(response)
    }

    fn take_header(&mut self, line: &[u8]) -> Result<(), FeedError> {
        let header = Header::parse(line).map_err(|_| FeedError::Malformed("comment"))?;
        let Some(Header { key, value }) = header else {
            return Ok(());
        };
        match key.as_slice() {
            b"uid" if value != self.uid => return Err(FeedError::NotFound),
            b"byte-order" => {
                let code = leading_int(&value).ok_or(FeedError::Malformed("byte-order"))?;
                match ByteOrder::from_code(code) {
                    Some(order) => self.response.byte_order = order,
                    // Old outlets send 0; then, and for single bytes, ours will do.
                    None if code == 0 || self.format.value_size() == 1 => {}
                    None => return Err(FeedError::ByteOrder(code)),
                }
            }
            b"suppress-subnormals" => self.response.suppress_subnormals = value == b"1",
            b"data-protocol-version" => {
                let version = leading_int(&value).and_then(|version| u32::try_from(version).ok());
                let version = version.ok_or(FeedError::Malformed("data-protocol-version"))?;
                if version > self.version {
                    return Err(FeedError::Version);
                }
                self.response.data_protocol = DataProtocol::from_version(version);
            }
            b"lslx-sequence" if self.asked.is_some() => {
                let granted = Granted::parse(&value).filter(|_| self.response.granted.is_none());
                let granted = granted.ok_or(FeedError::Sequence("lslx-sequence"))?;
                self.response.granted = Some(granted);
            }
            b"lslx-end" if self.asked.is_some() => {
                let end = parse_sequence(&value).ok_or(FeedError::Sequence("lslx-end"))?;
                self.end = Some(end);
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod tests;
