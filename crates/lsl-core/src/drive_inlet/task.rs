//! What an inlet's handle and its tasks share, and the task that reads the data connection.
//!
//! The task connects, reads until the stream flows, and recovers; from then on the connection lies in
//! `Flow::reader` and is read as `inlet::reader` has it, by pulls themselves or by the task.
//! Lock order: `tasks`, then `flow`, then `processing`, then `clock`; `full_info` is taken alone.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use lsl_platform::clock::local_clock;
use lsl_platform::fork::Generation;
use lsl_platform::interrupt::Interrupt;
use lsl_proto::clock::PostProcessor;
use lsl_proto::inlet::SampleRing;
use lsl_proto::inlet::reader::Reader;
use lsl_proto::inlet::{FeedDecoder, FeedOptions, FeedState};
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use crate::context::Context;
use crate::drive_clock::{self, sealed};
use crate::drive_inlet::attend::{Feed, Tenure};
use crate::drive_inlet::connection::{self, Batch, Dialled};
use crate::drive_inlet::full_info;
use crate::drive_inlet::recovery::{Recovered, Source};
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
    /// Whether a loss is reported only once no sample waits.
    pub(crate) samples_first: bool,
    pub(crate) source: Source,
    pub(crate) flow: Monitor<Flow>,
    /// Wakes the data task of an established connection to look again.
    pub(crate) data_work: Notify,
    /// The connection of a forked child is its parent's.
    pub(crate) owner: Generation,
    /// Whether there ever was a task, and with it a connection or a key.
    has_begun: AtomicBool,
    capacity_samples: usize,
    pub(crate) processing: Mutex<PostProcessor>,
    pub(crate) clock: Monitor<drive_clock::Clock>,
    pub(crate) full_info: Monitor<FullInfo>,
    /// Told after each batch of samples and when the stream is lost.
    pub(crate) notifier: OnceLock<Notifier>,
    /// To probe the clock of an outlet that encrypts.
    pub(crate) clock_keys: Monitor<sealed::ClockKeys>,
    terms: FeedOptions,
    tasks: Mutex<Tasks>,
}

/// Samples and the state of the connection they come from.
#[derive(Debug)]
pub(crate) struct Flow {
    pub(crate) ring: SampleRing,
    /// Whether a connection was complete at least once since the last `close`.
    pub(crate) opened: bool,
    /// Why no sample will ever come again.
    pub(crate) lost: Option<String>,
    pub(crate) samples: u64,
    pub(crate) bytes: u64,
    pub(crate) reconnects: u64,
    pub(crate) last_arrival: Option<f64>,
    /// Raised by `close`: a connection of an older epoch must not deliver any more.
    pub(crate) epoch: u64,
    /// The connection once it is established, and who waits for it.
    pub(crate) reader: Reader<Box<Feed>, Arc<Interrupt>>,
}

