//! Samples that a fan-out retains beyond what its consumers need, and sends again to those that ask for it.
//! Spec: resume §2.2, §4.

use std::ops::Range;

use super::{ConsumerId, Fanout, Transmit};
use crate::ByteOrder;
use crate::limits::Host;
use crate::outlet::encoder::Variant;
use crate::outlet::frames::Frames;
use crate::outlet::retention::Retention;
use crate::wire::sample110::Restamper;
use crate::wire::sequence::{GapReason, Generation, Position, ReplayFrom};

/// Place of an outlet in its stream while a reader joins.
#[derive(Debug, Clone, Copy)]
pub struct Live<'a> {
    /// Number of the first sample of the pushes that begin from now on.
    pub edge: u64,
    /// Name of the numbering.
    pub generation: &'a Generation,
    /// Rate in Hz as receivers read it.
    pub nominal_srate: f64,
}

impl Live<'_> {
    /// Returns whether a position is one of this stream.
    pub fn has(&self, position: &Position) -> bool {
        position.generation == *self.generation && position.next <= self.edge
    }

    /// Returns whether a reader that asked for `from` goes on in this stream: not if it gets nothing of what it
    /// asked for, refused or let go.
    pub fn resumes(&self, from: &ReplayFrom, replay: &Range<u64>) -> bool {
        let goes_on = |at: &Position| at.next == replay.start || !replay.is_empty();
        matches!(from, ReplayFrom::At(position, _) if self.has(position) && goes_on(position))
    }

    /// Returns the number of samples of a regular rate in a time, rounded up.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a number that is too large asks for all samples"
    )]
    fn samples_in(&self, millis: u64) -> u64 {
        (seconds(millis) * self.nominal_srate).ceil() as u64
    }
}

#[expect(clippy::cast_precision_loss, reason = "nobody asks for centuries")]
fn seconds(millis: u64) -> f64 {
    millis as f64 / 1e3
}

impl<T: Transmit> Fanout<T> {
    /// Variant in which samples are retained: that of nearly all readers. Spec: resume §2.3.
    pub const RETAINED: Variant = Variant::V110(ByteOrder::NATIVE);

    /// Retains samples from now on, with the nominal rate in Hz as receivers read it. They expect the retained
    /// variant to be encoded: see [`is_read`](Self::is_read).
    pub fn retain(&mut self, retention: Retention, nominal_srate: f64) {
        let restamper = Restamper::new(ByteOrder::NATIVE, nominal_srate);
        self.logs[Self::RETAINED.index()].retain(restamper, retention.block_secs());
        self.retention = Some(retention);
    }

    /// Whether samples are retained.
    pub fn is_retaining(&self) -> bool {
        self.retention.as_ref().is_some_and(Retention::is_armed)
    }

    /// Returns the bytes retained, the samples sent again, and how often that was refused.
    pub fn retained(&self) -> (usize, u64, u64) {
        let refused = self.retention.as_ref().map_or(0, Retention::refused);
        let bytes = self.logs[Self::RETAINED.index()].retained_bytes();
        let replayed = self.consumers.iter().map(|each| each.replayed);
        (bytes, self.replayed + replayed.sum::<u64>(), refused)
    }

    /// Begins to store a variant that nobody read, for a reader that is about to join. What was pushed before
    /// the live `edge` is not stored, nor what pushes that are under way have yet to publish.
    pub fn begin(&mut self, variant: Variant, edge: u64) {
        self.logs[variant.index()].pass_to(edge);
    }

    /// Takes note of why the next numbers are of no samples, for those who are told.
    pub fn lose(&mut self, reason: GapReason) {
        self.logs[Self::RETAINED.index()].lose(reason);
    }

    /// Returns the samples to send again to a reader that asked for `from` and is about to join. `live` is the
    /// number of the first sample of the pushes that begin from now on; all before it are published unless
    /// nobody read them. Spec: resume §2.2.
    pub fn replay(
        &mut self,
        from: &ReplayFrom,
        live: Live<'_>,
        host: Host,
        now: f64,
    ) -> Range<u64> {
        let log = &mut self.logs[Self::RETAINED.index()];
        let Some(retention) = &mut self.retention else {
            return live.edge..live.edge;
        };
        if !retention.is_armed() {
            if self.is_closing {
                return live.edge..live.edge;
            }
            let restamper = Restamper::new(ByteOrder::NATIVE, live.nominal_srate);
            log.retain(restamper, retention.block_secs());
        }
        retention.prolong(now);
        let begin = self.first_of(from, live, now);
        let log = &self.logs[Self::RETAINED.index()];
        let (bytes, Some(retention)) = (log.bytes_between(begin, live.edge), &mut self.retention)
        else {
            return live.edge..live.edge;
        };
        let granted = retention.charge(host, bytes, now);
        if granted == bytes {
            return begin..live.edge;
        }
        // The newest that it may still be sent.
        // One more sample than certainly does not fit.
        let passed = log.reach(begin, live.edge, bytes - granted) + 1;
        let begin = log.first_stamped(passed.min(live.edge)).min(live.edge);
        let spent = log.bytes_between(begin, live.edge);
        retention.refund(host, granted.saturating_sub(spent), now);
        begin..live.edge
    }

