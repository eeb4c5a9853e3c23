//! The tunnel as a byte stream: what is written here is read there, or the connection fails.
//!
//! For programs that want a stream and not records; lsl-core seals and opens by itself.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use lsl_platform::clock::local_clock;
use lsl_platform::fork::Generation;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{Gate, accept, close, connect};
use crate::audit::printable;
use crate::record::MAX_PAYLOAD;
use crate::session::require_own;
use crate::{
    Cause, Descriptor, Error, Exporter, Local, PublicKey, Record, Result, Session, SessionId, Suite,
};

/// The plaintext side of a session over a byte stream.
///
/// Reading ends only after the peer's CLOSE; a connection that ends without it is an error of kind
/// `UnexpectedEof`. PINGs are answered. `shutdown` sends CLOSE. What was written may wait here until
/// `flush`, another write or a read (at most 64 KiB). Errors hold an [`Error`]. Dropping it closes
/// without CLOSE. Spec: LSS/1 §8.2, §8.4, §9.5.
pub struct SecureStream<T> {
    stream: T,
    session: Session,
    /// For what comes from the socket.
    raw: Box<[u8]>,
    /// DATA that came and was not read yet, from `plain_at`.
    plain: Vec<u8>,
    plain_at: usize,
    /// The peer's CLOSE came.
    closed: bool,
    /// Why nothing more will be read, until a reader was told.
    failure: Option<Error>,
    /// The newest PING that was not answered: t0 and its arrival. Older ones are forgotten.
    ping: Option<(f64, f64)>,
    /// Sealed records, from `out_at` not sent yet.
    out: Vec<u8>,
    out_at: usize,
    /// CLOSE or ALERT was sealed, or nothing may be.
    ended: bool,
    /// In a forked child even reading and sending what is sealed would disturb the parent.
    generation: Generation,
}

impl<T: AsyncRead + AsyncWrite + Unpin> SecureStream<T> {
    /// [`connect`] on `stream`, which is closed properly if that fails.
    ///
    /// # Errors
    /// As [`connect`].
    pub async fn connect(
        mut stream: T,
        local: Arc<Local>,
        request: &[u8],
        decide: impl FnOnce(PublicKey) -> Result<(), Cause>,
        check: impl FnOnce(&Descriptor) -> Result<(), Cause>,
    ) -> Result<(Self, Descriptor)> {
        match connect(&mut stream, local, request, decide, check).await {
            Ok((session, descriptor)) => Ok((Self::from_parts(stream, session), descriptor)),
            Err(error) => {
                close(&mut stream).await;
                Err(error)
            }
        }
    }

    /// [`accept`] on `stream`, which is closed properly if that fails.
    ///
    /// # Errors
    /// As [`accept`].
    pub async fn accept(
        mut stream: T,
        local: Arc<Local>,
        descriptor: &Descriptor,
        gate: &mut impl Gate,
    ) -> Result<Self> {
        match accept(&mut stream, local, descriptor, gate).await {
            Ok(session) => Ok(Self::from_parts(stream, session)),
            Err(error) => {
                close(&mut stream).await;
                Err(error)
            }
        }
    }

    /// A session whose handshake went over `stream`.
    pub fn from_parts(stream: T, session: Session) -> Self {
        Self {
            stream,
            session,
            raw: vec![0; MAX_PAYLOAD].into_boxed_slice(),
            plain: Vec::new(),
            plain_at: 0,
            closed: false,
            failure: None,
            ping: None,
            out: Vec::new(),
            out_at: 0,
            ended: false,
            generation: Generation::current(),
        }
    }

    /// The authenticated peer.
    pub fn peer(&self) -> PublicKey {
        self.session.peer
    }

    /// The public name of the session.
    pub fn session_id(&self) -> SessionId {
        self.session.id
    }

    /// In use for records.
    pub fn suite(&self) -> Suite {
        self.session.suite
    }

    /// For channel binding.
    pub fn exporter(&self) -> &Exporter {
        &self.session.exporter
    }

    fn require_own(&self) -> io::Result<()> {
        require_own(self.generation).map_err(into_io)
    }

