//! Proof that nothing was lost: the sender numbers its samples, this counts the missing ones.

/// Counts of sample numbers: received, missing, repeated.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Sequence {
    next: u64,
    received: u64,
    missing: u64,
    repeated: u64,
}

impl Sequence {
    /// Counts sample number `number`. Numbers start at 0.
    pub(crate) fn add(&mut self, number: u64) {
        self.received += 1;
        if number >= self.next {
            self.missing += number - self.next;
            self.next = number + 1;
        } else {
            // It may fill a gap or be a copy; a TCP stream in order has neither, so both are wrong.
            self.repeated += 1;
        }
    }

    /// Works as [`add`](Self::add) with the remainder of the number after division by `modulus`.
    /// Right as long as fewer than `modulus` samples are missing in a row.
    pub(crate) fn add_wrapped(&mut self, remainder: u64, modulus: u64) {
        let expected = self.next % modulus;
        let ahead = if remainder >= expected {
            remainder - expected
        } else {
            modulus - (expected - remainder)
        };
        // A number just behind the expected one is a repetition, not a gap of almost `modulus`.
        if ahead < modulus / 2 {
            self.add(self.next + ahead);
        } else {
            self.add(self.next.saturating_sub(modulus - ahead));
        }
    }

    /// Returns the number of samples received.
    pub(crate) fn received(self) -> u64 {
        self.received
    }

    /// Returns the number expected next.
    pub(crate) fn next(self) -> u64 {
        self.next
    }

    /// Returns the number of samples out of order or received more than once.
    pub(crate) fn repeated(self) -> u64 {
        self.repeated
    }

    /// Returns the samples missing among the `sent` first ones and before the last one received.
    pub(crate) fn lost_of(self, sent: u64) -> u64 {
        self.missing + sent.saturating_sub(self.next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(numbers: &[u64], sent: u64, received: u64, lost: u64, repeated: u64) {
        for modulus in [u64::MAX, 16] {
            let mut sequence = Sequence::default();
            for number in numbers {
                sequence.add_wrapped(number % modulus, modulus);
            }
            let found = (
                sequence.received(),
                sequence.lost_of(sent),
                sequence.repeated(),
            );
            assert_eq!(found, (received, lost, repeated), "modulus {modulus}");
        }
    }

    #[test]
    fn gaps_ends_and_copies() {
        check(&[], 0, 0, 0, 0);
        check(&[], 3, 0, 3, 0);
        check(&[0, 1, 2], 3, 3, 0, 0);
        check(&[0, 1, 2], 5, 3, 2, 0);
        check(&[2, 3], 4, 2, 2, 0);
        check(&[0, 4, 5], 6, 3, 3, 0);
        check(&[0, 1, 1, 2], 3, 4, 0, 1);
        check(&[0, 2, 1, 3], 4, 4, 1, 1);
        let all: Vec<u64> = (0..40).collect();
        check(&all, 40, 40, 0, 0);
    }
}
