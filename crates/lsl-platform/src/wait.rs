//! Waits of one thread for a socket, which other threads can end without touching the socket.
//!
//! Shutting the socket down would also end the connection of a forked parent. And a wait may end although
//! the connection lasts: another thread took the bytes, or shall wait instead.

use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags};

use crate::fork::Generation;
use crate::readiness::wait_any;
pub use crate::readiness::{wait_readable, wait_writable};
use crate::reentry::interruptible;

/// Flag that one thread can wait for together with a socket, see [`wait_readable_or`]. It stays raised until
/// that thread lowers it, so raising may precede waiting.
#[derive(Debug)]
pub struct Interrupt {
    /// Readable while the flag is raised.
    read: OwnedFd,
    #[cfg(not(target_os = "linux"))]
    write: OwnedFd,
    generation: Generation,
}

impl Interrupt {
    /// Returns the flag of the calling thread, created once. It holds one descriptor for as long as the
    /// thread lives. A forked child gets one of its own.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn of_thread() -> io::Result<Arc<Self>> {
        // The thread-local of an ending thread is gone: then a new flag is made.
        let own = OWN.try_with(Cell::take).ok().flatten();
        let own = match own {
            Some(own) if own.generation.is_current() => own,
            _ => Arc::new(Self::new()?),
        };
        let _ = OWN.try_with(|kept| kept.set(Some(Arc::clone(&own))));
        Ok(own)
    }

    #[cfg(target_os = "linux")]
    fn new() -> io::Result<Self> {
        use rustix::event::{EventfdFlags, eventfd};

        Ok(Self {
            read: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            generation: Generation::current(),
        })
    }

    #[cfg(not(target_os = "linux"))]
    fn new() -> io::Result<Self> {
        let (read, write) = std::os::unix::net::UnixStream::pair()?;
        read.set_nonblocking(true)?;
        write.set_nonblocking(true)?;
        Ok(Self {
            read: read.into(),
            write: write.into(),
            generation: Generation::current(),
        })
    }

    /// Raises the flag, from any thread. Does nothing in a forked child of the process that made it.
    pub fn raise(&self) {
        if !self.generation.is_current() {
            return;
        }
        #[cfg(target_os = "linux")]
        let write = &self.read;
        #[cfg(not(target_os = "linux"))]
        let write = &self.write;
        // A full descriptor is raised already.
        let _ = rustix::io::write(write, &1_u64.to_ne_bytes());
    }

    /// Lowers the flag. Only the waiting thread may do so.
    pub fn lower(&self) {
        let mut count = [0; 64];
        // One read empties an eventfd. In practice a socket never holds more than this, and a rest only
        // wakes once more.
        let _ = rustix::io::read(&self.read, &mut count);
    }
}

thread_local! {
    static OWN: Cell<Option<Arc<Interrupt>>> = const { Cell::new(None) };
}

/// Reason why a wait for a socket and a flag ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Woken {
    /// Reading from the socket would not block.
    Readable,
    /// Only the flag is raised.
    Interrupted,
    /// The deadline passed before either.
    Late,
}

/// Waits as [`wait_readable`] does, until `fd` is readable or the flag is raised. Signal handlers may push
/// meanwhile, so the caller must hold no lock.
///
/// # Errors
/// As [`wait_readable`].
pub fn wait_readable_or(fd: impl AsFd, interrupt: &Interrupt, deadline: f64) -> io::Result<Woken> {
    let mut both = [
        PollFd::from_borrowed_fd(fd.as_fd(), PollFlags::IN),
        PollFd::from_borrowed_fd(interrupt.read.as_fd(), PollFlags::IN),
    ];
    Ok(if !interruptible(|| wait_any(&mut both, deadline))? {
        Woken::Late
    } else if both[0].revents().is_empty() {
        Woken::Interrupted
    } else {
        Woken::Readable
    })
}

#[cfg(test)]
mod tests;
