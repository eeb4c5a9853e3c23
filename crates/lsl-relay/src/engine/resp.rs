//! Commands and replies of Redis and Valkey (RESP, version 2) as bytes. Spec: relay §12.1.

use std::io::Write;

/// Commands that are sent in one go.
#[derive(Debug, Clone, Default)]
pub struct Commands {
    bytes: Vec<u8>,
    count: usize,
}

impl Commands {
    /// Appends a command with its arguments.
    pub fn add(&mut self, parts: &[&dyn AsRef<[u8]>]) {
        // Writing to memory cannot fail.
        let _ = write!(self.bytes, "*{}\r\n", parts.len());
        for part in parts {
            let part = part.as_ref();
            let _ = write!(self.bytes, "${}\r\n", part.len());
            self.bytes.extend_from_slice(part);
            self.bytes.extend_from_slice(b"\r\n");
        }
        self.count += 1;
    }

    /// Appends other commands.
    pub fn append(&mut self, other: &Self) {
        self.bytes.extend_from_slice(&other.bytes);
        self.count += other.count;
    }

    /// Returns how many replies are expected.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Returns what goes over the wire.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the same, without copying it.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

/// Reply to a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// A word such as `OK`.
    Word(String),
    /// An error: a code such as `OOM`, and a text.
    Error(String),
    /// A number.
    Integer(i64),
    /// Bytes.
    Bytes(Vec<u8>),
    /// Several replies.
    List(Vec<Self>),
    /// Nothing.
    Nil,
}

