//! Position of an inlet in the numbering of its outlet: what the next connection asks for, and what was lost.
//! Spec: resume §5.

use std::collections::VecDeque;

use super::FeedDecoder;
use crate::Result;
use crate::wire::sequence::{Gap, GapReason, Generation, Granted, Position, ReplayFrom};

/// Beginning that a connection asks for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Asked {
    /// Beginning, for the header line of the request.
    pub from: ReplayFrom,
    /// Stamp of the last sample received, in seconds. The first may be deduced from it if it is the next one.
    pub last_stamp: f64,
}

impl From<ReplayFrom> for Asked {
    fn from(from: ReplayFrom) -> Self {
        let last_stamp = 0.0;
        Self { from, last_stamp }
    }
}

/// Samples that are missing between two others of a stream. Spec: resume §5.8.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LostSamples {
    /// Sequence number of the first missing sample; of the next sample if their number is unknown.
    pub sequence: u64,
    /// Number of samples that the inlet had received before, since it was created.
    pub received: u64,
    /// Number of missing samples; `None` if nobody knows, since the numbering changed.
    pub lost: Option<u64>,
    /// Reason that the outlet gives.
    pub reason: GapReason,
    /// Stamp of the sample before in seconds, as it was received; `None` if there was none.
    pub stamp_before: Option<f64>,
}

/// Counters of what was lost and resumed, since an inlet was created.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ResumeCounts {
    /// Connections that went on without a loss where the one before them broke.
    pub resumed: u64,
    /// Samples received that had been pushed before their connection was made.
    pub replayed: u64,
    /// Samples known to be missing.
    pub lost_exact: u64,
    /// Interruptions whose loss cannot be told.
    pub lost_unknown: u64,
    /// Numberings met, the first included.
    pub generations: u64,
    /// Events that were forgotten, because nobody asked for them.
    pub forgotten: u64,
}

/// What came of a connection that was made again, for the log. Spec: resume §5.9.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reconnection {
    /// Seconds since the connection before broke.
    pub outage_secs: f64,
    /// Samples to be replayed.
    pub replayed: u64,
    /// Samples that are lost; `None` if nobody knows.
    pub lost: Option<u64>,
}

/// Numbering of the samples of a granted feed.
#[derive(Debug)]
pub(super) struct Numbering {
    pub(super) granted: Granted,
    /// Samples that gap records told of, and those of them that replay would have had.
    lost: u64,
    lost_of_replay: u64,
    /// Losses that nobody has taken yet, with the number of samples that this connection received before each.
    gaps: Vec<LostSamples>,
}

impl Numbering {
    pub(super) fn new(granted: Granted) -> Self {
        Self {
            granted,
            lost: 0,
            lost_of_replay: 0,
            gaps: Vec::new(),
        }
    }

    /// Returns the sequence number of the next sample, after so many were received.
    #[inline]
    pub(super) fn next(&self, samples: u64) -> u64 {
        self.granted.begin + self.lost + samples
    }

    /// Returns how many of the samples received are replay.
    fn replayed(&self, samples: u64) -> u64 {
        let next = self.next(samples).min(self.granted.live);
        next - self.granted.begin - self.lost_of_replay
    }

    /// Notes a gap before the next sample.
    #[cold]
    pub(super) fn skip(&mut self, gap: Gap, samples: u64, last_stamp: f64) -> Result<()> {
        let sequence = self.next(samples);
        let lost = gap.lost(sequence)?;
        let live = self.granted.live;
        self.lost += lost;
        self.lost_of_replay += gap.to.min(live).saturating_sub(sequence);
        let gap = LostSamples {
            sequence,
            received: samples,
            lost: Some(lost),
            reason: gap.reason,
            stamp_before: known(last_stamp),
        };
        self.gaps.push(gap);
        Ok(())
    }
}

