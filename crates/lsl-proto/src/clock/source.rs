//! Clock of the source of a stream, as a relay knows it that answers for the source. Spec: relay §7.

pub use crate::wire::directory::SourceClock;

impl SourceClock {
    /// Returns how well the offset is known at `now`, in seconds as a round trip. `None` if the measurement is too
    /// old: no answer is better than a wrong one.
    pub fn uncertainty(&self, now: f64) -> Option<f64> {
        let age = (now - self.measured_at).max(0.0);
        (age <= MAX_AGE_SECS).then_some(self.uncertainty_secs + MAX_DRIFT * age)
    }

    /// Returns what to add to the time when a probe came and to the time when its answer leaves, in seconds: who
    /// asked measures the source itself then, with a round trip that is longer by the uncertainty. `None` as
    /// [`uncertainty`](Self::uncertainty).
    pub fn shifts(&self, now: f64) -> Option<(f64, f64)> {
        let half = self.uncertainty(now)? / 2.0;
        Some((self.offset_secs + half, self.offset_secs - half))
    }

    /// Returns what a relay knows, which told this of itself, in the clock of another one: `relay` is how far the
    /// first one's clock is ahead. `None` if either is too old.
    pub fn told_by(self, relay: &Self, now: f64) -> Option<Self> {
        let uncertainty = relay.uncertainty(now)?;
        // How long it waited on its way, this tells: the earliest time at which it may have been measured.
        let measured_at = self.measured_at - relay.offset_secs - uncertainty / 2.0;
        let measured_at = measured_at.min(now);
        let told = Self {
            measured_at,
            ..self
        };
        let uncertainty = told.uncertainty(now)? + uncertainty;
        let measured_at = measured_at.min(relay.measured_at);
        // Both were aging until now. From now on only the clocks of source and receiver part.
        let growth = MAX_DRIFT * (now - measured_at);
        Some(Self {
            offset_secs: self.offset_secs + relay.offset_secs,
            uncertainty_secs: (uncertainty - growth).max(0.0),
            measured_at,
        })
    }
}

/// Growth of the uncertainty per second: each of two clocks may be 100 ppm fast or slow, and the uncertainty is twice
/// the error.
const MAX_DRIFT: f64 = 4e-4;

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
        for (age, growth) in [(0.0, 0.0), (30.0, 0.012), (60.0, 0.024)] {
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

    #[test]
    fn what_waited_on_its_way_to_another_relay_is_as_old_as_it_is() {
        let told = SourceClock {
            offset_secs: 5.0,
            uncertainty_secs: 0.001,
            measured_at: 1000.0,
        };
        // The other clock is 900 s ahead, measured 2 s ago.
        let relay = SourceClock {
            offset_secs: 900.0,
            uncertainty_secs: 0.02,
            measured_at: 108.0,
        };
        let known = told.told_by(&relay, 110.0).unwrap();
        let near = |one: f64, other: f64| (one - other).abs() < 2e-5;
        assert!(near(known.offset_secs, 905.0) && (known.measured_at - 99.99).abs() < 0.001);
        let now = 0.001 + 4e-4 * 10.01 + 0.02 + 4e-4 * 2.0;
        assert!(near(known.uncertainty(110.0).unwrap(), now), "{known:?}");
        let later = now + 4e-4 * 10.0;
        assert!(near(known.uncertainty(120.0).unwrap(), later), "{known:?}");
        // Too old, or from the future.
        assert_eq!(told.told_by(&relay, 160.0), None);
        let early = SourceClock {
            measured_at: 2000.0,
            ..told
        };
        assert!(near(
            early.told_by(&relay, 110.0).unwrap().measured_at,
            108.0
        ));
    }
}
