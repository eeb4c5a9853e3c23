//! Requests on the data port: the parser of outlets and the writer of inlets.
//! Spec: lsl-protocol §6, §7.1, §7.2, §8; of the port of a relay, which knows more requests: relay §3.
//!
//! A connection carries exactly one request. The parser takes bytes in pieces of any size and
//! keeps at most [`MAX_REQUEST_BYTES`]; how long to wait for them is the caller's decision.

use std::ops::Range;

use crate::text::integer_prefix;
use crate::wire::discovery::{MAX_QUERY_BYTES, SHORTINFO_COMMAND, split_blank, split_line};
use crate::wire::sequence::ReplayFrom;
use crate::{ByteOrder, ChannelFormat, Error};

/// Longest request that is kept. liblsl has no limit and answers a request with a 17000-byte header
/// line (vector `tcp-request-cases`), so this stays above that; real requests have 400 bytes.
pub const MAX_REQUEST_BYTES: usize = 32 * 1024;

/// Protocol version of this implementation, `major * 100 + minor`.
pub const PROTOCOL_VERSION: u32 = 110;

/// First version that has status lines and headers.
pub const FIRST_VERSION_WITH_HEADERS: u32 = 110;

/// `Endian-Performance` that our inlets announce. liblsl measures it for 10 ms per connection. An
/// outlet serves the foreign byte order if its own figure is larger. So 0 makes every outlet serve
/// ours, and our decoder is always the native one. Between hosts of equal order it has no effect.
/// Spec: lsl-protocol §7.3.
const ENDIAN_PERFORMANCE: u32 = 0;

/// Longest header line; a longer one ends the headers. Spec: lsl-protocol §7.2.
const MAX_LINE_BYTES: usize = 16_383;

const FULLINFO_COMMAND: &[u8] = b"LSL:fullinfo";
const FEED_COMMAND: &[u8] = b"LSL:streamfeed";
const FEED_COMMAND_WITH_VERSION: &[u8] = b"LSL:streamfeed/";
const WATCH_COMMAND: &[u8] = b"LSL:watch/1";
const TIME_KEYS_COMMAND: &[u8] = b"LSL:timekeys/1";
const LINK_COMMAND: &[u8] = b"LSL:relay/1";
const STATUS_COMMAND: &[u8] = b"LSL:relay-status/1";

/// Reason for which a connection is closed without a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// No complete request within [`MAX_REQUEST_BYTES`].
    #[error("the request is too long")]
    TooLong,
    /// The query of a short info request is longer than [`MAX_QUERY_BYTES`].
    #[error("the query is too long")]
    QueryTooLong,
    /// The version after `LSL:streamfeed/` is no number. liblsl 1.17 closes, 1.18 idles.
    #[error("the protocol version is not a number")]
    Version,
    /// A header that must be a number is none.
    #[error("the header {0} is not a number")]
    Header(&'static str),
    /// A comment starts before the colon of a header line.
    #[error("a comment hides a header")]
    Comment,
}

impl From<RequestError> for Error {
    fn from(error: RequestError) -> Self {
        Self::Protocol(format!("request refused: {error}"))
    }
}

/// Request of a peer to an outlet.
#[derive(Debug, Clone, PartialEq)]
pub enum Request {
    /// The short info, if it matches the query.
    ShortInfo {
        /// Predicate text without surrounding blanks; at most [`MAX_QUERY_BYTES`].
        query: Vec<u8>,
    },
    /// The full info, without any condition.
    FullInfo,
    /// A feed in protocol 1.00, asked for without version or uid.
    StreamFeed100 {
        /// Queue length in samples; 0 or less asks for the test patterns alone.
        max_buffer: i32,
        /// Samples per chunk; 0 or less leaves it to the outlet.
        max_chunk: i32,
    },
    /// A feed of a stated version.
    StreamFeed {
        /// Version the inlet speaks, `major * 100 + minor`. Below 110 only the two lengths of `headers`
        /// were sent.
        version: u32,
        /// Uid of the outlet the inlet expects; empty accepts any.
        uid: Vec<u8>,
        /// Properties of the inlet; defaults for absent headers.
        headers: FeedParams,
    },
    /// One that only the port of a relay knows.
    Port(PortRequest),
    /// Another command; the connection is closed.
    Unknown,
}

