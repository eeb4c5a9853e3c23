//! Ending one thread's wait for a socket from another thread: not on Windows, where only sockets can be
//! waited for together with a socket.
//!
//! Without it no pull waits for a socket itself; the data task reads instead and wakes it. That costs some
//! microseconds and nothing else.

use std::io;
use std::os::windows::io::{AsSocket, BorrowedSocket};
use std::sync::Arc;

/// See the Unix version: a flag that a thread waits for together with a socket. There is none.
#[derive(Debug)]
pub enum Interrupt {}

impl Interrupt {
    /// That of the calling thread.
    ///
    /// # Errors
    /// Always `Unsupported`.
    pub fn of_thread() -> io::Result<Arc<Self>> {
        Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "waits for a socket cannot be interrupted on Windows",
        ))
    }

    /// Raises the flag.
    pub fn raise(&self) {
        match *self {}
    }

    /// Lowers the flag.
    pub fn lower(&self) {
        match *self {}
    }
}

impl AsSocket for Interrupt {
    fn as_socket(&self) -> BorrowedSocket<'_> {
        match *self {}
    }
}
