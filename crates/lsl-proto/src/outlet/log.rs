//! Log of encoded samples of one wire variant: what some consumer still has to be sent, and what is retained for
//! those that come back. Spec: resume §3, §4.
//!
//! One log serves all consumers of a variant: each keeps only the sequence number of the next sample
//! it needs, so a sample is encoded and stored once however many readers lag. A log that retains nothing and
//! that everybody has caught up with is empty; its sequence numbers keep counting.
//!
//! Samples lie in blocks: nothing is moved to make room, and memory goes back as a backlog shrinks.
//! A whole block comes in and goes out without a copy, by a swap with the caller's buffer.

use std::collections::VecDeque;

use crate::wire::sample110::Restamper;
use crate::wire::sequence::GapReason;

/// FIFO of encoded samples, addressed by sequence number.
#[derive(Debug, Default)]
pub struct SampleLog {
    /// Ordered by sequence number; no block is empty. Between two of them numbers may be missing.
    blocks: VecDeque<Box<Block>>,
    /// Sequence number of the first sample that a consumer needs.
    first: u64,
    /// Number up to which blocks were let go.
    trimmed: u64,
    /// Sequence number of the next sample.
    end: u64,
    /// Sequence number after the last samples that were not stored.
    hole_end: u64,
    /// Reason for which the next numbers are of no samples.
    lost_by: Option<GapReason>,
    /// Whether samples were pushed that are not stored any more.
    has_let_go: bool,
    /// What is kept beyond the needs of consumers.
    retained: Option<Retained>,
    /// Memory of all blocks in bytes.
    stored: usize,
    /// Bytes that the last block still takes, with the offsets of the samples: none once it is closed.
    room: usize,
    /// Time from which on it takes none, so that the age of a block says something.
    closes_at: f64,
    /// Kept for reuse. Their buffers keep old bytes: filling them with zeros would cost as much as
    /// writing the next samples.
    spare: VecDeque<Box<Block>>,
}

#[derive(Debug, Default)]
struct Block {
    bytes: Vec<u8>,
    /// End offset of each sample in `bytes`.
    ends: Vec<usize>,
    /// Sequence number of the first sample in `bytes`, needed or not.
    first: u64,
    /// Times of the first and the last push into it, in seconds.
    pushed: (f64, f64),
    /// Timestamp of the sample before it, as a receiver computes it. Unknown behind samples that were not
    /// retained, and not looked for if the first sample transmits its own.
    base: Option<f64>,
    /// Reason for which samples are missing before it, if any are.
    gap: Option<GapReason>,
}

/// The newest blocks of a log, which are kept whoever needs them.
#[derive(Debug)]
struct Retained {
    /// Sequence number of their first sample; the end of the log if there are none.
    floor: u64,
    /// Bytes from there on, with the offsets of the samples.
    bytes: usize,
    /// Time after which a block is closed.
    block_secs: f64,
    /// Number after the last sample before the blocks, and the timestamp of that sample, if it is known.
    last: (u64, Option<f64>),
    restamper: Restamper,
    /// Time that is not after the last push of any retained block.
    young_since: f64,
}

impl SampleLog {
    /// Creates an empty log that starts at sequence number 0.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the sequence number that the next appended sample will get.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Returns the number up to which blocks were let go.
    pub fn trimmed(&self) -> u64 {
        self.trimmed
    }

    /// Returns the bytes of the samples that are still needed.
    pub fn len_bytes(&self) -> usize {
        let needed = self.blocks.iter().rev();
        let needed = needed.take_while(|block| block.end() > self.first);
        let lengths = needed.map(|block| block.bytes.len() - block.offset_of(self.first));
        lengths.sum()
    }

    /// Whether no samples are stored.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Returns the memory in bytes of the samples that are retained.
    pub fn retained_bytes(&self) -> usize {
        self.retained.as_ref().map_or(0, |it| it.bytes)
    }

    /// Begins to retain samples: those that are appended from now on, until [`limit`](Self::limit) lets them
    /// go. Each block is closed after `block_secs`.
    pub fn retain(&mut self, restamper: Restamper, block_secs: f64) {
        if self.retained.is_some() {
            return;
        }
        let last = self.blocks.back().filter(|last| last.end() == self.end);
        let stamp = match last {
            Some(last) => last.stamp_after(&restamper),
            // Receivers count from 0.0.
            None => (self.end == 0).then_some(0.0),
        };
        self.retained = Some(Retained {
            floor: self.end,
            bytes: 0,
            block_secs,
            last: (self.end, stamp),
            restamper,
            young_since: f64::NEG_INFINITY,
        });
        self.room = 0;
        self.spare.truncate(SPARE_BLOCKS_RETAINING);
    }

