//! Files as they lie on a disk; see the Unix version.

use std::ffi::c_void;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::windows::fs::OpenOptionsExt;
use std::os::windows::io::AsRawHandle;
use std::path::{Component, Path};
use std::time::Duration;

use windows_sys::Win32::Foundation::{
    ERROR_ACCESS_DENIED, ERROR_LOCK_VIOLATION, ERROR_SHARING_VIOLATION, GENERIC_WRITE,
};
use windows_sys::Win32::Storage::FileSystem::{
    FILE_ALLOCATION_INFO, FILE_FLAG_BACKUP_SEMANTICS, FILE_TYPE_DISK, FileAllocationInfo,
    GetDiskFreeSpaceExW, GetFileType, LOCKFILE_EXCLUSIVE_LOCK, LOCKFILE_FAIL_IMMEDIATELY,
    LockFileEx, MoveFileExW, SetFileInformationByHandle, UnlockFileEx,
};
use windows_sys::Win32::System::IO::{OVERLAPPED, OVERLAPPED_0, OVERLAPPED_0_0};

use crate::files::identity;
use crate::wide::wide_path;

/// Opens a file that other programs may have open too; see the Unix version.
///
/// # Errors
/// As on Unix; [`io::ErrorKind::ResourceBusy`] if another program shares the file with nobody,
/// [`io::ErrorKind::InvalidInput`] for a device or a hidden stream of a file.
pub fn open(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    let has_stream = path.components().any(|part| match part {
        Component::Normal(name) => name.as_encoded_bytes().contains(&b':'),
        // A file beside the working folder of a drive, or a stream of a file with a name of one letter.
        Component::Prefix(_) => !path.has_root(),
        _ => false,
    });
    if has_stream {
        return Err(invalid("a name has no ':' in it"));
    }
    let file = options.open(path).map_err(|error| match code(&error) {
        ERROR_SHARING_VIOLATION => io::ErrorKind::ResourceBusy.into(),
        _ => error,
    })?;
    if is_on_disk(&file) {
        Ok(file)
    } else {
        Err(invalid("it is the name of a device, not of a file"))
    }
}

/// Locks an open file; see the Unix version. The lock is one byte far behind all others, because locks of
/// bytes keep other programs from reading and writing them.
///
/// # Errors
/// As on Unix.
#[expect(
    unsafe_code,
    reason = "std locks all bytes, which nobody can read then"
)]
pub fn try_lock(file: &File, exclusive: bool) -> io::Result<()> {
    let exclusive = if exclusive {
        LOCKFILE_EXCLUSIVE_LOCK
    } else {
        0
    };
    let flags = exclusive | LOCKFILE_FAIL_IMMEDIATELY;
    let mut place = lock_place();
    // SAFETY: the handle is open, and the system is done with `place` when the call returns: the file was
    // opened for calls that wait.
    let done = unsafe { LockFileEx(file.as_raw_handle(), flags, 0, 1, 0, &raw mut place) };
    if done == 0 && code(&io::Error::last_os_error()) == ERROR_LOCK_VIOLATION {
        return Err(io::ErrorKind::ResourceBusy.into());
    }
    // Or a file system without locks.
    Ok(())
}

/// Releases the lock of a file that stays open.
#[expect(unsafe_code, reason = "as in `try_lock`")]
pub fn unlock(file: &File) {
    let mut place = lock_place();
    // SAFETY: as in `try_lock`. It fails only if there was no lock.
    unsafe { UnlockFileEx(file.as_raw_handle(), 0, 1, 0, &raw mut place) };
}

/// Returns the place of the byte to lock: 2^63 - 2, behind the longest file.
pub(crate) fn lock_place() -> OVERLAPPED {
    OVERLAPPED {
        Anonymous: OVERLAPPED_0 {
            Anonymous: OVERLAPPED_0_0 {
                Offset: 0xFFFF_FFFE,
                OffsetHigh: 0x7FFF_FFFF,
            },
        },
        ..OVERLAPPED::default()
    }
}

/// Returns whether the path still leads to the open file.
///
/// # Errors
/// Those of the system.
pub fn is_still(path: &Path, file: &File) -> io::Result<bool> {
    let there = identity(&open_any(path, 0)?)?;
    Ok(there.is_same(identity(file)?))
}

/// Renames a file, but never onto an existing one.
///
/// # Errors
/// As on Unix.
#[expect(unsafe_code, reason = "std's rename replaces")]
pub fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    let (from, to) = (wide_path(from)?, wide_path(to)?);
    patiently(|| {
        // SAFETY: both are texts that end with NUL.
        checked(unsafe { MoveFileExW(from.as_ptr(), to.as_ptr(), 0) })
    })
}

/// Renames a file, and replaces one that has the new name; see the Unix version.
///
/// # Errors
/// Those of the system.
pub fn replace<T>(from: &Path, to: &Path, replaced: T) -> io::Result<()> {
    if std::fs::rename(from, to).is_ok() {
        return Ok(());
    }
    drop(replaced);
    patiently(|| std::fs::rename(from, to))
}

