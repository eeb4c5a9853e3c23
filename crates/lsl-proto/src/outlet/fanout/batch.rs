//! The flush task's half of a fanout: what lags is sent in batches, to all consumers in turn.
//!
//! A batch is made and finished under the outlet's lock and sent without it. Consumers at the same
//! place, which is the rule, share the bytes. A socket that takes less than its share leaves the batch
//! for its own task, with the rest of the bytes: so a batch never waits, and a stalled reader costs
//! the others nothing.

use std::io;
use std::ops::Range;

use super::{ConsumerId, Fanout, Mode, Transmit};

/// What the flush task carries at a time. Keeps its memory from batch to batch.
#[derive(Debug)]
pub struct Batch<W> {
    /// What the entries share; nobody's without any.
    bytes: Vec<u8>,
    entries: Vec<BatchEntry<W>>,
    /// Parcels before this one were sent.
    done: usize,
    /// Wires of consumers that left meanwhile. Dropping the last handle to a connection is much work,
    /// and may run code of the application: not under the outlet's lock.
    gone: Vec<W>,
}

#[derive(Debug)]
struct BatchEntry<W> {
    id: ConsumerId,
    /// Where the consumer stood in its fanout.
    index: usize,
    wire: W,
    range: Range<usize>,
    sent: io::Result<usize>,
}

impl<W> Default for Batch<W> {
    fn default() -> Self {
        Self {
            bytes: Vec::new(),
            entries: Vec::new(),
            done: 0,
            gone: Vec::new(),
        }
    }
}

impl<W: Transmit> Batch<W> {
    /// Whether there is nothing to send.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Sends the next entry without blocking, and returns how many bytes that were; `None` once all
    /// are sent.
    pub fn send_next(&mut self) -> Option<usize> {
        let entry = self.entries.get_mut(self.done)?;
        self.done += 1;
        entry.sent = entry.wire.try_send(&self.bytes[entry.range.clone()]);
        Some(entry.range.len())
    }

    /// Lets go of those who left: call it after `finish`, without the lock.
    pub fn forget_gone(&mut self) {
        self.gone.clear();
    }

    /// Gives back what an exceptional batch took: more than `most_bytes`.
    pub fn shrink(&mut self, most_bytes: usize) {
        debug_assert!(self.is_empty(), "a batch under way needs its bytes");
        if self.bytes.capacity() > most_bytes {
            self.bytes = Vec::new();
        }
    }
}

impl<W: Transmit + Clone> Fanout<W> {
    /// Puts the next `max_bytes` (at least one sample) of everybody whom the flush task serves into an
    /// empty batch. Who has nothing left is the pusher's again; if that is everybody, the batch stays
    /// empty.
    pub fn fill(&mut self, max_bytes: usize, batch: &mut Batch<W>) {
        debug_assert!(batch.is_empty(), "the last batch was not finished");
        let (mut from, mut to) = (u64::MAX, 0);
        for consumer in &mut self.consumers {
            if consumer.mode != Mode::Flusher {
                continue;
            }
            if consumer.next < consumer.flush_to {
                from = from.min(consumer.next);
                to = to.max(consumer.flush_to);
            } else if self.closing {
                // Its task says the last words.
                consumer.leave_to_task();
            } else {
                consumer.mode = Mode::Idle;
            }
        }
        if from >= to {
            return;
        }
        let to = self.log.reach(from, to, max_bytes);
        for (index, consumer) in self.consumers.iter_mut().enumerate() {
            let until = consumer.flush_to.min(to);
            if consumer.mode != Mode::Flusher || consumer.next >= until {
                continue;
            }
            let start = self.log.distance(from, consumer.next);
            let end = self.log.distance(from, until);
            batch.entries.push(BatchEntry {
                id: consumer.id,
                index,
                wire: consumer.wire.clone(),
                range: start..end,
                sent: Ok(0),
            });
            consumer.sent += until - consumer.next;
            consumer.next = until;
        }
        let needed = self.needed();
        self.log.take(from, to, needed, &mut batch.bytes);
    }

    /// Takes note of what a batch sent, and empties it.
    pub fn finish(&mut self, batch: &mut Batch<W>) {
        for entry in batch.entries.drain(..) {
            let is_it = |each: &&mut super::Consumer<W>| each.id == entry.id;
            // Others may have left meanwhile.
            let index = match self.consumers.get_mut(entry.index).filter(is_it) {
                Some(_) => Some(entry.index),
                None => (self.consumers.iter()).position(|each| each.id == entry.id),
            };
            let Some(consumer) = index.and_then(|index| self.consumers.get_mut(index)) else {
                batch.gone.push(entry.wire);
                continue;
            };
            let sent = match entry.sent {
                Ok(sent) => sent,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
                Err(_) => {
                    // The task sees the same socket and reports what happened.
                    consumer.mode = Mode::Closed;
                    consumer.wire.wake();
                    continue;
                }
            };
            let rest = &batch.bytes[entry.range][sent..];
            if !rest.is_empty() {
                consumer.rest.extend_from_slice(rest);
                consumer.leave_to_task();
            }
        }
        batch.done = 0;
        self.trim();
    }
}