/// Position of an inlet, kept from one connection to the next. It changes with the ring: callers hold both
/// behind one lock.
#[derive(Debug, Default)]
pub(super) struct Resumption {
    /// Whether anything is asked at all.
    is_on: bool,
    /// Beginning of a first connection, if it is not the live edge.
    history: Option<ReplayFrom>,
    position: Option<Position>,
    /// Number at which the stream ends, if the last granted feed said so.
    end: Option<u64>,
    /// Whether an outlet contradicted the position, so that nobody knows what was lost.
    is_contradicted: bool,
    /// Stamp of the last sample received, 0.0 before the first.
    last_stamp: f64,
    /// Numbering of the last granted feed.
    met: Option<Generation>,
    /// Replay counted so far of the present connection, and whether that is all.
    replayed: u64,
    is_replayed: bool,
    /// Time at which the last connection broke.
    broken_at: Option<f64>,
    pub(super) counts: ResumeCounts,
    gaps: VecDeque<LostSamples>,
    /// Losses that pulls have not passed yet: the number of samples received before, and that of the lost.
    unpassed: VecDeque<(u64, u64)>,
    reconnection: Option<Reconnection>,
    /// Samples lost since the last report, and the reason for the first of them.
    unreported: Option<(u64, GapReason)>,
}

impl Resumption {
    /// Begins to ask; the first connection for what `asked` says.
    pub(super) fn begin(&mut self, asked: Asked) {
        self.is_on = true;
        self.last_stamp = asked.last_stamp;
        (self.position, self.history) = match asked.from {
            ReplayFrom::At(position, _) => (Some(position), None),
            from => (None, Some(from)),
        };
    }

