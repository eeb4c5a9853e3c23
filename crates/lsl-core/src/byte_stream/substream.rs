//! Substreams of a link between relays, as their multiplexer gives them. Spec: relay §4.

use std::fmt;
use std::io;
use std::net::Shutdown;
use std::sync::Arc;
use std::task::{Context, Poll};

/// Substream of a link between relays: bytes in both directions, inside an authenticated stream. Any thread may call
/// it, with locks held; nothing here blocks or calls back. Whoever drops the last handle ends both directions.
pub trait Substream: fmt::Debug + Send + Sync + 'static {
    /// Reads what is there; 0 is the end. With a context its task is woken when there is more.
    ///
    /// # Errors
    /// Those of a connection that broke, if the peer has reset the substream or the link is down.
    fn poll_read(
        &self,
        context: Option<&mut Context<'_>>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>>;

    /// Writes as much as there is room for, and returns the number of bytes.
    ///
    /// # Errors
    /// `WouldBlock` if there is no room; others once this direction is over.
    fn try_write(&self, bytes: &[u8]) -> io::Result<usize>;

    /// Waits until there may be room again, or this direction is over. One task at a time waits.
    ///
    /// # Errors
    /// Those of [`try_write`](Self::try_write) are told there.
    fn poll_writable(&self, context: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Notes whether what is written from now on gives way to what is live. Spec: relay §4.2.
    fn set_history(&self, _is_history: bool) {}

    /// Ends a direction, or both; a task that awaits the substream is woken.
    fn shut_down(&self, how: Shutdown);

    /// Returns the pipe that models are made of.
    #[cfg(lsl_loom)]
    fn pipe(&self) -> &super::pipe::Pipe;
}

/// Link between relays that opens substreams.
pub trait OpenSubstream: fmt::Debug + Send + Sync + 'static {
    /// Opens a substream with a complete request, as at the relay's port. Never blocks.
    ///
    /// # Errors
    /// Why there can be no substream: the link is down, or has as many as its peer allows.
    fn open(&self, request: Vec<u8>) -> io::Result<Arc<dyn Substream>>;
}
