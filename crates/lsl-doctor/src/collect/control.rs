//! The control connection of a pair: inside LSS/1 where both ends have keys and trust each other, else in plain text,
//! if the policy here lets it. Spec: doctor §3.4
//!
//! Greetings are in plain text always: they say that a doctor is here, and outlets close on them. Who dials and has a
//! key then begins a handshake in place of its first line; who has none goes on in plain text, and is dialled again.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use lsl_core::local_clock;
use lsl_core::secure::connection::{Answer, Connection, Event, Question};
use lsl_core::secure::handshake::PREAMBLE as SECURE;
use lsl_core::secure::{
    Cause, Descriptor, Error, Local, OsRandom, Policy, PublicKey, Role, Security,
};

use super::line::{Line, close};
use super::pair::connect;
use super::trust;
use crate::pair::{PREAMBLE, PairError, bye};
use crate::table::pair::TEST_SESSION;

/// A connection with a doctor.
#[derive(Debug)]
pub struct Control {
    wire: Wire,
    /// What was read before it was clear how it goes on.
    received: Vec<u8>,
    /// Whether this end has greeted in plain text.
    pub(super) has_greeted: bool,
    /// Why it is in plain text, though this end has a key.
    pub bare_because: Option<String>,
}

#[derive(Debug)]
enum Wire {
    Plain(TcpStream),
    Sealed(Box<Line>),
}

impl Control {
    /// Goes on with a doctor that answered a greeting.
    ///
    /// # Errors
    /// Why nothing may be said to it; it is gone, or `stop`.
    pub fn dialled(
        stream: TcpStream,
        security: Option<&Security>,
        stop: &dyn Fn() -> bool,
    ) -> Result<Self, PairError> {
        let Some((security, local)) = keys(security) else {
            return Self::plain(stream, true);
        };
        let to = stream.peer_addr()?;
        match begin(stream, local, stop).and_then(|line| shake(line, security, stop)) {
            Ok(line) => Ok(Self::sealed(line, true)),
            Err(PairError::Refused(because)) if security.policy() != Policy::Required => {
                // It may have to see first that the last one is over.
                let mut plain = Self::plain(greet(to, WAIT_SECS, stop)?, true)?;
                plain.bare_because = Some(because);
                Ok(plain)
            }
            Err(error) => Err(error),
        }
    }

    /// Waits for what somebody who dialled says first.
    ///
    /// # Errors
    /// As [`dialled`](Self::dialled); what it is told has been sent.
    pub fn accepted(
        mut stream: TcpStream,
        security: Option<&Security>,
        stop: &dyn Fn() -> bool,
    ) -> Result<Self, PairError> {
        let Some((security, local)) = keys(security) else {
            return Self::plain(stream, false);
        };
        stream.set_nonblocking(false)?;
        let _ = stream.set_write_timeout(Some(WRITE));
        // Who is silent keeps others waiting.
        let deadline = local_clock() + WAIT_SECS;
        let is_over = || stop() || local_clock() > deadline;
        let why = |error: PairError| match error {
            PairError::Interrupted if !stop() => PairError::Slow,
            error => error,
        };
        let mut first = Vec::new();
        let mut awaits = |stream: &TcpStream, length| {
            read_up_to(stream, &mut first, length, &is_over).map_err(|error| why(error.into()))?;
            Ok::<_, PairError>(first.clone())
        };
        if awaits(&stream, PREAMBLE.len())? != PREAMBLE {
            return Err(PairError::Foreign);
        }
        stream.write_all(PREAMBLE)?;
        let begins = awaits(&stream, PREAMBLE.len() + 1)?;
        if begins.last() != SECURE.first() {
            if security.policy() == Policy::Required {
                let _ = stream.write_all(&bye(PLAIN_THERE));
                close(&mut stream);
                return Err(PairError::Refused(PLAIN_HERE.into()));
            }
            let mut plain = Self::plain(stream, true)?;
            plain.received = begins;
            return Ok(plain);
        }
        if !awaits(&stream, PREAMBLE.len() + SECURE.len())?.ends_with(SECURE) {
            return Err(PairError::Foreign);
        }
        let connection =
            Connection::responder(Arc::clone(local), Arc::new(doctor()), local_clock());
        let line = shake(Line { stream, connection }, security, &is_over).map_err(why)?;
        Ok(Self::sealed(line, false))
    }

    /// Goes on in plain text.
    fn plain(stream: TcpStream, has_greeted: bool) -> Result<Self, PairError> {
        stream.set_nonblocking(false)?;
        let _ = stream.set_nodelay(true);
        // Who does not read is left, too.
        let _ = stream.set_write_timeout(Some(WRITE));
        Ok(Self {
            wire: Wire::Plain(stream),
            received: Vec::new(),
            has_greeted,
            bare_because: None,
        })
    }

