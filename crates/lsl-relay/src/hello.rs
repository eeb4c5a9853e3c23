//! First exchange of a link, for both sides. Spec: relay §4.1.

use crate::id::RelayId;
use crate::mux::Limits;

/// First word of a dialler's hello.
pub const RELAY_COMMAND: &[u8] = b"LSL:relay/";

/// Time in seconds that a hello may take.
pub const HELLO_SECS: f64 = 10.0;

/// Version of frames that this side speaks.
const FRAMES: &[u8] = b"1";

/// Longest hello that is kept, in bytes; real ones have 120.
const MAX_BYTES: usize = 4096;

/// Most bytes of a relay's name.
const MAX_NAME: usize = 200;

const WINDOWS: std::ops::RangeInclusive<u32> = 16_384..=4_194_304;

/// Description of one side of a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hello {
    /// Identity of the relay.
    pub id: RelayId,
    /// Name for people; not trusted.
    pub name: String,
    /// What the other side may send and open.
    pub limits: Limits,
}

impl Hello {
    /// Writes the dialler's hello.
    pub fn request(&self) -> Vec<u8> {
        self.after("LSL:relay/1")
    }

    /// Writes the acceptor's hello; frames follow.
    pub fn reply(&self) -> Vec<u8> {
        self.after("LSL/110 200 OK")
    }

    fn after(&self, line: &str) -> Vec<u8> {
        let Limits { window, streams } = self.limits;
        let id = self.id;
        let name = tidy_name(&self.name);
        let text = format!(
            "{line}\r\nRelay-Id: {id}\r\nRelay-Name: {name}\r\nFrames: 1\r\nWindow: {window}\r\nStreams: \
             {streams}\r\n\r\n"
        );
        text.into_bytes()
    }
}

/// Answer of an acceptor that makes no link; it closes after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The dialler is not trusted as a relay.
    NotARelay,
    /// Another link to that relay stays.
    Duplicate,
    /// It has as many links as it may.
    Busy,
    /// It speaks another version of frames.
    Version,
    /// The dialler reached itself.
    OwnId,
    /// Another status, which is treated as passing.
    Other(u16),
}

impl Refusal {
    const ALL: [Self; 5] = [
        Self::NotARelay,
        Self::Duplicate,
        Self::Busy,
        Self::Version,
        Self::OwnId,
    ];

    /// Returns the status of the answer.
    pub fn status(self) -> u16 {
        match self {
            Self::NotARelay => 403,
            Self::Duplicate => 409,
            Self::Busy => 503,
            Self::Version => 505,
            Self::OwnId => 508,
            Self::Other(status) => status,
        }
    }

    /// Returns the text of the answer.
    pub fn text(self) -> &'static str {
        match self {
            Self::NotARelay => "Not a relay here",
            Self::Duplicate => "Duplicate link",
            Self::Busy => "Relay limit reached, try again",
            Self::Version => "Version not supported",
            Self::OwnId => "That is this relay",
            Self::Other(_) => "Refused",
        }
    }

    /// Writes the answer.
    pub fn to_bytes(self) -> Vec<u8> {
        format!("LSL/110 {} {}\r\n\r\n", self.status(), self.text()).into_bytes()
    }
}

/// Reason for which a hello makes no link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HelloError {
    /// The acceptor answered with another status than 200; or, to a dialler, this is the answer.
    #[error("the link is refused with status {}", .0.status())]
    Refused(Refusal),
    /// This is no hello: the connection is closed without an answer.
    #[error("malformed hello: {0}")]
    Malformed(&'static str),
}

/// Reads the hello of the other side.
#[derive(Debug)]
pub struct HelloParser {
    is_reply: bool,
    text: Vec<u8>,
}

impl HelloParser {
    /// Creates an acceptor's parser, which begins with the line of the request.
    pub fn of_request() -> Self {
        Self {
            is_reply: false,
            text: Vec::new(),
        }
    }

    /// Creates a dialler's parser, which begins with the status line.
    pub fn of_reply() -> Self {
        Self {
            is_reply: true,
            text: Vec::new(),
        }
    }

