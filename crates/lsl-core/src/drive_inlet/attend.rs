//! The receive path of a connected inlet: pulls that read the socket themselves, and the data task
//! behind them. Who waits for the socket when is decided in `inlet::reader`; here is what they do.
//!
//! Whoever holds the lock of the flow may read, without blocking, so `samples_available` is exact
//! whoever waits. A thread that leads waits outside of the lock and holds only the descriptor.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use lsl_platform::clock::local_clock;
use lsl_platform::interrupt::Interrupt;
use lsl_platform::poll::{Woken, wait_readable_or};
use lsl_proto::inlet::FeedDecoder;
use lsl_proto::inlet::SampleRing;
use lsl_proto::inlet::reader::{Connection, Lead};

use crate::byte_stream::Socket;
use crate::drive_inlet::connection::{Broken, Dialled, Progress};
use crate::drive_inlet::task::{Flow, InletShared};
use crate::net::monitor::has_passed;
use crate::{Error, Result};

/// A data connection whose stream flows.
#[derive(Debug)]
pub(crate) struct Feed {
    dialled: Dialled,
    session: FeedDecoder,
    broken: Option<Broken>,
}

impl Connection for Feed {
    fn is_registered(&self) -> bool {
        self.dialled.is_registered()
    }

    fn unregister(&mut self) {
        self.dialled.unregister();
    }

    fn is_broken(&self) -> bool {
        self.broken.is_some()
    }
}

impl Feed {
    pub(crate) fn new(dialled: Dialled, session: FeedDecoder) -> Self {
        Self {
            dialled,
            session,
            broken: None,
        }
    }

    /// One read into the ring: what it brought, its content's length and the number of samples.
    /// `None` if there is nothing, or never will be.
    fn poll_receive(
        &mut self,
        context: Option<&mut Context<'_>>,
        ring: &mut SampleRing,
    ) -> Option<Received> {
        let Self {
            dialled, session, ..
        } = self;
        let before = session.samples();
        let mut content = 0;
        let received = dialled.poll_receive(context, |bytes| {
            content += bytes.len() as u64;
            session.receive(bytes, ring).map(drop)
        });
        let progress = match received {
            Poll::Pending => return None,
            Poll::Ready(Ok(progress)) => progress,
            Poll::Ready(Err(broken)) => {
                self.broken = Some(broken);
                // Samples may have come before what was wrong.
                Progress {
                    bytes: 0,
                    is_all: true,
                }
            }
        };
        Some(Received {
            progress,
            content,
            samples: self.session.samples() - before,
        })
    }

    /// Why it ended.
    fn conclude(mut self) -> Error {
        let broken = self.broken.take().unwrap_or(Broken::Closed);
        let said = self.dialled.conclude(broken);
        said.unwrap_or_else(|| self.session.end())
    }
}

#[derive(Debug, Clone, Copy)]
struct Received {
    progress: Progress,
    content: u64,
    samples: u64,
}

impl Flow {
    /// One read, by whoever holds the lock. Interrupts a leader if others found samples for it.
    fn receive(&mut self, context: Option<&mut Context<'_>>, by: Reader) -> Option<Received> {
        let received = self
            .reader
            .connection()?
            .poll_receive(context, &mut self.ring)?;
        self.bytes += received.content;
        if received.samples > 0 {
            let now = local_clock();
            self.samples += received.samples;
            self.last_arrival = Some(now);
            self.reader.on_read(now);
        }
        let is_broken = self.reader.connection().is_none();
        if by == Reader::Other
            && (received.samples > 0 || is_broken)
            && let Some(leader) = self.reader.leader()
        {
            leader.raise();
        }
        Some(received)
    }

    /// Reads what is there; whether samples came.
    fn drain(&mut self) -> bool {
        let before = self.samples;
        let mut left = DRAIN_BYTES;
        while let Some(Received { progress, .. }) = self.receive(None, Reader::Other) {
            left = left.saturating_sub(progress.bytes);
            if progress.is_all || left == 0 {
                break;
            }
        }
        self.samples > before
    }

    /// Whether what comes next must be read at once.
    fn is_urgent(&mut self) -> bool {
        let feed = self.reader.connection();
        feed.is_some_and(|it| it.dialled.is_urgent())
    }

