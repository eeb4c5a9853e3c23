//! Security events, as `tracing` events and as append-only JSON lines. Spec: LSS/1 §10.
//!
//! [`Audit::record`] makes an event safe to print, emits it (target `lsl_secure::audit`) and queues
//! it; a thread named `lsl-audit`, started with the first line, writes the file. Recording takes one
//! short lock that is never held over I/O. A forked child has a queue, a thread and a chain of its own.

mod event;
mod file;
mod limit;
mod text;
mod verify;

use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use lsl_platform::clock::{local_clock, utc_now};
use lsl_platform::process::ProcessId;
use tracing::Level;

pub use self::event::{Event, EventKind, Traffic};
pub use self::file::rotated;
pub use self::text::printable;
pub use self::verify::{Break, Verifier};

use self::event::Entry;
use self::file::{Place, Writer};
use self::limit::Limiter;
use crate::{Error, Result};

/// Where events go. Never blocks; a full queue counts what it drops. Safe from any thread, and in a
/// child after `fork`.
///
/// [`Audit::default`] emits `tracing` events only. Dropping it waits shortly for lines that are not
/// written yet; a program that ends without dropping it calls [`Audit::flush`].
#[derive(Debug, Default)]
pub struct Audit {
    place: Option<Place>,
    first: Generation,
}

/// The state of a process and of its children, each in a place of its own: a lock around one place
/// could be in the hands of another thread when a thread forks, and then never opens in the child.
#[derive(Debug)]
struct Generation {
    owner: ProcessId,
    shared: Arc<Shared>,
    next: OnceLock<Box<Self>>,
}

/// What recorders and the writing thread share.
#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// There is something to write, or the end has come.
    work: Condvar,
    /// Everything is written.
    idle: Condvar,
    dropped: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    queue: VecDeque<Entry>,
    limiter: Limiter,
    last_error: Option<String>,
    has_thread: bool,
    /// The thread has taken lines out of the queue and not written them all.
    is_writing: bool,
    is_closing: bool,
}

impl Audit {
    /// Also appends a line of JSON to `path` for each event; a new file is readable and writable by
    /// its owner alone. The file is rotated at 10 MiB, with `keep_days` also every day; with
    /// `keep_days` rotated files are deleted when their last line is older, 0 keeps them all.
    ///
    /// # Errors
    /// [`Error::File`] if the file cannot be opened, belongs to another user, or may be written by
    /// others.
    pub fn open(path: &Path, keep_days: u32) -> Result<Self> {
        Self::with_place(Place {
            path: path.to_owned(),
            keep_days,
            max_len_bytes: MAX_FILE_LEN,
        })
    }

    fn with_place(place: Place) -> Result<Self> {
        place.check().map_err(|error| {
            Error::file(
                place.path.clone(),
                format!(
                    "the audit file cannot be used: {error}; name one in a directory of the user who \
                     runs this program as audit_file"
                ),
            )
        })?;
        Ok(Self {
            place: Some(place),
            first: Generation::default(),
        })
    }

    /// Records an event: a `tracing` event (target `lsl_secure::audit`), and a line of the file.
    /// Failures of handshakes beyond 10 a second are counted, not written; so are refusals.
    pub fn record(&self, event: Event) {
        self.record_at(event, local_clock(), utc_now());
    }

    fn record_at(&self, event: Event, now: f64, utc: Duration) {
        // A stranger's failure at our outlet is not an error of this program's own doing, and must
        // not replace one in what the user is told.
        let is_own = event.role != Some(crate::Role::Outlet);
        let entry = Entry::new(event, utc);
        let shared = self.shared();
        let mut state = shared.lock();
        if is_own && entry.kind.is_error() {
            state.last_error = Some(entry.sentence());
        }
        let admitted = state.limiter.admit(entry, now);
        let waits = admitted.is_none();
        if let (Some(entry), Some(place)) = (&admitted, &self.place) {
            shared.queue(&mut state, entry.clone(), place);
        }
        drop(state);
        if let Some(entry) = admitted {
            emit(&entry);
        } else if waits {
            // The thread writes the last of a flood when the flood is over.
            shared.work.notify_one();
        }
    }

    /// Lines that did not fit into the queue or could not be written, in this process.
    pub fn dropped(&self) -> u64 {
        self.shared().dropped.load(Ordering::Relaxed)
    }

    /// The last error that this process met on its own behalf, as one sentence that is safe to print:
    /// what it wanted was refused or broke. Failures of strangers at our outlets do not count.
    pub fn last_error(&self) -> Option<String> {
        self.shared().lock().last_error.clone()
    }

