//! One stream of River on its way into files. Spec: relay §12.2.
//!
//! What waits in memory is in Redis as well, until a file with it is on the disk: keys go only then. After a crash the
//! last file says where to go on.

use std::fs;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use lsl_core::local_clock;
use lsl_relay::engine::river::{EntryId, Metadata, Turn, generation_of_lsl};
use lsl_relay::engine::{EngineError, ErrorKind as Kind};
use lsl_relay::shell::{RiverClient, RiverSample, RiverStream};
use serde_json::{Map, Value};

use super::table;
use crate::failure::{Failure, Outcome};

/// A stream that is taken into a folder of its own.
pub(super) struct Ingest {
    name: String,
    folder: PathBuf,
    /// Closed after an error.
    stream: Option<RiverStream>,
    metadata: Metadata,
    rows: Vec<RiverSample>,
    /// Bytes of rows that wait.
    pub(super) bytes: usize,
    /// When the first row that waits came.
    since: f64,
    /// Number of the next file.
    number: u32,
    /// Place and number of the last row, and number of the last in files.
    last: Option<(EntryId, u64)>,
    kept: Option<u64>,
    /// When something came last.
    came_at: f64,
    pub(super) stage: Stage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// More may come.
    Open,
    /// All of it is in one file; it is to be removed from Redis.
    Complete,
}

impl Ingest {
    /// Goes on with a stream, or begins with it; `None` if it is gone.
    pub(super) fn open(client: &RiverClient, folder: PathBuf, name: &str) -> Outcome<Option<Self>> {
        fs::create_dir_all(&folder)
            .map_err(|error| Failure::from(error).context(&folder.display().to_string()))?;
        let whole = folder.join(WHOLE);
        let parts = parts(&folder)?;
        let is_whole = whole.exists();
        let last = match (is_whole, parts.last()) {
            (true, _) => Some(table::last_of(&whole)?),
            (false, Some(part)) => Some(table::last_of(part)?),
            (false, None) => None,
        };
        let Some(mut stream) = client.open(name, last).map_err(failed)? else {
            return Ok(None);
        };
        if last.is_some() {
            is_the_same(&folder, name, stream.metadata())?;
        }
        if is_whole {
            // We were interrupted before we removed what became of these.
            let mut more = Vec::new();
            client.read(&mut stream, &mut more).map_err(failed)?;
            if !more.is_empty() {
                return Err(Failure::Runtime(format!(
                    "{} is complete, and there is another stream of this name; move it away",
                    whole.display()
                )));
            }
            remove(&parts)?;
        }
        let number = parts.iter().filter_map(|part| number_of(part)).max();
        let ingest = Self {
            name: name.to_owned(),
            folder,
            metadata: stream.metadata().clone(),
            stream: Some(stream),
            rows: Vec::new(),
            bytes: 0,
            since: 0.0,
            number: number.map_or(0, |number| number + 1),
            last,
            kept: last.map(|(_, index)| index),
            came_at: local_clock(),
            stage: if is_whole {
                Stage::Complete
            } else {
                Stage::Open
            },
        };
        ingest.describe()?;
        Ok(Some(ingest))
    }

    /// Reads what is there, and writes what is due: everything, if `all` is, or if more than `room` bytes wait. Returns
    /// whether something came.
    pub(super) fn step(&mut self, client: &RiverClient, all: bool, room: usize) -> Outcome<bool> {
        if self.stage == Stage::Complete {
            return Ok(false);
        }
        if self.stream.is_none() {
            self.stream = client.open(&self.name, self.last).map_err(failed)?;
            let said = self.stream.as_ref().map(RiverStream::metadata);
            if said.is_some_and(|it| {
                !is_one(
                    &self.name,
                    self.metadata.initialized_at_us,
                    it.initialized_at_us,
                )
            }) {
                self.flush()?;
                return Err(another(&self.folder));
            }
        }
        let Some(mut stream) = self.stream.take() else {
            return self.removed();
        };
        let first = self.rows.len();
        let turn = client.read(&mut stream, &mut self.rows).map_err(failed)?;
        self.stream = Some(stream);
        let schema = &self.metadata.schema;
        let came = self.rows.get(first..).unwrap_or_default();
        if let Some(row) = came
            .iter()
            .find(|row| !schema.is_variable() && row.val.len() != schema.sample_len())
        {
            let text = format!("{}: sample {} has another length", self.name, row.index);
            return Err(Failure::Runtime(text));
        }
        if first == 0 && !came.is_empty() {
            self.since = local_clock();
        }
        if let Some(last) = came.last() {
            self.last = Some((last.id, last.index));
            self.came_at = local_clock();
        }
        self.bytes += came
            .iter()
            .map(|row| row.val.len() + ROW_BYTES)
            .sum::<usize>();
        let has_come = !came.is_empty();
        let is_due =
            self.bytes >= room.min(GROUP_BYTES) || local_clock() - self.since >= GROUP_SECS;
        if turn == Turn::Over || is_due || all {
            self.flush()?;
        }
        match turn {
            Turn::Over => self.complete()?,
            Turn::Gone => return self.removed(),
            Turn::More | Turn::Wait | Turn::Again => {}
        }
        Ok(has_come || turn == Turn::More)
    }

    fn removed(&mut self) -> Outcome<bool> {
        self.flush()?;
        let text = "somebody removed it before it ended";
        Err(Failure::Runtime(text.to_owned()))
    }

