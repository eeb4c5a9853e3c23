//! Scales of values with round ticks, as plotters draws them.

use std::ops::Range;

use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};

use super::format::figure;
use crate::stats::Interval;

/// A scale of values, linear or logarithmic.
#[derive(Debug, Clone)]
pub(super) struct Axis {
    pub(super) title: String,
    pub(super) ends: Interval,
    ticks: Vec<f64>,
    is_logarithmic: bool,
    label: fn(f64) -> String,
}

impl Axis {
    /// Makes an axis from 0 to a round number, or a logarithmic one where the values are too far
    /// apart.
    pub(super) fn of(title: &str, values: impl Iterator<Item = f64>) -> Self {
        match range(values) {
            ends @ [low, high] if low > 0.0 && high / low > 20.0 => Self::logarithmic(title, ends),
            [low, high] => Self::linear(title, [low.min(0.0), high]),
        }
    }

    /// Makes an axis with ticks at these values.
    pub(super) fn at(title: &str, values: &[f64]) -> Self {
        let [low, high] = range(values.iter().copied());
        let is_logarithmic = low > 0.0 && high / low >= 4.0;
        let margin = if is_logarithmic {
            (high / low).powf(0.04)
        } else {
            0.04 * (high - low)
        };
        Self {
            ends: if is_logarithmic {
                [low / margin, high * margin]
            } else {
                [low - margin, high + margin]
            },
            ticks: values.to_vec(),
            is_logarithmic,
            ..Self::linear(title, [0.0, 1.0])
        }
    }

    /// Shares from 0 to 1.
    pub(super) fn shares() -> Self {
        Self {
            ticks: vec![0.0, 0.25, 0.5, 0.75, 0.95, 1.0],
            label: |share| format!("{:.0} %", share * 100.0),
            ..Self::linear("samples", [0.0, 1.0])
        }
    }

    pub(super) fn linear(title: &str, [low, high]: Interval) -> Self {
        let high = if high > low {
            high
        } else {
            low + low.abs().max(1.0)
        };
        let rough = (high - low) / 5.0;
        let power = 10_f64.powf(rough.log10().floor());
        let mut steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * power).into_iter();
        let step = steps.find(|step| *step >= rough * 0.999).unwrap_or(rough);
        let [first, last] = [(low / step + 1e-9).floor(), (high / step - 1e-9).ceil()];
        let ticks = (0..=12).map(|index| first + f64::from(index));
        Self {
            title: title.into(),
            ends: [first * step, last * step],
            ticks: ticks
                .take_while(|tick| *tick <= last)
                .map(|tick| tick * step)
                .collect(),
            is_logarithmic: false,
            label: figure,
        }
    }

    /// Makes an axis between 1, 2 or 5 times powers of ten; values must be above 0.
    pub(super) fn logarithmic(title: &str, [low, high]: Interval) -> Self {
        let low = low.max(1e-300);
        let high = if high > low { high } else { low * 10.0 };
        let (mut decade, mut ticks) = (low.log10().floor(), Vec::new());
        while ticks.last().is_none_or(|tick| *tick < high / 1.0001) {
            ticks.extend([1.0, 2.0, 5.0, 10.0].map(|factor| factor * 10_f64.powf(decade)));
            decade += 1.0;
        }
        ticks.dedup_by(|next, tick| *next / *tick < 1.5);
        let start = ticks
            .iter()
            .rposition(|tick| *tick <= low * 1.0001)
            .unwrap_or(0);
        let end = ticks
            .iter()
            .position(|tick| *tick >= high / 1.0001)
            .unwrap_or(start);
        let ends = [ticks[start], ticks[end]];
        // Only some of the decades where they are many.
        let every = if end - start < 7 {
            1
        } else {
            3 * (end - start).div_ceil(21)
        };
        let shown = (start..=end).filter(|place| place % every == 0);
        Self {
            ticks: shown.map(|place| ticks[place]).collect(),
            ends,
            is_logarithmic: true,
            ..Self::linear(&format!("{title}, log scale"), [0.0, 1.0])
        }
    }

    /// About a neutral value: ratios about 1, differences about 0. An interval that says nothing must not
    /// squeeze the others: it goes on beyond the edge.
    pub(super) fn about(title: &str, neutral: f64, values: &[f64], intervals: &[Interval]) -> Self {
        let [low, high] = range(values.iter().copied().chain([neutral]));
        let ends = intervals.iter().copied().flatten();
        let [outer_low, outer_high] = range(ends.chain([low, high]));
        let margin = (high - low).max(1e-9);
        let [low, high] = if neutral > 0.0 {
            [low / 2.0, high * 2.0]
        } else {
            [low - margin, high + margin]
        };
        let ends @ [low, high] = [outer_low.max(low), outer_high.min(high)];
        if neutral > 0.0 && low > 0.0 && high / low > 3.0 {
            return Self::logarithmic(title, ends);
        }
        Self::linear(title, ends)
    }

    /// The axis on so many pixels, without ticks whose labels would overlap.
    pub(super) fn on(&self, pixels: i32, width: fn(&str) -> i32) -> Self {
        let mut free = i32::MIN;
        let fits = |tick: &f64| {
            let at = self.map(tick, (0, pixels));
            let half = width(&(self.label)(*tick)) / 2;
            let fits = at - half >= free;
            free = if fits { at + half + 4 } else { free };
            fits
        };
        let ticks = self.ticks.iter().copied().filter(fits).collect();
        Self {
            ticks,
            ..self.clone()
        }
    }
}

