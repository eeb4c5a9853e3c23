//! A stream in memory, for tests of drivers: two ends, without sockets.

use std::collections::VecDeque;
use std::io;
use std::net::{Ipv4Addr, Shutdown, SocketAddr};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use super::{ByteStream, Carrier};
use crate::net::monitor::lock_ignoring_poison;

/// One end of a stream in memory.
#[derive(Debug, Clone)]
pub(super) struct Pipe {
    ends: Arc<Ends>,
}

#[derive(Debug)]
struct Ends {
    incoming: Arc<Mutex<Direction>>,
    outgoing: Arc<Mutex<Direction>>,
}

#[derive(Debug, Default)]
struct Direction {
    bytes: VecDeque<u8>,
    is_closed: bool,
    wakers: Vec<Waker>,
}

/// Returns both ends of a new stream.
pub(crate) fn pair() -> (ByteStream, ByteStream) {
    let (there, back) = <(Arc<Mutex<Direction>>, Arc<Mutex<Direction>>)>::default();
    let end = |incoming: &Arc<_>, outgoing: &Arc<_>| {
        let ends = Ends {
            incoming: Arc::clone(incoming),
            outgoing: Arc::clone(outgoing),
        };
        let ends = Arc::new(ends);
        ByteStream::new(Carrier::Pipe(Pipe { ends }))
    };
    (end(&there, &back), end(&back, &there))
}

impl Pipe {
    pub(super) fn poll_read(
        &self,
        context: Option<&mut Context<'_>>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let mut direction = lock_ignoring_poison(&self.ends.incoming);
        if direction.bytes.is_empty() && !direction.is_closed {
            return direction.pending(context);
        }
        let length = buffer.len().min(direction.bytes.len());
        for (to, from) in buffer.iter_mut().zip(direction.bytes.drain(..length)) {
            *to = from;
        }
        direction.wake();
        Poll::Ready(Ok(length))
    }

    pub(super) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        let mut direction = lock_ignoring_poison(&self.ends.outgoing);
        if direction.is_closed {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let taken = bytes.len().min(CAPACITY - direction.bytes.len());
        if taken == 0 && !bytes.is_empty() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        direction.bytes.extend(&bytes[..taken]);
        direction.wake();
        Ok(taken)
    }

    pub(super) fn poll_writable(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut direction = lock_ignoring_poison(&self.ends.outgoing);
        if direction.is_closed || direction.bytes.len() < CAPACITY {
            return Poll::Ready(Ok(()));
        }
        direction.pending(Some(context))
    }

    pub(super) fn shut_down(&self, how: Shutdown) {
        self.ends.shut_down(how);
    }
}

impl Ends {
    fn shut_down(&self, how: Shutdown) {
        if how != Shutdown::Write {
            lock_ignoring_poison(&self.incoming).close();
        }
        if how != Shutdown::Read {
            lock_ignoring_poison(&self.outgoing).close();
        }
    }
}

impl Drop for Ends {
    fn drop(&mut self) {
        self.shut_down(Shutdown::Both);
    }
}

impl Direction {
    fn close(&mut self) {
        self.is_closed = true;
        self.wake();
    }

    fn wake(&mut self) {
        self.wakers.drain(..).for_each(Waker::wake);
    }

    fn pending<R>(&mut self, context: Option<&mut Context<'_>>) -> Poll<R> {
        let waker = context.map(|context| context.waker().clone());
        self.wakers.extend(waker);
        Poll::Pending
    }
}

/// Address that both ends have.
pub(super) const ADDRESS: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// Bytes that a direction holds.
const CAPACITY: usize = 4096;
