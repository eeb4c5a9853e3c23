//! Sending one encoded stream to many consumers, each at its own pace.
//!
//! A `Fanout` holds the consumers of one wire variant. The pushing thread calls `publish`: a consumer
//! that has caught up is sent to at once, on the caller's thread (waking another thread to send
//! costs as much as sending). One that there is no time for goes to the outlet's flush task, which
//! serves all such consumers in batches (`Batch`) and is woken once, however many they are. One whose
//! socket is full goes to its own task, which can wait for it. Until either has caught up, pushes
//! only append to the log. So at any time exactly one side writes to a socket, as `Mode` says.
//!
//! A frame that was sent in part is never dropped: its rest is moved out of the log first.
//! Spec: lsl-protocol §9.3, §9.4.

mod batch;
mod budget;

use std::io;
use std::sync::Arc;

pub use batch::Batch;
pub use budget::InlineBudget;

use crate::outlet::log::SampleLog;

/// What a fanout needs from a consumer's connection.
pub trait Transmit {
    /// Sends without blocking; `WouldBlock` when the socket is full.
    ///
    /// # Errors
    /// Any other error ends the consumer.
    fn try_send(&self, bytes: &[u8]) -> io::Result<usize>;

    /// Wakes the task that drains this consumer.
    fn wake(&self);

    /// Tells the peer, as far as that goes without blocking, that everything was sent. Called once the
    /// stream ends and nothing is left, on the thread that ends it: a program may exit right after.
    fn say_goodbye(&self) {}
}

impl<W: Transmit + ?Sized> Transmit for Arc<W> {
    fn try_send(&self, bytes: &[u8]) -> io::Result<usize> {
        (**self).try_send(bytes)
    }

    fn wake(&self) {
        (**self).wake();
    }

    fn say_goodbye(&self) {
        (**self).say_goodbye();
    }
}

/// Whether a push asks for its samples to be sent now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Pushthrough {
    /// Send now.
    #[default]
    Flush,
    /// Wait for a later push that flushes, or until a chunk is full.
    Hold,
}

/// Who sends what a push made ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendBy {
    /// The pushing thread, to every consumer that has caught up.
    Pusher,
    /// The flush task, to all of them.
    Flusher,
    /// Each consumer's own task.
    Task,
}

/// What came of a push.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Published {
    /// Samples that had to be dropped, over all consumers.
    pub dropped: u64,
    /// Whether the flush task has work that it had not before: wake it.
    pub flusher: bool,
}

/// Names a consumer within its outlet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ConsumerId(pub u64);

/// What a new consumer asked for.
#[derive(Debug, Clone, Copy)]
pub struct FeedLimits {
    /// Samples that may wait before the oldest is dropped; at least 1.
    pub capacity: usize,
    /// Samples that are sent together when pushes hold; at least 1.
    pub chunk: usize,
}

/// How far a consumer is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ConsumerProgress {
    /// Samples handed to the socket (or waiting in front of it, out of the log).
    pub sent: u64,
    /// Samples dropped because the consumer was too slow.
    pub dropped: u64,
    /// Samples waiting in the log.
    pub behind: u64,
}

/// What the draining task has to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Drain {
    /// Send the buffer, then ask again.
    Send,
    /// Nothing to do until woken.
    Idle,
    /// Everything was sent and the outlet is closing, or the consumer is gone: close the socket.
    Finished,
}

/// Who may write to a consumer's socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// The pushing thread: everything that is ready was sent.
    Idle,
    /// The flush task, as much as the socket takes.
    Flusher,
    /// The consumer's task, which waits for the socket.
    Task,
    /// Nobody.
    Closed,
}

#[derive(Debug)]
struct Consumer<W> {
    id: ConsumerId,
    wire: W,
    limits: FeedLimits,
    mode: Mode,
    /// Sequence number of the next sample to hand to the socket.
    next: u64,
    /// Samples before this one may be sent.
    flush_to: u64,
    /// Samples pushed with `Hold` since the last flush point.
    held: usize,
    /// The preamble, or the rest of a frame that was sent in part: goes before anything in the log.
    rest: Vec<u8>,
    sent: u64,
    dropped: u64,
}

/// The consumers of one wire variant and the samples they still need.
#[derive(Debug)]
pub struct Fanout<W> {
    log: SampleLog,
    consumers: Vec<Consumer<W>>,
    closing: bool,
}

impl<W: Transmit> Default for Fanout<W> {
    fn default() -> Self {
        Self {
            log: SampleLog::new(),
            consumers: Vec::new(),
            closing: false,
        }
    }
}

