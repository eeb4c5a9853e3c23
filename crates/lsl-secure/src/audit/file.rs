//! The audit file: one JSON object a line, hash-chained per writer, rotated by size. Spec: LSS/1 §10.
//!
//! Several processes may share a file. Whole lines, each of at most 4096 bytes, are one write to its end,
//! so that lines of different writers never mix, and each writer has a chain of its own: `chain` names
//! it, `seq` counts its lines from 0, `prev` is the SHA-256 of its line before (without the line feed;
//! empty in the first). When the file is full it becomes `FILE.1`, the next one `FILE.2` and so on, never renamed
//! again; chains go on in the new file. The first line of a writer in each file says what program it is: `log_opened`.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufRead, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use lsl_platform::append::{lock, open, still_names};
use lsl_platform::calendar::{DAY_SECS, Date};
use lsl_platform::clock::local_clock;
use lsl_platform::files::{Who, create_new};
use serde::Deserialize;
use sha2::{Digest, Sha256};

use super::line::{Line, decimal, hex_of};
use super::opened::opened;

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
    /// When the first line was recorded, since 1970.
    began: Duration,
    /// What the end of each line says of its chain: `,"chain":"…","seq":`. Empty until the first line.
    chain: Vec<u8>,
    seq: u64,
    /// The file says what program writes this chain.
    is_named: bool,
    /// Hash of the line before, in hex; none before the first line.
    prev: Option<[u8; 64]>,
    /// Number of lost lines that the file already reports.
    told_dropped: u64,
    /// The day, as a date, on which old files were looked for.
    cleaned: String,
    /// Fault that lost no line: in rotation, or in the deletion of old files.
    trouble: Option<io::Error>,
    /// Lines that are one write. Kept for its memory.
    piece: Vec<u8>,
}

#[derive(Debug)]
struct Current {
    file: File,
    /// The date of its first line.
    began: String,
    /// The last line broke off in the middle, so that the next must start with a line feed.
    is_torn: bool,
    /// Its length at the last look, with what was written since.
    len_bytes: u64,
    looked_at: f64,
}

/// Lines that were not written.
#[derive(Debug)]
pub(super) struct Lost {
    pub(super) lines: u64,
    pub(super) error: io::Error,
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
    /// Begins a chain; `began` is when its first line was recorded, in UTC since 1970.
    pub(super) fn new(place: LogFile, began: Duration) -> Self {
        Self {
            place,
            began,
            current: None,
            chain: Vec::new(),
            seq: 0,
            is_named: false,
            prev: None,
            told_dropped: 0,
            cleaned: String::new(),
            trouble: None,
            piece: Vec::new(),
        }
    }

    /// Takes the last fault that lost no line: in rotation, or in the deletion of old files.
    pub(super) fn take_trouble(&mut self) -> Option<io::Error> {
        self.trouble.take()
    }

    /// Writes lines that wait for their place in the chain, each with its line feed; `dropped` counts the
    /// lines lost so far, `now` is UTC since 1970. Returns the number of writes that it took.
    ///
    /// # Errors
    /// The last lines were not written (completely). The next ones may be tried at any time.
    pub(super) fn write(
        &mut self,
        mut lines: &[u8],
        dropped: u64,
        now: Duration,
    ) -> Result<u64, Lost> {
        let mut writes = 0;
        let is_many = lines.len() >= MANY_BYTES;
        while !lines.is_empty() {
            let written = match self.write_piece(lines, is_many, dropped, now) {
                Ok(len) => len,
                Err((len, error)) => {
                    // A file that went bad may be replaced by a good one, which has no name yet.
                    (self.current, self.is_named) = (None, false);
                    let lines = count_lines(lines.get(len..).unwrap_or_default());
                    return Err(Lost { lines, error });
                }
            };
            writes += 1;
            lines = lines.get(written..).unwrap_or_default();
        }
        self.piece.clear();
        self.piece.shrink_to(KEPT_PIECE);
        Ok(writes)
    }

