//! Append-only files of one user: safe opening, and the lock for rotation. Knows nothing of their content.

use std::borrow::Borrow;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;

/// Opens a file for appending; a new one gets mode 0600. Never blocks on a pipe, and follows no symbolic
/// link in the last place.
///
/// # Errors
/// Those of the system. [`io::ErrorKind::PermissionDenied`] with a text for anything but a regular file,
/// for a file of another user (root excepted), and for one writable by group or others.
pub fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .custom_flags(flags.bits().cast_signed())
        .open(path)
        .map_err(|error| match Errno::from_io_error(&error) {
            Some(Errno::LOOP) => denied("it is a symbolic link; name the file itself"),
            _ => error,
        })?;
    let metadata = file.metadata()?;
    let mode = metadata.mode() & 0o7777;
    let user = rustix::process::geteuid().as_raw();
    if !metadata.is_file() {
        Err(denied("it is not a regular file"))
    } else if metadata.uid() != user && metadata.uid() != 0 {
        let owner = metadata.uid();
        Err(denied(&format!(
            "it belongs to user {owner}, not to {user}"
        )))
    } else if mode & 0o022 != 0 {
        Err(denied(&format!(
            "others may write it (mode {mode:04o}); chmod 600 it"
        )))
    } else {
        Ok(file)
    }
}

/// Exclusive lock of a file, released when dropped. Other programs that lock the file wait.
#[derive(Debug)]
pub struct Locked<F: Borrow<File>>(F);

/// Waits for the exclusive lock of a folder, whose files are about to be replaced.
///
/// # Errors
/// Those of the system, and of file systems without locks.
pub fn lock_folder(folder: &Path) -> io::Result<Locked<File>> {
    lock(File::open(folder)?)
}

/// Waits for the exclusive lock of `file`, without a time limit.
///
/// # Errors
/// Those of file systems without locks.
pub fn lock<F: Borrow<File>>(file: F) -> io::Result<Locked<F>> {
    loop {
        match flock(file.borrow(), FlockOperation::LockExclusive) {
            Err(Errno::INTR) => {}
            done => return Ok(done.map(|()| Locked(file))?),
        }
    }
}

impl<F: Borrow<File>> Locked<F> {
    /// Returns the open file.
    pub fn file(&self) -> &File {
        self.0.borrow()
    }
}

impl<F: Borrow<File>> Drop for Locked<F> {
    fn drop(&mut self) {
        // Closing is not enough: a child made by `fork` in the meantime has the same open file.
        let _ = flock(self.file(), FlockOperation::Unlock);
    }
}

/// Renames a file onto one that is locked. On Windows, where some file systems rename nothing onto an open file,
/// it copies the content if it must: what a crash leaves then is new at its beginning and old at its end.
///
/// # Errors
/// Those of the system.
pub fn replace<F: Borrow<File>>(from: &Path, to: &Path, _locked: &Locked<F>) -> io::Result<()> {
    std::fs::rename(from, to)
}

/// Returns the length of the open `file` in bytes if `path` still names it.
///
/// # Errors
/// Those of the system, other than that the path is gone.
pub fn still_names(path: &Path, file: &File) -> io::Result<Option<u64>> {
    let open = file.metadata()?;
    match std::fs::symlink_metadata(path) {
        Ok(there) if (there.dev(), there.ino()) == (open.dev(), open.ino()) => Ok(Some(open.len())),
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
    use std::fs;
    use std::io::Write;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::PathBuf;

    use super::*;

    /// A directory of this test alone.
    fn directory(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("lsl-append-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).unwrap();
        path
    }

    #[test]
    fn a_new_file_is_private_and_grows_at_its_end() {
        let directory = directory("new");
        let path = directory.join("log");
        let mut first = open(&path).unwrap();
        let mut second = open(&path).unwrap();
        assert_eq!(first.metadata().unwrap().mode() & 0o777, 0o600);
        first.write_all(b"a").unwrap();
        second.write_all(b"b").unwrap();
        first.write_all(b"c").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"abc");
        assert_eq!(still_names(&path, &first).unwrap(), Some(3));
        fs::rename(&path, directory.join("log.1")).unwrap();
        assert_eq!(still_names(&path, &first).unwrap(), None);
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn files_that_others_could_change_or_that_are_none_are_refused() {
        let directory = directory("refused");
        let refused = |path: &Path, words: &str| {
            let error = open(path).expect_err(words).to_string();
            assert!(error.contains(words), "{error}");
        };
        let path = directory.join("log");
        for mode in [0o620, 0o602, 0o666] {
            fs::write(&path, "").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            refused(&path, "others may write it");
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        drop(open(&path).unwrap());
        let link = directory.join("link");
        symlink(&path, &link).unwrap();
        refused(&link, "symbolic link");
        assert!(open(&directory).is_err());
        refused(Path::new("/dev/null"), "not a regular file");
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn a_lock_ends_with_its_guard() {
        let directory = directory("lock");
        let path = directory.join("log");
        let (first, second) = (open(&path).unwrap(), open(&path).unwrap());
        let guard = lock(&first).unwrap();
        let busy = flock(&second, FlockOperation::NonBlockingLockExclusive);
        assert_eq!(busy, Err(Errno::WOULDBLOCK));
        drop(guard);
        drop(lock(&second).unwrap());
        fs::remove_dir_all(directory).unwrap();
    }
}
