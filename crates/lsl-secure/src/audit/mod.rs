//! Security events, as `tracing` events and as append-only JSON lines. Spec: LSS/1 §10.
//!
//! [`Audit::record`] makes an event safe to print, emits it (target `lsl_secure::audit`) and queues
//! it; a thread named `lsl-audit`, started with the first line, writes the file. Recording takes one
//! short lock that is never held over I/O. A forked child has a queue, a thread and a chain of its own.
//!
//! Warnings, refusals among them, are written at once, with all that was recorded before. Ordinary
//! lines wait up to 250 ms for others, so that a busy program does not wake a thread for each.
//! Waiting lines are written by [`Audit::flush`], when the log is dropped, and when the process
//! exits.

mod ending;
mod event;
mod file;
mod limit;
mod queue;
mod text;
mod verify;

use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use lsl_platform::clock::{local_clock, utc_now};
use lsl_platform::fork::PerProcess;
use tracing::Level;

pub use self::event::{Event, EventKind, Traffic};
pub use self::file::rotated;
pub use self::text::printable;
pub use self::verify::{Break, Verifier};

use self::event::AuditEntry;
use self::file::{LogFile, Writer};
use self::limit::Limiter;
use self::queue::{BATCH_SECS, Full, Queue};
use crate::{Error, Result};

/// Log of security events. Recording never blocks; a full queue counts what it drops. Safe from any
/// thread, and in a child after `fork`.
///
/// [`Audit::default`] emits `tracing` events only. Dropping it waits shortly for lines that are not
/// written yet, and so does the end of the process, if it is `exit` or a return from `main`. A
/// program that ends otherwise (`_exit`, `exec`, a signal) calls [`Audit::flush`] before. Else it
/// loses ordinary lines of the last 250 ms that follow the last warning, and the count of a flood
/// that is not over.
#[derive(Debug, Default)]
pub struct Audit {
    place: Option<LogFile>,
    shared: PerProcess<Arc<AuditShared>>,
}

/// State that recorders and the writing thread share.
#[derive(Debug, Default)]
struct AuditShared {
    state: Mutex<AuditState>,
    /// Signalled when lines wait to be written, or the log is closing.
    work: Condvar,
    /// Signalled when all queued lines are written.
    idle: Condvar,
    dropped: AtomicU64,
}

