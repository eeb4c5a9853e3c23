//! The audit file: one JSON object a line, hash-chained per writer, rotated by size. Spec: LSS/1 §10.
//!
//! Several processes may share a file. Each line is one write of at most 4096 bytes to the end, so
//! lines of different writers never mix, and each writer has a chain of its own: `chain` names it,
//! `seq` counts its lines from 0, `prev` is the SHA-256 of its line before (without the line feed;
//! empty in the first). When the file is full it becomes `FILE.1`, the next one `FILE.2` and so on,
//! never renamed again; chains go on in the new file.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use lsl_platform::append::{lock, open, still_names};
use lsl_platform::calendar::{DAY_SECS, Date};
use lsl_platform::files::{Who, create_new};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::event::AuditEntry;

/// Path, retention and rotation limit of the log file.
#[derive(Debug, Clone)]
pub(super) struct LogFile {
    pub(super) path: PathBuf,
    /// Rotated files whose last line is older go; 0 keeps them.
    pub(super) keep_days: u32,
    /// A file of this length is rotated before the next line.
    pub(super) max_len_bytes: u64,
}

/// Appends lines to the file as one hash chain.
#[derive(Debug)]
pub(super) struct Writer {
    place: LogFile,
    current: Option<Current>,
    /// Empty until the first line: random.
    chain: String,
    seq: u64,
    prev: String,
    /// Number of lost lines that the file already reports.
    told_dropped: u64,
    /// The day, as a date, on which old files were looked for.
    cleaned: String,
    /// Fault that lost no line: in rotation, or in the deletion of old files.
    trouble: Option<io::Error>,
}

#[derive(Debug)]
struct Current {
    file: File,
    /// The date of its first line.
    began: String,
    /// The last line broke off in the middle, so that the next must start with a line feed.
    is_torn: bool,
}

/// Line of the file: the entry with its chain fields.
#[derive(Debug, Serialize)]
struct AuditLine<'a> {
    #[serde(flatten)]
    entry: &'a AuditEntry,
    /// Lines of this writer that were lost before this one, since it last said so.
    #[serde(skip_serializing_if = "Option::is_none")]
    dropped: Option<u64>,
    pid: u32,
    chain: &'a str,
    seq: u64,
    prev: &'a str,
}

/// Field of a file's first line that dates the file.
#[derive(Debug, Deserialize)]
struct FirstLine {
    ts: String,
}

impl LogFile {
    /// Whether lines can be written at all: opens the file once, creating it if need be.
    ///
    /// # Errors
    /// What [`open`] says.
    pub(super) fn check(&self) -> io::Result<()> {
        open(&self.path).map(drop)
    }
}

impl Writer {
    pub(super) fn new(place: LogFile) -> Self {
        Self {
            place,
            current: None,
            chain: String::new(),
            seq: 0,
            prev: String::new(),
            told_dropped: 0,
            cleaned: String::new(),
            trouble: None,
        }
    }

    /// Takes the last fault that lost no line: in rotation, or in the deletion of old files.
    pub(super) fn take_trouble(&mut self) -> Option<io::Error> {
        self.trouble.take()
    }

