//! The bounded queue between the streams and the writer, and how writing goes.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender, TrySendError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lsl_xdf::{Gap, StreamHeader, Values};

/// Index of a stream in the session, independent of its number in the file.
pub(crate) type Slot = usize;

/// One job of the writing thread, in order.
#[derive(Debug)]
pub(crate) enum Job {
    /// A stream begins with this header.
    Stream {
        slot: Slot,
        header: Box<StreamHeader>,
    },
    Samples {
        slot: Slot,
        stamps: Vec<f64>,
        values: Values,
        /// Approximate bytes of the samples in memory.
        bytes: usize,
    },
    Offset {
        slot: Slot,
        time: f64,
        value: f64,
    },
    Gap {
        slot: Slot,
        gap: Gap,
    },
    /// An element of a footer.
    Note {
        slot: Slot,
        name: &'static str,
        text: String,
    },
    /// Ends the file; no job follows.
    Finish,
}

impl Job {
    fn bytes(&self) -> usize {
        match self {
            Self::Samples { bytes, .. } => *bytes,
            _ => 0,
        }
    }
}

/// Progress of writing, shared by all threads.
#[derive(Debug, Default)]
pub(crate) struct WriteProgress {
    waiting_bytes: AtomicUsize,
    bytes: AtomicU64,
    synced_bytes: AtomicU64,
    /// Samples that could not be written.
    unwritten: AtomicU64,
    has_failed: AtomicBool,
    /// A full disk is not waited for any more.
    is_ending: AtomicBool,
    files: Mutex<Vec<PathBuf>>,
    trouble: Mutex<Option<String>>,
}

impl WriteProgress {
    /// Bytes in whole chunks, of all files.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Returns the bytes of the files that would survive a loss of power.
    pub(crate) fn synced_bytes(&self) -> u64 {
        self.synced_bytes.load(Ordering::Relaxed)
    }

    /// Bytes that wait for the writer.
    pub(crate) fn waiting_bytes(&self) -> usize {
        self.waiting_bytes.load(Ordering::Relaxed)
    }

    /// Samples that could not be written.
    pub(crate) fn unwritten(&self) -> u64 {
        self.unwritten.load(Ordering::Relaxed)
    }

    /// Whether nothing can be written any more.
    pub(crate) fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Relaxed)
    }

    /// The file being written, and those before it.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        lock(&self.files).clone()
    }

    /// Returns the present fault of writing, if there is one.
    pub(crate) fn trouble(&self) -> Option<String> {
        lock(&self.trouble).clone()
    }

    /// Whether a full disk is not waited for any more.
    pub(crate) fn is_ending(&self) -> bool {
        self.is_ending.load(Ordering::Relaxed)
    }

    /// Ends waiting for a full disk.
    pub(crate) fn end(&self) {
        self.is_ending.store(true, Ordering::Relaxed);
    }

    /// A job does not wait any more.
    pub(crate) fn note_taken(&self, job: &Job) {
        self.waiting_bytes.fetch_sub(job.bytes(), Ordering::Relaxed);
    }

    /// A file is being written.
    pub(crate) fn note_file(&self, path: PathBuf) {
        lock(&self.files).push(path);
    }

    /// So many samples could not be written.
    pub(crate) fn note_unwritten(&self, count: u64) {
        self.unwritten.fetch_add(count, Ordering::Relaxed);
    }

    /// So many bytes are in whole chunks, of all files.
    pub(crate) fn note_bytes(&self, bytes: u64) {
        self.bytes.store(bytes, Ordering::Relaxed);
    }

    /// So many of these would survive a loss of power.
    pub(crate) fn note_synced(&self, bytes: u64) {
        self.synced_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Marks the writer as failed for good.
    pub(crate) fn note_failed(&self) {
        self.has_failed.store(true, Ordering::Relaxed);
    }

    pub(crate) fn set_trouble(&self, trouble: Option<&str>) {
        *lock(&self.trouble) = trouble.map(str::to_owned);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sending end of the writer's queue. Holds a bounded number of jobs and of bytes.
#[derive(Debug, Clone)]
pub(crate) struct Queue {
    sender: SyncSender<Job>,
    progress: Arc<WriteProgress>,
    max_bytes: usize,
}

/// Reason for which a job was not queued.
#[derive(Debug)]
pub(crate) enum Refused {
    /// There is no room now.
    Full(Job),
    /// The writer has ended already.
    Closed,
}

impl Queue {
    /// A queue and its other end.
    pub(crate) fn new() -> (Self, Receiver<Job>) {
        Self::with_room(MAX_BYTES)
    }

    /// One that holds so many bytes of samples, or one job.
    pub(crate) fn with_room(max_bytes: usize) -> (Self, Receiver<Job>) {
        let (sender, receiver) = mpsc::sync_channel(MAX_JOBS);
        let queue = Self {
            sender,
            progress: Arc::default(),
            max_bytes,
        };
        (queue, receiver)
    }

    pub(crate) fn progress(&self) -> &Arc<WriteProgress> {
        &self.progress
    }

    /// Hands a job over unless there is no room; never waits.
    pub(crate) fn try_push(&self, job: Job) -> Result<(), Refused> {
        let bytes = job.bytes();
        let waiting = &self.progress.waiting_bytes;
        // A single job may be larger than the limit.
        let before = waiting.fetch_add(bytes, Ordering::Relaxed);
        let refused = if bytes > 0 && before > 0 && before + bytes > self.max_bytes {
            Refused::Full(job)
        } else {
            match self.sender.try_send(job) {
                Ok(()) => return Ok(()),
                Err(TrySendError::Full(job)) => Refused::Full(job),
                Err(TrySendError::Disconnected(_)) => Refused::Closed,
            }
        };
        waiting.fetch_sub(bytes, Ordering::Relaxed);
        Err(refused)
    }

    /// Queues a job once there is room; false if the writer has ended.
    pub(crate) async fn push(&self, mut job: Job) -> bool {
        loop {
            job = match self.try_push(job) {
                Ok(()) => return true,
                Err(Refused::Closed) => return false,
                Err(Refused::Full(job)) => job,
            };
            tokio::time::sleep(ROOM_NAP).await;
        }
    }

    /// Works as [`push`](Self::push), blocking the calling thread.
    pub(crate) fn push_blocking(&self, job: Job) -> bool {
        self.sender.send(job).is_ok()
    }
}

/// Jobs that may wait. They are small or counted in bytes, too.
const MAX_JOBS: usize = 4096;
/// Bytes of samples that may wait for the writer.
const MAX_BYTES: usize = 64 << 20;
const ROOM_NAP: Duration = Duration::from_millis(10);