    /// Ends that: what no consumer needs goes.
    pub fn release(&mut self) {
        self.retained = None;
        self.room = 0;
        self.trim(self.first);
        self.spare.truncate(SPARE_BLOCKS);
    }

    /// Returns the first sample that is retained, or the end. What is before it is here only for consumers
    /// that lag.
    #[inline]
    pub fn floor(&self) -> u64 {
        self.retained.as_ref().map_or(self.end, |it| it.floor)
    }

    /// Lets the oldest blocks of those that are retained go: down to so many bytes, and whose last push was
    /// before `oldest`.
    #[inline]
    pub fn limit(&mut self, most_bytes: usize, oldest: f64) {
        let is_young = |retained: &&mut Retained| {
            retained.bytes <= most_bytes && oldest <= retained.young_since
        };
        if let Some(retained) = self.retained.as_mut().filter(|it| !is_young(it)) {
            retained.young_since = oldest;
            self.let_go(most_bytes, oldest);
        }
    }

    #[cold]
    fn let_go(&mut self, most_bytes: usize, oldest: f64) {
        let Some(retained) = &mut self.retained else {
            return;
        };
        let floor = retained.floor;
        let index_of =
            |blocks: &VecDeque<Box<Block>>| blocks.partition_point(|it| it.end() <= floor);
        let front = self.blocks.front().filter(|front| front.end() > floor);
        let mut index = if front.is_some() {
            0
        } else {
            index_of(&self.blocks)
        };
        let mut gone = None;
        while let Some(block) = self.blocks.get(index) {
            if retained.bytes <= most_bytes && block.pushed.1 >= oldest {
                retained.young_since = block.pushed.1;
                retained.floor = block.first;
                break;
            }
            retained.bytes -= block.size();
            gone = Some(block);
            index += 1;
        }
        if let Some(gone) = gone {
            if index == self.blocks.len() {
                retained.floor = self.end;
                retained.last = (gone.end(), gone.stamp_after(&retained.restamper));
                self.room = 0;
            }
            self.trim(self.first);
        }
    }

    /// Returns the first sample that is stored and whose block got its last push at `oldest` or later, or the
    /// end.
    pub fn first_since(&self, oldest: f64) -> u64 {
        let young = self.blocks.iter().find(|block| block.pushed.1 >= oldest);
        young.map_or(self.end, |block| block.first)
    }

    /// Returns whether every sample ever pushed is stored, the first of them at or after `sequence`.
    pub fn has_all_from(&self, sequence: u64) -> bool {
        let mut blocks = self.blocks.iter();
        !self.has_let_go && blocks.all(|block| block.first >= sequence)
    }

    /// Returns `sequence`, or where the timestamps of stored samples are known again.
    pub fn first_stamped(&self, sequence: u64) -> u64 {
        let mut first = sequence;
        if let Some(retained) = &self.retained {
            for block in self.blocks.range(self.index_of(sequence)..) {
                if block.is_stamped(&retained.restamper) {
                    return first;
                }
                if let Some(stamped) = block.first_transmitted(&retained.restamper) {
                    return first.max(stamped);
                }
                first = block.end();
            }
        }
        first.max(self.end)
    }

    /// Returns the first stored sample at or after `sequence`, or the end.
    pub fn next_stored(&self, sequence: u64) -> u64 {
        let block = self.block_of(sequence);
        block.map_or(self.end, |block| block.first.max(sequence))
    }

    /// Returns whether all samples from one number to another are stored.
    #[inline]
    pub fn is_whole(&self, from: u64, to: u64) -> bool {
        self.stored_between(from, to) == to - from
    }

    /// Returns the number of stored samples from one number to another, if all after the last hole are.
    #[inline]
    pub fn stored_between(&self, from: u64, to: u64) -> u64 {
        if from >= self.hole_end {
            to.saturating_sub(from)
        } else {
            self.read(from, to, |_| ())
        }
    }

    /// Returns the first of the newest `count` samples that are stored, or of all if there are fewer.
    pub fn newest(&self, count: u64) -> u64 {
        let first = self.end.saturating_sub(count);
        if first >= self.hole_end {
            return first;
        }
        let mut missing = count;
        for block in self.blocks.iter().rev() {
            let length = block.end() - block.first;
            if length >= missing {
                return block.end() - missing;
            }
            missing -= length;
        }
        self.blocks.front().map_or(self.end, |block| block.first)
    }

