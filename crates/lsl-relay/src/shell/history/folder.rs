//! The folder of segments, as it is found at a start. Spec: relay §9.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use lsl_core::local_clock;
use lsl_xdf::at_rest::{Decrypting, Ending, Identities};
use lsl_xdf::chunk::{MAGIC, Tag};
use lsl_xdf::decode::MAX_WHOLE_BYTES;
use lsl_xdf::{journal_path, repair};

use super::{header, unix_now};
use crate::history::{
    Catalog, Entry, Numbering, Segment, SegmentName, parse_index, read_chunk, scan,
};

/// Makes the folder, and keeps other programs out of it for as long as the file is held.
pub(super) fn claim(folder: &Path) -> Result<File, String> {
    let shown = folder.display();
    let failed = |error: io::Error| format!("history: cannot use {shown}: {error}");
    fs::create_dir_all(folder).map_err(failed)?;
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false);
    let lock = options.open(folder.join(LOCK)).map_err(failed)?;
    let taken = |_| format!("history: another relay keeps its history in {shown}");
    lsl_platform::disk::try_lock(&lock, true).map_err(taken)?;
    Ok(lock)
}

/// Looks at all segments. Those that a crash cut off are repaired; what cannot be read is left alone, and logged.
/// Also returns how far each numbering came that cannot be read, by its mark.
pub(super) fn open(
    folder: &Path,
    identities: Option<&Arc<Identities>>,
) -> Result<(Catalog, HashMap<u64, u64>), String> {
    let failed = |error| format!("history: cannot read {}: {error}", folder.display());
    let mut names = Vec::new();
    for file in fs::read_dir(folder).map_err(failed)? {
        let file = file.map_err(failed)?;
        // Links lead elsewhere, and opening a pipe would wait for its writer.
        if file.file_type().is_ok_and(|it| it.is_file()) {
            names.extend(file.file_name().to_str().and_then(SegmentName::parse));
        }
    }
    names.sort_by_key(|name| name.number);
    let (mut catalog, mut unread) = (Catalog::default(), HashMap::new());
    for name in names {
        let path = folder.join(name.to_string());
        let index = folder.join(name.index());
        if journal_path(&path).exists() && fs::metadata(&path).is_ok_and(|it| it.len() < HEAD) {
            // A crash came before its first bytes.
            remove(&[&index, &journal_path(&path), &path]);
            continue;
        }
        let input = prepare(&name, &path, identities);
        let content = input.and_then(|input| content(input, (&path, &index)));
        let content = content.inspect_err(|error| {
            if name.is_locked && identities.is_none() {
                // Status says so.
                note_unread(&read_index(&path, &index).unwrap_or_default(), &mut unread);
            } else {
                tracing::warn!("segment {name} of the history is not served: {error}");
            }
        });
        let content = content.unwrap_or_default();
        let arrivals = content.entries.iter().filter(|it| !it.is_header());
        let written = written(arrivals.map(|it| it.arrival).reduce(f64::max), &path);
        let bytes = length(&path) + length(&index);
        catalog.insert(Segment::closed(name.clone(), bytes, written));
        let mut streams = HashMap::new();
        let mut headers = content.headers.into_iter();
        for entry in &content.entries {
            if entry.is_header() {
                streams.insert(entry.stream, headers.next().flatten());
            } else if let Some(Some((numbering, info))) = streams.get(&entry.stream) {
                if entry.count > 0 {
                    catalog.add(name.number, (numbering, info), entry);
                } else {
                    catalog.note_end(numbering, entry.end());
                }
            }
        }
    }
    Ok((catalog, unread))
}

/// Notes what an index says of streams that cannot be read.
fn note_unread(index: &[u8], unread: &mut HashMap<u64, u64>) {
    let mut marks = HashMap::new();
    for entry in parse_index(index) {
        if entry.is_header() {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a mark, or none"
            )]
            marks.insert(entry.stream, entry.arrival as u64);
        } else if let Some(mark) = marks.get(&entry.stream).filter(|_| entry.count > 0) {
            let end = unread.entry(*mark).or_insert(0);
            *end = entry.end().max(*end);
        }
    }
}

/// Returns when a segment was written last, in the clock that is not set. Once, so that later steps of the other one
/// make nothing older; what comes from its future is new.
fn written(arrival: Option<f64>, path: &Path) -> f64 {
    let modified = || {
        let modified = fs::metadata(path).and_then(|it| it.modified()).ok()?;
        let since_1970 = modified.duration_since(UNIX_EPOCH).ok()?;
        Some(since_1970.as_secs_f64())
    };
    let age = arrival.or_else(modified).map_or(0.0, |at| unix_now() - at);
    local_clock() - age.max(0.0)
}

/// Removes files, of which some may not be there.
pub(super) fn remove(files: &[&Path]) {
    for file in files {
        match fs::remove_file(file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!("history: cannot remove {}: {error}", file.display());
            }
            _ => {}
        }
    }
}

/// What is in a segment.
#[derive(Debug, Default)]
pub(super) struct Content {
    pub(super) entries: Vec<Entry>,
    /// What each header among them says; `None` for one that is none of ours.
    headers: Vec<Option<header::Stream>>,
}

/// Opens a segment, which is repaired if a crash cut it off.
fn prepare(
    name: &SegmentName,
    path: &Path,
    identities: Option<&Arc<Identities>>,
) -> io::Result<Input> {
    if !name.is_locked && journal_path(path).exists() {
        let found = repair::repair_in_place(path).map_err(io::Error::other)?;
        let lost = found.dropped_bytes;
        tracing::info!(
            "segment {name} of the history was cut off and is repaired: {lost} bytes lost"
        );
    }
    Input::open(path, name.is_locked, identities)
}

