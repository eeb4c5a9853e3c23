//! One TCP connection of an outlet or inlet. Today the bytes go through as they are; the secure
//! session will sit here, so nobody else touches the stream of a data connection.

use std::io;
use std::net::SocketAddr;

use lsl_platform::poll::wait_writable;
use lsl_platform::socket::send_nonblocking;
use tokio::net::TcpStream;
use tokio::sync::Notify;

use crate::session::fanout::Wire;

/// A connection and the means to wake the task that serves it.
#[derive(Debug)]
pub(crate) struct Link {
    stream: TcpStream,
    peer: SocketAddr,
    work: Notify,
}

impl Link {
    pub(crate) fn new(stream: TcpStream, peer: SocketAddr) -> Self {
        Self {
            stream,
            peer,
            work: Notify::new(),
        }
    }

    pub(crate) fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Sends all of `bytes`, waiting in the runtime.
    pub(crate) async fn send(&self, bytes: &[u8]) -> io::Result<()> {
        send_all(&self.stream, bytes).await
    }

    /// Sends all of `bytes` on the calling thread, waiting for room until `deadline`
    /// (`local_clock`). A deadline that passes leaves the stream out of frame: close it.
    pub(crate) fn send_blocking(&self, mut bytes: &[u8], deadline: f64) -> io::Result<()> {
        while !bytes.is_empty() {
            match send_nonblocking(&self.stream, bytes) {
                Ok(sent) => bytes = &bytes[sent..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if !wait_writable(&self.stream, deadline)? {
                        return Err(io::ErrorKind::TimedOut.into());
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Reads at least one byte; 0 at the end of the stream.
    pub(crate) async fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            self.stream.readable().await?;
            match self.stream.try_read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                other => return other,
            }
        }
    }

    /// Waits until the peer has closed its side. What it sends before is discarded, up to a limit:
    /// no peer has anything to say after its request.
    pub(crate) async fn closed_by_peer(&self) -> io::Result<()> {
        let mut discarded = [0; 256];
        let mut total = 0;
        while total < MAX_CHATTER_BYTES {
            match self.receive(&mut discarded).await? {
                0 => return Ok(()),
                received => total += received,
            }
        }
        Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "the peer keeps sending",
        ))
    }

    /// Waits until somebody calls `wake`.
    pub(crate) async fn woken(&self) {
        self.work.notified().await;
    }

    /// Ends both directions at once; a task or thread that waits on the socket returns.
    pub(crate) fn shut_down(&self) {
        // Failing means that the peer was faster.
        let _ = socket2::SockRef::from(&self.stream).shutdown(std::net::Shutdown::Both);
    }

    /// Says that nothing more will be sent, after what was.
    pub(crate) fn finish_sending(&self) {
        let _ = socket2::SockRef::from(&self.stream).shutdown(std::net::Shutdown::Write);
    }
}

impl Wire for std::sync::Arc<Link> {
    fn try_send(&self, bytes: &[u8]) -> io::Result<usize> {
        send_nonblocking(&self.stream, bytes)
    }

    fn wake(&self) {
        self.work.notify_one();
    }
}

/// Sends all of `bytes`, waiting in the runtime.
pub(crate) async fn send_all(stream: &TcpStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        stream.writable().await?;
        match stream.try_write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(sent) => bytes = &bytes[sent..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Bytes that a peer may send after its request.
const MAX_CHATTER_BYTES: usize = 64 * 1024;
