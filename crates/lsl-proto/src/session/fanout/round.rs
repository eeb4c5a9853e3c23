//! The courier's half of a lane: what lags is sent in rounds, to all consumers in turn.
//!
//! A round is made and settled under the outlet's lock and sent without it. Consumers at the same
//! place, which is the rule, share the bytes. A socket that takes less than its share leaves the round
//! for its own task, with the rest of the bytes: so a round never waits, and a stalled reader costs
//! the others nothing.

use std::io;
use std::ops::Range;

use super::{ConsumerId, Lane, Mode, Wire};

/// What the courier carries at a time. Keeps its memory from round to round.
#[derive(Debug)]
pub struct Round<W> {
    /// What the parcels share; nobody's without any.
    bytes: Vec<u8>,
    parcels: Vec<Parcel<W>>,
    /// Parcels before this one were sent.
    done: usize,
    /// Wires of consumers that left meanwhile. Dropping the last handle to a connection is much work,
    /// and may run code of the application: not under the outlet's lock.
    gone: Vec<W>,
}

#[derive(Debug)]
struct Parcel<W> {
    id: ConsumerId,
    /// Where the consumer stood in its lane.
    index: usize,
    wire: W,
    range: Range<usize>,
    sent: io::Result<usize>,
}

impl<W> Default for Round<W> {
    fn default() -> Self {
        Self {
            bytes: Vec::new(),
            parcels: Vec::new(),
            done: 0,
            gone: Vec::new(),
        }
    }
}

impl<W: Wire> Round<W> {
    /// Whether there is nothing to send.
    pub fn is_empty(&self) -> bool {
        self.parcels.is_empty()
    }

    /// Sends the next parcel without blocking, and returns how many bytes that were; `None` once all
    /// are sent.
    pub fn send_next(&mut self) -> Option<usize> {
        let parcel = self.parcels.get_mut(self.done)?;
        self.done += 1;
        parcel.sent = parcel.wire.try_send(&self.bytes[parcel.range.clone()]);
        Some(parcel.range.len())
    }

    /// Lets go of those who left: call it after `settle`, without the lock.
    pub fn forget_gone(&mut self) {
        self.gone.clear();
    }

    /// Gives back what an exceptional round took: more than `most_bytes`.
    pub fn shrink(&mut self, most_bytes: usize) {
        debug_assert!(self.is_empty(), "a round under way needs its bytes");
        if self.bytes.capacity() > most_bytes {
            self.bytes = Vec::new();
        }
    }
}

impl<W: Wire + Clone> Lane<W> {
    /// Puts the next `max_bytes` (at least one sample) of everybody whom the courier serves into an
    /// empty round. Who has nothing left is the pusher's again; if that is everybody, the round stays
    /// empty.
    pub fn collect(&mut self, max_bytes: usize, round: &mut Round<W>) {
        debug_assert!(round.is_empty(), "the last round was not settled");
        let (mut from, mut to) = (u64::MAX, 0);
        for consumer in &mut self.consumers {
            if consumer.mode != Mode::Courier {
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
            if consumer.mode != Mode::Courier || consumer.next >= until {
                continue;
            }
            let start = self.log.distance(from, consumer.next);
            let end = self.log.distance(from, until);
            round.parcels.push(Parcel {
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
        self.log.take(from, to, needed, &mut round.bytes);
    }

    /// Takes note of what a round sent, and empties it.
    pub fn settle(&mut self, round: &mut Round<W>) {
        for parcel in round.parcels.drain(..) {
            let is_it = |each: &&mut super::Consumer<W>| each.id == parcel.id;
            // Others may have left meanwhile.
            let index = match self.consumers.get_mut(parcel.index).filter(is_it) {
                Some(_) => Some(parcel.index),
                None => (self.consumers.iter()).position(|each| each.id == parcel.id),
            };
            let Some(consumer) = index.and_then(|index| self.consumers.get_mut(index)) else {
                round.gone.push(parcel.wire);
                continue;
            };
            let sent = match parcel.sent {
                Ok(sent) => sent,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
                Err(_) => {
                    // The task sees the same socket and reports what happened.
                    consumer.mode = Mode::Closed;
                    consumer.wire.wake();
                    continue;
                }
            };
            let rest = &round.bytes[parcel.range][sent..];
            if !rest.is_empty() {
                consumer.rest.extend_from_slice(rest);
                consumer.leave_to_task();
            }
        }
        round.done = 0;
        self.trim();
    }
}
