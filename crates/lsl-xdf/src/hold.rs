//! The lock on a file that is recorded into: who replaces, removes or shortens a file takes it first,
//! so that no recorder goes on writing into a file that is gone. It vanishes with the program that
//! holds it, however that ends.
//!
//! On Unix it is an advisory one (`flock`), on Windows the file is open in a way that lets nobody else
//! write. Other systems, and file systems without locks, have none: there everything goes on as if
//! nobody recorded.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;

/// How a file is opened that is to be held: on Windows, others may read, rename and remove, but not
/// write, nor may anybody have it open for writing. On Unix a pipe that took its name is not waited for.
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

/// The same for writing.
pub(crate) fn options_to_write() -> OpenOptions {
    let mut options = options();
    options.write(true);
    options
}

/// Opens a file for reading and writing and holds it.
///
/// # Errors
/// Those of the system; [`io::ErrorKind::ResourceBusy`] if somebody else holds it.
pub(crate) fn open_to_write(path: &Path) -> io::Result<File> {
    let file = options_to_write().open(path).map_err(denied)?;
    hold(&file)?;
    Ok(file)
}

/// Opens a file for reading and holds it: alone, or with others that only read.
///
/// # Errors
/// Those of the system; [`io::ErrorKind::ResourceBusy`] if somebody else holds it.
pub(crate) fn open_to_read(path: &Path, alone: bool) -> io::Result<File> {
    let file = options().open(path).map_err(denied)?;
    take(&file, alone)?;
    Ok(file)
}

/// Holds an open file until it is closed, with all its duplicates, or [released](release).
///
/// # Errors
/// [`io::ErrorKind::ResourceBusy`] if somebody else holds it, nothing else.
pub(crate) fn hold(file: &File) -> io::Result<()> {
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
            // NFS gives nobody alone what is open for reading only; a recorder shows even so.
            Err(Errno::BADF) if alone => alone = false,
            Err(Errno::WOULDBLOCK) => return Err(busy()),
            // A file system without locks.
            _ => return Ok(()),
        }
    }
}

/// Opening the file was all there is to do.
#[cfg(not(unix))]
#[expect(clippy::unnecessary_wraps, reason = "the same signature everywhere")]
fn take(_file: &File, _alone: bool) -> io::Result<()> {
    Ok(())
}

/// Lets others have a file that stays open.
pub(crate) fn release(file: &File) {
    #[cfg(unix)]
    // Where that fails there was no lock.
    let _ = rustix::fs::flock(file, rustix::fs::FlockOperation::Unlock);
    #[cfg(not(unix))]
    let _ = file;
}

/// Whether the path still leads to the open file; `true` where that cannot be told.
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

/// What Windows says when a file is open elsewhere for writing, in our words.
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

/// What a user is told.
pub(crate) const BUSY: &str =
    "it is being recorded; stop the recording first, or wait if another lsl works on the file";
