//! Processors and open files that a process may use. For programs that measure.

use std::io;

/// Fails: restricting a thread to one processor is not done on Windows yet.
///
/// # Errors
/// Always `Unsupported`.
pub fn use_one_processor() -> io::Result<usize> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Returns `u64::MAX`: memory alone limits files and sockets.
///
/// # Errors
/// None.
pub fn raise_open_files() -> io::Result<u64> {
    Ok(u64::MAX)
}
