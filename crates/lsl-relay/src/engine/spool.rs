//! Samples that wait for an engine, and what is asked of it next. Spec: relay §12.
//!
//! Each numbering of a stream has a [`Lane`]; all lanes share the [`Room`]. What an engine must have again, because it
//! lost it, is read from the outlet once more, as long as that retains it.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use lsl_proto::StreamInfo;
use lsl_proto::outlet::frames::{FrameCodec, Frames};

use super::{EngineError, ErrorKind, Opened, Result};

/// What a lane reads: the samples that an outlet retains.
pub trait Source: Clone {
    /// Returns the number of the next sample to read. What is read next may have a later one.
    fn next(&self) -> u64;

    /// Goes to another number.
    fn seek(&mut self, next: u64);

    /// Replaces `frames` by the next samples, at most `most_bytes` of them but at least one. False if none is there.
    fn read(&mut self, most_bytes: usize, frames: &mut Frames) -> bool;

    /// Returns the number at which the stream ends, once it has ended.
    fn end(&self) -> Option<u64>;

    /// Whether there are samples that cannot be read yet, as they are fetched from elsewhere.
    fn is_fetching(&self) -> bool {
        false
    }

    /// Whether there are samples before this number.
    fn has_before(&self, number: u64) -> bool {
        let mut frames = Frames::default();
        self.clone().read(BATCH_BYTES, &mut frames) && frames.first < number
    }
}

/// Bytes that may wait, of all streams.
#[derive(Debug)]
pub struct Room {
    most: usize,
    used: AtomicUsize,
    lanes: AtomicUsize,
}

impl Room {
    /// Creates room for so many bytes.
    pub fn new(most: usize) -> Self {
        Self {
            most,
            used: AtomicUsize::new(0),
            lanes: AtomicUsize::new(0),
        }
    }

    /// Returns the bytes that wait.
    pub fn used(&self) -> usize {
        self.used.load(Relaxed)
    }

    /// Whether a lane that holds `own` bytes may have `more`. The last quarter is for lanes with less than their share,
    /// so that a fast stream keeps no other from waiting.
    fn admits(&self, own: usize, more: usize) -> bool {
        let (used, lanes) = (self.used() + more, self.lanes.load(Relaxed).max(1));
        used <= self.most && (used <= self.most / 4 * 3 || own + more <= self.most / lanes)
    }
}

/// What an engine is to be asked next for a stream.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// To open it; the answer is for [`Lane::opened`].
    Open,
    /// To append these; the answer is for [`Lane::appended`].
    Append(Vec<Arc<Frames>>),
    /// To note the end, or only that it is written no more; the answer is for [`Lane::finished`].
    Finish(Option<u64>),
    /// Nothing before this time, in seconds: infinite until there are samples.
    Wait(f64),
    /// Nothing any more.
    Over,
}

/// Counters of a lane.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LaneCounts {
    /// Samples that the engine acknowledged, each counted once.
    pub stored: u64,
    /// Samples that it will never have: the gaps between what it has.
    pub lost: u64,
    /// Times at which it had lost what it acknowledged.
    pub setbacks: u64,
    /// Errors by their kinds, in the order of [`ErrorKind::ALL`].
    pub errors: [u64; ErrorKind::ALL.len()],
}

/// One numbering of a stream on its way into an engine.
#[derive(Debug)]
pub struct Lane {
    codec: FrameCodec,
    room: Arc<Room>,
    waiting: VecDeque<Arc<Frames>>,
    bytes: usize,
    /// Batches at the front that are being appended.
    in_flight: usize,
    /// Sequence number of the next sample that the engine has not; `None` if it has none.
    next: Option<u64>,
    /// Highest that this ever was.
    top: u64,
    stage: Stage,
    retry_at: f64,
    backoff: Backoff,
    end: End,
    /// Whether the source was over when another relay still wrote the stream, and since when that is known.
    source_is_over: bool,
    over_since: Option<f64>,
    trouble: Option<(f64, EngineError)>,
    counts: LaneCounts,
}

/// End of what a lane reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    None,
    /// No more is read, though the stream goes on.
    Left,
    /// The stream ended, and all of it was read.
    At(u64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Nobody knows what the engine has.
    Closed,
    Open,
    /// Another relay writes the stream.
    Standby,
    Over,
}

impl Lane {
    /// Creates the lane of a stream.
    pub fn new(info: &StreamInfo, room: Arc<Room>) -> Self {
        room.lanes.fetch_add(1, Relaxed);
        Self {
            codec: FrameCodec::new(info),
            room,
            waiting: VecDeque::new(),
            bytes: 0,
            in_flight: 0,
            next: None,
            top: 0,
            stage: Stage::Closed,
            retry_at: f64::NEG_INFINITY,
            backoff: Backoff::default(),
            end: End::None,
            source_is_over: false,
            over_since: None,
            trouble: None,
            counts: LaneCounts::default(),
        }
    }

    /// Returns the counters.
    pub fn counts(&self) -> LaneCounts {
        self.counts
    }