    /// Writes one line; `dropped` counts the lines lost so far, `now` is UTC since 1970.
    ///
    /// # Errors
    /// The line was not written (completely). The next one may be tried at any time.
    pub(super) fn write(
        &mut self,
        entry: &AuditEntry,
        dropped: u64,
        now: Duration,
    ) -> io::Result<()> {
        if self.chain.is_empty() {
            let mut random = [0; 8];
            getrandom::fill(&mut random).map_err(|error| io::Error::other(error.to_string()))?;
            self.chain = hex(&random);
        }
        let today = Date::from_unix_time(now).to_string();
        self.make_ready(&today, now)?;
        let Some(current) = &mut self.current else {
            return Err(io::Error::other("the audit file is not open"));
        };

        let news = dropped - self.told_dropped;
        let line = encode(&AuditLine {
            entry,
            dropped: (news > 0).then_some(news),
            pid: std::process::id(),
            chain: &self.chain,
            seq: self.seq,
            prev: &self.prev,
        })?;
        let mut bytes = Vec::with_capacity(line.len() + 2);
        if current.is_torn {
            bytes.push(b'\n');
        }
        bytes.extend(&line);
        bytes.push(b'\n');
        // One call: a line that needs two could be mixed with another writer's.
        let written = loop {
            match current.file.write(&bytes) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => break result,
            }
        };
        match written {
            Ok(len) if len == bytes.len() => {}
            Ok(len) => {
                current.is_torn |= len > 0;
                return Err(io::Error::new(
                    io::ErrorKind::StorageFull,
                    "only a part of a line could be written",
                ));
            }
            Err(error) => {
                // A file that went bad may be replaced by a good one.
                self.current = None;
                return Err(error);
            }
        }
        current.is_torn = false;
        self.prev = hash(&line);
        self.seq += 1;
        self.told_dropped = dropped;
        Ok(())
    }

    /// Has the right file open: the one that `path` names, not too long, not of another day.
    fn make_ready(&mut self, today: &str, now: Duration) -> io::Result<()> {
        // Somebody else may rotate at any moment, but not for ever.
        for _ in 0..8 {
            let current = match self.current.take() {
                Some(current) => current,
                None => Current::open(&self.place.path, today)?,
            };
            let Some(len) = still_names(&self.place.path, &current.file)? else {
                // Rotated by another writer, or deleted.
                continue;
            };
            let current = self.current.insert(current);
            // With a time limit every day has its file, or the lines of a quiet machine would stay
            // until it fills.
            let is_old = self.place.keep_days > 0 && current.began != today;
            if len == 0 || (len < self.place.max_len_bytes && !is_old) {
                break;
            }
            if let Err(error) = rotate(&self.place.path, &current.file) {
                // A file that is too long is better than no file.
                self.trouble = Some(error);
                break;
            }
            self.current = None;
        }
        if self.current.is_none() {
            self.current = Some(Current::open(&self.place.path, today)?);
        }
        if self.place.keep_days > 0 && self.cleaned != today {
            today.clone_into(&mut self.cleaned);
            if let Err(error) = self.place.delete_old(now) {
                self.trouble = Some(error);
            }
        }
        Ok(())
    }
}

impl Current {
    fn open(path: &Path, today: &str) -> io::Result<Self> {
        let file = open(path)?;
        // The log is open for writing only. An unreadable file counts as a whole file of today.
        let (began, is_torn) = match File::open(path) {
            Ok(mut readable) => (
                first_date(&mut readable),
                is_torn(&mut readable).unwrap_or(false),
            ),
            Err(_) => (None, false),
        };
        Ok(Self {
            file,
            began: began.unwrap_or_else(|| today.to_owned()),
            is_torn,
        })
    }
}

impl LogFile {
    /// Deletes rotated files whose last line is older than `keep_days`.
    fn delete_old(&self, now: Duration) -> io::Result<()> {
        let keep_secs = u64::from(self.keep_days) * DAY_SECS;
        let Some(oldest) = now.as_secs().checked_sub(keep_secs) else {
            return Ok(());
        };
        let mut result = Ok(());
        for path in rotated(&self.path)? {
            let is_old = fs::symlink_metadata(&path).is_ok_and(|metadata| {
                let written = metadata.modified().ok();
                let written = written.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
                metadata.is_file() && written.is_some_and(|at| at.as_secs() < oldest)
            });
            if is_old {
                match fs::remove_file(&path) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => result = Err(error),
                    _ => {}
                }
            }
        }
        result
    }
}

/// The rotated files of an audit file, oldest first: `FILE.1`, `FILE.2`, …
///
/// # Errors
/// The directory cannot be read.
pub fn rotated(path: &Path) -> io::Result<Vec<PathBuf>> {
    let (directory, name) = parts(path)?;
    let mut prefix = name.into_encoded_bytes();
    prefix.push(b'.');
    let mut found = Vec::new();
    for entry in fs::read_dir(&directory)? {
        let entry = entry?;
        let name = entry.file_name();
        let number = name
            .as_encoded_bytes()
            .strip_prefix(prefix.as_slice())
            .filter(|digits| digits.iter().all(u8::is_ascii_digit))
            .and_then(|digits| std::str::from_utf8(digits).ok()?.parse::<u64>().ok());
        if let Some(number) = number {
            found.push((number, entry.path()));
        }
    }
    found.sort();
    Ok(found.into_iter().map(|(_, path)| path).collect())
}

