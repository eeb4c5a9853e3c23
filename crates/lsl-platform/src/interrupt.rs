//! Ending one thread's wait for a socket from another thread, without touching the socket.
//!
//! Shutting the socket down would also end the connection of a forked parent. And a wait may end although
//! the connection lasts: another thread took the bytes, or shall wait instead.

use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use crate::fork::Generation;

/// Flag that one thread can wait for together with a socket, see
/// [`wait_readable_or`](crate::poll::wait_readable_or). It stays raised until that thread lowers it, so
/// raising may precede waiting.
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

impl AsFd for Interrupt {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.read.as_fd()
    }
}

thread_local! {
    static OWN: Cell<Option<Arc<Interrupt>>> = const { Cell::new(None) };
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::clock::local_clock;
    use crate::poll::{Woken, wait_readable_or};

    #[test]
    fn a_raised_flag_ends_a_wait_before_and_during_it_and_once() {
        let (_near, far) = UnixStream::pair().unwrap();
        let own = Interrupt::of_thread().unwrap();
        assert!(Arc::ptr_eq(&own, &Interrupt::of_thread().unwrap()));
        own.raise();
        own.raise();
        let woken = wait_readable_or(&far, &*own, f64::INFINITY).unwrap();
        assert_eq!(woken, Woken::Interrupted);
        own.lower();
        let woken = wait_readable_or(&far, &*own, local_clock() + 0.002).unwrap();
        assert_eq!(woken, Woken::Late);
        let other = Arc::clone(&own);
        let raising = std::thread::spawn(move || {
            assert!(!Arc::ptr_eq(&other, &Interrupt::of_thread().unwrap()));
            other.raise();
        });
        let woken = wait_readable_or(&far, &*own, f64::INFINITY).unwrap();
        assert_eq!(woken, Woken::Interrupted);
        raising.join().unwrap();
        own.lower();
    }

    #[test]
    fn data_comes_before_a_flag() {
        let (mut near, far) = UnixStream::pair().unwrap();
        let own = Interrupt::of_thread().unwrap();
        near.write_all(b"x").unwrap();
        own.raise();
        let woken = wait_readable_or(&far, &*own, f64::INFINITY).unwrap();
        assert_eq!(woken, Woken::Readable);
        own.lower();
    }
}
