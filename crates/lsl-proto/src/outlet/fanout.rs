//! Sends one encoded stream to many consumers, each at its own pace.
//!
//! A [`Fanout`] owns the consumers of an outlet together with their senders. Who holds a sender may
//! write to its socket: a push, under the lock of the fan-out, to consumers that have caught up (waking
//! another thread to send costs as much as sending); the outlet's flush task, which takes the senders
//! of consumers that lag out in a [`Batch`] and brings them back. A consumer whose socket is full is left
//! alone until its connection's task says that there is room.
//!
//! A frame that was sent in part is never dropped: its rest is queued in front of everything else.
//! Spec: lsl-protocol §9.3, §9.4.

mod batch;
mod budget;
mod consumer;
mod retained;

use std::fmt::Debug;
use std::io;
use std::ops::Range;
use std::task::Poll;

pub use batch::Batch;
pub use retained::Live;

use self::batch::BatchEntry;
use self::budget::InlineBudget;
use self::consumer::{Consumer, Output};
use crate::outlet::encoder::{Piece, Variant};
use crate::outlet::log::SampleLog;
use crate::outlet::retention::Retention;
use crate::transport::Control;

/// Sends the samples of an outlet to one consumer.
pub trait Transmit {
    /// What can be told of the consumer also while its sender is away.
    type Info: Debug;

    /// Sends without blocking. Returns the number of bytes that are committed.
    ///
    /// # Errors
    /// `WouldBlock` when the socket is full; any other error ends the consumer.
    fn send(&mut self, bytes: &[u8], by: Caller) -> io::Result<usize>;

    /// Queues bytes before everything that is sent later.
    fn queue(&mut self, bytes: &[u8]);

    /// Sends what waits. Returns true once nothing is left.
    ///
    /// # Errors
    /// Any error but `WouldBlock` ends the consumer.
    fn flush(&mut self, by: Caller) -> io::Result<bool>;

    /// Whether committed or queued bytes wait for the socket.
    fn has_unsent(&self) -> bool;

    /// Returns the number of queued bytes.
    fn queued_bytes(&self) -> usize;

    /// Prepares what `control` says for the next flush.
    fn control(&mut self, control: Control);

    /// Wakes the task of the connection, which then asks [`Fanout::status`].
    fn wake(&self);
}

/// Kind of thread that sends to a consumer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Caller {
    /// A thread of the application, which never waits for the socket.
    Push,
    /// A task of the runtime. The reactor must learn from it that a socket is full.
    Task,
}

/// Whether a push asks for its samples to be sent now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Pushthrough {
    /// Sends the samples before the push returns, or as soon as the socket has room.
    #[default]
    Flush,
    /// Waits for a later push that flushes, or until a chunk is full.
    Hold,
}

/// Whether a push sends on its own thread to consumers that have caught up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Inline {
    /// Sends as far as system calls are worth it there.
    Budget,
    /// Sends whatever the number of consumers and of samples.
    Always,
}

/// Place of a piece in the stream.
#[derive(Debug, Clone, Copy)]
pub struct Position {
    /// Wire format of the piece.
    pub variant: Variant,
    /// Sequence number of its first sample in the outlet. Pieces of a variant ascend; what lies between
    /// two of them was pushed while nobody read the variant.
    pub first: u64,
}

/// Samples dropped by [`Fanout::publish`], and whether to wake the flush task.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Published {
    /// Samples that had to be dropped, over all consumers.
    pub dropped: u64,
    /// Whether the flush task has work that it had not before: wake it.
    pub wake_flusher: bool,
}

/// Identifies a consumer within its outlet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ConsumerId(u64);

/// Limits on the samples that wait for one consumer.
#[derive(Debug, Clone, Copy)]
pub struct FeedLimits {
    /// Samples that may wait before the oldest is dropped; at least 1.
    pub capacity: usize,
    /// Samples that are sent together when pushes hold; at least 1.
    pub chunk: usize,
    /// Leaves sending to the flush task, which waits for more samples.
    pub coalesces: bool,
    /// Tells the consumer of every sample that it misses, and lets it lag as far as samples are retained.
    /// Spec: resume §2.3.
    pub is_granted: bool,
}

