//! TCP on Unix: a socket that is registered with the reactor on demand.

use std::io;
use std::net::TcpStream;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use lsl_platform::socket::{receive_nonblocking, send_nonblocking};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Socket type that all handles share.
pub(super) type Socket = TcpStream;

/// A connected socket, and its registration with the reactor.
#[derive(Debug, Clone)]
pub(super) struct Tcp {
    socket: Arc<Socket>,
    reactor: Option<Arc<AsyncFd<Arc<Socket>>>>,
}

impl Tcp {
    pub(super) fn new(stream: tokio::net::TcpStream) -> io::Result<Self> {
        Ok(Self {
            socket: Arc::new(stream.into_std()?),
            reactor: None,
        })
    }

    #[inline]
    pub(super) fn socket(&self) -> &Arc<Socket> {
        &self.socket
    }

    #[allow(
        deprecated,
        reason = "newer versions of tokio want `unsafe`, because an AsyncFd may be made of anything that \
                  gives a descriptor; this one owns its socket, so that it cannot be closed under it"
    )]
    pub(super) fn register(&mut self) -> io::Result<()> {
        let both = Interest::READABLE | Interest::WRITABLE;
        let registered = AsyncFd::with_interest(Arc::clone(&self.socket), both)?;
        self.reactor = Some(Arc::new(registered));
        Ok(())
    }

    pub(super) fn unregister(&mut self) {
        self.reactor = None;
    }

    /// Receives what is there, and has the task woken if that is nothing.
    pub(super) fn poll_receive(
        &self,
        context: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let Some(reactor) = &self.reactor else {
            return Poll::Pending;
        };
        loop {
            let mut ready = ready!(reactor.poll_read_ready(context))?;
            match receive_nonblocking(&*self.socket, buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => ready.clear_ready(),
                received => {
                    // Less than there is room for: that was all, which saves asking once more.
                    if matches!(received, Ok(length) if 0 < length && length < buffer.len()) {
                        ready.clear_ready();
                    }
                    return Poll::Ready(received);
                }
            }
        }
    }

    /// Sends as much as fits. The reactor learns of a full socket.
    pub(super) fn try_send(&self, bytes: &[u8]) -> io::Result<usize> {
        let send = |socket: &Arc<Socket>| send_nonblocking(&**socket, bytes);
        match &self.reactor {
            Some(reactor) => reactor.try_io(Interest::WRITABLE, send),
            None => send(&self.socket),
        }
    }

    pub(super) fn poll_writable(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &self.reactor {
            Some(reactor) => {
                ready!(reactor.poll_write_ready(context))?.retain_ready();
                Poll::Ready(Ok(()))
            }
            None => Poll::Pending,
        }
    }
}
