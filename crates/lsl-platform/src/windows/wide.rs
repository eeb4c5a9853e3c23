//! Paths and texts as the functions of Windows take them.

use std::ffi::OsStr;
use std::io;
use std::os::windows::ffi::OsStrExt;
use std::path::Path;

use crate::remedy::LONGEST_SHORT;

/// Returns a path in UTF-16 with a NUL behind it; a long one in the form that has no limit of length.
///
/// # Errors
/// [`io::ErrorKind::InvalidInput`] for the empty path and for one with a NUL in it.
pub(crate) fn wide_path(path: &Path) -> io::Result<Vec<u16>> {
    let absolute = std::path::absolute(path)?;
    let text = absolute.as_os_str();
    let is_long = text.len() >= LONGEST_SHORT && !text.as_encoded_bytes().starts_with(br"\\");
    let prefix: &str = if is_long { r"\\?\" } else { "" };
    let units: Vec<u16> = OsStr::new(prefix)
        .encode_wide()
        .chain(text.encode_wide())
        .collect();
    if units.contains(&0) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    Ok(units.into_iter().chain([0]).collect())
}

/// Returns a text in UTF-16 with a NUL behind it, and none in it: what comes after one is cut off.
pub(crate) fn wide_text(text: &str) -> Vec<u16> {
    let units = text.encode_utf16().take_while(|unit| *unit != 0);
    units.chain([0]).collect()
}
