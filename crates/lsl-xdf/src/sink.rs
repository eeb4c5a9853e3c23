//! Outputs of a recording: a file, or anything that takes bytes, such as an encrypting writer. Knows
//! nothing of chunks.

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::sync::Arc;

use lsl_platform::disk::reserve;

use crate::file_lock;

/// Rest of a [`Sink::sync_job`]. May block, on any thread.
pub type SyncJob = Box<dyn FnOnce() -> io::Result<()> + Send>;

/// Output that takes bytes in order and can, perhaps, take them back.
pub trait Sink {
    /// Appends some of the bytes and returns their number, as [`Write::write`].
    ///
    /// # Errors
    /// Those of the system. Any part of the bytes may be written then.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize>;

    /// Removes everything behind the first `len` bytes.
    ///
    /// # Errors
    /// [`io::ErrorKind::Unsupported`] where bytes cannot be taken back.
    fn rewind(&mut self, len: u64) -> io::Result<()>;

    /// Reserves room for `len` bytes in all, if the system can.
    ///
    /// # Errors
    /// [`io::ErrorKind::StorageFull`] and alike without that room. Nothing has changed then, and earlier
    /// reservations hold.
    fn reserve(&mut self, len: u64) -> io::Result<()>;

    /// Begins a sync: the bytes written survive a loss of power once the job is done.
    ///
    /// # Errors
    /// Those of the system.
    fn sync_job(&mut self) -> io::Result<SyncJob>;

    /// Ends the output at `len` bytes and releases the room reserved behind them.
    ///
    /// # Errors
    /// Those of the system.
    fn close(&mut self, len: u64) -> io::Result<()>;
}

/// Sink into a file. Room is reserved in steps, of 64 MiB if nothing else is said, where the file system can: a full
/// disk is noticed before a chunk, not in its middle. A lock on the file, as [`claim`] takes it, ends when the sink is
/// closed.
///
/// [`claim`]: crate::claim
#[derive(Debug)]
pub struct FileSink {
    file: Arc<File>,
    /// Length in bytes for which room is reserved.
    reserved: u64,
    can_reserve: bool,
    step: u64,
}

/// Most bytes of room reserved at once.
const RESERVE_STEP: u64 = 64 << 20;

impl FileSink {
    /// Creates a sink for an empty file.
    pub fn new(file: File) -> Self {
        Self {
            file: Arc::new(file),
            reserved: 0,
            can_reserve: true,
            step: RESERVE_STEP,
        }
    }

    /// Reserves room in steps of so many bytes, at most 64 MiB: for small files, and many.
    #[must_use]
    pub fn reserving(self, step: u64) -> Self {
        let step = step.clamp(1, RESERVE_STEP);
        Self { step, ..self }
    }

    /// Borrows the file of the sink.
    pub fn file(&self) -> &File {
        &self.file
    }
}

impl Sink for FileSink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (&*self.file).write(bytes)
    }

    fn rewind(&mut self, len: u64) -> io::Result<()> {
        self.file.set_len(len)?;
        // This released the reserved room.
        self.reserved = len;
        (&*self.file).seek(SeekFrom::Start(len)).map(drop)
    }

    fn reserve(&mut self, len: u64) -> io::Result<()> {
        if !self.can_reserve || len <= self.reserved {
            return Ok(());
        }
        let generous = len.next_multiple_of(self.step);
        let done = match reserve(&self.file, self.reserved, generous) {
            Err(error) if error.kind() == io::ErrorKind::StorageFull => {
                reserve(&self.file, self.reserved, len).map(|()| len)
            }
            done => done.map(|()| generous),
        };
        match done {
            Ok(reserved) => self.reserved = reserved,
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::StorageFull
                        | io::ErrorKind::QuotaExceeded
                        | io::ErrorKind::FileTooLarge
                ) =>
            {
                return Err(error);
            }
            // Not every file system can. Writing reports other errors.
            Err(_) => self.can_reserve = false,
        }
        Ok(())
    }

    fn sync_job(&mut self) -> io::Result<SyncJob> {
        let file = Arc::clone(&self.file);
        Ok(Box::new(move || file.sync_data()))
    }

    fn close(&mut self, len: u64) -> io::Result<()> {
        self.file.set_len(len)?;
        self.file.sync_all()?;
        file_lock::release(&self.file);
        Ok(())
    }
}

/// Sink into any writer. It cannot take bytes back: after an error in the middle of a chunk the recording
/// has ended. Syncing flushes.
#[derive(Debug)]
pub struct PipeSink<W>(pub W);

impl<W: Write> Sink for PipeSink<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn rewind(&mut self, _len: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn reserve(&mut self, _len: u64) -> io::Result<()> {
        Ok(())
    }

    fn sync_job(&mut self) -> io::Result<SyncJob> {
        self.0.flush()?;
        Ok(Box::new(|| Ok(())))
    }

    fn close(&mut self, _len: u64) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    #[test]
    fn room_is_reserved_in_steps_of_the_size_that_is_asked_for() {
        let path = std::env::temp_dir().join(format!("lsl-sink-{}", std::process::id()));
        let file = File::create(&path).expect("a file");
        std::fs::remove_file(&path).expect("removed");
        let mut sink = FileSink::new(file).reserving(64 << 10);
        for len in [1, 64 << 10, (64 << 10) + 1] {
            sink.reserve(len).expect("room");
            let bytes = sink.file().metadata().expect("a file").blocks() * 512;
            assert!(bytes < 1 << 20, "{bytes}");
        }
    }
}
