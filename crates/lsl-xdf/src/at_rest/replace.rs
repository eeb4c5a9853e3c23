//! A file that appears under its name only when it is complete and on the disk.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use lsl_platform::disk::{replace, sync_folder};
use lsl_platform::files::{Who, copy_access, copy_owner, create_new};

use super::error::{Error, Result};
use super::files::Existing;

/// File being written beside its target under a name of its own, `.lsl-….tmp`. Dropped without
/// [`commit`](Self::commit), it is removed; only a killed program leaves one behind.
#[derive(Debug)]
pub(super) struct Replacement {
    temp: PathBuf,
    target: PathBuf,
    directory: PathBuf,
    existing: Existing,
    file: Option<File>,
}

impl Replacement {
    /// Creates the temporary file beside `target`.
    ///
    /// # Errors
    /// [`Error::Exists`] if the target exists and must stay, before any work is done.
    pub(super) fn begin(target: &Path, existing: Existing) -> Result<Self> {
        match fs::symlink_metadata(target) {
            Ok(_) if existing == Existing::Refuse => return Err(Error::Exists(target.into())),
            Ok(metadata) if metadata.is_dir() => return Err(Error::NotAFile),
            _ => {}
        }
        let directory = directory_of(target);
        let mut random = [0; 8];
        getrandom::fill(&mut random).map_err(|error| io::Error::other(error.to_string()))?;
        let temp = directory.join(format!(".lsl-{:016x}.tmp", u64::from_ne_bytes(random)));
        // The readers of the content are set at the end; until then it is the owner alone.
        let file = create_new(&temp, Who::Owner)?;
        Ok(Self {
            temp,
            target: target.into(),
            directory,
            existing,
            file: Some(file),
        })
    }

    pub(super) fn file(&self) -> Result<&File> {
        self.file
            .as_ref()
            .ok_or_else(|| Error::Io(io::ErrorKind::NotConnected.into()))
    }

    /// Gives the file the owner and permissions of `source`: locking, unlocking or rotating a recording must
    /// not change its readers.
    pub(super) fn make_alike(&self, source: &File) -> Result<()> {
        let file = self.file()?;
        // Only root may give files away. For everybody else the file is their own, as copies are.
        let _ = copy_owner(file, source);
        Ok(copy_access(file, source)?)
    }

    /// Syncs the file and moves it to its name. `replaced` is the file that has the name until then, if this
    /// program has it open.
    pub(super) fn commit(mut self, replaced: Option<File>) -> Result<()> {
        self.file()?.sync_all()?;
        // Windows renames no file that is open.
        self.file = None;
        match self.existing {
            Existing::Replace => replace(&self.temp, &self.target, replaced)?,
            Existing::Refuse => self.claim()?,
        }
        sync_folder(&self.directory)?;
        Ok(())
    }

    /// Links the file to its name, which fails if a file appeared there. A rename would replace it.
    fn claim(&self) -> Result<()> {
        match fs::hard_link(&self.temp, &self.target) {
            // The drop removes the temporary name.
            Ok(()) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                Err(Error::Exists(self.target.clone()))
            }
            // A file system without links, FAT for instance: claim the name with an empty file.
            Err(_) => {
                OpenOptions::new()
                    .write(true)
                    .create_new(true)
                    .open(&self.target)
                    .map_err(|error| match error.kind() {
                        io::ErrorKind::AlreadyExists => Error::Exists(self.target.clone()),
                        _ => Error::Io(error),
                    })?;
                replace(&self.temp, &self.target, ()).inspect_err(|_| {
                    // Ours, and empty; report the error of the rename.
                    let _ = fs::remove_file(&self.target);
                })?;
                Ok(())
            }
        }
    }
}

impl Drop for Replacement {
    fn drop(&mut self) {
        self.file = None;
        // It is gone already after a rename; otherwise an error has no receiver.
        let _ = fs::remove_file(&self.temp);
    }
}

/// Removes a file whose content is safe elsewhere.
pub(super) fn remove(path: &Path) -> Result<()> {
    fs::remove_file(path)?;
    sync_folder(&directory_of(path))?;
    Ok(())
}

fn directory_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.into(),
        _ => PathBuf::from("."),
    }
}
