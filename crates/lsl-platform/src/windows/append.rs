//! Append-only files of one user: safe opening, and the lock for rotation; see the Unix version.

use std::borrow::Borrow;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::windows::fs::MetadataExt;
use std::os::windows::io::AsRawHandle;
use std::path::Path;

use windows_sys::Win32::Storage::FileSystem::{
    FILE_APPEND_DATA, FILE_ATTRIBUTE_HIDDEN, FILE_ATTRIBUTE_NORMAL, FILE_ATTRIBUTE_REPARSE_POINT,
    FILE_FLAG_BACKUP_SEMANTICS, FILE_FLAG_OPEN_REPARSE_POINT, FILE_READ_ATTRIBUTES, FILE_READ_DATA,
    LOCKFILE_EXCLUSIVE_LOCK, LockFileEx, OPEN_ALWAYS, READ_CONTROL, SYNCHRONIZE,
};

use crate::disk::{checked, is_in_use, is_on_disk, lock_place, open_itself, repeated, unlock};
use crate::files::{Need, exposed, identity, open_for_owners, open_private};
use crate::remedy;

/// Opens a file for appending; a new one is for the user of this program alone. Follows no link in the last
/// place.
///
/// # Errors
/// Those of the system. [`io::ErrorKind::PermissionDenied`] with a text for anything but a regular file,
/// for a file of another user, and for one that others may change.
pub fn open(path: &Path) -> io::Result<File> {
    // A handle that only appends could not be locked.
    let access =
        FILE_APPEND_DATA | FILE_READ_DATA | FILE_READ_ATTRIBUTES | READ_CONTROL | SYNCHRONIZE;
    let flags = FILE_ATTRIBUTE_NORMAL | FILE_FLAG_OPEN_REPARSE_POINT;
    let file = open_private(path, access, OPEN_ALWAYS, flags)?;
    if !is_on_disk(&file) {
        return Err(denied("it is not a regular file"));
    }
    if file.metadata()?.file_attributes() & FILE_ATTRIBUTE_REPARSE_POINT != 0 {
        return Err(denied("it is a symbolic link; name the file itself"));
    }
    match exposed(&file, path, Need::Shared)? {
        None => Ok(file),
        Some(reason) => Err(denied(&reason.told("change it"))),
    }
}

/// Exclusive lock of a file, released when dropped. Other programs that lock the file wait.
#[derive(Debug)]
pub struct Locked<F: Borrow<File>>(F);

/// Waits for the exclusive lock of a folder, whose files are about to be replaced: that of a file in it, since
/// Windows locks no folders. Whoever makes that file, the owner of the folder and administrators can lock it.
///
/// # Errors
/// Those of the system. [`io::ErrorKind::PermissionDenied`], with a text that names the file and the command
/// against it, if another user was the first.
pub fn lock_folder(folder: &Path) -> io::Result<Locked<File>> {
    let flags = FILE_ATTRIBUTE_HIDDEN | FILE_FLAG_OPEN_REPARSE_POINT;
    let access = FILE_READ_DATA | FILE_READ_ATTRIBUTES | SYNCHRONIZE;
    let path = folder.join(".lsl.lock");
    let opened = open_for_owners(&path, access, OPEN_ALWAYS, flags);
    lock(opened.map_err(|error| {
        if error.kind() != io::ErrorKind::PermissionDenied {
            return error;
        }
        let (shown, named) = (remedy::typed(&path), remedy::path(&path));
        denied(&format!(
            "{}: {error}; if another user made it, run {}: icacls {named} /reset",
            shown.display(),
            remedy::WITH_RIGHTS
        ))
    })?)
}

/// Waits for the exclusive lock of `file`, without a time limit.
///
/// # Errors
/// Those of file systems without locks.
#[expect(
    unsafe_code,
    reason = "std locks all bytes, which nobody can read then"
)]
pub fn lock<F: Borrow<File>>(file: F) -> io::Result<Locked<F>> {
    let mut place = lock_place();
    // SAFETY: the handle is open, and the system is done with `place` when the call returns: the file was
    // opened for calls that wait.
    checked(unsafe {
        LockFileEx(
            file.borrow().as_raw_handle(),
            LOCKFILE_EXCLUSIVE_LOCK,
            0,
            1,
            0,
            &raw mut place,
        )
    })?;
    Ok(Locked(file))
}

