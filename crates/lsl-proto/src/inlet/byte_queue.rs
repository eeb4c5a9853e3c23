//! A FIFO of bytes that is always one contiguous slice.

/// Queue in one vector: bytes go in at the end and out at the front. Before it would grow, the rest
/// moves down if more than that was consumed, so that a byte moves at most once on average. A queue
/// that runs empty (the usual case) never moves anything.
#[derive(Debug, Default)]
pub(super) struct ByteQueue {
    bytes: Vec<u8>,
    head: usize,
    /// Decaying maximum of the length in bytes, to tell a burst from the usual fill.
    peak: usize,
}

impl ByteQueue {
    pub(super) fn len(&self) -> usize {
        self.bytes.len() - self.head
    }

    pub(super) fn as_slice(&self) -> &[u8] {
        &self.bytes[self.head..]
    }

    pub(super) fn extend(&mut self, bytes: &[u8]) {
        if self.head > self.len() && self.bytes.len() + bytes.len() > self.bytes.capacity() {
            self.bytes.drain(..self.head);
            self.head = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// Drops the first `count` bytes, at most all.
    pub(super) fn consume(&mut self, count: usize) {
        self.peak = self.peak.max(self.len());
        self.head = self.head.saturating_add(count).min(self.bytes.len());
        if self.head < self.bytes.len() {
            return;
        }
        self.bytes.clear();
        self.head = 0;
        if self.bytes.capacity() > KEEP_BYTES.max(self.peak.saturating_mul(8)) {
            self.bytes.shrink_to(KEEP_BYTES.max(self.peak * 2));
        }
        self.peak -= self.peak / 8;
    }
}

/// Capacity in bytes that is never given back.
const KEEP_BYTES: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn behaves_like_a_deque(steps in proptest::collection::vec((0usize..50, 0usize..60), 1..100)) {
            let mut queue = ByteQueue::default();
            let mut model = VecDeque::new();
            let mut next = 0u8;
            for (add, remove) in steps {
                let bytes: Vec<u8> = (0..add).map(|_| { next = next.wrapping_add(1); next }).collect();
                queue.extend(&bytes);
                model.extend(bytes);
                prop_assert_eq!(queue.as_slice(), model.make_contiguous() as &[u8]);
                queue.consume(remove);
                model.drain(..remove.min(model.len()));
                prop_assert_eq!(queue.len(), model.len());
            }
        }
    }

    #[test]
    fn all_goes_also_when_a_part_is_gone() {
        let mut queue = ByteQueue::default();
        queue.extend(b"abcdef");
        queue.consume(2);
        queue.consume(usize::MAX);
        assert_eq!(queue.as_slice(), b"");
        queue.extend(b"gh");
        assert_eq!(queue.as_slice(), b"gh");
    }

    #[test]
    fn memory_of_a_burst_goes_back() {
        let mut queue = ByteQueue::default();
        queue.extend(&vec![0; 8 << 20]);
        queue.consume(usize::MAX);
        for _ in 0..100 {
            queue.extend(&[0; 300]);
            queue.consume(300);
        }
        assert!(
            queue.bytes.capacity() <= 2 * KEEP_BYTES,
            "{}",
            queue.bytes.capacity()
        );
    }
}
