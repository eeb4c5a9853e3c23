//! Lock on a file that is recorded into. Every program that replaces, removes or shortens a file takes it
//! first, so that no recorder goes on writing into a file that is gone. It vanishes with the program that
//! holds it, however that ends.
//!
//! On Unix it is an advisory lock (`flock`); on Windows the file is opened so that others cannot write.
//! Other systems, and some file systems, have none: there all files count as free.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;

/// Returns the options to open a file that is to be locked. On Windows, others may read, rename and remove,
/// but not write, nor have it open for writing. On Unix a pipe that took its name is not waited for.
fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(
        &mut options,
        rustix::fs::OFlags::NONBLOCK.bits().cast_signed(),
    );
    #[cfg(windows)]
    {
        const FILE_SHARE_READ: u32 = 1;
        const FILE_SHARE_DELETE: u32 = 4;
        std::os::windows::fs::OpenOptionsExt::share_mode(
            &mut options,
            FILE_SHARE_READ | FILE_SHARE_DELETE,
        );
    }
    options
}

/// Returns these options, with writing.
pub(crate) fn options_to_write() -> OpenOptions {
    let mut options = options();
    options.write(true);
    options
}

/// Opens a file for reading and writing and locks it.
///
/// # Errors
/// Those of the system; [`io::ErrorKind::ResourceBusy`] if another handle has it locked.
pub(crate) fn open_to_write(path: &Path) -> io::Result<File> {
    let file = options_to_write().open(path).map_err(denied)?;
    lock(&file)?;
    Ok(file)
}

/// Opens a file for reading and locks it: alone, or together with other readers.
///
/// # Errors
/// Those of the system; [`io::ErrorKind::ResourceBusy`] if another handle has it locked.
pub(crate) fn open_to_read(path: &Path, alone: bool) -> io::Result<File> {
    let file = options().open(path).map_err(denied)?;
    take(&file, alone)?;
    Ok(file)
}

/// Locks an open file until it is closed, with all its duplicates, or [released](release).
///
/// # Errors
/// [`io::ErrorKind::ResourceBusy`] if another handle has it locked, no other.
pub(crate) fn lock(file: &File) -> io::Result<()> {
    take(file, true)
}

#[cfg(unix)]
fn take(file: &File, mut alone: bool) -> io::Result<()> {
    use rustix::fs::{FlockOperation, flock};
    use rustix::io::Errno;
    loop {
        let operation = if alone {
            FlockOperation::NonBlockingLockExclusive
        } else {
            FlockOperation::NonBlockingLockShared
        };
        match flock(file, operation) {
            Err(Errno::INTR) => {}
            // NFS gives exclusive locks to writers only; a shared one still detects a recorder.
            Err(Errno::BADF) if alone => alone = false,
            Err(Errno::WOULDBLOCK) => return Err(busy()),
            // A file system without locks.
            _ => return Ok(()),
        }
    }
}

/// Does nothing: opening the file is the lock.
#[cfg(not(unix))]
#[expect(clippy::unnecessary_wraps, reason = "the same signature everywhere")]
fn take(_file: &File, _alone: bool) -> io::Result<()> {
    Ok(())
}

/// Releases the lock of a file that stays open.
pub(crate) fn release(file: &File) {
    #[cfg(unix)]
    // It fails only if there was no lock.
    let _ = rustix::fs::flock(file, rustix::fs::FlockOperation::Unlock);
    #[cfg(not(unix))]
    let _ = file;
}

/// Returns whether the path still leads to the open file; `true` where that cannot be told.
///
/// # Errors
/// Those of the system.
#[cfg(all(unix, feature = "age"))]
pub(crate) fn is_still(path: &Path, file: &File) -> io::Result<bool> {
    use std::os::unix::fs::MetadataExt;
    let (there, open) = (std::fs::metadata(path)?, file.metadata()?);
    Ok((there.dev(), there.ino()) == (open.dev(), open.ino()))
}

#[cfg(all(not(unix), feature = "age"))]
#[expect(clippy::unnecessary_wraps, reason = "the same signature everywhere")]
pub(crate) fn is_still(_path: &Path, _file: &File) -> io::Result<bool> {
    Ok(true)
}

/// Replaces Windows' error for a file that is open elsewhere for writing.
fn denied(error: io::Error) -> io::Error {
    const ERROR_SHARING_VIOLATION: i32 = 32;
    if cfg!(windows) && error.raw_os_error() == Some(ERROR_SHARING_VIOLATION) {
        return busy();
    }
    error
}

fn busy() -> io::Error {
    io::Error::new(io::ErrorKind::ResourceBusy, BUSY)
}

/// Message for users about a file that is locked.
pub(crate) const BUSY: &str =
    "it is being recorded; stop the recording first, or wait if another lsl works on the file";
