//! Security events, as `tracing` events and as append-only JSON lines. Spec: LSS/1 §10.
//!
//! [`Audit::record`] makes an event a line that is safe to print, queues it, and emits the event (target
//! `lsl_secure::audit`); a thread named `lsl-audit`, started with the first line, writes the file.
//! Recording takes one short lock that is never held over I/O, to copy the line. A forked child has a
//! queue, a thread and a chain of its own.
//!
//! Warnings, refusals among them, are written at once, with all that was recorded before. Ordinary
//! lines wait for others, a quarter of a second, or a whole one where there are many: a busy program does
//! not wake a thread for each. Waiting lines are written by [`Audit::flush`], when the log is dropped,
//! and when the process exits.

pub mod context;
mod ending;
mod event;
mod file;
mod limit;
mod line;
mod opened;
pub(crate) mod probes;
mod queue;
mod span;
mod text;
mod verify;

use std::cell::{Cell, OnceCell};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use lsl_platform::clock::{local_clock, utc_now};
use lsl_platform::fork::PerProcess;
use tracing::Level;

pub use self::event::{Event, EventKind, Extra, Traffic};
pub use self::file::rotated;
pub use self::span::Span;
pub use self::text::printable;
pub use self::verify::{Break, Verifier, torn_len};

use self::event::{Entry, role_name};
use self::file::{LogFile, Writer};
use self::limit::Limiter;
use self::line::Line;
use self::queue::{Full, Queue};
use self::text::{MAX_DETAIL, safe};
use crate::{Error, Result};

/// Log of security events. Recording never blocks; a full queue counts what it drops. Safe from any
/// thread, and in a child after `fork`.
///
/// [`Audit::default`] emits `tracing` events only. Dropping it waits shortly for lines that are not
/// written yet, and so does the end of the process, if it is `exit` or a return from `main`. A
/// program that ends otherwise (`_exit`, `exec`, a signal) calls [`Audit::flush`] before. Else it
/// loses ordinary lines of the last second that follow the last warning, and the count of a flood
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
    /// Number of writes to the file.
    writes: AtomicU64,
}