    fn sealed(line: Line, has_greeted: bool) -> Self {
        let _ = line.stream.set_nodelay(true);
        Self {
            wire: Wire::Sealed(Box::new(line)),
            received: Vec::new(),
            has_greeted,
            bare_because: None,
        }
    }

    /// Returns whether both ends have proved their keys.
    pub fn is_sealed(&self) -> bool {
        matches!(self.wire, Wire::Sealed(_))
    }

    /// Returns the address of the other end.
    pub(super) fn peer(&self) -> io::Result<SocketAddr> {
        self.stream().peer_addr()
    }

    pub(super) fn stream(&self) -> &TcpStream {
        match &self.wire {
            Wire::Plain(stream) => stream,
            Wire::Sealed(line) => &line.stream,
        }
    }

    /// Reads for so long at most; nothing at its end, no bytes if none came, or not all of a record.
    pub(super) fn read(&mut self, wait: Duration) -> Result<Option<Vec<u8>>, PairError> {
        if !self.received.is_empty() {
            return Ok(Some(std::mem::take(&mut self.received)));
        }
        self.stream().set_read_timeout(Some(wait))?;
        let mut buffer = vec![0; 16 * 1024];
        let mut stream = self.stream();
        let length = match stream.read(&mut buffer) {
            Ok(0) => return Ok(None),
            Ok(length) => length,
            Err(error) if is_late(&error) => return Ok(Some(Vec::new())),
            Err(error) => return Err(error.into()),
        };
        buffer.truncate(length);
        match &mut self.wire {
            Wire::Plain(_) => Ok(Some(buffer)),
            Wire::Sealed(line) => {
                line.open(&mut buffer)
                    .map(Some)
                    .map_err(|error| match error.cause() {
                        Cause::RecordAuthFailed => PairError::Forged,
                        _ => PairError::Gone,
                    })
            }
        }
    }

    /// Says all of this.
    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<(), PairError> {
        match &mut self.wire {
            Wire::Plain(stream) => stream.write_all(bytes),
            Wire::Sealed(line) => line.send(bytes),
        }?;
        Ok(())
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        if let Wire::Sealed(line) = &mut self.wire {
            line.end();
        }
    }
}

/// Connects, and waits for so long until it is sure that a doctor is there. An outlet closes on what it does not know.
pub(super) fn greet(to: SocketAddr, secs: f64, stop: &dyn Fn() -> bool) -> io::Result<TcpStream> {
    let mut stream = connect(to, CONNECT)?;
    stream.write_all(PREAMBLE)?;
    let mut answer = [0; PREAMBLE.len()];
    // What follows is left to the pair.
    let least = answer.len();
    peek(&stream, &mut answer, least, secs, stop)?;
    if answer == PREAMBLE {
        Ok(stream)
    } else {
        Err(io::ErrorKind::InvalidData.into())
    }
}

/// The key here, unless it is not to be used.
fn keys(security: Option<&Security>) -> Option<(&Security, &Arc<Local>)> {
    let security = security.filter(|it| it.policy() != Policy::Off)?;
    Some((security, security.local()?))
}

/// Begins a handshake with who greeted back, if it does not go on in plain text.
fn begin(
    mut stream: TcpStream,
    local: &Arc<Local>,
    stop: &dyn Fn() -> bool,
) -> Result<Line, PairError> {
    stream.read_exact(&mut [0; PREAMBLE.len()])?;
    let _ = stream.set_write_timeout(Some(WRITE));
    let failed = |error: Error| PairError::Refused(error.to_string());
    let connection =
        Connection::initiator(Arc::clone(local), PREAMBLE, local_clock(), &mut OsRandom);
    let connection = connection.map_err(failed)?;
    let mut line = Line { stream, connection };
    line.flush()?;
    let mut first = [0];
    peek(&line.stream, &mut first, 1, WAIT_SECS, stop)?;
    if first == *b"{" {
        return Err(PairError::Refused(NO_KEY_THERE.into()));
    }
    Ok(line)
}

