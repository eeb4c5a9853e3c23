//! One recording from its beginning to its end: search, connect, then a file; at the end everything up to
//! that moment, footers, and a report.

use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use lsl_core::{Context, History, Selector, StreamInfo, Timeout, local_clock};
use lsl_platform::disk::free_space;
use lsl_xdf::at_rest::Cancel;

use crate::error::StartError;
use crate::event::{Event, Events};
use crate::halt::Halt;
use crate::live::{Live, Stamps, StreamState, StreamStatus};
use crate::marks::{MarkError, Marks};
use crate::output::{Output, file_header};
use crate::place;
use crate::queue::{Queue, WriteProgress};
use crate::selection::{LabelledSelector, Search, Session, Wishes};
use crate::shared::{OtherKeys, StreamSettings};
use crate::signing::DeviceSigner;
use crate::space::{self, Alarm};
use crate::strangers::TURN_SECS;
use crate::writer::{self, Ended, Settings};

/// Builder of a [`Recorder`]: what to record, and how.
#[derive(Debug, Clone)]
#[must_use = "nothing is recorded before `start`"]
pub struct RecorderBuilder {
    context: Context,
    output: Output,
    events: Events,
    wishes: Wishes,
    duration_secs: Option<f64>,
    settings: StreamSettings,
    sync_secs: f64,
    spill: Option<PathBuf>,
    min_free: u64,
    signer: Option<DeviceSigner>,
}

impl RecorderBuilder {
    /// Records these streams, now and when they appear later. Events and [`Status::awaited`] name them by
    /// `label`.
    pub fn record(mut self, label: impl Into<String>, selector: Selector) -> Self {
        self.wishes
            .wanted
            .push(LabelledSelector::new(label, selector));
        self
    }

    /// Records these streams, and starts only if they are there.
    pub fn require(mut self, label: impl Into<String>, selector: Selector) -> Self {
        self.wishes
            .required
            .push(LabelledSelector::new(label, selector));
        self
    }

    /// Records these streams when they come, now or later.
    pub fn watch(mut self, label: impl Into<String>, selector: Selector) -> Self {
        self.wishes
            .watched
            .push(LabelledSelector::new(label, selector));
        self
    }

    /// Leaves out streams that appear after the start.
    pub fn only_now(mut self, only_now: bool) -> Self {
        self.wishes.only_now = only_now;
        self
    }

    /// Plans the end after so many seconds: nothing that is stamped later is recorded. The caller stops once
    /// [`Recorder::is_over`].
    pub fn duration(mut self, secs: Option<f64>) -> Self {
        self.duration_secs = secs;
        self
    }

    /// Sets what becomes of timestamps; by default they are recorded as they come.
    pub fn timestamps(mut self, stamps: Stamps) -> Self {
        self.settings.stamps = stamps;
        self
    }

    /// Sets what becomes of a stream that comes back with another key; by default it is refused.
    pub fn other_keys(mut self, other_keys: OtherKeys) -> Self {
        self.settings.other_keys = other_keys;
        self
    }

    /// Brings data to the disk this often; by default once a second.
    pub fn sync_every(mut self, secs: f64) -> Self {
        self.sync_secs = secs;
        self
    }

    /// Sets how many seconds of samples may wait in memory while the disk is slow or full: at least one, by
    /// default 30.
    pub fn buffer(mut self, secs: f64) -> Self {
        self.settings.buffer_secs = secs.max(1.0);
        self
    }

    /// Begins each stream with samples from before its first connection, if its outlet retains them; by default with
    /// the next one. Spec: resume §2.2.
    pub fn history(mut self, history: History) -> Self {
        self.settings.history = history;
        self
    }

    /// Names an existing folder on another disk. The recording goes on there when this one is full or fails.
    pub fn spill_dir(mut self, folder: Option<PathBuf>) -> Self {
        self.spill = folder;
        self
    }

    /// Sets how many bytes should be free. With less there is an alarm, and the recording leaves for
    /// `spill_dir`.
    pub fn min_free(mut self, bytes: u64) -> Self {
        self.min_free = bytes;
        self
    }

    /// Signs the chain of chunks with this key.
    pub fn signer(mut self, signer: Option<DeviceSigner>) -> Self {
        self.signer = signer;
        self
    }