    fn is_broken(&mut self) -> bool {
        self.reader
            .any_connection()
            .is_some_and(|it| it.is_broken())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reader {
    Leader,
    Other,
}

/// How a wait for a sample goes on.
enum Turn<R> {
    Found(R),
    /// This thread waits for the socket itself.
    Lead(Lead, Arc<Socket>, Arc<Interrupt>),
}

/// For a look that gave nothing.
enum Unless {
    Late,
    Waiting,
}

impl InletShared {
    /// Looks, at the ring and at the socket, without waiting.
    pub(crate) fn look<R>(&self, mut step: impl FnMut(&mut Flow) -> Option<R>) -> Option<R> {
        let mut flow = self.flow.lock();
        if let Some(found) = step(&mut flow) {
            return Some(found);
        }
        let arrived = self.read_now(&mut flow);
        let found = if arrived { step(&mut flow) } else { None };
        drop(flow);
        if arrived {
            self.flow.wake();
        }
        found
    }

    /// What `look` does, after a read of everything there is.
    pub(crate) fn look_at_all<R>(&self, look: impl FnOnce(&mut Flow) -> R) -> R {
        let mut flow = self.flow.lock();
        let arrived = self.read_now(&mut flow);
        let found = look(&mut flow);
        drop(flow);
        if arrived {
            self.flow.wake();
        }
        found
    }

    /// Blocks until `step` gives something, at the latest after `timeout`. Waits for the socket
    /// itself if it can.
    pub(crate) fn pull_blocking<R>(
        &self,
        deadline: f64,
        mut step: impl FnMut(&mut Flow) -> Option<R>,
    ) -> Option<R> {
        let mut flow = self.flow.lock();
        if let Some(found) = step(&mut flow) {
            return Some(found);
        }
        let now = local_clock();
        if has_passed(deadline - now) {
            drop(flow);
            return self.look(step);
        }
        // The usual case, without waiting for anybody else.
        let mut first = self.take_lead(&mut flow, now);
        drop(flow);
        loop {
            let turn = match first.take() {
                Some(turn) => Some(turn),
                None => self.flow.wait_blocking(deadline, |flow| {
                    if let Some(found) = step(flow) {
                        return Some(Turn::Found(found));
                    }
                    let now = local_clock();
                    let turn = (deadline > now)
                        .then(|| self.take_lead(flow, now))
                        .flatten();
                    if turn.is_none() {
                        // The data task has to read for it.
                        self.ask(flow, now);
                    }
                    turn
                }),
            };
            let (lead, socket, interrupt) = match turn {
                Some(Turn::Found(found)) => return Some(found),
                Some(Turn::Lead(lead, socket, interrupt)) => (lead, socket, interrupt),
                None => return None,
            };
            if lead.was_registered {
                self.data_work.notify_one();
            }
            match self.lead(lead, &socket, &interrupt, deadline, &mut step) {
                Ok(found) => return Some(found),
                Err(Unless::Late) => return None,
                Err(Unless::Waiting) => {}
            }
        }
    }

    /// As [`pull_blocking`](Self::pull_blocking), for a task: the data task reads for it.
    pub(crate) async fn pull<R>(
        &self,
        deadline: f64,
        mut step: impl FnMut(&mut Flow) -> Option<R>,
    ) -> Option<R> {
        if has_passed(deadline - local_clock()) {
            return self.look(step);
        }
        let look = |flow: &mut Flow| {
            let found = step(flow);
            if found.is_none() {
                self.ask(flow, local_clock());
            }
            found
        };
        self.flow.wait(deadline, look).await
    }

    /// For a thread that found nothing: the lead, if it can be had.
    fn take_lead<R>(&self, flow: &mut Flow, now: f64) -> Option<Turn<R>> {
        if self.may_read()
            && flow.lost.is_none()
            && let Ok(interrupt) = Interrupt::of_thread()
            && let Some(socket) = flow.reader.connection().and_then(|it| it.dialled.handle())
            && let Some(lead) = flow.reader.lead(now, &interrupt)
        {
            return Some(Turn::Lead(lead, socket, interrupt));
        }
        None
    }

    fn ask(&self, flow: &mut Flow, now: f64) {
        if self.owner.is_current() && flow.reader.request_reactor(now) {
            self.data_work.notify_one();
        }
    }

    /// Waits for the socket and reads it until `step` has what it wants.
    fn lead<R>(
        &self,
        Lead {
            id, mut quiet_at, ..
        }: Lead,
        socket: &Socket,
        interrupt: &Interrupt,
        deadline: f64,
        step: &mut impl FnMut(&mut Flow) -> Option<R>,
    ) -> std::result::Result<R, Unless> {
        loop {
            let woken = wait_readable_or(socket, interrupt, deadline.min(quiet_at));
            if matches!(woken, Ok(Woken::Interrupted)) {
                interrupt.lower();
            }
            let mut flow = self.flow.lock();
            let is_leader = flow.reader.is_leader(id);
            let received = match woken {
                Ok(Woken::Readable) if is_leader => flow.receive(None, Reader::Leader),
                _ => None,
            };
            let found = step(&mut flow);
            let now = local_clock();
            quiet_at = flow.reader.quiet_at();
            if woken.is_err() {
                flow.reader.back_off();
            }
            let stays = is_leader
                && woken.is_ok()
                && found.is_none()
                && now < deadline
                && now < quiet_at
                && self.may_read()
                && !flow.is_broken();
            if stays {
                // Nobody else is interested in samples that were not enough for this pull.
                continue;
            }
            flow.reader.resign(id);
            // An answer to the clock must not lie in the socket until somebody leads again.
            let concerns_task = flow.is_broken() || flow.is_urgent();
            drop(flow);
            // The next leader, and those for whom there is something too.
            self.flow.wake();
            if concerns_task {
                self.data_work.notify_one();
            }
            if received.is_some_and(|it| it.samples > 0) && self.notifier.get().is_some() {
                self.notify();
            }
            return match found {
                Some(found) => Ok(found),
                None if now >= deadline => Err(Unless::Late),
                None => Err(Unless::Waiting),
            };
        }
    }

    /// Whether callers may read the socket: not in a forked child, whose parent's it is, and not if
    /// somebody is to be told of samples, which is the data task's business.
    fn may_read(&self) -> bool {
        self.notifier.get().is_none() && self.owner.is_current()
    }

    /// For a caller with the lock who does not wait; whether samples came, and others must be woken.
    fn read_now(&self, flow: &mut Flow) -> bool {
        if !self.may_read() {
            return false;
        }
        let arrived = flow.drain();
        let is_broken = flow.is_broken();
        let is_prompt = self.flow.has_waiters() || flow.is_urgent();
        if flow
            .reader
            .on_caller_read(local_clock(), arrived, is_prompt)
            || is_broken
        {
            self.data_work.notify_one();
        }
        arrived
    }

    /// Whoever leads shall look again.
    pub(crate) fn interrupt_leader(&self) {
        if let Some(leader) = self.flow.lock().reader.leader() {
            leader.raise();
        }
    }
}

/// The time of one connection between its handshake and its end. Dropping it ends the connection,
/// also under a thread that waits for it.
#[derive(Debug)]
pub(crate) struct Tenure<'a> {
    shared: &'a InletShared,
    number: u64,
}

impl<'a> Tenure<'a> {
    /// # Errors
    /// The inlet was closed meanwhile; the connection is.
    pub(crate) fn begin(shared: &'a InletShared, epoch: u64, feed: Feed) -> Result<Self> {
        let feed = Box::new(feed);
        let begun = shared.flow.update(|flow| {
            if flow.epoch == epoch {
                Ok(flow.reader.begin(feed))
            } else {
                Err(feed)
            }
        });
        match begun {
            Ok(number) => Ok(Self { shared, number }),
            Err(feed) => {
                drop(feed);
                Err(Error::Protocol("the inlet was closed".into()))
            }
        }
    }