impl<W: Transmit> Fanout<W> {
    /// Number of consumers.
    pub fn len(&self) -> usize {
        self.consumers.len()
    }

    /// Whether nobody reads this variant.
    pub fn is_empty(&self) -> bool {
        self.consumers.is_empty()
    }

    /// Adds a consumer that gets every sample published from now on, after `preamble`.
    /// It begins with its own task, which must call `drain` now.
    pub fn register(&mut self, id: ConsumerId, wire: W, limits: FeedLimits, preamble: Vec<u8>) {
        let next = self.log.end();
        // A ring full of held samples is a flush point, before anything has to be dropped.
        let limits = FeedLimits {
            chunk: limits.chunk.min(limits.capacity),
            ..limits
        };
        self.consumers.push(Consumer {
            id,
            wire,
            limits,
            mode: Mode::Task,
            next,
            flush_to: next,
            held: 0,
            rest: preamble,
            sent: 0,
            dropped: 0,
        });
    }

    /// Forgets a consumer; false if it was not there. Its count of dropped samples is returned.
    pub fn remove(&mut self, id: ConsumerId) -> Option<ConsumerProgress> {
        let index = self
            .consumers
            .iter()
            .position(|consumer| consumer.id == id)?;
        let progress = self.consumers[index].progress(self.log.end());
        self.consumers.swap_remove(index);
        self.trim();
        Some(progress)
    }

    /// Every consumer's connection and progress.
    pub fn consumers(&self) -> impl Iterator<Item = (ConsumerId, &W, ConsumerProgress)> {
        let end = self.log.end();
        self.consumers
            .iter()
            .map(move |each| (each.id, &each.wire, each.progress(end)))
    }

    /// Bytes of encoded samples that wait for slow consumers.
    pub fn backlog_bytes(&self) -> usize {
        self.log.len_bytes()
            + self
                .consumers
                .iter()
                .map(|each| each.rest.len())
                .sum::<usize>()
    }

    /// Hands encoded samples (`ends`: their end positions in `encoded`) to every consumer. What is in
    /// the two buffers afterwards is nobody's. After `close` it does nothing.
    pub fn publish(
        &mut self,
        encoded: &mut Vec<u8>,
        ends: &mut Vec<usize>,
        pushthrough: Pushthrough,
        by: SendBy,
    ) -> Published {
        let mut published = Published::default();
        if self.closing {
            // Or a thread that goes on pushing would keep readers, and the flush task, from the end.
            return published;
        }
        let before = self.log.end();
        let after = before + ends.len() as u64;
        for consumer in &mut self.consumers {
            consumer.note_flush_points(before, after, pushthrough);
            if consumer.mode != Mode::Idle || consumer.next >= consumer.flush_to {
                continue;
            }
            if consumer.next < before {
                // What was held until now is on its way, as in liblsl: it takes no room from the rest.
                consumer.sent += before - consumer.next;
                self.log.copy(consumer.next, before, &mut consumer.rest);
                consumer.next = before;
                consumer.leave_to_task();
                continue;
            }
            match by {
                SendBy::Pusher => {
                    consumer.send_now(encoded, ends);
                    if consumer.mode == Mode::Idle && consumer.has_work() {
                        consumer.leave_to_task();
                    }
                }
                SendBy::Flusher => {
                    consumer.mode = Mode::Flusher;
                    published.flusher = true;
                }
                SendBy::Task => consumer.leave_to_task(),
            }
        }
        self.trim();
        if self
            .consumers
            .iter()
            .all(|each| each.mode == Mode::Closed || each.next >= after)
        {
            self.log.trim(before);
            self.log.skip(ends.len());
            return published;
        }
        self.log.append(encoded, ends);
        published.dropped = self
            .consumers
            .iter_mut()
            .map(|each| each.drop_oldest(after))
            .sum();
        if published.dropped > 0 {
            self.trim();
        }
        published
    }

    /// Puts the next bytes a consumer's task has to send in place of what is in `out`.
    pub fn drain(&mut self, id: ConsumerId, max_bytes: usize, out: &mut Vec<u8>) -> Drain {
        let Some(consumer) = self.consumers.iter_mut().find(|consumer| consumer.id == id) else {
            return Drain::Finished;
        };
        match consumer.mode {
            Mode::Closed => return Drain::Finished,
            // Not this task's turn: somebody woke it for another reason.
            Mode::Idle | Mode::Flusher => return Drain::Idle,
            Mode::Task => {}
        }
        if !consumer.rest.is_empty() {
            out.clear();
            std::mem::swap(out, &mut consumer.rest);
            return Drain::Send;
        }
        if consumer.next < consumer.flush_to {
            let from = consumer.next;
            let to = self.log.reach(from, consumer.flush_to, max_bytes);
            consumer.sent += to - from;
            consumer.next = to;
            self.log.take(from, to, self.needed(), out);
            return Drain::Send;
        }
        if self.closing {
            consumer.mode = Mode::Closed;
            return Drain::Finished;
        }
        consumer.mode = Mode::Idle;
        Drain::Idle
    }

