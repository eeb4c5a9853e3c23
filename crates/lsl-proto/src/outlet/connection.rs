//! An accepted connection up to the answer of its request: what it is, what it asks for and what of it the
//! policy allows. Decided once, by the first bytes; not one byte more is read than that takes.
//! Spec: LSS/1 §4.2-4.4, §9.2; lsl-protocol §6, §7.

use lsl_secure::handshake::PREAMBLE;

use crate::wire::request::{Request, RequestParser};
use crate::{Error, Result};

/// An accepted connection. Spent after its first event.
#[derive(Debug)]
pub struct Connection {
    stage: Stage,
    parser: RequestParser,
    /// The first bytes: of the connection, then of the request inside a session.
    head: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Undecided,
    Plaintext,
    Session,
}

/// Request of a connection, as its first bytes tell.
#[derive(Debug, PartialEq)]
pub enum Event {
    /// A session. Nothing was read beyond the preamble.
    Handshake,
    /// An answer to this request, in plaintext or inside a session.
    Request(Request),
    /// Nothing but a session, whose keys authenticate clock probes.
    TimeKeys,
}

impl Connection {
    /// Awaits the first bytes of a connection.
    pub fn new() -> Self {
        Self::at(Stage::Undecided)
    }

    /// Awaits a request inside a session.
    pub fn in_session() -> Self {
        Self::at(Stage::Session)
    }

    fn at(stage: Stage) -> Self {
        Self {
            stage,
            parser: RequestParser::new(),
            head: Vec::new(),
        }
    }

    /// Whether it may still be the beginning of a session.
    pub fn is_undecided(&self) -> bool {
        self.stage == Stage::Undecided
    }

    /// Returns how many bytes may be given to [`handle_input`](Self::handle_input).
    pub fn max_read(&self) -> usize {
        match self.stage {
            Stage::Undecided => PREAMBLE.len().saturating_sub(self.head.len()),
            Stage::Plaintext | Stage::Session => usize::MAX,
        }
    }

    /// Takes bytes of the peer, none at the end. Returns what it asks for, once.
    ///
    /// # Errors
    /// [`Error::Protocol`] for an end before the request was complete, and for what no peer may send.
    pub fn handle_input(&mut self, bytes: &[u8]) -> Result<Option<Event>> {
        if bytes.is_empty() {
            let text = "closed before the request was complete";
            return Err(Error::Protocol(text.into()));
        }
        match self.stage {
            Stage::Undecided => {
                self.head.extend_from_slice(bytes);
                if self.head == *PREAMBLE {
                    return Ok(Some(Event::Handshake));
                }
                if PREAMBLE.starts_with(&self.head) {
                    return Ok(None);
                }
                self.stage = Stage::Plaintext;
                let request = self.parser.feed(&self.head)?;
                return Ok(request.map(Event::Request));
            }
            Stage::Plaintext => {}
            Stage::Session => {
                let room = TIME_KEYS_REQUEST.len() - self.head.len();
                let taken = bytes.get(..room).unwrap_or(bytes);
                self.head.extend_from_slice(taken);
            }
        }
        let request = self.parser.feed(bytes)?;
        // The parser of LSL's own methods does not know it.
        let asks_for_keys = self.stage == Stage::Session && self.head == *TIME_KEYS_REQUEST;
        Ok(request.map(|request| match request {
            Request::Unknown if asks_for_keys => Event::TimeKeys,
            request => Event::Request(request),
        }))
    }
}

impl Default for Connection {
    fn default() -> Self {
        Self::new()
    }
}

/// Asks for nothing but a session. Spec: LSS/1 §9.2.
const TIME_KEYS_REQUEST: &[u8; 16] = b"LSL:timekeys/1\r\n";

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives `bytes` to a connection, `step` at a time. Returns its event and how many bytes it took.
    fn ask(mut connection: Connection, bytes: &[u8], step: usize) -> (Option<Event>, usize) {
        let mut taken = 0;
        while taken < bytes.len() {
            let length = step.min(connection.max_read()).min(bytes.len() - taken);
            let event = connection.handle_input(&bytes[taken..taken + length]);
            taken += length;
            if let Some(event) = event.unwrap() {
                return (Some(event), taken);
            }
        }
        (None, taken)
    }

    #[test]
    fn the_first_bytes_decide_however_they_arrive() {
        let beyond = [&PREAMBLE[..], b"M1"].concat();
        for step in 1..=16 {
            let (event, taken) = ask(Connection::new(), &beyond, step);
            assert_eq!((event, taken), (Some(Event::Handshake), PREAMBLE.len()));
            for length in 0..PREAMBLE.len() {
                let (event, _) = ask(Connection::new(), &PREAMBLE[..length], step);
                assert_eq!(event, None, "{length}");
            }
            // As long as the preamble, and nearly the same.
            for request in [&b"LSL:fullinfo\r\n"[..], b"LSL:secure/0\r\n"] {
                let (event, taken) = ask(Connection::new(), request, step);
                let expected = match request[4] {
                    b'f' => Request::FullInfo,
                    _ => Request::Unknown,
                };
                assert_eq!((event, taken), (Some(Event::Request(expected)), 14));
            }
        }
    }

    #[test]
    fn keys_are_lent_inside_a_session_alone() {
        for step in 1..=20 {
            let (event, _) = ask(Connection::in_session(), TIME_KEYS_REQUEST, step);
            assert_eq!(event, Some(Event::TimeKeys));
            let (event, _) = ask(Connection::new(), TIME_KEYS_REQUEST, step);
            assert_eq!(event, Some(Event::Request(Request::Unknown)));
            let (event, _) = ask(Connection::in_session(), b"LSL:fullinfo\r\n", step);
            assert_eq!(event, Some(Event::Request(Request::FullInfo)));
            let (event, _) = ask(Connection::in_session(), b"LSL:timekeys/2\r\n", step);
            assert_eq!(event, Some(Event::Request(Request::Unknown)));
        }
    }

    #[test]
    fn an_end_before_the_request_is_an_error() {
        for bytes in [&b""[..], b"LSL:sec", b"LSL:shortinfo\r\n"] {
            let mut connection = Connection::new();
            if !bytes.is_empty() {
                connection.handle_input(bytes).unwrap();
            }
            let error = connection.handle_input(b"").unwrap_err();
            assert!(matches!(error, Error::Protocol(_)), "{error}");
        }
    }
}
