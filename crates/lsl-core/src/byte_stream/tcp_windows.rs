//! `watched` for Windows. The reactor there cannot take a socket on and let go of it again at will, so
//! that the socket stays with the runtime for good; whether it counts as watched is a note. Never run.
//!
//! The reactor says once that something is there, and then no more until a read through it found nothing.
//! Reads past it leave it thinking that something is there, which costs one read in vain.

use std::io;
use std::net;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use lsl_platform::socket::{receive_nonblocking, send_nonblocking};
use tokio::net::TcpStream;

/// Socket type that a thread would wait for, if it could be interrupted (`lsl_platform::interrupt`).
pub(crate) type Socket = TcpStream;

/// Connected TCP socket with the interface of the Unix version; tokio always watches it.
#[derive(Debug)]
pub(crate) struct ByteStream {
    stream: Arc<TcpStream>,
    is_registered: bool,
}

impl ByteStream {
    /// Not watched until somebody polls.
    #[expect(clippy::unnecessary_wraps, reason = "fails on Unix")]
    pub(crate) fn new(stream: TcpStream) -> io::Result<Self> {
        Ok(Self {
            stream: Arc::new(stream),
            is_registered: false,
        })
    }

    /// To wait for it, never to read.
    pub(crate) fn handle(&self) -> Arc<Socket> {
        Arc::clone(&self.stream)
    }

    pub(crate) fn is_registered(&self) -> bool {
        self.is_registered
    }

    #[expect(clippy::unnecessary_wraps, reason = "fails on Unix")]
    pub(crate) fn register(&mut self) -> io::Result<()> {
        self.is_registered = true;
        Ok(())
    }

    pub(crate) fn unregister(&mut self) {
        self.is_registered = false;
    }

    /// Receives the available bytes; 0 is the end of the stream. If there are none, the task of `context`
    /// is woken when some arrive; without one this only looks.
    pub(crate) fn poll_receive(
        &mut self,
        context: Option<&mut Context<'_>>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let Some(context) = context else {
            return or_pending(receive_nonblocking(&*self.stream, buffer));
        };
        self.is_registered = true;
        loop {
            ready!(self.stream.poll_read_ready(context))?;
            match self.stream.try_read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                other => return Poll::Ready(other),
            }
        }
    }

    /// Sends as many bytes as fit now, and returns their number; `WouldBlock` if none does.
    pub(crate) fn try_send(&self, bytes: &[u8]) -> io::Result<usize> {
        send_nonblocking(&*self.stream, bytes)
    }

    /// Sends as many bytes as fit now. If none does, the task of a registered socket is
    /// woken when there is room.
    pub(crate) fn poll_send(
        &self,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if !self.is_registered {
            return or_pending(self.try_send(bytes));
        }
        loop {
            ready!(self.stream.poll_write_ready(context))?;
            match self.stream.try_write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                other => return Poll::Ready(other),
            }
        }
    }

    /// The socket for somebody else; `None` if it cannot be had.
    pub(crate) fn into_std(self) -> Option<net::TcpStream> {
        Arc::try_unwrap(self.stream).ok()?.into_std().ok()
    }
}

fn or_pending(result: io::Result<usize>) -> Poll<io::Result<usize>> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Poll::Pending,
        other => Poll::Ready(other),
    }
}