/// Syncs a folder, as far as the file system can.
///
/// # Errors
/// Those of the system, if the folder is missing.
pub fn sync_folder(folder: &Path) -> io::Result<()> {
    match open_any(folder, GENERIC_WRITE) {
        Ok(folder) => drop(folder.sync_all()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(error),
        Err(_) => {}
    }
    Ok(())
}

/// Returns the bytes that are free where a file is, or will be; `None` if the system does not tell.
#[expect(unsafe_code, reason = "std does not tell")]
pub fn free_space(path: &Path) -> Option<u64> {
    let absolute = std::path::absolute(path).ok()?;
    // The folder may not be there yet.
    let folder = absolute
        .ancestors()
        .skip(1)
        .find(|folder| folder.is_dir())?;
    let folder = wide_path(folder).ok()?;
    let mut free = 0;
    let nothing = std::ptr::null_mut();
    // SAFETY: a text that ends with NUL, room for a number, and no room for two others.
    let done = unsafe { GetDiskFreeSpaceExW(folder.as_ptr(), &raw mut free, nothing, nothing) };
    (done != 0).then_some(free)
}

/// Returns whether two folders are on one disk; false if the system does not tell.
pub fn is_one_disk(one: &Path, other: &Path) -> bool {
    let volume = |path| Some(identity(&open_any(path, 0).ok()?).ok()?.volume);
    volume(one).is_some() && volume(one) == volume(other)
}

/// Allocates room on the disk for the first `to` bytes of a file without making it longer.
///
/// # Errors
/// As on Unix.
#[expect(unsafe_code, reason = "std does not reserve")]
pub fn reserve(file: &File, _from: u64, to: u64) -> io::Result<()> {
    // Less than the length would cut the file.
    let bytes = to.max(file.metadata()?.len());
    let room = FILE_ALLOCATION_INFO {
        AllocationSize: i64::try_from(bytes).map_err(|_| io::ErrorKind::FileTooLarge)?,
    };
    // SAFETY: the handle is open, and the system reads one structure of this kind and size.
    checked(unsafe {
        SetFileInformationByHandle(
            file.as_raw_handle(),
            FileAllocationInfo,
            (&raw const room).cast::<c_void>(),
            bytes_of::<FILE_ALLOCATION_INFO>(),
        )
    })
}

/// Opens a file or a folder.
pub(crate) fn open_any(path: &Path, access: u32) -> io::Result<File> {
    open_itself(path, access, FILE_FLAG_BACKUP_SEMANTICS)
}

/// Opens what a path names, as the flags of `CreateFileW` say.
pub(crate) fn open_itself(path: &Path, access: u32, flags: u32) -> io::Result<File> {
    OpenOptions::new()
        .access_mode(access)
        .custom_flags(flags)
        .open(path)
}

/// Returns whether a handle is one of a file, and not of a pipe, console or other device.
#[expect(unsafe_code, reason = "std does not tell what opened")]
pub(crate) fn is_on_disk(file: &File) -> bool {
    // SAFETY: the handle is open.
    unsafe { GetFileType(file.as_raw_handle()) == FILE_TYPE_DISK }
}

/// Repeats what a scanner or an indexer keeps from being done, for half a second.
pub(crate) fn repeated(action: impl Fn() -> io::Result<()>) -> io::Result<()> {
    for _ in 0..TRIALS {
        match action() {
            Err(error) if is_in_use(&error) => std::thread::sleep(PAUSE),
            done => return done,
        }
    }
    action()
}

/// Works as [`repeated`], and says who may be in the way.
fn patiently(action: impl Fn() -> io::Result<()>) -> io::Result<()> {
    repeated(action).map_err(|error| {
        if is_in_use(&error) {
            let text = format!("another program has it open, or may alone rename it: {error}");
            return io::Error::new(error.kind(), text);
        }
        error
    })
}

pub(crate) fn is_in_use(error: &io::Error) -> bool {
    matches!(code(error), ERROR_ACCESS_DENIED | ERROR_SHARING_VIOLATION)
}

/// Returns Windows' number of an error, or 0.
pub(crate) fn code(error: &io::Error) -> u32 {
    error.raw_os_error().map_or(0, i32::cast_unsigned)
}

/// Returns the size of a structure as functions of Windows want it.
#[expect(clippy::cast_possible_truncation, reason = "structures are small")]
pub(crate) const fn bytes_of<T>() -> u32 {
    size_of::<T>() as u32
}

/// Converts the result of a function of Windows that sets the error of the thread.
pub(crate) fn checked(done: i32) -> io::Result<()> {
    if done == 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

fn invalid(text: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, text.to_owned())
}

const TRIALS: u32 = 10;
const PAUSE: Duration = Duration::from_millis(50);

#[cfg(test)]
#[path = "../disk/tests.rs"]
mod tests;