/// Progress of a consumer, in samples.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ConsumerProgress {
    /// Handed to the socket, or queued in front of it.
    pub sent: u64,
    /// Dropped because the consumer was too slow.
    pub dropped: u64,
    /// Waiting in the log of its variant.
    pub behind: u64,
}

/// What the task of a connection has to do for its consumer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// Has nothing to do but to read.
    Feeding,
    /// To call [`Fanout::unblock`] once the socket has room.
    Blocked,
    /// To end the connection: the stream has ended and was sent, or sending failed.
    Ended,
}

/// The consumers of an outlet and the samples they still need.
#[derive(Debug)]
pub struct Fanout<T: Transmit> {
    consumers: Vec<Consumer<T>>,
    /// Samples that lagging consumers still need, for each variant.
    logs: [SampleLog; Variant::ALL.len()],
    /// What [`RETAINED`](Self::RETAINED) keeps beyond that.
    retention: Option<Retention>,
    budget: InlineBudget,
    batches: u64,
    next_id: u64,
    bytes: u64,
    dropped: u64,
    /// Samples sent to consumers that have left.
    sent: u64,
    /// Samples sent again to them.
    replayed: u64,
    /// Whether a granted consumer left since the last look at what is retained.
    has_granted_left: bool,
    is_closing: bool,
}

impl<T: Transmit> Default for Fanout<T> {
    fn default() -> Self {
        Self {
            consumers: Vec::new(),
            logs: Default::default(),
            retention: None,
            budget: InlineBudget::default(),
            batches: 0,
            next_id: 0,
            bytes: 0,
            dropped: 0,
            sent: 0,
            replayed: 0,
            has_granted_left: false,
            is_closing: false,
        }
    }
}

impl<T: Transmit> Fanout<T> {
    /// Returns the number of consumers.
    pub fn len(&self) -> usize {
        self.consumers.len()
    }

    /// Whether there are no consumers.
    pub fn is_empty(&self) -> bool {
        self.consumers.is_empty()
    }

    /// Whether somebody reads a variant, or it is retained.
    pub fn is_read(&self, variant: Variant) -> bool {
        variant == Self::RETAINED && self.is_retaining()
            || self.consumers.iter().any(|each| each.variant == variant)
    }

    /// Whether there are consumers: `None` if none has come yet, false after [`close`](Self::close).
    pub fn has_consumers(&self) -> Option<bool> {
        match self {
            Self {
                is_closing: true, ..
            } => Some(false),
            Self { consumers, .. } => (!consumers.is_empty()).then_some(true),
        }
    }

    /// Whether the stream has ended.
    pub fn is_closing(&self) -> bool {
        self.is_closing
    }

    /// Returns the bytes published, summed over the consumers, and the samples dropped.
    pub fn totals(&self) -> (u64, u64) {
        (self.bytes, self.dropped)
    }

    /// Returns the samples handed to sockets, summed over the consumers, those included that have left.
    pub fn sent(&self) -> u64 {
        let sent = |each: &Consumer<T>| each.progress(&self.logs[each.variant.index()]).sent;
        self.sent + self.consumers.iter().map(sent).sum::<u64>()
    }

    /// Adds a consumer whose first sample is `replay.start`; those from `replay.end` on will be pushed after this
    /// call, the others are stored or being pushed. Sends what is queued in `sender`.
    pub fn join(
        &mut self,
        sender: T,
        info: T::Info,
        variant: Variant,
        limits: FeedLimits,
        replay: Range<u64>,
    ) -> ConsumerId {
        let id = ConsumerId(self.next_id);
        self.next_id += 1;
        let log = &mut self.logs[variant.index()];
        log.need(replay.start);
        let stored = log.end();
        let mut consumer = Consumer::new(id, sender, info, variant, limits, replay, stored);
        consumer.served = self.batches;
        consumer.flush();
        self.consumers.push(consumer);
        id
    }