    /// Returns the first sample of the newest blocks that take at most so much memory, in bytes.
    pub fn first_within(&self, most_bytes: usize) -> u64 {
        let mut bytes = self.stored;
        for block in &self.blocks {
            if bytes <= most_bytes {
                return block.first;
            }
            bytes -= block.size();
        }
        self.end
    }

    /// Returns the bytes of the stored samples from one number to another.
    pub fn bytes_between(&self, from: u64, to: u64) -> usize {
        let mut bytes = 0;
        self.read(from, to, |part| bytes += part.len());
        bytes
    }

    /// Appends a stored frame to `out`, with the timestamp that a receiver of all frames before it computes,
    /// if that is known.
    pub fn restamped(&self, sequence: u64, out: &mut Vec<u8>) {
        if let (Some(block), Some(retained)) = (self.block_of(sequence), &self.retained) {
            let frame = block.frame(sequence);
            match block.stamp_of(sequence, &retained.restamper) {
                Some(stamp) => retained.restamper.restamp(frame, stamp, out),
                None => out.extend_from_slice(frame),
            }
        }
    }

    /// Appends samples, encoded by a push at `now`; `ends` are their end offsets within `encoded`. Afterwards
    /// both buffers may hold old contents.
    pub fn append(&mut self, encoded: &mut Vec<u8>, ends: &mut Vec<usize>, now: f64) {
        let first = self.end;
        self.end += ends.len() as u64;
        self.stored += encoded.len() + size_of_val(ends.as_slice());
        let (mut size, mut is_open) = (encoded.len(), now < self.closes_at);
        if let Some(retained) = &mut self.retained {
            // A large piece is a block of its own, for which it need not be copied.
            is_open &= size < SWAPPED_BYTES;
            size += size_of_val(ends.as_slice());
            retained.bytes += size;
        }
        is_open &= size <= self.room;
        if let Some(last) = self.blocks.back_mut().filter(|_| is_open) {
            self.room -= size;
            last.pushed.1 = now;
            let start = last.bytes.len();
            last.bytes.extend_from_slice(encoded);
            if let [end] = ends.as_slice() {
                last.ends.push(start + end);
            } else {
                last.ends.extend(ends.iter().map(|end| start + end));
            }
        } else {
            self.append_block(first, encoded, ends, now);
        }
    }

    /// Appends samples as the beginning of a block, numbered from `first`.
    fn append_block(&mut self, first: u64, encoded: &mut Vec<u8>, ends: &mut Vec<usize>, now: f64) {
        let last = self.blocks.back();
        let base = match &self.retained {
            Some(retained) if retained.restamper.transmitted(encoded).is_some() => None,
            Some(retained) => {
                let restamper = &retained.restamper;
                let last = last.filter(|last| last.end() > retained.last.0);
                let last = last.map(|last| (last.end(), last.stamp_after(restamper)));
                let (end, stamp) = last.unwrap_or(retained.last);
                stamp.map(|stamp| restamper.after(stamp, first - end))
            }
            None => (first == 0).then_some(0.0),
        };
        self.stored += BLOCK_OVERHEAD;
        let is_swapped = encoded.len() >= SWAPPED_BYTES;
        let like = last.filter(|_| !is_swapped);
        let empty = || like.map(|last| Box::new(last.empty_like()));
        let mut block = self.spare.pop_back().or_else(empty).unwrap_or_default();
        block.first = first;
        block.gap = self.lost_by.take();
        block.pushed = (now, now);
        block.base = base;
        if is_swapped {
            std::mem::swap(&mut block.bytes, encoded);
            std::mem::swap(&mut block.ends, ends);
        } else {
            block.bytes.clear();
            block.bytes.extend_from_slice(encoded);
            block.ends.clear();
            block.ends.extend_from_slice(ends);
        }
        if let Some(retained) = &mut self.retained {
            retained.bytes += BLOCK_OVERHEAD;
            self.closes_at = now + retained.block_secs;
            self.room = BLOCK_BYTES.saturating_sub(block.size());
            if is_swapped {
                block.shrink();
                if encoded.is_empty() {
                    // As large, since the next piece is, too; encoders write into what is there.
                    *encoded = vec![0; block.bytes.capacity()];
                }
            }
        } else {
            self.closes_at = f64::INFINITY;
            self.room = BLOCK_BYTES.saturating_sub(block.bytes.len());
            if is_swapped {
                // The caller's buffer becomes a block in its turn, which shall not grow piece by piece.
                encoded.reserve(BLOCK_BYTES.saturating_sub(encoded.len()));
            }
        }
        self.blocks.push_back(block);
    }

