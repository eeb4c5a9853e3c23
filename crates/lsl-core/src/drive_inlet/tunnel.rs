//! A connection of an inlet inside a secure session: opens what the outlet sends, keeps the session
//! alive, and ends it so that the outlet knows. What the bytes mean is not known here.
//! Spec: LSS/1 §8, §9.5, §4.2 (closing).

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use lsl_platform::clock::local_clock;
use lsl_platform::fork::Generation;
use lsl_proto::security::SessionEvents;
use lsl_secure::audit::{Event, EventKind};
use lsl_secure::connection::{self, Connection};
use lsl_secure::{Cause, Descriptor, Enrolled, Role, Security, SessionInfo, TimeKeys, TimeProber};
use tokio::net::TcpStream;
use tokio::time::Sleep;

use crate::byte_stream::ByteStream;
use crate::drive_clock::pings::Pings;
use crate::drive_inlet::connection::{Broken, Progress, poll_into_buffer};
use crate::drive_inlet::peers::Peers;
use crate::net::monitor::lock_ignoring_poison;
use crate::net::{runtime, tcp};
use crate::stats::Encryption;
use crate::{Error, Result};

/// An established session and its connection. Dropping it says CLOSE, if that is possible at once.
#[derive(Debug)]
pub(crate) struct Tunnel {
    /// Taken by the drop, which may leave it to a task.
    stream: Option<ByteStream>,
    connection: Connection,
    events: SessionEvents,
    state: State,
    /// Runs until the connection's time-out, as that was when it was set.
    alarm: Pin<Box<Sleep>>,
    /// Those that the clock asks for; they do not count as signs that the outlet is silent.
    pings: Arc<Pings>,
    prober: Option<TimeProber>,
    descriptor: Descriptor,
    about: About,
    started: f64,
    /// Keys and counters belong to the process that made them.
    owner: Generation,
}

/// Who is at the other end, and who wants to know how it goes.
#[derive(Debug)]
pub(crate) struct About {
    pub(crate) security: Arc<Security>,
    pub(crate) peers: Arc<Peers>,
    pub(crate) ending: Arc<Ending>,
    /// Held for its drop.
    pub(crate) _enrolled: Enrolled,
    pub(crate) peer: SocketAddr,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    /// The peer said CLOSE.
    Closed,
    /// Nothing may be sent any more.
    Failed,
}

impl Tunnel {
    /// `connection` is established, and nothing has been received behind its handshake.
    pub(crate) fn new(
        stream: ByteStream,
        mut connection: Connection,
        info: Arc<SessionInfo>,
        descriptor: Descriptor,
        about: About,
    ) -> Self {
        let prober = connection.take_time_keys().map(TimeKeys::into_prober);
        let uid = String::from_utf8_lossy(&descriptor.uid).into_owned();
        let tunnel = Self {
            stream: Some(stream),
            // Due at once, and then set to what the connection says.
            alarm: Box::pin(tokio::time::sleep(Duration::ZERO)),
            connection,
            events: SessionEvents::new(info, Role::Inlet, about.peer, uid),
            state: State::Open,
            pings: Arc::default(),
            prober,
            descriptor,
            about,
            started: local_clock(),
            owner: Generation::current(),
        };
        let event = tunnel.event(EventKind::HandshakeOk);
        tunnel.about.security.audit().record(event);
        tunnel
    }

    fn event(&self, kind: EventKind) -> Event {
        self.described(self.events.event(kind))
    }

    fn described(&self, event: Event) -> Event {
        let suite = self.events.info().suite;
        event.suite(suite).policy(self.about.security.policy())
    }

    /// What the outlet said of its stream.
    pub(crate) fn descriptor(&self) -> &Descriptor {
        &self.descriptor
    }

    /// For people.
    pub(crate) fn encryption(&self) -> Encryption {
        Encryption {
            peer_name: self.events.info().peer_name.clone(),
            fingerprint: self.events.info().peer.fingerprint().to_string(),
            suite: self.events.info().suite.name(),
        }
    }