    /// Reads once from the socket and opens what came.
    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut raw = ReadBuf::new(&mut self.raw);
        ready!(Pin::new(&mut self.stream).poll_read(cx, &mut raw))?;
        let bytes = raw.filled_mut();
        let now = local_clock();
        let received = if bytes.is_empty() {
            self.session.opener.end().map(|()| self.closed = true)
        } else {
            self.session.opener.receive(bytes, now, |record| {
                match record {
                    Record::Data(bytes) => self.plain.extend_from_slice(bytes),
                    Record::Ping(t0) => self.ping = Some((t0, now)),
                    Record::Close => self.closed = true,
                    Record::Alert(cause, text) => {
                        let text = printable(text.as_bytes());
                        return Err(Error::Alert { cause, text });
                    }
                    // The opener allows no second DESCRIPTOR; PONG only shows that the peer lives.
                    Record::Descriptor(_) | Record::Pong(_) => {}
                }
                Ok(())
            })
        };
        if let Err(error) = received {
            self.fail(error);
        }
        Poll::Ready(Ok(()))
    }

    /// Notes why reading ended, and tells the peer where LSS/1 §6.1 says so.
    fn fail(&mut self, error: Error) {
        let tell = matches!(
            &error,
            Error::Session {
                cause: Cause::UnexpectedRecord | Cause::RecordOverflow | Cause::KeyLimit,
                ..
            }
        );
        if tell && !self.ended {
            let alert = self
                .session
                .sealer
                .seal_alert(error.cause(), "", &mut self.out);
            // The error below says more than that there was no way to tell the peer.
            let _ = alert;
        }
        self.ended = true;
        self.failure = Some(error);
    }

    /// Seals the answer to the newest PING, if any and if there is room.
    fn queue_pong(&mut self) -> io::Result<()> {
        if !self.ended
            && self.unsent() <= MOST_UNSENT - ROOM
            && let Some((t0, t1)) = self.ping.take()
        {
            self.forget_sent();
            let times = [t0, t1, local_clock()];
            self.session
                .sealer
                .seal_pong(times, &mut self.out)
                .map_err(into_io)?;
        }
        Ok(())
    }

    /// Sends what is sealed. `Pending` leaves the rest for later.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.queue_pong()?;
        while self.out_at < self.out.len() {
            let unsent = &self.out[self.out_at..];
            match ready!(Pin::new(&mut self.stream).poll_write(cx, unsent))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                sent => self.out_at += sent,
            }
        }
        self.forget_sent();
        Poll::Ready(Ok(()))
    }

    fn unsent(&self) -> usize {
        self.out.len() - self.out_at
    }

    fn forget_sent(&mut self) {
        self.out.drain(..self.out_at);
        self.out_at = 0;
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncRead for SecureStream<T> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.require_own()?;
        loop {
            let unread = &this.plain[this.plain_at..];
            if !unread.is_empty() {
                let len = unread.len().min(buf.remaining());
                buf.put_slice(&unread[..len]);
                this.plain_at += len;
                return Poll::Ready(Ok(()));
            }
            this.plain.clear();
            this.plain_at = 0;
            // A reader that never writes must still answer PINGs and get rid of its last words. That
            // they cannot be sent is the writer's concern: there may be more to read.
            let _ = this.poll_send(cx);
            // CLOSE is the end, whatever an attacker puts behind it.
            if this.closed || buf.remaining() == 0 {
                return Poll::Ready(Ok(()));
            }
            if let Some(error) = this.failure.take() {
                return Poll::Ready(Err(into_io(error)));
            }
            // Again and again what ended the session, without touching the socket.
            this.session
                .opener
                .receive(&mut [], local_clock(), |_| Ok(()))
                .map_err(into_io)?;
            ready!(this.poll_receive(cx))?;
        }
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncWrite for SecureStream<T> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        this.require_own()?;
        if this.ended {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        // What is sealed cannot be dropped any more, so that little is sealed ahead.
        while this.unsent() > MOST_UNSENT - ROOM {
            ready!(this.poll_send(cx))?;
        }
        this.queue_pong()?;
        this.forget_sent();
        let len = buf.len().min(MAX_PAYLOAD);
        this.session
            .sealer
            .seal_data(&buf[..len], local_clock(), &mut this.out)
            .map_err(into_io)?;
        // The bytes are taken; an error of the stream comes again with the next call.
        if let Poll::Ready(Err(error)) = this.poll_send(cx) {
            return Poll::Ready(Err(error));
        }
        Poll::Ready(Ok(len))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.require_own()?;
        ready!(this.poll_send(cx))?;
        Pin::new(&mut this.stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.require_own()?;
        if !this.ended {
            this.session
                .sealer
                .seal_close(&mut this.out)
                .map_err(into_io)?;
            this.ended = true;
        }
        ready!(this.poll_send(cx))?;
        Pin::new(&mut this.stream).poll_shutdown(cx)
    }
}

impl<T> fmt::Debug for SecureStream<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SecureStream")
            .field("session", &self.session)
            .finish_non_exhaustive()
    }
}

fn into_io(error: Error) -> io::Error {
    let kind = match &error {
        Error::Io { source, .. } => source.kind(),
        Error::Alert { .. } => io::ErrorKind::ConnectionAborted,
        _ => match error.cause() {
            Cause::Truncated => io::ErrorKind::UnexpectedEof,
            Cause::Internal => io::ErrorKind::Other,
            _ => io::ErrorKind::InvalidData,
        },
    };
    io::Error::new(kind, error)
}

/// Sealed bytes that may wait to be sent.
const MOST_UNSENT: usize = 64 * 1024;

/// What one call can add to them: PONG and DATA with full padding, each after a key update.
const ROOM: usize = 2 * (MAX_PAYLOAD + 19 + 4096 + 19);
