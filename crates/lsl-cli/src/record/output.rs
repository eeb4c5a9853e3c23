//! What the writer writes into: a recording in a file, plain or encrypted, behind one interface.

use std::path::{Path, PathBuf};

use lsl_xdf::{
    FileHeader, FileSink, Gap, PendingSync, Recording, Result, Sink, StreamHeader, Synced, Values,
};

/// A recording, whatever it is written into. The methods are those of [`Recording`].
pub(super) trait Tape: Send {
    fn add_stream(&mut self, header: &StreamHeader, now: f64) -> Result<u32>;
    fn samples(&mut self, id: u32, stamps: &[f64], values: &Values, now: f64) -> Result<()>;
    fn clock_offset(&mut self, id: u32, time: f64, value: f64, now: f64) -> Result<()>;
    fn gap(&mut self, id: u32, gap: Gap) -> Result<()>;
    fn note(&mut self, id: u32, name: &str, text: &str) -> Result<()>;
    fn tick(&mut self, now: f64) -> Result<()>;
    fn begin_sync(&mut self, now: f64) -> Result<PendingSync>;
    fn end_sync(&mut self, synced: Synced) -> Result<()>;
    fn finish(&mut self, now: f64) -> Result<()>;
    /// Bytes of whole chunks.
    fn len(&self) -> u64;
    /// Timestamp of the last sample of a stream.
    fn last_stamp(&self, id: u32) -> Option<f64>;
    /// What is wrong with the journal.
    fn journal_trouble(&self) -> Option<&str>;
}

impl<S: Sink + Send> Tape for Recording<S> {
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

    fn begin_sync(&mut self, _now: f64) -> Result<PendingSync> {
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

/// How files are made.
#[derive(Debug, Clone, Default)]
pub(super) struct Maker {}

/// A file that was just made.
pub(super) struct Made {
    pub(super) tape: Box<dyn Tape>,
    /// Where a file went that had this name before.
    pub(super) moved: Option<PathBuf>,
}

impl Maker {
    /// Begins a file; never overwrites one.
    pub(super) fn make(&self, path: &Path, header: &FileHeader, now: f64) -> Result<Made> {
        let recording: Recording<FileSink> = Recording::create(path, header, now)?;
        let moved = recording.moved().map(Path::to_owned);
        let tape = Box::new(recording);
        Ok(Made { tape, moved })
    }
}
