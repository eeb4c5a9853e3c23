//! One connection of an outlet, as its task has it: the socket and the machine, which tells what the bytes are.

use std::future::poll_fn;
use std::io;
use std::net::{Shutdown, SocketAddr};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use lsl_platform::clock::local_clock;
use lsl_proto::outlet::connection::{self as proto, Event};
use lsl_proto::outlet::fanout::Caller;
use lsl_proto::transport::Tx;
use lsl_secure::PublicKey;
use tokio::sync::OwnedSemaphorePermit;

use crate::byte_stream::{ByteStream, CLOSE_LIMIT};
use crate::drive_outlet::link::Link;
use crate::drive_outlet::session::Session;
use crate::net::secure_driver::in_time;
use crate::net::select2::{Either, select2};
use crate::{Error, Result};

/// A connection up to its answer, and later its receiving direction.
#[derive(Debug)]
pub(crate) struct Connection {
    link: Arc<Link>,
    pub(crate) stream: ByteStream,
    pub(crate) machine: proto::Connection,
    /// Time at which its peer was first heard of, before any handshake, in seconds of `local_clock`.
    pub(super) begun: f64,
    /// Its place among those that are served at a time.
    place: Option<OwnedSemaphorePermit>,
}

/// Sends what waits and reads once, or does what is due by then.
pub(super) async fn transfer(
    stream: &mut ByteStream,
    machine: &mut proto::Connection,
) -> Result<()> {
    // Also for a peer that always has something to say.
    machine.handle_timeout(local_clock())?;
    let timeout = machine.poll_timeout();
    let transferring = poll_fn(|context| poll_transfer(stream, machine, context, &mut [0; 2048]));
    match in_time(timeout, transferring).await {
        Some(transferred) => transferred,
        // The two clocks may differ by a tick.
        None => machine.handle_timeout(timeout.unwrap_or_default()),
    }
}

pub(super) fn poll_transfer(
    stream: &mut ByteStream,
    machine: &mut proto::Connection,
    context: &mut Context<'_>,
    buffer: &mut [u8],
) -> Poll<Result<()>> {
    let flushed = poll_flush(stream, machine, context)?;
    if machine.max_read() == 0 {
        ready!(flushed);
    }
    let most = machine.max_read().min(buffer.len());
    debug_assert_ne!(most, 0, "a read of nothing looks like the end");
    let received = ready!(stream.poll_read(Some(context), &mut buffer[..most])).map_err(failed)?;
    Poll::Ready(machine.handle_input(&mut buffer[..received], local_clock()))
}

pub(super) fn poll_flush(
    stream: &ByteStream,
    machine: &mut proto::Connection,
    context: &mut Context<'_>,
) -> Poll<Result<()>> {
    let writer = stream.writer();
    let mut flush = || machine.transmit(local_clock, |bytes| writer.try_write(bytes, Caller::Task));
    writer.poll_flush(context, &mut flush).map_err(failed)
}

fn failed(source: io::Error) -> Error {
    Error::io("connection", source)
}

impl Connection {
    /// Creates a connection, in plaintext or with a session.
    pub(crate) fn new(
        stream: ByteStream,
        peer: SocketAddr,
        machine: proto::Connection,
        session: Option<Box<Session>>,
    ) -> Self {
        let link = Link::new(stream.writer().clone(), peer, session);
        Self::with(link, stream, machine)
    }

    /// Creates a connection that came through a link, whose peer has proved to own `key`.
    pub(crate) fn through_link(
        stream: ByteStream,
        peer: SocketAddr,
        machine: proto::Connection,
        key: Option<PublicKey>,
    ) -> Self {
        let mut link = Link::new(stream.writer().clone(), peer, None);
        link.key = key;
        Self::with(link, stream, machine)
    }

    fn with(link: Link, stream: ByteStream, machine: proto::Connection) -> Self {
        // Else nobody would be woken for room.
        debug_assert!(stream.is_registered());
        let link = Arc::new(link);
        Self {
            link,
            stream,
            machine,
            begun: local_clock(),
            place: None,
        }
    }

    /// Keeps a place for as long as the connection lives.
    pub(crate) fn hold(&mut self, place: OwnedSemaphorePermit) {
        self.place = Some(place);
    }

    pub(crate) fn link(&self) -> &Arc<Link> {
        &self.link
    }