impl Ranged for Axis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    /// Values beyond the ends stand at the ends.
    #[expect(clippy::cast_possible_truncation, reason = "between two pixels")]
    fn map(&self, value: &f64, (from, to): (i32, i32)) -> i32 {
        let [low, high] = self.ends;
        let share = if self.is_logarithmic {
            (value.max(1e-300) / low).ln() / (high / low).ln()
        } else {
            (value - low) / (high - low)
        };
        from + (share.clamp(0.0, 1.0) * f64::from(to - from)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        self.ticks.clone()
    }

    fn range(&self) -> Range<f64> {
        self.ends[0]..self.ends[1]
    }
}

impl ValueFormatter<f64> for Axis {
    fn format_ext(&self, value: &f64) -> String {
        (self.label)(*value)
    }
}

/// The ends of all finite values.
pub(super) fn range(values: impl Iterator<Item = f64>) -> Interval {
    let values = values.filter(|value| value.is_finite());
    let ends = values.map(|value| [value, value]);
    let ends = ends.reduce(|[low, high], [value, _]| [low.min(value), high.max(value)]);
    ends.unwrap_or([0.0, 1.0])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round() {
        let check = |axis: &Axis, expected: &[f64]| {
            assert_eq!(axis.ticks.len(), expected.len(), "{axis:?}");
            for (tick, expected) in axis.ticks.iter().zip(expected) {
                assert!(
                    (tick - expected).abs() <= 1e-9 * expected.abs().max(1e-3),
                    "{axis:?}"
                );
            }
        };
        check(
            &Axis::linear("", [0.0, 87.0]),
            &[0.0, 20.0, 40.0, 60.0, 80.0, 100.0],
        );
        check(
            &Axis::linear("", [-0.3, 0.62]),
            &[-0.4, -0.2, 0.0, 0.2, 0.4, 0.6, 0.8],
        );
        check(
            &Axis::linear("", [5.0, 5.0]),
            &[5.0, 6.0, 7.0, 8.0, 9.0, 10.0],
        );
        check(
            &Axis::logarithmic("", [3.0, 40.0]),
            &[2.0, 5.0, 10.0, 20.0, 50.0],
        );
        check(
            &Axis::logarithmic("", [0.9, 9.0e3]),
            &[1.0, 10.0, 100.0, 1e3, 1e4],
        );
        assert!(Axis::logarithmic("", [1e-300, 1e300]).ticks.len() <= 8);
        assert!(Axis::linear("", [0.0, 0.0]).ticks.len() > 1);
        assert!(Axis::at("", &[8.0, 64.0, 256.0]).is_logarithmic);
    }

    #[test]
    fn values_beyond_the_ends_stand_there() {
        let axis = Axis::logarithmic("", [1.0, 100.0]);
        for (value, pixel) in [(10.0, 50), (100.0, 0), (1e9, 0), (1.0, 100), (-1.0, 100)] {
            assert_eq!(axis.map(&value, (100, 0)), pixel, "{value}");
        }
    }
}