/// Reads what is in a segment: what its index says, if that fits, else what is found.
pub(super) fn content(mut input: Input, (path, index_path): (&Path, &Path)) -> io::Result<Content> {
    if fs::symlink_metadata(index_path).is_ok_and(|it| !it.is_file()) {
        fs::remove_file(index_path)?;
    }
    let bytes = match read_index(path, index_path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        read => read?,
    };
    let indexed = indexed(&mut input, parse_index(&bytes));
    let content = if let Ok(Some(content)) = indexed {
        content
    } else {
        // It may lead behind the end of the segment.
        input.seek(MAGIC.len() as u64)?;
        Content::default().found(&mut input, MAGIC.len() as u64)?
    };
    let written: Vec<u8> = content.entries.iter().flat_map(Entry::to_bytes).collect();
    if written != bytes {
        fs::write(index_path, written)?;
    }
    Ok(content)
}

/// Reads the index of a segment, as far as it can be one: all that it names takes more room there.
pub(super) fn read_index(path: &Path, index_path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let index = File::open(index_path)?;
    index.take(length(path)).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn length(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |it| it.len())
}

/// Reads what an index says of a segment, and what comes behind that; from its beginning to its end, as what is
/// encrypted is. `None` if it does not fit.
fn indexed(input: &mut Input, mut entries: Vec<Entry>) -> io::Result<Option<Content>> {
    let Some(last) = entries.pop() else {
        return Ok(None);
    };
    let mut content = Content::default();
    for entry in entries {
        if entry.is_header() {
            input.seek(entry.offset)?;
            let Some((Tag::StreamHeader, header)) = read_chunk(input, MAX_WHOLE_BYTES as u64)?
            else {
                return Ok(None);
            };
            content.headers.push(header::read(&header));
        }
        content.entries.push(entry);
    }
    input.seek(last.offset)?;
    let begin = content.entries.len();
    let content = content.found(input, last.offset)?;
    Ok((content.entries.get(begin) == Some(&last)).then_some(content))
}

impl Content {
    /// Adds what the rest of a segment has, from the chunk at this offset on.
    fn found(mut self, input: &mut Input, offset: u64) -> io::Result<Self> {
        let mut headers = Vec::new();
        let mut found = scan(input, offset, |header| headers.push(header::read(header)))?;
        let entries = found.iter_mut().filter(|entry| entry.is_header());
        for (entry, header) in entries.zip(&headers) {
            entry.arrival = header.as_ref().map_or(0.0, |(it, _)| as_arrival(it));
        }
        self.entries.extend(found);
        self.headers.extend(headers);
        Ok(self)
    }
}

/// Returns what stands in the place of an arrival in the entry of a header.
#[expect(clippy::cast_precision_loss, reason = "it has 52 bits")]
pub(super) fn as_arrival(numbering: &Numbering) -> f64 {
    numbering.mark() as f64
}

/// Plain content of a segment.
#[derive(Debug)]
pub(super) enum Input {
    Plain(BufReader<File>),
    Locked {
        input: Box<Decrypting<File>>,
        /// Bytes that were read.
        at: u64,
        path: PathBuf,
        identities: Arc<Identities>,
    },
}

impl Input {
    /// Opens a segment.
    ///
    /// # Errors
    /// Those of the system; of an encrypted one, if no identity opens it.
    pub(super) fn open(
        path: &Path,
        is_locked: bool,
        identities: Option<&Arc<Identities>>,
    ) -> io::Result<Self> {
        if !is_locked {
            return Ok(Self::Plain(BufReader::new(File::open(path)?)));
        }
        let identities = identities.ok_or_else(|| io::Error::other("no identity opens it"))?;
        Ok(Self::Locked {
            input: decrypting(path, identities)?,
            at: 0,
            path: path.to_owned(),
            identities: Arc::clone(identities),
        })
    }

    /// Goes to the byte behind so many. What is encrypted is read up to there.
    ///
    /// # Errors
    /// Those of the system.
    pub(super) fn seek(&mut self, to: u64) -> io::Result<()> {
        match self {
            Self::Plain(file) => {
                let now = file.stream_position()?;
                match i64::try_from(to).ok().zip(i64::try_from(now).ok()) {
                    // Keeps what is in the buffer.
                    Some((to, now)) => file.seek_relative(to - now),
                    None => file.seek(SeekFrom::Start(to)).map(drop),
                }
            }
            Self::Locked {
                input,
                at,
                path,
                identities,
            } => {
                if to < *at {
                    *input = decrypting(path, identities)?;
                    *at = 0;
                }
                let skipped = io::copy(&mut input.by_ref().take(to - *at), &mut io::sink())?;
                *at += skipped;
                Ok(())
            }
        }
    }
}

fn decrypting(path: &Path, identities: &Identities) -> io::Result<Box<Decrypting<File>>> {
    let opened = Decrypting::new(File::open(path)?, identities, Ending::Tolerant);
    Ok(Box::new(opened.map_err(io::Error::other)?))
}

impl Read for Input {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(file) => file.read(buffer),
            Self::Locked { input, at, .. } => {
                let read = input.read(buffer)?;
                *at += read as u64;
                Ok(read)
            }
        }
    }
}

/// Bytes without which a file is no recording, encrypted or not.
const HEAD: u64 = MAGIC.len() as u64;

/// File that a relay has locked for as long as it keeps its history here.
const LOCK: &str = ".lsl.lock";
