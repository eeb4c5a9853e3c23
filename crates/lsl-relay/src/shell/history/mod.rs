//! Keeps the past of streams on disk, and reads it. Spec: relay §9.
//!
//! A task takes samples from the taps of the streams that rules name, and hands them to one thread that owns the
//! segment in progress. Whoever reads does so on threads for that; no thread of the sockets waits for a disk.

mod collect;
mod folder;
mod header;
mod read;
mod sink;
mod writer;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use lsl_core::relay::{Past, ReadPast, ReplayFrom};
use lsl_core::{Generation, Position, StreamInfo, local_clock};
use lsl_xdf::at_rest::{Identities, Recipients};
use serde_json::{Value, json};
use tokio::sync::mpsc::{Sender, channel};
use tokio::sync::{Notify, Semaphore};
use tokio::task::spawn_blocking;

use crate::book::Uid;
use crate::config::HistoryConfig;
use crate::history::{Catalog, Limits, Numbering, Range};

pub(super) use collect::collect;
use read::PastReader;
use writer::Job;

/// What is kept on disk.
#[derive(Debug)]
pub(super) struct History {
    folder: PathBuf,
    /// For whom segments are encrypted.
    recipients: Option<Recipients>,
    /// What opens encrypted segments.
    identities: Option<Arc<Identities>>,
    /// How far numberings came that cannot be read, by their marks, when the folder was opened.
    unread: HashMap<u64, u64>,
    limits: Mutex<Limits>,
    state: Mutex<State>,
    /// Of those that read at the same time.
    places: Arc<Semaphore>,
    /// Told when something was written, or will not be.
    written: Notify,
    /// Samples that were not written.
    dropped: AtomicU64,
    /// Told to end: once all that is there was written.
    stop: Notify,
    jobs: Mutex<Option<Sender<Job>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// Keeps other programs out of the folder.
    _lock: std::fs::File,
}

#[derive(Debug, Default)]
struct State {
    catalog: Catalog,
    /// Numberings of which more may come.
    live: HashMap<Arc<Numbering>, Live>,
    /// Reason for which nothing is written at present.
    stopped: Option<String>,
}

/// Where more of a numbering comes from.
#[derive(Debug, Default)]
struct Live {
    outlets: usize,
    /// Chunks between their outlet and a place where they can be read.
    queued: usize,
}

impl State {
    /// Changes where more of a numbering comes from.
    fn change_live(&mut self, numbering: &Arc<Numbering>, change: impl FnOnce(&mut Live)) {
        let live = self.live.entry(Arc::clone(numbering)).or_default();
        change(live);
        if live.outlets == 0 && live.queued == 0 {
            self.live.remove(numbering);
        }
    }
}

/// A stream that only history has.
#[derive(Debug)]
pub(super) struct EndedStream {
    pub(super) info: Arc<StreamInfo>,
    /// Position behind its last sample.
    pub(super) end: Position,
    /// When its last samples came, in seconds since 1970.
    pub(super) ended: f64,
}

impl History {
    /// Opens the folder, mends what a crash left, and starts the thread that writes.
    ///
    /// # Errors
    /// A text for people.
    pub(super) fn open(config: &HistoryConfig) -> Result<Arc<Self>, String> {
        let mut recipients = None;
        if !config.recipients.is_empty() {
            let all = recipients.insert(Recipients::new());
            for recipient in &config.recipients {
                let added = all.add("[history] recipients", recipient);
                added.map_err(|error| error.to_string())?;
            }
        }
        let mut identities = None;
        if let Some(file) = &config.identity {
            let mut all = Identities::new();
            let added = all.add_file(file, &mut |_| None);
            added.map_err(|error| error.to_string())?;
            identities = Some(Arc::new(all));
        }
        let lock = folder::claim(&config.dir)?;
        let (catalog, unread) = folder::open(&config.dir, identities.as_ref())?;
        let (jobs, todo) = channel(JOBS);
        let history = Arc::new(Self {
            folder: config.dir.clone(),
            recipients,
            identities,
            unread,
            limits: Mutex::new(limits(config)),
            state: Mutex::new(State {
                catalog,
                ..State::default()
            }),
            places: Arc::new(Semaphore::new(READERS)),
            written: Notify::new(),
            dropped: AtomicU64::new(0),
            stop: Notify::new(),
            jobs: Mutex::new(Some(jobs)),
            thread: Mutex::default(),
            _lock: lock,
        });
        let writing = Arc::clone(&history);
        let thread = std::thread::Builder::new().name("lsl-history".to_owned());
        let thread = thread.spawn(move || writer::run(&writing, todo));
        let failed = |error| format!("history: no thread: {error}");
        *lock_of(&history.thread) = Some(thread.map_err(failed)?);
        Ok(history)
    }

