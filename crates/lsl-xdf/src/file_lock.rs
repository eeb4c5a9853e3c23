//! Lock on a file that is recorded into. Every program that replaces, removes or shortens a file takes it
//! first, so that no recorder goes on writing into a file that is gone. It vanishes with the program that
//! holds it, however that ends.
//!
//! Some file systems have none: there all files count as free.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;

use lsl_platform::disk;
#[cfg(feature = "age")]
pub(crate) use lsl_platform::disk::is_still;
pub(crate) use lsl_platform::disk::unlock as release;

/// Creates a file for reading and writing that is to be locked.
///
/// # Errors
/// Those of the system.
pub(crate) fn create_new(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    disk::open(path, options.read(true).write(true).create_new(true))
}

/// Opens a file for reading and writing and locks it.
///
/// # Errors
/// Those of the system; [`io::ErrorKind::ResourceBusy`] if another handle has it locked.
pub(crate) fn open_to_write(path: &Path) -> io::Result<File> {
    let file = disk::open(path, OpenOptions::new().read(true).write(true)).map_err(explain)?;
    lock(&file)?;
    Ok(file)
}

/// Opens a file for reading and locks it: alone, or together with other readers.
///
/// # Errors
/// Those of the system; [`io::ErrorKind::ResourceBusy`] if another handle has it locked.
pub(crate) fn open_to_read(path: &Path, alone: bool) -> io::Result<File> {
    let file = disk::open(path, OpenOptions::new().read(true)).map_err(explain)?;
    disk::try_lock(&file, alone).map_err(explain)?;
    Ok(file)
}

/// Locks an open file until it is closed, with all its duplicates, or [released](release).
///
/// # Errors
/// [`io::ErrorKind::ResourceBusy`] if another handle has it locked, no other.
pub(crate) fn lock(file: &File) -> io::Result<()> {
    disk::try_lock(file, true).map_err(explain)
}

/// Says why a file is busy.
fn explain(error: io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::ResourceBusy {
        return io::Error::new(io::ErrorKind::ResourceBusy, BUSY);
    }
    error
}

/// Message for users about a file that is locked.
pub(crate) const BUSY: &str =
    "it is being recorded; stop the recording first, or wait if another lsl works on the file";
