//! The one thread that writes: takes the jobs of the streams, in order, from a bounded queue, and
//! keeps the file whole. Samples that it could not write are counted, reported and noted in the
//! footers; with a full disk it waits or goes on in another folder. Another thread waits for the
//! disk.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use lsl_core::local_clock;
use lsl_platform::disk::free_space;
use lsl_xdf::{Error, ErrorKind, FileHeader, Gap, PendingSync, StreamHeader, Synced};

use crate::error::StartError;
use crate::event::{Event, Events};
use crate::output::{Made, Output, RecordingSink};
use crate::queue::{Job, Slot, WriteProgress};
use crate::signing::DeviceSigner;

/// Settings of the writer for all its files.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) output: Output,
    /// Header that each file begins with.
    pub(crate) header: FileHeader,
    pub(crate) signer: Option<DeviceSigner>,
    /// Interval at which data is brought to the disk, in seconds.
    pub(crate) sync_secs: f64,
    /// Folder to go on in when the disk is full, or nearly so.
    pub(crate) spill: Option<PathBuf>,
    /// Free bytes below which the disk counts as nearly full.
    pub(crate) min_free: u64,
}

impl Settings {
    fn make(&self, path: &Path, now: f64) -> lsl_xdf::Result<Made> {
        self.output
            .make(path, &self.header, self.signer.as_ref(), now)
    }
}

/// Result of the writer at its end.
#[derive(Debug, Default)]
pub(crate) struct Ended {
    /// Reasons for which samples are missing in the files, or faulty.
    pub(crate) trouble: Vec<String>,
    /// Samples in the files, by stream.
    pub(crate) samples: BTreeMap<Slot, u64>,
    /// Whether the last file has its footers.
    pub(crate) is_finished: bool,
}

/// Makes the file, then writes into it on a thread of its own until [`Job::Finish`].
pub(crate) fn start(
    settings: Settings,
    receiver: Receiver<Job>,
    progress: &Arc<WriteProgress>,
    events: &Events,
) -> Result<JoinHandle<Ended>, StartError> {
    let (syncs, results) = start_syncing().map_err(StartError::Threads)?;
    let path = settings.output.path.clone();
    let made = settings.make(&path, local_clock());
    let made = made.map_err(StartError::Output)?;
    if let Some(moved) = made.moved {
        let path = path.clone();
        events.push(Event::Displaced { path, moved });
    }
    progress.note_file(path);
    progress.note_bytes(made.sink.len());
    let writer = Writer {
        settings,
        sink: made.sink,
        before: 0,
        streams: BTreeMap::new(),
        progress: Arc::clone(progress),
        events: events.clone(),
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
        .map_err(StartError::Threads)
}

/// Starts the thread that waits for the disk.
#[expect(
    clippy::type_complexity,
    reason = "two ends of two channels, named where they are taken"
)]
fn start_syncing() -> io::Result<(
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
        })?;
    Ok((syncs, results))
}

struct Writer {
    settings: Settings,
    sink: Box<dyn RecordingSink>,
    /// Bytes in the files before this one.
    before: u64,
    streams: BTreeMap<Slot, FileStream>,
    progress: Arc<WriteProgress>,
    events: Events,
    syncs: SyncSender<(usize, u64, PendingSync)>,
    results: Receiver<(usize, u64, Synced)>,
    /// Number of files before this one.
    file: usize,
    sync_at: f64,
    /// When to look next whether there is room.
    space_at: f64,
    is_syncing: bool,
    ended: Ended,
    journal_reported: bool,
}

