//! The sealed half of a `Link`: one session of an outlet with one reader. Spec: LSS/1 §8.
//!
//! What is sealed is committed: it leaves whole and in counter order, or the session ends. So sealing
//! and sending happen under one lock, samples are sealed only when nothing sealed is waiting, and what
//! the socket did not take stays as ciphertext, at most `MAX_UNSENT_BYTES`. PONG, ALERT and CLOSE go
//! the same way. Whose turn it is to send samples is not decided here. In a forked child everything
//! fails silently: nothing is sealed, sent or shut down.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lsl_platform::clock::local_clock;
use lsl_platform::fork::Generation;
use lsl_platform::socket::send_nonblocking;
use lsl_proto::security::SessionEvents;
use lsl_proto::transport::{Control, Rx, Tx};
use lsl_secure::audit::{Event, EventKind};
use lsl_secure::connection::{self, Connection, SendHalf};
use lsl_secure::{Cause, Enrolled, PublicKey, Role, Security, SessionInfo};
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::sync::Notify;

use crate::net::monitor::lock_ignoring_poison;
use crate::net::race::{Winner, race};
use crate::net::sealed_time::Registration;
use crate::net::tcp;
use crate::stats::Encryption;

/// An established session. Only one task reads; anybody may send.
#[derive(Debug)]
pub(crate) struct Tunnel {
    owner: Generation,
    security: Arc<Security>,
    events: SessionEvents,
    started: f64,
    sender: Mutex<Tx>,
    receiver: Mutex<Receiver>,
    /// Watches the trust in the peer and answers its clock probes, until dropped.
    registrations: Mutex<Registrations>,
    /// Set when this side ends the session in spite of the reader's task, which `ended` wakes.
    over: AtomicBool,
    ended: Notify,
}

#[derive(Debug, Default)]
struct Registrations {
    trust: Option<Enrolled>,
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

/// The direction from the peer, and its DATA that nobody took yet: at most what one read brought, and a
/// record.
#[derive(Debug)]
struct Receiver {
    rx: Rx,
    inbox: Vec<u8>,
    taken: usize,
}

impl Receiver {
    /// Opens what came; whether it is the end or holds whole records, the newest PING of it, and the
    /// number of key updates.
    fn receive(&mut self, bytes: &mut [u8], now: f64) -> (lsl_secure::Result<Heard>, News) {
        let before = self.rx.totals().records;
        let inbox = &mut self.inbox;
        let received = self.rx.handle_input(bytes, now, |data| {
            inbox.extend_from_slice(data);
            Ok(())
        });
        let mut news = News::default();
        while let Some(event) = self.rx.poll_event() {
            match event {
                connection::Event::Ping { t0, t1 } => news.ping = Some((t0, t1)),
                connection::Event::KeyUpdated => news.key_updates += 1,
                _ => {}
            }
        }
        let heard = if self.rx.is_closed() {
            Heard::Close
        } else if self.rx.totals().records > before {
            Heard::Records
        } else {
            Heard::Nothing
        };
        (received.map(|()| heard), news)
    }
}

#[derive(Debug, Default)]
struct News {
    ping: Option<(f64, f64)>,
    key_updates: u64,
}

impl Tunnel {
    /// Takes over after the handshake; `None` before its end. `clock` answers its probes as long as the
    /// session lives.
    pub(crate) fn new(
        mut connection: Connection,
        security: &Arc<Security>,
        peer: SocketAddr,
        stream_uid: String,
        clock: impl FnOnce(lsl_secure::TimeResponder) -> Registration,
    ) -> Option<Self> {
        let time = connection.take_time_keys()?;
        let (sender, receiver) = connection.split()?;
        let info = Arc::clone(sender.info());
        Some(Self {
            owner: Generation::current(),
            security: Arc::clone(security),
            events: SessionEvents::new(info, Role::Outlet, peer, stream_uid),
            started: local_clock(),
            sender: Mutex::new(Tx::secure(sender)),
            receiver: Mutex::new(Receiver {
                rx: Rx::secure(receiver),
                inbox: Vec::new(),
                taken: 0,
            }),
            registrations: Mutex::new(Registrations {
                trust: None,
                clock: Some(clock(time.into_responder())),
            }),
            over: AtomicBool::new(false),
            ended: Notify::new(),
        })
    }

    /// An event of this session.
    pub(crate) fn event(&self, kind: EventKind) -> Event {
        self.events.event(kind).suite(self.info().suite)
    }

    fn info(&self) -> &SessionInfo {
        self.events.info()
    }

    /// Whose session it is.
    pub(crate) fn peer(&self) -> PublicKey {
        self.info().peer
    }

    pub(crate) fn encryption(&self) -> Encryption {
        Encryption {
            peer_name: self.info().peer_name.clone(),
            fingerprint: self.info().peer.fingerprint().to_string(),
            suite: self.info().suite.name(),
        }
    }

