//! Connections that an inlet makes, plain or through a secure session: the one place where what is
//! read and sent may be encrypted. Whether it must be is decided in `handshake`; what the bytes mean,
//! elsewhere. Spec: lsl-protocol §6, LSS/1 §2.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::TcpStream;

#[cfg(feature = "secure")]
use crate::net::inlet_tunnel::Tunnel;
use crate::net::link::send_all;
use crate::net::sockets;
use crate::{Error, Result};

/// An open connection with an outlet whose request is on its way.
#[derive(Debug)]
pub(crate) struct Dialled {
    peer: SocketAddr,
    way: Way,
}

#[derive(Debug)]
enum Way {
    Plain(TcpStream),
    #[cfg(feature = "secure")]
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
        let way = Way::Plain(stream);
        Ok(Self { peer, way })
    }

    /// A connection whose handshake is done and whose request was sent with it.
    #[cfg(feature = "secure")]
    pub(crate) fn secure(peer: SocketAddr, tunnel: Tunnel) -> Self {
        let way = Way::Secure(Box::new(tunnel));
        Self { peer, way }
    }

    /// The session, if this connection is encrypted.
    #[cfg(feature = "secure")]
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
        let peer = self.peer;
        match &mut self.way {
            Way::Plain(stream) => {
                let reading = poll_fn(|context| {
                    poll_into_buffer(stream, context, |bytes| take(bytes)).map(
                        |result| match result {
                            Ok(None) => Ok(Batch::End),
                            Ok(Some(taken)) => taken.map(|()| Batch::Some),
                            Err(source) => Err(failed(peer, source)),
                        },
                    )
                });
                reading.await
            }
            #[cfg(feature = "secure")]
            Way::Secure(tunnel) => tunnel.read(take).await,
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

/// Reads what is there and hands it on; `None` at the end. The buffer belongs to the thread: between
/// reads nothing is held per connection.
pub(crate) fn poll_into_buffer<R>(
    stream: &mut TcpStream,
    context: &mut Context<'_>,
    take: impl FnOnce(&mut [u8]) -> R,
) -> Poll<io::Result<Option<R>>> {
    BUFFER.with_borrow_mut(|buffer| {
        buffer.resize(READ_BYTES, 0);
        let received = ready!(poll_receive(stream, context, buffer))?;
        if received == 0 {
            return Poll::Ready(Ok(None));
        }
        let bytes = buffer.get_mut(..received).unwrap_or_default();
        Poll::Ready(Ok(Some(take(bytes))))
    })
}

/// Reads into `buffer` and says how much; `Ready(0)` is the end of the stream.
///
/// Goes through the stream's own `poll_read` because that one knows that a short read emptied the
/// socket, and so saves a system call per wake-up.
fn poll_receive(
    stream: &mut TcpStream,
    context: &mut Context<'_>,
    buffer: &mut [u8],
) -> Poll<io::Result<usize>> {
    let mut buffer = ReadBuf::new(buffer);
    ready!(Pin::new(stream).poll_read(context, &mut buffer))?;
    Poll::Ready(Ok(buffer.filled().len()))
}

/// A connection that the system ended.
pub(crate) fn failed(peer: SocketAddr, source: io::Error) -> Error {
    Error::io(format!("connection to {peer}"), source)
}

thread_local! {
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Bytes read at a time.
const READ_BYTES: usize = 64 * 1024;