struct FileStream {
    header: Box<StreamHeader>,
    /// Number of the stream in the present file.
    id: u32,
    notes: Vec<(&'static str, String)>,
    /// The last clock offset: its time, and its value in seconds.
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
                        self.events.push(Event::RoomAgain);
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
            if self.progress.is_ending() {
                self.complain(&error.to_string());
                break;
            }
            let now = local_clock();
            if now - said > REMINDER_SECS {
                said = now;
                self.events.push(Event::DiskFull(error.to_string()));
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
                    let id = self.sink.add_stream(header, now)?;
                    let header = header.clone();
                    let notes = Vec::new();
                    let offset = None;
                    self.streams.insert(
                        *slot,
                        FileStream {
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
                self.sink.samples(id, stamps, values, now)?;
                *self.ended.samples.entry(*slot).or_default() += stamps.len() as u64;
                Ok(())
            }
            Job::Offset { slot, time, value } => {
                let id = self.id(*slot)?;
                if let Some(stream) = self.streams.get_mut(slot) {
                    stream.offset = Some((*time, *value));
                }
                self.sink.clock_offset(id, *time, *value, now)
            }
            Job::Gap { slot, gap } => {
                let id = self.id(*slot)?;
                self.sink.gap(id, gap.clone())
            }
            Job::Note { slot, name, text } => {
                let id = self.id(*slot)?;
                self.sink.note(id, name, text)?;
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
        self.progress.note_unwritten(count);
        let (Ok(id), Some(&first), Some(&last)) = (self.id(*slot), stamps.first(), stamps.last())
        else {
            return;
        };
        let gap = Gap {
            from: self.sink.last_stamp(id).unwrap_or(first),
            to: last,
            samples: Some(count),
            reason: "the disk did not take them".into(),
        };
        // It was refused because the file has ended; the number above remains.
        let _ = self.sink.gap(id, gap);
    }

    /// Writes boundaries and starts syncs when they are due.
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
        match self.sink.tick(now) {
            Ok(()) => self.note_bytes(),
            // The next samples meet the same.
            Err(error) if error.kind() == ErrorKind::Full => {}
            Err(error) => self.survive(&error),
        }
        if now - self.sync_at >= self.settings.sync_secs && !self.is_syncing {
            self.sync_at = now;
            let len = self.before + self.sink.len();
            if len == self.progress.synced_bytes() {
                return;
            }
            match self.sink.begin_sync(now) {
                Ok(pending) => {
                    self.is_syncing = self.syncs.try_send((self.file, len, pending)).is_ok();
                }
                // Padding that fills a block of an encrypted file needs room, too.
                Err(error) if error.kind() == ErrorKind::Full => {}
                Err(error) => self.survive(&error),
            }
        }
    }

    fn take_synced(&mut self, file: usize, len: u64, synced: Synced) {
        // The fate of an earlier file was reported when it was left.
        if file != self.file {
            return;
        }
        match self.sink.end_sync(synced) {
            Ok(()) => self.progress.note_synced(len),
            Err(error) => self.survive(&error),
        }
        if let (Some(trouble), false) = (self.sink.journal_trouble(), self.journal_reported) {
            self.events.push(Event::NoJournal(trouble.to_owned()));
            self.journal_reported = true;
        }
    }

    fn note_bytes(&self) {
        let bytes = self.before + self.sink.len();
        self.progress.note_bytes(bytes);
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
        let is_low = free_space(&self.settings.output.path).is_some_and(|free| free < least);
        if !is_low || free_space(&path).is_none_or(|free| free < least) {
            return;
        }
        self.events.push(Event::LeavingDisk {
            min_free: least,
            path: path.clone(),
        });
        match self.begin_anew(&path) {
            Ok(()) => self.settings.spill = None,
            Err(error) => {
                // It is tried again when nothing else is left.
                self.space_at = f64::INFINITY;
                self.events.push(Event::NotLeft(error.to_string()));
            }
        }
    }

    /// The file in the other folder, if there is one.
    fn spill_path(&self) -> Option<PathBuf> {
        let name = self.settings.output.path.file_name().unwrap_or_default();
        let folder = self.settings.spill.as_ref()?;
        Some(folder.join(name))
    }

    /// Goes on in the other folder, if there is one; false if not.
    fn fail_over(&mut self, error: &Error) -> bool {
        let Some(path) = self.spill_path() else {
            return false;
        };
        self.settings.spill = None;
        self.events.push(Event::Spilled {
            reason: error.to_string(),
            path: path.clone(),
        });
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
        let made = self.settings.make(path, now)?;
        let mut sink = made.sink;
        let mut ids = Vec::new();
        for stream in self.streams.values() {
            let id = sink.add_stream(&stream.header, now)?;
            for (name, text) in &stream.notes {
                sink.note(id, name, text)?;
            }
            // Readers need one to begin with, and the next may be long in coming.
            if let Some((time, value)) = stream.offset {
                sink.clock_offset(id, time, value, now)?;
            }
            ids.push(id);
        }
        for (stream, id) in self.streams.values_mut().zip(ids) {
            stream.id = id;
        }
        let mut old = std::mem::replace(&mut self.sink, sink);
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

    /// Notes that nothing can be written any more.
    fn fail(&mut self, error: &Error) {
        self.progress.set_trouble(Some(&error.to_string()));
        self.progress.note_failed();
        self.complain(&error.to_string());
    }

    fn complain(&mut self, trouble: &str) {
        self.events.push(Event::Trouble(trouble.to_owned()));
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
        match self.sink.finish(local_clock()) {
            Ok(()) => {
                self.ended.is_finished = true;
                self.note_bytes();
                let synced = self.progress.bytes();
                self.progress.note_synced(synced);
            }
            Err(error) => self.fail(&error),
        }
    }
}

const NAP: Duration = Duration::from_millis(50);
const FULL_NAP: Duration = Duration::from_millis(200);
const REMINDER_SECS: f64 = 10.0;
const SPACE_SECS: f64 = 1.0;
