//! Whose turn it is in an interleaved comparison, and the middle of what came out.

/// The subjects in the order of round `round`: everybody begins as often as the others, so that what
/// a round does to those that come late happens to all of them.
pub(super) fn order(round: usize, subjects: usize) -> impl Iterator<Item = usize> {
    (0..subjects).map(move |place| (place + round) % subjects)
}

/// The median, 0 of nothing.
pub(super) fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match (values.get(middle), values.len() % 2) {
        (None, _) => 0.0,
        (Some(value), 1) => *value,
        (Some(value), _) => f64::midpoint(values[middle - 1], *value),
    }
}

#[cfg(test)]
mod tests {
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
    fn medians() {
        assert_eq!(median([]), 0.0);
        assert_eq!(median([3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median([4.0, 1.0, 2.0, 3.0]), 2.5);
    }
}
