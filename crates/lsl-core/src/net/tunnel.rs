//! The sealed half of a `Link`: one session of an outlet with one reader. Spec: LSS/1 §8.
//!
//! What is sealed is committed: it leaves whole and in counter order, or the session ends. So sealing
//! and sending happen under one lock, samples are sealed only when nothing sealed is waiting, and what
//! the socket did not take stays as ciphertext, at most `MAX_UNSENT_BYTES`. PONG, ALERT and CLOSE go
//! the same way. Whose turn it is to send samples is not decided here. In a forked child everything
//! fails silently: nothing is sealed, sent or shut down.

mod receiving;
mod sending;

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lsl_platform::clock::local_clock;
use lsl_platform::fork::Generation;
use lsl_platform::socket::send_nonblocking;
use lsl_secure::audit::{Event, EventKind, Traffic};
use lsl_secure::{Cause, Enrolled, PublicKey, Role, Security, Session, SessionId, Suite};
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::sync::Notify;

use self::receiving::{End, News, Receiving};
use self::sending::{Pong, Sending};
use crate::net::monitor::lock_ignoring_poison;
use crate::net::race::{Winner, race};
use crate::net::refusal;
use crate::net::sealed_time::Registration;
use crate::stats::Encryption;

/// An established session. Only one task reads; anybody may send.
#[derive(Debug)]
pub(crate) struct Tunnel {
    owner: Generation,
    facts: Facts,
    id: SessionId,
    peer: PublicKey,
    suite: Suite,
    started: f64,
    sending: Mutex<Sending>,
    receiving: Mutex<Receiving>,
    /// Keeps trust in the peer watched, and its clock probes answered.
    kept: Mutex<Kept>,
    /// Set when this side ends the session in spite of the reader's task, which `ended` wakes.
    over: AtomicBool,
    ended: Notify,
}

/// What an audit wants to know besides the session.
#[derive(Debug)]
pub(crate) struct Facts {
    pub(crate) security: Arc<Security>,
    pub(crate) peer_addr: SocketAddr,
    pub(crate) peer_name: String,
    pub(crate) stream_uid: String,
}

#[derive(Debug, Default)]
struct Kept {
    enrolled: Option<Enrolled>,
    clock: Option<Registration>,
}

/// What came from the peer in one go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Heard {
    /// A part of a record.
    Nothing,
    /// At least one whole record.
    Records,
    /// The authenticated end.
    Close,
}

impl Tunnel {
    /// Takes over after the handshake. `clock` answers its probes as long as the session lives.
    pub(crate) fn new(
        session: Session,
        facts: Facts,
        clock: impl FnOnce(lsl_secure::TimeResponder) -> Registration,
    ) -> Self {
        Self {
            owner: Generation::current(),
            facts,
            id: session.id,
            peer: session.peer,
            suite: session.suite,
            started: local_clock(),
            sending: Mutex::new(Sending::new(session.sealer)),
            receiving: Mutex::new(Receiving::new(session.opener)),
            kept: Mutex::new(Kept {
                enrolled: None,
                clock: Some(clock(session.time.into_responder())),
            }),
            over: AtomicBool::new(false),
            ended: Notify::new(),
        }
    }

    /// An event of this session.
    pub(crate) fn event(&self, kind: EventKind) -> Event {
        Event::new(kind)
            .session(self.id)
            .peer_addr(self.facts.peer_addr)
            .peer(self.peer.fingerprint())
            .peer_name(self.facts.peer_name.as_str())
            .role(Role::Outlet)
            .suite(self.suite)
            .stream_uid(self.facts.stream_uid.as_str())
    }

    /// Whose session it is.
    pub(crate) fn peer(&self) -> PublicKey {
        self.peer
    }

    pub(crate) fn encryption(&self) -> Encryption {
        Encryption {
            peer_name: self.facts.peer_name.clone(),
            fingerprint: self.peer.fingerprint().to_string(),
            suite: self.suite.name(),
        }
    }

    /// Keeps the session enrolled as long as it lives.
    pub(crate) fn keep(&self, enrolled: Enrolled) {
        lock_ignoring_poison(&self.kept).enrolled = Some(enrolled);
    }

    /// Seals what there is room for and sends what the socket takes; how many bytes were sealed.
    /// `WouldBlock` if sealed bytes are still waiting.
    pub(crate) fn try_send(&self, stream: &TcpStream, bytes: &[u8]) -> io::Result<Sent> {
        self.send_by(bytes, &mut |bytes| send_nonblocking(stream, bytes))
    }

    /// The same from a task that then waits for the socket to be writable: tells the reactor when it
    /// is not.
    fn try_send_in_task(&self, stream: &TcpStream, bytes: &[u8]) -> io::Result<Sent> {
        self.send_by(bytes, &mut |bytes| in_task(stream, bytes))
    }

