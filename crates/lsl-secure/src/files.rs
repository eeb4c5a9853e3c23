//! Reads and writes the files of keys and trust: read only if no other user can have changed (or
//! seen) them, written whole or not at all. Spec: LSS/1 §3.3.
//!
//! What is checked is always the opened file, never the path: a path may name another file a moment
//! later. Knows nothing of what the files say.
//!
//! A system on which nobody can see who may read a file gets no keys and no trust: every function here fails
//! there, and with them everything that encrypts (`lsl_platform::files`).

use std::fs::{self, File, FileTimes};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use lsl_platform::files::{Access, Version, create_new, is_group_private, make_alike};
use zeroize::Zeroizing;

use crate::{Error, Result};

/// Secrecy that the content of a file needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// Keys, PSK, passphrases: only the owner may even read them.
    Secret,
    /// Configuration and trust: others may read, not write.
    Shared,
}

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
        Version::of(&fs::metadata(path)?).map(Self)
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
    let mut file = File::open(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    check_kind(&metadata).map_err(|reason| Error::file(path, reason))?;
    let Access { owner, mode, user } = Access::of(&metadata).map_err(failed)?;
    check_access(path, content, mode, owner, user).map_err(|reason| Error::file(path, reason))?;
    check_directories(path)?;
    let stamp = Stamp(Version::of(&metadata).map_err(failed)?);
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

/// Makes a new file, readable by its owner alone (0600). Never overwrites.
///
/// # Errors
/// [`Error::File`]; then there is no new file.
pub fn create(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut file = create_new(path, 0o600).map_err(|error| {
        Error::file(
            path,
            match error.kind() {
                io::ErrorKind::AlreadyExists => {
                    "already exists and is never overwritten; move it away first".to_owned()
                }
                io::ErrorKind::NotFound => {
                    let parent = quote(&parent(path).display().to_string());
                    format!("its directory does not exist; run: mkdir -p {parent}")
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
    let failed = |error: io::Error| {
        let reason = format!("cannot be replaced: {error}; the old file is unchanged");
        Error::file(path, reason)
    };
    let target = fs::canonicalize(path).map_err(failed)?;
    let old = fs::metadata(&target).map_err(failed)?;
    check_kind(&old).map_err(|reason| Error::file(path, reason))?;
    let (temporary, mut file) = open_temporary(&target).map_err(failed)?;
    let written = (|| {
        make_alike(&file, &old)?;
        file.write_all(bytes)?;
        // A little older than the rename, also on file systems with coarse time: so that watchers
        // see that the file was finished before it came (`Stamp::is_finished`).
        let now = lsl_platform::clock::utc_now();
        let modified = SystemTime::UNIX_EPOCH + now.saturating_sub(Duration::from_millis(50));
        file.set_times(FileTimes::new().set_modified(modified))?;
        file.sync_all()?;
        fs::rename(&temporary, &target)
    })();
    written.map_err(|error| {
        let _ = fs::remove_file(&temporary);
        failed(error)
    })?;
    sync_parent(&target);
    Ok(())
}

/// A word for the remedy of a message, so that it can be pasted into a shell.
pub(crate) fn quote(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+=:,@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
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
        io::ErrorKind::NotFound => "; correct the name, or make it with: lsl key init",
        // Not first of all to take it from the user whose it is.
        io::ErrorKind::PermissionDenied if content == Content::Secret => {
            "; if it is meant for another user, make the one who runs this program a key of its own \
             (lsl key init), else give it to that user (chown)"
        }
        io::ErrorKind::PermissionDenied => "; give it to the user who runs this program (chown)",
        io::ErrorKind::Unsupported => "; encrypt on Linux instead",
        _ => "; repair or remove it",
    };
    Error::file(path, format!("cannot be read: {error}{remedy}"))
}

fn check_kind(metadata: &fs::Metadata) -> Result<(), &'static str> {
    if metadata.is_file() {
        Ok(())
    } else {
        Err("not a regular file; put a regular file there")
    }
}

/// The rule of §3.3 about owner and mode, of the opened file.
fn check_access(
    path: &Path,
    content: Content,
    mode: u32,
    owner: u32,
    user: u32,
) -> Result<(), String> {
    let mode = mode & 0o7777;
    let file = quote(&path.display().to_string());
    // Root may read any owner's files: containers mount secrets of users they do not know.
    if user != 0 && owner != user && owner != 0 {
        return Err(format!(
            "belongs to user {owner}, but this program runs as user {user}; run: chown {user} {file}"
        ));
    }
    match content {
        Content::Secret if mode & 0o077 != 0 => Err(format!(
            "mode {mode:04o} lets other users at this secret; run: chmod 600 {file} (where secrets \
             are mounted: mode 0400)"
        )),
        Content::Shared if mode & 0o022 != 0 => Err(format!(
            "mode {mode:04o} lets other users change it; run: chmod go-w {file}"
        )),
        _ => Ok(()),
    }
}

/// Refuses a directory in which other users can replace or remove files. Where the sticky bit is
/// set they cannot. A missing directory is accepted.
///
/// # Errors
/// [`Error::File`] with the remedy.
pub fn check_directory(directory: &Path) -> Result<()> {
    let looked = writable_by_others(directory);
    let Some((mode, _)) = looked.map_err(|error| unreadable(directory, Content::Shared, &error))?
    else {
        return Ok(());
    };
    let name = quote(&directory.display().to_string());
    Err(Error::file(
        directory,
        format!("mode {mode:04o} lets other users replace the files in it; run: chmod go-w {name}"),
    ))
}

/// Refuses a directory that lacks a file because other users may have removed it. Unlike where there is a
/// file, the group of a single user is fine: many systems let it write to whatever its user makes, and most
/// users of LSL never encrypt.
pub(crate) fn check_absence(path: &Path) -> Result<()> {
    let directory = parent(path);
    let (mode, metadata) = match writable_by_others(directory) {
        Ok(Some(found)) => found,
        Ok(None) => return Ok(()),
        // On systems without such checks all encryption is refused earlier.
        Err(error) if error.kind() == io::ErrorKind::Unsupported => return Ok(()),
        Err(error) => return Err(unreadable(directory, Content::Shared, &error)),
    };
    if mode & 0o002 == 0 && is_group_private(&metadata) {
        return Ok(());
    }
    let name = quote(&directory.display().to_string());
    let file = path.file_name().unwrap_or_default().display();
    Err(Error::file(
        directory,
        format!(
            "mode {mode:04o} lets other users remove {file}, so that nobody knows whether to encrypt; run: \
             chmod go-w {name} (a lsl_api.cfg that others may write can be elsewhere: LSLAPICFG names it)"
        ),
    ))
}

/// The mode of a directory in which other users can replace or remove files.
fn writable_by_others(directory: &Path) -> io::Result<Option<(u32, fs::Metadata)>> {
    let metadata = match fs::metadata(directory) {
        Err(error) if is_gone(&error) => return Ok(None),
        looked => looked?,
    };
    let mode = Access::of(&metadata)?.mode;
    Ok((mode & 0o022 != 0 && mode & STICKY == 0).then_some((mode, metadata)))
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
        match create_new(&temporary, 0o600) {
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
    if let Ok(directory) = File::open(parent(path)) {
        let _ = directory.sync_all();
    }
}

const MOST_TRIES: u32 = 1000;

/// So many does Linux follow.
const MOST_LINKS: u32 = 40;

/// Files in such a directory belong to their makers.
const STICKY: u32 = 0o1000;

/// No file that people write is longer: 1 MiB.
pub(crate) const MAX_LEN: u64 = 1 << 20;

#[cfg(test)]
#[cfg(unix)]
pub(crate) mod scratch;
#[cfg(test)]
#[cfg(unix)]
mod tests;
