//! Percentiles over all samples of all rounds, from histograms, with intervals that take the rounds,
//! not the samples, as what was repeated: samples of one round share its luck.

use crate::bench::result::Cell;
use crate::bench::stats::{self, Interval};

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

    /// The bound that at least `share` of the samples are not above.
    pub(super) fn percentile(&self, share: f64) -> Option<f64> {
        let wanted = share * self.count() as f64;
        let mut sum = 0.0;
        for (bound, count) in &self.bins {
            sum += *count as f64;
            if sum >= wanted {
                return Some(*bound);
            }
        }
        None
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

/// A percentile over all rounds, and the 95 % interval found by resampling rounds.
pub(super) fn with_interval(rounds: &[Histogram], share: f64) -> Option<(f64, Option<Interval>)> {
    let value = Histogram::sum(rounds).percentile(share)?;
    let interval = stats::bootstrap(rounds.len(), |chosen| percentile_of(rounds, chosen, share));
    Some((value, interval))
}

/// The percentile of some rounds together, without putting them together: 2000 times is often.
fn percentile_of(rounds: &[Histogram], chosen: &[usize], share: f64) -> Option<f64> {
    let chosen: Vec<&Histogram> = chosen
        .iter()
        .filter_map(|index| rounds.get(*index))
        .collect();
    let total: u64 = chosen.iter().map(|histogram| histogram.count()).sum();
    let wanted = share * total as f64;
    let below = |bound: f64| {
        let counts = chosen.iter().map(|histogram| {
            let until = histogram.bins.partition_point(|(other, _)| *other <= bound);
            histogram
                .bins
                .iter()
                .take(until)
                .map(|(_, count)| *count as f64)
                .sum::<f64>()
        });
        counts.sum::<f64>()
    };
    let mut bounds: Vec<f64> = chosen
        .iter()
        .flat_map(|histogram| histogram.bins.iter().map(|(bound, _)| *bound))
        .collect();
    bounds.sort_by(f64::total_cmp);
    bounds.dedup();
    let place = bounds.partition_point(|bound| below(*bound) < wanted);
    bounds.get(place).copied()
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
        let all = Histogram::sum(&rounds);
        for (share, expected) in [
            (0.5, 10.0),
            (0.51, 20.0),
            (0.95, 40.0),
            (1.0, f64::INFINITY),
        ] {
            assert_eq!(all.percentile(share), Some(expected), "{share}");
            assert_eq!(
                percentile_of(&rounds, &[0, 1, 2], share),
                Some(expected),
                "{share}"
            );
        }
        assert_eq!(percentile_of(&rounds, &[2, 2, 2], 0.99), Some(10.0));
        let (value, interval) = with_interval(&rounds, 0.95).unwrap();
        let interval = interval.unwrap();
        assert!(
            interval.holds(value) && interval.low < interval.high,
            "{interval:?}"
        );
        assert_eq!(Histogram::default().percentile(0.5), None);
    }

    #[test]
    fn the_last_share_is_below_one_if_something_overflowed() {
        let points = histogram(&[(10.0, 1), (20.0, 1), (f64::INFINITY, 2)]).cumulative();
        assert_eq!(points, [(10.0, 0.25), (20.0, 0.5)]);
    }
}
