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

/// FIFO of encoded samples, addressed by sequence number.
#[derive(Debug, Default)]
pub struct SampleLog {
    /// Ordered by sequence number; no block is empty. Between two of them numbers may be missing.
    blocks: VecDeque<Block>,
    /// Sequence number of the first sample that a consumer needs.
    first: u64,
    /// Sequence number of the next sample.
    end: u64,
    /// Sequence number after the last samples that were not stored.
    hole_end: u64,
    /// What is kept beyond the needs of consumers.
    retained: Option<Retained>,
    /// Kept for reuse. Their buffers keep old bytes: filling them with zeros would cost as much as
    /// writing the next samples.
    spare: Vec<Block>,
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
    /// Timestamp of the sample before it, as a receiver computes it.
    base: f64,
}

/// The newest blocks of a log, which are kept whoever needs them.
#[derive(Debug)]
struct Retained {
    /// Sequence number of their first sample; the end of the log if there are none.
    floor: u64,
    /// Bytes from there on.
    bytes: usize,
    /// A block that is older gets no further samples, so that its age says something.
    block_secs: f64,
    /// Number after the last sample that was stored, and the timestamp of that sample.
    last: (u64, f64),
    restamper: Restamper,
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

    /// Returns the bytes of the samples that are still needed.
    pub fn len_bytes(&self) -> usize {
        let needed = self.blocks.iter().rev();
        let needed = needed.take_while(|block| block.end() > self.first);
        let lengths = needed.map(|block| block.bytes.len() - block.offset_of(self.first));
        lengths.sum()
    }

    /// Returns the bytes of the samples that are retained.
    pub fn retained_bytes(&self) -> usize {
        self.retained.as_ref().map_or(0, |it| it.bytes)
    }

    /// Begins to retain samples: those that are appended from now on, until [`limit`](Self::limit) lets them
    /// go. Each block is closed after `block_secs`.
    pub fn retain(&mut self, restamper: Restamper, block_secs: f64) {
        self.retained.get_or_insert(Retained {
            floor: self.end,
            bytes: 0,
            block_secs,
            last: (self.end, 0.0),
            restamper,
        });
    }

    /// Ends that: what no consumer needs goes.
    pub fn release(&mut self) {
        self.retained = None;
        self.trim(self.first);
        self.spare.truncate(SPARE_BLOCKS);
    }

    /// Returns the first sample that is retained, or the end. What is before it is here only for consumers
    /// that lag.
    pub fn floor(&self) -> u64 {
        self.retained.as_ref().map_or(self.end, |it| it.floor)
    }

    /// Lets the oldest blocks of those that are retained go: down to so many bytes, and whose last push was
    /// before `oldest`.
    #[inline]
    pub fn limit(&mut self, most_bytes: usize, oldest: f64) {
        let Some(retained) = &mut self.retained else {
            return;
        };
        let mut index = None;
        while retained.bytes > 0 {
            let floor = retained.floor;
            let at = *index
                .get_or_insert_with(|| (self.blocks).partition_point(|block| block.end() <= floor));
            let Some(block) = self.blocks.get(at) else {
                break;
            };
            if retained.bytes <= most_bytes && block.pushed.1 >= oldest {
                break;
            }
            retained.bytes -= block.bytes.len();
            let next = self.blocks.get(at + 1);
            retained.floor = next.map_or(self.end, |block| block.first);
            if next.is_none() {
                retained.last = (block.end(), block.stamp_after(&retained.restamper));
            }
            index = Some(at + 1);
        }
        if index.is_some_and(|index| index > 0) {
            self.trim(self.first);
        }
    }

    /// Returns the first sample that is stored and whose block got its last push at `oldest` or later, or the
    /// end.
    pub fn first_since(&self, oldest: f64) -> u64 {
        let young = self.blocks.iter().find(|block| block.pushed.1 >= oldest);
        young.map_or(self.end, |block| block.first)
    }

    /// Returns the first stored sample at or after `sequence`, or the end.
    pub fn next_stored(&self, sequence: u64) -> u64 {
        let block = self.block_of(sequence);
        block.map_or(self.end, |block| block.first.max(sequence))
    }

