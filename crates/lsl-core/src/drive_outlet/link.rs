//! What the two directions of an outlet's connection share, and the sending one, which goes from the
//! connection's task to the fan-out.

use std::fmt::Debug;
use std::io;
use std::net::{Shutdown, SocketAddr};
use std::sync::{Arc, OnceLock, Weak};

use lsl_platform::clock::local_clock;
use lsl_proto::outlet::fanout::{Caller, ConsumerId, Transmit};
use lsl_proto::transport::{Control, Tx};
use lsl_secure::connection::SendHalf;
use lsl_secure::{Cause, PublicKey, SessionGuard};

use crate::byte_stream::Writer;
use crate::drive_outlet::session::Session;
use crate::net::sync::Notify;

/// The shared part of a connection.
#[derive(Debug)]
pub(crate) struct Link {
    pub(super) writer: Writer,
    pub(crate) peer: SocketAddr,
    /// Wakes the connection's task.
    pub(super) work: Notify,
    /// The session, without which everything is plaintext.
    session: Option<Box<Session>>,
    /// Key that the peer has proved to own, in the session or, of a substream, in the one around it.
    pub(crate) key: Option<PublicKey>,
    /// Keeps a plaintext connection registered that must end with the migration.
    pub(super) plaintext: OnceLock<SessionGuard>,
    /// Set when it joins the fan-out of an outlet, under the fan-out's lock.
    pub(super) consumer: OnceLock<(Weak<dyn Feeding>, ConsumerId)>,
    /// Why this side ends the session.
    ended: OnceLock<Cause>,
}

/// Outlet whose fan-out has the sender of a connection.
pub(crate) trait Feeding: Debug + Send + Sync {
    /// Ends a feed, now or when its sender is back, with an ALERT or CLOSE if it has a session.
    fn end(&self, id: ConsumerId, last_word: Control);
}

/// The sending direction of a connection.
#[derive(Debug)]
pub(crate) struct Sender {
    link: Arc<Link>,
    tx: Tx,
}

impl Link {
    pub(super) fn new(writer: Writer, peer: SocketAddr, session: Option<Box<Session>>) -> Self {
        Self {
            writer,
            peer,
            work: Notify::new(),
            key: session.as_ref().map(|session| session.peer()),
            session,
            plaintext: OnceLock::new(),
            consumer: OnceLock::new(),
            ended: OnceLock::new(),
        }
    }

    /// Returns the session, if there is one.
    pub(crate) fn session(&self) -> Option<&Session> {
        self.session.as_deref()
    }

    /// Has the connection's task end the session, and the fan-out if that has the sender.
    pub(crate) fn end_session(&self, cause: Cause) {
        let Some(session) = self.session().filter(|session| session.is_ours()) else {
            return;
        };
        // No keys, no clock.
        session.stop_clock();
        self.abort(cause);
        if let Some((outlet, id)) = self.consumer.get()
            && let Some(outlet) = outlet.upgrade()
        {
            outlet.end(*id, Control::Alert(cause));
        }
    }

    /// Ends a feed as the end of its outlet does, without what was not sent yet.
    pub(crate) fn end_feed(&self) {
        if self.session().is_none_or(Session::is_ours)
            && let Some((outlet, id)) = self.consumer.get()
            && let Some(outlet) = outlet.upgrade()
        {
            outlet.end(*id, Control::Close);
            self.work.notify_one();
        }
    }

    /// Has the connection's task stop what it does.
    pub(super) fn abort(&self, cause: Cause) {
        // The first cause counts.
        let _ = self.ended.set(cause);
        self.work.notify_one();
    }

    /// Returns why this side ends the session.
    pub(crate) fn ended(&self) -> Option<Cause> {
        self.ended.get().copied()
    }

    /// # Errors
    /// `ConnectionAborted` once this side ends the session.
    pub(super) fn check_ended(&self) -> io::Result<()> {
        match self.ended() {
            None => Ok(()),
            Some(_) => Err(io::ErrorKind::ConnectionAborted.into()),
        }
    }

    /// Ends a direction, or both; a task that waits for the stream returns.
    pub(crate) fn shut_down(&self, how: Shutdown) {
        // In a forked child the connection is the parent's.
        if self.session().is_none_or(Session::is_ours) {
            self.writer.shut_down(how);
        }
    }
}

impl Transmit for Sender {
    type Info = Arc<Link>;

    fn send(&mut self, bytes: &[u8], by: Caller) -> io::Result<usize> {
        let writer = &self.link.writer;
        let sent = (self.tx).send(bytes, local_clock, |bytes| writer.try_write(bytes, by));
        self.note_key_updates();
        sent
    }

    fn queue(&mut self, bytes: &[u8]) {
        self.tx.queue(bytes);
    }

    fn flush(&mut self, by: Caller) -> io::Result<bool> {
        let writer = &self.link.writer;
        let flushed = (self.tx).flush(local_clock, |bytes| writer.try_write(bytes, by));
        self.note_key_updates();
        flushed
    }

    fn has_unsent(&self) -> bool {
        self.tx.unsent() > 0
    }

    fn queued_bytes(&self) -> usize {
        self.tx.queued()
    }

    fn control(&mut self, control: Control) {
        self.tx.control(control);
    }

    fn wake(&self) {
        self.link.work.notify_one();
    }
}

impl Sender {
    pub(super) fn new(link: Arc<Link>, tx: Tx) -> Self {
        Self { link, tx }
    }

    /// Keys change by themselves, on whatever thread sends: the connection's task tells it.
    fn note_key_updates(&mut self) {
        if let Some(session) = self.link.session()
            && self.tx.session().is_some_and(SendHalf::has_key_updates)
        {
            session.add_key_updates(self.tx.take_key_updates());
            self.wake();
        }
    }

    /// Returns what it sent with; it is spent.
    pub(super) fn take_tx(&mut self) -> Tx {
        std::mem::replace(&mut self.tx, Tx::plain())
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        if let (Some(session), Some(half)) = (self.link.session(), self.tx.session()) {
            session.note_sender(half);
        }
    }
}
