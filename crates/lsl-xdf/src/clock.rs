//! Conversion from the clock of a stream to that of the recorder. A file holds raw timestamps and measured
//! offsets. Readers lay a straight line through the offsets, as clocks drift evenly. They begin a new one
//! where the clock was set or its machine restarted. Spec: recorder §1, tag 4.

/// Largest step between offsets of one clock that drifts.
const STEP_SECS: f64 = 1.0;

/// Largest drift of one clock, in seconds a second.
const LARGEST_DRIFT: f64 = 1e-3;

/// Additional distance of a piece with one measurement, which may be a mistake. It counts for samples that
/// are this much further from every other piece.
const LONE_SECS: f64 = 30.0;

/// Deviations beyond this count less and less: a late packet says little about the clock.
const USUAL_DEVIATION_SECS: f64 = 1e-4;

const ROUNDS: usize = 30;

/// Correction that is added to the timestamps of one stream.
///
/// ```
/// use lsl_xdf::Correction;
///
/// let correction = Correction::fit(&[(100.0, -3.0), (105.0, -3.0)]);
/// assert_eq!(correction.correct(102.0), 99.0);
/// assert_eq!(Correction::fit(&[]).correct(102.0), 102.0);
/// ```
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Correction {
    pieces: Vec<LinearPiece>,
}

/// Line `base + slope * (time - origin)` through the measurements of `from..=to`.
#[derive(Debug, Clone, PartialEq)]
struct LinearPiece {
    /// Index of its first measurement among all.
    first: usize,
    /// Whether it is a single measurement among others.
    is_lone: bool,
    from: f64,
    to: f64,
    origin: f64,
    base: f64,
    slope: f64,
}

impl Correction {
    /// Fits the measured offsets of a stream, (time, value) in the order of the file. Those that are not
    /// finite are left out; without any, timestamps stay as they are.
    pub fn fit(offsets: &[(f64, f64)]) -> Self {
        let offsets: Vec<(usize, (f64, f64))> = offsets
            .iter()
            .copied()
            .enumerate()
            .filter(|(_, (time, value))| time.is_finite() && value.is_finite())
            .collect();
        let mut pieces = Vec::new();
        let mut piece: Vec<(f64, f64)> = Vec::new();
        let mut first = 0;
        for (index, &(number, next)) in offsets.iter().enumerate() {
            if let Some(&last) = piece.last()
                && !is_one_clock(last, next)
            {
                // One measurement apart from its neighbours is a mistake, not a new clock.
                let is_alone = offsets
                    .get(index + 1)
                    .is_some_and(|&(_, after)| is_one_clock(last, after));
                if is_alone {
                    continue;
                }
                pieces.extend(LinearPiece::fit(&piece, first));
                piece.clear();
            }
            if piece.is_empty() {
                first = number;
            }
            piece.push(next);
        }
        pieces.extend(LinearPiece::fit(&piece, first));
        // If all are single ones, they are the best there is.
        if pieces.iter().all(|piece| piece.is_lone) {
            for piece in &mut pieces {
                piece.is_lone = false;
            }
        }
        Self { pieces }
    }

    /// Converts a timestamp to the recorder's clock. Where a restarted clock came to the same times again,
    /// only the order of the file tells them apart: see [`cursor`](Self::cursor).
    pub fn correct(&self, timestamp: f64) -> f64 {
        timestamp + self.offset_at(timestamp)
    }

    /// Returns the offset that is added to this timestamp.
    pub fn offset_at(&self, timestamp: f64) -> f64 {
        let nearest = self.nearest(timestamp);
        let piece = nearest.and_then(|index| self.pieces.get(index));
        piece.map_or(0.0, |piece| piece.at(timestamp))
    }

    /// Returns a [`Cursor`], which follows a stream through its file.
    pub fn cursor(&self) -> Cursor {
        Cursor {
            pieces: self.pieces.clone(),
            current: None,
            last: f64::NAN,
            offsets: 0,
        }
    }

    fn nearest(&self, timestamp: f64) -> Option<usize> {
        nearest(&self.pieces, timestamp)
    }

    /// Returns whether there are no measurements.
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Returns the number of times the clock was set or restarted.
    pub fn steps(&self) -> usize {
        let sure = self.pieces.iter().filter(|piece| !piece.is_lone);
        sure.count().saturating_sub(1)
    }
}