    /// Returns whether all samples from one number to another are stored.
    pub fn is_whole(&self, from: u64, to: u64) -> bool {
        self.stored_between(from, to) == to - from
    }

    /// Returns the number of stored samples from one number to another, if all after the last hole are.
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

    /// Returns the bytes of the stored samples from one number to another.
    pub fn bytes_between(&self, from: u64, to: u64) -> usize {
        let mut bytes = 0;
        self.read(from, to, |part| bytes += part.len());
        bytes
    }

    /// Appends a stored frame to `out`, with the timestamp that a receiver of all frames before it computes.
    pub fn restamped(&self, sequence: u64, out: &mut Vec<u8>) {
        if let (Some(block), Some(retained)) = (self.block_of(sequence), &self.retained) {
            let mut stamp = block.base;
            for at in block.first..=sequence {
                stamp = retained.restamper.next(block.frame(at), stamp);
            }
            retained
                .restamper
                .restamp(block.frame(sequence), stamp, out);
        }
    }

    /// Appends samples, encoded by a push at `now`; `ends` are their end offsets within `encoded`. Afterwards
    /// both buffers may hold old contents.
    pub fn append(&mut self, encoded: &mut Vec<u8>, ends: &mut Vec<usize>, now: f64) {
        let first = self.end;
        self.end += ends.len() as u64;
        let mut base = 0.0;
        let mut is_over = self.blocks.back().is_some_and(|last| last.end() != first);
        if let Some(retained) = &mut self.retained {
            retained.bytes += encoded.len();
            let last = self.blocks.back();
            if let Some(last) = last {
                is_over |=
                    last.first < retained.floor || now - last.pushed.0 >= retained.block_secs;
                is_over |= last.bytes.len() + encoded.len() > BLOCK_BYTES;
            }
            if is_over && let Some(last) = last {
                retained.last = (last.end(), last.stamp_after(&retained.restamper));
            }
            let (end, stamp) = retained.last;
            base = retained.restamper.after(stamp, first - end);
        }
        if let Some(last) = self.blocks.back_mut()
            && !is_over
            && last.bytes.len() + encoded.len() <= BLOCK_BYTES
        {
            last.pushed.1 = now;
            let start = last.bytes.len();
            last.bytes.extend_from_slice(encoded);
            last.ends.extend(ends.iter().map(|end| start + end));
            return;
        }
        let mut block = self.spare.pop().unwrap_or_default();
        block.first = first;
        block.pushed = (now, now);
        block.base = base;
        if encoded.len() >= SWAPPED_BYTES {
            std::mem::swap(&mut block.bytes, encoded);
            std::mem::swap(&mut block.ends, ends);
            // The caller's buffer becomes a block in its turn, which shall not grow piece by piece.
            encoded.reserve(BLOCK_BYTES.saturating_sub(encoded.len()));
        } else {
            block.bytes.clear();
            block.bytes.extend_from_slice(encoded);
            block.ends.clear();
            block.ends.extend_from_slice(ends);
        }
        self.blocks.push_back(block);
    }

