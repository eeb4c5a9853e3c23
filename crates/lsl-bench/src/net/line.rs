//! A TCP connection that carries lines of JSON, of bounded length and with a deadline for each.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use lsl_cli::failure::{Failure, Outcome};
use lsl_cli::interrupt::{LONGEST_NAP, Stop};
use lsl_core::local_clock;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// One end of the control connection, which carries lines of JSON.
#[derive(Debug)]
pub(super) struct ControlLine {
    stream: TcpStream,
    /// Bytes received after the last line.
    rest: Vec<u8>,
    stop: Stop,
}

impl ControlLine {
    pub(super) fn new(stream: TcpStream, stop: &Stop) -> io::Result<Self> {
        stream.set_nonblocking(false)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(LONGEST_NAP))?;
        stream.set_write_timeout(Some(Duration::from_secs(10)))?;
        Ok(Self {
            stream,
            rest: Vec::new(),
            stop: stop.clone(),
        })
    }

    pub(super) fn peer(&self) -> io::Result<SocketAddr> {
        self.stream.peer_addr()
    }

    pub(super) fn say(&mut self, what: &impl Serialize) -> Outcome {
        let mut line = serde_json::to_vec(what)?;
        line.push(b'\n');
        let sent = self.stream.write_all(&line);
        sent.map_err(|error| lost(&error.to_string()))
    }

    /// The next line, within `secs`. `None` when the other side is done, or the user.
    pub(super) fn hear<T: DeserializeOwned>(&mut self, secs: f64) -> Outcome<Option<T>> {
        let deadline = local_clock() + secs;
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                let heard = serde_json::from_slice(&line);
                return heard.map(Some).map_err(|error| {
                    Failure::Runtime(format!("the other side is no `lsl bench net`: {error}"))
                });
            }
            if self.rest.len() >= MAX_LINE {
                return Err(lost("it sends a line without end"));
            }
            let mut bytes = [0; 1024];
            match self.stream.read(&mut bytes) {
                Ok(0) if self.rest.is_empty() => return Ok(None),
                Ok(0) => return Err(lost("it ended within a line")),
                Ok(count) => self.rest.extend(bytes.iter().take(count)),
                Err(error) if is_wait(&error) => {}
                Err(error) => return Err(lost(&error.to_string())),
            }
            if self.stop.requested() {
                return Ok(None);
            }
            if local_clock() > deadline {
                return Err(lost("it says nothing"));
            }
        }
    }
}

fn is_wait(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), Interrupted | TimedOut | WouldBlock)
}

fn lost(reason: &str) -> Failure {
    Failure::Lost(format!("the control connection: {reason}"))
}

const MAX_LINE: usize = 4096;

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn pair() -> (ControlLine, TcpStream) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let other = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let line = ControlLine::new(listener.accept().unwrap().0, &Stop::default()).unwrap();
        (line, other)
    }

    #[test]
    fn lines_are_heard_one_by_one_however_they_come() {
        let (mut line, mut other) = pair();
        other.write_all(b"1\n2\n\"th").unwrap();
        assert_eq!(line.hear::<u32>(9.0).unwrap(), Some(1));
        assert_eq!(line.hear::<u32>(9.0).unwrap(), Some(2));
        other.write_all(b"ree\"\n").unwrap();
        assert_eq!(line.hear::<String>(9.0).unwrap().as_deref(), Some("three"));
        drop(other);
        assert_eq!(line.hear::<u32>(9.0).unwrap(), None);
    }

    #[test]
    fn strangers_are_not_listened_to_for_long() {
        let (mut line, mut other) = pair();
        other.write_all(b"GET / HTTP/1.1\r\n").unwrap();
        assert!(matches!(line.hear::<u32>(9.0), Err(Failure::Runtime(_))));
        let (mut line, mut other) = pair();
        other.write_all(&vec![b'x'; 2 * MAX_LINE]).unwrap();
        assert!(matches!(line.hear::<u32>(9.0), Err(Failure::Lost(_))));
        let (mut line, other) = pair();
        assert!(matches!(line.hear::<u32>(0.0), Err(Failure::Lost(_))));
        drop(other);
        let (mut line, mut other) = pair();
        other.write_all(b"12").unwrap();
        drop(other);
        assert!(matches!(line.hear::<u32>(9.0), Err(Failure::Lost(_))));
    }
}
