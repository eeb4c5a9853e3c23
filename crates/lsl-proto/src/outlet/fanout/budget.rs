//! How many pushes the pushing thread may send itself.

use crate::limits::TokenBucket;

/// Sending on the pushing thread costs it one system call per consumer: worth it for a few consumers,
/// and for large pieces or moderate rates, because nobody has to be woken. Otherwise the flush task
/// sends, and joins what piled up meanwhile. The rate is that of a bucket that fills while nobody
/// pushes: a program that was held up, or that takes several samples from its device at a time, has
/// its burst sent at once, also on a machine so busy that a flusher would wait for its turn.
#[derive(Debug)]
pub(super) struct InlineBudget {
    /// A token is a small push that may be sent.
    bucket: TokenBucket,
    /// Time of the last push in seconds of `local_clock`, and whether its thread sent it.
    last: (f64, bool),
}

impl Default for InlineBudget {
    fn default() -> Self {
        Self {
            bucket: TokenBucket::new(SMALL_PUSHES_PER_SEC, BURST),
            last: (f64::NEG_INFINITY, true),
        }
    }
}

impl InlineBudget {
    /// Whether the pushing thread sends `bytes` pushed at `now` to each of `consumers`. Pieces of one push,
    /// and its other wire variants, have the same `now` and all go the way of the first.
    #[inline]
    pub(super) fn allows(&mut self, bytes: usize, consumers: usize, now: f64) -> bool {
        if consumers > INLINE_CONSUMERS {
            return false;
        }
        let (before, allowed) = self.last;
        if now.to_bits() == before.to_bits() {
            return allowed;
        }
        let allowed = bytes >= INLINE_BYTES || self.bucket.take(now);
        self.last = (now, allowed);
        allowed
    }
}

/// Consumers that a pushing thread serves itself: about 40 µs of system calls.
const INLINE_CONSUMERS: usize = 4;

/// Sending so many bytes costs little more than waking the flush task.
const INLINE_BYTES: usize = 8 * 1024;

/// Faster pushes for long are better sent together by the flush task.
const SMALL_PUSHES_PER_SEC: f64 = 10_000.0;

/// What a thread at 1 kHz has to catch up with after a scheduler gave its turns to others.
const BURST: f64 = 16.0;

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of `count` pushes, `interval` seconds apart, are sent by their thread.
    fn sent_inline(budget: &mut InlineBudget, start: f64, count: u32, interval: f64) -> usize {
        (0..count)
            .map(|n| budget.allows(300, 1, start + f64::from(n) * interval))
            .filter(|allowed| *allowed)
            .count()
    }

    #[test]
    fn moderate_rates_are_sent_at_once() {
        assert_eq!(
            sent_inline(&mut InlineBudget::default(), 0.0, 5000, 200e-6),
            5000
        );
    }

    #[test]
    fn a_burst_is_sent_at_once_and_a_flood_is_not() {
        let mut budget = InlineBudget::default();
        assert_eq!(sent_inline(&mut budget, 5.0, 10, 1e-6), 10);
        // Full again.
        assert_eq!(sent_inline(&mut budget, 6.0, 10, 1e-6), 10);
        let flood = sent_inline(&mut budget, 7.0, 100_000, 1e-6);
        // The burst, and what a tenth of a second of the moderate rate allows.
        assert!((1000..1020).contains(&flood), "{flood}");
    }

    #[test]
    fn pieces_of_one_push_go_the_same_way() {
        let mut budget = InlineBudget::default();
        sent_inline(&mut budget, 0.0, 100, 1e-9);
        assert!(budget.allows(60_000, 1, 1e-6));
        assert!(budget.allows(300, 1, 1e-6));
        assert!(!budget.allows(300, 1, 2e-6));
        let allowed: Vec<_> = (0..100).map(|_| budget.allows(300, 1, 5.0)).collect();
        assert_eq!(allowed, [true; 100]);
        sent_inline(&mut budget, 5.1, 100, 1e-9);
        assert!(budget.allows(300, 1, 5.1001));
        assert!(!budget.allows(300, 1, 5.10011));
        assert!(!budget.allows(300, 1, 5.10011));
    }

    #[test]
    fn many_consumers_are_the_flush_tasks_and_large_pieces_are_not() {
        let mut budget = InlineBudget::default();
        sent_inline(&mut budget, 0.0, 100, 1e-9);
        assert!(budget.allows(100_000, 4, 1e-6));
        assert!(!budget.allows(100_000, 5, 1e-6));
        assert!(!budget.allows(10, 5, 9.0));
    }

    #[test]
    fn a_clock_that_stands_or_goes_back_is_survived() {
        let mut budget = InlineBudget::default();
        sent_inline(&mut budget, 5.0, 100, 1e-9);
        assert!(!budget.allows(10, 1, 4.0));
        assert!(budget.allows(10, 1, 5.001));
    }
}
