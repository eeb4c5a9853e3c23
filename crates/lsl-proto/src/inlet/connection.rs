//! One connection to an outlet, plain or encrypted, from its request to its end: samples of a feed, the
//! bytes of a reply, or a session for its keys alone. The caller has the socket, answers the questions of
//! the handshake and reads the clock. Spec: lsl-protocol §6, LSS/1 §2, §9.5.

use std::io;
use std::net::SocketAddr;

use lsl_secure::connection::Unsent;
use lsl_secure::{Cause, Connection as Session};

use super::{FeedDecoder, FeedState, SampleRing};
use crate::Error;
use crate::transport::{Rx, Tx};

/// Purpose of a connection, with what it has received so far.
#[derive(Debug)]
pub enum Exchange {
    /// Samples, decoded into a ring.
    Feed(Box<FeedDecoder>),
    /// All bytes until the outlet ends the connection.
    Reply {
        /// Bytes sent before the reply is read.
        request: Vec<u8>,
        /// Largest length of `reply` in bytes.
        most_bytes: usize,
        /// Bytes of the reply received so far.
        reply: Vec<u8>,
    },
    /// A session for its clock keys, in which nothing else comes.
    TimeKeys,
    /// A session with a relay for the clock of one of its streams.
    RelayedTimeKeys {
        /// Bytes sent first.
        request: Vec<u8>,
    },
}

impl Exchange {
    /// Creates the exchange of one request and its reply.
    pub fn reply(request: &[u8], most_bytes: usize) -> Self {
        Self::Reply {
            request: request.to_vec(),
            most_bytes,
            reply: Vec::new(),
        }
    }

    /// Creates the exchange that asks a relay for the clock of the stream with this uid. Spec: relay §3, §7.
    pub fn relayed_time_keys(uid: &[u8]) -> Self {
        let command = TIMEKEYS_REQUEST.trim_ascii_end();
        Self::RelayedTimeKeys {
            request: [command, b" ", uid, b"\r\n"].concat(),
        }
    }

    /// Returns the bytes to send first.
    pub fn request(&self) -> &[u8] {
        match self {
            Self::Feed(decoder) => decoder.request(),
            Self::Reply { request, .. } | Self::RelayedTimeKeys { request } => request,
            Self::TimeKeys => TIMEKEYS_REQUEST,
        }
    }
}

/// Reason for which a connection cannot be read any more.
#[derive(Debug)]
pub enum Disconnect {
    /// The outlet has ended it; in a session this is authentic.
    Closed,
    /// The network ended it, or the outlet sent something impossible.
    Failed(Error),
    /// The session failed; the outlet and the audit log must be told.
    Session(lsl_secure::Error),
}

/// A connection without its socket. After a [`Disconnect`] it only sends.
#[derive(Debug)]
pub struct Connection {
    peer: SocketAddr,
    transport: Transport,
    exchange: Exchange,
    is_opened: bool,
    bytes: u64,
}

#[derive(Debug)]
enum Transport {
    /// With the rest of the request.
    Plain(Unsent),
    Secure(Box<Session>),
}

impl Connection {
    /// Creates a connection without encryption to `peer`.
    pub fn plain(peer: SocketAddr, exchange: Exchange) -> Self {
        let mut unsent = Unsent::default();
        unsent.push(exchange.request());
        Self::new(peer, exchange, Transport::Plain(unsent))
    }

    /// Creates a plaintext connection with `peer`, which has the request of `exchange` already.
    pub fn requested(peer: SocketAddr, exchange: Exchange) -> Self {
        Self::new(peer, exchange, Transport::Plain(Unsent::default()))
    }

    /// Creates an encrypted connection to `peer`. `session` is an initiator that sends the request of
    /// `exchange`.
    pub fn secure(peer: SocketAddr, exchange: Exchange, session: Session) -> Self {
        Self::new(peer, exchange, Transport::Secure(Box::new(session)))
    }

    fn new(peer: SocketAddr, exchange: Exchange, transport: Transport) -> Self {
        Self {
            peer,
            transport,
            exchange,
            is_opened: false,
            bytes: 0,
        }
    }

