//! Clock of the source of a stream, as a relay knows it that answers for the source. Spec: relay §7.

/// How far the clock of a source is ahead of ours, and how well that is known.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SourceClock {
    /// Add this to a time of our clock to get that of the source, in seconds.
    pub offset_secs: f64,
    /// Sum of the round trips of the measurements on the way, in seconds.
    pub uncertainty_secs: f64,
    /// Time of the measurement, in seconds of `local_clock`.
    pub measured_at: f64,
}

impl SourceClock {
    /// Returns what to add to the time when a probe came and to the time when its answer leaves, in seconds: who
    /// asked measures the source itself then, with a round trip that is longer by the uncertainty. `None` if the
    /// measurement is too old: no answer is better than a wrong one.
    pub fn shifts(&self, now: f64) -> Option<(f64, f64)> {
        let age = (now - self.measured_at).max(0.0);
        let uncertainty = self.uncertainty_secs + MAX_DRIFT * age;
        let half = uncertainty / 2.0;
        (age <= MAX_AGE_SECS).then_some((self.offset_secs + half, self.offset_secs - half))
    }
}

/// Seconds by which two clocks may part in a second.
const MAX_DRIFT: f64 = 2e-4;

/// Age of a measurement that says nothing any more.
const MAX_AGE_SECS: f64 = 60.0;

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever the way there and back takes, the source's offset lies within half of what is measured.
    #[test]
    fn who_asks_measures_the_source_and_how_well_it_is_known() {
        let known = SourceClock {
            offset_secs: -1000.0,
            uncertainty_secs: 0.004,
            measured_at: 50.0,
        };
        for (age, growth) in [(0.0, 0.0), (30.0, 0.006), (60.0, 0.012)] {
            let (first, second) = known.shifts(50.0 + age).unwrap();
            let [t0, t1, t2, t3] = [7.0, 9.0 + first, 9.001 + second, 7.021];
            let round_trip = (t3 - t0) - (t2 - t1);
            let offset = f64::midpoint(t1 - t0, t2 - t3);
            assert!((round_trip - (0.02 + 0.004 + growth)).abs() < 1e-9);
            assert!((offset - (2.0 - 1000.0 - 0.01)).abs() < 1e-9);
        }
        assert_eq!(known.shifts(110.1), None);
        let early = known.shifts(40.0);
        assert_eq!(early, known.shifts(50.0));
    }
}
