//! Reads and writes the files of keys and trust: read only if no other user can have changed (or
//! seen) them, written whole or not at all. Spec: LSS/1 §3.3.
//!
//! What is checked is always the opened file, never the path: a path may name another file a moment
//! later. Knows nothing of what the files say.

use std::fs::{self, File, FileTimes, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

pub use lsl_platform::files::Need as Content;
use lsl_platform::files::{
    Exposure, Version, Who, copy_access, copy_owner, create_new, exposed, exposed_folder,
};
use lsl_platform::{disk, remedy};
use zeroize::Zeroizing;

use crate::{Error, Result};

/// Which version of a file was read. Any difference means: look again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp(Version);

impl Stamp {
    /// When the file was written, since 1970.
    pub(crate) fn modified(self) -> Duration {
        self.0.modified
    }

    /// Returns true if the file's last change was renaming it (or the like): then it is not half
    /// written, unless another program was very quick.
    pub(crate) fn is_finished(self) -> bool {
        // The time of changes sees what `touch` hides, and changed permissions.
        self.0.changed > self.0.modified
    }

    /// The version that is there now.
    pub(crate) fn of_path(path: &Path) -> io::Result<Self> {
        Version::of_path(path).map(Self)
    }
}

/// Reads a text file of at most 1 MiB after checking owner, permissions and kind. Symbolic links are
/// followed; what they lead to is checked.
///
/// # Errors
/// [`Error::File`] with the remedy.
pub fn read_text(path: &Path, content: Content) -> Result<Zeroizing<String>> {
    Ok(read_stamped(path, content, MAX_LEN)?.0)
}

/// [`read_text`] of at most `max` bytes, and which version it was.
pub(crate) fn read_stamped(
    path: &Path,
    content: Content,
    max: u64,
) -> Result<(Zeroizing<String>, Stamp)> {
    // Opening a pipe waits for a writer: look before, decide after.
    let failed = |error: io::Error| unreadable(path, content, &error);
    let metadata = fs::metadata(path).map_err(failed)?;
    check_kind(&metadata).map_err(|reason| Error::file(path, reason))?;
    let mut file = disk::open(path, OpenOptions::new().read(true)).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    check_kind(&metadata).map_err(|reason| Error::file(path, reason))?;
    if let Some(exposure) = exposed(&file, path, content).map_err(failed)? {
        return Err(Error::file(path, refusal(&exposure, content)));
    }
    check_directories(path)?;
    let stamp = Stamp(Version::of(&file).map_err(failed)?);
    // Room for all of it, so that growing leaves no copies of secrets behind.
    let room = usize::try_from(metadata.len().min(max)).map_or(0, |len| len + 1);
    let mut bytes = Zeroizing::new(Vec::with_capacity(room));
    (&mut file)
        .take(max + 1)
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    if bytes.len() as u64 > max {
        let mib = max >> 20;
        return Err(Error::file(
            path,
            format!("longer than {mib} MiB: this cannot be the right file; name another one"),
        ));
    }
    match String::from_utf8(std::mem::take(&mut *bytes)) {
        Ok(text) => Ok((Zeroizing::new(text), stamp)),
        Err(error) => {
            let line = 1 + count_lines(&error.as_bytes()[..error.utf8_error().valid_up_to()]);
            drop(Zeroizing::new(error.into_bytes()));
            Err(Error::file(
                path,
                format!("line {line}: not UTF-8 text; save the file as UTF-8"),
            ))
        }
    }
}

/// Makes a new file, readable by its owner alone. Never overwrites.
///
/// # Errors
/// [`Error::File`]; then there is no new file.
pub fn create(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut file = create_new(path, Who::Owner).map_err(|error| {
        Error::file(
            path,
            match error.kind() {
                io::ErrorKind::AlreadyExists => {
                    "already exists and is never overwritten; move it away first".to_owned()
                }
                io::ErrorKind::NotFound => {
                    let command = remedy::make_folder(parent(path));
                    format!("its directory does not exist; run: {command}")
                }
                _ => format!("cannot be made: {error}"),
            },
        )
    })?;
    let written = file.write_all(bytes).and_then(|()| file.sync_all());
    written.map_err(|error| {
        let _ = fs::remove_file(path);
        Error::file(
            path,
            format!("cannot be written: {error}; nothing is left of it"),
        )
    })?;
    sync_parent(path);
    Ok(())
}

/// Puts new content in place of a file by a temporary file and rename, keeping its owner and
/// permissions: readers see the old or the new content, never a part. Symbolic links stay.
///
/// # Errors
/// [`Error::File`]; then the old file is untouched. Also if there is no file.
pub fn replace(path: &Path, bytes: &[u8]) -> Result<()> {
    replace_by(|from, to| disk::replace(from, to, ()), path, bytes)
}

/// Does the work of [`replace`]; `rename` puts the first file in place of the second.
pub(crate) fn replace_by(
    rename: impl FnOnce(&Path, &Path) -> io::Result<()>,
    path: &Path,
    bytes: &[u8],
) -> Result<()> {
    let failed = |error: io::Error| {
        let reason = format!("cannot be replaced: {error}; the old file is unchanged");
        Error::file(path, reason)
    };
    let target = remedy::typed(&fs::canonicalize(path).map_err(failed)?);
    let metadata = fs::metadata(&target).map_err(failed)?;
    check_kind(&metadata).map_err(|reason| Error::file(path, reason))?;
    let old = disk::open(&target, OpenOptions::new().read(true)).map_err(failed)?;
    let (temporary, mut file) = open_temporary(&target).map_err(failed)?;
    let written = (|| {
        copy_owner(&file, &old)?;
        copy_access(&file, &old)?;
        drop(old);
        file.write_all(bytes)?;
        // A little older than the rename, also on file systems with coarse time: so that watchers
        // see that the file was finished before it came (`Stamp::is_finished`).
        let now = lsl_platform::clock::utc_now();
        let modified = SystemTime::UNIX_EPOCH + now.saturating_sub(Duration::from_millis(50));
        file.set_times(FileTimes::new().set_modified(modified))?;
        file.sync_all()?;
        drop(file);
        rename(&temporary, &target)
    })();
    written.map_err(|error| match fs::remove_file(&temporary) {
        Ok(()) => failed(error),
        // The error says where it was put.
        Err(_) => Error::file(path, format!("cannot be replaced: {error}")),
    })?;
    sync_parent(&target);
    Ok(())
}

/// The number of the line at a byte offset, from 1.
pub(crate) fn line_at(text: &str, offset: usize) -> usize {
    1 + count_lines(&text.as_bytes()[..offset.min(text.len())])
}

fn count_lines(bytes: &[u8]) -> usize {
    bytes.split(|byte| *byte == b'\n').count() - 1
}

fn unreadable(path: &Path, content: Content, error: &io::Error) -> Error {
    let remedy = match error.kind() {
        io::ErrorKind::NotFound => "correct the name, or make it with: lsl key init".to_owned(),
        // Not first of all to take it from the user whose it is.
        io::ErrorKind::PermissionDenied if content == Content::Secret => format!(
            "if it is meant for another user, make the one who runs this program a key of its own (lsl key \
             init), else give it to that user ({})",
            remedy::GIVE
        ),
        io::ErrorKind::PermissionDenied => {
            format!(
                "give it to the user who runs this program ({})",
                remedy::GIVE
            )
        }
        _ => "repair or remove it".to_owned(),
    };
    Error::file(path, format!("cannot be read: {error}; {remedy}"))
}

fn check_kind(metadata: &fs::Metadata) -> Result<(), &'static str> {
    if metadata.is_file() {
        Ok(())
    } else {
        Err("not a regular file; put a regular file there")
    }
}