/// Request of a peer to the port of a relay, which serves many streams. Spec: relay §3.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PortRequest {
    /// The full info of one stream.
    FullInfo {
        /// Uid of its origin.
        uid: Vec<u8>,
    },
    /// The streams that match a query, and what changes about them.
    Watch {
        /// Ends once all known streams were told.
        once: bool,
        /// Also streams that only the history has.
        past: bool,
        /// Predicate text without surrounding blanks; at most [`MAX_QUERY_BYTES`].
        query: Vec<u8>,
    },
    /// Nothing but a session, whose keys authenticate clock probes for one stream.
    TimeKeys {
        /// Uid of its origin.
        uid: Vec<u8>,
    },
    /// A link between two relays.
    Link {
        /// Header lines, with the empty one that ends them.
        headers: Vec<u8>,
    },
    /// What the relay does.
    Status,
}

/// Headers of a feed request, with liblsl's defaults for absent ones. Spec: lsl-protocol §7.2.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FeedParams {
    /// Byte order code of the inlet; may be any number, see [`ByteOrder::from_code`].
    pub native_byte_order: i32,
    /// Speed at which the inlet swaps bytes, in an arbitrary unit for comparison.
    pub endian_performance: f64,
    /// Whether the inlet has IEEE 754 floats.
    pub has_ieee754_floats: bool,
    /// Whether the inlet copes with subnormal floats.
    pub supports_subnormals: bool,
    /// Bytes per value of the inlet; `None` means as the stream has them.
    pub value_size: Option<i32>,
    /// Queue length in samples; 0 or less asks for the test patterns alone.
    pub max_buffer_length: i32,
    /// Samples per chunk; 0 or less leaves it to the outlet.
    pub max_chunk_length: i32,
    /// Highest data protocol the inlet wants; `None` means the version of the request.
    pub protocol_version: Option<i32>,
    /// Beginning that is asked for; `None` also if no line of it can be read. Spec: resume §2.1.
    pub replay_from: Option<ReplayFrom>,
}

impl Default for FeedParams {
    fn default() -> Self {
        Self {
            native_byte_order: ByteOrder::Little.code(),
            endian_performance: 0.0,
            has_ieee754_floats: true,
            supports_subnormals: true,
            value_size: None,
            max_buffer_length: 0,
            max_chunk_length: 0,
            protocol_version: None,
            replay_from: None,
        }
    }
}

/// Reads one request from a connection.
#[derive(Debug, Default)]
pub struct RequestParser {
    buffer: Vec<u8>,
    /// Start of the text that `stage` waits for.
    start: usize,
    /// Offset before which no terminator begins.
    scanned: usize,
    stage: RequestStage,
    /// Knows the requests of a relay's port too.
    is_port: bool,
    /// What came after a request to the port of a relay: some go on.
    rest: Vec<u8>,
}

#[derive(Debug, Default)]
enum RequestStage {
    #[default]
    Command,
    Query,
    Lengths,
    Headers {
        version: u32,
        uid: Vec<u8>,
    },
    Watch {
        once: bool,
        past: bool,
    },
    LinkHeaders,
}

impl RequestParser {
    /// Creates a parser at the beginning of a connection.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a parser at the beginning of a connection to the port of a relay.
    pub fn for_port() -> Self {
        Self {
            is_port: true,
            ..Self::default()
        }
    }

