//! Places of recordings: folders are made, and nothing is ever overwritten.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use lsl_platform::disk::{rename_new, sync_folder};

use crate::{Error, Result, file_lock};

/// New file under the name asked for.
#[derive(Debug)]
pub struct Claimed {
    /// The file, empty, for reading and writing. As long as it is open, no program that asks (`lsl lock`,
    /// `rotate`, `xdf repair`) replaces, removes or shortens it.
    pub file: File,
    /// New path of the file that had this name before.
    pub moved: Option<PathBuf>,
}

/// Creates a file and the folders above it. An existing file is renamed as LabRecorder does it: `sub.xdf`
/// becomes `sub_old1.xdf`, or `sub_old2.xdf` if that is taken; its journal goes with it.
///
/// # Errors
/// [`Error::Argument`] for a path without a file name, [`Error::Path`] if the system refuses.
pub fn claim(path: &Path) -> Result<Claimed> {
    if path.file_name().is_none() {
        let text = format!(
            "{:?} names no file to record into",
            path.display().to_string()
        );
        return Err(Error::Argument(text));
    }
    if let Some(folder) = folder_of(path) {
        fs::create_dir_all(folder).map_err(Error::path("make the folder", folder))?;
    }
    let mut moved = None;
    // Another program may be as quick: then its file is renamed, too.
    for _ in 0..100 {
        match file_lock::create_new(path) {
            Ok(file) => {
                // Another program holds it already, and may remove it any moment.
                if file_lock::lock(&file).is_err() {
                    continue;
                }
                sync_folder_of(path).map_err(Error::path("make", path))?;
                return Ok(Claimed { file, moved });
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                moved = Some(make_way(path)?);
            }
            Err(error) if is_refused(&error) => return Err(not_a_file(path, &error)),
            Err(error) => return Err(Error::path("make", path)(error)),
        }
    }
    let error = io::Error::from(io::ErrorKind::AlreadyExists);
    Err(Error::path("make", path)(error))
}

/// Returns whether any program records into a file at this moment: it was [`claim`]ed, is open and not
/// finished. False where there are no locks.
///
/// # Errors
/// [`Error::Path`] if the file cannot be opened.
pub fn is_being_written(path: &Path) -> Result<bool> {
    match file_lock::open_to_read(path, false) {
        Ok(_) => Ok(false),
        Err(error) if error.kind() == io::ErrorKind::ResourceBusy => Ok(true),
        Err(error) => Err(Error::path("open", path)(error)),
    }
}

/// Returns the folder that a file lies in, if the path names one.
fn folder_of(path: &Path) -> Option<&Path> {
    path.parent()
        .filter(|folder| !folder.as_os_str().is_empty())
}

/// Syncs the folder of a file, so that a new or changed entry survives a loss of power.
pub(crate) fn sync_folder_of(path: &Path) -> io::Result<()> {
    let folder = folder_of(path).unwrap_or_else(|| Path::new("."));
    match sync_folder(folder) {
        // Some folders may be written but not read.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        done => done,
    }
}