#[derive(Debug, Default)]
struct AuditState {
    queue: Queue,
    limiter: Limiter,
    has_thread: bool,
    /// Lines that were queued so far, and how many of them, the oldest, were written or failed to be.
    queued: u64,
    done: u64,
    /// Number of writes, counted for the tests.
    #[cfg(test)]
    batches: u32,
    /// Time at which the thread wakes by itself; `None` while it is awake.
    sleeps_until: Option<f64>,
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
        Self::with_place(LogFile {
            path: path.to_owned(),
            keep_days,
            max_len_bytes: MAX_FILE_LEN,
        })
    }

    fn with_place(place: LogFile) -> Result<Self> {
        place.check().map_err(|error| {
            Error::file(
                place.path.clone(),
                format!(
                    "the audit file cannot be used: {error}; name one in a directory of the user who \
                     runs this program as audit_file"
                ),
            )
        })?;
        ending::prepare();
        Ok(Self {
            place: Some(place),
            shared: PerProcess::new(),
        })
    }

    /// Records an event: a `tracing` event (target `lsl_secure::audit`), and a line of the file.
    /// Failures of handshakes beyond 10 a second are counted, not written; so are refusals.
    pub fn record(&self, event: Event) {
        self.record_at(event, local_clock(), utc_now());
    }

    fn record_at(&self, event: Event, now: f64, utc: Duration) {
        let entry = AuditEntry::new(event, utc);
        let shared = self.shared();
        let mut state = shared.lock();
        let admitted = state.limiter.admit(entry, now);
        if let (Some(entry), Some(place)) = (&admitted, &self.place) {
            shared.queue(&mut state, entry.clone(), place, now);
        }
        let wakes = state.wakes_thread();
        drop(state);
        // Not under the lock, which it would wait for at once.
        if wakes {
            shared.work.notify_one();
        }
        if let Some(entry) = admitted {
            emit(&entry);
        }
    }

    /// Lines that did not fit into the queue or could not be written, in this process.
    pub fn dropped(&self) -> u64 {
        self.shared().dropped.load(Ordering::Relaxed)
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
                shared.queue(&mut state, entry, place, local_clock());
            }
        }
        state.queue.make_due();
        let queued = state.queued;
        drop(state);
        shared.work.notify_one();
        shared.wait_until_done(queued, deadline)
    }

    /// The state of the process that runs now.
    fn shared(&self) -> &Arc<AuditShared> {
        self.shared.get()
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

impl AuditShared {
    /// A panic elsewhere does not make a queue invalid.
    fn lock(&self) -> MutexGuard<'_, AuditState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The caller wakes the thread afterwards, if it is to be woken.
    fn queue(
        self: &Arc<Self>,
        state: &mut AuditState,
        entry: AuditEntry,
        place: &LogFile,
        now: f64,
    ) {
        if !state.has_thread {
            let shared = self.clone();
            let writer = Writer::new(place.clone());
            let thread = std::thread::Builder::new().name("lsl-audit".into());
            state.has_thread = thread.spawn(move || shared.serve(writer)).is_ok();
            if state.has_thread {
                ending::register(Arc::downgrade(self));
            }
        }
        if state.has_thread {
            self.push(state, entry, now);
        } else {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn push(&self, state: &mut AuditState, entry: AuditEntry, now: f64) {
        match state.queue.push(entry, now) {
            Ok(()) => {
                state.queued += 1;
                if ending::is_over() {
                    state.queue.make_due();
                }
            }
            Err(Full) => {
                self.dropped.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Has everything written, floods that are only counted so far among it, because the process exits.
    /// Returns how many lines that is in all; `None` if the lock cannot be had: its holder may never come
    /// back.
    fn ask_for_all(&self, deadline: f64) -> Option<u64> {
        let mut state = loop {
            match self.state.try_lock() {
                Ok(state) => break state,
                Err(TryLockError::Poisoned(poisoned)) => break poisoned.into_inner(),
                Err(TryLockError::WouldBlock) if local_clock() < deadline => {
                    std::thread::sleep(SHORT_NAP);
                }
                Err(TryLockError::WouldBlock) => return None,
            }
        };
        // Not as `tracing` events: the program's own code may be over.
        for entry in state.limiter.release() {
            self.push(&mut state, entry, local_clock());
        }
        state.queue.make_due();
        let queued = state.queued;
        drop(state);
        self.work.notify_one();
        Some(queued)
    }

    /// Waits until so many of the lines that were ever queued are written, and says whether they are.
    fn wait_until_done(&self, queued: u64, deadline: f64) -> bool {
        let mut state = self.lock();
        while state.has_thread && state.done < queued {
            let left = deadline - local_clock();
            if left <= 0.0 {
                return false;
            }
            let nap = Duration::from_secs_f64(left.min(MAX_NAP_SECS));
            let woken = self.idle.wait_timeout(state, nap);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    /// Runs the thread `lsl-audit`: writes queued lines until the end.
    fn serve(&self, mut writer: Writer) {
        lsl_platform::reentry::block_signals();
        let mut complained_at = None;
        let mut complain = |error: &io::Error| {
            let now = local_clock();
            if complained_at.is_none_or(|at| now - at >= COMPLAIN_EVERY_SECS) {
                complained_at = Some(now);
                let dropped = self.dropped.load(Ordering::Relaxed);
                tracing::warn!(target: TARGET, dropped, "cannot write the audit file: {error}");
            }
        };
        let (mut done, mut lingers) = (0, false);
        while let Some(batch) = self.next_batch(done, lingers) {
            (done, lingers) = (batch.len(), batch.was_full);
            batch.held.iter().for_each(emit);
            for entry in batch.queued.into_iter().chain(batch.held) {
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

    /// Waits for lines that are due: queued ones, and those of floods that have ended. `None` at the
    /// end. So many of the last batch are `done`.
    fn next_batch(&self, done: u64, lingers: bool) -> Option<LineBatch> {
        let mut state = self.lock();
        state.done += done;
        self.idle.notify_all();
        // Where lines are frequent, the thread waits for the next without being woken.
        let linger_until = lingers.then(|| local_clock() + BATCH_SECS);
        loop {
            let now = local_clock();
            let held = state.limiter.overdue(now);
            if state.is_closing || !held.is_empty() {
                // The end of a flood is a warning: earlier lines go with it.
                state.queue.make_due();
            }
            let taken = state.queue.take(now);
            if taken.is_some() || !held.is_empty() {
                state.queued += count(held.len());
                #[cfg(test)]
                {
                    state.batches += 1;
                }
                let (queued, was_full) = taken.unwrap_or_default();
                return Some(LineBatch {
                    queued,
                    held,
                    was_full,
                });
            }
            if state.is_closing {
                state.has_thread = false;
                return None;
            }
            let limit = state.limiter.holds().then_some(now + MAX_NAP_SECS);
            let linger = linger_until.filter(|until| now < *until);
            let alarms = [state.queue.due(), limit, linger];
            let alarm = alarms.into_iter().flatten().fold(f64::INFINITY, f64::min);
            state.sleeps_until = Some(alarm);
            state = if alarm.is_finite() {
                let nap = Duration::from_secs_f64((alarm - now).clamp(0.0, MAX_NAP_SECS));
                let woken = self.work.wait_timeout(state, nap);
                woken.unwrap_or_else(PoisonError::into_inner).0
            } else {
                let woken = self.work.wait(state);
                woken.unwrap_or_else(PoisonError::into_inner)
            };
            state.sleeps_until = None;
        }
    }
}

/// Lines that the thread writes at once.
struct LineBatch {
    queued: VecDeque<AuditEntry>,
    /// Last lines of floods that ended.
    held: Vec<AuditEntry>,
    /// Whether more was queued than needs to wait.
    was_full: bool,
}

impl LineBatch {
    fn len(&self) -> u64 {
        count(self.queued.len() + self.held.len())
    }
}

fn count(lines: usize) -> u64 {
    u64::try_from(lines).unwrap_or(u64::MAX)
}

impl AuditState {
    /// Whether the thread must be woken, or it would sleep too long. Only one caller is told so.
    fn wakes_thread(&mut self) -> bool {
        let Some(until) = self.sleeps_until else {
            return false;
        };
        // The thread looks every so often whether a flood is over.
        let is_late = self.queue.due().is_some_and(|due| due < until)
            || (until.is_infinite() && self.limiter.holds());
        if is_late {
            self.sleeps_until = None;
        }
        is_late
    }
}

/// The entry as a `tracing` event. Fields that it does not have stay out.
fn emit(entry: &AuditEntry) {
    let traffic = entry.traffic;
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
                bytes = traffic.map(|traffic| traffic.bytes),
                records = traffic.map(|traffic| traffic.records),
                duration_secs = traffic.map(|traffic| traffic.duration_secs),
                clean = traffic.map(|traffic| traffic.clean),
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

/// Target of the `tracing` events.
const TARGET: &str = "lsl_secure::audit";
/// A file of this length is rotated.
const MAX_FILE_LEN: u64 = 10 << 20;
/// Between two warnings that the file cannot be written.
const COMPLAIN_EVERY_SECS: f64 = 60.0;
/// Longest wait of a drop for the disk.
const LAST_WORDS: Duration = Duration::from_millis(500);
/// Sleeps are cut into pieces, so that no lost wake-up lasts.
const MAX_NAP_SECS: f64 = 1.0;
/// Between two looks at a lock whose holder may never come back.
const SHORT_NAP: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests;