#[derive(Debug, Default)]
struct AuditState {
    queue: Queue,
    limiter: Limiter,
    has_thread: bool,
    /// Lines that were queued so far, and how many of them, the oldest, were written or failed to be.
    queued: u64,
    done: u64,
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
        self.record_with(event.kind, |_| event);
    }

    /// Records the event of this kind that `make` returns, as [`record`](Self::record). It is not even made
    /// if there is no file and nobody listens, or looks by probes.
    pub fn record_with(&self, kind: EventKind, make: impl FnOnce(EventKind) -> Event) {
        let make = Cell::new(Some(make));
        let event = OnceCell::new();
        let made = || {
            event.get_or_init(|| {
                let make = make.take();
                make.map_or_else(|| Event::new(kind), |make| make(kind))
            })
        };
        probes::record(self, kind, &made);
        if !self.wants(kind) {
            return;
        }
        made();
        if let Some(event) = event.into_inner() {
            self.record_at(event, local_clock(), utc_now());
        }
    }

    /// Returns whether there is a file, or somebody listens to events of this kind. Who looks by probes has
    /// times of his own.
    pub fn wants(&self, kind: EventKind) -> bool {
        self.place.is_some() || is_heard(kind)
    }

    fn record_at(&self, event: Event, now: f64, utc: Duration) {
        let entry = Entry {
            event,
            utc,
            suppressed: None,
        };
        let shared = self.shared();
        let admitted = match entry.event.kind.rated() {
            Some(_) => shared.lock().limiter.admit(entry, now),
            None => Some(entry),
        };
        if let Some(place) = &self.place {
            // Not under the lock: other threads record, too.
            let line = admitted.as_ref().map(Line::new);
            let mut state = shared.lock();
            if let (Some(line), Some(entry)) = (line, &admitted) {
                shared.queue(&mut state, entry, &line, place, now);
            }
            let wakes = state.wakes_thread();
            drop(state);
            // Nor is this, or the thread would wait for the lock at once.
            if wakes {
                shared.work.notify_one();
            }
        }
        if let Some(entry) = admitted {
            emit(&entry);
        }
    }

    /// Lines that did not fit into the queue or could not be written, in this process.
    pub fn dropped(&self) -> u64 {
        self.shared().dropped.load(Ordering::Relaxed)
    }

    /// Number of writes to the file, in this process.
    pub fn writes(&self) -> u64 {
        self.shared().writes.load(Ordering::Relaxed)
    }

    /// Waits until all lines recorded so far are written, at most `timeout`; says whether they are.
    pub fn flush(&self, timeout: Duration) -> bool {
        let shared = self.shared();
        let deadline = local_clock() + timeout.as_secs_f64();
        let held = shared.lock().limiter.release();
        held.iter().for_each(emit);
        let mut state = shared.lock();
        if let Some(place) = &self.place {
            for entry in &held {
                shared.queue(&mut state, entry, &Line::new(entry), place, local_clock());
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
        entry: &Entry,
        line: &Line,
        place: &LogFile,
        now: f64,
    ) {
        if !state.has_thread {
            let shared = self.clone();
            let writer = Writer::new(place.clone(), entry.utc);
            let thread = std::thread::Builder::new().name("lsl-audit".into());
            state.has_thread = thread.spawn(move || shared.serve(writer)).is_ok();
            if state.has_thread {
                ending::register(Arc::downgrade(self));
            }
        }
        if state.has_thread {
            self.push(state, entry, line, now);
        } else {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn push(&self, state: &mut AuditState, entry: &Entry, line: &Line, now: f64) {
        let is_warning = entry.event.kind.is_warning();
        match state.queue.push(line.bytes(), is_warning, now) {
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
            self.push(&mut state, &entry, &Line::new(&entry), local_clock());
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
        let mut batch = Vec::new();
        let mut done = 0;
        while let Some(taken) = self.next_batch(done, &mut batch) {
            done = taken.lines;
            taken.held.iter().for_each(emit);
            let dropped = self.dropped.load(Ordering::Relaxed);
            match writer.write(&batch, dropped, utc_now()) {
                Ok(writes) => drop(self.writes.fetch_add(writes, Ordering::Relaxed)),
                Err(lost) => {
                    self.dropped.fetch_add(lost.lines, Ordering::Relaxed);
                    complain(&lost.error);
                }
            }
            if let Some(error) = writer.take_trouble() {
                complain(&error);
            }
        }
    }

    /// Waits for lines that are due, the last ones of floods that have ended among them, and exchanges them
    /// for those in `batch`, of which `done` were. `None` at the end.
    fn next_batch(&self, done: u64, batch: &mut Vec<u8>) -> Option<Taken> {
        batch.clear();
        let mut state = self.lock();
        state.done += done;
        self.idle.notify_all();
        loop {
            let now = local_clock();
            let held = state.limiter.overdue(now);
            for entry in &held {
                self.push(&mut state, entry, &Line::new(entry), now);
            }
            if state.is_closing {
                state.queue.make_due();
            }
            if let Some(lines) = state.queue.take(now, batch) {
                return Some(Taken { lines, held });
            }
            if state.is_closing {
                state.has_thread = false;
                return None;
            }
            if state.queue.shrink() {
                *batch = Vec::new();
            }
            let holds = state.limiter.holds().then_some(now + MAX_NAP_SECS);
            let alarm = state.queue.alarm(now).min(holds.unwrap_or(f64::INFINITY));
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
struct Taken {
    lines: u64,
    /// Last events of floods that ended, to be emitted yet.
    held: Vec<Entry>,
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

/// Returns whether somebody listens to events of this kind.
fn is_heard(kind: EventKind) -> bool {
    if kind.is_warning() {
        tracing::event_enabled!(target: TARGET, Level::WARN)
    } else {
        tracing::event_enabled!(target: TARGET, Level::INFO)
    }
}

/// The entry as a `tracing` event. Fields that it does not have stay out, and nothing is put into words
/// unless somebody listens.
fn emit(entry: &Entry) {
    let Entry {
        event, suppressed, ..
    } = entry;
    macro_rules! event {
        ($level:expr) => {
            tracing::event!(
                target: TARGET,
                $level,
                event = event.kind.name(),
                sid = event.session.map(|id| id.to_string()),
                peer_addr = event.peer_addr.map(|address| address.to_string()),
                peer_fp = event.peer.map(|fingerprint| fingerprint.to_string()),
                peer_name = event.peer_name.as_ref().map(|name| printable(name.as_bytes())),
                claimed = event.claimed(),
                role = event.role.map(role_name),
                suite = event.suite.map(crate::Suite::name),
                version = event.version(),
                policy = event.policy.map(crate::Policy::name),
                stream_uid = event.stream_uid.as_ref().map(|uid| printable(uid.as_bytes())),
                code = event.cause.map(crate::Cause::code),
                cause = event.cause.map(crate::Cause::name),
                bytes = event.traffic.map(|traffic| traffic.bytes),
                records = event.traffic.map(|traffic| traffic.records),
                duration_secs = event.traffic.map(|traffic| traffic.duration_secs),
                clean = event.traffic.map(|traffic| traffic.clean),
                more = event.more.as_ref().map(|more| safe(&format!("{more:?}"), MAX_DETAIL)),
                suppressed = suppressed,
                "{}",
                match &event.detail {
                    Some(detail) => safe(detail, MAX_DETAIL),
                    None => event.kind.name().to_owned(),
                }
            )
        };
    }
    if event.kind.is_warning() {
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