    /// Sends what waits and reads once. Returns also when somebody wakes the connection's task.
    pub(crate) async fn step(&mut self) -> Result<()> {
        let Self {
            link,
            stream,
            machine,
            ..
        } = self;
        link.check_ended().map_err(failed)?;
        // Reading costs budget: a flood of records, which are no chatter, would keep the one I/O thread
        // from everybody else.
        let stepped = match select2(transfer(stream, machine), link.work.notified()).await {
            Either::First(stepped) => stepped,
            Either::Second(()) => Ok(()),
        };
        if let Some(session) = link.session() {
            session.record_key_updates(machine.take_key_updates());
        }
        stepped
    }

    /// Awaits what the peer asks for.
    pub(crate) async fn event(&mut self) -> Result<Event> {
        loop {
            if let Some(event) = self.machine.poll_event() {
                return Ok(event);
            }
            self.step().await?;
        }
    }

    /// Reads until the peer has left or its time is over. Returns why.
    pub(crate) async fn until_gone(&mut self) -> Error {
        loop {
            if self.machine.is_closed() {
                return Error::Protocol("the peer has left".into());
            }
            if let Err(error) = self.step().await {
                return error;
            }
        }
    }

    /// Sends the answer of a connection, within its time. The socket is closed only after the peer did, or
    /// else bytes it sent beyond its request would turn our close into a reset that overtakes them.
    pub(crate) async fn finish(&mut self, reply: &[u8]) -> Result<()> {
        self.machine.reply(reply);
        let deadline = self.machine.poll_timeout();
        let sending = async {
            self.flush().await?;
            if self.link.session().is_some() {
                self.close().await;
            } else {
                // The peer may keep its side open as long as it likes; we need not.
                self.stream.close(REPLY_CLOSE_LIMIT).await;
            }
            Ok(())
        };
        let late = || Err(Error::Protocol("the answer takes too long".into()));
        in_time(deadline, sending).await.unwrap_or_else(late)
    }

    /// Waits until the stream has taken everything, or this side ends the session.
    pub(super) async fn flush(&mut self) -> Result<()> {
        let Self {
            link,
            stream,
            machine,
            ..
        } = self;
        loop {
            link.check_ended().map_err(failed)?;
            let flushing = poll_fn(|context| poll_flush(stream, machine, context));
            if let Either::First(flushed) = select2(flushing, link.work.notified()).await {
                return flushed;
            }
        }
    }

    /// Ends a session with what the peer must be told, in bounded time, such that it arrives; a plaintext
    /// connection after what was sent. Does nothing while the sender is away. Spec: LSS/1 §4.2.
    pub(crate) async fn close(&mut self) {
        let Self {
            link,
            stream,
            machine,
            ..
        } = self;
        if !machine.has_sender() {
            return;
        }
        let Some(session) = link.session() else {
            return link.shut_down(Shutdown::Write);
        };
        if !session.is_ours() {
            return;
        }
        if let Some(error) = machine.close(link.ended()) {
            session.record_failure(&error);
        }
        let last_words = poll_fn(|context| poll_flush(stream, machine, context));
        let _ = tokio::time::timeout(CLOSE_LIMIT, last_words).await;
        session.record_key_updates(machine.take_key_updates());
        stream.close(CLOSE_LIMIT).await;
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if let Some(session) = self.link.session() {
            let (tx, rx) = self.machine.directions();
            if let Some(half) = tx.and_then(Tx::session) {
                session.note_sender(half);
            }
            session.note_receiver(rx);
            // Those of an answer that was given up.
            session.add_key_updates(self.machine.take_key_updates());
        }
    }
}

/// How long a peer may keep a connection open that was answered.
const REPLY_CLOSE_LIMIT: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use lsl_secure::Cause;

    use super::*;
    use crate::byte_stream::pipe;
    use crate::net::runtime;

    #[test]
    fn an_answer_that_a_full_socket_stops_ends_with_its_session() {
        let (told, is_told) = std::sync::mpsc::channel();
        let answering = async move {
            let (mut stream, _peer) = pipe::pair();
            stream.register().unwrap();
            let machine = proto::Connection::new(false, local_clock());
            let peer = ([127, 0, 0, 1], 1).into();
            let mut connection = Connection::new(stream, peer, machine, None);
            let link = Arc::clone(connection.link());
            // Far more than it takes.
            let answer = tokio::spawn(async move { connection.finish(&vec![0; 1 << 26]).await });
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            link.abort(Cause::NotAuthorised);
            let error = answer.await.unwrap().unwrap_err();
            let Error::Io { source, .. } = error else {
                panic!("{error}");
            };
            told.send(source.kind())
        };
        runtime::spawn(answering).unwrap();
        let ended = is_told.recv_timeout(Duration::from_secs(20));
        assert_eq!(ended, Ok(io::ErrorKind::ConnectionAborted));
    }
}