    /// Puts events into this queue, from the first one on: also those of a start that fails.
    pub fn events(mut self, events: &Events) -> Self {
        self.events = events.clone();
        self
    }

    /// Finds and connects the streams, then makes the file and starts to write. Blocks while it searches
    /// and while it connects, `timeout_secs` each at the longest.
    ///
    /// # Errors
    /// See [`StartError`]. There is no file then.
    pub fn start(self, timeout_secs: f64, cancel: &Cancel) -> Result<Recorder, StartError> {
        let (context, events) = (&self.context, &self.events);
        context.security().map_err(StartError::Security)?;
        if self.settings.history != History::Live && !context.config().tuning().resume {
            return Err(StartError::NoHistory);
        }
        place::check(&self.output.path, self.spill.as_deref(), events)?;
        let search = Search::start(context, &self.wishes);
        let mut search = search.map_err(StartError::Search)?;
        search.settle(timeout_secs, cancel);
        if cancel.is_cancelled() {
            return Err(StartError::Cancelled);
        }
        self.refuse_if_missing(&search)?;
        let (queue, receiver) = Queue::new();
        let session = Session::begin(context, search, &queue, events, self.settings);
        let mut session = session.map_err(StartError::Threads)?;
        connect(&mut session, timeout_secs, cancel);
        if cancel.is_cancelled() {
            return Err(StartError::Cancelled);
        }
        judge_connections(&mut session, events)?;
        self.announce(&session);
        let settings = Settings {
            header: file_header(),
            output: self.output,
            signer: self.signer,
            sync_secs: self.sync_secs,
            spill: self.spill,
            min_free: self.min_free,
        };
        let writer = writer::start(settings, receiver, queue.progress(), events)?;
        session.note_recording();
        let started = local_clock();
        let ends_at = self.duration_secs.map(|secs| started + secs);
        if let Some(end) = ends_at {
            session.end_at(end);
        }
        let shared = SharedState {
            events: self.events.clone(),
            progress: Arc::clone(queue.progress()),
            min_free: self.min_free,
            started,
            view: Mutex::default(),
        };
        shared.note(&session);
        shared.look_at_space();
        let shared = Arc::new(shared);
        let (stopping, stopped) = mpsc::channel();
        let of_thread = Arc::clone(&shared);
        let session = thread::Builder::new()
            .name("lsl-session".into())
            .spawn(move || of_thread.look_after(session, &stopped))
            .map_err(StartError::Threads)?;
        Ok(Recorder {
            shared,
            queue,
            session,
            stopping,
            writer,
            ends_at,
            marks: Mutex::default(),
        })
    }

    fn refuse_if_missing(&self, search: &Search) -> Result<(), StartError> {
        let missing = search.missing();
        if !missing.is_empty() {
            let missing = missing.into_iter().map(str::to_owned);
            return Err(StartError::Missing(missing.collect()));
        }
        if search.is_empty() && self.wishes.watched.is_empty() {
            return Err(StartError::NothingFound);
        }
        for label in search.awaited() {
            self.events.push(Event::Awaited(label.to_owned()));
        }
        Ok(())
    }

    /// Reports the streams to be recorded before it starts.
    fn announce(&self, session: &Session) {
        let streams: Vec<StreamStatus> = statuses(session.streams());
        let is_plain = |it: &&StreamStatus| it.has_header && it.encryption.is_none();
        let in_plaintext = streams.iter().filter(is_plain).count();
        let streams: Vec<StreamInfo> = streams.into_iter().map(|it| it.info).collect();
        self.events.push(Event::Recording {
            path: self.output.path.clone(),
            in_plaintext,
            bytes_per_sec: space::estimate(&streams),
            free: free_space(&self.output.path),
            streams,
        });
    }
}

/// A recording that goes on. Dropping it ends the recording; samples that streams hand over within
/// two seconds and the footers are then written in the background.
#[derive(Debug)]
pub struct Recorder {
    shared: Arc<SharedState>,
    queue: Queue,
    /// Gives the streams back if it was told to stop.
    session: JoinHandle<Option<Session>>,
    stopping: Sender<()>,
    writer: JoinHandle<Ended>,
    /// When it ends, by our clock, if that is planned.
    ends_at: Option<f64>,
    marks: Mutex<Marks>,
}

