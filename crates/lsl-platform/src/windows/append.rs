//! Files that only grow and belong to one user: not on Windows yet, where who may change a file lies in its
//! access control list, which nothing here reads. So there is no audit file and no list of streams that
//! were encrypted before.

use std::convert::Infallible;
use std::fs::File;
use std::io;
use std::marker::PhantomData;
use std::path::Path;

use crate::files::unchecked;

/// See the Unix version.
///
/// # Errors
/// Always `Unsupported`.
pub fn open(_path: &Path) -> io::Result<File> {
    Err(unchecked())
}

/// The lock of a file. There is none.
#[derive(Debug)]
pub struct Locked<'a>(Infallible, PhantomData<&'a File>);

/// As on Unix: whoever drops one means something by it.
impl Drop for Locked<'_> {
    fn drop(&mut self) {
        match self.0 {}
    }
}

/// See the Unix version.
///
/// # Errors
/// Always `Unsupported`.
pub fn lock(_file: &File) -> io::Result<Locked<'_>> {
    Err(unchecked())
}

/// See the Unix version.
///
/// # Errors
/// Always `Unsupported`.
pub fn still_names(_path: &Path, _file: &File) -> io::Result<Option<u64>> {
    Err(unchecked())
}