    /// Writes as many of the lines as belong into one write. Returns how many bytes of `lines` that was, also
    /// with an error.
    fn write_piece(
        &mut self,
        lines: &[u8],
        is_many: bool,
        dropped: u64,
        now: Duration,
    ) -> Result<usize, (usize, io::Error)> {
        if self.chain.is_empty() {
            self.chain = chain().map_err(|error| (0, error))?;
        }
        let today = Date::from_unix_time(now).to_string();
        self.make_ready(&today, now, is_many)
            .map_err(|error| (0, error))?;
        let Some(current) = &mut self.current else {
            return Err((0, io::Error::other("the audit file is not open")));
        };
        // A file that could not be rotated has no limit.
        let room = self.place.max_len_bytes.checked_sub(current.len_bytes);
        let room = room.and_then(|room| usize::try_from(room).ok());
        let room = room
            .filter(|room| (1..MAX_PIECE).contains(room))
            .unwrap_or(MAX_PIECE);

        // In each file, as files are given away and deleted one by one.
        let name = match (self.is_named, self.seq) {
            (true, _) => Vec::new(),
            (false, 0) => name(self.began),
            (false, _) => name(now),
        };
        let mut name = name.as_slice();
        let names = u64::from(!name.is_empty());

        // Needed only after a torn line.
        self.piece.clear();
        self.piece.push(b'\n');
        let (mut seq, mut prev) = (self.seq, self.prev);
        let mut news = dropped - self.told_dropped;
        let mut rest = lines;
        // One line at least, or files shorter than the name would follow each other without end.
        while (self.piece.len() <= room || rest.len() == lines.len()) && !rest.is_empty() {
            let is_name = !name.is_empty();
            let source = if is_name { &mut name } else { &mut rest };
            let line = *source;
            // Finds the line feed faster than a loop.
            let len = source.skip_until(b'\n').unwrap_or_default();
            let line = line.get(..len.saturating_sub(1)).unwrap_or_default();
            let start = self.piece.len();
            self.piece.extend_from_slice(line);
            if news > 0 && !is_name {
                self.piece.extend_from_slice(b",\"dropped\":");
                push_decimal(&mut self.piece, news);
                news = 0;
            }
            self.piece.extend_from_slice(&self.chain);
            push_decimal(&mut self.piece, seq);
            self.piece.extend_from_slice(b",\"prev\":\"");
            self.piece.extend(prev.iter().flatten());
            self.piece.extend_from_slice(b"\"}");
            prev = Some(hash(self.piece.get(start..).unwrap_or_default()));
            seq += 1;
            self.piece.push(b'\n');
        }
        let (whole, result) = append(&mut current.file, &self.piece, &mut current.is_torn);
        current.len_bytes = current.len_bytes.saturating_add(self.piece.len() as u64);
        if let Err(error) = result {
            let written = self.piece.get(1..whole).unwrap_or_default();
            let count = count_lines(written);
            if let Some(last) = written
                .trim_ascii_end()
                .rsplit(|byte| *byte == b'\n')
                .next()
                && count > 0
            {
                self.prev = Some(hash(last));
                self.seq += count;
            }
            let count = count.saturating_sub(names);
            if count > 0 {
                self.told_dropped = dropped;
            }
            let ends = lines.split_inclusive(|byte| *byte == b'\n');
            let ends = ends.take(usize::try_from(count).unwrap_or(usize::MAX));
            return Err((ends.map(<[u8]>::len).sum(), error));
        }
        (self.seq, self.prev, self.told_dropped) = (seq, prev, dropped);
        self.is_named = true;
        Ok(lines.len() - rest.len())
    }

