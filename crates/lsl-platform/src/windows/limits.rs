//! What a process may use: processors and open files. For programs that measure.

use std::io;

/// Lets this thread run on one processor alone, which is not done on Windows yet.
///
/// # Errors
/// Always `Unsupported`.
pub fn use_one_processor() -> io::Result<usize> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Files and sockets are limited by memory alone: `u64::MAX`.
///
/// # Errors
/// None.
pub fn raise_open_files() -> io::Result<u64> {
    Ok(u64::MAX)
}