    /// Waits until all lines recorded so far are written, at most `timeout`; says whether they are.
    pub fn flush(&self, timeout: Duration) -> bool {
        let shared = self.shared();
        let deadline = local_clock() + timeout.as_secs_f64();
        let held = shared.lock().limiter.release();
        held.iter().for_each(emit);
        let mut state = shared.lock();
        if let Some(place) = &self.place {
            for entry in held {
                shared.queue(&mut state, entry, place);
            }
        }
        while state.has_thread && (state.is_writing || !state.queue.is_empty()) {
            let left = deadline - local_clock();
            if left <= 0.0 {
                return false;
            }
            let nap = Duration::from_secs_f64(left.min(MAX_NAP_SECS));
            let woken = shared.idle.wait_timeout(state, nap);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    /// The state of the process that runs now.
    fn shared(&self) -> &Arc<Shared> {
        let mut generation = &self.first;
        while !generation.owner.is_current() {
            generation = generation.next.get_or_init(Box::default);
        }
        &generation.shared
    }
}

impl Drop for Audit {
    fn drop(&mut self) {
        self.flush(LAST_WORDS);
        let shared = self.shared();
        shared.lock().is_closing = true;
        shared.work.notify_all();
    }
}

impl Default for Generation {
    fn default() -> Self {
        Self {
            owner: ProcessId::current(),
            shared: Arc::default(),
            next: OnceLock::new(),
        }
    }
}

impl Shared {
    /// A panic elsewhere does not make a queue invalid.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn queue(self: &Arc<Self>, state: &mut State, entry: Entry, place: &Place) {
        if !state.has_thread {
            let shared = self.clone();
            let writer = Writer::new(place.clone());
            let thread = std::thread::Builder::new().name("lsl-audit".into());
            state.has_thread = thread.spawn(move || shared.serve(writer)).is_ok();
        }
        if state.has_thread && state.queue.len() < MAX_QUEUE {
            state.queue.push_back(entry);
            self.work.notify_one();
        } else {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The thread `lsl-audit`: writes what is queued until the end.
    fn serve(&self, mut writer: Writer) {
        let mut complained_at = None;
        let mut complain = |error: &io::Error| {
            let now = local_clock();
            if complained_at.is_none_or(|at| now - at >= COMPLAIN_EVERY_SECS) {
                complained_at = Some(now);
                let dropped = self.dropped.load(Ordering::Relaxed);
                tracing::warn!(target: TARGET, dropped, "cannot write the audit file: {error}");
            }
        };
        while let Some((batch, held)) = self.next_batch() {
            held.iter().for_each(emit);
            for entry in batch.into_iter().chain(held) {
                let dropped = self.dropped.load(Ordering::Relaxed);
                if let Err(error) = writer.write(&entry, dropped, utc_now()) {
                    self.dropped.fetch_add(1, Ordering::Relaxed);
                    complain(&error);
                }
                if let Some(error) = writer.take_trouble() {
                    complain(&error);
                }
            }
        }
    }

    /// Waits for lines: those queued, and those of floods that have ended. `None` at the end.
    fn next_batch(&self) -> Option<(VecDeque<Entry>, Vec<Entry>)> {
        let mut state = self.lock();
        state.is_writing = false;
        self.idle.notify_all();
        loop {
            let held = state.limiter.overdue(local_clock());
            if !state.queue.is_empty() || !held.is_empty() {
                state.is_writing = true;
                return Some((std::mem::take(&mut state.queue), held));
            }
            if state.is_closing {
                state.has_thread = false;
                return None;
            }
            state = if state.limiter.holds() {
                let nap = Duration::from_secs_f64(MAX_NAP_SECS);
                let woken = self.work.wait_timeout(state, nap);
                woken.unwrap_or_else(PoisonError::into_inner).0
            } else {
                let woken = self.work.wait(state);
                woken.unwrap_or_else(PoisonError::into_inner)
            };
        }
    }
}

/// The entry as a `tracing` event. Fields that it does not have stay out.
fn emit(entry: &Entry) {
    macro_rules! event {
        ($level:expr) => {
            tracing::event!(
                target: TARGET,
                $level,
                event = entry.event,
                sid = entry.sid,
                peer_addr = entry.peer_addr,
                peer_fp = entry.peer_fp,
                peer_name = entry.peer_name,
                claimed = entry.claimed,
                role = entry.role,
                suite = entry.suite,
                version = entry.version,
                policy = entry.policy,
                stream_uid = entry.stream_uid,
                code = entry.code,
                cause = entry.cause,
                bytes = entry.bytes,
                records = entry.records,
                duration_secs = entry.duration_secs,
                clean = entry.clean,
                suppressed = entry.suppressed,
                "{}",
                entry.detail.as_deref().unwrap_or(entry.event)
            )
        };
    }
    if entry.kind.is_warning() {
        event!(Level::WARN);
    } else {
        event!(Level::INFO);
    }
}

/// Of the `tracing` events.
const TARGET: &str = "lsl_secure::audit";
/// Lines that wait for the disk.
const MAX_QUEUE: usize = 1024;
/// A file of this length is rotated.
const MAX_FILE_LEN: u64 = 10 << 20;
/// Between two warnings that the file cannot be written.
const COMPLAIN_EVERY_SECS: f64 = 60.0;
/// How long dropping waits for the disk.
const LAST_WORDS: Duration = Duration::from_millis(500);
/// Sleeps are cut into pieces, so that no lost wake-up lasts.
const MAX_NAP_SECS: f64 = 1.0;

#[cfg(test)]
mod tests;
