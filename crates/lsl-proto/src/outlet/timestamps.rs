//! Timestamps of the samples of one push. Spec: lsl-protocol §9.1.

use crate::{DEDUCED_TIMESTAMP, IRREGULAR_RATE};

/// Timestamps of a pushed chunk, in seconds of `local_clock` unless the
/// application has its own clock. Spec: lsl-protocol §9.1.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Stamps<'a> {
    /// The last sample was taken now.
    #[default]
    Now,
    /// The last sample was taken at this time; the others 1/rate apart before it (all at the same
    /// time if the rate is irregular). 0.0 means now.
    Last(f64),
    /// One stamp for each sample; 0.0 means now, [`DEDUCED_TIMESTAMP`](crate::DEDUCED_TIMESTAMP)
    /// lets the receiver compute it.
    Each(&'a [f64]),
}

/// Gives the samples of one push their timestamps, the same in every wire variant.
#[derive(Debug, Clone, Copy)]
pub enum Timestamps<'a> {
    /// The first sample's stamp; the rest are deduced by the receiver.
    First(f64),
    /// One timestamp for each sample.
    Each(&'a [f64]),
}

impl<'a> Timestamps<'a> {
    /// Makes the timestamps of a push. `forced` is `tuning.ForceDefaultTimestamps`, `now` the time of the push. Each sample that is
    /// stamped for itself gets a time of `clock` of its own, as in liblsl; these are kept in `room`.
    pub fn new(
        stamps: Stamps<'a>,
        samples: usize,
        nominal_srate: f64,
        forced: bool,
        now: f64,
        room: &'a mut Vec<f64>,
        mut clock: impl FnMut() -> f64,
    ) -> Self {
        room.clear();
        let last = match stamps {
            _ if forced => {
                room.extend((0..samples).map(|_| clock()));
                return Self::Each(room);
            }
            Stamps::Each(stamps) if stamps.contains(&0.0) => {
                let given = stamps.iter();
                room.extend(given.map(|&stamp| if stamp == 0.0 { clock() } else { stamp }));
                return Self::Each(room);
            }
            Stamps::Each(stamps) => return Self::Each(stamps),
            Stamps::Last(stamp) if stamp != 0.0 => stamp,
            Stamps::Last(_) | Stamps::Now => now,
        };
        if nominal_srate == IRREGULAR_RATE {
            Self::First(last)
        } else {
            #[expect(
                clippy::cast_precision_loss,
                reason = "a chunk has far less than 2^52 samples"
            )]
            let earlier = (samples - 1) as f64;
            Self::First(last - earlier / nominal_srate)
        }
    }

    /// Returns the timestamp of a sample of the push.
    pub fn stamp(&self, sample: usize) -> f64 {
        match *self {
            Self::First(stamp) if sample == 0 => stamp,
            Self::First(_) => DEDUCED_TIMESTAMP,
            Self::Each(stamps) => stamps[sample],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_stamped_backwards_from_the_last_sample() {
        let stamps = |stamps, samples, rate| -> Vec<f64> {
            let (mut room, mut time) = (Vec::new(), 50.0);
            let clock = || {
                time += 1.0;
                time
            };
            let timestamps = Timestamps::new(stamps, samples, rate, false, 50.0, &mut room, clock);
            (0..samples).map(|n| timestamps.stamp(n)).collect()
        };
        assert_eq!(stamps(Stamps::Now, 1, 100.0), [50.0]);
        assert_eq!(stamps(Stamps::Last(0.0), 1, 100.0), [50.0]);
        assert_eq!(stamps(Stamps::Last(-1.0), 1, 100.0), [-1.0]);
        assert_eq!(
            stamps(Stamps::Last(2000.0), 3, 100.0),
            [1999.98, -1.0, -1.0]
        );
        assert_eq!(stamps(Stamps::Last(-1.0), 2, 10.0), [-1.1, -1.0]);
        assert_eq!(stamps(Stamps::Last(7.0), 2, 0.0), [7.0, -1.0]);
        assert_eq!(
            stamps(Stamps::Each(&[1.0, 0.0, -1.0, 0.0]), 4, 10.0),
            [1.0, 51.0, -1.0, 52.0]
        );
    }
}
