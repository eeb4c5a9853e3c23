//! Substreams in memory, for tests of drivers: two ends, without sockets.

use std::collections::VecDeque;
#[cfg(lsl_loom)]
use std::future::poll_fn;
use std::io;
use std::net::Shutdown;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

#[cfg(lsl_loom)]
use lsl_platform::wait::Woken;

use super::ByteStream;
use super::substream::Substream;
use crate::net::sync::Mutex;
#[cfg(lsl_loom)]
use crate::net::sync::{Interrupt, block_on};

/// One end of a stream in memory.
#[derive(Debug, Clone)]
pub(crate) struct Pipe {
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
    /// Of the task that reads, while the stream is registered.
    reader: Option<Waker>,
}

/// Returns both ends of a new stream.
pub(crate) fn pair() -> (ByteStream, ByteStream) {
    let (near, far) = ends();
    (ByteStream::substream(near), ByteStream::substream(far))
}

/// Returns both ends of a new stream, as substreams of a link.
pub(crate) fn ends() -> (Arc<dyn Substream>, Arc<dyn Substream>) {
    let (there, back) = <(Arc<Mutex<Direction>>, Arc<Mutex<Direction>>)>::default();
    let end = |incoming: &Arc<_>, outgoing: &Arc<_>| -> Arc<dyn Substream> {
        let ends = Ends {
            incoming: Arc::clone(incoming),
            outgoing: Arc::clone(outgoing),
        };
        let ends = Arc::new(ends);
        Arc::new(Pipe { ends })
    };
    (end(&there, &back), end(&back, &there))
}

impl Substream for Pipe {
    fn poll_read(
        &self,
        context: Option<&mut Context<'_>>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let mut direction = self.ends.incoming.lock().unwrap();
        if direction.bytes.is_empty() && !direction.is_closed {
            if let Some(context) = context {
                direction.reader = Some(context.waker().clone());
            }
            return Poll::Pending;
        }
        let length = buffer.len().min(direction.bytes.len());
        for (to, from) in buffer.iter_mut().zip(direction.bytes.drain(..length)) {
            *to = from;
        }
        direction.wake();
        Poll::Ready(Ok(length))
    }

    fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        let mut direction = self.ends.outgoing.lock().unwrap();
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

    fn poll_writable(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut direction = self.ends.outgoing.lock().unwrap();
        if direction.is_closed || direction.bytes.len() < CAPACITY {
            return Poll::Ready(Ok(()));
        }
        direction.wakers.push(context.waker().clone());
        Poll::Pending
    }

    fn shut_down(&self, how: Shutdown) {
        self.ends.shut_down(how);
    }

    #[cfg(lsl_loom)]
    fn pipe(&self) -> &Self {
        self
    }
}

#[cfg(lsl_loom)]
impl Pipe {
    pub(super) fn unregister(&self) {
        self.ends.incoming.lock().unwrap().reader = None;
    }
}

impl Ends {
    fn shut_down(&self, how: Shutdown) {
        if how != Shutdown::Write {
            self.incoming.lock().unwrap().close();
        }
        if how != Shutdown::Read {
            self.outgoing.lock().unwrap().close();
        }
    }
}

impl Drop for Ends {
    fn drop(&mut self) {
        // Nothing can be locked in a model that has failed.
        if !std::thread::panicking() {
            self.shut_down(Shutdown::Both);
        }
    }
}

impl Direction {
    fn close(&mut self) {
        self.is_closed = true;
        self.wake();
    }

    fn wake(&mut self) {
        (self.wakers.drain(..).chain(self.reader.take())).for_each(Waker::wake);
    }
}

/// Waits as a thread does that waits for a socket itself.
#[cfg(lsl_loom)]
impl super::Waiter {
    pub(crate) fn wait_readable_or(&self, interrupt: &Interrupt, _: f64) -> io::Result<Woken> {
        Ok(block_on(poll_fn(|context| {
            let mut direction = self.0.ends.incoming.lock().unwrap();
            if direction.is_closed || !direction.bytes.is_empty() {
                return Poll::Ready(Woken::Readable);
            }
            direction.wakers.push(context.waker().clone());
            drop(direction);
            interrupt.poll(context).map(|()| Woken::Interrupted)
        })))
    }

    pub(crate) fn wait_writable(&self, _: f64) -> bool {
        block_on(poll_fn(|context| self.0.poll_writable(context))).is_ok()
    }
}

/// Bytes that a direction holds.
pub(crate) const CAPACITY: usize = if cfg!(lsl_loom) { 512 } else { 4096 };