    /// For events about the clock, and where they go.
    pub(crate) fn events(&self) -> (SessionEvents, Arc<Security>) {
        (self.events.clone(), Arc::clone(&self.about.security))
    }

    /// The means to ask the outlet's clock; it is of use while this session lives.
    pub(crate) fn take_prober(&mut self) -> Option<TimeProber> {
        self.prober.take()
    }

    /// The means to ask the outlet's clock through this session; they work while it is read.
    pub(crate) fn pings(&self) -> Arc<Pings> {
        Arc::clone(&self.pings)
    }

    /// The connection; `None` once it has ended.
    pub(crate) fn socket(&self) -> Option<&ByteStream> {
        self.stream.as_ref()
    }

    pub(crate) fn unregister(&mut self) {
        if let Some(stream) = &mut self.stream {
            stream.unregister();
        }
    }

    /// Whether the clock waits for an answer, whose time of arrival counts.
    pub(crate) fn is_urgent(&self) -> bool {
        self.pings.is_outstanding()
    }

    /// Ends the session if the outlet lost our trust, and sends what the clock asks for. For the one
    /// task that looks after this session: it is woken for the next time.
    pub(crate) fn poll_signals(&mut self, context: &mut Context<'_>) -> lsl_secure::Result<()> {
        if let Poll::Ready(cause) = self.about.ending.poll(context) {
            let text = "the outlet is no longer trusted";
            return Err(lsl_secure::Error::session(cause, text));
        }
        match self.pings.poll(context) {
            Poll::Ready(t0) => self.ping(context, t0),
            Poll::Pending => Ok(()),
        }
    }

    /// One read, without blocking; hands on the content of each record. See
    /// [`Dialled::poll_receive`](crate::drive_inlet::connection::Dialled::poll_receive).
    pub(crate) fn poll_receive(
        &mut self,
        context: Option<&mut Context<'_>>,
        mut take: impl FnMut(&[u8]) -> Result<()>,
    ) -> Poll<std::result::Result<Progress, Broken>> {
        if self.state == State::Closed {
            return Poll::Ready(Err(Broken::Closed));
        }
        let Self {
            stream: Some(stream),
            connection,
            ..
        } = self
        else {
            return Poll::Ready(Err(Broken::Failed(cut_off(self.about.peer))));
        };
        let mut refusal = None;
        let received = poll_into_buffer(stream, context, |bytes| {
            // Read after the bytes: a PONG's round trip must not look shorter than it was.
            connection.handle_input(bytes, local_clock(), |bytes| {
                take(bytes).map_err(|error| {
                    refusal = Some(error);
                    lsl_secure::Error::session(Cause::Malformed, "not LSL")
                })
            })
        });
        let Ok(Some((result, progress))) = ready!(received) else {
            self.state = State::Failed;
            return Poll::Ready(Err(Broken::Failed(cut_off(self.about.peer))));
        };
        while let Some(event) = self.connection.poll_event() {
            match event {
                connection::Event::Pong { times, at } => self.pings.answered(times, at),
                connection::Event::Closed => self.state = State::Closed,
                _ => {}
            }
        }
        Poll::Ready(match (result, refusal, self.state) {
            (_, Some(error), _) => Err(Broken::Failed(error)),
            (Err(error), None, _) => Err(Broken::Session(error)),
            (Ok(()), None, State::Closed) => Err(Broken::Closed),
            (Ok(()), None, _) => Ok(progress),
        })
    }

    /// Pings an outlet that is silent for long, and gives up one that does not answer. The alarm is
    /// set once per 30 s, not per record.
    pub(crate) fn poll_alarm(&mut self, context: &mut Context<'_>) -> lsl_secure::Result<()> {
        while let Some(due) = self.connection.poll_timeout()
            && self.alarm.as_mut().poll(context).is_ready()
        {
            let now = local_clock();
            let left = Duration::from_secs_f64((due - now).max(0.0));
            // The two clocks may differ by a tick.
            if left < TICK {
                self.connection.handle_timeout(due.max(now))?;
            } else {
                let at = tokio::time::Instant::now() + left;
                self.alarm.as_mut().reset(at);
            }
        }
        self.poll_send(context);
        Ok(())
    }

