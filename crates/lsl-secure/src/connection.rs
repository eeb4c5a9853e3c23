//! One LSS/1 connection of either role, from the hello to the last record. Bytes in, bytes out: the
//! caller has the socket, the clock, the threads and the trust list. Spec: LSS/1 §4.2, §5.7, §5.8, §8.
//!
//! After each call of `handle_*` take the events, answer their questions, and [`flush`](Connection::flush).
//! After an error the connection is spent: its keys are erased, and all it does is to send what the
//! peer must be told, by `flush`. A handshake gives up on that at [`poll_timeout`](Connection::poll_timeout),
//! a session when its caller does.
#![deny(clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod handshake;
mod receive;
mod refusal;
mod send;
#[cfg(test)]
mod tests;
mod work;

pub use receive::ReceiveHalf;
pub use send::{SendHalf, Unsent};
#[doc(hidden)]
pub use work::peak_of_asymmetric_work;
pub use work::{Work, WorkDone};

use std::io;
use std::sync::Arc;

use self::handshake::Handshake;
use crate::handshake::{HandshakeError, Trail};
use crate::{
    Cause, Descriptor, Error, Local, PublicKey, Random, Result, Role, Session, SessionId, Suite,
    TimeKeys,
};

/// A connection and its state.
#[derive(Debug)]
pub struct Connection {
    state: State,
}

#[derive(Debug)]
enum State {
    Handshake(Box<Handshake>),
    Established(Box<Established>),
    /// The handshake failed; what is left to send, and until when.
    Failed {
        out: Unsent,
        deadline: f64,
    },
}

#[derive(Debug)]
struct Established {
    sender: SendHalf,
    receiver: ReceiveHalf,
    time: Option<TimeKeys>,
}

/// Event of a connection, for its caller to handle.
#[derive(Debug)]
pub enum Event {
    /// Nothing goes on before its answer.
    Question(Question),
    /// The handshake is done; an initiator's request has been sent with it.
    Established(Arc<SessionInfo>),
    /// The newest PING of those that came together, for [`SendHalf::pong`].
    Ping {
        /// The initiator's clock, to be sent back.
        t0: f64,
        /// The time of its arrival.
        t1: f64,
    },
    /// The answer to a PING.
    Pong {
        /// The times t0, t1 and t2 of the exchange, in seconds.
        times: [f64; 3],
        /// The time of its arrival.
        at: f64,
    },
    /// The peer has changed its key.
    KeyUpdated,
    /// The authenticated end of the peer's direction.
    Closed,
}

/// What may block, or is not for a connection to decide.
#[derive(Debug)]
pub enum Question {
    /// Whether asymmetric work may be spent on this peer (responders only). At
    /// [`Connection::poll_timeout`], [`Connection::handle_timeout`] answers "busy".
    Turn,
    /// Asymmetric work, for a thread that delays no samples.
    Work(Work),
    /// Whether this key, which the peer has proved to own, is trusted.
    PeerKey(PublicKey),
    /// Whether the outlet's stream is the one that was meant (initiators only).
    Descriptor(Descriptor),
}

/// The answer to the [`Question`] of the same name; an error ends the connection.
#[derive(Debug)]
pub enum Answer {
    /// Whether there is room for this peer.
    Turn(Result<(), Cause>),
    /// The result of the asymmetric work.
    Work(WorkDone),
    /// Name of the peer, if its key is trusted.
    PeerKey(Result<String, Cause>),
    /// Whether the stream is accepted.
    Descriptor(Result<(), Cause>),
}

/// Facts of an established session; shared by its halves.
#[derive(Debug)]
pub struct SessionInfo {
    /// Public name of the session, 16 bytes.
    pub id: SessionId,
    /// The authenticated key of the peer.
    pub peer: PublicKey,
    /// The peer's name, as the answer to [`Question::PeerKey`] gave it.
    pub peer_name: String,
    /// The suite that seals and opens the records.
    pub suite: Suite,
}

impl Connection {
    /// Starts a handshake as the inlet; `request` is sent with its last message. Generates a key.
    ///
    /// # Errors
    /// If the random generator fails.
    pub fn initiator(
        local: Arc<Local>,
        request: &[u8],
        now: f64,
        random: &mut impl Random,
    ) -> Result<Self> {
        Self::initiator_on(Trail::untimed(Role::Inlet), local, request, now, random)
    }

