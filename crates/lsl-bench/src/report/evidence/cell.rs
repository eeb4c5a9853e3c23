//! What a page shows of one of our cells.

use serde_json::Value;

use super::super::format;
use super::published::{Pick, Show};
use crate::result::{Cell, Results};
use crate::stats::{Interval, Paired, cohens_d, deviation, mean, median, median_interval};

/// A value of ours.
#[derive(Debug)]
pub(super) struct Shown {
    pub(super) value: f64,
    pub(super) text: String,
}

/// Returns the values of all cells that a pick means, in their order.
pub(super) fn find(results: &Results, pick: &Pick) -> Vec<Shown> {
    let is_meant = |cell: &&Cell| {
        let mut wanted = pick.cell.iter();
        wanted.all(|(name, value)| match (cell.parameters.get(name), value) {
            (Some(found), Value::Array(any)) => any.contains(found),
            (found, value) => found == Some(value),
        })
    };
    let cells = results.cells.iter().filter(is_meant);
    cells
        .filter_map(|cell| shown(results, cell, pick))
        .collect()
}

fn shown(results: &Results, cell: &Cell, pick: &Pick) -> Option<Shown> {
    let place = |name: &Option<String>| {
        let name = name.as_ref()?;
        results.subjects.iter().position(|it| it.name == *name)
    };
    let subject = place(&pick.subject)?;
    let show = pick.show.unwrap_or(Show::Median);
    if show == Show::Delivered {
        let all = || cell.measurements(subject);
        let received = all().map(|it| it.received).sum();
        let expected: u64 = all().map(|it| it.expected).sum();
        return (expected > 0).then(|| Shown {
            value: 100.0 * received as f64 / expected as f64,
            text: format::delivered(received, expected),
        });
    }
    let metric = pick.metric.as_deref()?;
    let times = pick.times.unwrap_or(1.0);
    let scaled = |values: Vec<f64>| values.into_iter().map(|it| it * times).collect::<Vec<_>>();
    let values = || scaled(cell.values(subject, metric));
    let pairs = || {
        let pairs = cell.pairs(metric, place(&pick.to)?, subject).into_iter();
        let pairs: Vec<_> = pairs.map(|(to, it)| (to * times, it * times)).collect();
        (!pairs.is_empty()).then_some(pairs)
    };
    let tested = || {
        let pairs = pairs()?;
        let to = mean(&pairs.iter().map(|(to, _)| *to).collect::<Vec<_>>())?;
        Some((Paired::of(&pairs)?, to))
    };
    let figure = |value: f64| Shown {
        value,
        text: format::figure(value),
    };
    Some(match show {
        Show::Median => with_interval(&values(), format::figure, format::figures)?,
        Show::Mean => {
            let (values, mean) = (values(), mean(&values())?);
            let scatter = deviation(&values);
            let scatter = scatter.map(|it| format!(" ± {}", format::figure(it)));
            let text = format::figure(mean) + &scatter.unwrap_or_default();
            Shown { value: mean, text }
        }
        Show::Largest => figure(values().into_iter().reduce(f64::max)?),
        Show::Inverse => {
            let values = cell.values(subject, metric).into_iter();
            let values: Vec<f64> = values.map(|it| times / it).collect();
            with_interval(&values, format::figure, format::figures)?
        }
        Show::Ratio => {
            let ratios: Vec<f64> = pairs()?.into_iter().map(|(to, it)| it / to).collect();
            with_interval(&ratios, format::ratio, format::ratios)?
        }
        Show::Added => figure(tested()?.0.mean),
        Show::AddedPercent => {
            let (test, to) = tested()?;
            let value = 100.0 * test.mean / to;
            let text = format!("{} %", format::signed(value));
            Shown { value, text }
        }
        Show::Interval => {
            let test = tested()?.0;
            Shown {
                value: test.mean,
                text: format::figures(test.interval),
            }
        }
        Show::T => figure(tested()?.0.t),
        Show::P => chance(tested()?.0.p),
        Show::D => figure(cohens_d(&pairs()?)?),
        Show::DZ => figure(tested()?.0.d_z),
        Show::Tost1 | Show::Tost5 => {
            let (test, to) = tested()?;
            let share = if show == Show::Tost1 { 0.01 } else { 0.05 };
            chance(test.equivalence(-share * to, share * to))
        }
        Show::Excess => {
            let pairs = pairs()?;
            let added = median(&pairs.iter().map(|(to, it)| it - to).collect::<Vec<_>>())?;
            let to = median(&pairs.iter().map(|(to, _)| *to).collect::<Vec<_>>())?;
            let value = added / (0.05 * to).max(MOST_ADDED_US);
            let (added, share) = (format::signed(added), format::signed(100.0 * added / to));
            let text = format!("{added} µs, {share} %");
            Shown { value, text }
        }
        Show::Yes => {
            let least = values().into_iter().reduce(f64::min)?;
            let text = if least >= 1.0 { "yes" } else { "NO" };
            Shown {
                value: least,
                text: text.into(),
            }
        }
        Show::Delivered => return None,
    })
}

fn chance(p: f64) -> Shown {
    Shown {
        value: p,
        text: format::chance(p),
    }
}

/// The median, and its interval where there are rounds enough.
fn with_interval(
    values: &[f64],
    figure: fn(f64) -> String,
    figures: fn(Interval) -> String,
) -> Option<Shown> {
    let value = median(values)?;
    let interval = median_interval(values).map(|it| format!(" {}", figures(it)));
    Some(Shown {
        value,
        text: figure(value) + &interval.unwrap_or_default(),
    })
}

/// What encryption may add, where that is more than 5 %.
const MOST_ADDED_US: f64 = 2.0;
