//! Timestamps of the samples of one push. Spec: lsl-protocol §9.1.

use crate::wire::sample110::TimestampDeducer;
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

    /// Takes the timestamps of samples that are passed on as they came, of a stream of this rate as receivers read
    /// it; `room` keeps what is sent. Left to the receiver is what it computes to the last bit. The first is sent:
    /// a reader may begin there. Spec: relay §6.
    pub fn received(stamps: &[f64], nominal_srate: f64, room: &'a mut Vec<f64>) -> Self {
        let mut deducer = TimestampDeducer::new(nominal_srate);
        room.clear();
        for (sample, stamp) in stamps.iter().enumerate() {
            let deduced = deducer.next(None);
            let is_same = deduced.to_bits() == stamp.to_bits() && !stamp.is_nan();
            let is_deduced = sample > 0 && is_same;
            room.push(if is_deduced {
                DEDUCED_TIMESTAMP
            } else {
                *stamp
            });
            deducer.resume(*stamp);
        }
        Self::Each(room)
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

    #[test]
    fn of_received_stamps_only_those_are_left_out_that_are_computed_to_the_last_bit() {
        let sent = |rate: f64, stamps: &[f64]| {
            let mut room = vec![9.0; 3];
            let timestamps = Timestamps::received(stamps, rate, &mut room);
            let mut receiver = TimestampDeducer::new(rate);
            let sent: Vec<_> = (0..stamps.len()).map(|n| timestamps.stamp(n)).collect();
            for (sent, stamp) in sent.iter().zip(stamps) {
                assert_eq!(receiver.next(Some(*sent)).to_bits(), stamp.to_bits());
            }
            sent
        };
        let third = 1.0 / 3.0;
        let next = 7.0 + third;
        assert_eq!(sent(3.0, &[7.0, next, next + third]), [7.0, -1.0, -1.0]);
        let off = f64::from_bits(next.to_bits() + 1);
        assert_eq!(sent(3.0, &[7.0, off, next]), [7.0, off, next]);
        assert_eq!(sent(0.0, &[5.0, 5.0, 6.0]), [5.0, -1.0, 6.0]);
        let zeros: Vec<_> = sent(0.0, &[0.0, -0.0])
            .iter()
            .map(|it| it.to_bits())
            .collect();
        assert_eq!(zeros, [0, 1 << 63]);
        let nan = sent(10.0, &[f64::NAN, f64::NAN]);
        assert!(nan.iter().all(|stamp| stamp.is_nan()));
        assert_eq!(sent(10.0, &[]), [0.0; 0]);
    }
}
