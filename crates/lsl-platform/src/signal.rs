//! A descriptor that a caller's event loop can wait for: raised by one thread, cleared by another.

use std::ffi::c_void;
use std::ptr;

pub use system::Signal;

/// Whether a signal is a descriptor. On Windows it is an event.
pub const IS_DESCRIPTOR: bool = true;

impl Signal {
    /// Returns NULL: see [`IS_DESCRIPTOR`].
    pub fn handle(&self) -> *mut c_void {
        ptr::null_mut()
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
mod system {
    use std::io;
    use std::os::fd::{AsRawFd as _, OwnedFd};

    use rustix::event::{EventfdFlags, eventfd};
    use rustix::io::{read, write};

    /// A counter in the kernel (eventfd), readable while it is not 0.
    #[derive(Debug)]
    pub struct Signal(OwnedFd);

    impl Signal {
        /// Creates a signal that is not raised.
        ///
        /// # Errors
        /// The system has no descriptor left; `Unsupported` where `poll` takes no such thing.
        pub fn new() -> io::Result<Self> {
            Ok(Self(eventfd(
                0,
                EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC,
            )?))
        }

        /// Returns the descriptor for `poll` and its like: readable while the signal is raised.
        #[inline]
        pub fn descriptor(&self) -> i32 {
            self.0.as_raw_fd()
        }

        /// Raises the signal, from any thread.
        #[inline]
        pub fn raise(&self) {
            // An error means that the counter is full, hence readable.
            let _ = write(&self.0, &1_u64.to_ne_bytes());
        }

        /// Lowers the signal until it is raised again.
        #[inline]
        pub fn clear(&self) {
            // An error means that it is 0 already.
            let _ = read(&self.0, &mut [0_u8; 8]);
        }
    }
}

#[cfg(all(unix, not(any(target_os = "linux", target_os = "android"))))]
mod system {
    use std::io::{self, Read as _, Write as _};
    use std::os::fd::AsRawFd as _;
    use std::os::unix::net::UnixStream;

    /// A pair of sockets: a byte written to `kept` makes `given` readable.
    #[derive(Debug)]
    pub struct Signal {
        given: UnixStream,
        kept: UnixStream,
    }

    impl Signal {
        /// Creates a signal that is not raised.
        ///
        /// # Errors
        /// The system has no descriptor left.
        pub fn new() -> io::Result<Self> {
            let (given, kept) = UnixStream::pair()?;
            given.set_nonblocking(true)?;
            kept.set_nonblocking(true)?;
            Ok(Self { given, kept })
        }

        /// Returns the descriptor for `poll` and its like: readable while the signal is raised.
        pub fn descriptor(&self) -> i32 {
            self.given.as_raw_fd()
        }

        /// Raises the signal, from any thread.
        pub fn raise(&self) {
            // An error means that it is full, hence readable.
            let _ = (&self.kept).write(&[1]);
        }

        /// Lowers the signal until it is raised again.
        pub fn clear(&self) {
            let mut bytes = [0; 256];
            while matches!((&self.given).read(&mut bytes), Ok(read) if read > 0) {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::BorrowedFd;

    use super::*;
    use crate::wait::wait_readable;

    #[test]
    #[expect(unsafe_code, reason = "what C programs get is a number")]
    fn readable_from_raising_to_clearing() {
        let signal = Signal::new().unwrap();
        // SAFETY: `signal` outlives it.
        let descriptor = unsafe { BorrowedFd::borrow_raw(signal.descriptor()) };
        assert!(!wait_readable(descriptor, 0.0).unwrap());
        signal.raise();
        signal.raise();
        assert!(wait_readable(descriptor, f64::INFINITY).unwrap());
        signal.clear();
        assert!(!wait_readable(descriptor, 0.0).unwrap());
    }
}
