//! Decoded samples waiting for the caller of an inlet, as raw channel bytes in host order (the
//! layout of `value`), converted only when they are pulled. Grows on demand up to its capacity in
//! samples, then drops the oldest and counts it. Spec: lsl-protocol §9.4.

use std::collections::VecDeque;

use super::byte_queue::ByteQueue;

/// FIFO of samples with their timestamps.
#[derive(Debug)]
pub struct SampleRing {
    raw: ByteQueue,
    /// Timestamp of each sample, in seconds.
    timestamps: VecDeque<f64>,
    /// Bytes of each sample; empty while all samples have length `stride`, as numbers always have.
    lens: VecDeque<usize>,
    stride: usize,
    capacity_samples: usize,
    capacity_bytes: usize,
    dropped: u64,
}

impl SampleRing {
    /// Creates an empty ring of at most `capacity_samples` (at least 1) and `capacity_bytes`, lest
    /// a peer's endless strings fill the memory. A single larger sample is kept.
    pub fn new(capacity_samples: usize, capacity_bytes: usize) -> Self {
        Self {
            raw: ByteQueue::default(),
            timestamps: VecDeque::new(),
            lens: VecDeque::new(),
            stride: 0,
            capacity_samples: capacity_samples.max(1),
            capacity_bytes,
            dropped: 0,
        }
    }

    /// Returns the number of waiting samples.
    pub fn len(&self) -> usize {
        self.timestamps.len()
    }

    /// Returns whether no sample waits.
    pub fn is_empty(&self) -> bool {
        self.timestamps.is_empty()
    }

    /// Returns the bytes of channel data waiting.
    pub fn len_bytes(&self) -> usize {
        self.raw.len()
    }

    /// Returns the number of samples dropped so far because they were not pulled in time.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Returns how many samples may be added without dropping others. Of bytes there is room up to the half of the
    /// capacity, so that no sample of usual size finds too little.
    pub fn room(&self) -> usize {
        if self.raw.len() > self.capacity_bytes / 2 {
            return 0;
        }
        self.capacity_samples.saturating_sub(self.timestamps.len())
    }

    /// Returns whether half of the ring, or more, has room.
    pub fn has_much_room(&self) -> bool {
        self.room() >= self.capacity_samples.div_ceil(2)
    }

    /// Adds a sample; the oldest ones make room if the ring is full.
    #[inline]
    pub fn push(&mut self, timestamp: f64, raw: &[u8]) {
        if self.lacks_room(raw.len()) {
            self.make_room(raw.len());
        }
        if raw.len() != self.stride || !self.lens.is_empty() {
            self.note_length(raw.len());
        }
        self.raw.extend(raw);
        self.timestamps.push_back(timestamp);
    }

    #[inline]
    fn lacks_room(&self, len: usize) -> bool {
        self.timestamps.len() >= self.capacity_samples
            || (self.raw.len().saturating_add(len) > self.capacity_bytes
                && !self.timestamps.is_empty())
    }

    #[cold]
    fn make_room(&mut self, len: usize) {
        while self.lacks_room(len) {
            self.pop_many(1);
            self.dropped += 1;
        }
    }

    #[cold]
    fn note_length(&mut self, len: usize) {
        if self.timestamps.is_empty() {
            self.stride = len;
            return;
        }
        if self.lens.is_empty() {
            self.lens.resize(self.timestamps.len(), self.stride);
        }
        self.lens.push_back(len);
    }

    /// Returns the oldest sample: timestamp in seconds and raw bytes.
    #[inline]
    pub fn front(&self) -> Option<(f64, &[u8])> {
        let &timestamp = self.timestamps.front()?;
        let len = self.lens.front().copied().unwrap_or(self.stride);
        Some((timestamp, &self.raw.as_slice()[..len]))
    }

    /// Returns the timestamp of the newest sample in seconds.
    pub fn newest(&self) -> Option<f64> {
        self.timestamps.back().copied()
    }

    /// Returns the oldest samples that lie together, at most `max_samples`: their timestamps and
    /// their raw bytes back to back. Empty only if the ring is empty or `max_samples` is 0.
    #[inline]
    pub fn front_run(&self, max_samples: usize) -> (&[f64], &[u8]) {
        let stamps = self.timestamps.as_slices().0;
        let stamps = &stamps[..stamps.len().min(max_samples)];
        let bytes = self.len_of(stamps.len());
        (stamps, &self.raw.as_slice()[..bytes])
    }

    /// Removes the oldest samples; all of them if there are fewer.
    #[inline]
    pub fn pop_many(&mut self, samples: usize) {
        let samples = samples.min(self.timestamps.len());
        let bytes = self.len_of(samples);
        self.raw.consume(bytes);
        if samples == 1 {
            self.timestamps.pop_front();
        } else {
            self.timestamps.drain(..samples);
        }
        self.lens.drain(..samples.min(self.lens.len()));
    }

