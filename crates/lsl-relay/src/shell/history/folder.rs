//! The folder of segments, as it is found at a start. Spec: relay §9.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use lsl_proto::StreamInfo;
use lsl_xdf::at_rest::{Decrypting, Ending, Identities};
use lsl_xdf::chunk::{MAGIC, Tag};
use lsl_xdf::decode::MAX_WHOLE_BYTES;
use lsl_xdf::{journal_path, repair};

use crate::history::{
    Catalog, ENTRY_BYTES, Entry, GENERATION_ELEMENT, Numbering, Segment, SegmentName, parse_index,
    read_chunk, scan,
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
pub(super) fn open(folder: &Path, identities: Option<&Arc<Identities>>) -> Result<Catalog, String> {
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
    let mut catalog = Catalog::default();
    for name in names {
        let path = folder.join(name.to_string());
        let index = folder.join(name.index());
        if journal_path(&path).exists() && fs::metadata(&path).is_ok_and(|it| it.len() < HEAD) {
            // A crash came before its first bytes.
            remove(&[&index, &journal_path(&path), &path]);
            continue;
        }
        let length = |path: &Path| fs::metadata(path).map_or(0, |it| it.len());
        let mut segment = Segment::closed(name.clone(), length(&path) + length(&index));
        let filled = fill(&mut segment, (&path, &index), identities, &mut catalog);
        if let Err(error) = filled {
            // Without a key all are, and status says so.
            if !name.is_locked || identities.is_some() {
                tracing::warn!("segment {name} of the history is not served: {error}");
            }
        }
        if !segment.has_samples() {
            // It goes in its turn.
            let written = fs::metadata(&path).and_then(|it| it.modified());
            let since_1970 = written
                .ok()
                .and_then(|it| it.duration_since(UNIX_EPOCH).ok());
            segment.note(since_1970.unwrap_or_default().as_secs_f64());
        }
        catalog.insert(segment);
    }
    Ok(catalog)
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

/// Fills in what is in a segment.
fn fill(
    segment: &mut Segment,
    (path, index_path): (&Path, &Path),
    identities: Option<&Arc<Identities>>,
    catalog: &mut Catalog,
) -> Result<(), Box<dyn std::error::Error>> {
    let name = segment.name.clone();
    if !name.is_locked && journal_path(path).exists() {
        let found = repair::repair_in_place(path)?;
        let lost = found.dropped_bytes;
        tracing::info!(
            "segment {name} of the history was cut off and is repaired: {lost} bytes lost"
        );
    }
    let mut input = Input::open(path, name.is_locked, identities)?;
    let mut numberings: HashMap<u32, Arc<Numbering>> = HashMap::new();
    for entry in &index(index_path, &mut input)? {
        if entry.count == 0 {
            if let Some((numbering, info)) = header(&mut input, entry)? {
                let numbering = Arc::new(numbering);
                catalog.know(&numbering, Arc::new(info));
                numberings.insert(entry.stream, numbering);
            }
        } else if let Some(numbering) = numberings.get(&entry.stream) {
            segment.add(numbering, entry);
        }
    }
    Ok(())
}

/// Returns the entries of a segment: those of its index, if that fits, else what is found.
fn index(path: &Path, input: &mut Input) -> io::Result<Vec<Entry>> {
    if fs::symlink_metadata(path).is_ok_and(|it| !it.is_file()) {
        fs::remove_file(path)?;
    }
    let bytes = match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        read => read?,
    };
    let mut entries = parse_index(&bytes);
    let known = entries.len();
    if let Some(last) = entries.pop() {
        input.seek(last.offset)?;
        let found = scan(&mut *input, last.offset)?;
        if found.first() == Some(&last) {
            entries.extend(found);
        } else {
            entries.clear();
        }
    }
    if entries.is_empty() {
        input.seek(MAGIC.len() as u64)?;
        entries = scan(&mut *input, MAGIC.len() as u64)?;
    }
    if entries.len() != known || bytes.len() != known * ENTRY_BYTES {
        let bytes: Vec<u8> = entries.iter().flat_map(Entry::to_bytes).collect();
        fs::write(path, bytes)?;
    }
    Ok(entries)
}

/// Reads the header of a stream. `None` if that is none of ours.
fn header(input: &mut Input, entry: &Entry) -> io::Result<Option<(Numbering, StreamInfo)>> {
    input.seek(entry.offset)?;
    let Some((Tag::StreamHeader, content)) = read_chunk(input, MAX_WHOLE_BYTES as u64)? else {
        return Ok(None);
    };
    let xml = content.get(4..).unwrap_or_default();
    Ok(StreamInfo::from_xml(xml).ok().and_then(numbering_of))
}

/// Takes the name of the numbering out of the description of a stream.
fn numbering_of(mut info: StreamInfo) -> Option<(Numbering, StreamInfo)> {
    let document = info.document_mut();
    let root = document.child(document.root(), "info")?;
    let element = document.child(root, GENERATION_ELEMENT)?;
    let text = document.first_child(element)?;
    let generation = String::from_utf8(document.text(text).to_vec()).ok()?;
    document.remove(element);
    let uid = String::from_utf8(info.uid_bytes().to_vec()).ok()?;
    let numbering = Numbering {
        uid: uid.into(),
        generation: generation.into(),
    };
    numbering.generation()?;
    Some((numbering, info))
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
