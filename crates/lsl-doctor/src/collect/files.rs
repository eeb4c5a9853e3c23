//! Files of `/proc` and `/sys`, which other systems do not have.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

/// Returns the text of a file, as far as it is not longer than any of these should be.
pub(super) fn text(path: impl AsRef<Path>) -> Option<String> {
    let mut text = Vec::new();
    File::open(path)
        .ok()?
        .take(LONGEST_BYTES)
        .read_to_end(&mut text)
        .ok()?;
    Some(String::from_utf8_lossy(&text).into_owned())
}

const LONGEST_BYTES: u64 = 4 << 20;
