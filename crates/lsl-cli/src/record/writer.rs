//! The one thread that writes: takes what the streams hand over, in order, from a bounded queue, and
//! keeps the file whole. What it could not write is counted, said and noted in the footers; a full disk
//! makes it wait or go on elsewhere. Another thread waits for the disk.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender, TrySendError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use lsl_core::local_clock;
use lsl_xdf::{Error, ErrorKind, FileHeader, Gap, PendingSync, StreamHeader, Synced, Values};

use super::display::size;
use super::output::{Maker, Tape};
use super::remark::say;
use super::{resume, space};
use crate::failure::{Failure, Outcome};

/// Which stream of the session, whatever number it has in the file.
pub(super) type Slot = usize;

/// Something to be written.
#[derive(Debug)]
pub(super) enum Job {
    /// A stream begins.
    Stream {
        slot: Slot,
        header: Box<StreamHeader>,
    },
    Samples {
        slot: Slot,
        stamps: Vec<f64>,
        values: Values,
        /// What it takes in memory, about.
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
    /// Nothing comes after this.
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

/// How writing goes, for whoever wants to know.
#[derive(Debug, Default)]
pub(super) struct Progress {
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

impl Progress {
    /// Bytes in whole chunks, of all files.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Of these, how many would survive a loss of power.
    pub(super) fn synced_bytes(&self) -> u64 {
        self.synced_bytes.load(Ordering::Relaxed)
    }

    /// Bytes that wait for the writer.
    pub(super) fn waiting_bytes(&self) -> usize {
        self.waiting_bytes.load(Ordering::Relaxed)
    }

    /// Samples that could not be written.
    pub(super) fn unwritten(&self) -> u64 {
        self.unwritten.load(Ordering::Relaxed)
    }

    /// Whether nothing can be written any more.
    pub(super) fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Relaxed)
    }

    /// The file being written, and those before it.
    pub(super) fn files(&self) -> Vec<PathBuf> {
        lock(&self.files).clone()
    }

    /// What is wrong at present.
    pub(super) fn trouble(&self) -> Option<String> {
        lock(&self.trouble).clone()
    }

    /// From now on a full disk is not waited for.
    pub(super) fn end(&self) {
        self.is_ending.store(true, Ordering::Relaxed);
    }

    /// A job does not wait any more.
    pub(super) fn note_taken(&self, job: &Job) {
        self.waiting_bytes.fetch_sub(job.bytes(), Ordering::Relaxed);
    }

    /// A file is being written.
    pub(super) fn note_file(&self, path: PathBuf) {
        lock(&self.files).push(path);
    }

    /// So many samples could not be written.
    pub(super) fn note_unwritten(&self, count: u64) {
        self.unwritten.fetch_add(count, Ordering::Relaxed);
    }

    fn set_trouble(&self, trouble: Option<&str>) {
        *lock(&self.trouble) = trouble.map(str::to_owned);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where jobs are handed over. Holds a bounded number of jobs and of bytes.
#[derive(Debug, Clone)]
pub(super) struct Queue {
    sender: SyncSender<Job>,
    progress: Arc<Progress>,
    max_bytes: usize,
}

/// What became of a job.
#[derive(Debug)]
pub(super) enum Refused {
    /// There is no room now.
    Full(Job),
    /// There is nobody to take it.
    Closed,
}

impl Queue {
    /// A queue and its other end.
    pub(super) fn new() -> (Self, Receiver<Job>) {
        Self::with_room(MAX_BYTES)
    }

    /// One that holds so many bytes of samples, or one job.
    pub(super) fn with_room(max_bytes: usize) -> (Self, Receiver<Job>) {
        let (sender, receiver) = mpsc::sync_channel(MAX_JOBS);
        let queue = Self {
            sender,
            progress: Arc::default(),
            max_bytes,
        };
        (queue, receiver)
    }

    pub(super) fn progress(&self) -> &Arc<Progress> {
        &self.progress
    }

    /// Hands a job over unless there is no room; never waits.
    pub(super) fn try_push(&self, job: Job) -> Result<(), Refused> {
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

    /// Hands a job over when there is room; false if there is nobody to take it.
    pub(super) async fn push(&self, mut job: Job) -> bool {
        loop {
            job = match self.try_push(job) {
                Ok(()) => return true,
                Err(Refused::Closed) => return false,
                Err(Refused::Full(job)) => job,
            };
            tokio::time::sleep(ROOM_NAP).await;
        }
    }

    /// The same, blocking the calling thread.
    pub(super) fn push_blocking(&self, job: Job) -> bool {
        self.sender.send(job).is_ok()
    }
}

/// How to write.
#[derive(Debug, Clone)]
pub(super) struct Settings {
    pub(super) path: PathBuf,
    pub(super) maker: Maker,
    /// How often data is brought to the disk, in seconds.
    pub(super) sync_secs: f64,
    /// Where to go on when the disk is full, or nearly so.
    pub(super) spill: Option<PathBuf>,
    /// With less room than this it is.
    pub(super) min_free: u64,
    /// What the file says about itself.
    pub(super) header: FileHeader,
}

/// What the writer leaves behind.
#[derive(Debug, Default)]
pub(super) struct Ended {
    /// Why not everything is in the files, or not as it should.
    pub(super) trouble: Vec<String>,
    /// Samples in the files.
    pub(super) samples: BTreeMap<Slot, u64>,
    /// Whether the last file has its footers.
    pub(super) is_finished: bool,
}

/// Makes the file, then writes into it on a thread of its own until [`Job::Finish`].
///
/// # Errors
/// Those of making the file.
pub(super) fn start(
    settings: Settings,
    receiver: Receiver<Job>,
    progress: &Arc<Progress>,
) -> Outcome<JoinHandle<Ended>> {
    let (syncs, results) = start_syncing()?;
    let path = settings.path.clone();
    let made = settings.maker.make(&path, &settings.header, local_clock());
    let made = made.map_err(|error| match error.kind() {
        ErrorKind::Argument => Failure::Usage(error.to_string()),
        _ => Failure::Recording(DISK, error.to_string()),
    })?;
    if let Some(moved) = &made.moved {
        say(format_args!(
            "{} was there already and is now {}.",
            path.display(),
            moved.display()
        ));
        resume::tell(moved);
    }
    progress.note_file(path);
    progress.bytes.store(made.tape.len(), Ordering::Relaxed);
    let writer = Writer {
        settings,
        tape: made.tape,
        before: 0,
        streams: BTreeMap::new(),
        progress: Arc::clone(progress),
        syncs,
        results,
        file: 0,
        sync_at: local_clock(),
        space_at: local_clock(),
        is_syncing: false,
        ended: Ended::default(),
        journal_reported: false,
    };
    thread::Builder::new()
        .name("lsl-writer".into())
        .spawn(move || writer.run(&receiver))
        .map_err(|error| Failure::Runtime(format!("cannot start a thread: {error}")))
}

/// Starts the thread that waits for the disk.
#[expect(
    clippy::type_complexity,
    reason = "two ends of two channels, named where they are taken"
)]
fn start_syncing() -> Outcome<(
    SyncSender<(usize, u64, PendingSync)>,
    Receiver<(usize, u64, Synced)>,
)> {
    let (syncs, pending) = mpsc::sync_channel::<(usize, u64, PendingSync)>(1);
    let (done, results) = mpsc::channel();
    thread::Builder::new()
        .name("lsl-sync".into())
        .spawn(move || {
            for (file, len, pending) in pending {
                // Nobody listens any more once the writer has ended.
                let _ = done.send((file, len, pending.run()));
            }
        })
        .map_err(|error| Failure::Runtime(format!("cannot start a thread: {error}")))?;
    Ok((syncs, results))
}

struct Writer {
    settings: Settings,
    tape: Box<dyn Tape>,
    /// Bytes in the files before this one.
    before: u64,
    streams: BTreeMap<Slot, Stream>,
    progress: Arc<Progress>,
    syncs: SyncSender<(usize, u64, PendingSync)>,
    results: Receiver<(usize, u64, Synced)>,
    /// How many files there were before this one.
    file: usize,
    sync_at: f64,
    /// When to look next whether there is room.
    space_at: f64,
    is_syncing: bool,
    ended: Ended,
    journal_reported: bool,
}

struct Stream {
    header: Box<StreamHeader>,
    /// Its number in the present file.
    id: u32,
    notes: Vec<(&'static str, String)>,
    /// The last clock offset: when it was measured, and what it was.
    offset: Option<(f64, f64)>,
}

impl Writer {
    fn run(mut self, receiver: &Receiver<Job>) -> Ended {
        loop {
            match receiver.recv_timeout(NAP) {
                Ok(Job::Finish) | Err(RecvTimeoutError::Disconnected) => break,
                Ok(job) => {
                    self.take(&job);
                    self.progress.note_taken(&job);
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
            self.look_after_the_disk();
        }
        self.finish();
        self.ended
    }

    /// Writes a job, whatever it takes.
    fn take(&mut self, job: &Job) {
        let mut said = 0.0;
        while !self.progress.has_failed() {
            let error = match self.write(job) {
                Ok(()) => {
                    if said > 0.0 {
                        say("lsl record: there is room again, writing goes on.");
                    }
                    self.note_bytes();
                    self.progress.set_trouble(None);
                    return;
                }
                // A mistake of ours; the next one may be right.
                Err(error) if error.kind() == ErrorKind::Argument => {
                    self.complain(&format!("not written: {error}"));
                    break;
                }
                Err(error) => error,
            };
            if self.fail_over(&error) {
                continue;
            }
            if error.kind() != ErrorKind::Full {
                self.fail(&error);
                break;
            }
            self.progress.set_trouble(Some(&error.to_string()));
            if self.progress.is_ending.load(Ordering::Relaxed) {
                self.complain(&error.to_string());
                break;
            }
            let now = local_clock();
            if now - said > REMINDER_SECS {
                said = now;
                say(format_args!(
                    "lsl record: DISK FULL: {error}. Samples wait in memory; free some space now."
                ));
            }
            thread::sleep(FULL_NAP);
        }
        self.count_unwritten(job);
    }

    fn write(&mut self, job: &Job) -> lsl_xdf::Result<()> {
        let now = local_clock();
        match job {
            Job::Stream { slot, header } => {
                if !self.streams.contains_key(slot) {
                    let id = self.tape.add_stream(header, now)?;
                    let header = header.clone();
                    let notes = Vec::new();
                    let offset = None;
                    self.streams.insert(
                        *slot,
                        Stream {
                            header,
                            id,
                            notes,
                            offset,
                        },
                    );
                }
                Ok(())
            }
            Job::Samples {
                slot,
                stamps,
                values,
                ..
            } => {
                let id = self.id(*slot)?;
                self.tape.samples(id, stamps, values, now)?;
                *self.ended.samples.entry(*slot).or_default() += stamps.len() as u64;
                Ok(())
            }
            Job::Offset { slot, time, value } => {
                let id = self.id(*slot)?;
                if let Some(stream) = self.streams.get_mut(slot) {
                    stream.offset = Some((*time, *value));
                }
                self.tape.clock_offset(id, *time, *value, now)
            }
            Job::Gap { slot, gap } => {
                let id = self.id(*slot)?;
                self.tape.gap(id, gap.clone())
            }
            Job::Note { slot, name, text } => {
                let id = self.id(*slot)?;
                self.tape.note(id, name, text)?;
                if let Some(stream) = self.streams.get_mut(slot) {
                    stream.notes.retain(|(known, _)| known != name);
                    stream.notes.push((name, text.clone()));
                }
                Ok(())
            }
            Job::Finish => Ok(()),
        }
    }

    fn id(&self, slot: Slot) -> lsl_xdf::Result<u32> {
        let stream = self.streams.get(&slot);
        let stream =
            stream.ok_or_else(|| Error::Argument(format!("no header of stream {slot}")))?;
        Ok(stream.id)
    }

    /// Says which samples are missing, in the footer too if it can still be written.
    fn count_unwritten(&mut self, job: &Job) {
        let Job::Samples { slot, stamps, .. } = job else {
            return;
        };
        let count = stamps.len() as u64;
        self.progress.unwritten.fetch_add(count, Ordering::Relaxed);
        let (Ok(id), Some(&first), Some(&last)) = (self.id(*slot), stamps.first(), stamps.last())
        else {
            return;
        };
        let gap = Gap {
            from: self.tape.last_stamp(id).unwrap_or(first),
            to: last,
            samples: Some(count),
            reason: "the disk did not take them".into(),
        };
        // It was refused because the file has ended; the number above is what is left.
        let _ = self.tape.gap(id, gap);
    }

    /// Boundaries and syncs.
    fn look_after_the_disk(&mut self) {
        while let Ok((file, len, synced)) = self.results.try_recv() {
            self.is_syncing = false;
            self.take_synced(file, len, synced);
        }
        let now = local_clock();
        if self.progress.has_failed() {
            return;
        }
        self.leave_in_time(now);
        match self.tape.tick(now) {
            Ok(()) => self.note_bytes(),
            // The next samples meet the same.
            Err(error) if error.kind() == ErrorKind::Full => {}
            Err(error) => self.survive(&error),
        }
        if now - self.sync_at >= self.settings.sync_secs && !self.is_syncing {
            self.sync_at = now;
            let len = self.before + self.tape.len();
            if len == self.progress.synced_bytes() {
                return;
            }
            match self.tape.begin_sync(now) {
                Ok(pending) => {
                    self.is_syncing = self.syncs.try_send((self.file, len, pending)).is_ok();
                }
                // What fills a block of an encrypted file needs room, too.
                Err(error) if error.kind() == ErrorKind::Full => {}
                Err(error) => self.survive(&error),
            }
        }
    }

    fn take_synced(&mut self, file: usize, len: u64, synced: Synced) {
        // What became of an earlier file was said when it was left.
        if file != self.file {
            return;
        }
        match self.tape.end_sync(synced) {
            Ok(()) => self.progress.synced_bytes.store(len, Ordering::Relaxed),
            Err(error) => self.survive(&error),
        }
        if let (Some(trouble), false) = (self.tape.journal_trouble(), self.journal_reported) {
            say(format_args!("lsl record: no journal: {trouble}"));
            self.journal_reported = true;
        }
    }

    fn note_bytes(&self) {
        let bytes = self.before + self.tape.len();
        self.progress.bytes.store(bytes, Ordering::Relaxed);
    }

    fn survive(&mut self, error: &Error) {
        if !self.fail_over(error) {
            self.fail(error);
        }
    }

    /// Goes on in the other folder before this disk is full, if that one has the room.
    fn leave_in_time(&mut self, now: f64) {
        if now < self.space_at || self.settings.spill.is_none() {
            return;
        }
        self.space_at = now + SPACE_SECS;
        let Some(path) = self.spill_path() else {
            return;
        };
        let least = self.settings.min_free;
        // The other disk may take its time to answer: it is asked only if it is needed. A folder on this
        // same disk has no room either.
        let is_low = space::free(&self.settings.path).is_some_and(|free| free < least);
        if !is_low || space::free(&path).is_none_or(|free| free < least) {
            return;
        }
        say(format_args!(
            "lsl record: LOW SPACE: less than the {} of --min-free. The recording goes on in {}.",
            size(least),
            path.display()
        ));
        match self.begin_anew(&path) {
            Ok(()) => self.settings.spill = None,
            Err(error) => {
                // It is tried again when nothing else is left.
                self.space_at = f64::INFINITY;
                say(format_args!(
                    "lsl record: it does not, since {error}; it goes on where it was."
                ));
            }
        }
    }

    /// The file in the other folder, if there is one.
    fn spill_path(&self) -> Option<PathBuf> {
        let name = self.settings.path.file_name().unwrap_or_default();
        let folder = self.settings.spill.as_ref()?;
        Some(folder.join(name))
    }

    /// Goes on in the other folder, if there is one; false if not.
    fn fail_over(&mut self, error: &Error) -> bool {
        let Some(path) = self.spill_path() else {
            return false;
        };
        self.settings.spill = None;
        say(format_args!(
            "lsl record: {error}. The recording goes on in {}.",
            path.display()
        ));
        self.ended.trouble.push(error.to_string());
        match self.begin_anew(&path) {
            Ok(()) => true,
            Err(error) => {
                self.complain(&format!("{}: {error}", path.display()));
                false
            }
        }
    }

    /// Leaves this file for a new one. After an error this one is as it was.
    fn begin_anew(&mut self, path: &Path) -> lsl_xdf::Result<()> {
        let now = local_clock();
        let made = (self.settings.maker).make(path, &self.settings.header, now)?;
        let mut tape = made.tape;
        let mut ids = Vec::new();
        for stream in self.streams.values() {
            let id = tape.add_stream(&stream.header, now)?;
            for (name, text) in &stream.notes {
                tape.note(id, name, text)?;
            }
            // Readers need one to begin with, and the next may be long in coming.
            if let Some((time, value)) = stream.offset {
                tape.clock_offset(id, time, value, now)?;
            }
            ids.push(id);
        }
        for (stream, id) in self.streams.values_mut().zip(ids) {
            stream.id = id;
        }
        let mut old = std::mem::replace(&mut self.tape, tape);
        // There is room for its footers unless the disk is worse than full.
        if let Err(error) = old.finish(now) {
            self.complain(&format!("its footers are missing: {error}"));
        }
        self.before += old.len();
        self.file += 1;
        self.progress.note_file(path.to_owned());
        self.note_bytes();
        Ok(())
    }

    /// Nothing can be written any more.
    fn fail(&mut self, error: &Error) {
        self.progress.set_trouble(Some(&error.to_string()));
        self.progress.has_failed.store(true, Ordering::Relaxed);
        self.complain(&error.to_string());
    }

    fn complain(&mut self, trouble: &str) {
        say(format_args!("lsl record: {trouble}"));
        if self.ended.trouble.last().is_none_or(|last| last != trouble) {
            self.ended.trouble.push(trouble.to_owned());
        }
    }

    fn finish(&mut self) {
        if self.is_syncing
            && let Ok((file, len, synced)) = self.results.recv()
        {
            self.take_synced(file, len, synced);
        }
        if self.progress.has_failed() {
            return;
        }
        match self.tape.finish(local_clock()) {
            Ok(()) => {
                self.ended.is_finished = true;
                self.note_bytes();
                let synced = self.progress.bytes();
                self.progress.synced_bytes.store(synced, Ordering::Relaxed);
            }
            Err(error) => self.fail(&error),
        }
    }
}

/// The exit status for everything the disk does to us.
pub(super) const DISK: u8 = 4;

/// Jobs that may wait. They are small or counted in bytes, too.
const MAX_JOBS: usize = 4096;
/// Bytes of samples that may wait for the writer.
const MAX_BYTES: usize = 64 << 20;
const NAP: Duration = Duration::from_millis(50);
const ROOM_NAP: Duration = Duration::from_millis(10);
const FULL_NAP: Duration = Duration::from_millis(200);
const REMINDER_SECS: f64 = 10.0;
const SPACE_SECS: f64 = 1.0;
