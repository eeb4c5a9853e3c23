//! One consumer of an outlet: its place in the log and the state of its sender.

use std::io;
use std::ops::Range;

use super::{Caller, ConsumerId, ConsumerProgress, FeedLimits, Pushthrough, Transmit};
use crate::ByteOrder;
use crate::outlet::encoder::{Piece, Variant};
use crate::outlet::log::SampleLog;
use crate::transport::Control;
use crate::wire::sequence::{Gap, GapReason};

#[derive(Debug)]
pub(super) struct Consumer<T: Transmit> {
    pub(super) id: ConsumerId,
    pub(super) variant: Variant,
    pub(super) info: T::Info,
    pub(super) limits: FeedLimits,
    /// Absent while it is in a batch.
    pub(super) sender: Option<T>,
    /// Prepared while the sender was away.
    pub(super) control: Option<Control>,
    /// Sequence number of the next sample to hand to the socket.
    pub(super) next: u64,
    /// Samples before this one may be sent.
    pub(super) flush_to: u64,
    /// Samples pushed with `Hold` since the last flush point.
    held: usize,
    /// The number of the last batch that it was in.
    pub(super) served: u64,
    pub(super) sent: u64,
    /// Of these, those that were pushed before it joined.
    pub(super) replayed: u64,
    pub(super) dropped: u64,
    /// What it must be told before its next sample, which transmits its timestamp then.
    pub(super) restart: Option<Restart>,
    /// Sequence number of the first sample that was not pushed when it joined.
    pub(super) live: u64,
    pub(super) output: Output,
}

/// Reason for which the next sample of a granted feed does not follow the one before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Restart {
    /// The feed begins with samples that were pushed earlier.
    Replay,
    /// Samples are missing.
    Gap(GapReason),
}

/// State of the bytes that a sender has accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Output {
    Flushed,
    /// It may have something unsent.
    Unsent,
    /// It has something unsent, and the socket is full.
    Blocked,
    /// It failed or was closed, and sends nothing more.
    Ended,
}

impl<T: Transmit> Consumer<T> {
    pub(super) fn new(
        id: ConsumerId,
        sender: T,
        info: T::Info,
        variant: Variant,
        limits: FeedLimits,
        replay: Range<u64>,
        stored: u64,
    ) -> Self {
        let Range {
            start: next,
            end: live,
        } = replay;
        Self {
            id,
            variant,
            info,
            // A ring full of held samples is a flush point, before anything has to be dropped.
            limits: FeedLimits {
                chunk: limits.chunk.min(limits.capacity),
                ..limits
            },
            sender: Some(sender),
            control: None,
            next,
            flush_to: next.max(if next < live { stored } else { next }),
            held: 0,
            served: 0,
            sent: 0,
            replayed: 0,
            dropped: 0,
            restart: (next < live).then_some(Restart::Replay),
            live,
            output: Output::Flushed,
        }
    }

    pub(super) fn progress(&self, log: &SampleLog) -> ConsumerProgress {
        ConsumerProgress {
            sent: self.sent,
            dropped: self.dropped,
            behind: log.stored_between(self.next, log.end()),
        }
    }

    /// Place among those that are served: longest unserved first, then who is farthest behind.
    pub(super) fn order(&self) -> (u64, u64) {
        (self.served, self.next)
    }

    pub(super) fn has_work(&self) -> bool {
        match self.output {
            Output::Flushed => self.next < self.flush_to,
            Output::Unsent | Output::Blocked => true,
            Output::Ended => false,
        }
    }

    pub(super) fn can_send(&self) -> bool {
        self.sender.is_some() && matches!(self.output, Output::Flushed | Output::Unsent)
    }

    /// Whether the sender has something unsent, and its socket may have room.
    pub(super) fn is_urgent(&self) -> bool {
        self.sender.is_some() && self.output == Output::Unsent
    }