    /// Puts other limits in the place of those in use.
    pub(super) fn set_limits(&self, config: &HistoryConfig) {
        *lock_of(&self.limits) = limits(config);
    }

    fn limits(&self) -> Limits {
        *lock_of(&self.limits)
    }

    /// Whether encrypted segments can be read.
    fn reads_locked(&self) -> bool {
        self.identities.is_some()
    }

    fn is_write_only(&self) -> bool {
        self.recipients.is_some() && !self.reads_locked()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock_of(&self.state)
    }

    /// Notes that a chunk is about to be taken from its outlet, which may let go of it then.
    fn expect(&self, numbering: &Arc<Numbering>) {
        self.state().change_live(numbering, |live| live.queued += 1);
    }

    /// Notes that such a chunk can be read, or is lost.
    fn settle(&self, numbering: &Arc<Numbering>) {
        let settle = |live: &mut Live| live.queued = live.queued.saturating_sub(1);
        self.state().change_live(numbering, settle);
        self.written.notify_waiters();
    }

    /// Counts samples of such a chunk that are lost.
    fn lose(&self, numbering: &Arc<Numbering>, samples: u64) {
        self.dropped.fetch_add(samples, Ordering::Relaxed);
        self.settle(numbering);
    }

    /// Returns the number from which on samples are still on their way to the disk, if any are.
    fn queued_from(&self, numbering: &Numbering) -> Option<u64> {
        let state = self.state();
        state.live.get(numbering).filter(|live| live.queued > 0)?;
        Some(state.catalog.range(numbering, true).map_or(0, |it| it.end))
    }

    /// Returns the samples that came before those that an outlet retains, for a reader of this numbering.
    pub(super) async fn past(
        self: &Arc<Self>,
        uid: &Uid,
        generation: &Generation,
        from: &ReplayFrom,
    ) -> Option<Past> {
        let numbering = Numbering::new(Uid::clone(uid), generation);
        let range = loop {
            let written = self.written.notified();
            let is_queued = self.queued_from(&numbering) == Some(0) && !self.is_write_only();
            match self.range(&numbering) {
                None if is_queued => written.await,
                range => break range?,
            }
        };
        let since = match *from {
            #[expect(clippy::cast_precision_loss, reason = "nobody asks for centuries")]
            ReplayFrom::LastMillis(millis) => {
                let at = unix_now() - millis as f64 / 1e3;
                let (history, numbering) = (Arc::clone(self), numbering.clone());
                let looking = spawn_blocking(move || read::since(&history, &numbering, at));
                looking.await.ok()?
            }
            _ => None,
        };
        Some(Past {
            oldest: range.first,
            since,
            reader: Box::new(PastReader::new(Arc::clone(self), numbering)),
        })
    }

    fn range(&self, numbering: &Numbering) -> Option<Range> {
        let reads_locked = self.reads_locked();
        self.state().catalog.range(numbering, reads_locked)
    }

    /// Returns what reads one numbering, as far as it is kept.
    pub(super) fn reader(
        self: &Arc<Self>,
        uid: &Uid,
        generation: &Generation,
    ) -> impl ReadPast + use<> {
        let numbering = Numbering::new(Uid::clone(uid), generation);
        PastReader::new(Arc::clone(self), numbering)
    }

