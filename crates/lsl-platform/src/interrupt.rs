//! Ending one thread's wait for a socket from another thread, without touching the socket.
//!
//! Shutting the socket down would do it too, but it ends the connection for a forked parent as well,
//! and a wait ends for other reasons than the connection: others took the bytes, somebody else shall
//! wait instead.

use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use crate::fork::Generation;

/// A flag that one thread can wait for together with a socket, see
/// [`wait_readable_or`](crate::poll::wait_readable_or). It stays raised until that thread lowers it,
/// so it does not matter which comes first.
#[derive(Debug)]
pub struct Interrupt {
    /// Becomes readable when the flag is raised.
    read: OwnedFd,
    #[cfg(not(target_os = "linux"))]
    write: OwnedFd,
    generation: Generation,
}

impl Interrupt {
    /// That of the calling thread: made once, one descriptor for as long as the thread lives. A forked
    /// child gets one of its own.
    ///
    /// # Errors
    /// The system has no descriptor left.
    pub fn of_thread() -> io::Result<Arc<Self>> {
        // A thread that is about to end has no place for it any more: then it is made anew.
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
        // Full means raised.
        let _ = rustix::io::write(write, &1_u64.to_ne_bytes());
    }

    /// Lowers the flag; for the thread that waits.
    pub fn lower(&self) {
        let mut count = [0; 64];
        // An eventfd is empty after one read; of a pipe more than this is never waiting in practice,
        // and what is left only wakes once more.
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