    /// Gives both directions away of a connection whose request was sent; `None` during a handshake.
    pub fn into_directions(self) -> Option<(Tx, Rx)> {
        match self.transport {
            Transport::Plain(unsent) => Some((Tx::Plain(unsent), Rx::plain())),
            Transport::Secure(session) => {
                let (sender, receiver) = session.split()?;
                Some((Tx::secure(sender), Rx::secure(receiver)))
            }
        }
    }

    /// Returns the address of the outlet.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Returns the session, if the connection is encrypted: for questions, events and PINGs.
    pub fn session(&mut self) -> Option<&mut Session> {
        match &mut self.transport {
            Transport::Plain(_) => None,
            Transport::Secure(session) => Some(session),
        }
    }

    /// Returns how many bytes may be given to [`handle_input`](Self::handle_input).
    pub fn max_read(&self) -> usize {
        match &self.transport {
            Transport::Plain(_) => usize::MAX,
            Transport::Secure(session) => session.max_read(),
        }
    }

    /// Takes bytes from the socket, none at the end of the stream, and puts complete samples of a feed
    /// into `ring`. The clock is read for sessions only. Afterwards `bytes` holds nothing of use.
    ///
    /// # Errors
    /// Why the connection ends. Samples may have come before it.
    #[inline]
    pub fn handle_input(
        &mut self,
        bytes: &mut [u8],
        now: impl FnOnce() -> f64,
        ring: &mut SampleRing,
    ) -> Result<(), Disconnect> {
        let Self {
            peer,
            transport,
            exchange,
            is_opened,
            bytes: total,
        } = self;
        let mut take = |bytes: &[u8]| {
            *total += bytes.len() as u64;
            exchange.take(bytes, ring, is_opened, *peer)
        };
        let session = match transport {
            Transport::Plain(_) if bytes.is_empty() => return Err(Disconnect::Closed),
            Transport::Plain(_) => return take(bytes).map_err(Disconnect::Failed),
            Transport::Secure(session) => session,
        };
        if let Some(receiver) = session.receiver() {
            if receiver.is_closed() {
                return Err(Disconnect::Closed);
            }
            if bytes.is_empty() {
                return Err(Disconnect::Failed(cut_off(*peer)));
            }
        }
        let mut refusal = None;
        let received = session.handle_input(bytes, now(), |bytes| {
            take(bytes).map_err(|error| {
                refusal = Some(error);
                lsl_secure::Error::session(Cause::Malformed, "not LSL")
            })
        });
        match (received, refusal) {
            (_, Some(error)) => Err(Disconnect::Failed(error)),
            (Err(error), None) => Err(Disconnect::Session(error)),
            (Ok(()), None) => self.check_end(),
        }
    }

    /// Ends a session that the outlet has closed, unless samples from before wait for room.
    fn check_end(&mut self) -> Result<(), Disconnect> {
        if self.is_closed() && !self.feed().is_some_and(FeedDecoder::has_held) {
            return Err(Disconnect::Closed);
        }
        Ok(())
    }

    /// Returns whether the outlet has closed the session: nothing more will come in it.
    pub fn is_closed(&mut self) -> bool {
        (self.session().and_then(Session::receiver)).is_some_and(|it| it.is_closed())
    }

    /// Returns the disconnect of a connection whose socket failed.
    pub fn failed(&mut self, source: io::Error) -> Disconnect {
        let peer = self.peer;
        match self.session().map(|session| session.receiver().is_some()) {
            None => Disconnect::Failed(Error::io(format!("connection to {peer}"), source)),
            Some(true) => Disconnect::Failed(cut_off(peer)),
            Some(false) => Disconnect::Session(lsl_secure::Error::io("receiving", source)),
        }
    }

    /// Writes what is waiting, the request first; true once nothing is left.
    ///
    /// # Errors
    /// Those of `write`, but `WouldBlock`.
    pub fn transmit(
        &mut self,
        now: impl Fn() -> f64,
        mut write: impl FnMut(&[u8]) -> io::Result<usize>,
    ) -> io::Result<bool> {
        match &mut self.transport {
            Transport::Plain(unsent) => unsent.write_to(&mut write),
            Transport::Secure(session) => session.flush(now, write),
        }
    }