    /// Works as [`initiator`](Self::initiator), and notes the steps of its handshake on `trail`.
    ///
    /// # Errors
    /// As [`initiator`](Self::initiator).
    pub fn initiator_on(
        trail: Arc<Trail>,
        local: Arc<Local>,
        request: &[u8],
        now: f64,
        random: &mut impl Random,
    ) -> Result<Self> {
        let start = || Handshake::initiator(trail, local, request, now, random);
        let handshake = work::counted(start)?;
        Ok(Self {
            state: State::Handshake(Box::new(handshake)),
        })
    }

    /// Awaits a handshake as the outlet of `descriptor`, on a connection whose first 14 bytes were
    /// the preamble and have been read.
    pub fn responder(local: Arc<Local>, descriptor: Arc<Descriptor>, now: f64) -> Self {
        Self::responder_on(Trail::untimed(Role::Outlet), local, descriptor, now)
    }

    /// Works as [`responder`](Self::responder), and notes the steps of its handshake on `trail`.
    pub fn responder_on(
        trail: Arc<Trail>,
        local: Arc<Local>,
        descriptor: Arc<Descriptor>,
        now: f64,
    ) -> Self {
        let handshake = Handshake::responder(trail, local, descriptor, now);
        Self {
            state: State::Handshake(Box::new(handshake)),
        }
    }

    /// Returns how many bytes may be given to [`handle_input`](Self::handle_input): never more than
    /// the awaited message lacks, and none while a question is open.
    pub fn max_read(&self) -> usize {
        match &self.state {
            State::Handshake(handshake) => handshake.max_read(),
            State::Established(_) => usize::MAX,
            State::Failed { .. } => 0,
        }
    }

    /// Takes bytes from the socket, none at the end of the stream, and hands DATA to `data`. An error
    /// of `data` ends the session. Afterwards `bytes` holds nothing of use.
    ///
    /// # Errors
    /// Why the connection ends; what the peer must be told is ready to be sent.
    pub fn handle_input(
        &mut self,
        bytes: &mut [u8],
        now: f64,
        data: impl FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        match &mut self.state {
            State::Established(established) => {
                let received = established.receiver.handle_input(bytes, now, data);
                received.inspect_err(|error| established.fail(error))
            }
            _ => self.step(now, |handshake| handshake.handle_input(bytes)),
        }
    }

    /// Goes on with the answer to the open question.
    ///
    /// # Errors
    /// As [`handle_input`](Self::handle_input).
    pub fn handle_answer(&mut self, answer: Answer, now: f64) -> Result<()> {
        self.step(now, |handshake| handshake.handle_answer(answer, now))
    }

    /// Does what is due at [`poll_timeout`](Self::poll_timeout).
    ///
    /// # Errors
    /// [`Cause::Timeout`] or [`Cause::Busy`], as [`handle_input`](Self::handle_input).
    pub fn handle_timeout(&mut self, now: f64) -> Result<()> {
        match &mut self.state {
            State::Handshake(_) => self.step(now, |handshake| handshake.handle_timeout(now)),
            State::Established(established) => {
                let Established {
                    sender, receiver, ..
                } = &mut **established;
                let kept = receiver.handle_timeout(now, sender);
                kept.inspect_err(|error| established.fail(error))
            }
            State::Failed { out, deadline } => {
                if now >= *deadline {
                    out.clear();
                }
                Ok(())
            }
        }
    }

    /// Ends the connection for an error that only its caller knows, as of the socket: a handshake
    /// without a word more than an earlier error left to say, a session as [`SendHalf::fail`].
    pub fn fail(&mut self, error: &Error) {
        match &mut self.state {
            State::Handshake(_) => self.state = State::silent(),
            State::Established(established) => established.fail(error),
            State::Failed { .. } => {}
        }
    }

    /// Returns what happened next, in order; key updates follow everything else of the same input.
    pub fn poll_event(&mut self) -> Option<Event> {
        match &mut self.state {
            State::Handshake(handshake) => handshake.take_question().map(Event::Question),
            State::Established(established) => established.receiver.poll_event(),
            State::Failed { .. } => None,
        }
    }

    /// Returns when to call [`handle_timeout`](Self::handle_timeout).
    pub fn poll_timeout(&self) -> Option<f64> {
        match &self.state {
            State::Handshake(handshake) => handshake.poll_timeout(),
            State::Established(established) => established.receiver.poll_timeout(),
            State::Failed { out, deadline } => (!out.is_empty()).then_some(*deadline),
        }
    }

