//! What came of what was sent: which samples are missing, and how late the others were.

use super::result::Gap;

/// The samples of one reader, by number. Those of the warm-up may be missing.
#[derive(Debug)]
pub(super) struct Tally {
    reader: u32,
    /// The first that counts.
    first: u64,
    modulus: u64,
    next: u64,
    /// Of `next`: what is measured must not wait for divisions.
    next_remainder: u64,
    pub(super) received: u64,
    pub(super) disorder: u64,
    last_pushed: f64,
    gaps: Vec<Gap>,
}

impl Tally {
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

    /// The number expected next.
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

    /// What is missing of `total`, now that no more come.
    pub(super) fn gaps_of(&self, total: u64) -> Vec<Gap> {
        let mut gaps = self.gaps.clone();
        self.miss(&mut gaps, total);
        gaps
    }

    /// Adds what is missing from the one expected next up to `end`.
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

/// The value that this part of them does not exceed; they are sorted. `None` of nothing.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "ranks are positions in memory"
)]
pub(super) fn percentile(sorted: &[f32], part: f64) -> Option<f64> {
    let rank = (part * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.max(1) - 1).map(|value| f64::from(*value))
}

/// In ascending order, without what is not a number (samples that never came).
pub(super) fn sorted(values: impl IntoIterator<Item = f32>) -> Vec<f32> {
    let mut values: Vec<f32> = values.into_iter().filter(|value| !value.is_nan()).collect();
    values.sort_unstable_by(f32::total_cmp);
    values
}

/// The mean. `None` of nothing.
pub(super) fn mean(values: &[f32]) -> Option<f64> {
    let sum: f64 = values.iter().map(|value| f64::from(*value)).sum();
    (!values.is_empty()).then(|| sum / values.len() as f64)
}

/// The middle value, or the mean of the two in the middle. `None` of nothing.
pub(super) fn median(values: &[f64]) -> Option<f64> {
    let mut values = values.to_vec();
    values.sort_unstable_by(f64::total_cmp);
    let half = values.len() / 2;
    let upper = *values.get(half)?;
    if values.len().is_multiple_of(2) {
        values
            .get(half - 1)
            .map(|lower| f64::midpoint(*lower, upper))
    } else {
        Some(upper)
    }
}

/// How often what happened, as (upper bound, count), in buckets that grow by a tenth; empty ones are
/// left out. What is below the first bound or above the last is in those buckets.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "buckets are few, and clamped"
)]
pub(super) fn histogram(sorted: &[f32]) -> Vec<(f64, u64)> {
    let mut counts: Vec<(f64, u64)> = Vec::new();
    for value in sorted {
        let exact = (f64::from(*value).max(LOWEST_US) / LOWEST_US).log(GROWTH);
        let bucket = (exact.ceil() as usize).min(BUCKETS - 1);
        let bound = LOWEST_US * GROWTH.powf(bucket as f64);
        match counts.last_mut() {
            Some((last, count)) if *last >= bound => *count += 1,
            _ => counts.push((bound, 1)),
        }
    }
    counts
}

const LOWEST_US: f64 = 1.0;
const GROWTH: f64 = 1.1;
/// Up to more than a minute.
const BUCKETS: usize = 190;

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(first: u64, numbers: &[u64], total: u64, gaps: &[(u64, u64)], disorder: u64) {
        for modulus in [16, 1 << 40] {
            let mut tally = Tally::new(3, first, modulus);
            for number in numbers {
                assert_eq!(tally.add(number % modulus), *number);
            }
            let expected: Vec<Gap> = gaps
                .iter()
                .map(|(first, count)| Gap {
                    reader: 3,
                    first: *first,
                    count: *count,
                })
                .collect();
            assert_eq!(tally.gaps_of(total), expected, "modulus {modulus}");
            assert_eq!(tally.disorder, disorder);
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
        let mut tally = Tally::new(0, 0, 128);
        for pushed in [5.0, 5.0, 4.0, 6.0] {
            tally.add(tally.next());
            tally.pushed(pushed);
        }
        assert_eq!((tally.disorder, tally.received), (1, 4));
    }

    #[test]
    fn many_gaps_are_summed_up() {
        let mut tally = Tally::new(0, 0, 1 << 40);
        for number in 0..100 {
            tally.add(2 * number + 1);
        }
        let gaps = tally.gaps_of(200);
        let missing: u64 = gaps.iter().map(|gap| gap.count).sum();
        assert_eq!((gaps.len(), missing, tally.received), (20, 100, 100));
    }

    #[test]
    fn percentiles_are_ranks() {
        let hundred = sorted((1..=100).rev().map(|n| n as f32).chain([f32::NAN]));
        for (part, value) in [
            (0.0, 1.0),
            (0.5, 50.0),
            (0.95, 95.0),
            (0.99, 99.0),
            (1.0, 100.0),
        ] {
            assert_eq!(percentile(&hundred, part), Some(value));
        }
        assert_eq!(percentile(&[7.0], 0.5), Some(7.0));
        assert_eq!(percentile(&[], 0.5), None);
        assert_eq!(mean(&hundred), Some(50.5));
    }

    #[test]
    fn medians() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0]), Some(2.5));
        assert_eq!(median(&[]), None);
    }

    #[test]
    fn histograms_count_everything_once() {
        let values = sorted([0.2, 0.9, 1.0, 30.0, 30.1, 33.0, 1e9]);
        let buckets = histogram(&values);
        assert_eq!(buckets.iter().map(|(_, count)| count).sum::<u64>(), 7);
        assert!(buckets.is_sorted_by(|a, b| a.0 < b.0) && buckets.len() <= 200);
        assert_eq!(buckets[0], (1.0, 3));
        for pair in buckets.windows(2) {
            assert!(pair[1].0 / pair[0].0 >= 1.099);
        }
    }
}
