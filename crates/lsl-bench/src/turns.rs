//! Whose turn it is in an interleaved comparison, and the middle of what came out.

use super::result::{Cell, Round};
use super::tally::median;

/// The subjects in the order of round `round`: everybody begins as often as the others, so that what
/// a round does to those that come late happens to all of them.
pub(super) fn order(round: usize, subjects: usize) -> impl Iterator<Item = usize> {
    (0..subjects).map(move |place| (place + round) % subjects)
}

/// What one subject has of a metric, in all rounds of a cell that have it.
pub(super) fn column(cell: &Cell, subject: usize, metric: &str) -> Vec<f64> {
    let value = |round: &Round| {
        let measurement = round.measurements.get(subject)?;
        measurement.values.get(metric).copied()
    };
    cell.rounds.iter().filter_map(value).collect()
}

/// The median of that for people, `-` of nothing.
pub(super) fn shown(cell: &Cell, subject: usize, metric: &str, digits: usize) -> String {
    match median(&column(cell, subject, metric)) {
        Some(value) => format!("{value:.digits$}"),
        None => "-".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::result::Measurement;
    use super::*;

    #[test]
    fn everybody_has_every_place_once() {
        for subjects in 1..5 {
            let rounds: Vec<Vec<usize>> = (0..subjects)
                .map(|round| order(round, subjects).collect())
                .collect();
            for place in 0..subjects {
                let mut there: Vec<usize> = rounds.iter().map(|round| round[place]).collect();
                there.sort_unstable();
                assert!(there.into_iter().eq(0..subjects));
            }
        }
        assert_eq!(order(3, 0).count(), 0);
    }

    #[test]
    fn the_middle_is_shown_or_that_there_is_none() {
        let measured = |value: f64| Measurement {
            values: [("open_ms".to_owned(), value)].into(),
            ..Measurement::default()
        };
        let round = |value| Round {
            measurements: vec![measured(value), Measurement::default()],
        };
        let cell = Cell {
            parameters: std::collections::BTreeMap::new(),
            rounds: vec![round(1.0), round(9.0), round(2.0)],
        };
        assert_eq!(shown(&cell, 0, "open_ms", 1), "2.0");
        assert_eq!(shown(&cell, 1, "open_ms", 1), "-");
        assert_eq!(shown(&cell, 2, "open_ms", 1), "-");
    }
}
