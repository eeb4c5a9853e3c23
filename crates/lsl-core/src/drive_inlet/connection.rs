//! Connections that an inlet makes, plain or through a secure session: the one place where what is
//! read and sent may be encrypted. Whether it must be is decided in `handshake`; what the bytes mean,
//! elsewhere. Spec: lsl-protocol §6, LSS/1 §2.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use crate::byte_stream::{ByteStream, Socket};
use crate::drive_inlet::tunnel::Tunnel;
use crate::net::sockets::{self, READ_BYTES, with_read_buffer};
use crate::net::tcp::send_all;
use crate::{Error, Result};

/// An open connection with an outlet whose request is on its way.
#[derive(Debug)]
pub(crate) struct Dialled {
    peer: SocketAddr,
    way: Way,
    /// Keeps a plaintext connection enrolled that must end with the migration.
    enrolled: Option<lsl_secure::Enrolled>,
}

#[derive(Debug)]
enum Way {
    Plain(ByteStream),
    Secure(Box<Tunnel>),
}

/// What a read was good for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Batch {
    /// Something came.
    Some,
    /// The outlet has ended the connection. Of a secure one this is authentic.
    End,
}

/// What one read of the socket brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Progress {
    /// Taken from the socket.
    pub(crate) bytes: usize,
    /// Whether that was all there was.
    pub(crate) is_all: bool,
}

/// Why a connection cannot be read any more.
#[derive(Debug)]
pub(crate) enum Broken {
    /// The outlet has ended it. Of a secure one this is authentic.
    Closed,
    Failed(Error),
    /// The outlet, and whoever keeps the records, have to be told.
    Session(lsl_secure::Error),
}

impl Dialled {
    /// Connects without encryption, within `limit`, and sends `request`.
    ///
    /// # Errors
    /// [`Error::Io`] if there is no connection.
    pub(crate) async fn plain(peer: SocketAddr, request: &[u8], limit: Duration) -> Result<Self> {
        let stream = sockets::tcp_connect(peer, limit).await?;
        send_all(&stream, request)
            .await
            .map_err(|source| failed(peer, source))?;
        let socket = ByteStream::new(stream).map_err(|source| failed(peer, source))?;
        let way = Way::Plain(socket);
        Ok(Self {
            peer,
            way,
            enrolled: None,
        })
    }

    /// Goes on in plaintext for as long as this allows it.
    pub(crate) fn keep(&mut self, enrolled: lsl_secure::Enrolled) {
        self.enrolled = Some(enrolled);
    }

    /// A connection whose handshake is done and whose request was sent with it.
    pub(crate) fn secure(peer: SocketAddr, tunnel: Tunnel) -> Self {
        Self {
            peer,
            way: Way::Secure(Box::new(tunnel)),
            enrolled: None,
        }
    }

    /// The session, if this connection is encrypted.
    pub(crate) fn tunnel(&mut self) -> Option<&mut Tunnel> {
        match &mut self.way {
            Way::Plain(_) => None,
            Way::Secure(tunnel) => Some(tunnel),
        }
    }

    /// Reads what is there, waiting for the first byte, and hands it on: as a whole, or record by
    /// record. An error of `take` is the last thing that happens to this connection.
    ///
    /// # Errors
    /// [`Error::Io`]; what `take` says; a secure session that failed or was cut off.
    pub(crate) async fn read(
        &mut self,
        mut take: impl FnMut(&[u8]) -> Result<()>,
    ) -> Result<Batch> {
        let broken = poll_fn(|context| {
            if let Err(broken) = self.poll_signals(context) {
                return Poll::Ready(Err(broken));
            }
            match self.poll_receive(Some(context), &mut take) {
                Poll::Pending => match self.poll_alarm(context) {
                    Ok(()) => Poll::Pending,
                    Err(broken) => Poll::Ready(Err(broken)),
                },
                ready @ Poll::Ready(_) => ready,
            }
        });
        match broken.await {
            Ok(_) => Ok(Batch::Some),
            Err(broken) => match self.conclude(broken) {
                None => Ok(Batch::End),
                Some(error) => Err(error),
            },
        }
    }

    /// Does what others want of this connection, and has `context` woken for the next time: ends it, or
    /// asks for the outlet's clock.
    pub(crate) fn poll_signals(
        &mut self,
        context: &mut Context<'_>,
    ) -> std::result::Result<(), Broken> {
        match &mut self.way {
            Way::Plain(_) => Ok(()),
            Way::Secure(tunnel) => tunnel.poll_signals(context).map_err(Broken::Session),
        }
    }

    /// Looks after an outlet that has sent nothing; `context` is woken for the next time.
    pub(crate) fn poll_alarm(
        &mut self,
        context: &mut Context<'_>,
    ) -> std::result::Result<(), Broken> {
        match &mut self.way {
            Way::Plain(_) => Ok(()),
            Way::Secure(tunnel) => tunnel.poll_alarm(context).map_err(Broken::Session),
        }
    }

