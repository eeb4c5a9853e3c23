//! The socket of a connection to an outlet, and its driver: what is read goes to the machine, what the
//! machine has to say to the socket. Dropping it ends a session so that the outlet knows.
//! Spec: lsl-protocol §6, LSS/1 §2, §4.2 (closing).

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use lsl_platform::clock::local_clock;
use lsl_platform::fork::Generation;
use lsl_proto::inlet::{self, Disconnect, Exchange, SampleRing};
use lsl_proto::outlet::fanout::Caller;
use lsl_proto::transport::{Rx, Tx};
use lsl_secure::connection::{Answer, Event, is_gone};
use lsl_secure::{Cause, Connection as Handshake, Descriptor, SessionInfo};
use tokio::time::Sleep;

use crate::byte_stream::{ByteStream, CLOSE_LIMIT, Writer};
use crate::drive_inlet::session::{InletSession, Registration};
use crate::net::sockets::{self, with_read_buffer};
use crate::net::{runtime, secure_driver};
use crate::{Error, Result};

/// An open connection to an outlet.
#[derive(Debug)]
pub(crate) struct Connection {
    machine: inlet::Connection,
    /// Taken by the drop, which may leave it to a task.
    stream: Option<ByteStream>,
    /// Once the handshake of an encrypted one is done.
    session: Option<InletSession>,
    /// Keeps a plaintext connection registered that must end with the migration.
    plaintext: Option<lsl_secure::SessionGuard>,
    /// Runs until the machine's time-out, as that was when it was set. `None` in plaintext.
    alarm: Option<Pin<Box<Sleep>>>,
    /// Whether the peer has to be told something by a connection that failed.
    lingers: bool,
    /// Keys and counters belong to the process that made them.
    owner: Generation,
}

/// Result of one read from the socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Progress {
    pub(crate) bytes: usize,
    /// Whether that was all there was.
    pub(crate) is_all: bool,
}

impl Connection {
    /// Sends the request over `stream`, without encryption.
    ///
    /// # Errors
    /// [`Error::Io`] if the connection is over.
    pub(crate) async fn plain(
        stream: ByteStream,
        peer: SocketAddr,
        exchange: Exchange,
    ) -> Result<Self> {
        let machine = inlet::Connection::plain(peer, exchange);
        let mut connection = Self::new(stream, machine, None);
        let sending = poll_fn(|context| {
            if let Some(stream) = &mut connection.stream {
                stream.register()?;
            }
            connection.poll_transmit(context)
        });
        sending.await.map_err(|source| failed(peer, source))?;
        Ok(connection)
    }

    /// Goes on with a `stream` that was opened with the request.
    pub(crate) fn requested(stream: ByteStream, peer: SocketAddr, exchange: Exchange) -> Self {
        Self::new(stream, inlet::Connection::requested(peer, exchange), None)
    }

    /// Starts a handshake over `stream`; what it asks is for [`proceed`](Self::proceed).
    pub(crate) fn secure(
        stream: ByteStream,
        peer: SocketAddr,
        exchange: Exchange,
        handshake: Handshake,
    ) -> Self {
        let machine = inlet::Connection::secure(peer, exchange, handshake);
        // Due at once, and then set to what the machine says.
        let alarm = Box::pin(tokio::time::sleep(Duration::ZERO));
        Self::new(stream, machine, Some(alarm))
    }

    fn new(stream: ByteStream, machine: inlet::Connection, alarm: Option<Pin<Box<Sleep>>>) -> Self {
        Self {
            machine,
            stream: Some(stream),
            session: None,
            plaintext: None,
            alarm,
            lingers: false,
            owner: Generation::current(),
        }
    }

    /// Gives a connection away whose request was sent: its stream, both directions, and the session.
    pub(crate) fn into_parts(mut self) -> Option<(ByteStream, (Tx, Rx), Option<InletSession>)> {
        let spent = inlet::Connection::requested(self.peer(), Exchange::TimeKeys);
        let directions = std::mem::replace(&mut self.machine, spent).into_directions()?;
        Some((self.stream.take()?, directions, self.session.take()))
    }

