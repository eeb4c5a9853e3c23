//! Statistics of paired rounds. Everything compares two subjects that took turns in the same rounds,
//! because machines drift: the pair is what can be trusted, not the number. Knows nothing of metrics.

mod student;

/// A range that holds the true value with a stated chance.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Interval {
    pub(crate) low: f64,
    pub(crate) high: f64,
}

/// A comparison of pairs: how far the second of each is above the first.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Paired {
    /// Pairs.
    pub(crate) n: usize,
    /// Mean of the differences.
    pub(crate) mean: f64,
    /// Their standard deviation.
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

    /// The same, of the differences.
    pub(crate) fn of_differences(differences: &[f64]) -> Option<Self> {
        Self::from_summary(
            mean(differences)?,
            deviation(differences)?,
            differences.len(),
        )
    }

    /// The same, from what papers print.
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
            interval: Interval {
                low: mean - half,
                high: mean + half,
            },
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

    /// How many pairs of this noise it takes for a 95 % interval of the mean no wider than plus and
    /// minus `half`. `None` beyond 100 000.
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

fn cohens_d_of_summary(difference: f64, first: f64, second: f64) -> f64 {
    difference / f64::midpoint(first * first, second * second).sqrt()
}

/// Arithmetic mean.
pub(crate) fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
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

/// The median.
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
    Some(Interval {
        low: sorted[index],
        high: sorted[n - 1 - index],
    })
}

/// 95 % confidence interval of any statistic by the percentile bootstrap: `statistic` gets which rounds
/// to take, some more than once. Always the same for the same data: the seed is fixed. `None` below
/// three rounds, where resampling shows nothing.
pub(crate) fn bootstrap(
    rounds: usize,
    statistic: impl Fn(&[usize]) -> Option<f64>,
) -> Option<Interval> {
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
    Some(Interval {
        low: quantile(&found, 0.025)?,
        high: quantile(&found, 0.975)?,
    })
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
struct SplitMix(u64);

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