    /// Returns the numbers of one numbering that are kept.
    pub(super) fn numbers(&self, uid: &Uid, generation: &Generation) -> Option<(u64, u64)> {
        let range = self.range(&Numbering::new(Uid::clone(uid), generation))?;
        Some((range.first, range.end))
    }

    /// Returns the position behind the last sample that is kept of a stream.
    pub(super) fn position(&self, uid: &Uid) -> Option<Position> {
        let state = self.state();
        let Some((numbering, _)) = state.catalog.newest(uid) else {
            // Sources that number their samples do it under their uid.
            let generation = Generation::parse(uid.as_bytes())?;
            let numbering = Numbering::new(Uid::clone(uid), &generation);
            let next = *self.unread.get(&numbering.mark())?;
            return Some(Position { generation, next });
        };
        // It is written whether it can be read or not.
        let range = state.catalog.range(numbering, true)?;
        Some(Position {
            generation: numbering.generation()?,
            next: range.end,
        })
    }

    /// Returns a stream of which no more comes.
    pub(super) fn ended(&self, uid: &Uid) -> Option<EndedStream> {
        let state = self.state();
        let (numbering, info) = state.catalog.newest(uid)?;
        let range = state.catalog.range(numbering, self.reads_locked())?;
        let end = Position {
            generation: numbering.generation()?,
            // What was lost behind the last that is kept is told, too.
            next: state.catalog.end(uid)?,
        };
        (!state.live.contains_key(numbering)).then(|| EndedStream {
            info: Arc::clone(info),
            end,
            ended: range.arrived.1,
        })
    }

    /// Returns the uids of all streams of which something is kept.
    pub(super) fn uids(&self) -> Vec<Uid> {
        let state = self.state();
        let streams = state.catalog.streams();
        streams
            .map(|(numbering, _)| Uid::clone(&numbering.uid))
            .collect()
    }

    /// Returns what is kept, for status.
    pub(super) fn status(&self) -> Value {
        let state = self.state();
        let (stored, open_bytes) = state.catalog.stored();
        let bytes = stored.iter().fold(open_bytes, |sum, it| sum + it.bytes);
        json!({
            "dir": self.folder.display().to_string(),
            "segments": state.catalog.len(),
            "bytes": bytes,
            "dropped": self.dropped.load(Ordering::Relaxed),
            "stopped": state.stopped,
            "write_only": self.is_write_only(),
        })
    }

    /// Has all that is there written, and finishes the segment: for 5 s at the most.
    pub(super) fn end(&self) {
        // One that waits is told; one that does not, at its next turn.
        self.stop.notify_one();
        let Some(thread) = lock_of(&self.thread).take() else {
            return;
        };
        let until = local_clock() + END_LIMIT_SECS;
        while local_clock() < until && !thread.is_finished() {
            std::thread::sleep(LOOK);
        }
        if thread.is_finished() {
            // It does not panic.
            let _ = thread.join();
        } else {
            tracing::warn!("the last seconds of the history are not written: the disk is too slow");
        }
    }
}

fn limits(config: &HistoryConfig) -> Limits {
    Limits {
        max_age_secs: config.max_age_secs,
        max_bytes: config.max_bytes,
        min_free_bytes: config.min_free_bytes,
    }
}

fn lock_of<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the wall clock time in seconds since 1970: what people ask by, and what outlives a start of the machine.
fn unix_now() -> f64 {
    lsl_platform::clock::utc_now().as_secs_f64()
}

/// Jobs that wait for the disk, each of 64 KiB of samples or one larger sample. What finds no place stays in its
/// outlet.
const JOBS: usize = 32;

/// Readers of the past that are served at a time. Spec: relay §9.
const READERS: usize = 16;

const END_LIMIT_SECS: f64 = 5.0;
const LOOK: Duration = Duration::from_millis(2);

#[cfg(test)]
mod tests;