fn nearest(pieces: &[LinearPiece], timestamp: f64) -> Option<usize> {
    let distances = pieces.iter().map(|piece| piece.distance(timestamp));
    let nearest = distances
        .enumerate()
        .min_by(|(_, a), (_, b)| a.total_cmp(b));
    nearest.map(|(index, _)| index)
}

/// Corrects the timestamps of one stream in the order of the file. A restarted clock may repeat times that
/// it had before, so the place of a timestamp decides about its meaning.
///
/// ```
/// use lsl_xdf::Correction;
///
/// // Restarted after 60 s, and on for longer than that.
/// let offsets = [(0.0, 1000.0), (60.0, 1000.0), (5.0, 1080.0), (90.0, 1080.0)];
/// let mut cursor = Correction::fit(&offsets).cursor();
/// assert_eq!(cursor.correct(30.0), 1030.0);
/// assert_eq!(cursor.correct(59.0), 1059.0);
/// assert_eq!(cursor.correct(6.0), 1086.0);
/// assert_eq!(cursor.correct(30.0), 1110.0);
/// ```
#[derive(Debug, Clone)]
pub struct Cursor {
    pieces: Vec<LinearPiece>,
    /// Index of the piece that the last timestamp belonged to.
    current: Option<usize>,
    last: f64,
    /// Number of measurements passed so far.
    offsets: usize,
}

impl Cursor {
    /// Notes a measured offset at this place of the file. The first one of a new clock switches to that
    /// clock.
    pub fn pass_offset(&mut self) {
        let number = self.offsets;
        self.offsets += 1;
        // Measurements that stand before all samples say nothing about the order.
        let Some(current) = self.current else {
            return;
        };
        let begins = |piece: &LinearPiece| piece.first == number && !piece.is_lone;
        let later = self.pieces.iter().skip(current + 1).position(begins);
        if let Some(steps) = later {
            self.current = Some(current + 1 + steps);
            self.last = f64::NAN;
        }
    }

    /// Converts the next timestamp to the recorder's clock.
    pub fn correct(&mut self, timestamp: f64) -> f64 {
        if self.pieces.is_empty() {
            return timestamp;
        }
        let (pieces, last) = (&self.pieces, self.last);
        let distance = |index: usize| {
            let piece = pieces.get(index);
            piece.map_or(f64::INFINITY, |piece| piece.distance(timestamp))
        };
        let index = match self.current {
            None => nearest(pieces, timestamp).unwrap_or(0),
            Some(current) => {
                // A single measurement may be a mistake: the piece behind it is a neighbour, too.
                let is_lone = |index: usize| pieces.get(index).is_some_and(|piece| piece.is_lone);
                let here = distance(current);
                let next = match current + 1 {
                    lone if is_lone(lone) && distance(lone + 1) <= distance(lone) => lone + 1,
                    next => next,
                };
                let before = match current.checked_sub(1) {
                    Some(lone) if is_lone(lone) => match lone.checked_sub(1) {
                        Some(before) if distance(before) <= distance(lone) => Some(before),
                        _ => Some(lone),
                    },
                    before => before,
                };
                let went_back = timestamp < last - STEP_SECS;
                let ahead = distance(next);
                if ahead < here || (went_back && ahead.is_finite() && ahead <= here) {
                    next
                } else {
                    // A wrong timestamp may have led too far.
                    before
                        .filter(|&before| here > 0.0 && distance(before) < here)
                        .unwrap_or(current)
                }
            }
        };
        if timestamp.is_finite() {
            self.current = Some(index);
            self.last = timestamp;
        }
        let piece = self.pieces.get(index);
        timestamp + piece.map_or(0.0, |piece| piece.at(timestamp))
    }
}

fn is_one_clock((time, value): (f64, f64), (next_time, next_value): (f64, f64)) -> bool {
    let passed = next_time - time;
    passed >= -STEP_SECS
        && (next_value - value).abs() <= STEP_SECS + LARGEST_DRIFT * passed.max(0.0)
}

impl LinearPiece {
    /// Returns the distance of a timestamp from the measurements, in seconds.
    fn distance(&self, timestamp: f64) -> f64 {
        let outside = (self.from - timestamp).max(timestamp - self.to).max(0.0);
        outside + if self.is_lone { LONE_SECS } else { 0.0 }
    }