impl Recorder {
    /// Returns a builder, which records every stream of the session if it is told of none.
    pub fn builder(context: &Context, output: Output) -> RecorderBuilder {
        RecorderBuilder {
            context: context.clone(),
            output,
            events: Events::default(),
            wishes: Wishes::default(),
            duration_secs: None,
            settings: StreamSettings {
                stamps: Stamps::Raw,
                other_keys: OtherKeys::Refuse,
                buffer_secs: 30.0,
                history: History::Live,
            },
            sync_secs: 1.0,
            spill: None,
            min_free: 0,
            signer: None,
        }
    }

    /// Returns how the recording is doing. Never blocks.
    pub fn status(&self) -> Status {
        self.shared.status()
    }

    /// Takes the next event. Blocks until there is one or the recording is over, `timeout` at the longest.
    pub fn next_event(&self, timeout: impl Into<Timeout>) -> Option<Event> {
        let deadline = timeout.into().deadline(local_clock());
        loop {
            // Asked first, so that nothing that came before the end is left.
            let is_over = self.is_over();
            let left = (deadline - local_clock()).clamp(0.0, STEP.as_secs_f64());
            let event = self.shared.events.next(Timeout::from_secs(left));
            if event.is_some() || is_over || local_clock() >= deadline {
                return event;
            }
        }
    }

    /// Records a text event of this moment, in a stream of its own.
    ///
    /// # Errors
    /// Nobody takes it. It is counted as missing then.
    pub fn mark(&self, text: &str) -> Result<(), MarkError> {
        lock(&self.marks).add(&self.queue, local_clock(), text)
    }

    /// Whether nothing more is recorded: the planned end is there, or the disk failed.
    pub fn is_over(&self) -> bool {
        self.ends_at.is_some_and(|end| local_clock() >= end)
            || self.queue.progress().has_failed()
            || self.session.is_finished()
    }

    /// Ends the recording, writes the footers and returns how it went. Blocks until the file is on the disk;
    /// `hurry` turns [`Stop::Drain`] into [`Stop::Now`].
    pub fn stop(self, mode: Stop, hurry: &Cancel) -> Report {
        // Fails only if the thread is gone, which joining it tells.
        let _ = self.stopping.send(());
        let events = &self.shared.events;
        let progress = Arc::clone(self.queue.progress());
        progress.end();
        let mut trouble = Vec::new();
        let (streams, gone) = if let Ok(Some(session)) = self.session.join() {
            if !drain(&session, mode, self.ends_at, hurry, events) {
                trouble.push(
                    "streams were given up that had not handed over what they had".to_owned(),
                );
            }
            session.end()
        } else {
            trouble.push("the recorder ended unexpectedly".to_owned());
            (Vec::new(), Vec::new())
        };
        // The writer ends with its last sender even without [`Job::Finish`].
        drop(self.queue);
        let ended = self.writer.join().unwrap_or_else(|_| Ended {
            trouble: vec!["the writer ended unexpectedly".into()],
            ..Ended::default()
        });
        trouble.extend(ended.trouble);
        {
            let mut view = self.shared.view();
            view.streams.clone_from(&streams);
            view.awaited.clear();
            view.alarm = None;
            view.measure(local_clock(), progress.bytes());
        }
        let mut report = Report {
            status: self.shared.status(),
            trouble,
            is_finished: ended.is_finished,
            samples: ended.samples.values().sum(),
            recorded_streams: ended.samples.len(),
            refused: Vec::new(),
            lost: Vec::new(),
        };
        for live in &streams {
            let status = live.lock();
            if status.is_lost {
                let name = status.info.name().into_owned();
                match status.state {
                    StreamState::Refused(_) => report.refused.push(name),
                    _ => report.lost.push(name),
                }
            }
        }
        report.lost.extend(gone);
        report
    }
}

/// Way in which a recording ends.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Stop {
    /// Stops with all samples up to a time of our clock, or the planned end if that is earlier.
    Drain {
        /// End of the recording, in seconds of `local_clock`; not later than now.
        until: f64,
        /// Longest time that streams may take to hand over what belongs to it.
        grace_secs: f64,
    },
    /// Stops at once, with the samples already here.
    Now,
}