    /// Returns what came after a request that only the port of a relay knows.
    pub fn take_rest(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.rest)
    }

    /// Takes bytes in the order they arrived. `None` means that the request is not complete; once it
    /// is, everything further is ignored, as a connection serves one request.
    ///
    /// Only CR LF ends a request: a peer that writes bare LF waits for ever, as with liblsl.
    ///
    /// # Errors
    /// [`RequestError`]: the connection is to be closed without a reply.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<Option<Request>, RequestError> {
        let room = MAX_REQUEST_BYTES.saturating_sub(self.buffer.len());
        let (kept, beyond) = bytes.split_at_checked(room).unwrap_or((bytes, &[]));
        self.buffer.extend_from_slice(kept);
        loop {
            let end: &[u8] = match self.stage {
                RequestStage::Headers { .. } | RequestStage::LinkHeaders => b"\r\n\r\n",
                _ => b"\r\n",
            };
            let Some(at) = self.find(end) else {
                let full = self.buffer.len() >= MAX_REQUEST_BYTES;
                return if full {
                    Err(RequestError::TooLong)
                } else {
                    Ok(None)
                };
            };
            let text = self
                .buffer
                .get(self.start..at + end.len())
                .unwrap_or_default();
            let request = match &self.stage {
                RequestStage::Command => {
                    // The command ends at the first LF, even if the CR LF comes later.
                    let (command, _) = split_line(text);
                    let next = self.start + command.len() + 1;
                    let command = command.trim_ascii();
                    let known = self.is_port.then(|| parse_port_command(command)).flatten();
                    match known.map_or_else(|| parse_command(command), Ok)? {
                        Command::Complete(request) => request,
                        Command::Continue(stage) => {
                            self.stage = stage;
                            self.start = next;
                            self.scanned = next;
                            continue;
                        }
                    }
                }
                RequestStage::Query => Request::ShortInfo {
                    query: parse_query(text)?,
                },
                RequestStage::Watch { once, past } => Request::Port(PortRequest::Watch {
                    once: *once,
                    past: *past,
                    query: parse_query(text)?,
                }),
                RequestStage::LinkHeaders => Request::Port(PortRequest::Link {
                    headers: text.to_vec(),
                }),
                RequestStage::Lengths => {
                    let (max_buffer, max_chunk) = parse_lengths(text);
                    Request::StreamFeed100 {
                        max_buffer,
                        max_chunk,
                    }
                }
                RequestStage::Headers { version, uid } => {
                    let headers = if *version < FIRST_VERSION_WITH_HEADERS {
                        let (max_buffer_length, max_chunk_length) = parse_lengths(text);
                        FeedParams {
                            max_buffer_length,
                            max_chunk_length,
                            ..FeedParams::default()
                        }
                    } else {
                        parse_headers(text)?
                    };
                    Request::StreamFeed {
                        version: *version,
                        uid: uid.clone(),
                        headers,
                    }
                }
            };
            if matches!(request, Request::Port(_)) {
                let rest = self.buffer.get(at + end.len()..).unwrap_or_default();
                self.rest = [rest, beyond].concat();
            }
            return Ok(Some(request));
        }
    }

    /// Returns the offset of the first `end` in the text of this stage. Remembers how far it
    /// looked, so a peer that sends single bytes costs no more than one that does not.
    fn find(&mut self, end: &[u8]) -> Option<usize> {
        let from = self.scanned.max(self.start);
        let unseen = self.buffer.get(from..).unwrap_or_default();
        let at = unseen.windows(end.len()).position(|window| window == end);
        if at.is_none() {
            self.scanned = from.max((self.buffer.len() + 1).saturating_sub(end.len()));
        }
        at.map(|at| from + at)
    }
}

enum Command {
    Complete(Request),
    Continue(RequestStage),
}

fn parse_command(command: &[u8]) -> Result<Command, RequestError> {
    if let Some(rest) = command.strip_prefix(FEED_COMMAND_WITH_VERSION) {
        // A blank right after the slash leaves no version.
        let end = rest
            .iter()
            .position(u8::is_ascii_whitespace)
            .unwrap_or(rest.len());
        let (version, rest) = rest.split_at_checked(end).unwrap_or_default();
        let version = leading_int(version).and_then(|version| u32::try_from(version).ok());
        let version = version.ok_or(RequestError::Version)?;
        let uid = split_blank(rest).0.to_vec();
        return Ok(Command::Continue(RequestStage::Headers { version, uid }));
    }
    Ok(match command {
        SHORTINFO_COMMAND => Command::Continue(RequestStage::Query),
        FULLINFO_COMMAND => Command::Complete(Request::FullInfo),
        FEED_COMMAND => Command::Continue(RequestStage::Lengths),
        _ => Command::Complete(Request::Unknown),
    })
}

/// Parses what only the port of a relay knows; `None` for other commands.
fn parse_port_command(command: &[u8]) -> Option<Command> {
    let (name, rest) = split_blank(command);
    let uid = || split_blank(rest).0.to_vec();
    let request = match name {
        // Which of many streams is not told.
        FULLINFO_COMMAND | TIME_KEYS_COMMAND if rest.is_empty() => Request::Unknown,
        FULLINFO_COMMAND => Request::Port(PortRequest::FullInfo { uid: uid() }),
        TIME_KEYS_COMMAND => Request::Port(PortRequest::TimeKeys { uid: uid() }),
        STATUS_COMMAND if rest.is_empty() => Request::Port(PortRequest::Status),
        LINK_COMMAND if rest.is_empty() => {
            return Some(Command::Continue(RequestStage::LinkHeaders));
        }
        WATCH_COMMAND => {
            let (mut once, mut past) = (false, false);
            let mut words = rest.split(u8::is_ascii_whitespace);
            let is_known = words.all(|word| {
                once |= word == b"once";
                past |= word == b"past";
                matches!(word, b"" | b"once" | b"past")
            });
            if is_known {
                return Some(Command::Continue(RequestStage::Watch { once, past }));
            }
            Request::Unknown
        }
        _ => return None,
    };
    Some(Command::Complete(request))
}