/// Gives the full file its number. Afterwards `path` names no file, or another writer's new one.
fn rotate(path: &Path, file: &File) -> io::Result<()> {
    let _guard = lock(file)?;
    if still_names(path, file)?.is_none() {
        // The former holder of the lock has done it.
        return Ok(());
    }
    let (_, name) = parts(path)?;
    let last = rotated(path)?.pop();
    let last = last.and_then(|path| path.extension()?.to_str()?.parse::<u64>().ok());
    for number in last.unwrap_or(0) + 1..u64::MAX {
        let mut numbered = name.clone();
        numbered.push(format!(".{number}"));
        let numbered = path.with_file_name(numbered);
        match move_to(path, &numbered) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            moved => return moved,
        }
    }
    Err(io::Error::other("no number left for a rotated file"))
}

/// Renames a file to a name that is free.
fn move_to(path: &Path, numbered: &Path) -> io::Result<()> {
    // Reserve the name first: renaming would replace a file that appeared just now.
    create_new(numbered, Who::Owner)?;
    fs::rename(path, numbered).inspect_err(|_| {
        // An append-only file (`chattr +a`) may not be renamed: no empty file for every line then.
        let _ = fs::remove_file(numbered);
    })
}

/// The directory of a file and its name there.
fn parts(path: &Path) -> io::Result<(PathBuf, OsString)> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    };
    Ok((directory, name.to_owned()))
}

/// The date of the first line of a file, if it is one of ours.
fn first_date(file: &mut File) -> Option<String> {
    let mut start = Vec::new();
    let limit = u64::try_from(MAX_LINE).ok()?;
    file.take(limit).read_to_end(&mut start).ok()?;
    let line = start.split(|byte| *byte == b'\n').next()?;
    let first: FirstLine = serde_json::from_slice(line).ok()?;
    Some(date_of(&first.ts))
}

/// Returns true if the last line of a file has no end, as after a full disk.
fn is_torn(file: &mut File) -> io::Result<bool> {
    if file.metadata()?.len() == 0 {
        return Ok(false);
    }
    file.seek(SeekFrom::End(-1))?;
    let mut last = [0];
    file.read_exact(&mut last)?;
    Ok(last != *b"\n")
}

/// Cuts the date `2026-11-21` out of `2026-11-21T19:30:00.000000000Z`.
fn date_of(ts: &str) -> String {
    ts.get(..10).unwrap_or(ts).to_owned()
}

/// A line without the line feed, in at most `MAX_LINE` bytes with it (and with the one that ends a
/// torn line before it): the detail is cut to fit.
fn encode(line: &AuditLine<'_>) -> io::Result<Vec<u8>> {
    let bytes = serde_json::to_vec(line)?;
    let limit = MAX_LINE - 2;
    if bytes.len() <= limit {
        return Ok(bytes);
    }
    let mut shorter = line.entry.clone();
    let mut over = bytes.len() - limit;
    while let Some(detail) = shorter.detail.take().filter(|detail| !detail.is_empty()) {
        // Safe text takes at most twice its length as JSON: half of what is too long is never too
        // much to cut.
        let mut end = detail.len().saturating_sub(over.div_ceil(2));
        while !detail.is_char_boundary(end) {
            end -= 1;
        }
        shorter.detail = detail.get(..end).map(str::to_owned);
        let bytes = serde_json::to_vec(&AuditLine {
            entry: &shorter,
            ..*line
        })?;
        if bytes.len() <= limit {
            return Ok(bytes);
        }
        over = bytes.len() - limit;
    }
    Err(io::Error::other(
        "an audit line is too long even without its detail",
    ))
}

/// Returns the SHA-256 of a line without its line feed, in hex: the `prev` of the next line.
pub(super) fn hash(line: &[u8]) -> String {
    hex(&Sha256::digest(line))
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Length of a line with its line feed that POSIX and Linux write to a file in one piece.
pub(super) const MAX_LINE: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_rotation_leaves_no_file_and_replaces_none() {
        let directory = std::env::temp_dir().join(format!("lsl-move-{}", std::process::id()));
        fs::create_dir(&directory).unwrap();
        let (log, first) = (directory.join("log"), directory.join("log.1"));
        // Fails like one that may not be renamed.
        assert!(move_to(&log, &first).is_err());
        assert!(!first.exists());
        fs::write(&log, "new").unwrap();
        fs::write(&first, "old").unwrap();
        let error = move_to(&log, &first).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read_to_string(&first).unwrap(), "old");
        fs::remove_file(&first).unwrap();
        move_to(&log, &first).unwrap();
        assert_eq!(fs::read_to_string(&first).unwrap(), "new");
        fs::remove_dir_all(directory).unwrap();
    }
}
