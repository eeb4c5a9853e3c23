//! The statistics of all benchmarks: medians and percentiles of samples, comparisons of pairs, histograms.
//! Everything compares two libraries that were measured in the same rounds, because machines drift: the
//! pair is what can be trusted, not the number. Knows nothing of metrics.

mod histograms;
mod paired;
mod student;

pub(crate) use self::histograms::{Histograms, buckets};
pub(crate) use self::paired::{Paired, cohens_d, median_ratio};

/// Low and high end of a range that holds the true value with a stated chance.
pub(crate) type Interval = [f64; 2];

/// Arithmetic mean; `None` without values.
pub(crate) fn mean(values: &[f64]) -> Option<f64> {
    mean_of(values.iter().copied())
}

fn mean_of(values: impl ExactSizeIterator<Item = f64>) -> Option<f64> {
    let count = values.len();
    (count > 0).then(|| values.sum::<f64>() / count as f64)
}

/// Standard deviation of a sample (n - 1). `None` below two values.
pub(crate) fn deviation(values: &[f64]) -> Option<f64> {
    if values.len() < 2 {
        return None;
    }
    let mean = mean(values)?;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    Some((squares / (values.len() - 1) as f64).sqrt())
}

/// Median by [`quantile`]; `None` without values.
pub(crate) fn median(values: &[f64]) -> Option<f64> {
    quantile(values, 0.5)
}

/// The value that the `share` of the values is below, by linear interpolation (type 7 of Hyndman and
/// Fan, the default of R and NumPy).
pub(crate) fn quantile(values: &[f64], share: f64) -> Option<f64> {
    let sorted = sorted(values);
    let last = sorted.len().checked_sub(1)?;
    let place = share.clamp(0.0, 1.0) * last as f64;
    let index = floor(place).min(last);
    let next = (index + 1).min(last);
    let rest = place - index as f64;
    if rest == 0.0 {
        // Not the sum below: 0 times infinity is not a number.
        return Some(sorted[index]);
    }
    Some(sorted[index] + (sorted[next] - sorted[index]) * rest)
}

/// First and third quartile, by [`quantile`].
pub(crate) fn quartiles(values: &[f64]) -> Option<Interval> {
    Some([quantile(values, 0.25)?, quantile(values, 0.75)?])
}

/// The smallest of the `sorted` latencies that at least the `share` of them do not exceed (nearest rank).
pub(crate) fn percentile(sorted: &[f32], share: f64) -> Option<f64> {
    let rank = floor((share * sorted.len() as f64).ceil());
    sorted.get(rank.max(1) - 1).map(|value| f64::from(*value))
}

/// Sorts latencies, without those that are no number: their samples never came.
pub(crate) fn sorted_latencies(values: impl IntoIterator<Item = f32>) -> Vec<f32> {
    let mut values: Vec<f32> = values.into_iter().filter(|value| !value.is_nan()).collect();
    values.sort_unstable_by(f32::total_cmp);
    values
}

/// Arithmetic mean of latencies; `None` without values.
pub(crate) fn mean_latency(values: &[f32]) -> Option<f64> {
    mean_of(values.iter().map(|value| f64::from(*value)))
}

/// Slope of the least-squares line through (second, value), per second.
pub(crate) fn slope(values: &[(f64, f64)]) -> Option<f64> {
    let [mean_time, mean_value] = [
        mean_of(values.iter().map(|at| at.0))?,
        mean_of(values.iter().map(|at| at.1))?,
    ];
    let sum = |of: &dyn Fn(&(f64, f64)) -> f64| values.iter().map(of).sum::<f64>();
    let over = sum(&|(time, value)| (time - mean_time) * (value - mean_value));
    let under = sum(&|(time, _)| (time - mean_time).powi(2));
    (under > 0.0).then(|| over / under)
}

/// 95 % confidence interval of the median by order statistics: exact, whatever the distribution, and
/// therefore `None` below six values, where not even smallest and largest reach 95 %.
pub(crate) fn median_interval(values: &[f64]) -> Option<Interval> {
    let sorted = sorted(values);
    let n = sorted.len();
    // The k-th smallest and k-th largest miss the median with the chance 2 * P(X < k), X binomial.
    // In logarithms, because 2^-n leaves the range of numbers.
    let mut ln_chance = -(n as f64) * std::f64::consts::LN_2;
    let (mut missed, mut rank) = (0.0, 0);
    while rank < n {
        missed += 2.0 * ln_chance.exp();
        if missed > 0.05 {
            break;
        }
        ln_chance += ((n - rank) as f64 / (rank + 1) as f64).ln();
        rank += 1;
    }
    let index = rank.checked_sub(1)?;
    Some([sorted[index], sorted[n - 1 - index]])
}

/// 95 % confidence interval of any statistic by the percentile bootstrap: `statistic` gets which rounds
/// to take, some more than once. Always the same for the same data: the seed is fixed. `None` below
/// three rounds, where resampling shows nothing.
fn bootstrap(rounds: usize, statistic: impl Fn(&[usize]) -> Option<f64>) -> Option<Interval> {
    if rounds < 3 {
        return None;
    }
    let mut random = SplitMix(SEED);
    let mut chosen = vec![0; rounds];
    let mut found = Vec::with_capacity(RESAMPLES);
    for _ in 0..RESAMPLES {
        for place in &mut chosen {
            *place = random.below(rounds);
        }
        found.extend(statistic(&chosen));
    }
    Some([quantile(&found, 0.025)?, quantile(&found, 0.975)?])
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

/// The whole part of a place in a list.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a place in a list is neither negative nor beyond usize"
)]
fn floor(place: f64) -> usize {
    place.floor() as usize
}

/// Steele, Lea and Flood's SplitMix64: enough for resampling, and the same everywhere.
#[derive(Debug)]
pub(crate) struct SplitMix(u64);

/// For a wire, which only Linux has.
#[cfg(target_os = "linux")]
impl SplitMix {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// From 0 to 1, without 1.
    pub(crate) fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        let scaled = u128::from(self.next()) * bound as u128;
        usize::try_from(scaled >> 64).unwrap_or(0)
    }
}

const SEED: u64 = 0x4c53_4c00;
const RESAMPLES: usize = 2000;

#[cfg(test)]
mod tests;