    /// Whether it was sent everything that is ready, or gets nothing more.
    pub(super) fn is_flushed(&self) -> bool {
        match self.output {
            Output::Ended => true,
            _ => self.sender.is_some() && !self.has_work(),
        }
    }

    pub(super) fn wake(&self) {
        if let Some(sender) = &self.sender {
            sender.wake();
        }
    }

    /// Takes the result of a flush by a task. The connection's task has to know of all but success.
    pub(super) fn note_flush(&mut self, flushed: &io::Result<bool>) {
        if self.output != Output::Ended {
            self.output = match flushed {
                Ok(true) => Output::Flushed,
                Ok(false) => Output::Blocked,
                Err(_) => Output::Ended,
            };
        }
        if self.output != Output::Flushed {
            self.wake();
        }
    }

    /// Sends what is queued, from a task.
    pub(super) fn flush(&mut self) {
        if let Some(sender) = &mut self.sender {
            let flushed = sender.flush(Caller::Task);
            self.note_flush(&flushed);
        }
    }

    /// Goes on with what is stored from `next` to `stored`, and with what is pushed then. Spec: relay §9.
    pub(super) fn rejoin(&mut self, sender: T, next: u64, stored: u64) {
        self.sender = Some(sender);
        (self.next, self.flush_to) = (next, next.max(stored));
        self.restart = Some(Restart::Replay);
        if self.output != Output::Ended {
            self.output = Output::Unsent;
        }
        if let Some(control) = self.control.take() {
            self.control(control);
        }
    }

    /// Makes everything logged ready to be sent, held or not.
    pub(super) fn release_held(&mut self, end: u64) {
        self.held = 0;
        self.flush_to = end;
    }

    /// Ends the feed of a peer that has everything, on the calling thread.
    pub(super) fn say_goodbye(&mut self) {
        let has_everything = self.output != Output::Ended && self.is_flushed();
        if has_everything && let Some(sender) = &mut self.sender {
            sender.control(Control::Close);
            // Whatever is left is the flush task's.
            if !matches!(sender.flush(Caller::Push), Ok(true)) {
                self.output = Output::Unsent;
            }
        }
    }

    /// Tells the peer something. A PONG behind unsent bytes is the flush task's: those may be many.
    pub(super) fn control(&mut self, control: Control) {
        if let Some(sender) = &mut self.sender {
            sender.control(control);
        }
        if self.output == Output::Flushed || !matches!(control, Control::Pong { .. }) {
            self.flush();
        }
    }