    /// The data task's part, until the connection ends; why it did.
    pub(crate) async fn attend(self) -> Error {
        let mut tick = pin!(tokio::time::sleep(TICK));
        let mut is_armed = false;
        let mut woken = pin!(self.shared.data_work.notified());
        poll_fn(|context| {
            // Before looking, so that what changes later wakes this task again.
            while woken.as_mut().poll(context).is_ready() {
                woken.set(self.shared.data_work.notified());
            }
            loop {
                let is_due = is_armed && tick.as_mut().poll(context).is_ready();
                match self.look(context, is_due) {
                    Look::Ended(error) => return Poll::Ready(error),
                    Look::Again => {
                        // A feed that never runs dry must not keep a clock probe waiting.
                        context.waker().wake_by_ref();
                        return Poll::Pending;
                    }
                    Look::Watch => {
                        is_armed = false;
                        return Poll::Pending;
                    }
                    Look::Rest(_) if is_armed && !is_due => return Poll::Pending,
                    Look::Rest(duration) => {
                        tick.as_mut().reset(tokio::time::Instant::now() + duration);
                        is_armed = true;
                    }
                }
            }
        })
        .await
    }

    /// Looks once; `is_due` if the rest is over.
    fn look(&self, context: &mut Context<'_>, is_due: bool) -> Look {
        let shared = self.shared;
        let mut flow = shared.flow.lock();
        let before = flow.samples;
        let look = self.look_locked(&mut flow, context, is_due);
        let look = if flow.is_broken() || matches!(look, Look::Ended(_)) {
            let (feed, leader) = flow.reader.end(self.number);
            let arrived = flow.samples > before;
            drop(flow);
            if let Some(leader) = leader {
                leader.raise();
            }
            shared.flow.wake();
            if arrived {
                shared.notify();
            }
            return match (feed, look) {
                (_, Look::Ended(error)) => Look::Ended(error),
                (Some(feed), _) => Look::Ended(feed.conclude()),
                (None, _) => Look::Ended(Error::Protocol("the inlet was closed".into())),
            };
        } else {
            look
        };
        let arrived = flow.samples > before;
        drop(flow);
        if arrived {
            shared.flow.wake();
            shared.notify();
        }
        look
    }