    /// Takes note of why the next numbers are of no samples. Of several reasons the first counts.
    pub fn lose(&mut self, reason: GapReason) {
        self.lost_by.get_or_insert(reason);
    }

    /// Returns why samples are missing before a stored one, or before the next that is pushed.
    pub fn lost_before(&self, sequence: u64) -> GapReason {
        let gap = match self.block_of(sequence) {
            Some(block) => block.gap,
            None => self.lost_by,
        };
        gap.unwrap_or(GapReason::Skipped)
    }

    /// Skips to a later sequence number, past samples that were pushed and are not stored.
    #[inline]
    pub fn pass_to(&mut self, sequence: u64) {
        self.has_let_go |= sequence > self.end;
        self.lost_by = None;
        self.skip_to(sequence);
    }

    /// Skips to a later sequence number, past numbers of no samples.
    #[inline]
    pub fn skip_to(&mut self, sequence: u64) {
        if sequence > self.end {
            let is_caught_up = self.first == self.end;
            self.end = sequence;
            self.hole_end = sequence;
            self.room = 0;
            if is_caught_up {
                self.first = sequence;
            }
            if let Some(retained) = self.retained.as_mut().filter(|it| it.bytes == 0) {
                retained.floor = sequence;
            }
        }
    }

    /// Keeps what is stored from `sequence` on for a consumer.
    pub fn need(&mut self, sequence: u64) {
        self.first = self.first.min(sequence);
    }

    /// Drops every sample before `sequence` that is not retained.
    #[inline]
    pub fn trim(&mut self, sequence: u64) {
        self.first = self.first.max(sequence.min(self.end));
        let kept = self.first.min(self.floor());
        if kept <= self.trimmed {
            return;
        }
        self.trimmed = kept;
        while let Some(block) = self.blocks.front()
            && block.end() <= kept
        {
            if let Some(block) = self.blocks.pop_front() {
                self.stored -= block.size();
                self.has_let_go = true;
                self.keep(block);
            }
        }
        debug_assert!(self.stored == 0 || !self.blocks.is_empty());
    }

    /// Returns the end of the range that one [`take`](Self::take) from `from` can return: whole
    /// samples before `to`, as many as fit in `max_bytes` and at least one. `from` must be stored.
    pub fn reach(&self, from: u64, to: u64, max_bytes: usize) -> u64 {
        let index = self.index_of(from);
        let (mut next, mut room) = (from, max_bytes);
        for block in self.blocks.range(index..) {
            // What is retained is copied in any case; another block may be handed over whole.
            if next > from && (block.first > next || self.retained.is_none()) {
                break;
            }
            let start = block.offset_of(next);
            let limit = start.saturating_add(room);
            let fitting = block.ends.partition_point(|&end| end <= limit);
            let until = (block.first + fitting as u64).clamp(from + 1, to.max(from + 1));
            room = room.saturating_sub(block.offset_of(until) - start);
            next = until;
            if next < block.end() {
                break;
            }
        }
        next
    }

    /// Replaces the contents of `out` by the samples from `from` to `to`, a range within
    /// [`reach`](Self::reach). Drops every sample before `needed`.
    pub fn take(&mut self, from: u64, to: u64, needed: u64, out: &mut Vec<u8>) {
        let index = self.index_of(from);
        let Some(block) = self.blocks.get_mut(index) else {
            out.clear();
            return;
        };
        if index == 0
            && from == block.first
            && to == block.end()
            && needed.min(self.retained.as_ref().map_or(u64::MAX, |it| it.floor)) >= to
        {
            self.stored -= block.bytes.len();
            std::mem::swap(&mut block.bytes, out);
            self.stored += block.bytes.len();
        } else {
            out.clear();
            self.read(from, to, |bytes| out.extend_from_slice(bytes));
        }
        self.trim(needed);
    }

    /// Hands all samples from `from` to `to` to `read`, block by block. Returns their number.
    pub fn read(&self, mut from: u64, to: u64, mut read: impl FnMut(&[u8])) -> u64 {
        let mut count = 0;
        while from < to
            && let Some(block) = self.block_of(from)
        {
            from = from.max(block.first);
            let until = to.min(block.end());
            if from >= until {
                break;
            }
            read(&block.bytes[block.offset_of(from)..block.offset_of(until)]);
            count += until - from;
            from = until;
        }
        count
    }

    fn block_of(&self, sequence: u64) -> Option<&Block> {
        self.blocks.get(self.index_of(sequence)).map(Box::as_ref)
    }

    fn index_of(&self, sequence: u64) -> usize {
        self.blocks.partition_point(|block| block.end() <= sequence)
    }

