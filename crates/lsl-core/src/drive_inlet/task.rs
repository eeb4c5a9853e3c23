//! The task that owns the data connection: connects, recovers, and reads as `drive_inlet::attend` has it;
//! pulls read by themselves.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use lsl_platform::clock::local_clock;
use lsl_proto::inlet::{Exchange, FeedDecoder};
use tokio::task::AbortHandle;

use crate::drive_clock::keys::{self, KeysGuard};
use crate::drive_inlet::attend::Attendance;
use crate::drive_inlet::connection::{self, Connection};
use crate::drive_inlet::full_info;
use crate::drive_inlet::shared::InletShared;
use crate::net::monitor::lock_ignoring_poison;
use crate::net::runtime;
use crate::net::select2::{Either, select2};
use crate::{Error, Result, StreamInfo};

impl InletShared {
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
        let ended = self.feed.update(|state| {
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
        if self.owner.is_current() {
            ended.finish();
        } else {
            // Its registration belongs to the parent's reactor.
            std::mem::forget(ended);
        }
    }

    /// Aborts every task of the inlet, without waiting for their end.
    pub(crate) fn stop(&self) {
        let tasks = std::mem::take(&mut *lock_ignoring_poison(&self.tasks));
        for task in [tasks.data, tasks.clock, tasks.info].into_iter().flatten() {
            task.abort();
        }
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
                    select2(shared.source.moved(moves), watchdog(&shared, moves)).await;
                };
                match select2(connection, watch).await {
                    Either::First(error) => error,
                    // Connect to the other outlet at once.
                    Either::Second(()) => continue,
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

/// Time to connect; liblsl waits for the system, which can take minutes.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// Time for the outlet to answer the request and send its test patterns.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(15);
