//! Files behind one interface: a recording, plain or encrypted.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lsl_platform::calendar::rfc3339;
use lsl_platform::clock::utc_now;
use lsl_xdf::at_rest::Recipients;
use lsl_xdf::chunk::PADDING_TAG;
use lsl_xdf::{
    Error, FileHeader, FileSink, Gap, PendingSync, Recording, Result, Sink, StreamHeader, Synced,
    Values, claim,
};

use crate::locked::{LockedSink, PADDING_SECS};
use crate::signing::DeviceSigner;

/// A recording, whatever it is written into. The methods are those of [`Recording`].
pub(crate) trait RecordingSink: Send {
    fn add_stream(&mut self, header: &StreamHeader, now: f64) -> Result<u32>;
    fn samples(&mut self, id: u32, stamps: &[f64], values: &Values, now: f64) -> Result<()>;
    fn clock_offset(&mut self, id: u32, time: f64, value: f64, now: f64) -> Result<()>;
    fn gap(&mut self, id: u32, gap: Gap) -> Result<()>;
    fn note(&mut self, id: u32, name: &str, text: &str) -> Result<()>;
    fn tick(&mut self, now: f64) -> Result<()>;
    fn begin_sync(&mut self, now: f64) -> Result<PendingSync>;
    fn end_sync(&mut self, synced: Synced) -> Result<()>;
    fn finish(&mut self, now: f64) -> Result<()>;
    /// Returns the bytes in whole chunks.
    fn len(&self) -> u64;
    /// Timestamp of the last sample of a stream.
    fn last_stamp(&self, id: u32) -> Option<f64>;
    /// Returns the fault of the journal, if there is one.
    fn journal_trouble(&self) -> Option<&str>;
}

/// A sink that may hold back incomplete blocks.
pub(crate) trait Blocks: Sink + Send {
    /// Returns the bytes to write now to complete a block that waited too long.
    fn due_bytes(&self, now: f64) -> usize;
}

impl Blocks for FileSink {
    fn due_bytes(&self, _now: f64) -> usize {
        0
    }
}

impl Blocks for LockedSink {
    fn due_bytes(&self, now: f64) -> usize {
        self.take_due_bytes(now)
    }
}

impl<S: Blocks> RecordingSink for Recording<S> {
    fn add_stream(&mut self, header: &StreamHeader, now: f64) -> Result<u32> {
        self.add_stream(header, now)
    }

    fn samples(&mut self, id: u32, stamps: &[f64], values: &Values, now: f64) -> Result<()> {
        self.samples(id, stamps, values, now)
    }

    fn clock_offset(&mut self, id: u32, time: f64, value: f64, now: f64) -> Result<()> {
        self.clock_offset(id, time, value, now)
    }

    fn gap(&mut self, id: u32, gap: Gap) -> Result<()> {
        self.gap(id, gap)
    }

    fn note(&mut self, id: u32, name: &str, text: &str) -> Result<()> {
        self.note(id, name, text)
    }

    fn tick(&mut self, now: f64) -> Result<()> {
        self.tick(now)
    }

    fn begin_sync(&mut self, now: f64) -> Result<PendingSync> {
        let due = self.sink().due_bytes(now);
        if due > 0 {
            // A few bytes more than needed, since the chunk has a head of its own.
            self.private(PADDING_TAG, &vec![0; due], now)?;
        }
        self.begin_sync()
    }

    fn end_sync(&mut self, synced: Synced) -> Result<()> {
        self.end_sync(synced)
    }

    fn finish(&mut self, now: f64) -> Result<()> {
        self.finish(now)
    }

    fn len(&self) -> u64 {
        self.len()
    }

    fn last_stamp(&self, id: u32) -> Option<f64> {
        self.tally(id)?.last
    }

    fn journal_trouble(&self) -> Option<&str> {
        self.journal_trouble()
    }
}

/// Path and encryption of the files.
#[derive(Debug, Clone)]
pub struct Output {
    /// File to write; one that is there already is renamed, never overwritten.
    pub path: PathBuf,
    /// Recipients that can open the file; `None` writes it in plaintext.
    pub recipients: Option<Arc<Recipients>>,
    /// Longest time that encrypted data waits for its block to become full; `None`: as long as it takes.
    pub padding_secs: Option<f64>,
}

/// Returns the file header of a recording that begins now.
pub(crate) fn file_header() -> FileHeader {
    let mut header = FileHeader::new(&rfc3339(utc_now()).replace('Z', "+0000"));
    header.set("writer", concat!("lsl-rs ", env!("CARGO_PKG_VERSION")));
    header
}

/// A file that was just made.
pub(crate) struct Made {
    pub(crate) sink: Box<dyn RecordingSink>,
    /// Path to which an older file of this name was moved.
    pub(crate) moved: Option<PathBuf>,
}

impl Output {
    /// Creates an unencrypted output at `path`.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            recipients: None,
            padding_secs: Some(PADDING_SECS),
        }
    }

    /// Begins a file; never overwrites one.
    pub(crate) fn make(
        &self,
        path: &Path,
        header: &FileHeader,
        signer: Option<&DeviceSigner>,
        now: f64,
    ) -> Result<Made> {
        if let Some(recipients) = &self.recipients {
            let claimed = claim(path)?;
            let sink = LockedSink::new(claimed.file, recipients, self.padding_secs);
            let sink = sink.map_err(|error| Error::Path {
                doing: "encrypt",
                path: path.to_owned(),
                source: io::Error::other(error),
            })?;
            let mut recording = Recording::new(sink, header, now)?;
            recording.mark_unfinished(path);
            let sink = signed(recording, signer, now)?;
            let moved = claimed.moved;
            return Ok(Made { sink, moved });
        }
        let recording: Recording<FileSink> = Recording::create(path, header, now)?;
        let moved = recording.moved().map(Path::to_owned);
        let sink = signed(recording, signer, now)?;
        Ok(Made { sink, moved })
    }
}

fn signed<S: Blocks + 'static>(
    mut recording: Recording<S>,
    signer: Option<&DeviceSigner>,
    now: f64,
) -> Result<Box<dyn RecordingSink>> {
    if let Some(signer) = signer {
        recording.sign_with(Box::new(signer.clone()), now)?;
    }
    Ok(Box::new(recording))
}