    /// Writes what is waiting; true once nothing is left. May establish the session.
    ///
    /// # Errors
    /// Those of `write`, but `WouldBlock`, which end a handshake without a word more; `NotConnected` in
    /// a forked child. That the peer is gone is no error of a handshake: what it said last is still to
    /// be read.
    pub fn flush(
        &mut self,
        now: impl Fn() -> f64,
        mut write: impl FnMut(&[u8]) -> io::Result<usize>,
    ) -> io::Result<bool> {
        let out = match &mut self.state {
            State::Established(established) => return established.sender.flush(now, write),
            State::Handshake(handshake) => handshake.out(),
            State::Failed { out, .. } => out,
        };
        let done = match out.write_to(&mut write) {
            Ok(done) => done,
            Err(error) if is_gone(&error) => {
                out.clear();
                true
            }
            Err(error) => {
                self.state = State::silent();
                return Err(error);
            }
        };
        if done {
            self.establish(now());
        }
        Ok(done)
    }

    /// Returns the direction to the peer, once established.
    pub fn sender(&mut self) -> Option<&mut SendHalf> {
        match &mut self.state {
            State::Established(established) => Some(&mut established.sender),
            _ => None,
        }
    }

    /// Returns the direction from the peer, once established.
    pub fn receiver(&mut self) -> Option<&mut ReceiveHalf> {
        match &mut self.state {
            State::Established(established) => Some(&mut established.receiver),
            _ => None,
        }
    }

    /// Returns the keys for clock probes, once, after the session was established.
    pub fn take_time_keys(&mut self) -> Option<TimeKeys> {
        match &mut self.state {
            State::Established(established) => established.time.take(),
            _ => None,
        }
    }

    /// Separates the directions of an established session, for two threads. Its caller then passes
    /// errors of the one to [`SendHalf::fail`] of the other.
    pub fn split(self) -> Option<(SendHalf, ReceiveHalf)> {
        match self.state {
            State::Established(established) => Some((established.sender, established.receiver)),
            _ => None,
        }
    }

    /// One step of the handshake, which may be its last.
    fn step(
        &mut self,
        now: f64,
        step: impl FnOnce(&mut Handshake) -> Result<(), HandshakeError>,
    ) -> Result<()> {
        let State::Handshake(handshake) = &mut self.state else {
            return Err(Error::session(Cause::Internal, "no handshake is under way"));
        };
        let Err(HandshakeError { error, last_words }) = step(handshake) else {
            self.establish(now);
            return Ok(());
        };
        let out = handshake.out();
        if last_words.is_empty() {
            out.clear();
        } else {
            out.push(&last_words);
        }
        self.state = State::Failed {
            out: std::mem::take(out),
            deadline: now + LAST_WORDS_SECS,
        };
        Err(error)
    }

    fn establish(&mut self, now: f64) {
        let State::Handshake(handshake) = &mut self.state else {
            return;
        };
        if let Some((session, peer_name)) = handshake.take_session() {
            let established = Established::new(session, peer_name, now);
            self.state = State::Established(Box::new(established));
        }
    }
}

impl State {
    /// A handshake that failed and says no more.
    fn silent() -> Self {
        Self::Failed {
            out: Unsent::default(),
            deadline: 0.0,
        }
    }
}

impl Established {
    fn new(session: Session, peer_name: String, now: f64) -> Self {
        let Session {
            id,
            peer,
            suite,
            sealer,
            opener,
            time,
            exporter: _,
        } = session;
        let info = Arc::new(SessionInfo {
            id,
            peer,
            peer_name,
            suite,
        });
        Self {
            receiver: ReceiveHalf::new(opener, sealer.role(), Arc::clone(&info), now),
            sender: SendHalf::new(sealer, info),
            time: Some(time),
        }
    }

    /// Ends both directions and erases all keys.
    fn fail(&mut self, error: &Error) {
        self.receiver.fail(error);
        self.sender.fail(error);
        self.time = None;
    }
}

/// Whether the peer has closed, with or without reading what we sent.
pub fn is_gone(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset};
    matches!(
        error.kind(),
        BrokenPipe | ConnectionAborted | ConnectionReset
    )
}

/// Time for the last words of a handshake. Spec: LSS/1 §4.2.
const LAST_WORDS_SECS: f64 = 1.0;