    /// Returns what the next connection asks for; `silent_secs` is the time since the last sample.
    pub(super) fn asked(&self, silent_secs: Option<f64>) -> Option<Asked> {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "rounded down, at least to 0"
        )]
        let silent_millis = silent_secs.map(|secs| (secs * 1e3) as u64);
        let from = match (self.position, self.history) {
            (Some(position), _) => ReplayFrom::At(position, silent_millis),
            (None, from) => from.unwrap_or(ReplayFrom::Live),
        };
        self.is_on.then_some(Asked {
            from,
            last_stamp: self.last_stamp,
        })
    }

    pub(super) fn position(&self) -> Option<Position> {
        self.position
    }

    /// Returns whether a feed that broke may be asked for what comes next: a stream that ended has nothing.
    pub(super) fn can_go_on(&self) -> bool {
        (self.position).is_some_and(|at| self.end.is_none_or(|end| at.next < end))
    }

    /// Returns whether the outlet contradicted the position, and there was no connection since.
    pub(super) fn is_contradicted(&self) -> bool {
        self.is_contradicted
    }

    /// Forgets the position: the next connection is a first one.
    pub(super) fn clear(&mut self) {
        (self.position, self.history) = (None, None);
        (self.last_stamp, self.broken_at) = (0.0, None);
        (self.reconnection, self.is_contradicted) = (None, false);
        self.unpassed.clear();
    }

    /// Takes the beginning of a connection. `received` is the number of samples before it, and `is_again` says
    /// whether there was one before.
    pub(super) fn opened(
        &mut self,
        granted: Option<&Granted>,
        received: u64,
        is_again: bool,
        now: f64,
    ) {
        let before = self.position.take();
        self.history = None;
        (self.replayed, self.is_replayed) = (0, false);
        self.position = granted.map(|granted| Position {
            generation: granted.generation,
            next: granted.begin,
        });
        self.end = granted.and_then(|granted| granted.end);
        if let Some(Granted { generation, .. }) = granted
            && self.met.replace(*generation) != Some(*generation)
        {
            self.counts.generations += 1;
        }
        let broken_at = self.broken_at.take().unwrap_or(now);
        let is_contradicted = std::mem::take(&mut self.is_contradicted);
        if !self.is_on || !(is_again || before.is_some() || is_contradicted) {
            return;
        }
        let lost = granted.zip(before).and_then(|(granted, before)| {
            let lost = granted.lost_since(&before)?;
            Some((before.next, lost))
        });
        // Who goes on where another inlet ended knows that, and tells of it as it likes.
        self.reconnection = is_again.then(|| Reconnection {
            outage_secs: now - broken_at,
            replayed: granted.map_or(0, |granted| granted.live - granted.begin),
            lost: lost.map(|(_, lost)| lost),
        });
        match lost {
            Some((_, 0)) => self.counts.resumed += 1,
            Some((sequence, lost)) => {
                self.note(LostSamples {
                    sequence,
                    received,
                    lost: Some(lost),
                    reason: GapReason::NotRetained,
                    stamp_before: known(self.last_stamp),
                });
                self.pass_later(received, lost);
            }
            None => {
                self.note(LostSamples {
                    sequence: granted.map_or(0, |granted| granted.begin),
                    received,
                    lost: None,
                    reason: GapReason::Other(0),
                    stamp_before: known(self.last_stamp),
                });
            }
        }
        if !matches!(lost, Some((_, 0))) {
            // The next sample is not the one after it.
            self.last_stamp = 0.0;
        }
    }

    /// Takes over what a read of a granted feed has changed. `received_before` is the number of samples that
    /// earlier connections received.
    #[inline]
    pub(super) fn advance(&mut self, decoder: &mut FeedDecoder, received_before: u64) {
        let (samples, last_stamp) = (decoder.samples(), decoder.last_stamp());
        let Some(numbering) = decoder.numbering() else {
            return;
        };
        if let Some(position) = &mut self.position {
            position.next = numbering.next(samples);
        }
        if samples > 0 {
            self.last_stamp = last_stamp;
        }
        if !self.is_replayed || !numbering.gaps.is_empty() {
            self.count(numbering, samples, received_before);
        }
    }

    /// Counts replay and losses.
    #[cold]
    fn count(&mut self, numbering: &mut Numbering, samples: u64, received_before: u64) {
        let replayed = numbering.replayed(samples);
        self.counts.replayed += replayed - self.replayed;
        self.replayed = replayed;
        self.is_replayed = numbering.next(samples) >= numbering.granted.live;
        for mut gap in std::mem::take(&mut numbering.gaps) {
            let lost = gap.lost.unwrap_or(0);
            gap.received += received_before;
            self.note(gap);
            self.pass_later(gap.received, lost);
            let (unreported, _) = self.unreported.get_or_insert((0, gap.reason));
            *unreported = unreported.saturating_add(lost);
        }
    }

    /// Notes that the connection broke. After a contradiction in its numbers nobody knows what comes next.
    #[cold]
    pub(super) fn broken(&mut self, is_contradictory: bool, now: f64) {
        self.broken_at.get_or_insert(now);
        if is_contradictory {
            self.is_contradicted |= self.position.is_some();
            (self.position, self.history) = (None, None);
        }
    }

    fn note(&mut self, gap: LostSamples) {
        match gap.lost {
            Some(lost) => {
                self.counts.lost_exact = self.counts.lost_exact.saturating_add(lost);
            }
            None => self.counts.lost_unknown += 1,
        }
        if self.gaps.len() >= MOST_GAPS {
            self.gaps.pop_front();
            self.counts.forgotten += 1;
        }
        self.gaps.push_back(gap);
    }

    fn pass_later(&mut self, received: u64, lost: u64) {
        let is_full = self.unpassed.len() >= MOST_GAPS;
        match self.unpassed.back_mut().filter(|_| is_full) {
            Some(last) => last.1 = last.1.saturating_add(lost),
            None => self.unpassed.push_back((received, lost)),
        }
    }

    /// Returns whether pulls have losses before them.
    #[inline]
    pub(super) fn has_unpassed(&self) -> bool {
        !self.unpassed.is_empty()
    }

    /// Passes the losses before the sample with this number among those received. Returns how many samples were
    /// lost in them, and the number of the sample before which the next loss lies.
    pub(super) fn pass(&mut self, sample: u64) -> (u64, Option<u64>) {
        let mut passed = 0_u64;
        while let Some((_, lost)) = self.unpassed.front().filter(|(at, _)| *at <= sample) {
            passed = passed.saturating_add(*lost);
            self.unpassed.pop_front();
        }
        (passed, self.unpassed.front().map(|(at, _)| *at))
    }

    /// Returns the losses that [`take_gaps`](Self::take_gaps) has not returned, the oldest first.
    pub(super) fn gaps(&self) -> impl Iterator<Item = &LostSamples> {
        self.gaps.iter()
    }

    /// Returns the losses since the last call, the oldest so many.
    pub(super) fn take_gaps(&mut self, most: usize) -> Vec<LostSamples> {
        self.gaps.drain(..most.min(self.gaps.len())).collect()
    }

    pub(super) fn take_reconnection(&mut self) -> Option<Reconnection> {
        self.reconnection.take()
    }

    #[inline]
    pub(super) fn has_unreported(&self) -> bool {
        self.unreported.is_some()
    }

    pub(super) fn take_unreported(&mut self) -> Option<(u64, GapReason)> {
        self.unreported.take()
    }
}

fn known(stamp: f64) -> Option<f64> {
    (stamp != 0.0).then_some(stamp)
}

/// Losses that are kept for those who ask for them.
const MOST_GAPS: usize = 1024;

#[cfg(test)]
mod tests;
