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

/// Samples that are missing between two others of a stream. Spec: resume §5.8.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LostSamples {
    /// Sequence number of the first missing sample; of the next sample if their number is unknown.
    pub sequence: u64,
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
    /// Losses that nobody has taken yet, with the number of samples received before each.
    gaps: Vec<(u64, LostSamples)>,
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
            lost: Some(lost),
            reason: gap.reason,
            stamp_before: known(last_stamp),
        };
        self.gaps.push((samples, gap));
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
    /// Stamp of the last sample received, 0.0 before the first.
    last_stamp: f64,
    /// Numbering of the last granted feed.
    met: Option<Generation>,
    /// Replay counted so far of the present connection.
    replayed: u64,
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
    /// Begins to ask; the first connection for what `history` says.
    pub(super) fn begin(&mut self, history: ReplayFrom) {
        self.is_on = true;
        match history {
            ReplayFrom::At(position) => self.position = Some(position),
            from => self.history = Some(from),
        }
    }

    pub(super) fn asked(&self) -> Option<Asked> {
        let from = match (self.position, self.history) {
            (Some(position), _) => ReplayFrom::At(position),
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

    /// Forgets the position: the next connection is a first one.
    pub(super) fn clear(&mut self) {
        (self.position, self.history) = (None, None);
        (self.last_stamp, self.broken_at) = (0.0, None);
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
        self.replayed = 0;
        self.position = granted.map(|granted| Position {
            generation: granted.generation,
            next: granted.begin,
        });
        if let Some(Granted { generation, .. }) = granted
            && self.met.replace(*generation) != Some(*generation)
        {
            self.counts.generations += 1;
        }
        let broken_at = self.broken_at.take().unwrap_or(now);
        if !self.is_on || !(is_again || before.is_some()) {
            return;
        }
        let lost = granted.zip(before).and_then(|(granted, before)| {
            let lost = granted.lost_since(&before)?;
            Some((before.next, lost))
        });
        self.reconnection = Some(Reconnection {
            outage_secs: now - broken_at,
            replayed: granted.map_or(0, |granted| granted.live - granted.begin),
            lost: lost.map(|(_, lost)| lost),
        });
        match lost {
            Some((_, 0)) => self.counts.resumed += 1,
            Some((sequence, lost)) => {
                let reason = GapReason::NotRetained;
                self.note(sequence, Some(lost), reason, known(self.last_stamp));
                self.pass_later(received, lost);
            }
            None => {
                let sequence = granted.map_or(0, |granted| granted.begin);
                let reason = GapReason::Other(0);
                self.note(sequence, None, reason, known(self.last_stamp));
            }
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
        let replayed = numbering.replayed(samples);
        self.counts.replayed += replayed - self.replayed;
        self.replayed = replayed;
        if !numbering.gaps.is_empty() {
            for (samples, gap) in std::mem::take(&mut numbering.gaps) {
                let lost = gap.lost.unwrap_or(0);
                self.note(gap.sequence, gap.lost, gap.reason, gap.stamp_before);
                self.pass_later(received_before + samples, lost);
                let (unreported, _) = self.unreported.get_or_insert((0, gap.reason));
                *unreported += lost;
            }
        }
    }

    /// Notes that the connection broke. After a contradiction in its numbers nobody knows what comes next.
    #[cold]
    pub(super) fn broken(&mut self, is_contradictory: bool, now: f64) {
        self.broken_at = Some(now);
        if is_contradictory {
            (self.position, self.history) = (None, None);
        }
    }

    fn note(&mut self, sequence: u64, lost: Option<u64>, reason: GapReason, stamp: Option<f64>) {
        match lost {
            Some(lost) => self.counts.lost_exact += lost,
            None => self.counts.lost_unknown += 1,
        }
        if self.gaps.len() >= MOST_GAPS {
            self.gaps.pop_front();
            self.counts.forgotten += 1;
        }
        self.gaps.push_back(LostSamples {
            sequence,
            lost,
            reason,
            stamp_before: stamp,
        });
    }

    fn pass_later(&mut self, received: u64, lost: u64) {
        let is_full = self.unpassed.len() >= MOST_GAPS;
        match self.unpassed.back_mut().filter(|_| is_full) {
            Some(last) => last.1 += lost,
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
        let mut passed = 0;
        while let Some((_, lost)) = self.unpassed.front().filter(|(at, _)| *at <= sample) {
            passed += lost;
            self.unpassed.pop_front();
        }
        (passed, self.unpassed.front().map(|(at, _)| *at))
    }

    /// Returns the losses since the last call, the newest 1,024.
    pub(super) fn take_gaps(&mut self) -> Vec<LostSamples> {
        self.gaps.drain(..).collect()
    }

    pub(super) fn take_reconnection(&mut self) -> Option<Reconnection> {
        self.reconnection.take()
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