    /// Returns since when the engine does not take samples, and why.
    pub fn trouble(&self) -> Option<&(f64, EngineError)> {
        self.trouble.as_ref()
    }

    /// Whether another relay writes the stream.
    pub fn stands_by(&self) -> bool {
        self.stage == Stage::Standby
    }

    /// Returns the number behind the last sample that waits.
    pub fn waits_until(&self) -> Option<u64> {
        self.waiting.back().map(|frames| frames.end())
    }

    /// Whether all of the stream was read, or no more is to be.
    pub fn has_read_all(&self) -> bool {
        self.end != End::None
    }

    /// Whether the engine takes samples.
    pub fn is_open(&self) -> bool {
        self.stage == Stage::Open
    }

    /// Takes what there is to read, as far as there is room. Who stands by leaves it where it is. Returns false if
    /// there is no room.
    pub fn read(&mut self, source: &mut impl Source) -> bool {
        if self.stage == Stage::Standby {
            self.source_is_over = source.end().is_some();
            return true;
        }
        let mut frames = Frames::default();
        while self.end == End::None {
            if !self.room.admits(self.bytes, BATCH_BYTES) {
                return false;
            }
            // Asked before, as samples may come in between.
            let end = source.end();
            if !source.read(BATCH_BYTES, &mut frames) {
                if !source.is_fetching() {
                    self.end = end.map_or(End::None, End::At);
                }
                break;
            }
            if frames.bytes.len() > MOST_BATCH_BYTES {
                continue;
            }
            self.push(std::mem::take(&mut frames));
        }
        true
    }

    /// Writes what waits, and then no more; the stream goes on.
    pub fn leave(&mut self) {
        if self.end == End::None {
            self.end = End::Left;
        }
    }

    /// Has the engine asked again what it has.
    pub fn doubt(&mut self) {
        if self.stage == Stage::Open {
            self.stage = Stage::Closed;
        }
    }

    /// Returns what to ask the engine now.
    pub fn poll(&mut self, now: f64) -> Step {
        if self.stage == Stage::Standby && self.source_is_over {
            self.over_since.get_or_insert(now);
        }
        let waited = self.over_since.map_or(0.0, |since| now - since);
        match self.stage {
            Stage::Over => Step::Over,
            Stage::Standby if self.end == End::Left => self.over(),
            // Who writes it is alive: the end is for that one to store, and to count.
            Stage::Standby if waited >= STANDBY_END_SECS => self.over(),
            _ if now < self.retry_at => Step::Wait(self.retry_at),
            Stage::Closed | Stage::Standby => Step::Open,
            Stage::Open if self.waiting.is_empty() => match self.end {
                End::None => Step::Wait(f64::INFINITY),
                End::Left => Step::Finish(None),
                End::At(end) => Step::Finish(Some(end)),
            },
            Stage::Open => {
                let mut bytes = 0;
                let fits = |frames: &&Arc<Frames>| {
                    bytes += frames.bytes.len();
                    bytes <= MOST_BATCH_BYTES
                };
                let mut next = self.waiting.front().map_or(0, |frames| frames.first);
                let follows = |frames: &&Arc<Frames>| {
                    std::mem::replace(&mut next, frames.end()) == frames.first
                };
                let most = self.waiting.iter().take(MOST_BATCHES);
                let most = most.take_while(follows).take_while(fits);
                let batches: Vec<_> = most.cloned().collect();
                self.in_flight = batches.len();
                Step::Append(batches)
            }
        }
    }

    /// Takes the answer to [`Step::Open`]: goes on with what the engine has not, from `source` if that is necessary.
    pub fn opened(&mut self, opened: Result<Opened>, source: &mut impl Source, now: f64) {
        let next = match opened {
            Ok(Opened::Ours(next)) => next,
            Ok(Opened::Theirs) => {
                self.stage = Stage::Standby;
                self.retry_at = now + STANDBY_SECS;
                self.trouble = None;
                return self.clear();
            }
            Err(error) => return self.fail(error, now),
        };
        self.counts.setbacks += u64::from(self.next > next);
        self.stage = Stage::Open;
        self.align(next.unwrap_or(0), source);
        self.next = next;
    }

    /// Takes the answer to [`Step::Append`].
    pub fn appended(&mut self, appended: Result<u64>, now: f64) {
        let in_flight = std::mem::take(&mut self.in_flight);
        let left_out = match appended {
            Ok(left_out) => left_out,
            Err(error) => return self.fail(error, now),
        };
        let before = self.counts.stored;
        for _ in 0..in_flight {
            let Some(frames) = self.pop() else {
                break;
            };
            self.note(frames.first, frames.end());
        }
        // What it had before is not counted again.
        let left_out = left_out.min(self.counts.stored - before);
        self.counts.stored -= left_out;
        self.counts.lost += left_out;
        self.backoff = Backoff::default();
        self.trouble = None;
    }

