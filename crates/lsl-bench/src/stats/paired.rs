//! Paired comparisons: t-test, equivalence test, effect sizes, ratios.

use super::{Interval, deviation, mean, median, student};

/// A comparison of pairs: how far the second of each is above the first.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Paired {
    /// Number of pairs, at least 2.
    pub(crate) n: usize,
    /// Mean of the differences, second less first.
    pub(crate) mean: f64,
    /// Standard deviation of the differences.
    pub(crate) deviation: f64,
    /// Student's t; infinite where all differences are equal and not 0, NaN where all are 0.
    pub(crate) t: f64,
    /// Two-sided chance of a `t` as large if there were no difference.
    pub(crate) p: f64,
    /// 95 % confidence interval of the mean difference.
    pub(crate) interval: Interval,
    /// Mean difference in its own standard deviations: how consistent it is.
    pub(crate) d_z: f64,
}

impl Paired {
    /// The paired t-test of `second - first`. `None` below two pairs.
    pub(crate) fn of(pairs: &[(f64, f64)]) -> Option<Self> {
        let differences: Vec<f64> = pairs.iter().map(|(first, second)| second - first).collect();
        Self::of_differences(&differences)
    }

    /// Tests the differences of pairs. `None` below two.
    pub(crate) fn of_differences(differences: &[f64]) -> Option<Self> {
        Self::from_summary(
            mean(differences)?,
            deviation(differences)?,
            differences.len(),
        )
    }

    /// Tests pairs by the values that papers print.
    pub(crate) fn from_summary(mean: f64, deviation: f64, n: usize) -> Option<Self> {
        if n < 2 {
            return None;
        }
        let freedom = (n - 1) as f64;
        let error = deviation / (n as f64).sqrt();
        let t = mean / error;
        let half = student::critical(0.95, freedom) * error;
        Some(Self {
            n,
            mean,
            deviation,
            t,
            p: if mean == 0.0 {
                1.0
            } else {
                student::two_sided(t, freedom)
            },
            interval: [mean - half, mean + half],
            d_z: mean / deviation,
        })
    }

    /// Two one-sided tests (TOST): the chance of such data if the mean difference were *outside* `low`
    /// to `high`. Below 0.05 means: shown to be equivalent.
    pub(crate) fn equivalence(&self, low: f64, high: f64) -> f64 {
        let freedom = (self.n - 1) as f64;
        let error = self.deviation / (self.n as f64).sqrt();
        if error == 0.0 {
            return if low < self.mean && self.mean < high {
                0.0
            } else {
                1.0
            };
        }
        let above_low = student::upper((self.mean - low) / error, freedom);
        let below_high = student::upper((high - self.mean) / error, freedom);
        above_low.max(below_high)
    }

    /// Returns the number of pairs of this noise that it takes for a 95 % interval of the mean no
    /// wider than plus and minus `half`. `None` beyond 100 000.
    pub(crate) fn pairs_needed(&self, half: f64) -> Option<usize> {
        let enough = |n: usize| {
            student::critical(0.95, (n - 1) as f64) * self.deviation / (n as f64).sqrt() <= half
        };
        let most = 100_000;
        if !enough(most) {
            return None;
        }
        let (mut low, mut high) = (1, most);
        while high - low > 1 {
            let middle = usize::midpoint(low, high);
            if enough(middle) {
                high = middle;
            } else {
                low = middle;
            }
        }
        Some(high)
    }
}

/// Cohen's d with the pooled standard deviation: the difference in units of the ordinary scatter.
pub(crate) fn cohens_d(pairs: &[(f64, f64)]) -> Option<f64> {
    let (first, second): (Vec<f64>, Vec<f64>) = pairs.iter().copied().unzip();
    Some(cohens_d_of_summary(
        mean(&second)? - mean(&first)?,
        deviation(&first)?,
        deviation(&second)?,
    ))
}

pub(super) fn cohens_d_of_summary(difference: f64, first: f64, second: f64) -> f64 {
    difference / f64::midpoint(first * first, second * second).sqrt()
}

/// Median of the ratios of each pair, second to first. Ratios that are no finite number do not count.
pub(crate) fn median_ratio(pairs: &[(f64, f64)]) -> Option<f64> {
    let ratios = pairs.iter().map(|(first, second)| second / first);
    median(&ratios.filter(|ratio| ratio.is_finite()).collect::<Vec<_>>())
}