/// The full description of the stream, fetched when asked for.
#[derive(Debug, Default)]
pub(crate) struct FullInfo {
    /// With the generation of the source it came from.
    pub(crate) known: Option<(u64, StreamInfo)>,
    pub(crate) lost: Option<String>,
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
    ) -> Self {
        let terms = FeedOptions {
            version: context.config().tuning().protocol_version,
            // An outlet of liblsl loses samples with a queue of one (Q12).
            max_buffer_samples: u32::try_from(capacity_samples)
                .unwrap_or(i32::MAX as u32)
                .max(2),
            max_chunk_samples,
        };
        let tuning = context.config().tuning();
        let processing = PostProcessor::new(info.nominal_srate(), tuning.smoothing_halftime_secs);
        let clock = drive_clock::Clock::new(tuning);
        let mut byte_limit = (tuning.inlet_buffer_limit_mib as usize).saturating_mul(1 << 20);
        if info.channel_format().value_size() == 0 {
            // What a string takes is up to its sender.
            byte_limit = byte_limit.min(STRING_RING_BYTES);
        }
        let flow = Flow {
            ring: SampleRing::new(capacity_samples, byte_limit),
            opened: false,
            lost: None,
            samples: 0,
            bytes: 0,
            reconnects: 0,
            last_arrival: None,
            epoch: 0,
            reader: Reader::default(),
        };
        Self {
            channels: info.channel_count() as usize,
            recoverable,
            samples_first: false,
            source: Source::new(context.clone(), info.clone()),
            flow: Monitor::new(flow),
            data_work: Notify::new(),
            owner: Generation::current(),
            has_begun: AtomicBool::new(false),
            capacity_samples,
            processing: Mutex::new(processing),
            clock: Monitor::new(clock),
            full_info: Monitor::default(),
            notifier: OnceLock::new(),
            clock_keys: Monitor::default(),
            terms,
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
        let mut anew = Self::new(
            context,
            self.info.clone(),
            self.capacity_samples,
            self.terms.max_chunk_samples,
            self.recoverable,
        );
        anew.samples_first = self.samples_first;
        // Held by somebody who was about to change it: as if that came too late.
        if let Ok(processing) = self.processing.try_lock() {
            anew.processing = Mutex::new(processing.clone());
        }
        Some(anew)
    }

    /// Starts to receive, unless that is under way.
    pub(crate) fn start_data(self: &Arc<Self>) -> Result<()> {
        let mut tasks = lock_ignoring_poison(&self.tasks);
        if tasks.data.is_none() {
            self.has_begun.store(true, Ordering::Relaxed);
            let epoch = self.flow.lock().epoch;
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
            tasks.clock = Some(runtime::start(move || drive_clock::probe(shared))?);
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
        let (feed, leader) = self.flow.update(|flow| {
            flow.epoch += 1;
            flow.ring.clear();
            flow.opened = false;
            flow.reader.close()
        });
        // Before there can be a task of the next epoch, which has the same signals.
        if let Some(task) = task {
            task.abort();
        }
        self.source.note(false);
        drop(tasks);
        if let Some(leader) = leader {
            leader.raise();
        }
        if self.owner.is_current() {
            drop(feed);
        } else {
            // Its registration belongs to the parent's reactor.
            std::mem::forget(feed);
        }
    }

    /// Whether there is a data connection, or will be.
    pub(crate) fn is_receiving(&self) -> bool {
        lock_ignoring_poison(&self.tasks).data.is_some()
    }

    /// Longest round trip of an authentic clock probe that counts, and the error above which a clock
    /// is found too uncertain; in seconds.
    pub(crate) fn time_limits(&self) -> (f64, f64) {
        let settings = self.context.security().ok().and_then(|it| it.settings());
        let secs = |milliseconds: u32| f64::from(milliseconds) / 1000.0;
        settings.map_or((0.128, 0.005), |settings| {
            (secs(settings.max_rtt_ms), secs(settings.time_warn_ms))
        })
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
        self.flow.update(|flow| flow.lost = Some(reason.to_owned()));
        self.interrupt_leader();
        self.clock
            .update(|clock| clock.lost = Some(reason.to_owned()));
        self.full_info
            .update(|info| info.lost = Some(reason.to_owned()));
        self.notify();
    }

    /// The outlet of `generation` failed with `error`: finds it or a successor, or gives up.
    /// False means that the stream is lost.
    pub(crate) async fn recover(&self, generation: u64, error: &Error) -> bool {
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
        if self.source.recover(generation).await == Recovered::Same {
            self.source.pause(error).await;
        }
        true
    }
}

/// The data task: connects, reads and recovers until the inlet is closed or the stream lost.
async fn receive(shared: Arc<InletShared>, epoch: u64) {
    let mut connected_before = false;
    loop {
        let (endpoint, generation) = shared.source.endpoint();
        let error = match endpoint {
            None => Error::Protocol("no address of the outlet is known".into()),
            Some(endpoint) => {
                let connection = connection(&shared, endpoint.data, epoch, &mut connected_before);
                let watch = async {
                    race(
                        shared.source.changed(generation),
                        watchdog(&shared, generation),
                    )
                    .await;
                };
                match race(connection, watch).await {
                    Winner::First(Ok(never)) => match never {},
                    Winner::First(Err(error)) => error,
                    // Connect to the other outlet at once.
                    Winner::Second(()) => continue,
                }
            }
        };
        // Not until this task is polled again does it learn that it was aborted.
        if shared.flow.lock().epoch != epoch {
            return;
        }
        // A refusal has pauses of its own.
        if !matches!(error, Error::Security(_)) {
            shared.source.note(true);
        }
        if !shared.recover(generation, &error).await {
            return;
        }
        shared.source.back_off().await;
    }
}

/// One data connection, from connecting to its end, which is always an error.
async fn connection(
    shared: &InletShared,
    address: SocketAddr,
    epoch: u64,
    connected_before: &mut bool,
) -> Result<std::convert::Infallible> {
    // Boxed, because every inlet's task would else hold room for it.
    let opening = Box::pin(establish(shared, address, epoch, connected_before));
    let (tenure, _kept) = shared.source.in_turn(address, opening).await?;
    Err(tenure.attend().await)
}

/// Connects and reads until the stream flows. Comes with what lasts as long as the connection.
async fn establish<'a>(
    shared: &'a InletShared,
    address: SocketAddr,
    epoch: u64,
    connected_before: &mut bool,
) -> Result<(Tenure<'a>, Kept<'a>)> {
    let info = shape_of(&shared.info, shared.source.info());
    let mut session = FeedDecoder::new(&info, shared.terms);
    let dialling = (shared.source).dial(&info, address, session.request(), CONNECT_LIMIT);
    let mut dialled = (dialling.await)
        .inspect_err(|error| shared.source.note_refusal(info.uid_bytes(), error))?;
    let kept = Kept::new(shared, &mut dialled);
    let handshake_end = tokio::time::Instant::now() + HANDSHAKE_LIMIT;
    let mut state = FeedState::Opening;
    while state == FeedState::Opening {
        let opening = open(
            shared,
            &mut dialled,
            &mut session,
            epoch,
            &mut state,
            connected_before,
        );
        // Once the stream flows a pause of any length is legal.
        let outcome = tokio::time::timeout_at(handshake_end, opening).await;
        let late = || {
            Err(connection::failed(
                address,
                std::io::ErrorKind::TimedOut.into(),
            ))
        };
        if outcome.unwrap_or_else(|_| late())? == Batch::End {
            return Err(session.end());
        }
    }
    shared.source.note(false);
    // With the end of the handshake there may have come samples.
    let came = session.samples() > 0;
    let tenure = Tenure::begin(shared, epoch, Feed::new(dialled, session))?;
    if came {
        shared.notify();
    }
    Ok((tenure, kept))
}