    fn look_locked(&self, flow: &mut Flow, context: &mut Context<'_>, is_due: bool) -> Look {
        let shared = self.shared;
        // Not the next one: whoever is woken for that is not this task.
        let Some(feed) = flow.reader.connection_of(self.number) else {
            return Look::Ended(Error::Protocol("the inlet was closed".into()));
        };
        if feed.is_broken() {
            return Look::Watch;
        }
        if let Err(broken) = feed.dialled.poll_signals(context) {
            feed.broken = Some(broken);
            return Look::Watch;
        }
        let is_registered = feed.is_registered();
        let is_urgent = feed.dialled.is_urgent();
        if flow.reader.leader().is_some() && shared.notifier.get().is_none() {
            return Look::Rest(LEADER_TICK);
        }
        let now = local_clock();
        let is_wanted = |flow: &mut Flow| {
            let is_prompt =
                is_urgent || shared.flow.has_waiters() || shared.notifier.get().is_some();
            flow.reader.needs_reactor(now, is_prompt)
        };
        let mut taken = 0;
        if !is_registered && !is_wanted(flow) {
            if !is_due {
                return Look::Rest(TICK);
            }
            let is_read = flow.reader.is_read_by_callers(now);
            let most = if is_read {
                BESIDE_CALLERS_BYTES
            } else {
                TURN_BYTES
            };
            while let Some(Received { progress, .. }) = flow.receive(None, Reader::Other) {
                taken += progress.bytes;
                if progress.is_all || taken >= most {
                    break;
                }
            }
            if is_read || (0 < taken && taken < most) {
                return Look::Rest(TICK);
            }
            if taken > 0 {
                return Look::Again;
            }
        }
        let samples = flow.samples;
        while let Some(Received { progress, .. }) = flow.receive(Some(context), Reader::Other) {
            taken += progress.bytes;
            if flow.is_broken() {
                return Look::Watch;
            }
            if flow.samples > samples && !is_wanted(flow) {
                // It flows and nobody waits for it.
                if let Some(feed) = flow.reader.connection() {
                    feed.unregister();
                }
                return Look::Rest(TICK);
            }
            if taken >= TURN_BYTES {
                return Look::Again;
            }
        }
        let feed = flow.reader.connection();
        if let Some(feed) = feed
            && let Err(broken) = feed.dialled.poll_alarm(context)
        {
            feed.broken = Some(broken);
        }
        Look::Watch
    }
}

impl Drop for Tenure<'_> {
    fn drop(&mut self) {
        let mut flow = self.shared.flow.lock();
        // What arrived before the stream moved is not lost with its connection, unless its inlet was
        // closed, and then the connection is not here any more.
        if flow.reader.connection_of(self.number).is_some() && self.shared.owner.is_current() {
            flow.drain();
        }
        let (feed, leader) = flow.reader.end(self.number);
        drop(flow);
        if let Some(leader) = leader {
            leader.raise();
        }
        // Not under the lock: a session says goodbye.
        drop(feed);
        self.shared.flow.wake();
    }
}

/// What the data task does next.
enum Look {
    /// It is woken when the socket has something.
    Watch,
    Rest(Duration),
    /// There is more, after others had their turn.
    Again,
    Ended(Error),
}

/// The data task looks that often while callers read.
const TICK: Duration = Duration::from_millis(20);

/// The same while a thread leads.
const LEADER_TICK: Duration = Duration::from_millis(100);

/// Read by the data task before others get their turn.
const TURN_BYTES: usize = 64 * 1024;

/// Read by the data task in a tick in which callers read, too. Those that keep up want the processor and
/// the lock for themselves; behind those that do not, a stream of 25 MB/s still goes into the ring, as if
/// it were the task's alone, and the outlet is not held up.
const BESIDE_CALLERS_BYTES: usize = 512 * 1024;

/// Read by one call that does not wait; more than the system buffers for a connection as a rule.
const DRAIN_BYTES: usize = 8 << 20;