    /// Removes a consumer and returns its sender. Pending while the sender is in a batch: the consumer
    /// gets nothing more, and its connection's task is woken when to call this again.
    pub fn leave(&mut self, id: ConsumerId) -> Poll<Option<T>> {
        let Some(index) = self.consumers.iter().position(|each| each.id == id) else {
            return Poll::Ready(None);
        };
        let consumer = &mut self.consumers[index];
        consumer.output = Output::Ended;
        let Some(sender) = consumer.sender.take() else {
            return Poll::Pending;
        };
        let variant = consumer.variant;
        let left = self.consumers.swap_remove(index);
        self.sent += left.progress(&self.logs[variant.index()]).sent;
        self.replayed += left.replayed;
        self.has_granted_left |= left.limits.is_granted;
        self.trim(variant);
        Poll::Ready(Some(sender))
    }

    /// Returns what can be told of every consumer, and its progress.
    pub fn consumers(&self) -> impl Iterator<Item = (ConsumerId, &T::Info, ConsumerProgress)> {
        self.consumers.iter().map(|each| {
            let progress = each.progress(&self.logs[each.variant.index()]);
            (each.id, &each.info, progress)
        })
    }

    /// Returns the bytes of encoded samples that wait for slow consumers.
    pub fn backlog_bytes(&self) -> usize {
        let logged: usize = self.logs.iter().map(SampleLog::len_bytes).sum();
        let senders = self
            .consumers
            .iter()
            .filter_map(|each| each.sender.as_ref());
        logged + senders.map(T::queued_bytes).sum::<usize>()
    }

    /// Moves a log over samples that were skipped or pushed unread. False if a piece lies before its end: all who
    /// read the variant joined after that push, the last of those before having left.
    #[cold]
    fn note_hole(&mut self, at: Position) -> bool {
        let log = &mut self.logs[at.variant.index()];
        if at.first < log.end() {
            return false;
        }
        let (hole, reason) = (log.end()..at.first, log.lost_before(at.first));
        let readers = self.consumers.iter_mut();
        let readers = readers.filter(|each| each.variant == at.variant);
        readers.for_each(|each| each.note_hole(&hole, reason));
        log.skip_to(at.first);
        true
    }

    /// Hands a piece of a push to every consumer of its variant. What is in `piece` afterwards is of no
    /// use. `now` is the time of the push, the same for all of its pieces. After [`close`](Self::close) it
    /// does nothing.
    pub fn publish(
        &mut self,
        piece: &mut Piece,
        at: Position,
        pushthrough: Pushthrough,
        inline: Inline,
        now: f64,
    ) -> Published {
        let mut published = Published::default();
        if self.is_closing {
            // Or a thread that goes on pushing would keep consumers, and the flush task, from the end.
            return published;
        }
        let is_inline = inline == Inline::Always
            || (self.budget).allows(piece.bytes.len(), self.consumers.len(), now);
        let before = at.first;
        if before != self.logs[at.variant.index()].end() && !self.note_hole(at) {
            return published;
        }
        let log = &mut self.logs[at.variant.index()];
        let after = before + piece.ends.len() as u64;
        let mut needed = after;
        for consumer in &mut self.consumers {
            if consumer.variant != at.variant {
                continue;
            }
            self.bytes += piece.bytes.len() as u64;
            if consumer.output == Output::Ended {
                continue;
            }
            if consumer.next >= after {
                // It joined during this push, and begins with the next.
                continue;
            }
            let was_idle = !consumer.has_work();
            consumer.note_flush_points(before, after, pushthrough);
            if was_idle && consumer.has_work() && consumer.sender.is_some() {
                let is_behind = consumer.next < before;
                let is_granted = consumer.limits.is_granted;
                // The flush task tells a reader what it misses.
                if consumer.restart.is_none()
                    && !(is_behind && is_granted && !log.is_whole(consumer.next, before))
                {
                    if is_behind {
                        consumer.queue_logged(log, before);
                    }
                    if is_inline && !consumer.limits.coalesces && consumer.next == before {
                        consumer.send_now(piece);
                    }
                }
                published.wake_flusher |= consumer.has_work();
            }
            if consumer.output != Output::Ended {
                needed = needed.min(consumer.next);
            }
        }
        log.trim(needed.min(before));
        let is_retained = at.variant == Self::RETAINED;
        let retention = (self.retention.as_ref()).filter(|it| is_retained && it.is_armed());
        if needed >= after && retention.is_none() {
            log.pass_to(after);
            return published;
        }
        log.append(&mut piece.bytes, &mut piece.ends, now);
        if let Some(retention) = retention {
            log.limit(retention.most_bytes(), retention.oldest(now));
        }
        if needed >= after {
            return published;
        }
        let bounds = self.retention.as_ref().filter(|it| it.bounds_readers());
        let first = bounds.map_or(0, |it| log.first_within(it.most_bytes()));
        let readers = self.consumers.iter_mut();
        published.dropped = readers
            .filter(|each| each.variant == at.variant)
            .map(|each| each.drop_oldest(log, first))
            .sum();
        if published.dropped > 0 {
            self.dropped += published.dropped;
            self.trim(at.variant);
        }
        published
    }

