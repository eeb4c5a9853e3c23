//! A connection whose request was understood and which both sides go on using, as a stream of bytes in both
//! directions, encrypted or not. Spec: relay §3.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use lsl_platform::clock::local_clock;
use lsl_proto::outlet::connection as proto;
use lsl_proto::outlet::fanout::Caller;
use lsl_secure::Cause;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::byte_stream::CLOSE_LIMIT;
use crate::drive_inlet::connection as inlet;
use crate::drive_inlet::session::Ending;
use crate::drive_outlet::connection::{Connection, poll_flush, poll_transfer};
use crate::drive_outlet::link::Link;
use crate::drive_outlet::session::Session;
use crate::net::runtime;
use crate::net::sockets::with_read_buffer;
use crate::{Error, Result};

/// Both directions of a connection with the port of a relay, accepted or dialled, as bytes: those inside its session if there is one. The end of the
/// stream is authentic in a session. Works in any runtime of tokio; what is not closed is closed when dropped.
///
/// One task reads and writes: PINGs of the peer are answered by it as well. At most 64 KiB and a record wait to be
/// read, and as much to be sent.
pub struct Duplex {
    link: Arc<Link>,
    /// Taken by the end.
    connection: Option<Connection>,
    /// Ends when this side ends the session.
    aborted: Pin<Box<dyn Future<Output = ()> + Send>>,
    /// Tells that the peer of a session that this side made lost our trust.
    ending: Option<Arc<Ending>>,
}

impl Duplex {
    /// Keeps a connection open whose request was understood.
    pub(crate) fn new(mut connection: Connection) -> Self {
        connection.machine.open();
        let link = Arc::clone(connection.link());
        Self {
            aborted: aborted(Arc::clone(&link)),
            link,
            connection: Some(connection),
            ending: None,
        }
    }

    /// Keeps a connection open that this side made, and whose request was sent.
    pub(crate) fn dialled(dialled: inlet::Connection) -> Result<Self> {
        let peer = dialled.peer();
        let parts = dialled.into_parts();
        let unfinished = || Error::Protocol("the handshake is not over".into());
        let (stream, (tx, rx), session) = parts.ok_or_else(unfinished)?;
        let mut ending = None;
        let session = session.map(|session| {
            let (events, registration) = session.into_parts();
            let session = Session::new(events, &registration.security, None);
            session.keep(registration.guard);
            ending = Some(registration.ending);
            Box::new(session)
        });
        let machine = proto::Connection::dialled(tx, rx);
        let mut duplex = Self::new(Connection::new(stream, peer, machine, session));
        duplex.ending = ending;
        Ok(duplex)
    }

    /// Returns the connection while it is open.
    pub(crate) fn connection(&self) -> Option<&Connection> {
        self.connection.as_ref()
    }

    /// Sends what waits and ends the connection, within two seconds. The peer of a session is told the `cause` of an
    /// end that is no proper one, in place of what waits.
    pub async fn close(mut self, cause: Option<Cause>) {
        if let Some(connection) = self.connection.take() {
            close(connection, cause).await;
        }
    }

    /// Does what others want of this connection, and has `context` woken for it.
    fn poll_connection(&mut self, context: &mut Context<'_>) -> io::Result<&mut Connection> {
        if self.aborted.as_mut().poll(context).is_ready() {
            self.aborted = aborted(Arc::clone(&self.link));
            let _ = self.aborted.as_mut().poll(context);
        }
        if let Some(ending) = &self.ending
            && let Poll::Ready(cause) = ending.poll(context)
        {
            self.link.end_session(cause);
        }
        self.link.check_ended()?;
        let connection = self.connection.as_mut();
        let connection = connection.ok_or(io::ErrorKind::BrokenPipe)?;
        if let Some(session) = self.link.session() {
            session.record_key_updates(connection.machine.take_key_updates());
        }
        Ok(connection)
    }
}

fn aborted(link: Arc<Link>) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    Box::pin(async move { link.work.notified().await })
}

async fn close(mut connection: Connection, cause: Option<Cause>) {
    match cause {
        Some(cause) => connection.link().abort(cause),
        // What cannot be sent in time is lost with the connection.
        None => {
            let _ = tokio::time::timeout(CLOSE_LIMIT, connection.flush()).await;
        }
    }
    connection.close().await;
}

impl AsyncRead for Duplex {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        to: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Connection {
            stream, machine, ..
        } = self.poll_connection(context)?;
        loop {
            let taken = machine.take_received(to.initialize_unfilled());
            to.advance(taken);
            if taken > 0 || to.remaining() == 0 || machine.is_closed() {
                return Poll::Ready(Ok(()));
            }
            let read = |buffer: &mut [u8]| poll_transfer(stream, machine, context, buffer);
            ready!(with_read_buffer(read)).map_err(other)?;
        }
    }
}

impl AsyncWrite for Duplex {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let Connection {
            stream, machine, ..
        } = self.poll_connection(context)?;
        let writer = stream.writer();
        loop {
            let write = |bytes: &[u8]| writer.try_write(bytes, Caller::Task);
            match machine.send(bytes, local_clock, write) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    ready!(writer.poll_writable(context))?;
                }
                sent => return Poll::Ready(sent),
            }
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Connection {
            stream, machine, ..
        } = self.poll_connection(context)?;
        poll_flush(stream, machine, context).map_err(other)
    }

    /// Flushes alone: both directions end together, by [`close`](Self::close) or a drop.
    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_flush(context)
    }
}

impl Drop for Duplex {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take() {
            // Without a runtime nobody can be told.
            let _ = runtime::spawn(close(connection, None));
        }
    }
}

impl fmt::Debug for Duplex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Duplex")
            .field("peer", &self.link.peer)
            .finish_non_exhaustive()
    }
}

fn other(error: Error) -> io::Error {
    match error {
        Error::Io { source, .. } => source,
        error => io::Error::other(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::time::Duration;

    use super::*;
    use crate::byte_stream::{NO_ADDRESS, pipe};

    #[test]
    fn a_reader_learns_at_once_that_this_side_ends_the_session() {
        let (told, is_told) = std::sync::mpsc::channel();
        let reading = async move {
            let (_peer, mut stream) = pipe::pair();
            stream.register().unwrap();
            let machine = proto::Connection::new(false, local_clock()).for_port();
            let connection = Connection::new(stream, NO_ADDRESS, machine, None);
            let link = Arc::clone(connection.link());
            let mut duplex = Duplex::new(connection);
            let reading = tokio::spawn(async move {
                let mut bytes = [0; 8];
                let mut buffer = ReadBuf::new(&mut bytes);
                poll_fn(|context| Pin::new(&mut duplex).poll_read(context, &mut buffer)).await
            });
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            assert!(!reading.is_finished());
            link.abort(Cause::NotAuthorised);
            told.send(reading.await.unwrap().unwrap_err().kind())
        };
        runtime::spawn(reading).unwrap();
        let ended = is_told.recv_timeout(Duration::from_secs(20));
        assert_eq!(ended, Ok(io::ErrorKind::ConnectionAborted));
    }
}
