//! Append-only files of one user: not on Windows yet. Access is controlled by access control lists there,
//! which nothing here reads. So there is no audit file and no list of streams that were encrypted before.

use std::convert::Infallible;
use std::fs::File;
use std::io;
use std::marker::PhantomData;
use std::path::Path;

use crate::files::unchecked;

/// Fails; see the Unix version.
///
/// # Errors
/// Always `Unsupported`.
pub fn open(_path: &Path) -> io::Result<File> {
    Err(unchecked())
}

/// Lock of a file. It has no value.
#[derive(Debug)]
pub struct Locked<'a>(Infallible, PhantomData<&'a File>);

/// Exists so that callers may drop a lock explicitly, as on Unix.
impl Drop for Locked<'_> {
    fn drop(&mut self) {
        match self.0 {}
    }
}

/// Fails; see the Unix version.
///
/// # Errors
/// Always `Unsupported`.
pub fn lock(_file: &File) -> io::Result<Locked<'_>> {
    Err(unchecked())
}

/// Fails; see the Unix version.
///
/// # Errors
/// Always `Unsupported`.
pub fn still_names(_path: &Path, _file: &File) -> io::Result<Option<u64>> {
    Err(unchecked())
}
