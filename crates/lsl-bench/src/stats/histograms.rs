//! Histograms of latencies by round, and percentiles of them with intervals that take the rounds, not the
//! samples, as what was repeated: samples of one round share its luck.

use super::{Interval, bootstrap};

/// Counts `sorted` latencies in microseconds as (upper bound, count), in buckets that grow by a tenth. Empty
/// buckets are left out; the first and the last also hold what is beyond them.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "buckets are few, and clamped"
)]
pub(crate) fn buckets(sorted: &[f32]) -> Vec<(f64, u64)> {
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

/// Histograms of several rounds, laid out so that any choice of rounds is summed up quickly: resampling asks
/// 2000 times.
#[derive(Debug)]
pub(crate) struct Histograms {
    /// All upper bounds that occur, rising.
    bounds: Vec<f64>,
    /// Samples up to each bound, by round.
    cumulative: Vec<Vec<f64>>,
}

impl Histograms {
    /// Takes (upper bound, count) by round; rounds without samples are left out.
    pub(crate) fn of<'a>(rounds: impl IntoIterator<Item = &'a [(f64, u64)]>) -> Self {
        let valid = |bins: &[(f64, u64)]| {
            let bins = bins.iter().copied();
            let mut bins: Vec<(f64, u64)> = bins
                .filter(|(bound, count)| !bound.is_nan() && *count > 0)
                .collect();
            bins.sort_by(|one, other| one.0.total_cmp(&other.0));
            bins
        };
        let mut rounds: Vec<_> = rounds.into_iter().map(valid).collect();
        rounds.retain(|bins| !bins.is_empty());
        let mut bounds: Vec<f64> = rounds.iter().flatten().map(|(bound, _)| *bound).collect();
        bounds.sort_by(f64::total_cmp);
        bounds.dedup();
        let sums = |bins: &Vec<(f64, u64)>| {
            let (mut sum, mut bins) = (0.0, bins.iter().peekable());
            let until = |bound: &f64| {
                while let Some((_, count)) = bins.next_if(|(other, _)| other <= bound) {
                    sum += *count as f64;
                }
                sum
            };
            bounds.iter().map(until).collect()
        };
        let cumulative = rounds.iter().map(sums).collect();
        Self { bounds, cumulative }
    }

    /// (Bound, share of all samples up to it), for bounds that have a logarithm.
    pub(crate) fn distribution(&self) -> Vec<(f64, f64)> {
        let all: Vec<usize> = (0..self.cumulative.len()).collect();
        let total = self.until(&all, self.bounds.len().saturating_sub(1));
        let bounds = self.bounds.iter().enumerate();
        bounds
            .filter(|(_, bound)| **bound > 0.0 && bound.is_finite())
            .map(|(place, bound)| (*bound, self.until(&all, place) / total))
            .collect()
    }

    /// A percentile over all rounds, and the 95 % interval found by resampling rounds.
    pub(crate) fn percentile(&self, share: f64) -> Option<(f64, Option<Interval>)> {
        let all: Vec<usize> = (0..self.cumulative.len()).collect();
        let interval = bootstrap(all.len(), |chosen| self.percentile_of(chosen, share));
        Some((self.percentile_of(&all, share)?, interval))
    }

    /// The bound that at least `share` of the samples of the chosen rounds are not above.
    fn percentile_of(&self, chosen: &[usize], share: f64) -> Option<f64> {
        let wanted = share * self.until(chosen, self.bounds.len().checked_sub(1)?);
        let (mut low, mut high) = (0, self.bounds.len() - 1);
        while low < high {
            let middle = usize::midpoint(low, high);
            if self.until(chosen, middle) < wanted {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        self.bounds.get(low).copied()
    }

    /// Samples of the chosen rounds up to the bound at `place`.
    fn until(&self, chosen: &[usize], place: usize) -> f64 {
        let rounds = chosen
            .iter()
            .filter_map(|round| self.cumulative.get(*round));
        rounds.filter_map(|round| round.get(place)).sum()
    }
}

const LOWEST_US: f64 = 1.0;
const GROWTH: f64 = 1.1;
/// Up to more than a minute.
const BUCKETS: usize = 190;

#[cfg(test)]
mod tests {
    use super::super::sorted_latencies;
    use super::*;

    #[test]
    fn percentiles_are_upper_bounds() {
        let rounds: [&[(f64, u64)]; 4] = [
            &[(20.0, 50), (10.0, 40)],
            &[(10.0, 10), (40.0, 99), (f64::INFINITY, 1)],
            &[],
            &[(10.0, 100), (f64::NAN, 7)],
        ];
        let all = Histograms::of(rounds);
        for (share, expected) in [
            (0.5, 10.0),
            (0.51, 20.0),
            (0.95, 40.0),
            (1.0, f64::INFINITY),
        ] {
            let found = all.percentile_of(&[0, 1, 2], share);
            assert_eq!(found, Some(expected), "{share}");
        }
        assert_eq!(all.percentile_of(&[2, 2, 2], 0.99), Some(10.0));
        let (value, interval) = all.percentile(0.95).unwrap();
        let [low, high] = interval.unwrap();
        assert_eq!((value, low), (40.0, 10.0));
        assert!(value <= high, "{high}");
        assert!(Histograms::of([]).percentile(0.5).is_none());
    }

    #[test]
    fn the_last_share_is_below_one_if_something_overflowed() {
        let bins: &[(f64, u64)] = &[(10.0, 1), (20.0, 1), (f64::INFINITY, 2)];
        let points = Histograms::of([bins]).distribution();
        assert_eq!(points, [(10.0, 0.25), (20.0, 0.5)]);
    }

    #[test]
    fn buckets_count_everything_once() {
        let values = sorted_latencies([0.2, 0.9, 1.0, 30.0, 30.1, 33.0, 1e9]);
        let buckets = buckets(&values);
        assert_eq!(buckets.iter().map(|(_, count)| count).sum::<u64>(), 7);
        assert!(buckets.is_sorted_by(|a, b| a.0 < b.0) && buckets.len() <= 200);
        assert_eq!(buckets[0], (1.0, 3));
        for pair in buckets.windows(2) {
            assert!(pair[1].0 / pair[0].0 >= 1.099);
        }
    }
}
