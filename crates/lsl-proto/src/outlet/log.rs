//! Log of encoded samples of one wire variant, kept until they have been sent to every consumer.
//!
//! One log serves all consumers of a variant: each keeps only the sequence number of the next sample
//! it needs, so a sample is encoded and stored once however many readers lag. A log that everybody
//! has caught up with is empty; its sequence numbers keep counting.
//!
//! Samples lie in blocks: nothing is moved to make room, and memory goes back as a backlog shrinks.
//! A whole block comes in and goes out without a copy, by a swap with the caller's buffer.

use std::collections::VecDeque;

/// FIFO of encoded samples, addressed by sequence number.
#[derive(Debug, Default)]
pub struct SampleLog {
    /// Ordered by sequence number; no block is empty.
    blocks: VecDeque<Block>,
    /// Sequence number of the first sample that is needed.
    first: u64,
    /// Sequence number of the next sample.
    end: u64,
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
        let stored: usize = self.blocks.iter().map(|block| block.bytes.len()).sum();
        let front = self.blocks.front();
        stored - front.map_or(0, |block| block.offset_of(self.first))
    }

    /// Appends encoded samples; `ends` are their end offsets within `encoded`. Afterwards both
    /// buffers may hold old contents.
    pub fn append(&mut self, encoded: &mut Vec<u8>, ends: &mut Vec<usize>) {
        let first = self.end;
        self.end += ends.len() as u64;
        if let Some(last) = self.blocks.back_mut()
            && last.bytes.len() + encoded.len() <= BLOCK_BYTES
        {
            let start = last.bytes.len();
            last.bytes.extend_from_slice(encoded);
            last.ends.extend(ends.iter().map(|end| start + end));
            return;
        }
        let mut block = self.spare.pop().unwrap_or_default();
        block.first = first;
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

    /// Skips to a later sequence number, past samples that no consumer needs. Only valid for an empty log.
    #[inline]
    pub fn skip_to(&mut self, sequence: u64) {
        if sequence > self.end {
            debug_assert!(self.blocks.is_empty(), "stored samples have no holes");
            (self.first, self.end) = (sequence, sequence);
        }
    }

    /// Drops every sample before `sequence`.
    #[inline]
    pub fn trim(&mut self, sequence: u64) {
        self.first = self.first.max(sequence.min(self.end));
        while let Some(block) = self.blocks.front()
            && block.end() <= self.first
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
        if index == 0 && from == block.first && to == block.end() && needed >= to {
            std::mem::swap(&mut block.bytes, out);
        } else {
            out.clear();
            out.extend_from_slice(&block.bytes[block.offset_of(from)..block.offset_of(to)]);
        }
        self.trim(needed);
    }

    /// Hands all samples from `from` to `to` to `read`, block by block.
    pub fn read(&self, mut from: u64, to: u64, mut read: impl FnMut(&[u8])) {
        while from < to
            && let Some(block) = self.block_of(from)
        {
            let until = to.min(block.end());
            read(&block.bytes[block.offset_of(from)..block.offset_of(until)]);
            from = until;
        }
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
        log.append(&mut sample.to_vec(), &mut vec![sample.len()]);
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
        log.append(&mut b"xy".to_vec(), &mut vec![1, 2]);
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
                log.append(&mut vec![7; samples * size], &mut ends);
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
