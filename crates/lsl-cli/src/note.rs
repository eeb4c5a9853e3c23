//! Remarks for people, on stderr: stdout is for what was asked for. A closed stderr is no reason to
//! stop (`eprintln!` would panic).

use std::fmt::Display;
use std::io::{self, Write};

/// Writes one line to stderr.
pub(crate) fn note(text: impl Display) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}
