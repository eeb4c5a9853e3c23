//! Timestamps of the samples of one push. Spec: lsl-protocol §9.1.

use crate::outlet::Stamps;
use crate::{DEDUCED_TIMESTAMP, IRREGULAR_RATE};

/// Gives the samples of one push their timestamps, the same in every wire variant.
#[derive(Debug, Clone, Copy)]
pub(super) enum Stamper<'a> {
    /// The first sample's stamp; the rest are deduced by the receiver.
    First(f64),
    Each(&'a [f64]),
}

impl<'a> Stamper<'a> {
    /// `forced` is `tuning.ForceDefaultTimestamps`, `now` the time of the push. Each sample that is
    /// stamped for itself gets a time of `clock` of its own, as in liblsl; these are kept in `room`.
    pub(super) fn new(
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

    pub(super) fn stamp(&self, sample: usize) -> f64 {
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
            let stamper = Stamper::new(stamps, samples, rate, false, 50.0, &mut room, clock);
            (0..samples).map(|n| stamper.stamp(n)).collect()
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