    /// Returns when to call [`handle_timeout`](Self::handle_timeout).
    pub fn poll_timeout(&self) -> Option<f64> {
        match &self.transport {
            Transport::Plain(_) => None,
            Transport::Secure(session) => session.poll_timeout(),
        }
    }

    /// Does what is due: pings an outlet that is silent for long, or gives it up.
    ///
    /// # Errors
    /// Why the connection ends.
    pub fn handle_timeout(&mut self, now: f64) -> Result<(), Disconnect> {
        match &mut self.transport {
            Transport::Plain(_) => Ok(()),
            Transport::Secure(session) => session.handle_timeout(now).map_err(Disconnect::Session),
        }
    }

    /// Decodes what waited for room in `ring`.
    ///
    /// # Errors
    /// As [`handle_input`](Self::handle_input).
    pub fn refill(&mut self, ring: &mut SampleRing) -> Result<(), Disconnect> {
        let taken = (self.exchange).take(&[], ring, &mut self.is_opened, self.peer);
        taken.map_err(Disconnect::Failed)?;
        self.check_end()
    }

    /// Returns the decoder of a feed, for the machine that owns the position.
    #[inline]
    pub(super) fn feed_mut(&mut self) -> Option<&mut FeedDecoder> {
        match &mut self.exchange {
            Exchange::Feed(decoder) => Some(decoder),
            _ => None,
        }
    }

    /// Returns the decoder of a feed.
    #[inline]
    pub fn feed(&self) -> Option<&FeedDecoder> {
        match &self.exchange {
            Exchange::Feed(decoder) => Some(decoder),
            _ => None,
        }
    }

    /// Returns whether a feed has passed its test patterns: all that comes is samples.
    #[inline]
    pub fn is_opened(&self) -> bool {
        self.is_opened
    }

    /// Returns the number of samples received so far.
    #[inline]
    pub fn samples(&self) -> u64 {
        self.feed().map_or(0, FeedDecoder::samples)
    }

    /// Returns the bytes received so far, as they were before encryption.
    #[inline]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the reply received so far, and forgets it.
    pub fn take_reply(&mut self) -> Vec<u8> {
        match &mut self.exchange {
            Exchange::Reply { reply, .. } => std::mem::take(reply),
            _ => Vec::new(),
        }
    }

    /// Returns the reason for which the outlet closed the connection, as far as can be told. The
    /// connection is spent then.
    pub fn closed(&mut self) -> Error {
        match std::mem::replace(&mut self.exchange, Exchange::TimeKeys) {
            Exchange::Feed(decoder) => decoder.end(),
            _ => Error::Protocol("the outlet closed the connection".into()),
        }
    }
}

impl Exchange {
    #[inline]
    fn take(
        &mut self,
        bytes: &[u8],
        ring: &mut SampleRing,
        is_opened: &mut bool,
        peer: SocketAddr,
    ) -> Result<(), Error> {
        match self {
            Self::Feed(decoder) => {
                let received = decoder.receive(bytes, ring);
                *is_opened |= match &received {
                    Ok(state) => *state == FeedState::Established,
                    // Samples may have come before.
                    Err(_) => decoder.is_established(),
                };
                received.map(|_| ())
            }
            Self::Reply {
                most_bytes, reply, ..
            } => {
                if reply.len() + bytes.len() > *most_bytes {
                    let text = format!("the answer of {peer} is larger than {most_bytes} bytes");
                    return Err(Error::Protocol(text));
                }
                reply.extend_from_slice(bytes);
                Ok(())
            }
            Self::TimeKeys | Self::RelayedTimeKeys { .. } => {
                Err(Error::Protocol("an answer to timekeys".into()))
            }
        }
    }
}

/// Error of a connection that ended while its session did not. What came before is authentic.
fn cut_off(peer: SocketAddr) -> Error {
    Error::Protocol(format!("the encrypted connection to {peer} was cut off"))
}

/// Asks for nothing but a session. Spec: LSS/1 §9.2.
const TIMEKEYS_REQUEST: &[u8] = b"LSL:timekeys/1\r\n";

#[cfg(test)]
mod tests;