    /// Has the right file open: the one that `path` names, not too long, not of another day. Where lines
    /// come in numbers, it looks once a second.
    fn make_ready(&mut self, today: &str, now: Duration, is_many: bool) -> io::Result<()> {
        // Somebody else may rotate at any moment, but not for ever.
        for _ in 0..8 {
            let mut current = match self.current.take() {
                Some(current) => current,
                None => Current::open(&self.place.path, today)?,
            };
            // With a time limit every day has its file, or the lines of a quiet machine would stay
            // until it fills.
            let is_old = self.place.keep_days > 0 && current.began != today;
            let is_full = current.len_bytes >= self.place.max_len_bytes;
            let looked_at = local_clock();
            if is_many && !is_old && !is_full && looked_at - current.looked_at < LOOK_EVERY_SECS {
                self.current = Some(current);
                return Ok(());
            }
            let Some(len) = still_names(&self.place.path, &current.file)? else {
                // Rotated by another writer, or deleted.
                self.is_named = false;
                continue;
            };
            (current.len_bytes, current.looked_at) = (len, looked_at);
            let current = self.current.insert(current);
            if len == 0 || (len < self.place.max_len_bytes && !is_old) {
                break;
            }
            if let Err(error) = rotate(&self.place.path, &current.file) {
                // A file that is too long is better than no file.
                self.trouble = Some(error);
                break;
            }
            self.is_named = false;
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

/// Appends a piece: a line feed, which is left out where the file does not end in a torn line, and whole
/// lines. In one call: lines that need two could be mixed with another writer's. Returns where in the piece
/// the last line ends that the file has whole.
fn append(file: &mut impl Write, piece: &[u8], is_torn: &mut bool) -> (usize, io::Result<()>) {
    let mut start = usize::from(!*is_torn);
    let (mut whole, mut is_stuck) = (1, false);
    loop {
        let rest = piece.get(start..).unwrap_or_default();
        let written = match file.write(rest) {
            Ok(written) => written,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return (whole, Err(error)),
        };
        if written == rest.len() {
            *is_torn = false;
            return (piece.len(), Ok(()));
        }
        // Somebody else's line may follow: the torn one comes again, whole, after a line feed. One that
        // lacks nothing else is whole.
        let end = start + written;
        let last = if piece.get(end) == Some(&b'\n') {
            *is_torn = true;
            end + 1
        } else {
            let sent = piece.get(..end).unwrap_or_default();
            let last = sent.iter().rposition(|byte| *byte == b'\n').unwrap_or(0) + 1;
            *is_torn = last < end;
            last
        };
        if is_stuck && last <= whole {
            let text = "only a part of a line could be written";
            return (whole, Err(io::Error::new(io::ErrorKind::StorageFull, text)));
        }
        is_stuck = last <= whole;
        whole = last;
        start = last - usize::from(*is_torn);
    }
}

/// Returns the line that says what program writes, with its line feed.
fn name(utc: Duration) -> Vec<u8> {
    [Line::new(&opened(utc)).bytes(), b"\n"].concat()
}

/// Begins a chain: what each of its lines says of it.
fn chain() -> io::Result<Vec<u8>> {
    let mut random = [0; 8];
    getrandom::fill(&mut random).map_err(|error| io::Error::other(error.to_string()))?;
    let mut chain = b",\"chain\":\"".to_vec();
    chain.extend(random.into_iter().flat_map(hex_of));
    chain.extend_from_slice(b"\",\"seq\":");
    Ok(chain)
}

fn push_decimal(bytes: &mut Vec<u8>, number: u64) {
    let (digits, start) = decimal(number);
    bytes.extend_from_slice(digits.get(start..).unwrap_or_default());
}

fn count_lines(bytes: &[u8]) -> u64 {
    let lines = bytes.split_inclusive(|byte| *byte == b'\n').count();
    u64::try_from(lines).unwrap_or(u64::MAX)
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
            len_bytes: 0,
            looked_at: f64::NEG_INFINITY,
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

/// Returns the SHA-256 of a line without its line feed, in hex: the `prev` of the next line.
pub(super) fn hash(line: &[u8]) -> [u8; 64] {
    let mut text = [0; 64];
    let digits = Sha256::digest(line).into_iter().flat_map(hex_of);
    text.iter_mut()
        .zip(digits)
        .for_each(|(place, digit)| *place = digit);
    text
}

/// Length of a line with its line feed that no line exceeds: its texts have limits.
const MAX_LINE: usize = 4096;
/// Most bytes of one write, but for the rest of a line.
const MAX_PIECE: usize = 4 << 20;
/// Memory that is kept from one piece to the next.
const KEPT_PIECE: usize = 64 << 10;
/// So many bytes at once say that more are coming.
const MANY_BYTES: usize = 16 << 10;
/// Between two looks at name and length of the file.
const LOOK_EVERY_SECS: f64 = 1.0;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Takes so many bytes of each write, then fails: a disk that fills.
    struct Filling(Vec<usize>, Vec<u8>);

    impl Write for Filling {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let room = self.0.pop().ok_or(io::ErrorKind::StorageFull)?;
            let len = room.min(bytes.len());
            self.1.extend_from_slice(&bytes[..len]);
            Ok(len)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    proptest! {
        #[test]
        fn what_short_writes_tear_comes_again_whole(
            rooms in prop::collection::vec(0_usize..9, 0..12),
            was_torn in any::<bool>(),
        ) {
            let piece = b"\n<one>\n<2>\n<three>\n";
            let before: &[u8] = if was_torn { b"<o" } else { b"<a>\n" };
            let (mut file, mut is_torn) = (Filling(rooms, before.to_vec()), was_torn);
            let (whole, result) = append(&mut file, piece, &mut is_torn);
            prop_assert!(result.is_err() || whole == piece.len());
            prop_assert_eq!(is_torn, file.1.last() != Some(&b'\n'));
            let is_whole = |line: &&[u8]| line.ends_with(b">");
            let lines = file.1.split(|byte| *byte == b'\n').filter(is_whole);
            let expected = piece[..whole].split(|byte| *byte == b'\n').filter(is_whole);
            let first = (!was_torn).then_some(&b"<a>"[..]);
            let lines: Vec<_> = lines.collect();
            prop_assert_eq!(lines, first.into_iter().chain(expected).collect::<Vec<_>>());
        }
    }

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