    fn at(&self, timestamp: f64) -> f64 {
        self.base + self.slope * (timestamp - self.origin)
    }

    fn fit(points: &[(f64, f64)], first_number: usize) -> Option<Self> {
        let &(origin, first) = points.first()?;
        let times = points.iter().map(|&(time, _)| time);
        let (from, to) = times.fold((origin, origin), |(from, to), time| {
            (from.min(time), to.max(time))
        });
        let mut line = (median(points).unwrap_or(first), 0.0);
        for _ in 0..ROUNDS {
            let weight = |(time, value): (f64, f64)| {
                let deviation = (value - line.0 - line.1 * (time - origin)).abs();
                USUAL_DEVIATION_SECS / deviation.max(USUAL_DEVIATION_SECS)
            };
            line = weighted_line(points, origin, weight);
        }
        Some(Self {
            first: first_number,
            is_lone: points.len() == 1,
            from,
            to,
            origin,
            base: line.0,
            slope: line.1,
        })
    }
}

fn median(points: &[(f64, f64)]) -> Option<f64> {
    let mut values: Vec<f64> = points.iter().map(|&(_, value)| value).collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

/// Fits a line by weighted least squares. Returns its value at `origin` and its slope.
fn weighted_line(
    points: &[(f64, f64)],
    origin: f64,
    weight: impl Fn((f64, f64)) -> f64,
) -> (f64, f64) {
    let (mut total, mut time_sum, mut value_sum) = (0.0, 0.0, 0.0);
    for &point in points {
        let w = weight(point);
        total += w;
        time_sum += w * (point.0 - origin);
        value_sum += w * point.1;
    }
    let (time_mean, value_mean) = (time_sum / total, value_sum / total);
    let (mut spread, mut common) = (0.0, 0.0);
    for &point in points {
        let time = point.0 - origin - time_mean;
        let w = weight(point);
        spread += w * time * time;
        common += w * time * (point.1 - value_mean);
    }
    // Measurements at one moment say nothing about drift.
    let slope = if spread > 1e-9 { common / spread } else { 0.0 };
    // Two that are close together may give any slope.
    let slope = slope.clamp(-LARGEST_DRIFT, LARGEST_DRIFT);
    (value_mean - slope * time_mean, slope)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(found: f64, expected: f64, within: f64) {
        assert!((found - expected).abs() < within, "{found} {expected}");
    }

    #[test]
    fn a_drifting_clock_is_followed_beyond_its_measurements() {
        let drift = |time: f64| -1000.0 + 50e-6 * time;
        let offsets = (0..100).map(|n| f64::from(n) * 5.0).map(|t| (t, drift(t)));
        let correction = Correction::fit(&offsets.collect::<Vec<_>>());
        for time in [-20.0, 0.0, 123.0, 600.0] {
            near(correction.correct(time), time + drift(time), 1e-9);
        }
        assert_eq!(correction.steps(), 0);
    }

    #[test]
    fn late_packets_hardly_count() {
        let late = |n: i32| if n % 7 == 3 { 0.02 } else { 0.0 };
        let offsets: Vec<_> = (0..200)
            .map(|n| (f64::from(n) * 5.0, 2.0 + late(n)))
            .collect();
        let correction = Correction::fit(&offsets);
        near(correction.offset_at(500.0), 2.0, 2e-4);
    }

    #[test]
    fn a_clock_that_began_anew_has_two_lines() {
        let offsets = [
            (5000.0, 1.0),
            (5005.0, 1.0),
            (3.0, 5010.0),
            (8.0, 5010.0),
            (13.0, 5010.0),
        ];
        let correction = Correction::fit(&offsets);
        assert_eq!(correction.steps(), 1);
        near(correction.correct(5003.0), 5004.0, 1e-9);
        near(correction.correct(10.0), 5020.0, 1e-9);
    }

    #[test]
    fn a_clock_that_comes_to_the_same_times_again_is_told_by_the_order() {
        // 100 s, then started anew at 3 and on for longer.
        let before = (0..=20).map(|n| (f64::from(n) * 5.0, 1000.0));
        let after = (0..=60).map(|n| (3.0 + f64::from(n) * 5.0, 1110.0));
        let correction = Correction::fit(&before.chain(after).collect::<Vec<_>>());
        assert_eq!(correction.steps(), 1);
        let stamps = (0..=100).chain(3..=303).map(f64::from);
        let check = |mut cursor: Cursor, with_offsets: bool| {
            let mut passed = false;
            for (n, stamp) in stamps.clone().enumerate() {
                if with_offsets && n % 5 == 0 {
                    cursor.pass_offset();
                    passed |= n > 104;
                }
                let offset = if n <= 100 { 1000.0 } else { 1110.0 };
                near(cursor.correct(stamp), stamp + offset, 1e-6);
            }
            assert_eq!(passed, with_offsets);
        };
        check(correction.cursor(), false);
        check(correction.cursor(), true);
        // Samples are missing, and only the measurement tells that this is another clock.
        let mut cursor = correction.cursor();
        near(cursor.correct(50.0), 1050.0, 1e-6);
        (0..21).for_each(|_| cursor.pass_offset());
        near(cursor.correct(51.0), 1051.0, 1e-6);
        cursor.pass_offset();
        near(cursor.correct(52.0), 1162.0, 1e-6);
        // One timestamp that is wrong changes nothing for the others; all measurements may come first.
        let mut cursor = correction.cursor();
        (0..82).for_each(|_| cursor.pass_offset());
        near(cursor.correct(1.0), 1001.0, 1e-6);
        cursor.correct(f64::NAN);
        cursor.correct(-1e9);
        near(cursor.correct(2.0), 1002.0, 1e-6);
    }

    #[test]
    fn a_mistake_between_two_clocks_hides_neither() {
        let before = (0..=20).map(|n| (1000.0 + f64::from(n) * 5.0, 50.0));
        let after = (0..=20).map(|n| (3.0 + f64::from(n) * 5.0, 1200.0));
        let mistake = [(-7e5, 0.0)];
        let offsets: Vec<_> = before.chain(mistake).chain(after).collect();
        let correction = Correction::fit(&offsets);
        let mut cursor = correction.cursor();
        for (stamp, offset) in [
            (1001.0, 50.0),
            (1099.0, 50.0),
            (4.0, 1200.0),
            (90.0, 1200.0),
        ] {
            near(cursor.correct(stamp), stamp + offset, 1e-6);
        }
        // The same by the measurements between the samples.
        let mut cursor = correction.cursor();
        near(cursor.correct(1001.0), 1051.0, 1e-6);
        (0..23).for_each(|_| cursor.pass_offset());
        near(cursor.correct(20.0), 1220.0, 1e-6);
    }

    #[test]
    fn one_measurement_at_an_end_is_no_new_clock_unless_samples_say_so() {
        let sound = (1..20).map(|n| (f64::from(n) * 5.0, 1.0));
        for wrong in [(100.0, 7e5), (-7e5, 7e5), (0.0, 7e5)] {
            let last: Vec<_> = sound.clone().chain([wrong]).collect();
            let first: Vec<_> = [wrong].into_iter().chain(sound.clone()).collect();
            for offsets in [last, first] {
                let correction = Correction::fit(&offsets);
                assert_eq!(correction.steps(), 0);
                for stamp in [-2.0, 0.0, 50.0, 99.0, 103.0] {
                    near(correction.offset_at(stamp), 1.0, 1e-6);
                }
            }
        }
        // Started anew shortly before the end: measured once, and there are samples.
        let offsets: Vec<_> = sound.chain([(9000.0, -8800.0)]).collect();
        near(Correction::fit(&offsets).correct(9001.0), 201.0, 1e-6);
    }

    #[test]
    fn measurements_close_together_make_no_steep_line() {
        let correction = Correction::fit(&[(0.0, 0.0), (0.01, 0.5), (0.02, 0.9)]);
        assert!(correction.offset_at(1000.0).abs() < 3.0);
    }

    #[test]
    fn one_mistake_is_no_new_clock() {
        let offsets = [(0.0, 1.0), (5.0, 1.0), (10.0, 7e5), (15.0, 1.0)];
        let correction = Correction::fit(&offsets);
        assert_eq!(correction.steps(), 0);
        near(correction.offset_at(10.0), 1.0, 1e-9);
        let correction = Correction::fit(&[(f64::NAN, 1.0), (0.0, f64::INFINITY)]);
        assert!(correction.is_empty());
        near(correction.correct(3.0), 3.0, 1e-15);
    }
}