    /// Goes on in plaintext for as long as this allows it.
    pub(crate) fn keep(&mut self, plaintext: lsl_secure::SessionGuard) {
        self.plaintext = Some(plaintext);
    }

    /// Goes on as an established session.
    pub(crate) fn begin_session(
        &mut self,
        info: Arc<SessionInfo>,
        descriptor: Descriptor,
        registration: Registration,
    ) {
        let time_keys = self.machine.session().and_then(Handshake::take_time_keys);
        let session = InletSession::new(info, descriptor, time_keys, registration);
        session.begun();
        self.session = Some(session);
    }

    /// Returns the session, if the connection is encrypted and its handshake done.
    pub(crate) fn session(&mut self) -> Option<&mut InletSession> {
        self.session.as_mut()
    }

    /// Returns the stream that carries it, unless it was given away.
    pub(crate) fn stream(&self) -> Option<&ByteStream> {
        self.stream.as_ref()
    }

    /// Returns the address of the other side.
    pub(crate) fn peer(&self) -> SocketAddr {
        self.machine.peer()
    }

    /// Returns the key that the other side of a session has proved to own.
    pub(crate) fn peer_key(&self) -> Option<lsl_secure::PublicKey> {
        Some(self.session.as_ref()?.peer_key())
    }

    /// Returns what the outlet of a session said of its stream.
    pub(crate) fn descriptor(&self) -> Option<&Descriptor> {
        Some(self.session.as_ref()?.descriptor())
    }

    /// Returns what knows the bytes of the connection.
    pub(crate) fn machine(&self) -> &inlet::Connection {
        &self.machine
    }

    /// Goes on with a handshake until the next question for the caller, or the session. `answer` is the one
    /// to its last question.
    ///
    /// # Errors
    /// Why the handshake failed. What the peer must be told of it has been sent.
    pub(crate) async fn proceed(&mut self, answer: Option<Answer>) -> lsl_secure::Result<Event> {
        let (Some(stream), Some(handshake)) = (&mut self.stream, self.machine.session()) else {
            let text = "no handshake is under way";
            return Err(lsl_secure::Error::session(Cause::Internal, text));
        };
        let event = secure_driver::advance(stream, handshake, answer).await;
        if let Err(error) = &event {
            self.lingers = true;
            secure_driver::send_last_words(stream, handshake, error).await;
        }
        event
    }

    /// Tells a peer whose session is over before it began why.
    pub(crate) fn refuse(&mut self, cause: Cause) {
        self.lingers = true;
        if let Some(sender) = self.machine.session().and_then(Handshake::sender) {
            sender.alert(cause);
        }
        self.send_at_once();
    }

    /// Does what others want of this connection, and has `context` woken for the next time: ends it, or
    /// asks for the outlet's clock. For the one task that looks after it.
    pub(crate) fn poll_signals(
        &mut self,
        context: &mut Context<'_>,
    ) -> std::result::Result<(), Disconnect> {
        let Some(session) = &self.session else {
            return Ok(());
        };
        session.poll_end(context).map_err(Disconnect::Session)?;
        let Poll::Ready(t0) = session.pings.poll(context) else {
            return Ok(());
        };
        if let Some(sender) = self.machine.session().and_then(Handshake::sender) {
            sender.ping(t0).map_err(Disconnect::Session)?;
        }
        // Reading will show what is wrong.
        let _ = self.poll_transmit(context);
        Ok(())
    }

    /// Does what is due: pings a silent outlet, or gives it up. The alarm is set once per 30 s, not per
    /// record; `context` is woken for the next time.
    pub(crate) fn poll_alarm(
        &mut self,
        context: &mut Context<'_>,
    ) -> std::result::Result<(), Disconnect> {
        while let Some(alarm) = &mut self.alarm
            && let Some(due) = self.machine.poll_timeout()
            && alarm.as_mut().poll(context).is_ready()
        {
            let now = local_clock();
            let left = Duration::from_secs_f64((due - now).max(0.0));
            // The two clocks may differ by a tick.
            if left < TICK {
                self.machine.handle_timeout(due.max(now))?;
            } else {
                let at = tokio::time::Instant::now() + left;
                alarm.as_mut().reset(at);
            }
        }
        // Reading will show what is wrong.
        let _ = self.poll_transmit(context);
        Ok(())
    }