    /// Takes the senders of consumers that lag, and the samples for them, into an empty batch. It stays
    /// empty if nobody lags whose socket has room.
    ///
    /// Serves one window of one log: that of whom was served longest ago, and of all who are within it.
    pub fn fill(&mut self, max_bytes: usize, batch: &mut Batch<T>) {
        debug_assert!(batch.is_empty(), "the last batch was not finished");
        self.batches += 1;
        let mut first: Option<&Consumer<T>> = None;
        for (index, consumer) in self.consumers.iter_mut().enumerate() {
            if consumer.can_send() && consumer.next < consumer.flush_to {
                consumer.restart(&self.logs[consumer.variant.index()]);
            }
            if consumer.is_urgent() {
                batch
                    .entries
                    .extend(BatchEntry::take(consumer, index, 0..0));
            } else if consumer.can_send()
                && consumer.next < consumer.flush_to
                && first.is_none_or(|first| consumer.order() < first.order())
            {
                first = Some(consumer);
            }
        }
        let Some((variant, from)) = first.map(|first| (first.variant, first.next)) else {
            return;
        };
        let log = &mut self.logs[variant.index()];
        let lagging =
            |each: &Consumer<T>| each.variant == variant && each.can_send() && each.next >= from;
        let ready = self.consumers.iter().filter(|each| lagging(each));
        let to = ready.map(|each| each.flush_to).max().unwrap_or(from);
        let to = log.reach(from, to, max_bytes);
        for (index, consumer) in self.consumers.iter_mut().enumerate() {
            let until = consumer.flush_to.min(to);
            if !lagging(consumer) || consumer.next >= until {
                continue;
            }
            let range = log.bytes_between(from, consumer.next)..log.bytes_between(from, until);
            consumer.served = self.batches;
            consumer.advance(until, until - consumer.next);
            batch
                .entries
                .extend(BatchEntry::take(consumer, index, range));
        }
        let needed = needed(&self.consumers, variant, log);
        log.take(from, to, needed, &mut batch.bytes);
    }

    /// Returns the senders of a sent batch to their consumers, and empties it.
    pub fn finish(&mut self, batch: &mut Batch<T>) {
        for entry in batch.entries.drain(..) {
            let is_it = |each: &&mut Consumer<T>| each.id == entry.id;
            // Others may have left meanwhile.
            let index = match self.consumers.get_mut(entry.index).filter(is_it) {
                Some(_) => Some(entry.index),
                None => (self.consumers.iter()).position(|each| each.id == entry.id),
            };
            let Some(consumer) = index.and_then(|index| self.consumers.get_mut(index)) else {
                continue;
            };
            consumer.sender = Some(entry.sender);
            consumer.note_flush(&entry.flushed);
            if let Some(control) = consumer.control.take() {
                consumer.control(control);
            }
            if self.is_closing {
                consumer.wake();
            }
        }
        batch.done = 0;
    }

    /// Tells the peer of a session something: now, or when its sender is back. ALERT and CLOSE end the
    /// consumer at once; nothing is said after them. Returns true if the flush task has work that it had not before: wake it.
    #[must_use]
    pub fn control(&mut self, id: ConsumerId, control: Control) -> bool {
        let is_it = |each: &&mut Consumer<T>| each.id == id && each.output != Output::Ended;
        let Some(consumer) = self.consumers.iter_mut().find(is_it) else {
            return false;
        };
        if consumer.sender.is_some() {
            consumer.control(control);
        } else {
            consumer.control = Some(control);
        }
        if !matches!(control, Control::Pong { .. }) {
            consumer.output = Output::Ended;
        }
        consumer.can_send() && consumer.has_work()
    }