    /// Takes bytes in the order they came. Returns `None` if more are needed, else the hello and the number of
    /// these `bytes` that belong to it; the rest are frames. The parser is done then.
    ///
    /// # Errors
    /// [`HelloError`]: there is no link.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<Option<(Hello, usize)>, HelloError> {
        let before = self.text.len();
        let room = MAX_BYTES - before;
        self.text
            .extend_from_slice(bytes.get(..room).unwrap_or(bytes));
        let from = before.saturating_sub(END.len() - 1);
        let tail = self.text.get(from..).unwrap_or_default();
        let end = tail.windows(END.len()).position(|bytes| bytes == END);
        let Some(end) = end.map(|at| from + at) else {
            return if self.text.len() < MAX_BYTES {
                Ok(None)
            } else {
                Err(HelloError::Malformed("it is too long"))
            };
        };
        let hello = self.parse(self.text.get(..end).unwrap_or_default())?;
        Ok(Some((hello, end + END.len() - before)))
    }

    fn parse(&self, text: &[u8]) -> Result<Hello, HelloError> {
        let mut lines = text.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
        let first = lines.next().unwrap_or_default();
        if self.is_reply {
            check_status(first)?;
        } else {
            let version = first.strip_prefix(RELAY_COMMAND);
            let version = version.ok_or(HelloError::Malformed("another request"))?;
            if version != b"1" {
                return Err(HelloError::Refused(Refusal::Version));
            }
        }
        let (mut id, mut name, mut frames, mut window, mut streams) =
            (None, String::new(), None, None, None);
        for line in lines {
            let Some(colon) = line.iter().position(|byte| *byte == b':') else {
                continue;
            };
            let (key, value) = line.split_at_checked(colon).unwrap_or_default();
            let value = value.get(1..).unwrap_or_default();
            let value = value.split(|byte| *byte == b';').next().unwrap_or_default();
            let value = value.trim_ascii();
            match key.trim_ascii().to_ascii_lowercase().as_slice() {
                b"relay-id" => id = number(value),
                b"relay-name" => name = tidy_name(&String::from_utf8_lossy(value)),
                b"frames" => frames = Some(value),
                b"window" => window = number(value),
                b"streams" => streams = number(value),
                _ => {}
            }
        }
        if frames.is_some_and(|frames| frames != FRAMES) {
            return Err(HelloError::Refused(Refusal::Version));
        }
        let missing = HelloError::Malformed;
        frames.ok_or_else(|| missing("Frames"))?;
        let window = window.filter(|window| WINDOWS.contains(window));
        Ok(Hello {
            id: id.ok_or_else(|| missing("Relay-Id"))?,
            name,
            limits: Limits {
                window: window.ok_or_else(|| missing("Window"))?,
                streams: streams.ok_or_else(|| missing("Streams"))?,
            },
        })
    }
}

fn check_status(line: &[u8]) -> Result<(), HelloError> {
    let mut words = line.split(|byte| *byte == b' ');
    let is_lsl = words.next().is_some_and(|word| word.starts_with(b"LSL/"));
    let status: Option<u16> = words.next().filter(|_| is_lsl).and_then(number);
    match status.ok_or(HelloError::Malformed("no status line"))? {
        200 => Ok(()),
        status => {
            let known = Refusal::ALL.into_iter().find(|it| it.status() == status);
            Err(HelloError::Refused(known.unwrap_or(Refusal::Other(status))))
        }
    }
}

fn number<T: std::str::FromStr>(text: &[u8]) -> Option<T> {
    let is_signed = text.starts_with(b"+");
    std::str::from_utf8(text)
        .ok()?
        .parse()
        .ok()
        .filter(|_| !is_signed)
}

/// Makes a name fit into a header line and a terminal.
fn tidy_name(name: &str) -> String {
    let mut tidy = String::new();
    for c in name.chars().filter(|c| !c.is_control() && *c != ';') {
        if tidy.len() + c.len_utf8() > MAX_NAME {
            break;
        }
        tidy.push(c);
    }
    tidy.trim().to_owned()
}

const END: &[u8] = b"\r\n\r\n";

#[cfg(test)]
mod tests {
    use super::*;

    fn hello() -> Hello {
        Hello {
            id: RelayId(0x0123_4567_89ab_cdef),
            name: "Lab A".to_owned(),
            limits: Limits {
                window: 65_536,
                streams: 4096,
            },
        }
    }

