//! The order of turns in an interleaved comparison.

/// The subjects in the order of round `round`: each begins as often as the others, so that effects
/// of a late place reach all of them.
pub(super) fn order(round: usize, subjects: usize) -> impl Iterator<Item = usize> {
    (0..subjects).map(move |place| (place + round) % subjects)
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
}
