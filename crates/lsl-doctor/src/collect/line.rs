//! A session of LSS/1 over a blocking socket. Spec: LSS/1 §4.2, §5

use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, TcpStream};
use std::time::Duration;

use lsl_core::local_clock;
use lsl_core::secure::connection::{Answer, Connection, Event, Question, is_gone};
use lsl_core::secure::{Cause, Error, OsRandom, Result};

pub(super) fn unexpected() -> Error {
    Error::session(Cause::Internal, "another event was expected")
}

/// A connection over a blocking socket.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) stream: TcpStream,
    pub(super) connection: Connection,
}

impl Line {
    /// Gives the answer to the last question, if there was one, and goes on to the next or to the
    /// session, until it is `stop`ped. After an error the connection is closed.
    pub(super) fn proceed(
        &mut self,
        answer: Option<Answer>,
        stop: &dyn Fn() -> bool,
    ) -> Result<Event> {
        let event = self.advance(answer, stop);
        if let Err(error) = &event {
            self.connection.fail(error);
            if self.connection.poll_timeout().is_some() {
                self.close();
            }
        }
        event
    }

    fn advance(&mut self, mut answer: Option<Answer>, stop: &dyn Fn() -> bool) -> Result<Event> {
        while !stop() {
            if let Some(answer) = answer.take() {
                self.connection.handle_answer(answer, local_clock())?;
            }
            let late = || io::ErrorKind::TimedOut.into();
            self.flush()
                .and_then(|done| if done { Ok(()) } else { Err(late()) })
                .map_err(|error| Error::io("sending to the other side", error))?;
            match self.connection.poll_event() {
                Some(Event::Question(Question::Work(work))) => {
                    answer = Some(Answer::Work(work.run(&mut OsRandom)));
                }
                Some(event) => return Ok(event),
                None => self.receive()?,
            }
        }
        Err(Error::session(Cause::Timeout, "interrupted"))
    }

    /// Sends what is waiting; true once nothing is left, false after the socket's time-out.
    pub(super) fn flush(&mut self) -> io::Result<bool> {
        let stream = &mut self.stream;
        self.connection
            .flush(local_clock, |bytes| stream.write(bytes))
    }

    /// Reads once, for a second at most.
    fn receive(&mut self) -> Result<()> {
        let failed = |error| Error::io("reading from the other side", error);
        let due = self.connection.poll_timeout().ok_or_else(unexpected)?;
        let mut buffer = [0; 2048];
        let most = self.connection.max_read().min(buffer.len());
        let left = (due - local_clock()).clamp(SHORTEST_SECS, TURN_SECS);
        let left = Duration::from_secs_f64(left);
        self.stream.set_read_timeout(Some(left)).map_err(failed)?;
        let received = match self.stream.read(buffer.get_mut(..most).unwrap_or_default()) {
            Ok(received) => received,
            // It closed without reading everything: no less a close.
            Err(error) if is_gone(&error) => 0,
            Err(error) => {
                return match error.kind() {
                    io::ErrorKind::Interrupted => Ok(()),
                    // Which of the two a passed time-out is depends on the system.
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                        self.connection.handle_timeout(local_clock())
                    }
                    _ => Err(failed(error)),
                };
            }
        };
        let bytes = buffer.get_mut(..received).unwrap_or_default();
        (self.connection).handle_input(bytes, local_clock(), |_| Ok(()))
    }

    /// Seals and sends all of this in an established session.
    pub(super) fn send(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        let Self { stream, connection } = self;
        let sender = connection.sender();
        let sender = sender.ok_or(io::ErrorKind::NotConnected)?;
        while !bytes.is_empty() {
            let sealed = sender.send(bytes, local_clock, |bytes| stream.write(bytes))?;
            bytes = bytes.get(sealed..).unwrap_or_default();
        }
        let is_sent = sender.flush(local_clock, |bytes| stream.write(bytes))?;
        if is_sent {
            Ok(())
        } else {
            Err(io::ErrorKind::TimedOut.into())
        }
    }

    /// Opens what was read in an established session: nothing while a record lacks bytes.
    pub(super) fn open(&mut self, sealed: &mut [u8]) -> Result<Vec<u8>> {
        let mut opened = Vec::new();
        (self.connection).handle_input(sealed, local_clock(), |bytes| {
            opened.extend_from_slice(bytes);
            Ok(())
        })?;
        // New keys and answers to nothing: none of them concerns who talks. The end comes again, as that of the bytes.
        while self.connection.poll_event().is_some() {}
        Ok(opened)
    }

    /// Ends the session properly, without waiting for the other side to do so.
    pub(super) fn end(&mut self) {
        if let Some(sender) = self.connection.sender() {
            sender.close();
        }
        let _ = self.flush();
    }

    /// Returns the addresses of the two ends: the other side's and ours.
    pub(super) fn ends(&self) -> Result<(IpAddr, IpAddr)> {
        let stream = &self.stream;
        let ends = stream.peer_addr().and_then(|remote| {
            let local = stream.local_addr()?;
            Ok((remote.ip(), local.ip()))
        });
        ends.map_err(|error| Error::io("addresses of the connection", error))
    }

    /// Sends the last words and closes in order.
    pub(super) fn close(&mut self) {
        // Its log will do without them if it is gone.
        let _ = self.flush();
        close(&mut self.stream);
    }
}

/// Closes without a reset over unread input, so that what was sent last arrives.
pub(super) fn close(stream: &mut TcpStream) {
    let _ = stream.shutdown(Shutdown::Write);
    let deadline = local_clock() + CLOSING_SECS;
    let mut discarded = [0; 4096];
    for _ in 0..CLOSING_READS {
        let left = deadline - local_clock();
        if left <= 0.0 {
            return;
        }
        let limit = stream.set_read_timeout(Some(Duration::from_secs_f64(left)));
        match limit.and_then(|()| stream.read(&mut discarded)) {
            Ok(1..) => {}
            _ => return,
        }
    }
}

/// What does not stop.
pub(super) fn never() -> bool {
    false
}

/// Until it is looked whether to stop.
const TURN_SECS: f64 = 1.0;
const CLOSING_SECS: f64 = 1.0;
const CLOSING_READS: usize = 16;
/// A socket's time-out of 0 is an error.
const SHORTEST_SECS: f64 = 0.001;