/// Says why a file is not read whose content others may know or have changed.
fn refusal(exposure: &Exposure, content: Content) -> String {
    exposure.told(match content {
        Content::Secret => "at this secret",
        Content::Shared | Content::Kept => "change it",
    })
}

/// Refuses a directory in which other users can replace or remove files; on Unix they cannot where the sticky
/// bit is set. A missing directory is accepted.
///
/// # Errors
/// [`Error::File`] with the remedy.
pub fn check_directory(directory: &Path) -> Result<()> {
    match look_into(directory, Content::Shared)? {
        Some(exposure) => {
            let reason = exposure.told("replace the files in it");
            Err(Error::file(directory, reason))
        }
        None => Ok(()),
    }
}

/// Refuses a directory that lacks a file because other users may have removed it. Unlike where there is a
/// file, the group of a single user is fine: many systems let it write to whatever its user makes, and most
/// users of LSL never encrypt.
pub(crate) fn check_absence(path: &Path) -> Result<()> {
    let directory = parent(path);
    let Some(exposure) = look_into(directory, Content::Kept)? else {
        return Ok(());
    };
    let file = path.file_name().unwrap_or_default().display();
    let told = exposure.told(&format!(
        "remove {file}, so that nobody knows whether to encrypt"
    ));
    let elsewhere = "(a lsl_api.cfg that others may write can be elsewhere: LSLAPICFG names it)";
    Err(Error::file(directory, format!("{told} {elsewhere}")))
}

/// Returns why other users can replace or remove files in a directory, if there is one and they can.
fn look_into(directory: &Path, need: Content) -> Result<Option<Exposure>> {
    match exposed_folder(directory, need) {
        Err(error) if is_gone(&error) => Ok(None),
        Err(error) => Err(unreadable(directory, Content::Shared, &error)),
        Ok(found) => Ok(found),
    }
}

/// Refuses a file that other users can replace, be it at the other end of a symbolic link.
fn check_directories(path: &Path) -> Result<()> {
    let mut place = path.to_owned();
    for _ in 0..MOST_LINKS {
        let directory = parent(&place);
        check_directory(directory)?;
        match fs::read_link(&place) {
            Ok(target) => place = directory.join(target),
            // No link.
            Err(_) => return Ok(()),
        }
    }
    Err(Error::file(
        path,
        "a link to a link without end; put the file there",
    ))
}

/// Whether there is no such file, nor can be.
pub(crate) fn is_gone(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}

fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// A new file beside `path`. In containers processes have the same few numbers again and again: one
/// that was killed may have left a file with our name behind.
fn open_temporary(path: &Path) -> io::Result<(PathBuf, File)> {
    let mut tries = 0;
    loop {
        let temporary = temporary_of(path);
        match create_new(&temporary, Who::Owner) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && tries < MOST_TRIES => {
                tries += 1;
            }
            opened => return Ok((temporary, opened?)),
        }
    }
}

/// A name beside `path` that no other writer uses.
fn temporary_of(path: &Path) -> PathBuf {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{}.{count}.tmp", std::process::id()));
    path.with_file_name(name)
}

/// Writes the directory entry to disk; errors are ignored, since the file is already complete.
fn sync_parent(path: &Path) {
    let _ = disk::sync_folder(parent(path));
}

const MOST_TRIES: u32 = 1000;

/// So many does Linux follow.
const MOST_LINKS: u32 = 40;

/// No file that people write is longer: 1 MiB.
pub(crate) const MAX_LEN: u64 = 1 << 20;

#[cfg(test)]
pub(crate) mod scratch;
#[cfg(test)]
mod tests;