    /// Asks for the clock's sake.
    fn ping(&mut self, context: &mut Context<'_>, t0: f64) -> lsl_secure::Result<()> {
        if let Some(sender) = self.connection.sender() {
            sender.ping(t0)?;
        }
        self.poll_send(context);
        Ok(())
    }

    /// Sends what is sealed, as far as there is room, and asks to be called again if there is none.
    fn poll_send(&mut self, context: &mut Context<'_>) {
        let Some(stream) = &self.stream else { return };
        // Reading will show what is wrong.
        let _ = self.connection.flush(local_clock, |bytes| {
            match stream.poll_send(context, bytes) {
                Poll::Ready(sent) => sent,
                Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
            }
        });
    }

    /// Ends the session for `error`, telling the peer if it deserves to know.
    pub(crate) fn fail(&mut self, error: &lsl_secure::Error) -> Error {
        let cause = error.cause();
        if let Some(event) = self.events.failure(error) {
            self.about.security.audit().record(self.described(event));
        }
        if let Some(sender) = self.connection.sender() {
            sender.fail(error);
        }
        self.send_at_once();
        self.state = State::Failed;
        let text = format!(
            "{} at {}: {error}",
            self.events.info().peer_name,
            self.about.peer
        );
        self.about.peers.ended(cause, &text);
        Error::Security(text)
    }

    /// As much as there is room for: if the outlet does not read, it does not hear us either.
    fn send_at_once(&mut self) {
        if let Some(stream) = &self.stream {
            let _ = (self.connection).flush(local_clock, |bytes| stream.try_send(bytes));
        }
    }
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        // In a forked child nothing is said, nor is the connection shut down: it is the parent's.
        if !self.owner.is_current() {
            return;
        }
        let was_failed = self.state == State::Failed;
        if !was_failed && let Some(sender) = self.connection.sender() {
            sender.close();
            self.send_at_once();
        }
        let totals = |connection: &mut Connection| {
            let sent = connection.sender()?.totals();
            Some((sent, connection.receiver()?.totals()))
        };
        let (sent, received) = totals(&mut self.connection).unwrap_or_default();
        let lasted_secs = local_clock() - self.started;
        let closed = (self.events).closed([sent, received], lasted_secs, !was_failed);
        self.about.security.audit().record(self.described(closed));
        // Without somebody who reads what is under way, the system would answer it with a reset
        // that overtakes our last words. Without a runtime there is nobody.
        let Some(stream) = self.stream.take().and_then(ByteStream::into_std) else {
            return;
        };
        let lingering = async move {
            if let Ok(stream) = TcpStream::from_std(stream) {
                tcp::close(&stream).await;
            }
        };
        drop(runtime::spawn(lingering));
    }
}

/// Tells a tunnel that its peer lost our trust.
#[derive(Debug, Default)]
pub(crate) struct Ending {
    state: Mutex<(Option<Cause>, Option<Waker>)>,
}

impl Ending {
    /// From any thread.
    pub(crate) fn end(&self, cause: Cause) {
        let mut state = lock_ignoring_poison(&self.state);
        state.0 = Some(cause);
        let waker = state.1.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn poll(&self, context: &Context<'_>) -> Poll<Cause> {
        let mut state = lock_ignoring_poison(&self.state);
        if let Some(cause) = state.0 {
            return Poll::Ready(cause);
        }
        match &mut state.1 {
            Some(waker) => waker.clone_from(context.waker()),
            none => *none = Some(context.waker().clone()),
        }
        Poll::Pending
    }
}

/// The connection ended and the session did not. What came before is authentic.
fn cut_off(peer: SocketAddr) -> Error {
    Error::Protocol(format!("the encrypted connection to {peer} was cut off"))
}

/// By how much the clock of timers may differ from `local_clock`.
const TICK: Duration = Duration::from_millis(5);

#[cfg(test)]
mod tests;
