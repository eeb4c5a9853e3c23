//! What the flush task sends at a time: senders and the bytes for them, taken from and returned to a
//! [`Fanout`](super::Fanout) under the outlet's lock, and sent without it.
//!
//! Consumers at the same place, which is the rule, share the bytes. A batch never waits: what a socket
//! does not take is queued in its sender.

use std::io;
use std::ops::Range;

use super::{Caller, Consumer, ConsumerId, Transmit};

/// Senders that are away from their consumers. Keeps its memory from batch to batch.
#[derive(Debug)]
pub struct Batch<T> {
    /// Window of a log that all entries send from.
    pub(super) bytes: Vec<u8>,
    pub(super) entries: Vec<BatchEntry<T>>,
    /// Entries before this one were sent.
    pub(super) done: usize,
}

#[derive(Debug)]
pub(super) struct BatchEntry<T> {
    pub(super) id: ConsumerId,
    /// Position of the consumer when the batch was filled.
    pub(super) index: usize,
    pub(super) sender: T,
    /// Its part of the bytes; empty if the sender only flushes.
    range: Range<usize>,
    /// Whether nothing is left in the sender.
    pub(super) flushed: io::Result<bool>,
}

impl<T> Default for Batch<T> {
    fn default() -> Self {
        Self {
            bytes: Vec::new(),
            entries: Vec::new(),
            done: 0,
        }
    }
}

impl<T: Transmit> Batch<T> {
    /// Whether there is nothing to send.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Sends the next entry without blocking. Returns the number of its bytes; `None` once all entries
    /// are sent.
    pub fn send_next(&mut self) -> Option<usize> {
        let entry = self.entries.get_mut(self.done)?;
        self.done += 1;
        let bytes = &self.bytes[entry.range.clone()];
        entry.flushed = send(&mut entry.sender, bytes);
        Some(bytes.len())
    }

    /// Gives back the memory of an exceptionally large batch: more than `most_bytes`.
    pub fn shrink(&mut self, most_bytes: usize) {
        debug_assert!(self.is_empty(), "a batch under way needs its bytes");
        if self.bytes.capacity() > most_bytes {
            self.bytes = Vec::new();
        }
    }
}

impl<T: Transmit> BatchEntry<T> {
    /// Takes the sender of a consumer, if it is there.
    pub(super) fn take(
        consumer: &mut Consumer<T>,
        index: usize,
        range: Range<usize>,
    ) -> Option<Self> {
        Some(Self {
            id: consumer.id,
            index,
            sender: consumer.sender.take()?,
            range,
            flushed: Ok(false),
        })
    }
}

/// Sends `bytes`, or queues what the socket does not take. Returns true if nothing is left.
fn send<T: Transmit>(sender: &mut T, bytes: &[u8]) -> io::Result<bool> {
    if !bytes.is_empty() {
        let committed = match sender.send(bytes, Caller::Task) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
            committed => committed?,
        };
        sender.queue(&bytes[committed..]);
    }
    sender.flush(Caller::Task)
}
