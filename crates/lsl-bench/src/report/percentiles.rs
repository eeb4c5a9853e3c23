//! Percentiles over all samples of all rounds, from histograms, with intervals that take the rounds,
//! not the samples, as what was repeated: samples of one round share its luck.

use crate::result::Cell;
use crate::stats::{self, Interval};

/// Counts by upper bound, in rising order.
#[derive(Debug, Clone, Default)]
pub(super) struct Histogram {
    bins: Vec<(f64, u64)>,
}

/// The histograms of one subject in one cell, by round. Rounds without one are left out.
pub(super) fn of_subject(cell: &Cell, subject: usize) -> Vec<Histogram> {
    let measurements = cell
        .rounds
        .iter()
        .filter_map(|round| round.measurements.get(subject));
    measurements
        .filter(|measurement| !measurement.histogram.is_empty())
        .map(|measurement| Histogram::of(measurement.histogram.iter().copied()))
        .collect()
}

impl Histogram {
    fn of(bins: impl Iterator<Item = (f64, u64)>) -> Self {
        let mut bins: Vec<(f64, u64)> = bins
            .filter(|(bound, count)| !bound.is_nan() && *count > 0)
            .collect();
        bins.sort_by(|(one, _), (other, _)| one.total_cmp(other));
        Self { bins }
    }

    /// All of them together.
    pub(super) fn sum(histograms: &[Self]) -> Self {
        Self::of(
            histograms
                .iter()
                .flat_map(|histogram| histogram.bins.iter().copied()),
        )
    }

    fn count(&self) -> u64 {
        self.bins
            .iter()
            .fold(0, |sum, (_, count)| sum.saturating_add(*count))
    }

    /// (Bound, share of samples up to it), for a chart with a logarithmic axis.
    pub(super) fn cumulative(&self) -> Vec<(f64, f64)> {
        let total = self.count() as f64;
        let mut sum = 0.0;
        let mut points: Vec<(f64, f64)> = Vec::new();
        for (bound, count) in &self.bins {
            sum += *count as f64;
            if *bound > 0.0 && bound.is_finite() {
                match points.last_mut() {
                    Some(last) if last.0 >= *bound => last.1 = sum / total,
                    _ => points.push((*bound, sum / total)),
                }
            }
        }
        points
    }
}

/// Rounds of one subject in one cell, laid out so that any choice of them is summed up quickly:
/// resampling asks 2000 times.
#[derive(Debug)]
pub(super) struct Rounds {
    /// All bounds that occur, rising.
    bounds: Vec<f64>,
    /// By round: how many samples up to each bound.
    cumulative: Vec<Vec<f64>>,
}

impl Rounds {
    pub(super) fn of(rounds: &[Histogram]) -> Self {
        let bounds: Vec<f64> = {
            let bins = rounds.iter().flat_map(|histogram| &histogram.bins);
            let mut bounds: Vec<f64> = bins.map(|(bound, _)| *bound).collect();
            bounds.sort_by(f64::total_cmp);
            bounds.dedup();
            bounds
        };
        let sums = |histogram: &Histogram| {
            let (mut sum, mut bins) = (0.0, histogram.bins.iter().peekable());
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

    /// A percentile over all rounds, and the 95 % interval found by resampling rounds.
    pub(super) fn percentile(&self, share: f64) -> Option<(f64, Option<Interval>)> {
        let all: Vec<usize> = (0..self.cumulative.len()).collect();
        let interval = stats::bootstrap(all.len(), |chosen| self.percentile_of(chosen, share));
        Some((self.percentile_of(&all, share)?, interval))
    }

    /// The bound that at least `share` of the samples of the chosen rounds are not above.
    fn percentile_of(&self, chosen: &[usize], share: f64) -> Option<f64> {
        let chosen: Vec<&Vec<f64>> = chosen
            .iter()
            .filter_map(|round| self.cumulative.get(*round))
            .collect();
        let until =
            |place: usize| -> f64 { chosen.iter().filter_map(|round| round.get(place)).sum() };
        let wanted = share * until(self.bounds.len().checked_sub(1)?);
        let (mut low, mut high) = (0, self.bounds.len() - 1);
        while low < high {
            let middle = usize::midpoint(low, high);
            if until(middle) < wanted {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        self.bounds.get(low).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn histogram(bins: &[(f64, u64)]) -> Histogram {
        Histogram::of(bins.iter().copied())
    }

    #[test]
    fn percentiles_are_upper_bounds() {
        let rounds = [
            histogram(&[(20.0, 50), (10.0, 40)]),
            histogram(&[(10.0, 10), (40.0, 99), (f64::INFINITY, 1)]),
            histogram(&[(10.0, 100)]),
        ];
        let all = Rounds::of(&rounds);
        for (share, expected) in [
            (0.5, 10.0),
            (0.51, 20.0),
            (0.95, 40.0),
            (1.0, f64::INFINITY),
        ] {
            assert_eq!(
                all.percentile_of(&[0, 1, 2], share),
                Some(expected),
                "{share}"
            );
        }
        assert_eq!(all.percentile_of(&[2, 2, 2], 0.99), Some(10.0));
        let (value, interval) = all.percentile(0.95).unwrap();
        let interval = interval.unwrap();
        assert_eq!((value, interval.low), (40.0, 10.0));
        assert!(value <= interval.high, "{interval:?}");
        assert!(Rounds::of(&[]).percentile(0.5).is_none());
    }

    #[test]
    fn the_last_share_is_below_one_if_something_overflowed() {
        let points = histogram(&[(10.0, 1), (20.0, 1), (f64::INFINITY, 2)]).cumulative();
        assert_eq!(points, [(10.0, 0.25), (20.0, 0.5)]);
    }
}
