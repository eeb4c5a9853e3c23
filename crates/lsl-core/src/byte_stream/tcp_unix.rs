//! A connected socket that anybody may read without blocking, and that the reactor watches only while
//! somebody wants that: a registered socket wakes the reactor for every segment, though nobody awaits
//! it. With its twin for Windows the only file that knows how registering works.

use std::io;
use std::net::TcpStream;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use lsl_platform::socket::{receive_nonblocking, send_nonblocking};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Socket type that a waiting thread holds.
pub(crate) type Socket = TcpStream;

/// Connected TCP socket that the reactor watches only on demand.
#[derive(Debug)]
pub(crate) struct ByteStream {
    /// Shared with a thread that waits for it.
    stream: Arc<TcpStream>,
    watch: Option<AsyncFd<Arc<TcpStream>>>,
}

impl ByteStream {
    /// Takes the socket over from tokio; not watched until somebody polls.
    pub(crate) fn new(stream: tokio::net::TcpStream) -> io::Result<Self> {
        Ok(Self {
            stream: Arc::new(stream.into_std()?),
            watch: None,
        })
    }

    /// To wait for it, never to read.
    pub(crate) fn handle(&self) -> Arc<Socket> {
        Arc::clone(&self.stream)
    }

    pub(crate) fn is_registered(&self) -> bool {
        self.watch.is_some()
    }

    /// Registers the socket, so that tasks are woken.
    pub(crate) fn register(&mut self) -> io::Result<&AsyncFd<Arc<TcpStream>>> {
        Ok(match &mut self.watch {
            Some(registered) => registered,
            none => none.insert(registered_socket(&self.stream)?),
        })
    }

    pub(crate) fn unregister(&mut self) {
        self.watch = None;
    }

    /// Takes what is there; 0 is the end of the stream. With a task's context that task is woken when
    /// there is more (in the runtime only); without one this only looks.
    pub(crate) fn poll_receive(
        &mut self,
        context: Option<&mut Context<'_>>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let Some(context) = context else {
            return or_pending(receive_nonblocking(&self.stream, buffer));
        };
        let registered = self.register()?;
        loop {
            let mut ready = ready!(registered.poll_read_ready(context))?;
            match receive_nonblocking(registered.get_ref(), buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => ready.clear_ready(),
                Ok(received) => {
                    // Less than there is room for: that was all, which saves asking once more.
                    if 0 < received && received < buffer.len() {
                        ready.clear_ready();
                    }
                    return Poll::Ready(Ok(received));
                }
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    /// Sends as many bytes as fit now, and returns their number; `WouldBlock` if none does.
    pub(crate) fn try_send(&self, bytes: &[u8]) -> io::Result<usize> {
        send_nonblocking(&self.stream, bytes)
    }

    /// Sends as many bytes as fit now. If none does, the task is woken when there is room, as long as
    /// the socket is watched.
    pub(crate) fn poll_send(
        &self,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let Some(watch) = &self.watch else {
            return or_pending(self.try_send(bytes));
        };
        loop {
            let mut ready = ready!(watch.poll_write_ready(context))?;
            match self.try_send(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => ready.clear_ready(),
                other => return Poll::Ready(other),
            }
        }
    }

    /// The socket for somebody else; `None` if the system has no descriptor for a second one.
    pub(crate) fn into_std(self) -> Option<TcpStream> {
        drop(self.watch);
        match Arc::try_unwrap(self.stream) {
            Ok(stream) => Some(stream),
            // Somebody waits for it this very moment.
            Err(shared) => shared.try_clone().ok(),
        }
    }
}

#[allow(
    deprecated,
    reason = "newer versions of tokio want `unsafe`, because an AsyncFd may be made of anything that \
              gives a descriptor; this one owns its socket, so that it cannot be closed under it"
)]
fn registered_socket(stream: &Arc<TcpStream>) -> io::Result<AsyncFd<Arc<TcpStream>>> {
    AsyncFd::with_interest(Arc::clone(stream), Interest::READABLE | Interest::WRITABLE)
}

fn or_pending(result: io::Result<usize>) -> Poll<io::Result<usize>> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Poll::Pending,
        other => Poll::Ready(other),
    }
}