    /// Gives a reader that is about to leave back what it was not sent of its replay, once. Of one whose sender is in
    /// a batch nobody knows what that is: it pays for all.
    pub fn refund_replay(&mut self, id: ConsumerId, host: Host, now: f64) {
        let log = &self.logs[Self::RETAINED.index()];
        let mut consumers = self.consumers.iter_mut();
        let consumer = consumers.find(|each| each.id == id && each.next < each.live);
        if let (Some(consumer), Some(retention)) = (consumer, &mut self.retention) {
            if consumer.sender.is_some() {
                let unsent = log.bytes_between(consumer.next, consumer.live);
                retention.refund(host, unsent, now);
            }
            consumer.live = consumer.next;
        }
    }

    /// Returns the number of the first sample of a feed that would begin at `from` now, as [`replay`](Self::replay)
    /// has it, and changes nothing. Spec: resume §2.2.
    pub fn first_of(&self, from: &ReplayFrom, live: Live<'_>, now: f64) -> u64 {
        let log = &self.logs[Self::RETAINED.index()];
        let retention = self.retention.as_ref().filter(|it| it.is_armed());
        let Some(retention) = retention else {
            return live.edge;
        };
        let oldest = log.first_since(retention.oldest(now)).min(live.edge);
        let begin = match *from {
            ReplayFrom::At(position, _) if live.has(&position) => position.next.max(oldest),
            // A young instance gives all of itself, unless it was there beside the one before.
            ReplayFrom::At(_, silent_millis)
                if log.has_all_from(oldest)
                    && silent_millis
                        .is_none_or(|it| retention.is_younger_than(seconds(it), now)) =>
            {
                0
            }
            ReplayFrom::Live | ReplayFrom::At(..) => live.edge,
            ReplayFrom::LastSamples(samples) => oldest.max(live.edge.saturating_sub(samples)),
            ReplayFrom::LastMillis(millis) if live.nominal_srate > 0.0 => {
                oldest.max(live.edge.saturating_sub(live.samples_in(millis)))
            }
            ReplayFrom::LastMillis(millis) => {
                let since = now - seconds(millis);
                log.first_since(since).clamp(oldest, live.edge)
            }
            ReplayFrom::Oldest => oldest,
        };
        // Who goes on where it was has the timestamp of the sample before.
        match *from {
            ReplayFrom::At(position, _) if position.next == begin => begin,
            _ => log.first_stamped(begin).min(live.edge),
        }
    }

    /// Replaces `frames` by stored samples of the retained variant: from the first one at or after `from` whose
    /// timestamp is known, as many as fit in `most_bytes` and follow each other, at least one. Returns false, and
    /// changes nothing, if there are none.
    pub fn read(&self, from: u64, most_bytes: usize, frames: &mut Frames) -> bool {
        let log = &self.logs[Self::RETAINED.index()];
        let first = log.first_stamped(log.next_stored(from));
        if first >= log.end() {
            return false;
        }
        let end = log.reach(first, log.end(), most_bytes);
        let Frames { bytes, .. } = frames;
        bytes.clear();
        log.restamped(first, bytes);
        log.read(first + 1, end, |part| bytes.extend_from_slice(part));
        frames.first = first;
        frames.count = end - first;
        true
    }

    /// Returns the bytes of the stored samples of the retained variant from there on.
    pub fn bytes_from(&self, from: u64) -> usize {
        let log = &self.logs[Self::RETAINED.index()];
        log.bytes_between(from, log.end())
    }

    /// Returns the number up to which samples of the retained variant were stored, and are no more.
    pub fn trimmed(&self) -> u64 {
        self.logs[Self::RETAINED.index()].trimmed()
    }

    /// Returns the first stored sample of the retained variant at or after `from`, or the number of the next one that
    /// is pushed.
    pub fn next_stored(&self, from: u64) -> u64 {
        let log = &self.logs[Self::RETAINED.index()];
        log.first_stamped(log.next_stored(from)).max(from)
    }

    /// Takes the sender of a consumer that has just joined, for one who sends it what is stored nowhere here. The
    /// consumer is sent nothing until [`rejoin`](Self::rejoin).
    pub fn lend(&mut self, id: ConsumerId) -> Option<T> {
        let consumer = self.consumers.iter_mut().find(|each| each.id == id)?;
        let sender = consumer.sender.take()?;
        consumer.next = u64::MAX;
        Some(sender)
    }

    /// Returns the sender that was lent: the consumer gets what is stored from `next` on. Wake the flush task.
    pub fn rejoin(&mut self, id: ConsumerId, sender: T, next: u64) {
        let Some(consumer) = self.consumers.iter_mut().find(|each| each.id == id) else {
            return;
        };
        let log = &mut self.logs[consumer.variant.index()];
        log.need(next);
        consumer.rejoin(sender, next, log.end());
        if self.is_closing {
            consumer.wake();
        }
    }

    /// Whether [`read`](Self::read) from there would find something.
    pub fn has(&self, from: u64) -> bool {
        let log = &self.logs[Self::RETAINED.index()];
        from < log.end() && log.first_stamped(log.next_stored(from)) < log.end()
    }

    /// Lets go what was retained for long enough. For a look every some seconds.
    pub fn look_after_retention(&mut self, now: f64) {
        let Some(retention) = self.retention.as_mut().filter(|it| it.is_armed()) else {
            return;
        };
        let log = &mut self.logs[Self::RETAINED.index()];
        let has_left = std::mem::take(&mut self.has_granted_left);
        if has_left || self.consumers.iter().any(|each| each.limits.is_granted) {
            retention.prolong(now);
        }
        retention.expire(now);
        if retention.is_armed() {
            log.limit(retention.most_bytes(), retention.oldest(now));
        } else {
            log.release();
        }
        // Without readers, and pushes, nobody else does.
        self.trim(Self::RETAINED);
    }
}
