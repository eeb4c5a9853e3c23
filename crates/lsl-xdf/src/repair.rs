//! Repair of damaged files. Whole chunks stay byte for byte, cut or damaged ones are removed, and missing
//! footers are made from the data. One pass surveys, one copies; memory grows with the damage, not with the
//! file. The journal is not needed. Spec: recorder §3.4.

mod findings;
mod survey;
mod suspect;

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::Path;

use crate::journal::JournalState;
use crate::place::{self, claim, journal_path};
use crate::{Error, Result, file_lock};

pub use findings::{Finding, StreamSummary, Survey};
pub use survey::survey;

/// Segment of the repaired file, in order.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Segment {
    /// Copied as it is in the damaged file.
    Keep(Range<u64>),
    /// Bytes that are written anew.
    Write(Vec<u8>),
}

impl Survey {
    /// Writes the repaired file. `input` must give the bytes that were surveyed, from the beginning.
    ///
    /// # Errors
    /// [`Error::Io`] of either side, also if the input has become shorter.
    pub fn write_repaired(&self, mut input: impl Read, mut output: impl Write) -> Result<()> {
        let mut at = 0;
        for segment in &self.segments {
            match segment {
                Segment::Keep(range) => {
                    copy(&mut input, &mut io::sink(), range.start - at)?;
                    copy(&mut input, &mut output, range.end - range.start)?;
                    at = range.end;
                }
                Segment::Write(bytes) => output
                    .write_all(bytes)
                    .map_err(Error::io("write the repaired recording"))?,
            }
        }
        output
            .flush()
            .map_err(Error::io("write the repaired recording"))
    }
}

fn copy(input: &mut impl Read, output: &mut impl Write, len: u64) -> Result<()> {
    let copied = io::copy(&mut input.take(len), output);
    let copied = copied.map_err(Error::io("copy the recording"))?;
    if copied < len {
        let error = io::Error::from(io::ErrorKind::UnexpectedEof);
        return Err(Error::io("read the recording to its end")(error));
    }
    Ok(())
}

/// Surveys a file and compares it with its journal.
///
/// # Errors
/// [`Error::Path`] of the system, [`Error::NotXdf`].
pub fn check(path: &Path) -> Result<Survey> {
    let file = File::open(path).map_err(Error::path("open", path))?;
    check_open(&file, path)
}

fn check_open(file: &File, path: &Path) -> Result<Survey> {
    let mut survey = survey(file)?;
    let journal = journal_path(path);
    let state = JournalState::read(&journal).map_err(Error::path("read", journal))?;
    survey.compare(state);
    Ok(survey)
}

/// Repairs a file in place, which is possible if it was cut off, perhaps with zeros behind the cut. The cut
/// chunk is removed, its readable part written anew, and missing footers are appended. An interruption does
/// no harm; the next repair goes on. The journal is deleted.
///
/// # Errors
/// [`Error::Argument`] if it is damaged elsewhere: [`repair_into`] another file. [`Error::Path`], with
/// [`io::ErrorKind::ResourceBusy`] in it for a file that is being recorded. [`Error::NotXdf`].
pub fn repair_in_place(path: &Path) -> Result<Survey> {
    // Held until the repair is done: a file with an active recorder must not be cut.
    let mut file = match file_lock::open_to_write(path) {
        // A whole file needs no write access.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            let survey = check(path)?;
            return if survey.is_whole() {
                Ok(survey)
            } else {
                Err(Error::path("repair", path)(error))
            };
        }
        file => file.map_err(Error::path("repair", path))?,
    };
    let survey = check_open(&file, path)?;
    let Some((keep, tail)) = survey.tail() else {
        let text = "it is damaged in its middle: repair it into another file".to_owned();
        return Err(Error::Argument(text));
    };
    if !survey
        .suspects
        .are_useless(&mut file)
        .map_err(Error::path("read", path))?
    {
        let lost = survey.dropped_bytes;
        let text = format!(
            "it was not just cut off, a repair in place would drop {lost} bytes: salvage it, or repair it \
             into another file"
        );
        return Err(Error::Argument(text));
    }
    if !survey.is_whole() {
        let mut write = || -> io::Result<()> {
            // A writer that does not ask for the lock.
            if file.metadata()?.len() != survey.len {
                return Err(io::Error::other("it changed while it was read"));
            }
            file.set_len(keep)?;
            file.seek(SeekFrom::Start(keep))?;
            file.write_all(&tail)?;
            file.sync_all()
        };
        write().map_err(Error::path("repair", path))?;
    }
    remove_journal(path)?;
    Ok(survey)
}

/// Repairs a file into a new one. Nothing is overwritten, see [`claim`], and the damaged file stays as it is.
///
/// # Errors
/// [`Error::Path`], [`Error::Io`], [`Error::NotXdf`].
pub fn repair_into(path: &Path, to: &Path) -> Result<Survey> {
    let survey = check(path)?;
    let claimed = claim(to)?;
    // If both have one name, `claim` has renamed the input.
    let from = match &claimed.moved {
        Some(moved) if !path.exists() || same(path, to) => moved.as_path(),
        _ => path,
    };
    let input = File::open(from).map_err(Error::path("open", from))?;
    let mut output = io::BufWriter::with_capacity(1 << 20, &claimed.file);
    survey.write_repaired(input, &mut output)?;
    drop(output);
    claimed.file.sync_all().map_err(Error::path("write", to))?;
    place::sync_folder_of(to).map_err(Error::path("write", to))?;
    Ok(survey)
}

fn same(one: &Path, other: &Path) -> bool {
    match (one.canonicalize(), other.canonicalize()) {
        (Ok(one), Ok(other)) => one == other,
        _ => false,
    }
}

fn remove_journal(path: &Path) -> Result<()> {
    let journal = journal_path(path);
    match std::fs::remove_file(&journal) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(Error::path("delete", journal)(error))
        }
        _ => Ok(()),
    }
}