    pub(super) fn note_flush_points(&mut self, before: u64, after: u64, pushthrough: Pushthrough) {
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

    /// Queues the logged samples before `end`. Those that were held are on their way then: as in liblsl,
    /// they take no room from those that flush them.
    #[cold]
    pub(super) fn queue_logged(&mut self, log: &SampleLog, end: u64) {
        let Some(sender) = &mut self.sender else {
            return;
        };
        let samples = log.read(self.next, end, |bytes| sender.queue(bytes));
        self.output = Output::Unsent;
        self.advance(end, samples);
    }

    /// Takes note that samples at the end of the log were skipped, before others are published.
    pub(super) fn note_hole(&mut self, hole: &Range<u64>, reason: GapReason) {
        if hole.contains(&self.next) {
            self.next = hole.end;
            self.flush_to = self.flush_to.max(hole.end);
            self.note_gap(reason);
        } else if self.next < hole.start && self.limits.is_granted {
            // What it lags behind goes through the log, which shows where the hole is.
            self.restart.get_or_insert(Restart::Replay);
        }
    }

    /// Moves over samples that were never stored. Then queues what a granted consumer must be told, together
    /// with the sample after it.
    pub(super) fn restart(&mut self, log: &SampleLog) {
        let stored = log.next_stored(self.next);
        if stored > self.next {
            self.note_gap(log.lost_before(stored));
            self.next = stored;
        }
        let Some(sender) = self.sender.as_mut().filter(|_| self.next < self.flush_to) else {
            return;
        };
        let Some(restart) = self.restart.take() else {
            return;
        };
        let mut bytes = Vec::new();
        if let Restart::Gap(reason) = restart {
            let gap = Gap {
                reason,
                to: self.next,
            };
            bytes.extend_from_slice(&gap.to_bytes(ByteOrder::NATIVE));
        }
        log.restamped(self.next, &mut bytes);
        sender.queue(&bytes);
        self.output = Output::Unsent;
        self.advance(self.next + 1, 1);
    }

    /// Takes note that samples up to a number were handed to the sender.
    #[inline]
    pub(super) fn advance(&mut self, until: u64, samples: u64) {
        if self.next < self.live {
            self.replayed += samples.min(self.live - self.next);
        }
        self.sent += samples;
        self.next = until;
    }

    /// Notes that a granted consumer misses samples. The first reason stands for all until it is told.
    fn note_gap(&mut self, reason: GapReason) {
        if self.limits.is_granted && !matches!(self.restart, Some(Restart::Gap(_))) {
            self.restart = Some(Restart::Gap(reason));
        }
    }

    /// Sends the flushable part of a fresh piece. The rest of a frame that was cut is queued; later
    /// frames stay in the log, where they may still be dropped.
    pub(super) fn send_now(&mut self, piece: &Piece) {
        let Some(sender) = &mut self.sender else {
            return;
        };
        let count = samples_between(self.next, self.flush_to);
        if count == 0 {
            return;
        }
        let ends = &piece.ends[..count];
        let ready = &piece.bytes[..ends[count - 1]];
        let mut handed = 0;
        match sender.send(ready, Caller::Push) {
            Ok(committed) if committed == ready.len() => handed = count,
            Ok(committed) => {
                handed = ends.partition_point(|&end| end <= committed);
                let sent_whole = if handed == 0 { 0 } else { ends[handed - 1] };
                if committed > sent_whole {
                    sender.queue(&piece.bytes[committed..ends[handed]]);
                    handed += 1;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => {
                // The task sees the same socket and reports what happened.
                self.output = Output::Ended;
                return sender.wake();
            }
        }
        self.output = if sender.has_unsent() {
            Output::Unsent
        } else {
            Output::Flushed
        };
        self.advance(self.next + handed as u64, handed as u64);
    }

    /// Sends everything that is ready. Returns false while the socket is full.
    pub(super) fn send_ready(&mut self, log: &SampleLog) -> bool {
        if self.has_work() && self.next < self.flush_to {
            self.queue_logged(log, self.flush_to);
        }
        let Some(sender) = self
            .sender
            .as_mut()
            .filter(|_| self.output != Output::Ended)
        else {
            return true;
        };
        match sender.flush(Caller::Push) {
            Ok(true) => self.output = Output::Flushed,
            Ok(false) => return false,
            Err(_) => {
                self.output = Output::Ended;
                sender.wake();
            }
        }
        true
    }

    /// Drops what is beyond the capacity, and before `first`; a granted consumer also has all that is retained from
    /// `floor` on.
    pub(super) fn drop_oldest(&mut self, log: &SampleLog, first: u64) -> u64 {
        let capacity = self.limits.capacity as u64;
        let most = log.end().saturating_sub(self.next);
        if self.output == Output::Ended || (most <= capacity && self.next >= first) {
            return 0;
        }
        let mut oldest = log.newest(capacity);
        if self.limits.is_granted {
            oldest = oldest.min(log.floor());
        }
        oldest = oldest.max(first);
        let dropped = log.stored_between(self.next, oldest);
        if dropped == 0 {
            return 0;
        }
        self.dropped += dropped;
        let is_replay = self.next < self.live;
        self.next = oldest;
        self.note_gap(if is_replay {
            GapReason::NotRetained
        } else {
            GapReason::ReaderTooSlow
        });
        dropped
    }
}

/// Returns the number of samples from one sequence number to a later one.
fn samples_between(from: u64, to: u64) -> usize {
    usize::try_from(to - from).expect("samples of one piece or one ring fit into memory")
}
