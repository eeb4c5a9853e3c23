//! One TCP connection of an outlet. Its two directions have one owner each: the sender goes from the
//! connection's task to the fan-out, the receiver stays. What both share is the [`Link`].

use std::io;
use std::net::{Shutdown, SocketAddr};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use lsl_platform::clock::local_clock;
use lsl_platform::poll;
use lsl_platform::socket::send_nonblocking;
use lsl_proto::outlet::fanout::{Caller, ConsumerId, Transmit};
use lsl_proto::transport::{Control, Rx, Tx};
use lsl_secure::connection::{Event, SendHalf};
use lsl_secure::{Cause, SessionGuard};
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::sync::Notify;

use crate::drive_outlet::session::Session;
use crate::net::select2::{Either, select2};
use crate::net::tcp;
use crate::stats::Encryption;

/// The shared part of a connection.
#[derive(Debug)]
pub(crate) struct Link {
    stream: TcpStream,
    peer: SocketAddr,
    /// Wakes the connection's task.
    work: Notify,
    /// The session, without which everything is plaintext.
    session: Option<Box<Session>>,
    /// Keeps a plaintext connection registered that must end with the migration.
    plaintext: OnceLock<SessionGuard>,
    /// Set when it joins the fan-out, under the fan-out's lock.
    consumer: OnceLock<ConsumerId>,
    /// Why this side ends the session.
    ended: OnceLock<Cause>,
}

/// The sending direction of a connection.
#[derive(Debug)]
pub(crate) struct Sender {
    link: Arc<Link>,
    tx: Tx,
}

/// The receiving direction of a connection.
#[derive(Debug)]
pub(crate) struct Receiver {
    link: Arc<Link>,
    rx: Rx,
    /// What the peer sent and nobody took yet.
    inbox: Vec<u8>,
    /// Bytes that the peer sent after its request.
    chatter: usize,
    /// The answer to the newest PING.
    pong: Option<Control>,
    failure: Option<lsl_secure::Error>,
}

/// A connection with both directions.
#[derive(Debug)]
pub(crate) struct Duplex {
    pub(crate) sender: Sender,
    pub(crate) receiver: Receiver,
}

/// What came from the peer in one go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Heard {
    /// A part of a record, or nothing: somebody woke the task.
    Nothing,
    /// At least one whole record; in plaintext, bytes.
    Records,
    /// The end, which is authentic in a session.
    Close,
}

impl Link {
    fn new(stream: TcpStream, peer: SocketAddr, session: Option<Box<Session>>) -> Arc<Self> {
        Arc::new(Self {
            stream,
            peer,
            work: Notify::new(),
            session,
            plaintext: OnceLock::new(),
            consumer: OnceLock::new(),
            ended: OnceLock::new(),
        })
    }

    pub(crate) fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Returns the session, if there is one.
    pub(crate) fn session(&self) -> Option<&Session> {
        self.session.as_deref()
    }

    /// Returns what people are told of the session, if there is one.
    pub(crate) fn encryption(&self) -> Option<Encryption> {
        self.session().map(Session::encryption)
    }

    /// Keeps a plaintext connection registered as long as it lives.
    pub(crate) fn keep(&self, guard: SessionGuard) {
        // A connection asks for one feed.
        let _ = self.plaintext.set(guard);
    }

    /// Notes which consumer the connection has become.
    pub(crate) fn set_consumer(&self, id: ConsumerId) {
        // It becomes one once.
        let _ = self.consumer.set(id);
    }

    /// Has the connection's task end the session. Returns the consumer, whose sender is the fan-out's.
    pub(crate) fn end_session(&self, cause: Cause) -> Option<ConsumerId> {
        let session = self.session().filter(|session| session.is_ours())?;
        // No keys, no clock.
        session.stop_clock();
        // The first cause counts.
        let _ = self.ended.set(cause);
        self.work.notify_one();
        self.consumer.get().copied()
    }

    /// Returns why this side ends the session.
    pub(crate) fn ended(&self) -> Option<Cause> {
        self.ended.get().copied()
    }