impl<F: Borrow<File>> Locked<F> {
    /// Returns the open file.
    pub fn file(&self) -> &File {
        self.0.borrow()
    }
}

impl<F: Borrow<File>> Drop for Locked<F> {
    fn drop(&mut self) {
        unlock(self.file());
    }
}

/// Renames a file onto one that is locked, or copies its content; see the Unix version. It is never unlocked
/// meanwhile: what others add then would be lost.
///
/// # Errors
/// Those of the system.
pub fn replace<F: Borrow<File>>(from: &Path, to: &Path, _locked: &Locked<F>) -> io::Result<()> {
    match repeated(|| fs::rename(from, to)) {
        Err(error) if is_in_use(&error) => {}
        done => return done,
    }
    let mut new = File::open(from)?;
    let mut old = OpenOptions::new().write(true).open(to)?;
    let copied = io::copy(&mut new, &mut old)
        .and_then(|len| old.set_len(len))
        .and_then(|()| old.sync_all());
    drop(new);
    if let Err(error) = copied {
        let mut kept = to.as_os_str().to_owned();
        kept.push(".new");
        fs::rename(from, &kept)?;
        let text = format!(
            "{error}; it is damaged now, and {} is whole",
            kept.display()
        );
        return Err(io::Error::new(error.kind(), text));
    }
    // A scanner may have it open still.
    let _ = repeated(|| fs::remove_file(from));
    Ok(())
}

/// Returns the length of the open `file` in bytes if `path` still names it.
///
/// # Errors
/// Those of the system, other than that the path is gone.
pub fn still_names(path: &Path, file: &File) -> io::Result<Option<u64>> {
    let flags = FILE_FLAG_BACKUP_SEMANTICS | FILE_FLAG_OPEN_REPARSE_POINT;
    match open_itself(path, 0, flags) {
        Ok(there) if identity(&there)?.is_same(identity(file)?) => Ok(Some(file.metadata()?.len())),
        Ok(_) => Ok(None),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn denied(reason: &str) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, reason.to_owned())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::disk::try_lock;

    #[test]
    fn a_private_file_grows_at_its_end_and_is_locked_and_rotated() {
        let folder = std::env::temp_dir().join(format!("lsl-append-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir(&folder).unwrap();
        let path = folder.join("log");
        let (mut first, mut second) = (open(&path).unwrap(), open(&path).unwrap());
        assert_eq!(exposed(&first, &path, Need::Secret).unwrap(), None);
        for (file, bytes) in [(&mut first, b"a"), (&mut second, b"b")] {
            file.write_all(bytes).unwrap();
        }
        first.write_all(b"c").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"abc");
        let guard = lock(&first).unwrap();
        let busy = try_lock(&second, true).unwrap_err();
        assert_eq!(busy.kind(), io::ErrorKind::ResourceBusy);
        drop(guard);
        drop(lock(&second).unwrap());
        assert_eq!(still_names(&path, &first).unwrap(), Some(3));
        fs::rename(&path, folder.join("log.1")).unwrap();
        assert_eq!(still_names(&path, &first).unwrap(), None);
        let (new, locked) = (folder.join("new"), lock(open(&path).unwrap()).unwrap());
        fs::write(&new, "d").unwrap();
        replace(&new, &path, &locked).unwrap();
        assert!(fs::read(&path).unwrap() == b"d" && !new.exists());
        drop(locked);
        assert!(open(&folder).is_err());
        drop(lock_folder(&folder).unwrap());
        drop(lock_folder(&folder).unwrap());
        assert!(lock_folder(&folder.join("none")).is_err());
        let taken = folder.join("taken");
        fs::create_dir_all(taken.join(".lsl.lock")).unwrap();
        let refused = lock_folder(&taken).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
        let command = format!("icacls \"{}\" /reset", taken.join(".lsl.lock").display());
        assert!(refused.to_string().ends_with(&command), "{refused}");
        drop((first, second));
        fs::remove_dir_all(folder).unwrap();
    }
}
