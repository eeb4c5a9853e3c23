//! Numbers of an outlet's samples and the wire variants that somebody reads, in one word: who joins learns which
//! sample is its first, whatever pushes are under way. Spec: resume §3.

use std::sync::atomic::Ordering;

use lsl_proto::outlet::encoder::Variant;

use crate::net::sync::AtomicU64;

/// Number of the next sample, and a bit for each variant that is read.
#[derive(Debug, Default)]
pub(super) struct Numbers(AtomicU64);

impl Numbers {
    /// Begins with this number; `None` if it is too large to count on.
    pub(super) fn starting_at(first: u64) -> Option<Self> {
        (first < MOST_NUMBERS).then(|| Self(AtomicU64::new(first << READ_BITS)))
    }

    /// Numbers samples that nobody reads. Returns false, and numbers none, if somebody may read them.
    pub(super) fn pass(&self, samples: u64) -> bool {
        let mut word = self.0.load(Ordering::Relaxed);
        while word & READ == 0 {
            let next = word + (samples << READ_BITS);
            match (self.0).compare_exchange_weak(word, next, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return true,
                Err(current) => word = current,
            }
        }
        false
    }

    /// Numbers the samples of a push; `encoder` is locked, so that they are published in this order. Returns the
    /// first number, and the variants that the push is for.
    pub(super) fn take(&self, samples: u64) -> (u64, u64) {
        let word = self.0.fetch_add(samples << READ_BITS, Ordering::AcqRel);
        (word >> READ_BITS, word & READ)
    }

    /// Numbers samples that were lost; `encoder` is locked. False, and none are, if there were too many.
    pub(super) fn skip(&self, samples: u64) -> bool {
        let skipped = (self.0).fetch_update(Ordering::AcqRel, Ordering::Relaxed, |word| {
            let next = (word >> READ_BITS).checked_add(samples);
            let next = next.filter(|&next| next < MOST_NUMBERS)?;
            Some(next << READ_BITS | word & READ)
        });
        skipped.is_ok()
    }

    /// Has pushes encode a variant for a consumer that is about to join; `fanout` is locked. Returns the number
    /// of its first sample: pushes that begin from now on are for it. Those under way are if the variant was
    /// read before, which is told, too.
    pub(super) fn expect_reader(&self, variant: Variant) -> (u64, bool) {
        let word = self.0.fetch_or(bit(variant), Ordering::AcqRel);
        (word >> READ_BITS, word & bit(variant) != 0)
    }

    /// Notes which variants are read; `fanout` is locked.
    pub(super) fn note_read(&self, is_read: impl Fn(Variant) -> bool) {
        let unread = Variant::ALL.into_iter().filter(|it| !is_read(*it));
        let unread: u64 = unread.map(bit).sum();
        self.0.fetch_and(!unread, Ordering::AcqRel);
    }

    /// Returns the number of samples pushed so far.
    pub(super) fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed) >> READ_BITS
    }
}

/// Returns the bit of a variant among those that are read.
fn bit(variant: Variant) -> u64 {
    1 << variant.index()
}

const READ_BITS: usize = Variant::ALL.len();

/// Numbers beyond this one are not given to what a program says is lost: pushes go on counting.
const MOST_NUMBERS: u64 = 1 << 60;

const READ: u64 = (1 << READ_BITS) - 1;
