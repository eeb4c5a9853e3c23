//! The task that owns the data connection: connects, recovers, and reads as `drive_inlet::attend` has it;
//! pulls read by themselves.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use lsl_platform::clock::local_clock;
use lsl_proto::inlet::recovery::{Attempt, Input, Purpose};
use lsl_proto::inlet::{Exchange, FeedDecoder, Reconnection};
use tokio::task::AbortHandle;

use crate::drive_clock::keys::{self, KeysGuard};
use crate::drive_inlet::attend::Attendance;
use crate::drive_inlet::connection::{self, Connection};
use crate::drive_inlet::full_info;
use crate::drive_inlet::reach::Way;
use crate::drive_inlet::shared::{InletShared, Tasks};
use crate::net::monitor::lock_ignoring_poison;
use crate::net::runtime;
use crate::{Error, Result, StreamInfo};

impl InletShared {
    /// Starts to receive, unless that is under way.
    pub(crate) fn start_data(self: &Arc<Self>) -> Result<()> {
        self.start_data_in(&mut lock_ignoring_poison(&self.tasks))
    }

    /// The same. Returns the epoch, which ends when the inlet is closed.
    pub(crate) fn start_epoch(self: &Arc<Self>) -> Result<u64> {
        let mut tasks = lock_ignoring_poison(&self.tasks);
        self.start_data_in(&mut tasks)?;
        Ok(self.feed.lock().epoch)
    }

    fn start_data_in(self: &Arc<Self>, tasks: &mut Tasks) -> Result<()> {
        if tasks.data.is_some() {
            return Ok(());
        }
        let epoch = self.feed.lock().epoch;
        // Not by the task, which may be aborted before it is polled, and late then.
        self.tell(Input::Wanted(Purpose::Feed));
        self.start(&mut tasks.data, move |shared| receive(shared, epoch))
    }

    /// Starts to probe the outlet's clock, unless that is under way.
    pub(crate) fn start_clock(self: &Arc<Self>) -> Result<()> {
        let mut tasks = lock_ignoring_poison(&self.tasks);
        self.start(&mut tasks.clock, crate::drive_clock::probe)
    }

    /// Starts to fetch the full info, unless that is under way.
    pub(crate) fn start_full_info(self: &Arc<Self>) -> Result<()> {
        let mut tasks = lock_ignoring_poison(&self.tasks);
        tasks.info.take_if(|task| task.is_finished());
        self.start(&mut tasks.info, full_info::fetch)
    }

    fn start<F: Future<Output = ()> + Send + 'static>(
        self: &Arc<Self>,
        task: &mut Option<AbortHandle>,
        make: impl FnOnce(Arc<Self>) -> F + Send + 'static,
    ) -> Result<()> {
        if task.is_none() {
            self.has_begun.store(true, Ordering::Relaxed);
            let shared = Arc::clone(self);
            *task = Some(runtime::start(move || make(shared))?);
        }
        Ok(())
    }

    /// Disconnects the data connection and forgets queued samples; a later pull connects again, those that wait do
    /// not.
    pub(crate) fn close_data(&self) {
        // Held until the epoch has changed, or a pull could start a task of the old one in between.
        let mut tasks = lock_ignoring_poison(&self.tasks);
        let task = tasks.data.take();
        // First: a task that finds its connection gone reports a failure, which counts while it is wanted.
        self.tell(Input::Done(Purpose::Feed));
        let ended = self.feed.update(|state| {
            state.epoch += 1;
            state.feed.clear();
            state.end()
        });
        // Before there can be a task of the next epoch, which has the same signals.
        if let Some(task) = task {
            task.abort();
        }
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
}

/// The task of the data connection: connects, reads and recovers until the inlet is closed or the stream
/// lost.
async fn receive(shared: Arc<InletShared>, epoch: u64) {
    loop {
        let attempt = shared.next_attempt(Purpose::Feed).await;
        // Not until this task is polled again does it learn that it was aborted. Then the attempt is another's.
        if shared.feed.lock().epoch != epoch {
            shared.tell(Input::Returned(attempt.id));
            return;
        }
        let trying = connection(&shared, &attempt, epoch);
        if let Some(error) = shared.attempt(attempt.id, trying).await
            && !shared.failed(&attempt, &error)
        {
            return;
        }
    }
}

