//! Percentiles of one-way latency over any number of samples in constant memory: a histogram whose
//! buckets grow with the value, so that the relative error stays below 3 %.
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "conversions saturate, and the last bucket takes the rest"
)]

/// Histogram of latencies, in seconds.
#[derive(Debug, Clone)]
pub(crate) struct Latency {
    buckets: Vec<u64>,
    count: u64,
    largest_secs: f64,
}

impl Latency {
    pub(crate) fn new() -> Self {
        Self {
            buckets: vec![0; BUCKETS],
            count: 0,
            largest_secs: 0.0,
        }
    }

    /// Counts one duration. NaN, negative ones and those below a nanosecond count as one nanosecond.
    pub(crate) fn add(&mut self, secs: f64) {
        if let Some(bucket) = self.buckets.get_mut(bucket_of(secs)) {
            *bucket += 1;
            self.count += 1;
            self.largest_secs = self.largest_secs.max(secs);
        }
    }

    /// Returns the duration below which `share` (0 to 1) of all stayed; `None` before the first.
    pub(crate) fn quantile_secs(&self, share: f64) -> Option<f64> {
        if self.count == 0 {
            return None;
        }
        // At least the first; rounded up so that the 99th percentile of ten is the largest.
        let rank = ((self.count as f64 * share).ceil() as u64).clamp(1, self.count);
        let mut seen = 0;
        let found = self.buckets.iter().position(|bucket| {
            seen += bucket;
            seen >= rank
        });
        found.map(|bucket| value_of(bucket).min(self.largest_secs))
    }

    /// Returns the longest duration so far, in seconds.
    pub(crate) fn largest_secs(&self) -> Option<f64> {
        (self.count > 0).then_some(self.largest_secs)
    }
}

fn bucket_of(secs: f64) -> usize {
    let octaves = (secs.max(SMALLEST_SECS) / SMALLEST_SECS).log2();
    // Saturates, and NaN was replaced by `max`.
    ((octaves * PER_OCTAVE) as usize).min(BUCKETS - 1)
}

/// Upper end of a bucket: a latency is never reported better than it was.
fn value_of(bucket: usize) -> f64 {
    SMALLEST_SECS * ((bucket + 1) as f64 / PER_OCTAVE).exp2()
}

const SMALLEST_SECS: f64 = 1e-9;
const PER_OCTAVE: f64 = 24.0;
/// Buckets up to 2^40 ns, a quarter of an hour.
const BUCKETS: usize = 40 * 24;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_close_and_never_flattering() {
        let mut latency = Latency::new();
        assert_eq!(
            (latency.quantile_secs(0.5), latency.largest_secs()),
            (None, None)
        );
        for step in 1..=1000 {
            latency.add(f64::from(step) * 1e-6);
        }
        for (share, exact) in [(0.0, 1e-6), (0.5, 500e-6), (0.95, 950e-6), (0.99, 990e-6)] {
            let found = latency.quantile_secs(share).unwrap();
            assert!(
                found >= exact * 0.999_999 && found <= exact * 1.03,
                "{share}: {found}"
            );
        }
        assert_eq!(latency.quantile_secs(1.0), Some(1000.0 * 1e-6));
    }

    #[test]
    fn odd_values_are_counted_too() {
        let mut latency = Latency::new();
        for secs in [f64::NAN, -1.0, 0.0, 1e9, f64::INFINITY] {
            latency.add(secs);
        }
        assert_eq!(latency.count, 5);
        assert!(latency.quantile_secs(0.5).is_some());
    }
}