/// State of a recording at one moment.
#[derive(Debug, Clone, Default)]
pub struct Status {
    /// Seconds since the recording began.
    pub secs: f64,
    /// Streams of the recording, in the order in which they began.
    pub streams: Vec<StreamStatus>,
    /// Labels of wishes that are not required and not fulfilled yet.
    pub awaited: Vec<String>,
    /// The file being written, and those before it.
    pub files: Vec<PathBuf>,
    /// Bytes in whole chunks, of all files.
    pub bytes: u64,
    /// Bytes of the files that would survive a loss of power.
    pub synced_bytes: u64,
    /// Bytes a second that the file grew by of late.
    pub bytes_per_sec: f64,
    /// Bytes that wait for the disk.
    pub waiting_bytes: usize,
    /// Bytes that are free on the disk, if that is known.
    pub free_bytes: Option<u64>,
    /// Samples that could not be written.
    pub unwritten: u64,
    /// Present fault of the disk or the journal.
    pub trouble: Option<String>,
    /// Alarm about free space on the disk.
    pub alarm: Option<Alarm>,
}

impl Status {
    /// Returns how many seconds the disk will do at the rate of late.
    pub fn left_secs(&self) -> Option<f64> {
        left_secs(self.free_bytes?, self.bytes_per_sec)
    }

    /// Returns how many samples are missing: lost on the way, or not written.
    pub fn missing(&self) -> u64 {
        let lost: u64 = self.streams.iter().map(|stream| stream.missing).sum();
        lost + self.unwritten
    }
}

/// Result of a recording that has ended.
#[derive(Debug, Clone)]
pub struct Report {
    /// State at the end of the recording.
    pub status: Status,
    /// Reasons for which samples are missing in the files, or faulty.
    pub trouble: Vec<String>,
    /// Whether the last file has its footers.
    pub is_finished: bool,
    /// Number of samples in the files.
    pub samples: u64,
    /// Streams of which there are any.
    pub recorded_streams: usize,
    /// Streams that encryption did not allow to record.
    pub refused: Vec<String>,
    /// Streams that were lost and did not come back, and labels of those that never connected.
    pub lost: Vec<String>,
}

/// State that the recorder shares with the thread of its session.
#[derive(Debug)]
struct SharedState {
    events: Events,
    progress: Arc<WriteProgress>,
    min_free: u64,
    started: f64,
    view: Mutex<View>,
}

/// Copy of the session's state, as of its last look.
#[derive(Debug, Default)]
struct View {
    streams: Vec<Arc<Live>>,
    awaited: Vec<String>,
    free: Option<u64>,
    alarm: Option<Alarm>,
    /// Bytes at a time, to tell how fast the file grows.
    growth: Option<(f64, u64)>,
    bytes_per_sec: f64,
}

impl SharedState {
    fn view(&self) -> MutexGuard<'_, View> {
        lock(&self.view)
    }

    /// Looks after the streams until the recorder is stopped, and returns them. Ends them if it was dropped.
    fn look_after(&self, mut session: Session, stopped: &Receiver<()>) -> Option<Session> {
        let mut space_at = local_clock() + SPACE_SECS;
        loop {
            match stopped.recv_timeout(STEP) {
                Ok(()) => return Some(session),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {}
            }
            session.look();
            self.note(&session);
            let now = local_clock();
            if now >= space_at {
                space_at = now + SPACE_SECS;
                self.look_at_space();
            }
        }
        self.progress.end();
        drain(&session, Stop::Now, None, &Cancel::default(), &self.events);
        session.end();
        None
    }

    fn note(&self, session: &Session) {
        let awaited = session.search().awaited();
        let mut view = self.view();
        view.streams = session.streams().to_vec();
        view.awaited = awaited.into_iter().map(str::to_owned).collect();
        view.measure(local_clock(), self.progress.bytes());
    }

    fn look_at_space(&self) {
        let files = self.progress.files();
        // Without the lock: a disk may take its time to answer.
        let free = files.last().and_then(|file| free_space(file));
        let mut view = self.view();
        let left_secs = free.and_then(|free| left_secs(free, view.bytes_per_sec));
        let alarm = free.and_then(|free| Alarm::of(free, left_secs, self.min_free));
        let before = std::mem::replace(&mut view.alarm, alarm);
        view.free = free;
        drop(view);
        if let (Some(alarm), None) = (alarm, before) {
            self.events.push(Event::LowSpace(alarm));
        }
    }

    fn status(&self) -> Status {
        let view = self.view();
        let progress = &self.progress;
        Status {
            secs: local_clock() - self.started,
            streams: statuses(&view.streams),
            awaited: view.awaited.clone(),
            files: progress.files(),
            bytes: progress.bytes(),
            synced_bytes: progress.synced_bytes(),
            bytes_per_sec: view.bytes_per_sec,
            waiting_bytes: progress.waiting_bytes(),
            free_bytes: view.free,
            unwritten: progress.unwritten(),
            trouble: progress.trouble(),
            alarm: view.alarm,
        }
    }
}