/// One data connection, from connecting to its end. Returns why it ended.
async fn connection(shared: &InletShared, attempt: &Attempt, epoch: u64) -> Error {
    let mut ways = match shared.ways(attempt) {
        Ok(ways) => ways,
        Err(error) => return error,
    };
    // One that let us connect and led nowhere comes last.
    let first_way = shared.source.first_way.swap(0, Ordering::Relaxed);
    let first_way = first_way % ways.len().max(1);
    ways.rotate_left(first_way);
    let Some(address) = ways.first().map(Way::peer) else {
        return Error::Protocol("no way to the outlet is known".into());
    };
    // Boxed, because every inlet's task would else hold room for it.
    let opening = Box::pin(open(shared, attempt, (&ways, first_way), epoch));
    match shared.source.in_turn(address, opening).await {
        Ok((attendance, _published)) => attendance.attend().await,
        Err(error) => error,
    }
}

/// Connects and reads until the stream flows. Comes with what lasts as long as the connection.
async fn open<'a>(
    shared: &'a InletShared,
    attempt: &Attempt,
    (ways, first_way): (&[Way], usize),
    epoch: u64,
) -> Result<(Attendance<'a>, PublishedSession<'a>)> {
    let info = &attempt.info;
    debug_assert_eq!(shared.info.channel_count(), info.channel_count());
    debug_assert_eq!(shared.info.channel_format(), info.channel_format());
    let feed = |_: &Way| {
        let asked = shared.feed.lock().feed.asked(local_clock());
        Exchange::Feed(Box::new(FeedDecoder::asking(info, shared.options, asked)))
    };
    let connecting = shared.reach(attempt, ways, feed, CONNECT_LIMIT);
    let (mut connection, number) = (connecting.await).inspect_err(|error| {
        if matches!(error, Error::Security(_)) && !shared.source.peers().is_busy() {
            shared.tell_trust();
            shared.tell(Input::Refused(attempt.id));
        }
    })?;
    let way = ways.get(number);
    let address = connection.peer();
    (shared.source.first_way).store(first_way + number + 1, Ordering::Relaxed);
    let published = PublishedSession::new(shared, &mut connection, way.cloned());
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
    shared.source.first_way.store(0, Ordering::Relaxed);
    shared.tell(Input::Connected);
    let reconnection = shared.feed.lock().feed.take_reconnection();
    if let Some(reconnection) = reconnection {
        log_reconnection(&shared.info, &reconnection);
    }
    Ok((attendance, published))
}

/// Says what came of a connection that was made again. Spec: resume §5.9.
fn log_reconnection(info: &StreamInfo, reconnection: &Reconnection) {
    let (name, secs) = (info.name(), reconnection.outage_secs);
    let replayed = reconnection.replayed;
    let begin = format!("stream {name:?}: connected again after {secs:.1} s");
    match reconnection.lost {
        Some(0) => tracing::info!("{begin}, {replayed} samples replayed, none lost"),
        Some(lost) => tracing::warn!("{begin}, {replayed} samples replayed, {lost} lost"),
        None => tracing::warn!("{begin}; what was lost before is not known"),
    }
}

/// Lends the keys of a data connection to the clock, and shows its encryption, for as long as it lives.
struct PublishedSession<'a> {
    shared: &'a InletShared,
    _keys: Option<KeysGuard<'a>>,
}

impl<'a> PublishedSession<'a> {
    fn new(shared: &'a InletShared, connection: &mut Connection, way: Option<Way>) -> Self {
        let encryption = connection.session().map(|session| session.encryption());
        shared.source.peers().set_encryption(encryption);
        if shared.has_relays() {
            shared.facts.update(|facts| facts.way = way);
        }
        Self {
            shared,
            _keys: keys::lend(&shared.facts, connection, true),
        }
    }
}

impl Drop for PublishedSession<'_> {
    fn drop(&mut self) {
        self.shared.source.peers().set_encryption(None);
        if self.shared.has_relays() {
            self.shared.facts.update(|facts| facts.way = None);
        }
    }
}

/// Time to connect; liblsl waits for the system, which can take minutes.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// Time for the outlet to answer the request and send its test patterns.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(15);