    /// Skips to a later sequence number, past samples that are not stored.
    #[inline]
    pub fn skip_to(&mut self, sequence: u64) {
        if sequence > self.end {
            let is_caught_up = self.first == self.end;
            self.end = sequence;
            self.hole_end = sequence;
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
        while let Some(block) = self.blocks.front()
            && block.end() <= kept
        {
            if let Some(block) = self.blocks.pop_front() {
                self.keep(block);
            }
        }
    }

    /// Returns the end of the range that one [`take`](Self::take) from `from` can return: whole
    /// samples before `to`, as many as fit in `max_bytes` and at least one. `from` must be stored.
    pub fn reach(&self, from: u64, to: u64, max_bytes: usize) -> u64 {
        let Some(block) = self.block_of(from) else {
            return from;
        };
        let limit = block.offset_of(from).saturating_add(max_bytes);
        let fitting = block.ends.partition_point(|&end| end <= limit);
        let next = block.first + fitting as u64;
        next.clamp(from + 1, to.max(from + 1))
    }

    /// Returns the bytes from one stored sample to a later one within [`reach`](Self::reach).
    pub fn distance(&self, from: u64, to: u64) -> usize {
        let block = self.block_of(from);
        block.map_or(0, |block| block.offset_of(to) - block.offset_of(from))
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
            std::mem::swap(&mut block.bytes, out);
        } else {
            out.clear();
            out.extend_from_slice(&block.bytes[block.offset_of(from)..block.offset_of(to)]);
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
        self.blocks.get(self.index_of(sequence))
    }

    fn index_of(&self, sequence: u64) -> usize {
        self.blocks.partition_point(|block| block.end() <= sequence)
    }

    fn keep(&mut self, block: Block) {
        // While other consumers wait, more are needed soon.
        let spare_blocks = if self.blocks.is_empty() {
            SPARE_BLOCKS
        } else {
            SPARE_BLOCKS_IN_USE
        };
        self.spare.truncate(spare_blocks - 1);
        let ends_bytes = block.ends.capacity() * size_of::<usize>();
        if block.bytes.capacity().max(ends_bytes) <= 2 * BLOCK_BYTES {
            self.spare.push(block);
        }
    }
}

impl Block {
    fn end(&self) -> u64 {
        self.first + self.ends.len() as u64
    }

    /// Returns the bytes of a stored sample.
    fn frame(&self, sequence: u64) -> &[u8] {
        &self.bytes[self.offset_of(sequence)..self.offset_of(sequence + 1)]
    }