/// Goes through the handshake, of either side. An entry of either role is enough, as no samples are exchanged; one
/// for single streams has to name this one.
fn shake(mut line: Line, security: &Security, stop: &dyn Fn() -> bool) -> Result<Line, PairError> {
    security.refresh();
    let (remote, here) = line.ends().map_err(|_| PairError::Gone)?;
    let admit = |key: &PublicKey| {
        let by = |role| security.authorise(key, role, remote, here);
        let name = by(Role::Outlet).or_else(|_| by(Role::Inlet))?;
        security.admits_stream(key, remote, here, &doctor())?;
        Ok(name)
    };
    let (mut peer, mut refused, mut answer) = (None, None, None);
    loop {
        answer = Some(match line.proceed(answer, stop) {
            Ok(Event::Question(Question::Turn)) => Answer::Turn(Ok(())),
            Ok(Event::Question(Question::PeerKey(key))) => {
                let admitted = admit(&key);
                refused = admitted.as_ref().err().copied();
                peer = Some(key);
                Answer::PeerKey(admitted)
            }
            Ok(Event::Question(Question::Descriptor(_))) => Answer::Descriptor(Ok(())),
            Ok(Event::Established(_)) => return Ok(line),
            Ok(_) => return Err(PairError::Order),
            Err(_) if stop() => return Err(PairError::Interrupted),
            Err(error) => {
                let because = explain(security, peer.as_ref(), refused, &error);
                return Err(PairError::Refused(because));
            }
        });
    }
}

/// Why no session comes about, and what to do.
fn explain(
    security: &Security,
    peer: Option<&PublicKey>,
    refused: Option<Cause>,
    error: &Error,
) -> String {
    match (refused, peer, error) {
        (Some(Cause::RoleNotAllowed), ..) => STREAMS_HERE.into(),
        (Some(Cause::NotAuthorised), Some(key), _) if security.trust().find(key).is_none() => {
            format!(
                "its key {} is not trusted here. If `lsl key show` there says the same, run here: lsl trust add \
                 NAME {key} --role outlet (its streams are wanted here) or --role inlet (it wants those of this one)",
                key.fingerprint()
            )
        }
        (Some(cause), ..) => trust::explain_here(security, peer, cause),
        (None, Some(key), Error::Alert { cause, .. }) if *cause == Cause::NotAuthorised => {
            security.not_trusted_text(key)
        }
        (None, Some(key), Error::Alert { cause, .. }) => {
            trust::explain_there(*cause, &key.fingerprint().to_string())
        }
        _ => trust::explain_failure(error, "there"),
    }
}

/// What sessions of doctors are about: no stream, though `streams` of trusted peers may name it.
fn doctor() -> Descriptor {
    Descriptor {
        name: TEST_SESSION.into(),
        stream_type: b"Doctor".to_vec(),
        session_id: TEST_SESSION.into(),
        channel_count: 1,
        channel_format: 1,
        ..Descriptor::default()
    }
}

/// Waits for the first bytes, so many at least, and leaves them where they are.
fn peek(
    stream: &TcpStream,
    first: &mut [u8],
    least: usize,
    secs: f64,
    stop: &dyn Fn() -> bool,
) -> io::Result<()> {
    stream.set_read_timeout(Some(TURN))?;
    let deadline = local_clock() + secs;
    loop {
        match stream.peek(first) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(length) if length >= least => return Ok(()),
            Ok(_) => thread::sleep(NAP),
            Err(error) if is_late(&error) => {}
            Err(error) => return Err(error),
        }
        if stop() {
            return Err(io::ErrorKind::Interrupted.into());
        }
        if local_clock() > deadline {
            return Err(io::ErrorKind::TimedOut.into());
        }
    }
}

/// Reads until there are so many bytes, and none of what follows.
fn read_up_to(
    mut stream: &TcpStream,
    first: &mut Vec<u8>,
    length: usize,
    is_over: &dyn Fn() -> bool,
) -> io::Result<()> {
    stream.set_read_timeout(Some(TURN))?;
    while first.len() < length {
        if is_over() {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let mut byte = [0];
        match stream.read(&mut byte) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) => first.extend(byte),
            Err(error) if is_late(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn is_late(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted
    )
}

impl From<io::Error> for PairError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::TimedOut => Self::Slow,
            io::ErrorKind::Interrupted => Self::Interrupted,
            _ => Self::Gone,
        }
    }
}

const NO_KEY_THERE: &str = "it has no key, or its policy is `off`. Run there: lsl key init; then tell each machine the \
                            key of the other, as `lsl key show` says";
const PLAIN_HERE: &str = "it goes on in plain text, and the policy here is `required`. If it has no key, run there: lsl \
                          key init; then tell each machine the key of the other, as `lsl key show` says";
/// For the screen of the other machine.
const PLAIN_THERE: &str = "the policy here is `required`: run `lsl key init` where there is no key, and on both \
                           `lsl key show`, which says what to type on the other";
const STREAMS_HERE: &str = "its entry in the trust file here is for other streams; add \"name='lsl-doctor'\" to its \
                            `streams`";
const CONNECT: Duration = Duration::from_secs(1);
const WRITE: Duration = Duration::from_secs(5);
/// Until it is looked whether to stop.
const TURN: Duration = Duration::from_millis(100);
const NAP: Duration = Duration::from_millis(5);
const WAIT_SECS: f64 = 5.0;
/// For the answer to a greeting.
pub(super) const GREETING_SECS: f64 = 1.0;
