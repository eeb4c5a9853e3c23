//! What an inlet's handle and its tasks share, and the task that owns the data connection.
//!
//! The task connects, recovers, and reads as `drive_inlet::attend` has it; pulls read by themselves.
//! Lock order: `tasks`, then `feed`; the others are taken alone.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use lsl_platform::clock::local_clock;
use lsl_platform::fork::Generation;
use lsl_proto::clock::{PostProcessor, TimeCorrection};
use lsl_proto::inlet::{Exchange, Feed, FeedDecoder, FeedOptions, SampleRing};
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use crate::context::Context;
use crate::drive_clock::keys::{self, KeysGuard, LentKeys};
use crate::drive_inlet::attend::Attendance;
use crate::drive_inlet::connection::{self, Connection};
use crate::drive_inlet::full_info;
use crate::drive_inlet::pull::FeedState;
use crate::drive_inlet::recovery::Source;
use crate::net::monitor::{Monitor, lock_ignoring_poison};
use crate::net::race::{Winner, race};
use crate::net::runtime;
use crate::{Error, Result, StreamInfo};

/// The part of an inlet that its handle and its tasks hold together.
#[derive(Debug)]
pub(crate) struct InletShared {
    pub(crate) context: Context,
    /// The stream as the caller described it: the shape of the samples never changes.
    pub(crate) info: StreamInfo,
    pub(crate) channels: usize,
    pub(crate) recoverable: bool,
    pub(crate) source: Source,
    pub(crate) feed: Monitor<FeedState>,
    /// Wakes the task of the data connection to look again.
    pub(crate) work: Notify,
    /// The connection of a forked child is its parent's.
    pub(crate) owner: Generation,
    /// Whether there ever was a task, and with it a connection or a key.
    has_begun: AtomicBool,
    capacity_samples: usize,
    pub(crate) facts: Monitor<Facts>,
    /// Told after each batch of samples and when the stream is lost.
    pub(crate) notifier: OnceLock<Notifier>,
    options: FeedOptions,
    samples_first: bool,
    tasks: Mutex<Tasks>,
}

/// What is known of the outlet besides its samples.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    /// Of the outlet's clock.
    pub(crate) correction: Option<TimeCorrection>,
    /// Fetched when asked for, with the moves of the source it came from.
    pub(crate) full_info: Option<(u64, StreamInfo)>,
    /// For the clock of an outlet that encrypts, lent by whichever session lives.
    pub(crate) keys: Option<LentKeys>,
    /// Id of the keys that were lent last.
    pub(crate) last_keys: u64,
    /// Reason of the final loss.
    lost: Option<String>,
}

impl Facts {
    /// Returns whether a session lends its keys.
    pub(crate) fn has_keys(&self) -> bool {
        self.keys.is_some()
    }

    /// Returns `known` or the loss, for those who wait for it.
    pub(crate) fn or_lost<T>(&self, known: Option<T>) -> Option<Result<T>> {
        match &self.lost {
            Some(reason) => Some(Err(Error::Lost {
                reason: reason.clone(),
            })),
            None => known.map(Ok),
        }
    }
}

/// Somebody else's function, to be called without any lock held.
pub(crate) struct Notifier(pub(crate) Box<dyn Fn() + Send + Sync>);

impl std::fmt::Debug for Notifier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Notifier")
    }
}

#[derive(Debug, Default)]
struct Tasks {
    data: Option<AbortHandle>,
    clock: Option<AbortHandle>,
    info: Option<AbortHandle>,
}

impl InletShared {
    pub(crate) fn new(
        context: Context,
        info: StreamInfo,
        capacity_samples: usize,
        max_chunk_samples: u32,
        recoverable: bool,
        samples_first: bool,
    ) -> Self {
        let options = FeedOptions {
            version: context.config().tuning().protocol_version,
            // An outlet of liblsl loses samples with a queue of one (Q12).
            max_buffer_samples: u32::try_from(capacity_samples)
                .unwrap_or(i32::MAX as u32)
                .max(2),
            max_chunk_samples,
        };
        let tuning = context.config().tuning();
        let processing = PostProcessor::new(info.nominal_srate(), tuning.smoothing_halftime_secs);
        let mut byte_limit = (tuning.inlet_buffer_limit_mib as usize).saturating_mul(1 << 20);
        if info.channel_format().value_size() == 0 {
            // What a string takes is up to its sender.
            byte_limit = byte_limit.min(STRING_RING_BYTES);
        }
        let channels = info.channel_count() as usize;
        let ring = SampleRing::new(capacity_samples, byte_limit);
        let shape = (channels, info.channel_format());
        let feed = Feed::new(ring, processing, shape, samples_first);
        Self {
            channels,
            recoverable,
            source: Source::new(context.clone(), info.clone()),
            feed: Monitor::new(FeedState::new(feed)),
            work: Notify::new(),
            owner: Generation::current(),
            has_begun: AtomicBool::new(false),
            capacity_samples,
            facts: Monitor::default(),
            notifier: OnceLock::new(),
            options,
            samples_first,
            tasks: Mutex::default(),
            context,
            info,
        }
    }

