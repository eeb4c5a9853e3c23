//! Everything behind the lock of an inlet's feed, and one read of its socket.

use std::sync::Arc;
use std::task::{Context, Poll};

use lsl_proto::inlet::recovery::Flow;
use lsl_proto::inlet::{Disconnect, Feed, Read, Reader};

use crate::Error;
use crate::drive_inlet::connection::{Connection, Progress};
use crate::net::sync::{Interrupt, local_clock};

/// Everything behind the lock of the feed.
#[derive(Debug)]
pub(crate) struct FeedState {
    pub(crate) feed: Feed,
    pub(crate) reader: Reader<Arc<Interrupt>>,
    /// The data connection, from the moment its request was sent.
    pub(super) connection: Option<Box<Connection>>,
    /// Number of the connection; never used again.
    pub(super) number: u64,
    /// Reason for which the connection cannot be read any more; only the inlet's task has any use for it.
    pub(super) disconnect: Option<Disconnect>,
    /// Whether the inlet's task waits until pulls have made room for replay.
    waits_for_room: bool,
    /// Raised by `close`: a connection of an older epoch must not deliver any more.
    pub(crate) epoch: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReadBy {
    Leader,
    Other,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Received {
    pub(super) progress: Progress,
    pub(super) samples: u64,
}

/// A connection that was given up, to be ended once the lock is free.
#[derive(Debug)]
pub(super) struct Ended {
    connection: Option<Box<Connection>>,
    disconnect: Option<Disconnect>,
    leader: Option<Arc<Interrupt>>,
}

impl Ended {
    /// Interrupts the leader and ends the connection. Returns the reason for which it could not be read any
    /// more, if it was so.
    pub(super) fn finish(self) -> Option<Error> {
        if let Some(leader) = self.leader {
            leader.raise();
        }
        let connection = self.connection?;
        Some(connection.end(self.disconnect?))
    }
}

impl FeedState {
    pub(crate) fn new(feed: Feed) -> Self {
        Self {
            feed,
            reader: Reader::default(),
            connection: None,
            number: 0,
            disconnect: None,
            waits_for_room: false,
            epoch: 0,
        }
    }

    /// Returns the connection, unless it is broken.
    #[inline]
    pub(super) fn readable(&mut self) -> Option<&mut Connection> {
        self.connection
            .as_deref_mut()
            .filter(|_| self.disconnect.is_none())
    }

    /// Returns how the feed flows.
    pub(super) fn flow(&self) -> Flow {
        let machine = self.connection.as_deref().map(Connection::machine);
        self.feed.flow(machine)
    }

    /// Returns whether the test patterns of the connection were right: all that comes is samples.
    pub(super) fn is_opened(&self) -> bool {
        (self.connection.as_ref()).is_some_and(|connection| connection.is_opened())
    }

    /// Takes the connection, and what waits for it, out of the state.
    pub(super) fn end(&mut self) -> Ended {
        self.feed.disconnected(local_clock());
        Ended {
            connection: self.connection.take(),
            disconnect: self.disconnect.take(),
            leader: self.reader.end(),
        }
    }

    /// Reads once, for whoever holds the lock. Interrupts a leader if others found samples for it. `None`
    /// if there is nothing, or never will be.
    #[inline]
    pub(super) fn receive(
        &mut self,
        context: Option<&mut Context<'_>>,
        by: ReadBy,
    ) -> Option<Received> {
        let Self {
            feed,
            connection: Some(connection),
            disconnect: disconnect @ None,
            reader,
            waits_for_room,
            ..
        } = self
        else {
            return None;
        };
        let is_live = connection.is_live();
        let is_held_back = !is_live && connection.is_held_back(feed);
        if is_held_back && !connection.reads_ahead() {
            *waits_for_room = true;
            return None;
        }
        let mut read = Read::default();
        let received = if !is_live && !is_held_back && connection.has_held() {
            connection.refill(|machine| {
                let taken;
                (read, taken) = feed.refill(machine, local_clock);
                taken
            })
        } else {
            connection.poll_receive(context, |machine, bytes| {
                let taken;
                (read, taken) = feed.handle_input(machine, bytes, local_clock);
                taken
            })
        };
        let progress = match received {
            Poll::Pending => return None,
            Poll::Ready(Ok(progress)) => progress,
            Poll::Ready(Err(reason)) => {
                *disconnect = Some(reason);
                // Samples may have come before what was wrong.
                Progress {
                    bytes: 0,
                    is_all: true,
                }
            }
        };
        if let Some(now) = feed.counts().last_arrival.filter(|_| read.samples > 0) {
            reader.on_read(now);
        }
        if by == ReadBy::Other
            && (read.samples > 0 || disconnect.is_some())
            && let Some(leader) = reader.leader()
        {
            leader.raise();
        }
        Some(Received {
            progress,
            samples: read.samples,
        })
    }

    /// Reads everything that the socket holds, without blocking. Returns true if samples arrived; the
    /// caller then wakes the other waiters.
    pub(super) fn drain(&mut self) -> bool {
        let before = self.feed.counts().samples;
        let mut left = DRAIN_BYTES;
        while let Some(Received { progress, .. }) = self.receive(None, ReadBy::Other) {
            left = left.saturating_sub(progress.bytes);
            if progress.is_all || left == 0 {
                break;
            }
        }
        self.feed.counts().samples > before
    }

    /// Returns whether replay waits, in the socket or behind it, until pulls make room. They wake the inlet's task
    /// then. Spec: resume §5.4.
    pub(super) fn is_held_back(&mut self) -> bool {
        let feed = &self.feed;
        let is_held_back =
            (self.connection.as_mut()).is_some_and(|it| it.is_held_back(feed) && !it.reads_ahead());
        self.waits_for_room |= is_held_back;
        is_held_back
    }

    /// Returns whether pulls have made room for replay, for which the inlet's task waits: half of the ring, lest it
    /// is woken for each sample. Asked once.
    #[inline]
    pub(super) fn take_room(&mut self) -> bool {
        self.waits_for_room && {
            let has_room = self.feed.ring.has_much_room();
            self.waits_for_room = !has_room;
            has_room
        }
    }

    /// Returns whether what comes next must be read at once.
    #[inline]
    pub(super) fn is_urgent(&mut self) -> bool {
        self.readable().is_some_and(|it| it.is_urgent())
    }
}

/// Read by one call that does not wait; more than the system buffers for a connection as a rule.
const DRAIN_BYTES: usize = 8 << 20;