    fn check(is_reply: bool, text: &str) -> Result<Hello, HelloError> {
        let mut results = Vec::new();
        for cut in [1, 3, text.len()] {
            let mut parser = HelloParser {
                is_reply,
                text: Vec::new(),
            };
            let mut result = Ok(None);
            for piece in text.as_bytes().chunks(cut) {
                result = parser.feed(piece);
                if result != Ok(None) {
                    break;
                }
            }
            results.push(result.map(|done| done.expect("complete").0));
        }
        assert!(
            results.iter().all(|result| *result == results[0]),
            "{results:?}"
        );
        results.remove(0)
    }

    #[test]
    fn both_sides_read_what_the_other_wrote_and_no_byte_more() {
        let text = "LSL:relay/1\r\nRelay-Id: 0123456789abcdef\r\nRelay-Name: Lab A\r\nFrames: 1\r\n\
                    Window: 65536\r\nStreams: 4096\r\n\r\n";
        assert_eq!(hello().request(), text.as_bytes());
        assert_eq!(check(false, text), Ok(hello()));
        let reply = String::from_utf8(hello().reply()).expect("text");
        assert_eq!(check(true, &reply), Ok(hello()));
        let with_frames = [reply.as_bytes(), b"\r\n\r\nframes"].concat();
        let (_, taken) = HelloParser::of_reply()
            .feed(&with_frames)
            .expect("a hello")
            .expect("whole");
        assert_eq!(taken, reply.len());
    }

    #[test]
    fn unknown_headers_cases_and_comments_do_not_matter() {
        let text = "LSL:relay/1\r\nX: y\r\nRELAY-ID:0123456789ABCDEF ; c\r\nrelay-name: Lab\u{1b} A\r\nno\r\n\
                    Frames:1\r\nWindow:65536\r\nStreams:4096\r\n\r\n";
        assert_eq!(check(false, text), Ok(hello()));
    }

    #[test]
    fn refusals_arrive_as_they_were_meant() {
        for refusal in Refusal::ALL.into_iter().chain([Refusal::Other(599)]) {
            let text = String::from_utf8(refusal.to_bytes()).expect("text");
            assert_eq!(check(true, &text), Err(HelloError::Refused(refusal)));
        }
        assert_eq!(
            Refusal::OwnId.to_bytes(),
            b"LSL/110 508 That is this relay\r\n\r\n"
        );
    }

    #[test]
    fn what_is_no_hello_makes_no_link() {
        let good = String::from_utf8(hello().request()).expect("text");
        let version = Err(HelloError::Refused(Refusal::Version));
        assert_eq!(check(false, &good.replace("relay/1", "relay/2")), version);
        assert_eq!(
            check(false, &good.replace("Frames: 1", "Frames: 2")),
            version
        );
        for (from, to) in [
            ("LSL:relay/1", "LSL:fullinfo"),
            ("0123456789abcdef", "0123456789abcde"),
            ("0123456789abcdef", "+123456789abcdef"),
            ("Window: 65536", "Window: 16383"),
            ("Window: 65536", "Window: 4194305"),
            ("Streams: 4096", "Streams: -1"),
            ("Frames: 1\r\n", ""),
            ("Relay-Id", "Relay-Ix"),
        ] {
            let result = check(false, &good.replace(from, to));
            assert!(
                matches!(result, Err(HelloError::Malformed(_))),
                "{to}: {result:?}"
            );
        }
        assert!(matches!(check(true, &good), Err(HelloError::Malformed(_))));
        let mut parser = HelloParser::of_request();
        let long = vec![b'x'; MAX_BYTES];
        assert_eq!(
            parser.feed(&long),
            Err(HelloError::Malformed("it is too long"))
        );
    }

    #[test]
    fn names_and_ids_fit() {
        let long = "ö".repeat(300);
        assert_eq!(tidy_name(&long).len(), MAX_NAME);
        assert_eq!("00000000000000fF".parse(), Ok(RelayId(255)));
        assert_eq!(RelayId(255).to_string(), "00000000000000ff");
        let key = lsl_secure::SecretKey::from_seed(&[7; 32]).public();
        assert_eq!(RelayId::of_key(&key).to_string().len(), 16);
    }
}
