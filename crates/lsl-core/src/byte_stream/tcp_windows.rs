//! TCP on Windows, **never run**. The reactor there cannot take a socket on and let go of it again at
//! will, so that it stays registered for good.
//!
//! The reactor says once that something is there, and then no more until a read through it found nothing.
//! Reads past it leave it thinking that something is there, which costs one read in vain.

use std::io;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use lsl_platform::socket::send_nonblocking;
use tokio::io::Interest;
use tokio::net::TcpStream;

/// Socket type that all handles share.
pub(super) type Socket = TcpStream;

/// A connected socket with the interface of the Unix version.
#[derive(Debug, Clone)]
pub(super) struct Tcp(Arc<Socket>);

#[expect(clippy::unnecessary_wraps, reason = "fails on Unix")]
#[expect(clippy::unused_self, reason = "needed on Unix")]
impl Tcp {
    pub(super) fn new(stream: TcpStream) -> io::Result<Self> {
        Ok(Self(Arc::new(stream)))
    }

    pub(super) fn socket(&self) -> &Arc<Socket> {
        &self.0
    }

    pub(super) fn register(&mut self) -> io::Result<()> {
        Ok(())
    }

    pub(super) fn unregister(&mut self) {}

    /// Receives what is there, and has the task woken if that is nothing.
    pub(super) fn poll_receive(
        &self,
        context: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.0.poll_read_ready(context))?;
            match self.0.try_read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                received => return Poll::Ready(received),
            }
        }
    }

    /// Sends as much as fits. The reactor learns of a full socket.
    pub(super) fn try_send(&self, bytes: &[u8]) -> io::Result<usize> {
        let send = || send_nonblocking(&*self.0, bytes);
        self.0.try_io(Interest::WRITABLE, send)
    }

    pub(super) fn poll_writable(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.poll_write_ready(context)
    }
}