    /// One read, without blocking, see [`ByteStream::poll_receive`] for `context`; hands on what came as
    /// a whole, or record by record. Broken is the last thing that happens to this connection.
    pub(crate) fn poll_receive(
        &mut self,
        context: Option<&mut Context<'_>>,
        take: impl FnMut(&[u8]) -> Result<()>,
    ) -> Poll<std::result::Result<Progress, Broken>> {
        let peer = self.peer;
        match &mut self.way {
            Way::Plain(socket) => {
                let mut take = take;
                let received = ready!(poll_into_buffer(socket, context, |bytes| take(bytes)));
                Poll::Ready(match received {
                    Ok(Some((taken, progress))) => taken.map(|()| progress).map_err(Broken::Failed),
                    Ok(None) => Err(Broken::Closed),
                    Err(source) => Err(Broken::Failed(failed(peer, source))),
                })
            }
            Way::Secure(tunnel) => tunnel.poll_receive(context, take),
        }
    }

    /// Tells whom it concerns why this connection ends; `None` if the outlet just closed it.
    pub(crate) fn conclude(&mut self, broken: Broken) -> Option<Error> {
        match broken {
            Broken::Closed => None,
            Broken::Failed(error) => Some(error),
            Broken::Session(error) => match &mut self.way {
                Way::Secure(tunnel) => Some(tunnel.fail(&error)),
                Way::Plain(_) => Some(Error::Security(error.to_string())),
            },
        }
    }

    /// Whether something is under way that would be of no use if it were read late.
    pub(crate) fn is_urgent(&self) -> bool {
        match &self.way {
            Way::Plain(_) => false,
            Way::Secure(tunnel) => tunnel.is_urgent(),
        }
    }

    /// To wait for the socket, never to read.
    pub(crate) fn handle(&self) -> Option<Arc<Socket>> {
        Some(self.socket()?.handle())
    }

    pub(crate) fn is_registered(&self) -> bool {
        self.socket().is_some_and(ByteStream::is_registered)
    }

    pub(crate) fn unregister(&mut self) {
        match &mut self.way {
            Way::Plain(socket) => socket.unregister(),
            Way::Secure(tunnel) => tunnel.unregister(),
        }
    }

    fn socket(&self) -> Option<&ByteStream> {
        match &self.way {
            Way::Plain(socket) => Some(socket),
            Way::Secure(tunnel) => tunnel.socket(),
        }
    }

    /// Reads everything until the outlet ends the connection.
    ///
    /// # Errors
    /// As [`read`](Self::read); [`Error::Timeout`] after `limit`; [`Error::Protocol`] for more than
    /// `max_bytes`.
    pub(crate) async fn read_all(mut self, max_bytes: usize, limit: Duration) -> Result<Vec<u8>> {
        let peer = self.peer;
        let mut answer = Vec::new();
        let reading = async {
            loop {
                let batch = self.read(|bytes| {
                    if answer.len() + bytes.len() > max_bytes {
                        let text = format!("the answer of {peer} is larger than {max_bytes} bytes");
                        return Err(Error::Protocol(text));
                    }
                    answer.extend_from_slice(bytes);
                    Ok(())
                });
                if batch.await? == Batch::End {
                    return Ok(());
                }
            }
        };
        let timeout = Err(Error::Timeout {
            operation: "connect",
        });
        tokio::time::timeout(limit, reading)
            .await
            .unwrap_or(timeout)?;
        Ok(answer)
    }
}

/// One short connection without encryption: sends `request` and returns all that comes back until the
/// peer closes.
///
/// # Errors
/// [`Error::Io`], [`Error::Timeout`] after `limit`, [`Error::Protocol`] for an answer of more than
/// `max_bytes`.
pub(crate) async fn exchange(
    peer: SocketAddr,
    request: &[u8],
    max_bytes: usize,
    limit: Duration,
) -> Result<Vec<u8>> {
    Dialled::plain(peer, request, limit)
        .await?
        .read_all(max_bytes, limit)
        .await
}

/// One read, handed on; `None` at the end. The buffer belongs to the thread: between reads nothing is
/// held per connection.
pub(crate) fn poll_into_buffer<R>(
    socket: &mut ByteStream,
    context: Option<&mut Context<'_>>,
    take: impl FnOnce(&mut [u8]) -> R,
) -> Poll<io::Result<Option<(R, Progress)>>> {
    with_read_buffer(|buffer| {
        let received = socket.poll_receive(context, buffer);
        received.map_ok(|received| {
            let progress = Progress {
                bytes: received,
                is_all: received < READ_BYTES,
            };
            let bytes = buffer.get_mut(..received).unwrap_or_default();
            (received > 0).then(|| (take(bytes), progress))
        })
    })
}

/// A connection that the system ended.
pub(crate) fn failed(peer: SocketAddr, source: io::Error) -> Error {
    Error::io(format!("connection to {peer}"), source)
}
