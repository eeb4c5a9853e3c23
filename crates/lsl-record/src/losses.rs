//! Where a connection of a stream begins, and what was lost between the samples. Knows no socket.
//! Spec: resume §5.

use std::collections::VecDeque;

use lsl_core::{History, Inlet, InletBuilder, InletStats, LostSamples, Position};
use lsl_xdf::Gap;

/// Beginning of the next connection of a stream.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Beginning {
    /// So much of the past: there was no connection yet.
    First(History),
    /// The sample after the last one taken, which had this timestamp.
    After(Position, f64),
    /// The next sample that is pushed: nobody numbers them.
    Live,
}

impl Beginning {
    /// Returns the beginning of a connection that goes on after what was taken from this inlet.
    pub(crate) fn after(inlet: &Inlet, last_stamp: f64) -> Self {
        // Samples that wait in the inlet count as received, and would be lost.
        let position = inlet.position();
        let position = position.filter(|_| inlet.samples_available() == 0);
        position.map_or(Self::Live, |position| Self::After(position, last_stamp))
    }

    /// Whether samples may come that were pushed before the connection.
    pub(crate) fn has_past(self) -> bool {
        !matches!(self, Self::Live | Self::First(History::Live))
    }

    /// Has an inlet begin here.
    pub(crate) fn ask(self, inlet: InletBuilder) -> InletBuilder {
        match self {
            Self::Live | Self::First(History::Live) => inlet,
            Self::First(history) => inlet.history(history),
            Self::After(position, last_stamp) => inlet.resume_after(position, last_stamp),
        }
    }
}

/// Interruption of a stream by the end of its connection.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Interruption {
    /// Timestamp of the last recorded sample; `None` if there was none.
    pub(crate) after: Option<f64>,
    /// Number of lost samples, as far as connections told since; `None` if nobody knows.
    pub(crate) lost: Option<u64>,
}

impl Interruption {
    /// Adds so many lost samples.
    pub(crate) fn add(&mut self, lost: Option<u64>) {
        self.lost = self.lost.zip(lost).map(|(one, two)| one + two);
    }

    /// Returns the gap before the first sample after it; `None` if nothing is missing.
    pub(crate) fn gap(self, first: f64) -> Option<Gap> {
        let from = match (self.after, self.lost) {
            (_, Some(0)) | (None, None) => return None,
            (after, _) => after.unwrap_or(first),
        };
        Some(Gap {
            from,
            to: first,
            samples: self.lost,
            reason: "the connection was lost".into(),
        })
    }
}

/// Losses of one connection that lie before samples which were not taken yet.
#[derive(Debug, Default)]
pub(crate) struct Losses(VecDeque<LostSamples>);

impl Losses {
    /// Adds what the inlet tells of its losses.
    pub(crate) fn add(&mut self, inlet: &Inlet) {
        self.0.extend(inlet.take_gaps(usize::MAX));
    }

    /// Takes the number of samples lost before the first one of a connection that was to go on after another;
    /// `None` if nobody knows.
    pub(crate) fn take_opening(&mut self, stats: &InletStats) -> Option<u64> {
        if stats.resumed > 0 {
            return Some(0);
        }
        self.take_before(1)?.lost
    }

    /// Takes the first loss, if fewer than so many samples were received before it.
    fn take_before(&mut self, received: u64) -> Option<LostSamples> {
        let first = self.0.front()?;
        (first.received < received).then(|| self.0.pop_front())?
    }

    /// Takes the number of samples lost behind all that were received; `None` if nobody knows.
    pub(crate) fn take_rest(&mut self) -> Option<u64> {
        self.0.drain(..).map(|loss| loss.lost).sum()
    }

    /// Takes the losses before and between samples with these timestamps, up to the sample with the number `end`
    /// among those received. `last` is the timestamp before them.
    pub(crate) fn take_until(&mut self, end: u64, stamps: &[f64], last: Option<f64>) -> Vec<Gap> {
        let mut gaps = Vec::new();
        let start = end.saturating_sub(stamps.len() as u64);
        while let Some(gap) = self.take_before(end) {
            let at = usize::try_from(gap.received.saturating_sub(start)).unwrap_or(usize::MAX);
            let Some(&to) = stamps.get(at) else {
                continue;
            };
            let before = at.checked_sub(1).and_then(|at| stamps.get(at).copied());
            gaps.push(Gap {
                from: before.or(last).unwrap_or(to),
                to,
                samples: gap.lost,
                reason: gap.reason.to_string(),
            });
        }
        gaps
    }
}

#[cfg(test)]
mod tests {
    use lsl_core::GapReason;

    use super::*;

    fn lost(received: u64, lost: Option<u64>) -> LostSamples {
        LostSamples {
            sequence: received,
            received,
            lost,
            reason: GapReason::ReaderTooSlow,
            stamp_before: None,
        }
    }

    #[test]
    fn losses_lie_between_the_samples_beside_them() {
        let mut losses = Losses([lost(4, Some(7)), lost(6, Some(1)), lost(9, None)].into());
        let mut take = |end, stamps: &[f64], last| {
            let gaps = losses.take_until(end, stamps, last);
            let shown = |gap: Gap| (gap.from, gap.to, gap.samples);
            gaps.into_iter().map(shown).collect::<Vec<_>>()
        };
        assert_eq!(take(4, &[1.0, 2.0, 3.0, 4.0], None), []);
        let both = [(4.0, 14.0, Some(7)), (15.0, 20.0, Some(1))];
        assert_eq!(take(8, &[14.0, 15.0, 20.0, 21.0], Some(4.0)), both);
        assert_eq!(take(9, &[22.0], Some(21.0)), []);
        assert_eq!(take(10, &[30.0], Some(22.0)), [(22.0, 30.0, None)]);
        losses = Losses([lost(0, Some(2))].into());
        let gaps = losses.take_until(1, &[5.0], None);
        assert_eq!((gaps[0].from, gaps[0].to), (5.0, 5.0), "none before it");
    }

    #[test]
    fn what_was_told_last_is_part_of_the_interruption() {
        let rest = |losses: &[LostSamples]| Losses(losses.to_vec().into()).take_rest();
        assert_eq!(rest(&[]), Some(0));
        assert_eq!(rest(&[lost(4, Some(7)), lost(4, Some(2))]), Some(9));
        assert_eq!(rest(&[lost(4, Some(7)), lost(4, None)]), None);
        let (after, mut all) = (Some(1.0), Some(3));
        for (told, expected) in [(Some(2), Some(5)), (None, None), (Some(1), None)] {
            let mut interruption = Interruption { after, lost: all };
            interruption.add(told);
            all = interruption.lost;
            assert_eq!(all, expected);
        }
    }

    #[test]
    fn an_interruption_without_a_loss_is_no_gap() {
        let of = |after, lost| Interruption { after, lost }.gap(9.0);
        assert_eq!(of(Some(1.0), Some(0)), None);
        assert_eq!(of(None, None), None, "nothing was recorded before");
        assert_eq!(of(Some(1.0), None).unwrap().samples, None);
        let exact = of(Some(1.0), Some(3)).unwrap();
        assert_eq!((exact.from, exact.to, exact.samples), (1.0, 9.0, Some(3)));
        let first = of(None, Some(3)).unwrap();
        assert_eq!((first.from, first.to), (9.0, 9.0));
    }
}
