//! Ending one thread's wait for a socket from another thread: not on Windows, where a wait for a socket
//! accepts nothing but sockets.
//!
//! So no pull waits for a socket itself: the data task reads instead and wakes it, which costs some
//! microseconds.

use std::io;
use std::os::windows::io::{AsSocket, BorrowedSocket};
use std::sync::Arc;

/// Flag that a thread waits for together with a socket. It has no value on Windows.
#[derive(Debug)]
pub enum Interrupt {}

impl Interrupt {
    /// Fails; on Unix it returns the flag of the calling thread.
    ///
    /// # Errors
    /// Always `Unsupported`.
    pub fn of_thread() -> io::Result<Arc<Self>> {
        Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "waits for a socket cannot be interrupted on Windows",
        ))
    }

    /// Is never called: the type has no value.
    pub fn raise(&self) {
        match *self {}
    }

    /// Is never called: the type has no value.
    pub fn lower(&self) {
        match *self {}
    }
}

impl AsSocket for Interrupt {
    fn as_socket(&self) -> BorrowedSocket<'_> {
        match *self {}
    }
}