impl Reply {
    /// Returns bytes, or a word, as text.
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Bytes(bytes) => std::str::from_utf8(bytes).ok(),
            Self::Word(word) => Some(word),
            _ => None,
        }
    }

    /// Returns bytes.
    pub fn bytes(&self) -> Option<&[u8]> {
        match self {
            Self::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// Returns the replies of a list.
    pub fn list(&self) -> Option<&[Self]> {
        match self {
            Self::List(list) => Some(list),
            _ => None,
        }
    }

    /// Returns the value of a field, in a list of fields and values.
    pub fn field(&self, name: &str) -> Option<&Self> {
        let pairs = self.list()?.chunks_exact(2);
        let mut pairs = pairs.filter_map(|pair| match pair {
            [field, value] => Some((field, value)),
            _ => None,
        });
        pairs.find_map(|(field, value)| (field.text() == Some(name)).then_some(value))
    }
}

/// Bytes that are no reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no reply of Redis")]
pub struct Malformed;

/// Parser of replies that arrive in pieces. One that is too long is passed over, and an error ([`TOO_LONG`]): those behind
/// it are for others.
#[derive(Debug, Default)]
pub struct Replies {
    buffer: Vec<u8>,
    /// Beginning of the next reply.
    start: usize,
    /// End of what was looked at, and how many values of the reply are still to come there.
    scanned: usize,
    open: usize,
    values: usize,
    /// Bytes of the value that are still to be passed over, in a reply that is too long.
    skipped: usize,
    is_too_long: bool,
}

impl Replies {
    /// Takes the next bytes.
    pub fn feed(&mut self, bytes: &[u8]) {
        if self.start > 0 && self.start >= self.buffer.len() / 2 {
            self.buffer.drain(..self.start);
            self.scanned -= self.start;
            self.start = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// Returns the next complete reply.
    ///
    /// # Errors
    /// [`Malformed`]; nothing can be read after that.
    pub fn next_reply(&mut self) -> Result<Option<Reply>, Malformed> {
        if self.start == self.scanned && !self.is_too_long {
            (self.open, self.values) = (1, 0);
        }
        while self.open > 0 || self.skipped > 0 {
            let rest = self.buffer.get(self.scanned..).unwrap_or_default();
            if self.skipped > 0 {
                let there = self.skipped.min(rest.len());
                self.skipped -= there;
                self.scanned += there;
                self.start = self.scanned;
                if self.skipped > 0 {
                    return Ok(None);
                }
                continue;
            }
            let Some(head) = head(rest)? else {
                return Ok(None);
            };
            let (len, more) = match head.kind {
                Head::Bytes(len) => (head.len + len + 2, 0),
                Head::List(count) => (head.len, count),
                Head::Error(_) | Head::Word(_) | Head::Integer(_) | Head::Nil => (head.len, 0),
            };
            let open = (self.open - 1).saturating_add(more);
            self.is_too_long |=
                self.values >= MOST_VALUES || self.scanned - self.start + len > MOST_BYTES;
            if self.is_too_long {
                (self.open, self.skipped) = (open, len);
                continue;
            }
            if rest.len() < len {
                return Ok(None);
            }
            if !rest.get(..len).is_some_and(|it| it.ends_with(b"\r\n")) {
                return Err(Malformed);
            }
            self.scanned += len;
            self.values += 1;
            self.open = open;
        }
        if std::mem::take(&mut self.is_too_long) {
            return Ok(Some(Reply::Error(TOO_LONG.to_owned())));
        }
        let mut rest = (self.buffer.get(self.start..self.scanned)).unwrap_or_default();
        let reply = build(&mut rest, 0)?;
        self.start = self.scanned;
        Ok(Some(reply))
    }
}

/// First line of a value, and its length.
struct Line<'a> {
    kind: Head<'a>,
    len: usize,
}

enum Head<'a> {
    Word(&'a str),
    Error(&'a str),
    Integer(i64),
    Bytes(usize),
    List(usize),
    Nil,
}

fn head(bytes: &[u8]) -> Result<Option<Line<'_>>, Malformed> {
    let Some((kind, rest)) = bytes.split_first() else {
        return Ok(None);
    };
    let most = rest.get(..MOST_LINE).unwrap_or(rest);
    let Some(end) = most.windows(2).position(|pair| pair == b"\r\n") else {
        let is_too_long = rest.len() >= MOST_LINE || !b"+-:$*".contains(kind);
        return if is_too_long {
            Err(Malformed)
        } else {
            Ok(None)
        };
    };
    let text = std::str::from_utf8(rest.get(..end).unwrap_or_default());
    let text = text.map_err(|_| Malformed)?;
    let length = || text.parse().map_err(|_| Malformed);
    let bounded = |len: usize| (len <= MOST_CLAIMED).then_some(len).ok_or(Malformed);
    let kind = match kind {
        b'+' => Head::Word(text),
        b'-' => Head::Error(text),
        b':' => Head::Integer(text.parse().map_err(|_| Malformed)?),
        b'$' | b'*' if text == "-1" => Head::Nil,
        b'$' => Head::Bytes(bounded(length()?)?),
        b'*' => Head::List(bounded(length()?)?),
        _ => return Err(Malformed),
    };
    let len = 1 + end + 2;
    Ok(Some(Line { kind, len }))
}

/// Makes a reply of bytes that were looked at, and takes them.
fn build(rest: &mut &[u8], depth: usize) -> Result<Reply, Malformed> {
    let Line { kind, len } = head(rest)?.ok_or(Malformed)?;
    *rest = rest.get(len..).unwrap_or_default();
    Ok(match kind {
        Head::Word(text) => Reply::Word(text.to_owned()),
        Head::Error(text) => Reply::Error(text.to_owned()),
        Head::Integer(number) => Reply::Integer(number),
        Head::Nil => Reply::Nil,
        Head::Bytes(len) => {
            let bytes = rest.get(..len).ok_or(Malformed)?.to_vec();
            *rest = rest.get(len + 2..).unwrap_or_default();
            Reply::Bytes(bytes)
        }
        Head::List(_) if depth >= MOST_DEPTH => return Err(Malformed),
        // Each of them was seen: no count that is only claimed comes here.
        Head::List(count) => {
            let list = (0..count).map(|_| build(rest, depth + 1));
            Reply::List(list.collect::<Result<_, _>>()?)
        }
    })
}

/// What stands for a reply that is too long.
pub const TOO_LONG: &str = "TOOLONG the reply has more than 16 MiB, or 65536 values";

/// Bytes of a reply.
const MOST_BYTES: usize = 16 << 20;

/// Bytes, or values, that may be passed over.
const MOST_CLAIMED: usize = 1 << 30;

/// Values of a reply, those in lists included.
const MOST_VALUES: usize = 1 << 16;

const MOST_DEPTH: usize = 8;

/// Bytes of a word, a number or an error.
const MOST_LINE: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(bytes: &[u8], piece: usize) -> Result<Vec<Reply>, Malformed> {
        let (mut replies, mut found) = (Replies::default(), Vec::new());
        for piece in bytes.chunks(piece) {
            replies.feed(piece);
            while let Some(reply) = replies.next_reply()? {
                found.push(reply);
            }
        }
        Ok(found)
    }

    #[test]
    fn replies_are_read_however_they_are_cut() {
        let bytes = b"+OK\r\n-OOM no\r\n:-7\r\n$3\r\na\r\n\r\n$-1\r\n*-1\r\n*3\r\n*0\r\n$0\r\n\r\n*1\r\n:1\r\n+x\r\n";
        let expected = [
            Reply::Word("OK".into()),
            Reply::Error("OOM no".into()),
            Reply::Integer(-7),
            Reply::Bytes(b"a\r\n".to_vec()),
            Reply::Nil,
            Reply::Nil,
            Reply::List(vec![
                Reply::List(vec![]),
                Reply::Bytes(vec![]),
                Reply::List(vec![Reply::Integer(1)]),
            ]),
            Reply::Word("x".into()),
        ];
        for piece in 1..bytes.len() {
            assert_eq!(parse(bytes, piece).as_deref(), Ok(&expected[..]), "{piece}");
        }
    }

    #[test]
    fn what_is_no_reply_is_refused() {
        for bytes in [
            &b"$1073741825\r\n"[..],
            b"*1073741825\r\n",
            b"$-2\r\n",
            b":\r\n",
            b"?1\r\n",
            b"$1\r\nabc",
        ] {
            assert_eq!(parse(bytes, 100), Err(Malformed), "{bytes:?}");
        }
        assert_eq!(parse(&[b'+'; 5000], 100), Err(Malformed));
        let deep = b"*1\r\n".repeat(9);
        assert_eq!(parse(&[&deep[..], b":1\r\n"].concat(), 7), Err(Malformed));
    }

    #[test]
    fn a_reply_that_is_too_long_is_passed_over_and_takes_no_memory() {
        let long = vec![b'x'; MOST_BYTES + 1];
        let heads = [&b"*3\r\n:1\r\n$16777217\r\n"[..], &long, b"\r\n:2\r\n"].concat();
        let half = [&b"$9000000\r\n"[..], &long[..9_000_000], b"\r\n"].concat();
        let many = [&b"*70000\r\n"[..], &b":1\r\n".repeat(70_000)].concat();
        let halves = [&b"*2\r\n"[..], &half, &half].concat();
        for bytes in [&heads, &halves, &many] {
            let bytes = [&b"+A\r\n"[..], bytes, b"+B\r\n"].concat();
            let words = |word: &str| Reply::Word(word.into());
            let expected = [words("A"), Reply::Error(TOO_LONG.into()), words("B")];
            let (mut replies, mut found) = (Replies::default(), Vec::new());
            for piece in bytes.chunks(9973) {
                replies.feed(piece);
                assert!(replies.buffer.len() <= MOST_BYTES);
                while let Some(reply) = replies.next_reply().unwrap() {
                    found.push(reply);
                }
            }
            assert_eq!(found, expected);
        }
        // Nothing of it is waited for.
        assert_eq!(parse(b"$16777217\r\n", 3), Ok(vec![]));
    }

    #[test]
    fn commands_are_lists_of_bytes() {
        let mut commands = Commands::default();
        commands.add(&[&"GET", &[0u8, 255]]);
        commands.add(&[&"PING"]);
        assert_eq!(commands.count(), 2);
        assert_eq!(
            commands.bytes(),
            b"*2\r\n$3\r\nGET\r\n$2\r\n\x00\xff\r\n*1\r\n$4\r\nPING\r\n"
        );
    }
}
