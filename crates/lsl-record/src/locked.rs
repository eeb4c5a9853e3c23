//! A recording that reaches the disk only encrypted (age v1).
//!
//! The format seals blocks of 64 KiB. When data is slow a block would take minutes to fill, and a crash
//! would cost them: a private chunk without meaning fills it every ten seconds, unless the file may
//! contain none.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, Write};
use std::sync::Arc;

use lsl_core::local_clock;
use lsl_xdf::at_rest::{self, Encrypting, Recipients};
use lsl_xdf::{FileSink, Sink, SyncJob};

/// A file to which bytes go encrypted.
#[derive(Debug)]
pub(crate) struct LockedSink {
    output: Encrypting<Arc<File>>,
    /// Handle of the same file, for all but its content.
    file: FileSink,
    /// Time since when data waits for its block to become full.
    waiting_since: Cell<Option<f64>>,
    /// Longest time that data may wait for its block.
    padding_secs: Option<f64>,
}

impl LockedSink {
    /// Writes into an empty file that these recipients can open. Data may wait so long for its block;
    /// `None` for as long as it takes.
    pub(crate) fn new(
        file: File,
        recipients: &Recipients,
        padding_secs: Option<f64>,
    ) -> at_rest::Result<Self> {
        let twin = file.try_clone()?;
        Ok(Self {
            output: Encrypting::new(Arc::new(file), recipients)?,
            file: FileSink::new(twin),
            waiting_since: Cell::new(None),
            padding_secs,
        })
    }

    /// Takes the number of bytes to write until everything is sealed, if data has waited for long.
    /// The caller writes them.
    pub(crate) fn take_due_bytes(&self, now: f64) -> usize {
        match self.waiting_since.get().zip(self.padding_secs) {
            Some((since, secs)) if now - since >= secs => {
                self.waiting_since.set(None);
                self.output.bytes_to_seal()
            }
            _ => 0,
        }
    }
}

impl Sink for LockedSink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let sealed = self.output.sealed_bytes();
        let written = self.output.write(bytes)?;
        if self.output.sealed_bytes() > sealed || self.waiting_since.get().is_none() {
            self.waiting_since.set(Some(local_clock()));
        }
        Ok(written)
    }

    fn rewind(&mut self, len: u64) -> io::Result<()> {
        // A call that failed took nothing.
        if self.output.accepted_bytes() == len {
            return Ok(());
        }
        Err(io::ErrorKind::Unsupported.into())
    }

    fn reserve(&mut self, len: u64) -> io::Result<()> {
        let tags = (len / BLOCK + 2) * TAG;
        self.file.reserve(len + tags + HEADER)
    }

    fn sync_job(&mut self) -> io::Result<SyncJob> {
        self.file.sync_job()
    }

    fn close(&mut self, _len: u64) -> io::Result<()> {
        self.output.try_finish()?;
        self.file.close(self.output.output_bytes())
    }
}

/// Blocks of the format, and what each has besides its content.
const BLOCK: u64 = 64 << 10;
const TAG: u64 = 16;
/// More than the header of any reasonable number of recipients takes.
const HEADER: u64 = 16 << 10;
/// Default time that data waits for its block.
pub const PADDING_SECS: f64 = 10.0;