    fn keep(&mut self, block: Box<Block>) {
        // While other consumers wait, more are needed soon.
        let spare_blocks = match &self.retained {
            Some(_) => SPARE_BLOCKS_RETAINING,
            None if self.blocks.is_empty() => SPARE_BLOCKS,
            None => SPARE_BLOCKS_IN_USE,
        };
        self.spare.truncate(spare_blocks - 1);
        let ends_bytes = block.ends.capacity() * size_of::<usize>();
        if block.bytes.capacity().max(ends_bytes) <= 2 * BLOCK_BYTES {
            self.spare.push_back(block);
        }
    }
}

impl Block {
    fn end(&self) -> u64 {
        self.first + self.ends.len() as u64
    }

    /// Returns an empty block for the samples that follow: of a steady stream about as many.
    fn empty_like(&self) -> Self {
        let room = |len: usize| len + len / 8;
        Self {
            bytes: Vec::with_capacity(room(self.bytes.len()).min(BLOCK_BYTES)),
            ends: Vec::with_capacity(room(self.ends.len())),
            ..Self::default()
        }
    }

    /// Gives back the memory of a buffer that was made for much more.
    fn shrink(&mut self) {
        if self.bytes.capacity() > 2 * self.bytes.len() {
            self.bytes.shrink_to_fit();
        }
        if self.ends.capacity() > 2 * self.ends.len() {
            self.ends.shrink_to_fit();
        }
    }

    /// Returns the bytes from a stored sample on.
    fn from(&self, sequence: u64) -> &[u8] {
        &self.bytes[self.offset_of(sequence)..]
    }

    /// Returns the bytes of a stored sample.
    fn frame(&self, sequence: u64) -> &[u8] {
        &self.bytes[self.offset_of(sequence)..self.offset_of(sequence + 1)]
    }

    /// Returns its memory in bytes.
    fn size(&self) -> usize {
        BLOCK_OVERHEAD + self.bytes.len() + size_of_val(self.ends.as_slice())
    }

    /// Returns whether the timestamp of its first sample is known.
    fn is_stamped(&self, restamper: &Restamper) -> bool {
        self.base.is_some() || restamper.transmitted(&self.bytes).is_some()
    }

    /// Returns the timestamp of a stored sample, as a receiver computes it, if it is known.
    fn stamp_of(&self, sequence: u64, restamper: &Restamper) -> Option<f64> {
        // Whatever is before the last transmitted one does not matter.
        let mut deduced = 0;
        for at in (self.first..=sequence).rev() {
            if let Some(stamp) = restamper.transmitted(self.from(at)) {
                return Some(restamper.steps(stamp, deduced));
            }
            deduced += 1;
        }
        Some(restamper.steps(self.base?, deduced))
    }

    /// Returns the timestamp of the last sample, as a receiver computes it, if it is known.
    fn stamp_after(&self, restamper: &Restamper) -> Option<f64> {
        self.stamp_of(self.end().checked_sub(1)?, restamper)
    }

    /// Returns the first sample that transmits its timestamp.
    fn first_transmitted(&self, restamper: &Restamper) -> Option<u64> {
        (self.first..self.end()).find(|&at| restamper.transmitted(self.from(at)).is_some())
    }

    /// Returns the offset of the first byte of a stored sample, or of the end of the block.
    fn offset_of(&self, sequence: u64) -> usize {
        match stored(sequence.saturating_sub(self.first)) {
            0 => 0,
            index => self.ends[index - 1],
        }
    }
}

/// Converts a difference of sequence numbers to a length.
fn stored(difference: u64) -> usize {
    usize::try_from(difference).expect("what is stored fits into memory")
}

/// Memory of a block beside its samples, in bytes: what a stream with many holes is made of.
const BLOCK_OVERHEAD: usize = 192;

/// Samples are gathered into blocks of this size; only a sample that is larger makes a larger one.
const BLOCK_BYTES: usize = 64 * 1024;

/// From this size on, swapping buffers is worth the room it leaves unused in the block before.
const SWAPPED_BYTES: usize = 8 * 1024;

/// Blocks kept while the log is empty: a reader that lags now and then should cost no allocations.
const SPARE_BLOCKS: usize = 2;

/// Blocks kept while it is not: neither should one that always lags, by turns more and less.
const SPARE_BLOCKS_IN_USE: usize = 64;

/// Blocks kept while samples are retained: a push lets go as much as it adds. What is kept is in no limit.
const SPARE_BLOCKS_RETAINING: usize = 1;

#[cfg(test)]
mod tests;
