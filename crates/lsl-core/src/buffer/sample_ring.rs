//! Decoded samples waiting for the caller of an inlet, as raw channel bytes in host order (the
//! layout of `value`), converted only when they are pulled. Grows on demand up to its capacity in
//! samples, then drops the oldest and counts it. Spec: lsl-protocol §9.4.

use std::collections::VecDeque;

use super::byte_queue::ByteQueue;

/// FIFO of samples with their timestamps.
#[derive(Debug)]
pub struct SampleRing {
    raw: ByteQueue,
    /// Timestamp (seconds) and length (bytes) of each sample.
    samples: VecDeque<(f64, usize)>,
    capacity_samples: usize,
    capacity_bytes: usize,
    dropped: u64,
}

impl SampleRing {
    /// An empty ring for at most `capacity_samples` (at least 1) and, so that a peer's endless
    /// strings cannot fill the memory, at most `capacity_bytes` unless a single sample is larger.
    pub fn new(capacity_samples: usize, capacity_bytes: usize) -> Self {
        Self {
            raw: ByteQueue::default(),
            samples: VecDeque::new(),
            capacity_samples: capacity_samples.max(1),
            capacity_bytes,
            dropped: 0,
        }
    }

    /// Samples waiting.
    pub fn len(&self) -> usize {
        self.samples.len()
    }

    /// Whether no sample waits.
    pub fn is_empty(&self) -> bool {
        self.samples.is_empty()
    }

    /// Bytes of channel data waiting.
    pub fn len_bytes(&self) -> usize {
        self.raw.len()
    }

    /// Samples the ring can hold before it drops.
    pub fn capacity_samples(&self) -> usize {
        self.capacity_samples
    }

    /// Samples dropped so far because nobody pulled them in time.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Adds a sample; the oldest ones make room if the ring is full.
    pub fn push(&mut self, timestamp: f64, raw: &[u8]) {
        while self.samples.len() >= self.capacity_samples
            || (!self.samples.is_empty() && self.raw.len() + raw.len() > self.capacity_bytes)
        {
            self.pop();
            self.dropped += 1;
        }
        self.raw.extend(raw);
        self.samples.push_back((timestamp, raw.len()));
    }

    /// The oldest sample: timestamp and raw bytes.
    pub fn front(&self) -> Option<(f64, &[u8])> {
        let &(timestamp, len) = self.samples.front()?;
        Some((timestamp, &self.raw.as_slice()[..len]))
    }

    /// Removes the oldest sample.
    pub fn pop(&mut self) {
        if let Some((_, len)) = self.samples.pop_front() {
            self.raw.consume(len);
        }
    }

    /// Removes everything and says how many samples that were. They do not count as dropped: the
    /// caller asked for it.
    pub fn clear(&mut self) -> usize {
        let count = self.samples.len();
        self.raw.consume(usize::MAX);
        self.samples = VecDeque::new();
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contents(ring: &mut SampleRing) -> Vec<(f64, Vec<u8>)> {
        let mut all = Vec::new();
        while let Some((timestamp, raw)) = ring.front() {
            all.push((timestamp, raw.to_vec()));
            ring.pop();
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
