//! Whose files these are and who may read or change them: not on Windows yet.
//!
//! LSS/1 §3.3 wants access control lists there that allow the owner and SYSTEM alone. As long as nothing
//! reads and sets such lists, nobody can say who may read a key or change a trust file, so that everything
//! that needs to know is refused: without encryption there is no harm, with a key that everybody reads
//! there is.

use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::path::Path;
use std::time::Duration;

/// See the Unix version; never made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Access {
    /// The owner.
    pub owner: u32,
    /// The permissions.
    pub mode: u32,
    /// Who runs this program.
    pub user: u32,
}

impl Access {
    /// # Errors
    /// Always `Unsupported`.
    pub fn of(_metadata: &Metadata) -> io::Result<Self> {
        Err(unchecked())
    }
}

/// See the Unix version; never made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Version {
    /// When it was written, since 1970.
    pub modified: Duration,
    /// When anything of it changed, since 1970.
    pub changed: Duration,
}

impl Version {
    /// # Errors
    /// Always `Unsupported`: what std tells of a file here does not identify it.
    pub fn of(_metadata: &Metadata) -> io::Result<Self> {
        Err(unchecked())
    }
}

/// Whether both are the same file.
///
/// # Errors
/// Always `Unsupported`.
pub fn is_same(_one: &Metadata, _other: &Metadata) -> io::Result<bool> {
    Err(unchecked())
}

/// Never, as far as anybody knows.
pub fn is_group_private(_metadata: &Metadata) -> bool {
    false
}

/// Makes a new file for writing, which never replaces another one.
///
/// # Errors
/// `Unsupported` for a file that others must not read; else those of the system.
pub fn create_new(path: &Path, mode: u32) -> io::Result<File> {
    if mode & OTHERS == 0 {
        return Err(unchecked());
    }
    OpenOptions::new().write(true).create_new(true).open(path)
}

/// Makes a new directory.
///
/// # Errors
/// `Unsupported` for one that others must not enter; else those of the system.
pub fn create_directory(path: &Path, mode: u32) -> io::Result<()> {
    if mode & OTHERS == 0 {
        return Err(unchecked());
    }
    std::fs::create_dir(path)
}

/// See the Unix version.
///
/// # Errors
/// Always `Unsupported`.
pub fn make_alike(_file: &File, _model: &Metadata) -> io::Result<()> {
    Err(unchecked())
}

/// See the Unix version.
///
/// # Errors
/// `Unsupported`, unless nobody is named.
pub fn give(_path: &Path, owner: Option<u32>) -> io::Result<()> {
    match owner {
        None => Ok(()),
        Some(_) => Err(unchecked()),
    }
}

/// The permissions of everybody but the owner.
const OTHERS: u32 = 0o077;

/// What is missing.
pub(crate) fn unchecked() -> io::Error {
    io::Error::new(
        io::ErrorKind::Unsupported,
        "on Windows lsl cannot see yet who may read or change a file, so that it cannot keep keys and \
         trust there",
    )
}
