//! One connection of an outlet, as its task has it: the receiving direction, and the sending one until
//! that joins the fan-out.

use std::future::poll_fn;
use std::io;
use std::net::{Shutdown, SocketAddr};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use lsl_platform::clock::local_clock;
use lsl_proto::outlet::fanout::{Caller, Transmit};
use lsl_proto::transport::{Control, Rx, Tx};
use lsl_secure::connection::Event;

use crate::byte_stream::{ByteStream, CLOSE_LIMIT};
use crate::drive_outlet::link::{Link, Sender};
use crate::drive_outlet::session::Session;
use crate::net::select2::{Either, select2};

/// A connection up to its answer, and later its receiving direction.
#[derive(Debug)]
pub(crate) struct Connection {
    link: Arc<Link>,
    pub(super) stream: ByteStream,
    rx: Rx,
    /// Away while the connection is a consumer.
    pub(super) sender: Option<Sender>,
    /// Bytes of the peer that nobody took yet.
    inbox: Vec<u8>,
    /// Bytes that the peer sent after its request.
    chatter: usize,
    /// The answer to the newest PING.
    pub(super) pong: Option<Control>,
    failure: Option<lsl_secure::Error>,
}

/// Outcome of one read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Heard {
    /// A part of a record, or nothing: somebody woke the task.
    Nothing,
    /// At least one whole record; in plaintext, bytes.
    Records,
    /// The end, which is authentic in a session.
    Close,
}

impl Connection {
    /// Creates a connection in plaintext.
    pub(crate) fn plain(stream: ByteStream, peer: SocketAddr) -> Self {
        Self::new(stream, peer, (Tx::plain(), Rx::plain()), None)
    }

    /// Creates a connection, in plaintext or with a session.
    pub(crate) fn new(
        stream: ByteStream,
        peer: SocketAddr,
        (tx, rx): (Tx, Rx),
        session: Option<Box<Session>>,
    ) -> Self {
        // Else nobody would be woken for room.
        debug_assert!(stream.is_registered());
        let link = Arc::new(Link::new(stream.writer().clone(), peer, session));
        Self {
            sender: Some(Sender::new(Arc::clone(&link), tx)),
            link,
            stream,
            rx,
            inbox: Vec::new(),
            chatter: 0,
            pong: None,
            failure: None,
        }
    }

    pub(crate) fn link(&self) -> &Arc<Link> {
        &self.link
    }

    /// Reads what comes next from the peer; nothing at the end.
    pub(crate) async fn receive(&mut self) -> io::Result<Vec<u8>> {
        while self.inbox.is_empty() {
            if self.hear().await? == Heard::Close {
                break;
            }
        }
        Ok(std::mem::take(&mut self.inbox))
    }

    /// Reads once: DATA goes to the inbox. A PING is answered, or else `pong` is
    /// the answer. Returns also when somebody wakes the connection's task.
    pub(crate) async fn hear(&mut self) -> io::Result<Heard> {
        let link = Arc::clone(&self.link);
        link.check_ended()?;
        // Reading costs budget: a flood of records, which are no chatter, would keep the one I/O thread
        // from everybody else.
        let reading = poll_fn(|context| self.poll_hear(context));
        let Either::First(heard) = select2(reading, link.work.notified()).await else {
            return Ok(Heard::Nothing);
        };
        let heard = heard?;
        if let Some(sender) = &mut self.sender
            && let Some(pong) = self.pong.take()
        {
            sender.control(pong);
            sender.flush(Caller::Task)?;
        }
        Ok(heard)
    }

    fn poll_hear(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Heard>> {
        let mut buffer = [0; 2048];
        let received = ready!(self.stream.poll_read(Some(context), &mut buffer))?;
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
            return Poll::Ready(Err(io::Error::new(kind, text)));
        }
        Poll::Ready(Ok(if self.rx.is_closed() {
            Heard::Close
        } else if self.link.session().is_none() || self.rx.totals().records > before {
            Heard::Records
        } else {
            Heard::Nothing
        }))
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

    /// Sends the last bytes of a connection. The socket is closed only after the peer did, or else bytes
    /// it sent beyond its request would turn our close into a reset that overtakes them.
    pub(crate) async fn finish(&mut self, reply: &[u8]) -> io::Result<()> {
        if let Some(sender) = &mut self.sender {
            sender.queue(reply);
            sender.flush_all().await?;
        }
        if self.link.session().is_some() {
            self.close().await;
        } else {
            // The peer may keep its side open as long as it likes; we need not.
            self.stream.close(REPLY_CLOSE_LIMIT).await;
        }
        Ok(())
    }

    /// Serves a session that only lends its keys, until its peer closes it or sends no record for
    /// that long. Spec: LSS/1 §9.2.
    pub(crate) async fn serve_time_keys(&mut self, limit: Duration) -> io::Result<()> {
        loop {
            let record = async {
                loop {
                    match (self.hear().await?, &mut self.sender) {
                        (Heard::Nothing, _) => {}
                        (heard, None) => return Ok(heard),
                        (heard, Some(sender)) => return sender.flush_all().await.map(|()| heard),
                    }
                }
            };
            match tokio::time::timeout(limit, record).await {
                Ok(Ok(Heard::Close)) => return Ok(()),
                Ok(Ok(_)) => self.discard_chatter()?,
                Ok(Err(error)) => return Err(error),
                Err(_) => return Err(io::ErrorKind::TimedOut.into()),
            }
        }
    }

    /// Ends a session with what the peer must be told, in bounded time, such that it arrives; a plaintext
    /// connection after what was sent. Does nothing while the sender is away. Spec: LSS/1 §4.2.
    pub(crate) async fn close(&mut self) {
        let Some(sender) = &mut self.sender else {
            return;
        };
        let Some(session) = self.link.session() else {
            return self.link.shut_down(Shutdown::Write);
        };
        if !session.is_ours() {
            return;
        }
        sender.end(self.failure.take());
        let writer = &self.link.writer;
        let last_words =
            poll_fn(|context| writer.poll_flush(context, || sender.flush(Caller::Task)));
        let _ = tokio::time::timeout(CLOSE_LIMIT, last_words).await;
        session.record_key_updates(0);
        self.stream.close(CLOSE_LIMIT).await;
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if let Some(session) = self.link.session() {
            session.note_receiver(&self.rx);
        }
    }
}

/// Bytes that a peer may send after its request.
const MAX_CHATTER_BYTES: usize = 64 * 1024;

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
            let mut connection = Connection::plain(stream, ([127, 0, 0, 1], 1).into());
            let link = Arc::clone(connection.link());
            // Far more than it takes.
            let answer = tokio::spawn(async move { connection.finish(&vec![0; 1 << 26]).await });
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            link.abort(Cause::NotAuthorised);
            told.send(answer.await.unwrap().unwrap_err().kind())
        };
        runtime::spawn(answering).unwrap();
        let ended = is_told.recv_timeout(Duration::from_secs(20));
        assert_eq!(ended, Ok(io::ErrorKind::ConnectionAborted));
    }
}