    /// Sends a consumer everything that is ready, on the pushing thread. Returns false while its socket is
    /// full. Does nothing if the sender is in a batch.
    pub fn send_ready(&mut self, id: ConsumerId) -> bool {
        let Some(consumer) = self.consumers.iter_mut().find(|each| each.id == id) else {
            return true;
        };
        let variant = consumer.variant;
        let is_sent = consumer.send_ready(&self.logs[variant.index()]);
        self.trim(variant);
        is_sent
    }

    /// Lets the flush task send to a consumer again whose socket has room: wake it.
    pub fn unblock(&mut self, id: ConsumerId) {
        if let Some(consumer) = self.consumers.iter_mut().find(|each| each.id == id)
            && consumer.output == Output::Blocked
        {
            consumer.output = Output::Unsent;
        }
    }

    /// Returns what the task of a connection has to do.
    pub fn status(&self, id: ConsumerId) -> Status {
        match self.consumers.iter().find(|each| each.id == id) {
            None
            | Some(Consumer {
                output: Output::Ended,
                ..
            }) => Status::Ended,
            Some(Consumer {
                output: Output::Blocked,
                ..
            }) => Status::Blocked,
            Some(consumer) if self.is_closing && consumer.is_flushed() => Status::Ended,
            Some(_) => Status::Feeding,
        }
    }

    /// Makes everything pushed so far ready to be sent, held or not. Returns true if the flush task has
    /// work that it had not before: wake it.
    #[must_use]
    pub fn flush(&mut self) -> bool {
        let mut wake_flusher = false;
        for consumer in &mut self.consumers {
            let was_idle = !consumer.has_work();
            consumer.release_held(self.logs[consumer.variant.index()].end());
            wake_flusher |= was_idle && consumer.has_work() && consumer.can_send();
        }
        wake_flusher
    }

    /// Whether every consumer has been sent everything that is ready.
    pub fn is_flushed(&self) -> bool {
        self.unflushed().next().is_none()
    }

    /// Returns the consumers that keep [`is_flushed`](Self::is_flushed) from being true.
    pub fn unflushed(&self) -> impl Iterator<Item = (ConsumerId, &T::Info)> {
        let consumers = self.consumers.iter().filter(|each| !each.is_flushed());
        consumers.map(|each| (each.id, &each.info))
    }

    /// Whether a consumer can be sent something that need not wait for more samples.
    pub fn is_urgent(&self) -> bool {
        let waits = |each: &Consumer<T>| each.limits.coalesces && !each.is_urgent();
        let mut consumers = self.consumers.iter();
        consumers.any(|each| each.can_send() && each.has_work() && !waits(each))
    }

    /// Ends the stream: everything held becomes ready, and each connection's task is told once it was
    /// sent. To whom it was sent already the end is said here: a program may exit right after. The flush
    /// task is to be woken in any case.
    pub fn close(&mut self) {
        self.is_closing = true;
        let _ = self.flush();
        if let Some(retention) = &mut self.retention
            && self.logs[Self::RETAINED.index()].is_empty()
        {
            retention.disarm();
        }
        for consumer in &mut self.consumers {
            consumer.say_goodbye();
            consumer.wake();
        }
    }

    fn trim(&mut self, variant: Variant) {
        let log = &mut self.logs[variant.index()];
        let needed = needed(&self.consumers, variant, log);
        log.trim(needed);
    }
}

/// Returns the sequence number of the first sample that somebody still has to be sent.
fn needed<T: Transmit>(consumers: &[Consumer<T>], variant: Variant, log: &SampleLog) -> u64 {
    let readers = consumers.iter();
    let readers = readers.filter(|each| each.variant == variant && each.output != Output::Ended);
    readers
        .map(|each| each.next)
        .min()
        .unwrap_or_else(|| log.end())
}

#[cfg(all(test, lsl_loom))]
mod loom;
#[cfg(test)]
mod tests;
