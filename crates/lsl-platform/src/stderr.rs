//! Standard error without the lock of `std::io::stderr`, which another thread may hold when one forks: the
//! child would wait for ever. Nothing forks on Windows.

use std::io::{self, Write};

/// Unbuffered writer to standard error: every write is one system call.
#[derive(Debug, Clone, Copy, Default)]
pub struct StandardError;

impl Write for StandardError {
    #[cfg(unix)]
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // Asking for the descriptor takes no lock.
        Ok(rustix::io::write(io::stderr(), bytes)?)
    }

    #[cfg(windows)]
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        io::stderr().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
