//! Reads the samples of a recording in the order of time, no further ahead than that takes.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use lsl_xdf::{Event, Reader, Values};

use super::timeline::{StreamClock, Timeline};
use crate::failure::Outcome;
use crate::files::recording::RecordingSource;

/// Recording that is being read.
pub(super) struct Feed {
    reader: Reader<RecordingSource>,
    clocks: BTreeMap<u32, StreamClock>,
    timeline: Timeline,
    queues: BTreeMap<u32, Queue>,
    /// Samples before this are left out.
    begin: f64,
    /// Time of the latest sample that was read.
    horizon: f64,
    ended: bool,
}

#[derive(Default)]
struct Queue {
    chunks: VecDeque<Chunk>,
    /// Due time of the last sample of this stream: none is due before it.
    last_due: f64,
}

struct Chunk {
    /// Time of each sample, in seconds.
    times: Vec<f64>,
    /// Time at which each is sent; later than its time where timestamps go backwards.
    due: Vec<f64>,
    values: Values,
    channels: usize,
    next: usize,
}

/// Samples of one stream to be sent now.
pub(super) struct Piece<'a> {
    /// Time of each sample, in seconds.
    pub(super) stamps: &'a [f64],
    /// Values, of which `range` belongs to the samples.
    pub(super) values: &'a Values,
    pub(super) range: Range<usize>,
}

impl Feed {
    /// Creates a reader of the samples from `begin` on.
    pub(super) fn new(source: RecordingSource, timeline: Timeline, begin: f64) -> Self {
        Self {
            reader: Reader::new(source),
            clocks: timeline.clocks(),
            timeline,
            queues: BTreeMap::new(),
            begin,
            horizon: f64::NEG_INFINITY,
            ended: false,
        }
    }

    /// Returns the time at which the next sample of any stream is due; `None` at the end.
    pub(super) fn next_due(&mut self) -> Outcome<Option<f64>> {
        loop {
            let due = self.queues.values().filter_map(Queue::next_due);
            let due = due.min_by(f64::total_cmp);
            match due {
                None if self.ended => return Ok(None),
                Some(due) if self.is_read_until(due) => return Ok(Some(due)),
                _ => self.read()?,
            }
        }
    }

    /// Hands out everything that is due, stream by stream.
    pub(super) fn take_due(
        &mut self,
        now: f64,
        mut take: impl FnMut(u32, Piece<'_>) -> Outcome,
    ) -> Outcome {
        while !self.is_read_until(now) {
            self.read()?;
        }
        for (&stream, queue) in &mut self.queues {
            while let Some(chunk) = queue.chunks.front_mut() {
                let from = chunk.next;
                let rest = chunk.due.get(from..).unwrap_or_default();
                let to = from + rest.partition_point(|&due| due <= now);
                if to > from {
                    let stamps = chunk.times.get(from..to).unwrap_or_default();
                    let range = from * chunk.channels..to * chunk.channels;
                    let values = &chunk.values;
                    take(
                        stream,
                        Piece {
                            stamps,
                            values,
                            range,
                        },
                    )?;
                    chunk.next = to;
                }
                if to < chunk.due.len() {
                    break;
                }
                queue.chunks.pop_front();
            }
        }
        Ok(())
    }

    /// Returns whether no sample before `time` is still to come.
    fn is_read_until(&self, time: f64) -> bool {
        self.ended || self.horizon - self.timeline.late_secs() > time
    }

    fn read(&mut self) -> Outcome {
        let Some(found) = self.reader.next()? else {
            self.ended = true;
            return Ok(());
        };
        let batch = match found.event {
            Event::Samples(batch) => batch,
            Event::ClockOffset { stream, .. } => {
                if let Some(clock) = self.clocks.get_mut(&stream) {
                    clock.pass_offset();
                }
                return Ok(());
            }
            _ => return Ok(()),
        };
        let (Some(track), Some(clock)) = (
            self.timeline.tracks().get(&batch.stream),
            self.clocks.get_mut(&batch.stream),
        ) else {
            return Ok(());
        };
        let queue = self.queues.entry(batch.stream).or_insert_with(|| Queue {
            last_due: self.begin,
            ..Queue::default()
        });
        let mut chunk = Chunk {
            times: Vec::with_capacity(batch.stamps.len()),
            due: Vec::with_capacity(batch.stamps.len()),
            channels: track.header.channel_count(),
            values: batch.values,
            next: 0,
        };
        for &stamp in &batch.stamps {
            let time = clock.time_of(stamp);
            // A timestamp that is no time counts as that of the sample before.
            let time = if time.is_finite() {
                time
            } else {
                queue.last_due
            };
            if time < self.begin && chunk.next == chunk.due.len() && queue.last_due <= self.begin {
                // Skipped: it stands before all that will be sent.
                chunk.next += 1;
                chunk.due.push(f64::NEG_INFINITY);
            } else {
                queue.last_due = queue.last_due.max(time);
                chunk.due.push(queue.last_due);
            }
            chunk.times.push(time);
            self.horizon = self.horizon.max(time);
        }
        if chunk.next < chunk.due.len() {
            queue.chunks.push_back(chunk);
        }
        Ok(())
    }
}

impl Queue {
    fn next_due(&self) -> Option<f64> {
        let chunk = self.chunks.front()?;
        chunk.due.get(chunk.next).copied()
    }
}
