//! A connection of an inlet inside a secure session: opens what the outlet sends, keeps the session
//! alive, and ends it so that the outlet knows. What the bytes mean is not known here.
//! Spec: LSS/1 §8, §9.5, §4.2 (closing).

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use lsl_platform::clock::local_clock;
use lsl_platform::fork::Generation;
use lsl_secure::audit::{Event, EventKind, Traffic, printable};
use lsl_secure::{
    Cause, Descriptor, Enrolled, Opener, PublicKey, Record, Role, Sealer, Security, Session,
    SessionId, Suite, TimeProber,
};
use tokio::net::TcpStream;
use tokio::time::Sleep;

use crate::net::dial::{Broken, Progress, poll_into_buffer};
use crate::net::monitor::lock_ignoring_poison;
use crate::net::peers::Peers;
use crate::net::pings::Pings;
use crate::net::runtime;
use crate::net::watched::Watched;
use crate::stats::Encryption;
use crate::{Error, Result};

/// An established session and its connection. Dropping it says CLOSE, if that is possible at once.
#[derive(Debug)]
pub(crate) struct Tunnel {
    /// Taken by the drop, which may leave it to a task.
    stream: Option<Watched>,
    opener: Opener,
    sealer: Sealer,
    /// Sealed and not yet sent: it must go out whole and in order.
    out: Vec<u8>,
    state: State,
    alarm: Pin<Box<Sleep>>,
    ping_after: Duration,
    /// Of any record, in seconds of `local_clock`.
    last_record: f64,
    unanswered_pings: u32,
    /// Those that the clock asks for; they do not count as signs that the outlet is silent.
    pings: Arc<Pings>,
    prober: Option<TimeProber>,
    descriptor: Descriptor,
    about: About,
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
    pub(crate) session: SessionId,
    pub(crate) suite: Suite,
    pub(crate) key: PublicKey,
    /// As our trust file has it.
    pub(crate) name: String,
    pub(crate) peer: SocketAddr,
    pub(crate) started: f64,
}

/// Names a session in events about what happens beside it.
#[derive(Debug)]
pub(crate) struct Witness {
    security: Arc<Security>,
    session: SessionId,
    key: PublicKey,
    name: String,
    peer: SocketAddr,
    uid: String,
}

impl Witness {
    /// Something happened that an auditor wants to know.
    pub(crate) fn record(&self, kind: EventKind, detail: String) {
        let event = Event::new(kind)
            .session(self.session)
            .peer_addr(self.peer)
            .peer(self.key.fingerprint())
            .peer_name(self.name.as_str())
            .role(Role::Inlet)
            .stream_uid(self.uid.as_str())
            .detail(detail);
        self.security.audit().record(event);
    }
}

impl About {
    fn event(&self, kind: EventKind, stream: &Descriptor) -> Event {
        Event::new(kind)
            .session(self.session)
            .peer_addr(self.peer)
            .peer(self.key.fingerprint())
            .peer_name(self.name.as_str())
            .role(Role::Inlet)
            .suite(self.suite)
            .policy(self.security.policy())
            .stream_uid(String::from_utf8_lossy(&stream.uid))
    }
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
    /// `session` has sent and received what belongs to the handshake, and nothing else.
    pub(crate) fn new(
        stream: Watched,
        session: Session,
        descriptor: Descriptor,
        about: About,
    ) -> Self {
        let event = about.event(EventKind::HandshakeOk, &descriptor);
        about.security.audit().record(event);
        Self {
            stream: Some(stream),
            opener: session.opener,
            sealer: session.sealer,
            out: Vec::new(),
            state: State::Open,
            alarm: Box::pin(tokio::time::sleep(PING_AFTER)),
            ping_after: PING_AFTER,
            last_record: local_clock(),
            unanswered_pings: 0,
            pings: Arc::default(),
            prober: Some(session.time.into_prober()),
            descriptor,
            about,
            owner: Generation::current(),
        }
    }

