//! Runs of samples as they were received, for those who pass them on. Spec: relay §6, resume §5.8.

use super::Feed;
use crate::inlet::LostSamples;
use crate::wire::sequence::Position;
use crate::{Error, Result};

/// Samples that follow each other without a loss, as they were received.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Run {
    /// Losses before the first sample, the oldest first. Their `received` is not above that of the run.
    pub losses: Vec<LostSamples>,
    /// Number of samples that the inlet had received before the first one, since it was created. More than after
    /// the run before: what is between was dropped for lack of room.
    pub received: u64,
    /// Position of the first sample; `None` if nobody numbers them, or an unknown loss lies behind them.
    pub first: Option<Position>,
    /// Timestamp of each sample in seconds, before any correction.
    pub stamps: Vec<f64>,
    /// Values of all samples, in the raw layout of [`value`](crate::value).
    pub values: Vec<u8>,
}

impl Feed {
    /// Moves the oldest samples into `run`, in place of what it has: at most `most`, and none behind a loss that
    /// another one comes before. Returns whether there were any. Corrections know nothing of them.
    ///
    /// # Errors
    /// [`Error::Lost`], once no sample waits.
    pub fn take_run(&mut self, most: usize, run: &mut Run) -> Result<bool> {
        run.stamps.clear();
        run.values.clear();
        run.losses.clear();
        if let Some(reason) = self.lost.as_ref().filter(|_| self.ring.is_empty()) {
            let reason = reason.clone();
            return Err(Error::Lost { reason });
        }
        if self.ring.is_empty() || most == 0 {
            return Ok(false);
        }
        run.received = self.counts.samples - self.ring.len() as u64;
        let before = |gap: &LostSamples| gap.received <= run.received;
        let passed = self.resumption.gaps().take_while(|gap| before(gap)).count();
        run.losses = self.resumption.take_gaps(passed);
        let next = self.resumption.gaps().next();
        let until = next.map_or(u64::MAX, |gap| gap.received - run.received);
        let most = most.min(usize::try_from(until).unwrap_or(usize::MAX));
        run.first = self.first_of_ring();
        while run.stamps.len() < most {
            let (stamps, raw) = self.ring.front_run(most - run.stamps.len());
            let count = stamps.len();
            if count == 0 {
                break;
            }
            run.stamps.extend_from_slice(stamps);
            run.values.extend_from_slice(raw);
            self.ring.pop_many(count);
        }
        Ok(true)
    }

    /// Returns the position of the oldest sample that waits, or of the next one; `None` if nobody numbers them, or an
    /// unknown loss lies behind it.
    pub fn first_of_ring(&self) -> Option<Position> {
        let position = self.resumption.position()?;
        let mut behind = self.ring.len() as u64;
        let before = self.counts.samples - behind;
        // What is missing before it does not change its number.
        for gap in self.resumption.gaps().filter(|gap| gap.received > before) {
            behind = behind.saturating_add(gap.lost?);
        }
        let next = position.next.checked_sub(behind)?;
        Some(Position { next, ..position })
    }
}