    /// Keeps the session enrolled as long as it lives.
    pub(crate) fn keep(&self, enrolled: Enrolled) {
        lock_ignoring_poison(&self.registrations).trust = Some(enrolled);
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
        let mut sender = lock_ignoring_poison(&self.sender);
        let sealed = sender.send(bytes, local_clock, write)?;
        Ok(Sent {
            sealed,
            all: sender.unsent() == 0 && !sender.session().is_some_and(SendHalf::has_key_updates),
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
        lock_ignoring_poison(&self.sender).flush(local_clock, write)
    }

    /// Waits in the runtime until everything sealed was handed to the socket.
    pub(crate) async fn flush(&self, stream: &TcpStream) -> io::Result<()> {
        while !self.flush_by(&mut |bytes| in_task(stream, bytes))? {
            stream.writable().await?;
        }
        self.tell_key_updates(0);
        Ok(())
    }

    /// Whether sealed bytes wait for the socket.
    pub(crate) fn has_unsent(&self) -> bool {
        lock_ignoring_poison(&self.sender).unsent() > 0
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
        let (heard, News { ping, key_updates }) =
            lock_ignoring_poison(&self.receiver).receive(&mut buffer[..received], now);
        self.tell_key_updates(key_updates);
        match heard {
            Ok(heard) => {
                if let Some((t0, t1)) = ping {
                    self.answer_ping(stream, t0, t1, wake)?;
                }
                Ok(heard)
            }
            Err(_) if received == 0 && self.has_ended() => Ok(Heard::Close),
            Err(error) => {
                self.fail(stream, &error);
                let kind = match error {
                    lsl_secure::Error::Alert { .. } => io::ErrorKind::ConnectionAborted,
                    _ => io::ErrorKind::InvalidData,
                };
                Err(io::Error::new(kind, error))
            }
        }
    }

    /// The DATA that came and was not taken yet.
    pub(crate) fn take_inbox(&self, buffer: &mut [u8]) -> usize {
        let mut receiver = lock_ignoring_poison(&self.receiver);
        let waiting = &receiver.inbox[receiver.taken..];
        let length = waiting.len().min(buffer.len());
        buffer[..length].copy_from_slice(&waiting[..length]);
        receiver.taken += length;
        if receiver.taken == receiver.inbox.len() {
            receiver.inbox.clear();
            receiver.taken = 0;
        }
        length
    }

    /// Forgets the DATA that came; how many bytes.
    pub(crate) fn discard_inbox(&self) -> usize {
        let mut receiver = lock_ignoring_poison(&self.receiver);
        let inbox = std::mem::take(&mut receiver.inbox);
        inbox.len() - std::mem::take(&mut receiver.taken)
    }

    fn answer_ping(&self, stream: &TcpStream, t0: f64, t1: f64, wake: &Notify) -> io::Result<()> {
        lock_ignoring_poison(&self.sender).control(Control::Pong { t0, t1 });
        if !self.try_flush(stream)? {
            // Goes with what is waiting already, by the hands of the reader's task.
            wake.notify_one();
        }
        Ok(())
    }

    /// Ends the session for what the peer sent or did not send.
    fn fail(&self, stream: &TcpStream, error: &lsl_secure::Error) {
        if let Some(event) = self.events.failure(error) {
            let event = event.suite(self.info().suite);
            self.security.audit().record(event);
        }
        lock_ignoring_poison(&self.sender).fail(error);
        let _ = self.try_flush(stream);
    }

    /// Ends the session with an ALERT, as far as that goes without blocking; the reader's task does
    /// the rest.
    pub(crate) fn end(&self, stream: &TcpStream, cause: Cause) {
        if !self.owner.is_current() {
            return;
        }
        // No keys, no clock.
        let clock = lock_ignoring_poison(&self.registrations).clock.take();
        drop(clock);
        lock_ignoring_poison(&self.sender).control(Control::Alert(cause));
        let _ = self.try_flush(stream);
        self.over.store(true, Ordering::Release);
        self.ended.notify_one();
    }

    /// Seals CLOSE, if nothing ended the session before, and sends what the socket takes now; true
    /// once nothing is left. In a child nothing is left from the start.
    pub(crate) fn say_goodbye(&self, stream: &TcpStream) -> bool {
        if !self.owner.is_current() {
            return false;
        }
        lock_ignoring_poison(&self.sender).control(Control::Close);
        self.try_flush(stream).unwrap_or(false)
    }

    fn has_ended(&self) -> bool {
        lock_ignoring_poison(&self.sender)
            .session()
            .is_some_and(SendHalf::has_ended)
    }

    /// Ends the session properly, however it came to that, in bounded time. Spec: LSS/1 §4.2.
    pub(crate) async fn close(&self, stream: &TcpStream) {
        if !self.owner.is_current() {
            return;
        }
        self.say_goodbye(stream);
        let _ = tokio::time::timeout(LAST_WORDS_LIMIT, self.flush(stream)).await;
        tcp::close(stream).await;
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
    fn tell_key_updates(&self, received: u64) {
        let sent = lock_ignoring_poison(&self.sender).take_key_updates();
        for _ in 0..sent + received {
            let event = self.event(EventKind::KeyUpdate);
            self.security.audit().record(event);
        }
    }
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        if !self.owner.is_current() {
            // What it drops takes locks that a thread of the parent may have held at the fork.
            let registrations = self.registrations.get_mut();
            let registrations = registrations.unwrap_or_else(PoisonError::into_inner);
            std::mem::forget(std::mem::take(registrations));
            return;
        }
        self.tell_key_updates(0);
        let now = local_clock();
        let peer = self.events.peer().ip();
        lock_ignoring_poison(self.security.admission()).session_closed(peer, now);
        let (sender, receiver) = (
            lock_ignoring_poison(&self.sender),
            lock_ignoring_poison(&self.receiver),
        );
        let Some(sender) = sender.session() else {
            return;
        };
        let closed = receiver.rx.is_closed() || sender.is_closed();
        let clean = sender.failure().is_none() && closed;
        let totals = [sender.totals(), receiver.rx.totals()];
        let event = self.events.closed(totals, now - self.started, clean);
        let mut event = event.suite(self.info().suite);
        if !clean {
            event = event.cause(sender.failure().unwrap_or(Cause::Truncated));
        }
        self.security.audit().record(event);
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