    /// What the outlet said of its stream.
    pub(crate) fn descriptor(&self) -> &Descriptor {
        &self.descriptor
    }

    /// For people.
    pub(crate) fn encryption(&self) -> Encryption {
        Encryption {
            peer_name: self.about.name.clone(),
            fingerprint: self.about.key.fingerprint().to_string(),
            suite: self.about.suite.name(),
        }
    }

    /// For events about the clock.
    pub(crate) fn witness(&self) -> Witness {
        let about = &self.about;
        Witness {
            security: Arc::clone(&about.security),
            session: about.session,
            key: about.key,
            name: about.name.clone(),
            peer: about.peer,
            uid: String::from_utf8_lossy(&self.descriptor.uid).into_owned(),
        }
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
    pub(crate) fn socket(&self) -> Option<&Watched> {
        self.stream.as_ref()
    }

    pub(crate) fn unwatch(&mut self) {
        if let Some(stream) = &mut self.stream {
            stream.unwatch();
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
    /// [`Dialled::poll_receive`](crate::net::dial::Dialled::poll_receive).
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
            opener,
            state,
            pings,
            ..
        } = self
        else {
            return Poll::Ready(Err(Broken::Failed(cut_off(self.about.peer))));
        };
        let now = local_clock();
        let records = opener.totals().records;
        let mut refusal = None;
        let received = poll_into_buffer(stream, context, |bytes| {
            opener.receive(bytes, now, |record| {
                match record {
                    Record::Data(bytes) => take(bytes).map_err(|error| {
                        refusal = Some(error);
                        lsl_secure::Error::session(Cause::Malformed, "not LSL")
                    }),
                    Record::Pong(times) => {
                        // Not `now`: between that and reading the PONG may have come, and its
                        // round trip would look shorter than it was.
                        pings.answered(times, local_clock());
                        Ok(())
                    }
                    Record::Close => {
                        *state = State::Closed;
                        Ok(())
                    }
                    Record::Alert(cause, text) => Err(lsl_secure::Error::Alert {
                        cause,
                        text: printable(text.as_bytes()),
                    }),
                    _ => Err(lsl_secure::Error::session(
                        Cause::UnexpectedRecord,
                        "not for an inlet",
                    )),
                }
            })
        });
        let Ok(Some((result, progress))) = ready!(received) else {
            self.state = State::Failed;
            return Poll::Ready(Err(Broken::Failed(cut_off(self.about.peer))));
        };
        // Anybody on the way can send bytes that never become a record.
        if self.opener.totals().records > records {
            self.last_record = now;
            self.unanswered_pings = 0;
        }
        Poll::Ready(match (result, refusal, self.state) {
            // The outlet is authentic and wrong: tell it nothing but the end.
            (_, Some(error), _) => Err(Broken::Failed(error)),
            (Err(error), None, _) => Err(Broken::Session(error)),
            (Ok(()), None, State::Closed) => Err(Broken::Closed),
            (Ok(()), None, _) => Ok(progress),
        })
    }

    /// Pings an outlet that is silent for long, and gives up one that does not answer. The alarm is
    /// set once per 30 s, not per record.
    pub(crate) fn poll_alarm(&mut self, context: &mut Context<'_>) -> lsl_secure::Result<()> {
        while self.alarm.as_mut().poll(context).is_ready() {
            let quiet = Duration::from_secs_f64((local_clock() - self.last_record).max(0.0));
            let mut next = self.ping_after.saturating_sub(quiet);
            // The two clocks may differ by a tick.
            if next < TICK {
                if self.unanswered_pings >= MAX_UNANSWERED_PINGS {
                    let text = "the outlet does not answer any more";
                    return Err(lsl_secure::Error::session(Cause::Timeout, text));
                }
                self.unanswered_pings += 1;
                self.sealer.seal_ping(local_clock(), &mut self.out)?;
                next = self.ping_after;
            }
            let at = tokio::time::Instant::now() + next;
            self.alarm.as_mut().reset(at);
        }
        self.poll_send(context);
        Ok(())
    }

    /// Asks for the clock's sake. Not behind what the outlet does not take: that would pile up, and
    /// no answer would come in time.
    fn ping(&mut self, context: &mut Context<'_>, t0: f64) -> lsl_secure::Result<()> {
        if self.out.is_empty() {
            self.sealer.seal_ping(t0, &mut self.out)?;
            self.poll_send(context);
        }
        Ok(())
    }

    /// Sends what is sealed, as far as there is room, and asks to be called again if there is none.
    fn poll_send(&mut self, context: &mut Context<'_>) {
        while !self.out.is_empty()
            && let Some(stream) = &self.stream
        {
            match stream.poll_send(context, &self.out) {
                Poll::Ready(Ok(sent)) => drop(self.out.drain(..sent)),
                // Reading will show what is wrong.
                Poll::Ready(Err(_)) | Poll::Pending => return,
            }
        }
    }

    /// Ends the session for `error`, telling the peer if it deserves to know.
    pub(crate) fn fail(&mut self, error: &lsl_secure::Error) -> Error {
        let cause = error.cause();
        let event = |kind| self.about.event(kind, &self.descriptor).cause(cause);
        let audit = self.about.security.audit();
        match error {
            lsl_secure::Error::Alert { text, .. } => {
                audit.record(event(EventKind::PeerAlert).detail(text.as_str()));
            }
            _ if cause == Cause::RecordAuthFailed => {
                audit.record(event(EventKind::RecordAuthFailed).detail(error.to_string()));
            }
            _ => {}
        }
        let is_own = matches!(error, lsl_secure::Error::Session { .. });
        // Whoever breaks the records learns nothing.
        let is_told = is_own && !matches!(cause, Cause::RecordAuthFailed | Cause::Timeout);
        if is_told && self.sealer.seal_alert(cause, "", &mut self.out).is_ok() {
            self.send_at_once();
        }
        self.state = State::Failed;
        let text = format!("{} at {}: {error}", self.about.name, self.about.peer);
        self.about.peers.ended(cause, &text);
        Error::Security(text)
    }

    fn send_at_once(&mut self) {
        if let Some(stream) = &self.stream
            && let Ok(sent) = stream.try_send(&self.out)
        {
            self.out.drain(..sent);
        }
    }
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        let Some(stream) = self.stream.take() else {
            return;
        };
        // In a forked child nothing is said, nor is the connection shut down: it is the parent's.
        if !self.owner.is_current() {
            return;
        }
        let was_failed = self.state == State::Failed;
        if !was_failed && self.sealer.seal_close(&mut self.out).is_ok() {
            // As much as there is room for: if the outlet does not read, it does not hear us either.
            let _ = stream.try_send(&self.out);
        }
        let (received, sent) = (self.opener.totals(), self.sealer.totals());
        let traffic = Traffic {
            bytes: received.bytes + sent.bytes,
            records: received.records + sent.records,
            duration_secs: local_clock() - self.about.started,
            clean: !was_failed,
        };
        let event = self.about.event(EventKind::SessionClosed, &self.descriptor);
        self.about.security.audit().record(event.traffic(traffic));
        // Without somebody who reads what is under way, the system would answer it with a reset
        // that overtakes our last words. Without a runtime there is nobody.
        let Some(stream) = stream.into_std() else {
            return;
        };
        let lingering = async move {
            if let Ok(mut stream) = TcpStream::from_std(stream) {
                lsl_secure::stream::close(&mut stream).await;
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

/// Silence of the outlet before it is asked whether it lives. Spec: LSS/1 §9.5.
const PING_AFTER: Duration = Duration::from_secs(30);

const MAX_UNANSWERED_PINGS: u32 = 3;

const TICK: Duration = Duration::from_millis(5);

#[cfg(test)]
mod tests;
