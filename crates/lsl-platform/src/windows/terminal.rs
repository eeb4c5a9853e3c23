//! Hidden input of a line: not on Windows yet.

use std::fs::File;
use std::io::{self, Read};
use std::os::windows::io::AsHandle;

pub use crate::text::printable;

/// Answer of the user to a prompt.
#[derive(Debug, PartialEq, Eq)]
pub enum Typed {
    /// The line, without its end.
    Line(Vec<u8>),
    /// The user cancelled the input.
    Aborted,
}

/// Fails instead of reading visible input.
///
/// # Errors
/// Always `Unsupported`.
pub fn read_hidden(_from: &mut impl Read) -> io::Result<Typed> {
    Err(io::Error::new(
        io::ErrorKind::Unsupported,
        "on Windows a passphrase cannot be typed unseen yet; give it on standard input",
    ))
}

/// Opens standard input without the buffer of [`io::stdin`], in which passphrases would stay.
///
/// # Errors
/// Standard input is missing.
pub fn standard_input() -> io::Result<File> {
    Ok(File::from(io::stdin().as_handle().try_clone_to_owned()?))
}