    /// Removes all samples and returns their number. They do not count as dropped: the caller asked
    /// for it.
    pub fn clear(&mut self) -> usize {
        let count = self.timestamps.len();
        self.raw.consume(usize::MAX);
        self.timestamps = VecDeque::new();
        self.lens = VecDeque::new();
        count
    }

    /// Returns the bytes of the oldest samples.
    #[inline]
    fn len_of(&self, samples: usize) -> usize {
        if self.lens.is_empty() {
            samples * self.stride
        } else {
            self.lens.iter().take(samples).sum()
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn contents(ring: &mut SampleRing) -> Vec<(f64, Vec<u8>)> {
        let mut all = Vec::new();
        while let Some((timestamp, raw)) = ring.front() {
            all.push((timestamp, raw.to_vec()));
            ring.pop_many(1);
        }
        all
    }

    #[test]
    fn the_oldest_make_room_and_are_counted() {
        let mut ring = SampleRing::new(3, usize::MAX);
        for n in 0..10u8 {
            ring.push(f64::from(n), &vec![n; usize::from(n)]);
        }
        assert_eq!((ring.len(), ring.dropped()), (3, 7));
        let expected: Vec<_> = (7..10u8)
            .map(|n| (f64::from(n), vec![n; usize::from(n)]))
            .collect();
        assert_eq!(contents(&mut ring), expected);
    }

    #[test]
    fn a_capacity_of_one_keeps_the_newest() {
        let mut ring = SampleRing::new(0, usize::MAX);
        ring.push(1.0, b"a");
        ring.push(2.0, b"b");
        assert_eq!(contents(&mut ring), vec![(2.0, b"b".to_vec())]);
        assert_eq!(ring.dropped(), 1);
    }

    #[test]
    fn bytes_are_bounded_too() {
        let mut ring = SampleRing::new(100, 10);
        ring.push(1.0, &[1; 6]);
        ring.push(2.0, &[2; 4]);
        ring.push(3.0, &[3; 5]);
        assert_eq!((ring.len(), ring.len_bytes(), ring.dropped()), (2, 9, 1));
        ring.push(4.0, &[4; 50]);
        assert_eq!(contents(&mut ring), vec![(4.0, vec![4; 50])]);
        assert_eq!(ring.dropped(), 3);
    }

    proptest! {
        /// Whatever the lengths, however many are looked at and taken at a time.
        #[test]
        fn behaves_like_a_deque(
            capacity in 1usize..12,
            steps in proptest::collection::vec((0usize..4, 0usize..3, 0usize..9, any::<bool>()), 1..60),
        ) {
            let mut ring = SampleRing::new(capacity, usize::MAX);
            let mut model: VecDeque<(f64, Vec<u8>)> = VecDeque::new();
            let (mut next, mut dropped) = (0_u8, 0);
            for (add, length, take, same) in steps {
                for _ in 0..add {
                    next = next.wrapping_add(1);
                    let raw = vec![next; if same { 2 } else { length }];
                    ring.push(f64::from(next), &raw);
                    model.push_back((f64::from(next), raw));
                    if model.len() > capacity {
                        model.pop_front();
                        dropped += 1;
                    }
                }
                prop_assert_eq!(ring.front(), model.front().map(|(stamp, raw)| (*stamp, &raw[..])));
                let (stamps, raw) = ring.front_run(take);
                let expected: Vec<_> = model.iter().take(stamps.len()).cloned().collect();
                prop_assert!(stamps.len() <= take && (stamps.is_empty() == (take == 0 || model.is_empty())));
                prop_assert_eq!(stamps, expected.iter().map(|it| it.0).collect::<Vec<_>>());
                prop_assert_eq!(raw, expected.iter().flat_map(|it| it.1.clone()).collect::<Vec<_>>());
                ring.pop_many(take);
                model.drain(..take.min(model.len()));
                prop_assert_eq!((ring.len(), ring.dropped()), (model.len(), dropped));
                let bytes: usize = model.iter().map(|it| it.1.len()).sum();
                prop_assert_eq!(ring.len_bytes(), bytes);
            }
        }
    }

    #[test]
    fn clearing_is_not_dropping() {
        let mut ring = SampleRing::new(5, usize::MAX);
        ring.push(1.0, b"a");
        ring.push(2.0, b"");
        assert_eq!(ring.clear(), 2);
        assert_eq!((ring.len(), ring.len_bytes(), ring.dropped()), (0, 0, 0));
        ring.push(3.0, b"c");
        assert_eq!(contents(&mut ring), vec![(3.0, b"c".to_vec())]);
    }
}