    /// Waits until the socket may have room.
    pub(crate) async fn writable(&self) -> io::Result<()> {
        self.stream.writable().await
    }

    /// Blocks the calling thread until the socket may have room. Returns false at `deadline` (seconds of
    /// `local_clock`). Pushes of signal handlers are refused meanwhile, so the caller may hold locks.
    pub(crate) fn wait_writable(&self, deadline: f64) -> bool {
        // A socket that cannot be waited for counts as stalled.
        poll::wait_writable(&self.stream, deadline).unwrap_or(false)
    }

    /// Waits until somebody wakes the connection's task.
    pub(crate) async fn woken(&self) {
        self.work.notified().await;
    }

    /// Returns the raw stream, for a connection that is held open after its last word.
    pub(crate) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Ends both directions at once; a task that waits for the socket returns.
    pub(crate) fn shut_down(&self) {
        self.shut(Shutdown::Both);
    }

    fn shut(&self, how: Shutdown) {
        // In a forked child the connection is the parent's.
        if self.session().is_none_or(Session::is_ours) {
            // Failing means that the peer was faster.
            let _ = socket2::SockRef::from(&self.stream).shutdown(how);
        }
    }

    fn check_ended(&self) -> io::Result<()> {
        match self.ended() {
            None => Ok(()),
            Some(_) => Err(io::ErrorKind::ConnectionAborted.into()),
        }
    }
}

impl Transmit for Sender {
    type Info = Arc<Link>;

    fn send(&mut self, bytes: &[u8], by: Caller) -> io::Result<usize> {
        let stream = &self.link.stream;
        let sent = (self.tx).send(bytes, local_clock, |bytes| write(stream, bytes, by));
        self.note_key_updates();
        sent
    }

    fn queue(&mut self, bytes: &[u8]) {
        self.tx.queue(bytes);
    }

    fn flush(&mut self, by: Caller) -> io::Result<bool> {
        let stream = &self.link.stream;
        let flushed = (self.tx).flush(local_clock, |bytes| write(stream, bytes, by));
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
    /// Keys change by themselves, on whatever thread sends: the connection's task tells it.
    fn note_key_updates(&mut self) {
        if let Some(session) = self.link.session()
            && self.tx.session().is_some_and(SendHalf::has_key_updates)
        {
            session.add_key_updates(self.tx.take_key_updates());
            self.wake();
        }
    }

    /// Sends all of `bytes`, waiting in the runtime.
    async fn send_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.queue(bytes);
        self.flush_all().await
    }

    /// Waits in the runtime until the socket has taken everything, or this side ends the session.
    async fn flush_all(&mut self) -> io::Result<()> {
        loop {
            self.link.check_ended()?;
            if self.flush(Caller::Task)? {
                return Ok(());
            }
            if let Either::First(ready) = select2(self.link.writable(), self.link.woken()).await {
                ready?;
            }
        }
    }

    /// Ends a session with what the peer must be told, in bounded time, such that it arrives; a plaintext
    /// connection after what was sent. Spec: LSS/1 §4.2.
    pub(crate) async fn close(&mut self, receiver: &mut Receiver) {
        let link = Arc::clone(&self.link);
        let Some(session) = link.session() else {
            return link.shut(Shutdown::Write);
        };
        if !session.is_ours() {
            return;
        }
        if let Some(error) = receiver.failure.take() {
            let has_ended = self.tx.session().is_some_and(SendHalf::has_ended);
            if !(has_ended && error.cause() == Cause::Truncated) {
                session.record_failure(&error);
                self.tx.fail(&error);
            }
        }
        self.tx.control(match link.ended() {
            Some(cause) => Control::Alert(cause),
            None => Control::Close,
        });
        let last_words = async {
            while !self.flush(Caller::Task)? {
                link.writable().await?;
            }
            io::Result::Ok(())
        };
        let _ = tokio::time::timeout(LAST_WORDS_LIMIT, last_words).await;
        session.record_key_updates(0);
        tcp::close(&link.stream).await;
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        if let (Some(session), Some(half)) = (self.link.session(), self.tx.session()) {
            session.note_sender(half);
        }
    }
}