    /// Returns the timestamp of the last sample, as a receiver computes it.
    fn stamp_after(&self, restamper: &Restamper) -> f64 {
        let frames = || (self.first..self.end()).rev();
        // Whatever is before the last transmitted one does not matter.
        let stamped = frames().find(|&at| restamper.transmitted(self.frame(at)).is_some());
        let from = stamped.unwrap_or(self.first);
        let rest = (from..self.end()).map(|at| self.frame(at));
        rest.fold(self.base, |stamp, frame| restamper.next(frame, stamp))
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

/// Samples are gathered into blocks of this size; only a sample that is larger makes a larger one.
const BLOCK_BYTES: usize = 64 * 1024;

/// From this size on, swapping buffers is worth the room it leaves unused in the block before.
const SWAPPED_BYTES: usize = 8 * 1024;

/// Blocks kept while the log is empty: a reader that lags now and then should cost no allocations.
const SPARE_BLOCKS: usize = 2;

/// Blocks kept while it is not: neither should one that always lags, by turns more and less.
const SPARE_BLOCKS_IN_USE: usize = 64;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn log(samples: &[&[u8]]) -> SampleLog {
        let mut log = SampleLog::new();
        for sample in samples {
            append(&mut log, sample);
        }
        log
    }

    fn append(log: &mut SampleLog, sample: &[u8]) {
        log.append(&mut sample.to_vec(), &mut vec![sample.len()], 0.0);
    }

    /// Reads for the only consumer, as a fan-out does.
    fn read(log: &mut SampleLog, from: u64, to: u64, max_bytes: usize) -> (u64, Vec<u8>) {
        let mut out = Vec::new();
        let next = log.reach(from, to, max_bytes);
        let length = log.distance(from, next);
        log.take(from, next, next, &mut out);
        assert_eq!(out.len(), length);
        (next, out)
    }

    #[test]
    fn reads_whole_samples_within_the_limit_and_at_least_one() {
        let mut log = log(&[b"abc", b"de", b"f"]);
        assert_eq!(log.reach(0, 3, 5), 2);
        assert_eq!(log.reach(0, 3, 1), 1);
        assert_eq!(log.reach(0, 1, 100), 1);
        assert_eq!(read(&mut log, 0, 3, 5), (2, b"abcde".to_vec()));
        assert_eq!(read(&mut log, 2, 3, 100), (3, b"f".to_vec()));
        assert_eq!(log.len_bytes(), 0);
    }

    #[test]
    fn what_others_need_stays() {
        let mut log = log(&[b"abc", b"de"]);
        let mut out = Vec::new();
        log.take(0, 2, 0, &mut out);
        assert_eq!((out.as_slice(), log.len_bytes()), (b"abcde".as_slice(), 5));
        out.clear();
        log.read(1, 2, |bytes| out.extend_from_slice(bytes));
        assert_eq!(out, b"de");
        assert_eq!(read(&mut log, 0, 2, 100), (2, b"abcde".to_vec()));
    }

    #[test]
    fn trimming_keeps_sequence_numbers() {
        let mut log = log(&[b"abc", b"de"]);
        log.trim(1);
        assert_eq!((log.end(), log.len_bytes()), (2, 2));
        assert_eq!(read(&mut log, 1, 2, 100), (2, b"de".to_vec()));
        assert_eq!((log.end(), log.len_bytes()), (2, 0));
        log.skip_to(7);
        log.append(&mut b"xy".to_vec(), &mut vec![1, 2], 0.0);
        assert_eq!(log.end(), 9);
        assert_eq!(read(&mut log, 8, 9, 100), (9, b"y".to_vec()));
    }

    #[test]
    fn memory_of_a_backlog_goes_back() {
        let mut log = SampleLog::new();
        for _ in 0..1000 {
            append(&mut log, &[7; 10_000]);
        }
        assert_eq!(log.len_bytes(), 10_000_000);
        log.trim(1000);
        let kept: usize = log.spare.iter().map(|block| block.bytes.capacity()).sum();
        assert!(log.blocks.is_empty() && kept <= 4 * BLOCK_BYTES, "{kept}");
    }

    #[test]
    fn what_is_kept_while_others_wait_is_bounded_whatever_the_samples() {
        for (size, count) in [(1, 9_000_000), (2_000, 10_000), (40_000, 400)] {
            let mut log = SampleLog::new();
            let per_push = (BLOCK_BYTES / size).max(1);
            let mut left = count;
            while left > 0 {
                let samples = per_push.min(left);
                let mut ends: Vec<usize> = (1..=samples).map(|n| n * size).collect();
                log.append(&mut vec![7; samples * size], &mut ends, 0.0);
                left -= samples;
            }
            log.trim(count as u64 - 1);
            assert!(!log.blocks.is_empty() && log.spare.len() <= SPARE_BLOCKS_IN_USE);
            for block in &log.spare {
                let ends_bytes = block.ends.capacity() * size_of::<usize>();
                assert!(
                    block.bytes.capacity().max(ends_bytes) <= 2 * BLOCK_BYTES,
                    "{size}"
                );
            }
        }
    }

    proptest! {
        /// Whatever the order of appends, trims and reads, a reader sees every sample once, whole
        /// and in order.
        #[test]
        fn a_reader_sees_every_sample(
            sizes in proptest::collection::vec(prop_oneof![1usize..40, 1000usize..30_000], 1..60),
            limits in proptest::collection::vec(1usize..40_000, 1..60),
        ) {
            let mut log = SampleLog::new();
            let (mut written, mut seen) = (Vec::new(), Vec::new());
            let mut cursor = 0;
            for (n, &size) in sizes.iter().enumerate() {
                let sample = vec![u8::try_from(n).unwrap(); size];
                written.extend_from_slice(&sample);
                append(&mut log, &sample);
                if n % 3 == 0 {
                    let (next, bytes) =
                        read(&mut log, cursor, n as u64 + 1, limits[n % limits.len()]);
                    cursor = next;
                    seen.extend(bytes);
                }
                prop_assert_eq!(log.len_bytes() + seen.len(), written.len());
            }
            let mut rest = Vec::new();
            log.read(cursor, log.end(), |bytes| rest.extend_from_slice(bytes));
            while cursor < log.end() {
                let end = log.end();
                let (next, bytes) = read(&mut log, cursor, end, 7);
                cursor = next;
                prop_assert_eq!(&rest.drain(..bytes.len()).collect::<Vec<u8>>(), &bytes);
                seen.extend(bytes);
            }
            prop_assert!(written == seen && rest.is_empty());
            prop_assert_eq!(log.len_bytes(), 0);
        }
    }
}
