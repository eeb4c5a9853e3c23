//! Standard input and output for bytes in large pieces. Those of `std` keep pieces back: output looks for
//! line ends in everything and writes up to the last one, so that each piece goes out in two. And secrets
//! stay in the buffer of its input.

use std::fs::File;
use std::io;
#[cfg(unix)]
use std::os::fd::AsFd;
#[cfg(windows)]
use std::os::windows::io::AsHandle;

/// Opens standard input without a buffer.
///
/// # Errors
/// Standard input is missing, or no descriptor is left.
pub fn input() -> io::Result<File> {
    #[cfg(unix)]
    let owned = io::stdin().as_fd().try_clone_to_owned()?;
    #[cfg(windows)]
    let owned = io::stdin().as_handle().try_clone_to_owned()?;
    Ok(owned.into())
}

/// Opens standard output without a buffer. A console of Windows takes its bytes in its own code page.
///
/// # Errors
/// Standard output is missing, or no descriptor is left.
pub fn output() -> io::Result<File> {
    #[cfg(unix)]
    let owned = io::stdout().as_fd().try_clone_to_owned()?;
    #[cfg(windows)]
    let owned = io::stdout().as_handle().try_clone_to_owned()?;
    Ok(owned.into())
}
