//! Standard input and output for bytes in large pieces. Those of `std` keep pieces back: output looks for
//! line ends in everything and writes up to the last one, so that each piece goes out in two.

use std::io::{self, Read, Write};

/// Standard input.
#[cfg(unix)]
pub fn input() -> io::Result<impl Read> {
    duplicate(io::stdin())
}

/// Standard output.
#[cfg(unix)]
pub fn output() -> io::Result<impl Write> {
    duplicate(io::stdout())
}

#[cfg(unix)]
fn duplicate(stream: impl std::os::fd::AsFd) -> io::Result<std::fs::File> {
    Ok(stream.as_fd().try_clone_to_owned()?.into())
}

/// Standard input.
#[cfg(not(unix))]
pub fn input() -> io::Result<impl Read> {
    Ok(io::stdin())
}

/// Standard output.
#[cfg(not(unix))]
pub fn output() -> io::Result<impl Write> {
    Ok(io::stdout())
}
