//! The file of a segment, encrypted or not. Spec: relay §9.

use std::fs::File;
use std::io::{self, Write};

use lsl_xdf::at_rest::Encrypting;
use lsl_xdf::{FileSink, Sink, SyncJob};

/// File of a segment.
pub(super) enum SegmentSink {
    Plain(FileSink),
    Locked {
        output: Box<Encrypting<File>>,
        /// Handle of the same file, for all but its content.
        file: FileSink,
    },
}

impl SegmentSink {
    fn file(&mut self) -> &mut FileSink {
        match self {
            Self::Plain(file) | Self::Locked { file, .. } => file,
        }
    }

    /// Returns how many of the bytes that were written can be read.
    pub(super) fn readable_bytes(&self) -> u64 {
        match self {
            Self::Plain(_) => u64::MAX,
            Self::Locked { output, .. } => output.sealed_bytes(),
        }
    }

    /// Returns how many bytes are to be written until all is sealed.
    pub(super) fn bytes_to_seal(&self) -> usize {
        match self {
            Self::Plain(_) => 0,
            Self::Locked { output, .. } => output.bytes_to_seal(),
        }
    }
}

impl Sink for SegmentSink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(file) => file.write(bytes),
            Self::Locked { output, .. } => output.write(bytes),
        }
    }

    fn rewind(&mut self, len: u64) -> io::Result<()> {
        match self {
            Self::Plain(file) => file.rewind(len),
            // A call that failed took nothing.
            Self::Locked { output, .. } if output.accepted_bytes() == len => Ok(()),
            Self::Locked { .. } => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    fn reserve(&mut self, len: u64) -> io::Result<()> {
        // More than what encryption adds.
        self.file().reserve(len + len / 1024 + (16 << 10))
    }

    fn sync_job(&mut self) -> io::Result<SyncJob> {
        self.file().sync_job()
    }

    fn close(&mut self, len: u64) -> io::Result<()> {
        match self {
            Self::Plain(file) => file.close(len),
            Self::Locked { output, file } => {
                output.try_finish()?;
                file.close(output.output_bytes())
            }
        }
    }
}
