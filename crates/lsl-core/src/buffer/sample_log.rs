//! Encoded samples of one wire variant that at least one consumer has not been sent yet.
//!
//! One log serves all consumers of a variant: each keeps only the sequence number of the next sample
//! it needs, so a sample is encoded and stored once however many readers lag. A log that everybody
//! has caught up with is empty; its sequence numbers keep counting.

use std::collections::VecDeque;

use super::byte_queue::ByteQueue;

/// FIFO of encoded samples, addressed by sequence number.
#[derive(Debug, Default)]
pub struct SampleLog {
    bytes: ByteQueue,
    /// End of each stored sample, as an offset in the stream of all bytes ever appended.
    ends: VecDeque<u64>,
    /// Sequence number of the first stored sample.
    first: u64,
    /// Offset of the first stored byte.
    base: u64,
}

impl SampleLog {
    /// An empty log that starts at sequence number 0.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sequence number that the next appended sample will get.
    pub fn end(&self) -> u64 {
        self.first + self.ends.len() as u64
    }

    /// Bytes stored.
    pub fn len_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Stores encoded samples; `ends` are their end positions within `encoded`.
    pub fn append(&mut self, encoded: &[u8], ends: &[usize]) {
        let start = self.base + self.bytes.len() as u64;
        self.bytes.extend(encoded);
        self.ends.extend(ends.iter().map(|&end| start + end as u64));
    }

    /// Counts samples that nobody needs stored. Only valid for an empty log.
    pub fn skip(&mut self, samples: usize) {
        debug_assert!(
            self.ends.is_empty(),
            "skipping would reorder stored samples"
        );
        self.first += samples as u64;
    }

    /// Forgets every sample before `sequence`.
    pub fn trim(&mut self, sequence: u64) {
        let samples = stored(sequence.saturating_sub(self.first)).min(self.ends.len());
        if samples == 0 {
            return;
        }
        let end = self.offset_of(self.first + samples as u64);
        self.bytes.consume(stored(end - self.base));
        self.ends.drain(..samples);
        self.first += samples as u64;
        self.base = end;
    }

    /// Copies whole samples from `from` up to (not including) `to` into `out`, as many as fit in
    /// `max_bytes` and at least one. Returns the sequence number after the last one copied.
    pub fn read(&self, from: u64, to: u64, max_bytes: usize, out: &mut Vec<u8>) -> u64 {
        let from = from.max(self.first);
        let to = to.min(self.end());
        if from >= to {
            return from;
        }
        let start = self.offset_of(from);
        let limit = start.saturating_add(max_bytes as u64);
        let fitting = self.ends.partition_point(|&end| end <= limit);
        let next = (self.first + fitting as u64).clamp(from + 1, to);
        let (begin, end) = (start - self.base, self.offset_of(next) - self.base);
        out.extend_from_slice(&self.bytes.as_slice()[stored(begin)..stored(end)]);
        next
    }

    /// Bytes from one stored sample to a later one (or to the end of the log).
    pub fn distance(&self, from: u64, to: u64) -> usize {
        stored(self.offset_of(to) - self.offset_of(from))
    }

    fn index(&self, sequence: u64) -> usize {
        stored(sequence - self.first)
    }

    /// Offset of the first byte of a stored sample (or of the end of the log).
    fn offset_of(&self, sequence: u64) -> u64 {
        match self.index(sequence) {
            0 => self.base,
            index => self.ends[index - 1],
        }
    }
}

/// A difference of offsets or sequence numbers as a length.
fn stored(difference: u64) -> usize {
    usize::try_from(difference).expect("what is stored fits into memory")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn log(samples: &[&[u8]]) -> SampleLog {
        let mut log = SampleLog::new();
        for sample in samples {
            log.append(sample, &[sample.len()]);
        }
        log
    }

    #[test]
    fn reads_whole_samples_within_the_limit_and_at_least_one() {
        let log = log(&[b"abc", b"de", b"f"]);
        let mut out = Vec::new();
        assert_eq!(log.read(0, 3, 5, &mut out), 2);
        assert_eq!(out, b"abcde");
        out.clear();
        assert_eq!(log.read(0, 3, 1, &mut out), 1);
        assert_eq!(out, b"abc");
        out.clear();
        assert_eq!(log.read(2, 9, 100, &mut out), 3);
        assert_eq!(out, b"f");
        out.clear();
        assert_eq!(log.read(3, 9, 100, &mut out), 3);
        assert_eq!(out, b"");
    }

    #[test]
    fn trimming_keeps_sequence_numbers() {
        let mut log = log(&[b"abc", b"de"]);
        log.trim(1);
        let mut out = Vec::new();
        assert_eq!(log.read(0, 2, 100, &mut out), 2);
        assert_eq!(out, b"de");
        log.trim(2);
        assert_eq!((log.end(), log.len_bytes()), (2, 0));
        log.skip(5);
        log.append(b"xy", &[1, 2]);
        assert_eq!(log.end(), 9);
        out.clear();
        assert_eq!(log.read(8, 9, 100, &mut out), 9);
        assert_eq!(out, b"y");
    }

    proptest! {
        /// Whatever the order of appends, trims and reads, a reader sees every sample once, whole
        /// and in order.
        #[test]
        fn a_reader_sees_every_sample(
            sizes in proptest::collection::vec(1usize..40, 1..60),
            limits in proptest::collection::vec(1usize..100, 1..60),
        ) {
            let mut log = SampleLog::new();
            let (mut written, mut seen) = (Vec::new(), Vec::new());
            let mut cursor = 0;
            for (n, &size) in sizes.iter().enumerate() {
                let sample = vec![u8::try_from(n).unwrap(); size];
                written.extend_from_slice(&sample);
                log.append(&sample, &[size]);
                if n % 3 == 0 {
                    cursor = log.read(cursor, log.end(), limits[n % limits.len()], &mut seen);
                    log.trim(cursor);
                }
            }
            while cursor < log.end() {
                cursor = log.read(cursor, log.end(), 7, &mut seen);
                log.trim(cursor);
            }
            prop_assert_eq!(written, seen);
            prop_assert_eq!(log.len_bytes(), 0);
        }
    }
}
