//! From the clock of a stream to that of the recorder. A file holds raw timestamps and measured
//! offsets; readers lay a straight line through the offsets, as clocks drift evenly, and begin a new
//! one where the clock was set or its machine started anew. Spec: recorder §1, tag 4.

/// Offsets further apart than this are not of one clock that drifts.
const STEP_SECS: f64 = 1.0;

/// Nor are those that would need a clock this wrong, in seconds a second.
const LARGEST_DRIFT: f64 = 1e-3;

/// Deviations beyond this count less and less: a packet that was late says little about the clock.
const USUAL_DEVIATION_SECS: f64 = 1e-4;

const ROUNDS: usize = 30;

/// What to add to the timestamps of one stream.
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
    pieces: Vec<Piece>,
}

/// One line, `base + slope * (time - origin)`, made from the measurements of `from..=to`.
#[derive(Debug, Clone, PartialEq)]
struct Piece {
    from: f64,
    to: f64,
    origin: f64,
    base: f64,
    slope: f64,
}

impl Correction {
    /// Fits the measured offsets of a stream, (when, value) in the order of the file. Those that are
    /// no numbers are left out; without any, timestamps stay as they are.
    pub fn fit(offsets: &[(f64, f64)]) -> Self {
        let offsets: Vec<(f64, f64)> = offsets
            .iter()
            .copied()
            .filter(|(time, value)| time.is_finite() && value.is_finite())
            .collect();
        let mut pieces = Vec::new();
        let mut piece: Vec<(f64, f64)> = Vec::new();
        for (index, &next) in offsets.iter().enumerate() {
            if let Some(&last) = piece.last()
                && !is_one_clock(last, next)
            {
                // One measurement that nothing agrees with is a mistake, not a new clock.
                let is_alone = offsets
                    .get(index + 1)
                    .is_some_and(|&after| is_one_clock(last, after));
                if is_alone {
                    continue;
                }
                pieces.extend(Piece::fit(&piece));
                piece.clear();
            }
            piece.push(next);
        }
        pieces.extend(Piece::fit(&piece));
        Self { pieces }
    }

    /// The timestamp on the recorder's clock.
    pub fn correct(&self, timestamp: f64) -> f64 {
        timestamp + self.offset_at(timestamp)
    }

    /// What is added to this timestamp.
    pub fn offset_at(&self, timestamp: f64) -> f64 {
        let distance = |piece: &Piece| (piece.from - timestamp).max(timestamp - piece.to).max(0.0);
        let nearest = self
            .pieces
            .iter()
            .min_by(|a, b| distance(a).total_cmp(&distance(b)));
        nearest.map_or(0.0, |piece| {
            piece.base + piece.slope * (timestamp - piece.origin)
        })
    }

    /// Whether nothing was measured.
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// How often the clock was set or began anew.
    pub fn steps(&self) -> usize {
        self.pieces.len().saturating_sub(1)
    }
}

fn is_one_clock((time, value): (f64, f64), (next_time, next_value): (f64, f64)) -> bool {
    let passed = next_time - time;
    passed >= -STEP_SECS
        && (next_value - value).abs() <= STEP_SECS + LARGEST_DRIFT * passed.max(0.0)
}

impl Piece {
    fn fit(points: &[(f64, f64)]) -> Option<Self> {
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

/// Weighted least squares: value at `origin`, slope.
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
