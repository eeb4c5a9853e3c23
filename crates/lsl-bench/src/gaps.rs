//! Finds the samples that are missing or late at a reader.

use super::result::Gap;

/// The samples of one reader, by number. Those of the warm-up may be missing.
#[derive(Debug)]
pub(super) struct GapDetector {
    reader: u32,
    /// First number that counts; earlier ones are warm-up.
    first: u64,
    modulus: u64,
    next: u64,
    /// Remainder of `next`, kept because measured code must avoid divisions.
    next_remainder: u64,
    pub(super) received: u64,
    pub(super) disorder: u64,
    last_pushed: f64,
    gaps: Vec<Gap>,
}

impl GapDetector {
    pub(super) fn new(reader: u32, first: u64, modulus: u64) -> Self {
        Self {
            reader,
            first,
            modulus,
            next: 0,
            next_remainder: 0,
            received: 0,
            disorder: 0,
            last_pushed: f64::NEG_INFINITY,
            gaps: Vec::new(),
        }
    }

    /// Returns the number of the next sample in order.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    /// A sample came whose number has this remainder; gives its number. Right as long as fewer than
    /// half the modulus are missing in a row.
    pub(super) fn add(&mut self, remainder: u64) -> u64 {
        let number = if remainder == self.next_remainder {
            self.next
        } else {
            let ahead = (remainder + self.modulus - self.next_remainder) % self.modulus;
            if ahead > self.modulus / 2 {
                self.disorder += 1;
                return self.next.saturating_sub(self.modulus - ahead);
            }
            let number = self.next + ahead;
            let mut gaps = std::mem::take(&mut self.gaps);
            self.miss(&mut gaps, number);
            self.gaps = gaps;
            number
        };
        self.next = number + 1;
        self.next_remainder = if remainder + 1 == self.modulus {
            0
        } else {
            remainder + 1
        };
        if number >= self.first {
            self.received += 1;
        }
        number
    }

    /// When the next sample was pushed, going by its timestamp. That never goes back; sums of sample
    /// periods may be off by rounding.
    pub(super) fn pushed(&mut self, at: f64) {
        if at < self.last_pushed - ROUNDING_SECS {
            self.disorder += 1;
        }
        self.last_pushed = at;
    }

    /// Returns the missing numbers of `total`, once no more samples come.
    pub(super) fn gaps_of(&self, total: u64) -> Vec<Gap> {
        let mut gaps = self.gaps.clone();
        self.miss(&mut gaps, total);
        gaps
    }

    /// Adds the numbers from the expected one up to `end` as missing.
    fn miss(&self, gaps: &mut Vec<Gap>, end: u64) {
        let first = self.next.max(self.first);
        if end <= first {
            return;
        }
        let count = end - first;
        let is_full = gaps.len() == MOST_GAPS;
        match gaps.last_mut() {
            // From here on only how many.
            Some(last) if is_full => last.count += count,
            _ => gaps.push(Gap {
                reader: self.reader,
                first,
                count,
            }),
        }
    }
}

/// Gaps listed for one reader; the last one stands for all after it.
const MOST_GAPS: usize = 20;

const ROUNDING_SECS: f64 = 1e-6;

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(first: u64, numbers: &[u64], total: u64, gaps: &[(u64, u64)], disorder: u64) {
        for modulus in [16, 1 << 40] {
            let mut detector = GapDetector::new(3, first, modulus);
            for number in numbers {
                assert_eq!(detector.add(number % modulus), *number);
            }
            let expected: Vec<Gap> = gaps
                .iter()
                .map(|(first, count)| Gap {
                    reader: 3,
                    first: *first,
                    count: *count,
                })
                .collect();
            assert_eq!(detector.gaps_of(total), expected, "modulus {modulus}");
            assert_eq!(detector.disorder, disorder);
        }
    }

    #[test]
    fn gaps_are_found_where_they_are() {
        check(0, &[0, 1, 2], 3, &[], 0);
        check(0, &[], 3, &[(0, 3)], 0);
        check(0, &[0, 1], 5, &[(2, 3)], 0);
        check(0, &[2, 3, 6], 7, &[(0, 2), (4, 2)], 0);
        let all: Vec<u64> = (0..40).collect();
        check(0, &all, 40, &[], 0);
    }

    #[test]
    fn the_warm_up_may_be_missing() {
        check(5, &[3, 4, 5, 6], 7, &[], 0);
        check(5, &[7], 8, &[(5, 2)], 0);
        check(5, &[2], 8, &[(5, 3)], 0);
    }

    #[test]
    fn copies_and_steps_back_are_disorder() {
        check(0, &[0, 1, 2, 1, 3], 4, &[], 1);
        let mut detector = GapDetector::new(0, 0, 128);
        for pushed in [5.0, 5.0, 4.0, 6.0] {
            detector.add(detector.next());
            detector.pushed(pushed);
        }
        assert_eq!((detector.disorder, detector.received), (1, 4));
    }

    #[test]
    fn many_gaps_are_summed_up() {
        let mut detector = GapDetector::new(0, 0, 1 << 40);
        for number in 0..100 {
            detector.add(2 * number + 1);
        }
        let gaps = detector.gaps_of(200);
        let missing: u64 = gaps.iter().map(|gap| gap.count).sum();
        assert_eq!((gaps.len(), missing, detector.received), (20, 100, 100));
    }
}
