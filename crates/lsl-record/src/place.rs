//! Whether a recording can go where it shall: asked before anything is searched or connected, and of the
//! folder to go on in before it is needed.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use lsl_platform::disk::is_one_disk;

use crate::error::StartError;
use crate::event::{Event, Events};

/// Checks the folder of the file, and the one to go on in when the disk is full.
///
/// # Errors
/// If a path cannot hold a recording, or cannot be written.
pub(crate) fn check(path: &Path, spill: Option<&Path>, events: &Events) -> Result<(), StartError> {
    if fs::symlink_metadata(path).is_ok_and(|it| !it.is_file() && !it.is_symlink()) {
        return Err(StartError::NotAFile(path.to_owned()));
    }
    let folder = first_folder(path);
    try_to_write(&folder)?;
    let Some(spill) = spill else {
        return Ok(());
    };
    if !spill.is_dir() {
        return Err(StartError::NoSpillFolder(spill.to_owned()));
    }
    try_to_write(spill)?;
    let real = |folder: &Path| fs::canonicalize(folder).ok();
    if path.parent().is_some_and(Path::exists) && real(&folder) == real(spill) {
        return Err(StartError::SpillsIntoItself(spill.to_owned()));
    }
    if is_one_disk(&folder, spill) {
        events.push(Event::SpillOnSameDisk(spill.to_owned()));
    }
    Ok(())
}

/// The folder of a file, or the one in which it will be made.
fn first_folder(path: &Path) -> PathBuf {
    let mut folders = path.ancestors().skip(1);
    let known = folders.find(|folder| folder.exists());
    match known {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
        // The last ancestor of a relative path has no name.
        _ => PathBuf::from("."),
    }
}

/// Only a file that was made tells: permissions say nothing of file systems without files.
fn try_to_write(folder: &Path) -> Result<(), StartError> {
    let refused = |source: io::Error| StartError::Folder {
        folder: folder.to_owned(),
        source,
    };
    let trial = folder.join(format!(".lsl-record-{}", std::process::id()));
    match File::create_new(&trial) {
        Ok(file) => drop(file),
        // Left behind by a process that was killed and had our number.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(refused(error)),
    }
    // Folders that nothing can be removed from may be recorded into.
    let _ = fs::remove_file(&trial);
    Ok(())
}