impl Receiver {
    pub(crate) fn link(&self) -> &Arc<Link> {
        &self.link
    }

    /// Waits for bytes and takes what they complete: DATA goes to the inbox, the answer to a PING to
    /// [`take_pong`](Self::take_pong). Returns also when somebody wakes the connection's task.
    pub(crate) async fn hear(&mut self) -> io::Result<Heard> {
        // Waiting for a socket that is never empty costs no budget: a flood of records, which are no
        // chatter, would keep the one I/O thread from everybody else.
        tokio::task::consume_budget().await;
        loop {
            self.link.check_ended()?;
            match select2(self.link.stream.readable(), self.link.woken()).await {
                Either::First(ready) => ready?,
                Either::Second(()) => return Ok(Heard::Nothing),
            }
            if let Some(heard) = self.try_hear()? {
                return Ok(heard);
            }
        }
    }

    fn try_hear(&mut self) -> io::Result<Option<Heard>> {
        let mut buffer = [0; 2048];
        let received = match self.link.stream.try_read(&mut buffer) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            received => received?,
        };
        let now = local_clock();
        let (before, inbox) = (self.rx.totals().records, &mut self.inbox);
        let result = (self.rx).handle_input(&mut buffer[..received], now, |data| {
            inbox.extend_from_slice(data);
            Ok(())
        });
        let mut key_updates = 0;
        while let Some(event) = self.rx.poll_event() {
            match event {
                Event::Ping { t0, t1 } => self.pong = Some(Control::Pong { t0, t1 }),
                Event::KeyUpdated => key_updates += 1,
                _ => {}
            }
        }
        if let Some(session) = self.link.session() {
            session.record_key_updates(key_updates);
        }
        if let Err(error) = result {
            let kind = match error {
                lsl_secure::Error::Alert { .. } => io::ErrorKind::ConnectionAborted,
                _ => io::ErrorKind::InvalidData,
            };
            let text = error.to_string();
            self.failure = Some(error);
            return Err(io::Error::new(kind, text));
        }
        Ok(Some(if self.rx.is_closed() {
            Heard::Close
        } else if self.link.session.is_none() || self.rx.totals().records > before {
            Heard::Records
        } else {
            Heard::Nothing
        }))
    }

    /// Takes the answer to the newest PING.
    pub(crate) fn take_pong(&mut self) -> Option<Control> {
        self.pong.take()
    }

    /// Discards what the peer sent after its request, up to a limit: no peer has anything to say then.
    /// PINGs and key updates are no chatter.
    pub(crate) fn discard_chatter(&mut self) -> io::Result<()> {
        self.chatter += std::mem::take(&mut self.inbox).len();
        if self.chatter < MAX_CHATTER_BYTES {
            return Ok(());
        }
        let text = "the peer keeps sending";
        Err(io::Error::new(io::ErrorKind::InvalidData, text))
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        if let Some(session) = self.link.session() {
            session.note_receiver(&self.rx);
        }
    }
}

impl Duplex {
    /// A connection in plaintext.
    pub(crate) fn plain(stream: TcpStream, peer: SocketAddr) -> Self {
        Self::new(Link::new(stream, peer, None), Tx::plain(), Rx::plain())
    }

    /// A connection with a session.
    pub(crate) fn secure(
        stream: TcpStream,
        peer: SocketAddr,
        session: Session,
        tx: Tx,
        rx: Rx,
    ) -> Self {
        Self::new(Link::new(stream, peer, Some(Box::new(session))), tx, rx)
    }

    fn new(link: Arc<Link>, tx: Tx, rx: Rx) -> Self {
        Self {
            sender: Sender {
                link: Arc::clone(&link),
                tx,
            },
            receiver: Receiver {
                link,
                rx,
                inbox: Vec::new(),
                chatter: 0,
                pong: None,
                failure: None,
            },
        }
    }