    /// The same inlet in a forked child, in `context`, which is the child's own. `None` if it had begun
    /// before the fork, or has a notifier: its connections, keys and threads are its parent's.
    ///
    /// Waits for no lock: threads that only the parent has may hold them.
    pub(crate) fn in_forked_child(&self, context: Context) -> Option<Self> {
        if self.has_begun.load(Ordering::Relaxed) || self.notifier.get().is_some() {
            return None;
        }
        let anew = Self::new(
            context,
            self.info.clone(),
            self.capacity_samples,
            self.options.max_chunk_samples,
            self.recoverable,
            self.samples_first,
        );
        // Held by somebody who was about to change it: as if that came too late.
        if let Some(state) = self.feed.try_lock() {
            anew.feed.lock().feed.processing = state.feed.processing.clone();
        }
        Some(anew)
    }

    /// Starts to receive, unless that is under way.
    pub(crate) fn start_data(self: &Arc<Self>) -> Result<()> {
        let mut tasks = lock_ignoring_poison(&self.tasks);
        if tasks.data.is_none() {
            self.has_begun.store(true, Ordering::Relaxed);
            let epoch = self.feed.lock().epoch;
            let shared = Arc::clone(self);
            tasks.data = Some(runtime::start(move || receive(shared, epoch))?);
        }
        Ok(())
    }

    /// Starts to probe the outlet's clock, unless that is under way.
    pub(crate) fn start_clock(self: &Arc<Self>) -> Result<()> {
        let mut tasks = lock_ignoring_poison(&self.tasks);
        if tasks.clock.is_none() {
            self.has_begun.store(true, Ordering::Relaxed);
            let shared = Arc::clone(self);
            tasks.clock = Some(runtime::start(move || crate::drive_clock::probe(shared))?);
        }
        Ok(())
    }

    /// Starts to fetch the full info, unless that is under way.
    pub(crate) fn start_full_info(self: &Arc<Self>) -> Result<()> {
        let mut tasks = lock_ignoring_poison(&self.tasks);
        if tasks.info.as_ref().is_none_or(AbortHandle::is_finished) {
            self.has_begun.store(true, Ordering::Relaxed);
            let shared = Arc::clone(self);
            tasks.info = Some(runtime::start(move || full_info::fetch(shared))?);
        }
        Ok(())
    }

    /// Disconnects the data connection and forgets queued samples; a later pull connects again.
    pub(crate) fn close_data(&self) {
        // Held until the epoch has changed, or a pull could start a task of the old one in between.
        let mut tasks = lock_ignoring_poison(&self.tasks);
        let task = tasks.data.take();
        let (connection, leader) = self.feed.update(|state| {
            state.epoch += 1;
            state.feed.clear();
            state.end()
        });
        // Before there can be a task of the next epoch, which has the same signals.
        if let Some(task) = task {
            task.abort();
        }
        self.source.on_connected();
        drop(tasks);
        if let Some(leader) = leader {
            leader.raise();
        }
        if self.owner.is_current() {
            drop(connection);
        } else {
            // Its registration belongs to the parent's reactor.
            std::mem::forget(connection);
        }
    }

    /// Whether there is a data connection, or will be.
    pub(crate) fn is_receiving(&self) -> bool {
        lock_ignoring_poison(&self.tasks).data.is_some()
    }

    /// Shows what is known of the outlet's clock to pulls, and to those who wait for it.
    pub(crate) fn publish_clock(&self, correction: Option<TimeCorrection>, was_reset: bool) {
        let offset_secs = correction.map(|it| it.offset_secs);
        self.feed.lock().feed.set_offset(offset_secs, was_reset);
        self.facts.update(|facts| facts.correction = correction);
    }

    /// Ends every task.
    pub(crate) fn stop(&self) {
        let tasks = std::mem::take(&mut *lock_ignoring_poison(&self.tasks));
        for task in [tasks.data, tasks.clock, tasks.info].into_iter().flatten() {
            task.abort();
        }
    }

    /// Tells the notifier, if there is one, that a pull would not wait.
    pub(crate) fn notify(&self) {
        if let Some(notifier) = self.notifier.get() {
            (notifier.0)();
        }
    }

    /// No more of this stream, for any call. Final.
    pub(crate) fn lose(&self, reason: &str) {
        self.feed.update(|state| state.feed.lose(reason));
        self.interrupt_leader();
        self.facts
            .update(|facts| facts.lost = Some(reason.to_owned()));
        self.notify();
    }

    /// The outlet of `moves` failed with `error`: finds it or a successor, or gives up.
    /// False means that the stream is lost.
    pub(crate) async fn recover(&self, moves: u64, error: &Error) -> bool {
        if self.source.wait_if_busy(error).await {
            return true;
        }
        if !self.recoverable {
            // Said here and not in `lose`, which also ends inlets that nobody wants any more.
            tracing::info!(name = ?self.info.name(), %error, "stream lost");
            self.lose(&error.to_string());
            return false;
        }
        tracing::debug!(name = ?self.info.name(), %error, "connection failed; looking for the stream");
        if !self.source.recover(moves).await {
            self.source.pause(error).await;
        }
        true
    }
}