    /// Makes everything pushed so far ready to be sent, held or not. True if the flush task has work
    /// that it had not before: wake it.
    #[must_use]
    pub fn flush(&mut self) -> bool {
        let end = self.log.end();
        let mut flusher = false;
        for consumer in &mut self.consumers {
            consumer.held = 0;
            consumer.flush_to = end;
            if consumer.mode == Mode::Idle && consumer.has_work() {
                consumer.mode = Mode::Flusher;
                flusher = true;
            }
        }
        flusher
    }

    /// Whether every consumer has been sent everything that is ready.
    pub fn is_drained(&self) -> bool {
        self.consumers
            .iter()
            .all(|each| matches!(each.mode, Mode::Idle | Mode::Closed))
    }

    /// No more samples will come: everything held is flushed, then each task is told `Finished`.
    /// True as in [`flush`](Self::flush).
    #[must_use]
    pub fn close(&mut self) -> bool {
        self.closing = true;
        let flusher = self.flush();
        for consumer in &mut self.consumers {
            if consumer.mode == Mode::Idle {
                consumer.wire.say_goodbye();
                consumer.mode = Mode::Task;
            }
            consumer.wire.wake();
        }
        flusher
    }

    fn trim(&mut self) {
        let needed = self.needed();
        self.log.trim(needed);
    }

    /// Sequence number of the first sample that somebody still has to be sent.
    fn needed(&self) -> u64 {
        let open = self
            .consumers
            .iter()
            .filter(|each| each.mode != Mode::Closed);
        let needed = open.map(|each| each.next).min();
        needed.unwrap_or_else(|| self.log.end())
    }
}

impl<W: Transmit> Consumer<W> {
    fn progress(&self, end: u64) -> ConsumerProgress {
        ConsumerProgress {
            sent: self.sent,
            dropped: self.dropped,
            behind: end - self.next.min(end),
        }
    }

    fn has_work(&self) -> bool {
        !self.rest.is_empty() || self.next < self.flush_to
    }

    /// From now on this consumer's task sends to it.
    fn leave_to_task(&mut self) {
        self.mode = Mode::Task;
        self.wire.wake();
    }

    fn note_flush_points(&mut self, before: u64, after: u64, pushthrough: Pushthrough) {
        match pushthrough {
            Pushthrough::Flush => {
                self.held = 0;
                self.flush_to = after;
            }
            Pushthrough::Hold => {
                let held = self.held + samples_between(before, after);
                self.held = held % self.limits.chunk;
                if held >= self.limits.chunk {
                    self.flush_to = after - self.held as u64;
                }
            }
        }
    }

    /// Sends the flushable part of a fresh batch. On a short write the rest of the cut frame is kept
    /// in `rest`; later frames stay in the log, where they may still be dropped.
    fn send_now(&mut self, encoded: &[u8], ends: &[usize]) {
        let count = samples_between(self.next, self.flush_to);
        let ready = &encoded[..ends[count - 1]];
        let written = match self.wire.try_send(ready) {
            Ok(written) => written,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            Err(_) => {
                // The task sees the same socket and reports what happened.
                self.mode = Mode::Closed;
                self.wire.wake();
                return;
            }
        };
        let whole = ends[..count].partition_point(|&end| end <= written);
        self.next += whole as u64;
        self.sent += whole as u64;
        let sent_whole = if whole == 0 { 0 } else { ends[whole - 1] };
        if written > sent_whole {
            self.rest.extend_from_slice(&encoded[written..ends[whole]]);
            self.next += 1;
            self.sent += 1;
        }
    }

    fn drop_oldest(&mut self, after: u64) -> u64 {
        let oldest = after.saturating_sub(self.limits.capacity as u64);
        if self.mode == Mode::Closed || self.next >= oldest {
            return 0;
        }
        let dropped = oldest - self.next;
        self.dropped += dropped;
        self.next = oldest;
        dropped
    }
}

/// Number of samples from one sequence number to a later one.
fn samples_between(from: u64, to: u64) -> usize {
    usize::try_from(to - from).expect("samples of one batch or one ring fit into memory")
}

#[cfg(all(test, lsl_loom))]
mod loom;
#[cfg(test)]
mod tests;