impl View {
    fn measure(&mut self, now: f64, bytes: u64) {
        let (since, before) = *self.growth.get_or_insert((now, bytes));
        if now - since >= GROWTH_SECS {
            self.bytes_per_sec = bytes.saturating_sub(before) as f64 / (now - since);
            self.growth = Some((now, bytes));
        }
    }
}

fn left_secs(free: u64, bytes_per_sec: f64) -> Option<f64> {
    (bytes_per_sec > 0.0).then(|| free as f64 / bytes_per_sec)
}

fn statuses(streams: &[Arc<Live>]) -> Vec<StreamStatus> {
    streams.iter().map(|live| live.status()).collect()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until every stream flows or is known not to. Silent ones that are not required keep those that flow
/// waiting for the time of a turn: anybody can make them up.
fn connect(session: &mut Session, limit_secs: f64, cancel: &Cancel) {
    let start = local_clock();
    let limit = start + limit_secs.max(SHORTEST_CONNECT);
    loop {
        session.look();
        let now = local_clock();
        let suffices = || {
            let mut streams = session.streams().iter();
            now >= start + TURN_SECS && streams.any(|live| !live.is_unproven())
        };
        let is_over = session.is_clear() || (suffices() && session.unmet().is_empty());
        if is_over || now >= limit || cancel.is_cancelled() {
            return;
        }
        thread::sleep(CONNECT_NAP);
    }
}

/// Decides whether to begin with the streams connected so far.
fn judge_connections(session: &mut Session, events: &Events) -> Result<(), StartError> {
    let unmet = session.unmet();
    let mut refused = Vec::new();
    let mut is_required_refused = false;
    let mut silent = Vec::new();
    for live in session.streams() {
        match live.state() {
            StreamState::Refused(reason) => {
                is_required_refused |= live.required;
                refused.push((live.name(), reason));
            }
            StreamState::Connecting => silent.push(live.name()),
            _ => {}
        }
    }
    let none_is_left = !refused.is_empty() && refused.len() == session.streams().len();
    if none_is_left || !unmet.is_empty() && is_required_refused {
        return Err(StartError::Refused(refused));
    }
    if !unmet.is_empty() {
        return Err(StartError::Unreachable(unmet));
    }
    for name in silent {
        events.push(Event::NotConnected(name));
    }
    Ok(())
}

/// Waits until every stream has handed over what belongs to the recording. Returns false if some were given
/// up before.
fn drain(
    session: &Session,
    mode: Stop,
    ends_at: Option<f64>,
    hurry: &Cancel,
    events: &Events,
) -> bool {
    let mut hurried_at = None;
    let mut grace = DEFAULT_GRACE_SECS;
    if let Stop::Drain { until, grace_secs } = mode {
        let until = ends_at.map_or(until, |end| end.min(until));
        let until = until.min(local_clock());
        session.halt(Halt::Drain(until, until + grace_secs));
        grace = grace_secs;
    }
    while !session.is_over() {
        if (mode == Stop::Now || hurry.is_cancelled()) && hurried_at.is_none() {
            session.halt(Halt::Now);
            hurried_at = Some(local_clock());
        }
        if hurried_at.is_some_and(|at| local_clock() > at + grace) {
            events.push(Event::GivenUp);
            return false;
        }
        thread::sleep(END_NAP);
    }
    true
}

const DEFAULT_GRACE_SECS: f64 = 2.0;
const SHORTEST_CONNECT: f64 = 1.0;
const SPACE_SECS: f64 = 1.0;
/// Time over which the growth of the file is measured.
const GROWTH_SECS: f64 = 2.0;
/// Interval at which the session is looked after.
const STEP: Duration = Duration::from_millis(100);
const CONNECT_NAP: Duration = Duration::from_millis(20);
const END_NAP: Duration = Duration::from_millis(10);