    /// Removes from Redis what is in files and old enough; a stream that nobody writes is ended after `stale_secs`.
    /// Returns whether all of it is removed.
    pub(super) fn tidy(&mut self, client: &RiverClient, stale_secs: f64) -> Outcome<bool> {
        let now = client.now().map_err(failed)?;
        let until = EntryId::before(now - LOOK_BACK_SECS);
        let trim = |kept| client.trim(&self.name, until, kept).map_err(failed);
        match (self.stage, self.kept) {
            // It may have ended without a sample.
            (Stage::Complete, kept) => return trim(kept.unwrap_or_default()),
            (Stage::Open, Some(kept)) => drop(trim(kept)?),
            (Stage::Open, None) => {}
        }
        if stale_secs > 0.0
            && local_clock() - self.came_at >= stale_secs
            && let (Some(stream), Some((id, index))) = (&self.stream, self.last)
        {
            let last = RiverSample {
                id,
                index,
                val: Vec::new(),
            };
            client.end(stream, &self.name, &last).map_err(failed)?;
            self.came_at = local_clock();
        }
        Ok(false)
    }

    /// Writes what waits.
    pub(super) fn flush(&mut self) -> Outcome {
        let Some(last) = self.rows.last() else {
            return Ok(());
        };
        let kept = last.index;
        let path = self
            .folder
            .join(format!("{PART}{:010}.parquet", self.number));
        table::write(&path, &self.metadata.schema, &self.rows)?;
        self.number += 1;
        self.kept = Some(kept);
        self.rows.clear();
        self.bytes = 0;
        Ok(())
    }

    fn complete(&mut self) -> Outcome {
        let parts = parts(&self.folder)?;
        if !parts.is_empty() {
            table::merge(&self.folder.join(WHOLE), &self.metadata.schema, &parts)?;
            remove(&parts)?;
        }
        self.stage = Stage::Complete;
        self.describe()
    }

    /// Writes what is said of the stream.
    fn describe(&self) -> Outcome {
        let said = self.metadata.user.iter();
        let mut facts: Map<String, Value> = said
            .map(|(name, text)| (name.clone(), text.clone().into()))
            .collect();
        let ahead = self.metadata.local_minus_server_us.unwrap_or_default();
        let status = match self.stage {
            Stage::Open => "IN_PROGRESS",
            Stage::Complete => "COMPLETED",
        };
        for (name, text) in [
            ("stream_name", self.name.clone()),
            ("local_minus_server_clock_us", ahead.to_string()),
            (
                "initialized_at_us",
                self.metadata.initialized_at_us.to_string(),
            ),
            ("ingestion_status", status.to_owned()),
        ] {
            facts.insert(name.to_owned(), text.into());
        }
        let text = format!("{:#}\n", Value::Object(facts));
        table::new_file(&self.folder.join(DESCRIBED), |mut out| {
            out.write_all(text.as_bytes())?;
            Ok(out)
        })
    }
}

/// Fails if what is in a folder is of another stream, which had the same name: what comes would be taken for its rest.
fn is_the_same(folder: &Path, name: &str, metadata: &Metadata) -> Outcome {
    let said = fs::read(folder.join(DESCRIBED)).ok();
    let said = said.and_then(|said| serde_json::from_slice::<Value>(&said).ok());
    let begun = said.as_ref().and_then(|it| it.get("initialized_at_us"));
    let begun = begun.and_then(|it| it.as_str()?.parse().ok());
    match begun {
        Some(begun) if !is_one(name, begun, metadata.initialized_at_us) => Err(another(folder)),
        _ => Ok(()),
    }
}

/// Whether streams of one name that were made at these times are one: that of LSL which a relay describes anew after a
/// server lost all of it is.
fn is_one(name: &str, begun: i64, again: i64) -> bool {
    begun == again || generation_of_lsl(name).is_some()
}

fn another(folder: &Path) -> Failure {
    Failure::Runtime(format!(
        "{} has another stream of this name; move it away",
        folder.display()
    ))
}

/// Returns the files of a stream that is not complete, in their order.
fn parts(folder: &Path) -> Outcome<Vec<PathBuf>> {
    let named = |error| Failure::from(error).context(&folder.display().to_string());
    let mut parts = Vec::new();
    for entry in fs::read_dir(folder).map_err(named)? {
        let path = entry.map_err(named)?.path();
        if number_of(&path).is_some() {
            parts.push(path);
        }
    }
    parts.sort();
    Ok(parts)
}

fn number_of(path: &Path) -> Option<u32> {
    let name = path.file_name()?.to_str()?;
    let number = name.strip_prefix(PART)?.strip_suffix(".parquet")?;
    number.parse().ok()
}

fn remove(parts: &[PathBuf]) -> Outcome {
    for part in parts {
        match fs::remove_file(part) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(Failure::from(error).context(&part.display().to_string()));
            }
            _ => {}
        }
    }
    Ok(())
}

fn failed(EngineError { kind, text }: EngineError) -> Failure {
    match kind {
        // It stays so, and keeps no other stream waiting.
        Kind::Corrupt | Kind::Conflict => Failure::Runtime(text),
        Kind::Retry | Kind::Full | Kind::Denied => Failure::Lost(text),
    }
}

const WHOLE: &str = "data.parquet";

const DESCRIBED: &str = "metadata.json";

const PART: &str = "data_";

/// Bytes of rows that make a file, and the time in seconds after which fewer do.
const GROUP_BYTES: usize = 64 << 20;
const GROUP_SECS: f64 = 600.0;

/// What a row takes beside its value.
const ROW_BYTES: usize = size_of::<RiverSample>();

/// Time in seconds for which readers find in Redis what is in files already.
const LOOK_BACK_SECS: f64 = 60.0;
