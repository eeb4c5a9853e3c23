//! Standard input and output for bytes in large pieces. Those of `std` keep pieces back: output looks for
//! line ends in everything and writes up to the last one, so that each piece goes out in two.

use std::io::{self, Read, Write};

/// Opens standard input without a buffer.
#[cfg(unix)]
pub fn input() -> io::Result<impl Read> {
    duplicate(io::stdin())
}

/// Opens standard output without a buffer.
#[cfg(unix)]
pub fn output() -> io::Result<impl Write> {
    duplicate(io::stdout())
}

#[cfg(unix)]
fn duplicate(stream: impl std::os::fd::AsFd) -> io::Result<std::fs::File> {
    Ok(stream.as_fd().try_clone_to_owned()?.into())
}

/// Opens standard input with its buffer.
#[cfg(not(unix))]
pub fn input() -> io::Result<impl Read> {
    Ok(io::stdin())
}

/// Opens standard output with its buffer.
#[cfg(not(unix))]
pub fn output() -> io::Result<impl Write> {
    Ok(io::stdout())
}