/// The task of the data connection: connects, reads and recovers until the inlet is closed or the stream
/// lost.
async fn receive(shared: Arc<InletShared>, epoch: u64) {
    loop {
        let (endpoint, moves) = shared.source.endpoint();
        let error = match endpoint {
            None => Error::Protocol("no address of the outlet is known".into()),
            Some(endpoint) => {
                let connection = connection(&shared, endpoint.data, epoch);
                let watch = async {
                    race(shared.source.moved(moves), watchdog(&shared, moves)).await;
                };
                match race(connection, watch).await {
                    Winner::First(error) => error,
                    // Connect to the other outlet at once.
                    Winner::Second(()) => continue,
                }
            }
        };
        // Not until this task is polled again does it learn that it was aborted.
        if shared.feed.lock().epoch != epoch {
            return;
        }
        // A refusal has pauses of its own.
        if !matches!(error, Error::Security(_)) {
            shared.source.on_failed();
        }
        if !shared.recover(moves, &error).await {
            return;
        }
        shared.source.back_off().await;
    }
}

/// One data connection, from connecting to its end. Returns why it ended.
async fn connection(shared: &InletShared, address: SocketAddr, epoch: u64) -> Error {
    // Boxed, because every inlet's task would else hold room for it.
    let opening = Box::pin(open(shared, address, epoch));
    match shared.source.in_turn(address, opening).await {
        Ok((attendance, _published)) => attendance.attend().await,
        Err(error) => error,
    }
}

/// Connects and reads until the stream flows. Comes with what lasts as long as the connection.
async fn open(
    shared: &InletShared,
    address: SocketAddr,
    epoch: u64,
) -> Result<(Attendance<'_>, PublishedSession<'_>)> {
    let info = shape_of(&shared.info, shared.source.info());
    let feed = || Exchange::Feed(Box::new(FeedDecoder::new(&info, shared.options)));
    let connecting = shared.source.dial(&info, address, feed, CONNECT_LIMIT);
    let mut connection = (connecting.await)
        .inspect_err(|error| shared.source.on_refused(info.uid_bytes(), error))?;
    let published = PublishedSession::new(shared, &mut connection);
    let attendance = Attendance::begin(shared, epoch, connection)?;
    // Once the stream flows a pause of any length is legal.
    let opened = tokio::time::timeout(HANDSHAKE_LIMIT, attendance.open()).await;
    let late = || {
        Err(connection::failed(
            address,
            std::io::ErrorKind::TimedOut.into(),
        ))
    };
    opened.unwrap_or_else(|_| late())?;
    shared.source.on_connected();
    Ok((attendance, published))
}

/// Lends the keys of a data connection to the clock, and shows its encryption, for as long as it lives.
struct PublishedSession<'a> {
    shared: &'a InletShared,
    _keys: Option<KeysGuard<'a>>,
}

impl<'a> PublishedSession<'a> {
    fn new(shared: &'a InletShared, connection: &mut Connection) -> Self {
        let encryption = connection.session().map(|session| session.encryption());
        shared.source.peers().set_encryption(encryption);
        Self {
            shared,
            _keys: keys::lend(&shared.facts, connection, true),
        }
    }
}

impl Drop for PublishedSession<'_> {
    fn drop(&mut self) {
        self.shared.source.peers().set_encryption(None);
    }
}

/// Looks for the stream when nothing has arrived for long: the outlet may be gone without a word.
/// Returns only when the source has changed. Spec: lsl-protocol §10.
async fn watchdog(shared: &InletShared, moves: u64) {
    let tuning = shared.context.config().tuning();
    let interval = Duration::from_secs_f64(tuning.watchdog_check_interval_secs.max(0.1));
    if !shared.recoverable {
        return std::future::pending().await;
    }
    let started = local_clock();
    loop {
        tokio::time::sleep(runtime::until_next(interval)).await;
        let last_arrival = shared.feed.lock().feed.counts().last_arrival;
        let last_sign = last_arrival.unwrap_or(started).max(started);
        let quiet = local_clock() - last_sign > tuning.watchdog_time_threshold_secs;
        if quiet && !shared.source.answers_in_place().await && shared.source.recover(moves).await {
            return;
        }
    }
}

/// The present outlet's identity with the shape that the caller's samples have.
fn shape_of(original: &StreamInfo, present: StreamInfo) -> StreamInfo {
    debug_assert_eq!(original.channel_count(), present.channel_count());
    debug_assert_eq!(original.channel_format(), present.channel_format());
    present
}

/// Queued string data may take this much memory, whatever a peer sends.
const STRING_RING_BYTES: usize = 256 << 20;

/// Time to connect; liblsl waits for the system, which can take minutes.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// Time for the outlet to answer the request and send its test patterns.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(15);
