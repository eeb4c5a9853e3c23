//! The commands of remote control, and the lines in which they come. Knows no socket.

/// Command of a remote control, as parsed from its line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Select every stream of the session.
    SelectAll,
    /// Deselect all streams of the session.
    SelectNone,
    /// Add the streams that this text names to the selection.
    Select(String),
    /// Begin to record the selected streams.
    Start,
    /// End the recording, writing its footers.
    Stop,
    /// Search for streams anew, as LabRecorder's clients ask.
    Update,
    /// Name the next file: keys and values, as they came.
    Filename(Vec<(String, String)>),
    /// Ask how it is going.
    Status,
    /// Ask for the streams of the recording.
    Streams,
    /// Record this text as an event.
    Mark(String),
    /// End the recording and the program.
    Quit,
    /// A line that is no known command, and is not kept: it may be a token that came without
    /// `auth`. LabRecorder says OK to it.
    Unknown,
}

impl Command {
    pub(crate) fn parse(line: &str) -> Self {
        let line = line.trim();
        let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let rest = rest.trim();
        match (word.to_ascii_lowercase().as_str(), rest) {
            ("select", "all") => Self::SelectAll,
            ("select", "none") => Self::SelectNone,
            ("select", which) if !which.is_empty() => Self::Select(which.to_owned()),
            ("start", "") => Self::Start,
            ("stop", "") => Self::Stop,
            ("update", "") => Self::Update,
            ("filename", parts) => Self::Filename(pairs(parts)),
            ("status", "") => Self::Status,
            ("streams", "") => Self::Streams,
            ("mark", text) => Self::Mark(text.to_owned()),
            ("quit", "") => Self::Quit,
            _ => Self::Unknown,
        }
    }

    /// Whether it is one of ours, which answers with JSON.
    pub(crate) fn is_ours(&self) -> bool {
        matches!(
            self,
            Self::Select(_) | Self::Status | Self::Streams | Self::Mark(_) | Self::Quit
        )
    }
}

/// The token that a line names, if it does so.
pub(crate) fn named_token(line: &str) -> Option<&str> {
    let line = line.trim();
    let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    word.eq_ignore_ascii_case("auth").then(|| rest.trim())
}

/// `{key:value} {key:value}`; a value may have colons and backslashes.
fn pairs(text: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(start) = rest.find('{') {
        let Some(end) = rest[start..].find('}') else {
            break;
        };
        if let Some((key, value)) = rest[start + 1..start + end].split_once(':') {
            found.push((key.trim().to_ascii_lowercase(), value.trim().to_owned()));
        }
        rest = &rest[start + end + 1..];
    }
    found
}

/// Splits received bytes into lines. Bytes that are no command end the connection: their sender
/// speaks another protocol, or wants to write on the operator's terminal.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    rest: Vec<u8>,
    /// Whether the first line is there.
    has_begun: bool,
}

/// Reason for which a connection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoCommand {
    /// A web page has a browser send it.
    Web,
    /// Control characters, TLS for one, bytes that are no UTF-8, or no end of a line in sight.
    Garbage,
}

impl Lines {
    /// The lines that bytes complete, without their ends.
    ///
    /// # Errors
    /// [`NoCommand`], for good. Commands before it in the same bytes are not obeyed either.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> Result<Vec<String>, NoCommand> {
        let mut lines = Vec::new();
        for &byte in bytes {
            match byte {
                b'\n' => {
                    let mut line = std::mem::take(&mut self.rest);
                    if line.last() == Some(&b'\r') {
                        line.pop();
                    }
                    let line = String::from_utf8(line).map_err(|_| NoCommand::Garbage)?;
                    if line.chars().any(char::is_control) {
                        return Err(NoCommand::Garbage);
                    }
                    if is_http(&line) {
                        return Err(NoCommand::Web);
                    }
                    self.has_begun = true;
                    lines.push(line);
                }
                // Not at the end of a line.
                _ if self.rest.last() == Some(&b'\r') => return Err(NoCommand::Garbage),
                b'\r' => self.rest.push(byte),
                // Those from 0xC0 on stand nowhere in UTF-8. TLS begins with 0x16.
                0..0x20 | 0x7F | 0xC0 | 0xC1 | 0xF5.. => return Err(NoCommand::Garbage),
                b' ' if !self.has_begun && is_method(&self.rest) => return Err(NoCommand::Web),
                _ if self.rest.len() >= MAX_LINE => return Err(NoCommand::Garbage),
                _ => self.rest.push(byte),
            }
        }
        Ok(lines)
    }
}

/// Whether a connection begins like HTTP; no command of ours has such a name.
fn is_method(word: &[u8]) -> bool {
    METHODS
        .iter()
        .any(|it| it.as_bytes().eq_ignore_ascii_case(word))
}