fn parse_query(text: &[u8]) -> Result<Vec<u8>, RequestError> {
    let query = split_line(text).0.trim_ascii();
    if query.len() > MAX_QUERY_BYTES {
        return Err(RequestError::QueryTooLong);
    }
    Ok(query.to_vec())
}

/// Parses the two numbers of a 1.00 request; unreadable ones are 0.
fn parse_lengths(text: &[u8]) -> (i32, i32) {
    let (first, rest) = split_blank(text);
    match leading_int(first) {
        Some(max_buffer) => (max_buffer, leading_int(split_blank(rest).0).unwrap_or(0)),
        // Reading stops at the first unreadable number.
        None => (0, 0),
    }
}

fn parse_headers(block: &[u8]) -> Result<FeedParams, RequestError> {
    let mut params = FeedParams::default();
    for line in block.split(|&byte| byte == b'\n') {
        if line.len() > MAX_LINE_BYTES || line.starts_with(b"\r") {
            break;
        }
        let Some(header) = Header::parse(line).map_err(|HiddenColon| RequestError::Comment)? else {
            continue;
        };
        let int = |name| leading_int(&header.value).ok_or(RequestError::Header(name));
        match header.key.as_slice() {
            b"native-byte-order" => params.native_byte_order = int("native-byte-order")?,
            b"endian-performance" => {
                params.endian_performance = leading_double(&header.value)
                    .ok_or(RequestError::Header("endian-performance"))?;
            }
            b"has-ieee754-floats" => params.has_ieee754_floats = header.value == b"1",
            b"supports-subnormals" => params.supports_subnormals = header.value == b"1",
            b"value-size" => params.value_size = Some(int("value-size")?),
            b"max-buffer-length" => params.max_buffer_length = int("max-buffer-length")?,
            b"max-chunk-length" => params.max_chunk_length = int("max-chunk-length")?,
            // Inlets write `Data-Protocol-Version`, outlets read this one. Spec: lsl-protocol §14 Q2.
            b"protocol-version" => params.protocol_version = Some(int("protocol-version")?),
            b"lslx-sequence" => {
                params.replay_from = ReplayFrom::parse(&header.value).or(params.replay_from);
            }
            _ => {}
        }
    }
    Ok(params)
}

/// One header, lower-cased and without blanks around its parts. Spec: lsl-protocol §7.2.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) key: Vec<u8>,
    pub(crate) value: Vec<u8>,
}

/// A comment starts before the first colon of a line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct HiddenColon;

impl Header {
    /// Parses a line without its LF; `None` if it has no colon.
    pub(crate) fn parse(line: &[u8]) -> Result<Option<Self>, HiddenColon> {
        let Some(colon) = line.iter().position(|&byte| byte == b':') else {
            return Ok(None);
        };
        let comment = line
            .iter()
            .position(|&byte| byte == b';')
            .unwrap_or(line.len());
        if comment < colon {
            return Err(HiddenColon);
        }
        let part = |range: Range<usize>| {
            line.get(range)
                .unwrap_or_default()
                .trim_ascii()
                .to_ascii_lowercase()
        };
        Ok(Some(Self {
            key: part(0..colon),
            value: part(colon + 1..comment),
        }))
    }
}

/// Parses the integer a text begins with, as C's `stoi`; `None` if there is none or it does not fit.
pub(crate) fn leading_int(text: &[u8]) -> Option<i32> {
    integer_prefix(text.trim_ascii_start())?.parse().ok()
}

/// Parses the decimal number a lower-cased text begins with, as C's `stod`; `None` if there is none
/// or it overflows.
fn leading_double(text: &[u8]) -> Option<f64> {
    let text = text.trim_ascii_start();
    // The longest prefix that is a number; Rust accepts what C does, except hexadecimal.
    let limit = text.len().min(64);
    let value = (1..=limit).rev().find_map(|end| {
        let prefix = std::str::from_utf8(text.get(..end)?).ok()?;
        prefix
            .parse::<f64>()
            .ok()
            .map(|value| (value, prefix.contains(|c: char| c.is_ascii_digit())))
    });
    value
        .filter(|(value, has_digits)| !has_digits || value.is_finite())
        .map(|(value, _)| value)
}