/// As long as a data connection lives, its keys are lent to the clock and its encryption is shown.
struct Kept<'a> {
    shared: &'a InletShared,
    _keys: Option<sealed::Lease<'a>>,
}

impl<'a> Kept<'a> {
    fn new(shared: &'a InletShared, dialled: &mut Dialled) -> Self {
        let encryption = dialled.tunnel().map(|tunnel| tunnel.encryption());
        shared.source.peers().set_encryption(encryption);
        Self {
            shared,
            _keys: sealed::lend_of_feed(&shared.clock_keys, dialled),
        }
    }
}

impl Drop for Kept<'_> {
    fn drop(&mut self) {
        self.shared.source.peers().set_encryption(None);
    }
}

/// Waits for bytes and takes all that are there, up to and with the first samples.
async fn open(
    shared: &InletShared,
    dialled: &mut Dialled,
    session: &mut FeedDecoder,
    epoch: u64,
    state: &mut FeedState,
    connected_before: &mut bool,
) -> Result<Batch> {
    let outcome = dialled
        .read(|bytes| {
            let mut flow = shared.flow.lock();
            if flow.epoch != epoch {
                return Err(Error::Protocol("the inlet was closed".into()));
            }
            let before = session.samples();
            let result = session.receive(bytes, &mut flow.ring);
            let samples = session.samples() - before;
            flow.bytes += bytes.len() as u64;
            flow.samples += samples;
            if samples > 0 {
                flow.last_arrival = Some(local_clock());
            }
            if *state == FeedState::Opening && matches!(result, Ok(FeedState::Established)) {
                *state = FeedState::Established;
                flow.opened = true;
                flow.reconnects += u64::from(std::mem::replace(connected_before, true));
                flow.last_arrival = Some(local_clock());
                let nominal_srate = session.nominal_srate();
                lock_ignoring_poison(&shared.processing).set_nominal_srate(nominal_srate);
            }
            result.map(drop)
        })
        .await;
    shared.flow.wake();
    outcome
}

/// Looks for the stream when nothing has arrived for long: the outlet may be gone without a word.
/// Returns only when the source has changed. Spec: lsl-protocol §10.
async fn watchdog(shared: &InletShared, generation: u64) {
    let tuning = shared.context.config().tuning();
    let interval = Duration::from_secs_f64(tuning.watchdog_check_interval_secs.max(0.1));
    if !shared.recoverable {
        return std::future::pending().await;
    }
    let started = local_clock();
    loop {
        tokio::time::sleep(runtime::until_next(interval)).await;
        let last_arrival = shared.flow.lock().last_arrival;
        let last_sign = last_arrival.unwrap_or(started).max(started);
        let quiet = local_clock() - last_sign > tuning.watchdog_time_threshold_secs;
        if quiet
            && !shared.source.answers_in_place().await
            && shared.source.recover(generation).await == Recovered::Moved
        {
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