    pub(crate) fn link(&self) -> &Arc<Link> {
        &self.sender.link
    }

    /// Takes what came next from the peer; nothing at the end.
    pub(crate) async fn receive(&mut self) -> io::Result<Vec<u8>> {
        while self.receiver.inbox.is_empty() {
            if self.hear().await? == Heard::Close {
                break;
            }
        }
        Ok(std::mem::take(&mut self.receiver.inbox))
    }

    async fn hear(&mut self) -> io::Result<Heard> {
        let heard = self.receiver.hear().await?;
        if let Some(pong) = self.receiver.take_pong() {
            self.sender.control(pong);
            self.sender.flush(Caller::Task)?;
        }
        Ok(heard)
    }

    /// Sends the last bytes of a connection. The socket is closed only after the peer did, or else bytes
    /// it sent beyond its request would turn our close into a reset that overtakes them.
    pub(crate) async fn finish(&mut self, reply: &[u8]) -> io::Result<()> {
        self.sender.send_all(reply).await?;
        self.close().await;
        if self.link().session().is_none() {
            // The peer may keep its side open as long as it likes; we need not.
            let _ = tokio::time::timeout(CLOSE_LIMIT, self.closed_by_peer()).await;
        }
        Ok(())
    }

    async fn closed_by_peer(&mut self) -> io::Result<()> {
        while self.hear().await? != Heard::Close {
            self.receiver.discard_chatter()?;
        }
        Ok(())
    }

    /// Serves a session that only lends its keys, until its peer closes it or sends no record for
    /// that long. Spec: LSS/1 §9.2.
    pub(crate) async fn serve_time_keys(&mut self, limit: Duration) -> io::Result<()> {
        loop {
            let record = async {
                loop {
                    match self.hear().await? {
                        Heard::Nothing => {}
                        heard => break self.sender.flush_all().await.map(|()| heard),
                    }
                }
            };
            match tokio::time::timeout(limit, record).await {
                Ok(Ok(Heard::Close)) => return Ok(()),
                Ok(Ok(_)) => self.receiver.discard_chatter()?,
                Ok(Err(error)) => return Err(error),
                Err(_) => return Err(io::ErrorKind::TimedOut.into()),
            }
        }
    }

    /// As [`Sender::close`].
    pub(crate) async fn close(&mut self) {
        self.sender.close(&mut self.receiver).await;
    }
}

/// One attempt to send. A task that will wait for the reactor if it fails has to tell it.
#[inline]
fn write(stream: &TcpStream, bytes: &[u8], by: Caller) -> io::Result<usize> {
    match by {
        Caller::Push => send_nonblocking(stream, bytes),
        Caller::Task => stream.try_io(Interest::WRITABLE, || send_nonblocking(stream, bytes)),
    }
}

/// Bytes that a peer may send after its request.
const MAX_CHATTER_BYTES: usize = 64 * 1024;

/// How long a session that ends tries to say so.
const LAST_WORDS_LIMIT: Duration = Duration::from_secs(1);

/// How long a peer may keep a finished connection open.
const CLOSE_LIMIT: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;
    use crate::net::runtime;

    #[test]
    fn an_answer_that_a_full_socket_stops_ends_with_its_session() {
        let (told, is_told) = std::sync::mpsc::channel();
        let answering = async move {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let _peer = TcpStream::connect(address).await.unwrap();
            let (stream, address) = listener.accept().await.unwrap();
            let mut duplex = Duplex::plain(stream, address);
            let link = Arc::clone(duplex.link());
            // Far more than sockets take.
            let answer = tokio::spawn(async move { duplex.finish(&vec![0; 1 << 26]).await });
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            link.ended.set(Cause::NotAuthorised).unwrap();
            link.work.notify_one();
            told.send(answer.await.unwrap().unwrap_err().kind())
        };
        runtime::spawn(answering).unwrap();
        let ended = is_told.recv_timeout(Duration::from_secs(20));
        assert_eq!(ended, Ok(io::ErrorKind::ConnectionAborted));
    }
}
