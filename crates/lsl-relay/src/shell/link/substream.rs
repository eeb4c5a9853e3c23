//! Handle of one substream of a link, which takes the place of a socket. Spec: relay §4.2.

use std::fmt;
use std::io;
use std::net::Shutdown;
use std::task::{Context, Poll, Waker};

use lsl_core::relay::Substream;

use super::{Link, LinkState, SubstreamEnd};
use crate::mux::{Code, Read};

/// One substream of a link, at this end. Dropping it resets the substream, unless this side has said that it
/// sends no more: then what waits is still sent, and what comes is dropped.
pub(super) struct LinkSubstream {
    link: Link,
    id: u32,
    /// Whether all of it gives way to what is live.
    is_past: bool,
}

impl LinkSubstream {
    pub(super) fn new(link: Link, id: u32, is_past: bool) -> Self {
        Self { link, id, is_past }
    }
}

impl Substream for LinkSubstream {
    fn poll_read(
        &self,
        context: Option<&mut Context<'_>>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        self.link.with(|state, _| {
            let end = state.end(self.id)?;
            if end.is_left || buffer.is_empty() {
                return Poll::Ready(Ok(0));
            }
            match state.mux.read(self.id, buffer) {
                Read::Bytes(count) => Poll::Ready(Ok(count)),
                Read::End => Poll::Ready(Ok(0)),
                Read::Wait => {
                    if let Some(context) = context {
                        state.end(self.id)?.reader = Some(context.waker().clone());
                    }
                    Poll::Pending
                }
            }
        })
    }

    fn set_history(&self, is_history: bool) {
        let is_history = is_history || self.is_past;
        (self.link).with(|state, _| state.mux.set_history(self.id, is_history));
    }

    fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        self.link.with(|state, now| {
            let end = state.end(self.id)?;
            if end.is_finished {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            let taken = state.mux.write(self.id, bytes, now);
            state.end(self.id)?.is_full = taken < bytes.len();
            if taken == 0 && !bytes.is_empty() {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            Ok(taken)
        })
    }

    fn poll_writable(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.link.with(|state, _| {
            let end = state.end(self.id)?;
            if !end.is_full {
                return Poll::Ready(Ok(()));
            }
            end.writer = Some(context.waker().clone());
            Poll::Pending
        })
    }

    fn shut_down(&self, how: Shutdown) {
        let woken = self.link.with(|state, _| {
            let mut woken = [None, None];
            if let Some(end) = state.ends.get_mut(&self.id) {
                if how != Shutdown::Read {
                    end.is_finished = true;
                    // A write fails now, which its task may wait to try.
                    end.is_full = false;
                    woken[1] = end.writer.take();
                    state.mux.finish(self.id);
                }
                if how != Shutdown::Write
                    && let Some(end) = state.ends.get_mut(&self.id)
                {
                    end.is_left = true;
                    woken[0] = end.reader.take();
                    state.drop_unread(self.id);
                }
            }
            woken
        });
        woken.into_iter().flatten().for_each(Waker::wake);
    }
}

impl LinkState {
    /// Returns the handle's side of a substream.
    fn end(&mut self, id: u32) -> io::Result<&mut SubstreamEnd> {
        let end = self.ends.get_mut(&id).ok_or(io::ErrorKind::NotConnected)?;
        match end.failure {
            Some(kind) => Err(kind.into()),
            None => Ok(end),
        }
    }
}

impl Drop for LinkSubstream {
    fn drop(&mut self) {
        self.link.with(|state, _| {
            let Some(end) = state.ends.get_mut(&self.id) else {
                return;
            };
            if end.is_finished && end.failure.is_none() {
                (end.is_left, end.is_dropped) = (true, true);
                state.drop_unread(self.id);
            } else {
                state.ends.remove(&self.id);
                state.mux.reset(self.id, Code::DONE, "");
            }
        });
    }
}

impl fmt::Debug for LinkSubstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LinkSubstream").field(&self.id).finish()
    }
}