/// Renames the file of this name to the first `_oldN` that is free.
fn make_way(path: &Path) -> Result<PathBuf> {
    let found = fs::symlink_metadata(path).ok();
    // A folder or a device is no earlier recording.
    let is_other = |it: &fs::Metadata| !it.is_file() && !it.is_symlink();
    if found.as_ref().is_some_and(is_other) {
        let text = format!(
            "{} is a folder or a device; name a file in it",
            path.display()
        );
        return Err(Error::Argument(text));
    }
    // Hold the file until it is renamed: its recorder would go on under another file's name. A file that
    // may not be opened may still be renamed. Links are not opened: recorders never use their names, and
    // opening the target may block.
    let is_link = found.is_some_and(|it| it.is_symlink());
    let _held = match (!is_link).then(|| file_lock::open_to_read(path, true)) {
        Some(Err(error)) if error.kind() == io::ErrorKind::ResourceBusy || is_refused(&error) => {
            return Err(not_a_file(path, &error));
        }
        held => held.and_then(io::Result::ok),
    };
    for n in 1..=u32::MAX {
        let old = old_name(path, n);
        // An old journal that lost its file must not meet another one.
        if is_taken(&journal_path(&old)) {
            continue;
        }
        match rename_new(path, &old) {
            Ok(()) => {
                let journal = journal_path(path);
                if is_taken(&journal) {
                    let to = journal_path(&old);
                    rename_new(&journal, &to).map_err(Error::path("rename", journal))?;
                }
                return Ok(old);
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            // Another program renamed it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(old),
            Err(error) => return Err(Error::path("rename", path)(error)),
        }
    }
    let error = io::Error::from(io::ErrorKind::AlreadyExists);
    Err(Error::path("rename", path)(error))
}

/// Returns whether an error says that a name is none of a file: on Windows, of a device or of a hidden stream.
fn is_refused(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::InvalidInput && error.raw_os_error().is_none()
}

fn not_a_file(path: &Path, error: &io::Error) -> Error {
    Error::Argument(format!("{}: {error}", path.display()))
}

/// Renames a recording's journal to that of the first `_oldN` without any file: it must not tell of another
/// file.
pub(crate) fn move_journal_aside(path: &Path) -> io::Result<()> {
    for n in 1..=u32::MAX {
        let old = old_name(path, n);
        if is_taken(&old) {
            continue;
        }
        match rename_new(&journal_path(path), &journal_path(&old)) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            // Another program moved it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            done => return done,
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

/// Returns whether anything has this name, a symbolic link that leads nowhere included.
fn is_taken(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok()
}

/// Returns the name of an old recording, as in `sub.xdf.age` → `sub_old1.xdf.age`.
fn old_name(path: &Path, n: u32) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let lower = name.to_ascii_lowercase();
    let at = lower
        .find(".xdf")
        .filter(|&at| at > 0)
        .or_else(|| name.rfind('.').filter(|&at| at > 0))
        .unwrap_or(name.len());
    let (stem, extension) = name.split_at(at);
    path.with_file_name(format!("{stem}_old{n}{extension}"))
}

/// Returns the path of a recording's journal, beside it.
pub fn journal_path(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".lslj");
    path.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_names_keep_their_extensions() {
        for (name, expected) in [
            ("a/sub.xdf", "a/sub_old3.xdf"),
            ("sub.xdf.age", "sub_old3.xdf.age"),
            ("sub.1.XDF", "sub.1_old3.XDF"),
            ("sub.v2", "sub_old3.v2"),
            ("sub", "sub_old3"),
            (".xdf", ".xdf_old3"),
        ] {
            assert_eq!(old_name(Path::new(name), 3), Path::new(expected));
        }
    }

    #[test]
    #[cfg(unix)]
    fn links_to_pipes_make_way_without_being_opened() {
        use std::process::Command;
        use std::sync::mpsc;
        use std::time::Duration;

        let folder = std::env::temp_dir().join(format!("lsl-place-pipe-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (pipe, path) = (folder.join("pipe"), folder.join("sub.xdf"));
        assert!(
            Command::new("mkfifo")
                .arg(&pipe)
                .status()
                .unwrap()
                .success()
        );
        std::os::unix::fs::symlink(&pipe, &path).unwrap();
        let (sender, claimed) = mpsc::channel();
        let (of_claim, of_question) = (path.clone(), pipe.clone());
        std::thread::spawn(move || {
            let is_busy = is_being_written(&of_question).unwrap();
            sender.send((is_busy, claim(&of_claim).unwrap().moved))
        });
        let (is_busy, moved) = claimed
            .recv_timeout(Duration::from_mins(1))
            .expect("nobody writes into the pipe");
        assert!(!is_busy);
        let moved = moved.unwrap();
        assert_eq!(moved, folder.join("sub_old1.xdf"));
        assert!(moved.is_symlink() && path.is_file());
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn folders_are_no_recordings_to_rename() {
        let folder = std::env::temp_dir().join(format!("lsl-place-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let error = claim(&folder).unwrap_err();
        assert!(matches!(&error, Error::Argument(text) if text.contains("is a folder")));
        fs::remove_dir(&folder).unwrap();
    }
}
