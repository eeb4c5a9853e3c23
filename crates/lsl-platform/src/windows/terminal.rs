//! A line that is typed without being seen: not on Windows yet.

use std::fs::File;
use std::io::{self, Read};
use std::os::windows::io::AsHandle;

pub use crate::text::printable;

/// What the user did at a question.
#[derive(Debug, PartialEq, Eq)]
pub enum Typed {
    /// A line, without its end.
    Line(Vec<u8>),
    /// The user gave up.
    Aborted,
}

/// See the Unix version. It never reads what would be seen.
///
/// # Errors
/// Always `Unsupported`.
pub fn read_hidden(_from: &mut impl Read) -> io::Result<Typed> {
    Err(io::Error::new(
        io::ErrorKind::Unsupported,
        "on Windows a passphrase cannot be typed unseen yet; give it on standard input",
    ))
}

/// Standard input without the buffer of [`io::stdin`], in which passphrases would stay.
///
/// # Errors
/// There is none.
pub fn standard_input() -> io::Result<File> {
    Ok(File::from(io::stdin().as_handle().try_clone_to_owned()?))
}