    fn send_by(
        &self,
        bytes: &[u8],
        write: &mut impl FnMut(&[u8]) -> io::Result<usize>,
    ) -> io::Result<Sent> {
        // Before the parent's ciphertext is sent a second time.
        self.check_owner()?;
        let mut sending = lock_ignoring_poison(&self.sending);
        let sealed = sending.send(bytes, write)?;
        Ok(Sent {
            sealed,
            all: sending.unsent() == 0 && !sending.has_news(),
        })
    }

    /// Sends all of `bytes`, waiting in the runtime.
    pub(crate) async fn send(&self, stream: &TcpStream, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.try_send_in_task(stream, bytes) {
                Ok(sent) => bytes = &bytes[sent.sealed..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    stream.writable().await?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Sends what is sealed but did not fit; true once nothing is left.
    pub(crate) fn try_flush(&self, stream: &TcpStream) -> io::Result<bool> {
        self.flush_by(&mut |bytes| send_nonblocking(stream, bytes))
    }

    fn flush_by(&self, write: &mut impl FnMut(&[u8]) -> io::Result<usize>) -> io::Result<bool> {
        self.check_owner()?;
        lock_ignoring_poison(&self.sending).flush(write)
    }

    /// Waits in the runtime until everything sealed was handed to the socket.
    pub(crate) async fn flush(&self, stream: &TcpStream) -> io::Result<()> {
        while !self.flush_by(&mut |bytes| in_task(stream, bytes))? {
            stream.writable().await?;
        }
        self.tell_key_updates();
        Ok(())
    }

    /// Whether sealed bytes wait for the socket.
    pub(crate) fn has_unsent(&self) -> bool {
        lock_ignoring_poison(&self.sending).unsent() > 0
    }

    /// Waits for bytes and acts on the records that they complete: DATA goes to the inbox, a PING is
    /// answered, everything that ends the session is an error or [`Heard::Close`].
    pub(crate) async fn hear(&self, stream: &TcpStream, wake: &Notify) -> io::Result<Heard> {
        // Waiting for a socket that is never empty costs no budget: a flood of records, which are no
        // chatter, would keep the one I/O thread from everybody else.
        tokio::task::consume_budget().await;
        let mut buffer = [0; 512];
        let received = loop {
            if self.over.load(Ordering::Acquire) {
                return Err(io::ErrorKind::ConnectionAborted.into());
            }
            if let Winner::First(ready) = race(stream.readable(), self.ended.notified()).await {
                ready?;
                match stream.try_read(&mut buffer) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    other => break other?,
                }
            }
        };
        let now = local_clock();
        let news = {
            let mut receiving = lock_ignoring_poison(&self.receiving);
            match received {
                0 => receiving.end_of_stream(),
                _ => receiving.take(&mut buffer[..received], now),
            }
        };
        self.tell_key_updates();
        match news {
            Ok(News { heard, ping }) => {
                if let Some(t0) = ping {
                    self.answer_ping(stream, t0, now, wake)?;
                }
                Ok(heard)
            }
            Err(End::Peer { cause, text }) => {
                let event = self.event(EventKind::PeerAlert).cause(cause).detail(text);
                self.facts.security.audit().record(event);
                lock_ignoring_poison(&self.sending).fail(cause);
                Err(io::Error::new(
                    io::ErrorKind::ConnectionAborted,
                    format!("the reader ended the session: {}", cause.name()),
                ))
            }
            Err(End::Stream(_)) if self.said_goodbye() => Ok(Heard::Close),
            Err(End::Here(error) | End::Stream(error)) => {
                self.fail(stream, &error);
                Err(io::Error::new(io::ErrorKind::InvalidData, error))
            }
        }
    }

    /// The DATA that came and was not taken yet.
    pub(crate) fn take_inbox(&self, buffer: &mut [u8]) -> usize {
        lock_ignoring_poison(&self.receiving).take_inbox(buffer)
    }

    /// Forgets the DATA that came; how many bytes.
    pub(crate) fn discard_inbox(&self) -> usize {
        lock_ignoring_poison(&self.receiving).discard_inbox()
    }

    fn answer_ping(&self, stream: &TcpStream, t0: f64, t1: f64, wake: &Notify) -> io::Result<()> {
        lock_ignoring_poison(&self.sending).pong = Some(Pong { t0, t1 });
        if !self.try_flush(stream)? {
            // Goes with what is waiting already, by the hands of the reader's task.
            wake.notify_one();
        }
        Ok(())
    }

    /// This side found fault with the peer's records.
    fn fail(&self, stream: &TcpStream, error: &lsl_secure::Error) {
        let cause = error.cause();
        if cause == Cause::RecordAuthFailed {
            let event = self.event(EventKind::RecordAuthFailed).cause(cause);
            let event = event.detail(error.to_string());
            self.facts.security.audit().record(event);
        }
        let deserves_alert = matches!(
            cause,
            Cause::RecordOverflow | Cause::UnexpectedRecord | Cause::KeyLimit | Cause::Internal
        );
        if deserves_alert {
            self.alert(stream, cause, cause.name());
        } else {
            lock_ignoring_poison(&self.sending).fail(cause);
        }
    }

    /// Ends the session with an ALERT, as far as that goes without blocking; the reader's task does
    /// the rest.
    pub(crate) fn end(&self, stream: &TcpStream, cause: Cause) {
        if !self.owner.is_current() {
            return;
        }
        // No keys, no clock.
        let clock = lock_ignoring_poison(&self.kept).clock.take();
        drop(clock);
        self.alert(stream, cause, cause.name());
        self.over.store(true, Ordering::Release);
        self.ended.notify_one();
    }

    fn alert(&self, stream: &TcpStream, cause: Cause, text: &str) {
        let mut sending = lock_ignoring_poison(&self.sending);
        sending.failure = sending.failure.or(Some(cause));
        if !sending.last {
            sending.last = true;
            let Sending { sealer, out, .. } = &mut *sending;
            // It fails after CLOSE and in a child, and there it must.
            let _ = sealer.seal_alert(cause, text, out);
        }
        drop(sending);
        let _ = self.try_flush(stream);
    }

    /// Seals CLOSE, if nothing ended the session before, and sends what the socket takes now; true
    /// once nothing is left. In a child nothing is left from the start.
    pub(crate) fn say_goodbye(&self, stream: &TcpStream) -> bool {
        if !self.owner.is_current() {
            return false;
        }
        {
            let mut sending = lock_ignoring_poison(&self.sending);
            if !sending.last {
                sending.last = true;
                let Sending { sealer, out, .. } = &mut *sending;
                sending.closed = sealer.seal_close(out).is_ok();
            }
        }
        self.try_flush(stream).unwrap_or(false)
    }

    fn said_goodbye(&self) -> bool {
        lock_ignoring_poison(&self.sending).last
    }

    /// Ends the session properly, however it came to that, in bounded time. Spec: LSS/1 §4.2.
    pub(crate) async fn close(&self, stream: &TcpStream) {
        if !self.owner.is_current() {
            return;
        }
        self.say_goodbye(stream);
        let _ = tokio::time::timeout(LAST_WORDS_LIMIT, self.flush(stream)).await;
        refusal::close(stream).await;
    }

    /// Whether this process is the one whose session it is.
    pub(crate) fn is_ours(&self) -> bool {
        self.owner.is_current()
    }

    fn check_owner(&self) -> io::Result<()> {
        if self.owner.is_current() {
            Ok(())
        } else {
            Err(io::ErrorKind::NotConnected.into())
        }
    }

    /// Keys change by themselves, on whatever thread sends; this tells it where locks are not held.
    fn tell_key_updates(&self) {
        let fresh = lock_ignoring_poison(&self.sending).take_news()
            + lock_ignoring_poison(&self.receiving).take_news();
        for _ in 0..fresh {
            let event = self.event(EventKind::KeyUpdate);
            self.facts.security.audit().record(event);
        }
    }
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        if !self.owner.is_current() {
            // What it drops takes locks that a thread of the parent may have held at the fork.
            let kept = self.kept.get_mut().unwrap_or_else(PoisonError::into_inner);
            std::mem::forget(std::mem::take(kept));
            return;
        }
        self.tell_key_updates();
        let (security, now) = (&self.facts.security, local_clock());
        lock_ignoring_poison(security.admission()).session_closed(self.facts.peer_addr.ip(), now);
        let sending = lock_ignoring_poison(&self.sending);
        let receiving = lock_ignoring_poison(&self.receiving);
        let (out, inward) = (sending.sealer.totals(), receiving.opener.totals());
        let flushed = sending.closed && sending.unsent() == 0;
        let clean = sending.failure.is_none() && (receiving.closed || flushed);
        let traffic = Traffic {
            bytes: out.bytes + inward.bytes,
            records: out.records + inward.records,
            duration_secs: now - self.started,
            clean,
        };
        let mut event = self.event(EventKind::SessionClosed).traffic(traffic);
        if !clean {
            event = event.cause(sending.failure.unwrap_or(Cause::Truncated));
        }
        security.audit().record(event);
    }
}

/// What [`Tunnel::try_send`] did.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sent {
    /// Bytes that were sealed: they count as sent.
    pub(crate) sealed: usize,
    /// Whether there is nothing left for the reader's task to do.
    pub(crate) all: bool,
}

/// One attempt to send, by a task that will wait for the reactor if it fails.
fn in_task(stream: &TcpStream, bytes: &[u8]) -> io::Result<usize> {
    stream.try_io(Interest::WRITABLE, || send_nonblocking(stream, bytes))
}

/// How long a session that ends tries to say so.
const LAST_WORDS_LIMIT: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests;