    /// Reads once, without blocking, see [`ByteStream::poll_read`] for `context`, and hands the bytes
    /// with the machine to `take`, none at the end of the stream. An error is the last thing that happens
    /// to this connection.
    #[inline]
    pub(crate) fn poll_receive(
        &mut self,
        context: Option<&mut Context<'_>>,
        take: impl FnOnce(&mut inlet::Connection, &mut [u8]) -> std::result::Result<(), Disconnect>,
    ) -> Poll<std::result::Result<Progress, Disconnect>> {
        let most = self.machine.max_read();
        let Some(stream) = self.stream.as_mut().filter(|_| most > 0) else {
            return Poll::Pending;
        };
        let machine = &mut self.machine;
        let outcome = with_read_buffer(|buffer| {
            let room = buffer.len().min(most);
            let buffer = buffer.get_mut(..room).unwrap_or_default();
            let received = match stream.poll_read(context, buffer) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(received)) => received,
                Poll::Ready(Err(error)) if is_gone(&error) && machine.session().is_some() => 0,
                Poll::Ready(Err(error)) => return Poll::Ready((0, Err(machine.failed(error)))),
            };
            let taken = take(machine, buffer.get_mut(..received).unwrap_or_default());
            let is_all = received < room;
            Poll::Ready((received, taken.map(|()| is_all)))
        });
        let Poll::Ready((bytes, outcome)) = outcome else {
            return Poll::Pending;
        };
        if let Some(session) = &mut self.session {
            while let Some(event) = self.machine.session().and_then(Handshake::poll_event) {
                match event {
                    Event::Pong { times, at } => session.pings.answered(times, at),
                    Event::KeyUpdated => session.key_updated(),
                    _ => {}
                }
            }
            // Cut off: nothing may be sent any more.
            session.is_failed |= bytes == 0 && matches!(outcome, Err(Disconnect::Failed(_)));
        }
        Poll::Ready(outcome.map(|is_all| Progress { bytes, is_all }))
    }

    /// As [`poll_receive`](Self::poll_receive), for what was received and had no room in the ring.
    pub(crate) fn refill(
        &mut self,
        take: impl FnOnce(&mut inlet::Connection) -> std::result::Result<(), Disconnect>,
    ) -> Poll<std::result::Result<Progress, Disconnect>> {
        let taken = take(&mut self.machine);
        Poll::Ready(taken.map(|()| Progress {
            bytes: 0,
            is_all: false,
        }))
    }

    /// Returns whether the feed has reached the live edge: neither [`has_held`](Self::has_held) nor
    /// [`is_held_back`](Self::is_held_back) is true any more.
    #[inline]
    pub(crate) fn is_live(&self) -> bool {
        (self.machine.feed()).is_some_and(inlet::FeedDecoder::is_live)
    }

    /// Returns whether something waits for [`refill`](Self::refill).
    #[inline]
    pub(crate) fn has_held(&self) -> bool {
        (self.machine.feed()).is_some_and(inlet::FeedDecoder::has_held)
    }

    /// Returns whether replay waits for room in the ring of `feed`. Spec: resume §5.4.
    #[inline]
    pub(crate) fn is_held_back(&self, feed: &inlet::Feed) -> bool {
        feed.is_held_back(&self.machine)
    }

    /// Returns whether the socket is read although replay waits: what is urgent may lie behind it.
    #[cold]
    pub(crate) fn reads_ahead(&mut self) -> bool {
        let held = self
            .machine
            .feed()
            .map_or(0, inlet::FeedDecoder::held_bytes);
        self.is_urgent() && held < MOST_HELD_BYTES && !self.machine.is_closed()
    }

    /// Sends what waits, and asks to be called again if there is no room for it.
    fn poll_transmit(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(stream) = &self.stream else {
            return Poll::Ready(Ok(()));
        };
        let (machine, writer) = (&mut self.machine, stream.writer());
        writer.poll_flush(context, || {
            machine.transmit(local_clock, |bytes| writer.try_write(bytes, Caller::Task))
        })
    }

    /// Sends as much as there is room for: if the outlet does not read, it does not hear us either.
    fn send_at_once(&mut self) {
        if let Some(stream) = &self.stream {
            let writer = stream.writer();
            let write = |bytes: &[u8]| writer.try_write(bytes, Caller::Push);
            let _ = self.machine.transmit(local_clock, write);
        }
    }

    /// Reads until the connection ends.
    async fn ended(&mut self, ring: &mut SampleRing) -> Disconnect {
        let never = |_: &mut inlet::Connection| None::<std::convert::Infallible>;
        match self.read_until(ring, never).await {
            Ok(never) => match never {},
            Err(disconnect) => disconnect,
        }
    }

    /// Waits for more bytes of a reply; `None` once the peer has ended it. Dropping the future loses nothing.
    ///
    /// # Errors
    /// Why the connection ended otherwise.
    pub(crate) async fn next_bytes(&mut self) -> Result<Option<Vec<u8>>> {
        let take = |machine: &mut inlet::Connection| {
            let bytes = machine.take_reply();
            (!bytes.is_empty()).then_some(bytes)
        };
        let received = self.read_until(&mut SampleRing::new(1, 0), take).await;
        match received {
            Ok(bytes) => Ok(Some(bytes)),
            Err(disconnect) => self.conclude(disconnect).map_or(Ok(None), Err),
        }
    }

    /// Reads until `take` gives something, or the connection ends.
    async fn read_until<R>(
        &mut self,
        ring: &mut SampleRing,
        mut take_out: impl FnMut(&mut inlet::Connection) -> Option<R>,
    ) -> std::result::Result<R, Disconnect> {
        poll_fn(|context| {
            loop {
                if let Some(taken) = take_out(&mut self.machine) {
                    return Poll::Ready(Ok(taken));
                }
                if let Err(disconnect) = self.poll_signals(context) {
                    return Poll::Ready(Err(disconnect));
                }
                let take = |machine: &mut inlet::Connection, bytes: &mut [u8]| {
                    machine.handle_input(bytes, local_clock, ring)
                };
                match self.poll_receive(Some(context), take) {
                    Poll::Ready(Ok(_)) => {}
                    // What came before its end counts.
                    Poll::Ready(Err(disconnect)) => {
                        return Poll::Ready(take_out(&mut self.machine).ok_or(disconnect));
                    }
                    Poll::Pending => {
                        return match self.poll_alarm(context) {
                            Ok(()) => Poll::Pending,
                            Err(disconnect) => Poll::Ready(Err(disconnect)),
                        };
                    }
                }
            }
        })
        .await
    }

    /// Keeps a session alive from which nothing is to come. Returns why it ended.
    pub(crate) async fn hold(mut self) -> Error {
        let disconnect = self.ended(&mut SampleRing::new(1, 0)).await;
        self.conclude(disconnect)
            .unwrap_or_else(|| Error::Protocol("the outlet closed the connection".into()))
    }

    /// Reads everything until the outlet ends the connection.
    ///
    /// # Errors
    /// [`Error::Io`]; a secure session that failed or was cut off; [`Error::Timeout`] after `limit`;
    /// [`Error::Protocol`] for a larger reply than allowed.
    pub(crate) async fn reply(mut self, limit: Duration) -> Result<Vec<u8>> {
        let mut ring = SampleRing::new(1, 0);
        let ended = tokio::time::timeout(limit, self.ended(&mut ring)).await;
        let disconnect = ended.map_err(|_| Error::Timeout {
            operation: "connect",
        })?;
        match self.conclude(disconnect) {
            None => Ok(self.machine.take_reply()),
            Some(error) => Err(error),
        }
    }

    /// Returns why a data connection ended, and tells those whom it concerns.
    pub(crate) fn end(mut self, disconnect: Disconnect) -> Error {
        match self.conclude(disconnect) {
            Some(error) => error,
            None => self.machine.closed(),
        }
    }

    /// Tells those whom it concerns why this connection ends; `None` if the outlet just closed it.
    fn conclude(&mut self, disconnect: Disconnect) -> Option<Error> {
        match disconnect {
            Disconnect::Closed => None,
            Disconnect::Failed(error) => Some(error),
            Disconnect::Session(error) => {
                let text = self.session.as_mut().map(|session| session.fail(&error));
                if let Some(sender) = self.machine.session().and_then(Handshake::sender) {
                    sender.fail(&error);
                }
                self.send_at_once();
                Some(Error::Security(text.unwrap_or_else(|| error.to_string())))
            }
        }
    }

    /// Returns whether the clock waits for an answer, which would be of no use if it were read late.
    #[inline]
    pub(crate) fn is_urgent(&self) -> bool {
        (self.session.as_ref()).is_some_and(|session| session.pings.is_outstanding())
    }

    /// Returns the handle that waits for the stream and ends it. Nobody else writes.
    #[inline]
    pub(crate) fn writer(&self) -> Option<&Writer> {
        self.stream.as_ref().map(ByteStream::writer)
    }

    /// Returns whether the reactor wakes the inlet's task when something can be read.
    #[inline]
    pub(crate) fn is_registered(&self) -> bool {
        self.stream.as_ref().is_some_and(ByteStream::is_registered)
    }

    /// Ends that: a registered socket wakes the reactor for every segment, though nobody cares. Returns
    /// whether it was registered.
    #[inline]
    pub(crate) fn unregister(&mut self) -> bool {
        let was_registered = self.is_registered();
        if let Some(stream) = &mut self.stream {
            stream.unregister();
        }
        was_registered
    }

    /// Returns whether the test patterns of a feed were right: all that comes is samples.
    #[inline]
    pub(crate) fn is_opened(&self) -> bool {
        self.machine.is_opened()
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // In a forked child nothing is said, nor is the connection shut down: it is the parent's.
        if !self.owner.is_current() {
            return;
        }
        if let Some(is_failed) = self.session.as_ref().map(|session| session.is_failed) {
            if !is_failed && let Some(sender) = self.machine.session().and_then(Handshake::sender) {
                sender.close();
                self.send_at_once();
            }
            let totals = |session: &mut Handshake| {
                let sent = session.sender()?.totals();
                Some([sent, session.receiver()?.totals()])
            };
            let totals = self.machine.session().and_then(totals).unwrap_or_default();
            if let Some(session) = &mut self.session {
                session.ended(totals);
            }
        } else if !self.lingers {
            return;
        }
        // Without somebody who reads what is under way, the system would answer it with a reset
        // that overtakes our last words. Without a runtime there is nobody.
        if let Some(mut stream) = self.stream.take() {
            drop(runtime::spawn(
                async move { stream.close(CLOSE_LIMIT).await },
            ));
        }
    }
}

/// Sends one request without encryption and returns all that comes back until the peer closes.
///
/// # Errors
/// [`Error::Io`], [`Error::Timeout`] after `limit`, [`Error::Protocol`] for an answer of more than
/// `max_bytes`.
pub(crate) async fn exchange(
    peer: SocketAddr,
    request: &[u8],
    max_bytes: usize,
    limit: Duration,
) -> Result<Vec<u8>> {
    let exchange = Exchange::reply(request, max_bytes);
    let stream = sockets::tcp_connect(peer, None, limit).await?;
    let connection = Connection::plain(stream, peer, exchange).await?;
    connection.reply(limit).await
}

/// A connection that the system ended.
pub(crate) fn failed(peer: SocketAddr, source: io::Error) -> Error {
    Error::io(format!("connection to {peer}"), source)
}

/// Replay that may wait behind the socket while something urgent is awaited; an outlet retains less by default.
const MOST_HELD_BYTES: usize = 16 << 20;

/// By how much the clock of timers may differ from `local_clock`.
const TICK: Duration = Duration::from_millis(5);

#[cfg(test)]
mod tests;