/// Whether a line comes from a browser: pages of others can make it send here whatever they like, as
/// the body of a request, and the first lines of that cannot be left out.
fn is_http(line: &str) -> bool {
    let is_version = |word: &str| {
        starts_with(word, "HTTP/")
            && word
                .bytes()
                .skip(5)
                .all(|c| c.is_ascii_digit() || c == b'.')
    };
    let request = line.rsplit_once(' ');
    request.is_some_and(|(_, last)| is_version(last)) || starts_with(line, "Host:")
}

fn starts_with(text: &str, start: &str) -> bool {
    let head = text.as_bytes().get(..start.len());
    head.is_some_and(|head| head.eq_ignore_ascii_case(start.as_bytes()))
}

const MAX_LINE: usize = 1 << 16;
/// Methods of HTTP (RFC 9110), PATCH, and the preface of HTTP/2.
const METHODS: [&str; 10] = [
    "GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH", "PRI",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_read_as_labrecorder_reads_them() {
        let check = |line: &str, expected: Command| assert_eq!(Command::parse(line), expected);
        check("select all\n", Command::SelectAll);
        check("select none", Command::SelectNone);
        check("select type='EEG'", Command::Select("type='EEG'".into()));
        check("start\r\n", Command::Start);
        check("stop", Command::Stop);
        check("update", Command::Update);
        check("mark Eyes  closed", Command::Mark("Eyes  closed".into()));
        check("hello you", Command::Unknown);
        assert_eq!(named_token(" AUTH  abc \r\n"), Some("abc"));
        assert_eq!(named_token("auth"), Some(""));
        assert_eq!(named_token("authority abc"), None);
        let line = "filename {root:C:\\Data\\} {template:exp%n\\%p_block_%b.xdf}{Run:2} \
                    {participant:P003} {task:Memory Guided}";
        let pairs = [
            ("root", "C:\\Data\\"),
            ("template", "exp%n\\%p_block_%b.xdf"),
            ("run", "2"),
            ("participant", "P003"),
            ("task", "Memory Guided"),
        ];
        let pairs = pairs.map(|(key, value)| (key.to_owned(), value.to_owned()));
        check(line, Command::Filename(pairs.to_vec()));
        check("filename {root", Command::Filename(Vec::new()));
    }

    #[test]
    fn browsers_are_recognised() {
        for line in [
            "POST / HTTP/1.1",
            "get /x http/1.0",
            "Host: localhost",
            "HOST:x",
        ] {
            assert!(is_http(line), "{line}");
        }
        for line in [
            "start",
            "mark HTTP",
            "select name='x HTTP/1.1'",
            "HTTP/1.1",
            "Hosts",
            "ä",
        ] {
            assert!(!is_http(line), "{line}");
        }
    }

    #[test]
    fn lines_come_in_pieces_and_with_either_end() {
        let mut lines = Lines::default();
        assert_eq!(lines.take(b"sel"), Ok(vec![]));
        let two = Ok(vec!["select all".to_owned(), "mark \u{e4}".to_owned()]);
        assert_eq!(lines.take("ect all\r\nmark \u{e4}\nst".as_bytes()), two);
        assert_eq!(lines.take(b"art\n"), Ok(vec!["start".to_owned()]));
        assert_eq!(lines.take(b"GET it\n"), Ok(vec!["GET it".to_owned()]));
    }

    #[test]
    fn what_is_no_command_ends_the_connection() {
        let check = |bytes: &[u8], expected: NoCommand| {
            // In one piece, and byte by byte.
            assert_eq!(Lines::default().take(bytes), Err(expected), "{bytes:?}");
            let mut lines = Lines::default();
            let mut each = bytes.iter().map(|&byte| lines.take(&[byte]));
            assert_eq!(each.find_map(Result::err), Some(expected), "{bytes:?}");
        };
        check(b"\x16\x03\x01\x02\0", NoCommand::Garbage);
        check(b"\x16", NoCommand::Garbage);
        for bytes in [
            &b"mark \x1b[2J"[..],
            b"mark a\tb",
            b"mark a\rb",
            b"mark \xff",
            b"mark \xc3\n",
            b"mark \xc2\x9b2J\n",
            b"\0",
            b"mark \x7f",
        ] {
            check(bytes, NoCommand::Garbage);
        }
        for bytes in [
            &b"GET "[..],
            b"post /",
            b"OPTIONS *",
            b"PRI * HTTP/2.0",
            b"x\nHost: y\n",
        ] {
            check(bytes, NoCommand::Web);
        }
        let mut lines = Lines::default();
        assert_eq!(lines.take(&vec![b'a'; MAX_LINE]), Ok(vec![]));
        assert_eq!(lines.take(b"a"), Err(NoCommand::Garbage));
    }
}
