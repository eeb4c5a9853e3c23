//! Files as they lie on a disk: locks on those being written, names that are never taken from another file,
//! room, and what a loss of power leaves. Knows nothing of their content.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;

/// Opens a file that other programs may have open too. Does not wait for a pipe that took its name.
///
/// # Errors
/// Those of the system. On Windows [`io::ErrorKind::ResourceBusy`] if another program shares the file with
/// nobody, and [`io::ErrorKind::InvalidInput`] for a device or a hidden stream of a file.
pub fn open(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    match options.custom_flags(flags).open(path) {
        // A file server holds a lease on it, which it gives back to whoever waits.
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            options.custom_flags(0).open(path)
        }
        opened => opened,
    }
}

/// Locks an open file until it is closed, with all its duplicates, or [unlocked](unlock): exclusively, or
/// together with others. Other programs can still read and write it. Does nothing on file systems without
/// locks.
///
/// # Errors
/// [`io::ErrorKind::ResourceBusy`] if another handle has it locked, no other.
pub fn try_lock(file: &File, mut exclusive: bool) -> io::Result<()> {
    loop {
        let operation = if exclusive {
            FlockOperation::NonBlockingLockExclusive
        } else {
            FlockOperation::NonBlockingLockShared
        };
        match flock(file, operation) {
            Err(Errno::INTR) => {}
            // NFS gives exclusive locks to writers only; a shared one still detects a recorder.
            Err(Errno::BADF) if exclusive => exclusive = false,
            Err(Errno::WOULDBLOCK) => return Err(io::ErrorKind::ResourceBusy.into()),
            _ => return Ok(()),
        }
    }
}

/// Releases the lock of a file that stays open.
pub fn unlock(file: &File) {
    // It fails only if there was no lock.
    let _ = flock(file, FlockOperation::Unlock);
}

/// Returns whether the path still leads to the open file.
///
/// # Errors
/// Those of the system.
pub fn is_still(path: &Path, file: &File) -> io::Result<bool> {
    let (there, open) = (std::fs::metadata(path)?, file.metadata()?);
    Ok((there.dev(), there.ino()) == (open.dev(), open.ino()))
}

/// Renames a file, but never onto an existing one.
///
/// # Errors
/// Those of the system; [`io::ErrorKind::AlreadyExists`] if the new name is taken.
pub fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    {
        use rustix::fs::{CWD, RenameFlags, renameat_with};
        match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
            // Not every file system can.
            Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {}
            done => return Ok(done?),
        }
    }
    if std::fs::symlink_metadata(to).is_ok() {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    std::fs::rename(from, to)
}

/// Renames a file, and replaces one that has the new name. `replaced` is that file or its lock, if this program
/// has it open: some file systems of Windows need it closed before. There, programs that look into new files,
/// scanners for instance, are waited for, half a second at most.
///
/// # Errors
/// Those of the system.
pub fn replace<T>(from: &Path, to: &Path, replaced: T) -> io::Result<()> {
    let done = std::fs::rename(from, to);
    // Its lock kept others away until now.
    drop(replaced);
    done
}

/// Syncs a folder, so that new and changed entries survive a loss of power. Does nothing on file systems
/// that cannot.
///
/// # Errors
/// Those of the system.
pub fn sync_folder(folder: &Path) -> io::Result<()> {
    match File::open(folder)?.sync_all() {
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
        done => done,
    }
}

/// Returns the bytes that are free where a file is, or will be; `None` if the system does not tell.
pub fn free_space(path: &Path) -> Option<u64> {
    // The folder may not be there yet.
    let place = path
        .ancestors()
        .skip(1)
        .find_map(|folder| rustix::fs::statvfs(or_here(folder)).ok())?;
    Some(place.f_bavail.saturating_mul(place.f_frsize))
}

/// Returns whether two folders are on one disk; false if the system does not tell.
pub fn is_one_disk(one: &Path, other: &Path) -> bool {
    let device = |path| std::fs::metadata(path).ok().map(|it| it.dev());
    device(one).is_some() && device(one) == device(other)
}

/// Allocates room on the disk for the bytes `from..to` of a file without making it longer.
///
/// # Errors
/// [`io::ErrorKind::StorageFull`] and alike without that room; others where the file system cannot.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub fn reserve(file: &File, from: u64, to: u64) -> io::Result<()> {
    use rustix::fs::{FallocateFlags, fallocate};
    loop {
        match fallocate(file, FallocateFlags::KEEP_SIZE, from, to - from) {
            Err(Errno::INTR) => {}
            done => return Ok(done?),
        }
    }
}

/// Fails; see the version of Linux.
///
/// # Errors
/// Always `Unsupported`.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub fn reserve(_file: &File, _from: u64, _to: u64) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Returns the working folder for the empty path, which is what the last ancestor of a relative path is.
fn or_here(folder: &Path) -> &Path {
    if folder.as_os_str().is_empty() {
        Path::new(".")
    } else {
        folder
    }
}

#[cfg(test)]
mod tests;