/// The feed request of an inlet. Spec: lsl-protocol §7.1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FeedRequest<'a> {
    /// The lower of our protocol version and the one of the stream info.
    pub version: u32,
    /// Uid of the expected outlet.
    pub uid: &'a [u8],
    /// Byte order of this host.
    pub byte_order: ByteOrder,
    /// Value format of the stream.
    pub format: ChannelFormat,
    /// Queue length in samples. 0 ends the feed after the test patterns; old outlets lose data with 1.
    pub max_buffer_samples: u32,
    /// Preferred samples per chunk; 0 leaves it to the outlet.
    pub max_chunk_samples: u32,
    /// Host name of the stream.
    pub hostname: &'a [u8],
    /// Source id of the stream.
    pub source_id: &'a [u8],
    /// Session id of the stream.
    pub session_id: &'a [u8],
    /// Beginning that is asked for; not in the 1.00 form.
    pub replay_from: Option<ReplayFrom>,
}

impl FeedRequest<'_> {
    /// Returns whether the outlet answers with status line and headers, not at once with the archive.
    pub const fn expects_response(&self) -> bool {
        self.version >= FIRST_VERSION_WITH_HEADERS
    }

    /// Writes the request, byte for byte as liblsl sends it except for `Endian-Performance`; the 1.00
    /// form for versions below 1.10. Header values lose the bytes that would end them: CR, LF and `;`.
    pub fn to_bytes(&self) -> Vec<u8> {
        // Outlets read lengths as `int` and close the connection when one does not fit.
        let max_buffer = self.max_buffer_samples.min(i32::MAX.unsigned_abs());
        let max_chunk = self.max_chunk_samples.min(i32::MAX.unsigned_abs());
        if !self.expects_response() {
            return format!("LSL:streamfeed\r\n{max_buffer} {max_chunk}\r\n").into_bytes();
        }
        let mut out = format!("LSL:streamfeed/{} ", self.version).into_bytes();
        push_value(&mut out, self.uid);
        let numbers = format!(
            "\r\nNative-Byte-Order: {}\r\nEndian-Performance: {ENDIAN_PERFORMANCE}\r\n\
             Has-IEEE754-Floats: 1\r\nSupports-Subnormals: {}\r\nValue-Size: {}\r\n\
             Data-Protocol-Version: {}\r\nMax-Buffer-Length: {max_buffer}\r\n\
             Max-Chunk-Length: {max_chunk}",
            self.byte_order.code(),
            u8::from(self.format.is_float()),
            self.format.value_size(),
            self.version,
        );
        out.extend_from_slice(numbers.as_bytes());
        let texts: [(&[u8], &[u8]); 3] = [
            (b"Hostname", self.hostname),
            (b"Source-Id", self.source_id),
            (b"Session-Id", self.session_id),
        ];
        for (key, value) in texts {
            out.extend_from_slice(b"\r\n");
            out.extend_from_slice(key);
            out.extend_from_slice(b": ");
            push_value(&mut out, value);
        }
        out.extend_from_slice(b"\r\n");
        if let Some(replay_from) = self.replay_from {
            out.extend_from_slice(replay_from.header_line().as_bytes());
        }
        out.extend_from_slice(b"\r\n");
        out
    }
}

/// Writes the request for the short info, if it matches `query`; line ends in it become blanks.
/// Spec: lsl-protocol §3.6.
pub fn shortinfo_request(query: &[u8]) -> Vec<u8> {
    let mut out = [SHORTINFO_COMMAND, b"\r\n"].concat();
    crate::wire::discovery::push_one_line(&mut out, query);
    out.extend_from_slice(b"\r\n");
    out
}

/// The request for the full info. Spec: lsl-protocol §6.
pub const FULLINFO_REQUEST: &[u8] = b"LSL:fullinfo\r\n";

/// Writes the request to a relay for the full info of the stream with this uid. Spec: relay §3.
pub fn relayed_fullinfo_request(uid: &[u8]) -> Vec<u8> {
    let mut out = [FULLINFO_COMMAND, b" "].concat();
    push_value(&mut out, uid);
    out.extend_from_slice(b"\r\n");
    out
}

fn push_value(out: &mut Vec<u8>, value: &[u8]) {
    out.extend(
        value
            .iter()
            .filter(|byte| !matches!(byte, b'\r' | b'\n' | b';')),
    );
}

#[cfg(test)]
pub(crate) mod tests;