    /// Takes the answer to [`Step::Finish`].
    pub fn finished(&mut self, finished: Result<()>, now: f64) {
        match finished {
            Ok(()) => {
                if let End::At(end) = self.end {
                    // Behind the last sample there may be a gap, too.
                    self.note(end, end);
                }
                self.over();
            }
            Err(error) => self.fail(error, now),
        }
    }

    /// Counts as lost what the engine has not, and asks it for nothing more.
    pub fn give_up(&mut self) {
        let waiting = (self.waiting.front()).zip(self.waiting.back());
        let waiting = waiting.map(|(front, back)| (front.first, back.end()));
        let end = match self.end {
            End::At(end) => Some(end),
            End::None | End::Left => waiting.map(|(_, end)| end),
        };
        let next = self.next.or_else(|| waiting.map(|(first, _)| first));
        if let Some((next, end)) = next.zip(end) {
            self.counts.lost += end.saturating_sub(next);
        }
        self.clear();
        self.over();
    }

    /// Counts samples that the engine has, and the gap before them.
    fn note(&mut self, first: u64, end: u64) {
        let missing = self.next.map_or(0, |next| first.saturating_sub(next));
        self.counts.lost += missing;
        self.next = Some(end);
        self.counts.stored += end.saturating_sub(self.top.max(first));
        self.top = self.top.max(end);
    }

    fn over(&mut self) -> Step {
        self.stage = Stage::Over;
        Step::Over
    }

    fn fail(&mut self, error: EngineError, now: f64) {
        self.stage = Stage::Closed;
        if let Some(count) = self.counts.errors.get_mut(error.kind as usize) {
            *count += 1;
        }
        self.retry_at = now + self.backoff.next(error.kind);
        let since = self.trouble.take().map_or(now, |(since, _)| since);
        self.trouble = Some((since, error));
    }

    /// Has what waits begin at `next`, or as soon after it as there are samples.
    fn align(&mut self, next: u64, source: &mut impl Source) {
        while let Some((first, end)) = self.waiting.front().map(|it| (it.first, it.end())) {
            if first >= next {
                break;
            }
            // It has them, though the answer was lost.
            self.note(first, end.min(next));
            if end > next {
                break;
            }
            self.pop();
        }
        let Some(front) = self.waiting.front().map(|it| it.first) else {
            return source.seek(next);
        };
        if front < next {
            self.cut(next);
        } else if front > next && self.end != End::Left {
            let mut again = source.clone();
            again.seek(next);
            // What is still there is so up to now: what waits is among it.
            if again.has_before(front) {
                self.clear();
                *source = again;
                self.end = End::None;
            }
        }
    }

    /// Removes samples before `next` from the first batch, which ends after it.
    fn cut(&mut self, next: u64) {
        let Some(frames) = self.pop() else {
            return;
        };
        // What is no stream of frames is left as it is: readers skip what they have.
        let cut = frames
            .starting_at(next, &self.codec)
            .unwrap_or_else(|_| Frames::clone(&frames));
        self.bytes += cut.bytes.len();
        self.room.used.fetch_add(cut.bytes.len(), Relaxed);
        self.waiting.push_front(Arc::new(cut));
    }

    fn push(&mut self, frames: Frames) {
        self.bytes += frames.bytes.len();
        self.room.used.fetch_add(frames.bytes.len(), Relaxed);
        self.waiting.push_back(Arc::new(frames));
    }

    fn pop(&mut self) -> Option<Arc<Frames>> {
        let frames = self.waiting.pop_front()?;
        self.bytes -= frames.bytes.len();
        self.room.used.fetch_sub(frames.bytes.len(), Relaxed);
        Some(frames)
    }

    fn clear(&mut self) {
        while self.pop().is_some() {}
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        self.clear();
        self.room.lanes.fetch_sub(1, Relaxed);
    }
}

/// Time before the next attempt.
#[derive(Debug, Default)]
struct Backoff(Option<(ErrorKind, f64)>);

impl Backoff {
    /// Returns the time in seconds to wait after an error of this kind.
    fn next(&mut self, kind: ErrorKind) -> f64 {
        let (first, most) = match kind {
            ErrorKind::Retry => (0.1, 5.0),
            ErrorKind::Full => (1.0, 30.0),
            ErrorKind::Denied | ErrorKind::Conflict | ErrorKind::Corrupt => (60.0, 60.0),
        };
        let secs = match self.0 {
            Some((before, secs)) if before == kind => f64::min(secs * 2.0, most),
            _ => first,
        };
        self.0 = Some((kind, secs));
        secs
    }
}

/// Bytes of a batch: of one that has more than a sample. Spec: relay §12.
const BATCH_BYTES: usize = 64 * 1024;

/// Bytes of a sample that an engine is not given: it is a gap there. And of what is appended in one go.
const MOST_BATCH_BYTES: usize = 1 << 20;

/// Batches that are appended in one go.
const MOST_BATCHES: usize = 16;

/// Time in seconds between looks at who writes a stream.
const STANDBY_SECS: f64 = 3.0;

/// Time in seconds for which the end of a stream is kept that another relay writes: some leases long.
const STANDBY_END_SECS: f64 = 60.0;
