//! One time line for all streams of a recording: the recorder's clock.

use std::collections::BTreeMap;
use std::io::Read;

use lsl_xdf::{Batch, Correction, Cursor, Event, Reader, StreamHeader};

use crate::failure::{Failure, Outcome};
use crate::files::summary::{StreamSummary, Summary};
use crate::ui::text::{count, printable};

/// Places of the chosen streams' samples in time.
#[derive(Debug, Clone)]
pub(super) struct Timeline {
    tracks: BTreeMap<u32, Track>,
    span: Option<(f64, f64)>,
    /// Most by which a sample lies before the latest one so far in the file, in seconds.
    late_secs: f64,
    remarks: Vec<String>,
}

#[derive(Debug, Clone)]
pub(super) struct Track {
    pub(super) header: StreamHeader,
    correction: Correction,
    shift_secs: f64,
    /// Times outside are garbage; `None` where that cannot be told.
    plausible: Option<(f64, f64)>,
    /// Samples with garbage for a time.
    garbage: u64,
}

impl Track {
    /// Returns the clock of its samples, for reading in the order of the file.
    fn clock(&self) -> StreamClock {
        StreamClock {
            cursor: self.correction.cursor(),
            shift_secs: self.shift_secs,
            plausible: self.plausible,
        }
    }

    /// Returns the span of the times that are usual in it.
    fn usual(&self, stream: &StreamSummary) -> Option<(f64, f64)> {
        let (first, last) = stream.usual?;
        let mut clock = self.clock();
        let first = clock.time_of(first);
        (0..stream.offsets.len()).for_each(|_| clock.pass_offset());
        Some((first, clock.time_of(last)))
    }
}

/// The clock of a stream while its file is read.
#[derive(Debug)]
pub(super) struct StreamClock {
    cursor: Cursor,
    shift_secs: f64,
    plausible: Option<(f64, f64)>,
}

impl StreamClock {
    /// Passes a place of the file at which an offset was measured.
    pub(super) fn pass_offset(&mut self) {
        self.cursor.pass_offset();
    }

    /// Returns the time of a sample; infinite ones stay so, and garbage is not a number.
    pub(super) fn time_of(&mut self, stamp: f64) -> f64 {
        let time = self.cursor.correct(stamp) + self.shift_secs;
        match self.plausible {
            Some((from, to)) if time < from || time > to => f64::NAN,
            _ => time,
        }
    }
}

impl Timeline {
    pub(super) fn new(summary: &Summary, chosen: &[u32]) -> Outcome<Self> {
        if chosen.is_empty() {
            return Err(Failure::NotFound("there are no streams to play".into()));
        }
        let common = common_span(summary);
        let mut remarks = Vec::new();
        let mut tracks = BTreeMap::new();
        for (&id, stream) in summary.streams.iter().filter(|(id, _)| chosen.contains(id)) {
            let mut shift_secs = 0.0;
            if let (Some((from, to)), Some((first, last)), true) =
                (common, stream.span, stream.offsets.is_empty())
                && (first > to + FAR_SECS || last < from - FAR_SECS)
            {
                shift_secs = from - first;
                remarks.push(format!(
                    "the clock of stream {id} '{}' was never measured and is another one: it plays \
                     from the start, not in step with the others",
                    printable(&stream.header.name())
                ));
            }
            tracks.insert(
                id,
                Track {
                    header: stream.header.clone(),
                    correction: stream.correction(),
                    shift_secs,
                    plausible: None,
                    garbage: 0,
                },
            );
        }
        let usual = tracks
            .iter()
            .filter_map(|(id, track): (_, &Track)| track.usual(summary.streams.get(id)?))
            .reduce(union);
        if let Some(usual) = usual {
            let (from, to) = common.map_or(usual, |common| union(usual, common));
            let is_measured = summary.streams.values().any(|it| !it.offsets.is_empty());
            for (id, track) in &mut tracks {
                // Without a measured clock, a stream of single events may well go on alone.
                let is_usual = summary.streams.get(id).is_some_and(|it| it.usual.is_some());
                let astray = if is_measured || is_usual {
                    ASTRAY_SECS
                } else {
                    FAR_SECS
                };
                track.plausible = Some((from - astray, to + astray));
            }
        }
        Ok(Self {
            tracks,
            span: None,
            late_secs: 0.0,
            remarks,
        })
    }

    /// Reads the recording to find its begin and end, and how much samples are out of order.
    pub(super) fn measure(&mut self, input: impl Read) -> Outcome {
        let mut reader = Reader::new(input);
        let mut clocks = self.clocks();
        while let Some(found) = reader.next()? {
            match found.event {
                Event::ClockOffset { stream, .. } => {
                    if let Some(clock) = clocks.get_mut(&stream) {
                        clock.pass_offset();
                    }
                }
                Event::Samples(batch) => {
                    if let Some(clock) = clocks.get_mut(&batch.stream) {
                        self.count(&batch, clock);
                    }
                }
                _ => {}
            }
        }
        for (id, track) in self.tracks.iter().filter(|(_, track)| track.garbage > 0) {
            self.remarks.push(format!(
                "{} of stream {id} '{}' lie minutes away from all others: they play with the \
                 sample before them",
                count(
                    usize::try_from(track.garbage).unwrap_or(usize::MAX),
                    "sample"
                ),
                printable(&track.header.name())
            ));
        }
        Ok(())
    }

    /// Returns the clocks of the chosen streams at the begin of the file.
    pub(super) fn clocks(&self) -> BTreeMap<u32, StreamClock> {
        let clocks = self.tracks.iter().map(|(&id, track)| (id, track.clock()));
        clocks.collect()
    }

    fn count(&mut self, batch: &Batch, clock: &mut StreamClock) {
        let times = batch.stamps.iter().map(|&stamp| clock.time_of(stamp));
        for time in times {
            if time.is_nan()
                && let Some(track) = self.tracks.get_mut(&batch.stream)
            {
                track.garbage += 1;
            }
            if !time.is_finite() {
                continue;
            }
            let (first, last) = self.span.unwrap_or((time, time));
            self.late_secs = self.late_secs.max(last - time);
            self.span = Some((first.min(time), last.max(time)));
        }
    }

    /// Returns the times of the first and of the last sample.
    pub(super) fn span(&self) -> Option<(f64, f64)> {
        self.span
    }

    /// Returns how late samples may come in the file, in seconds.
    pub(super) fn late_secs(&self) -> f64 {
        self.late_secs
    }

    /// Returns the chosen streams by number.
    pub(super) fn tracks(&self) -> &BTreeMap<u32, Track> {
        &self.tracks
    }

    /// Returns the remarks for the user.
    pub(super) fn remarks(&self) -> &[String] {
        &self.remarks
    }

    /// Returns the seconds between the samples of the slowest regular stream.
    pub(super) fn longest_interval(&self) -> f64 {
        let rates = self
            .tracks
            .values()
            .map(|track| track.header.nominal_srate());
        let slowest = rates
            .filter(|rate| *rate > 0.0)
            .fold(f64::INFINITY, f64::min);
        if slowest.is_finite() {
            1.0 / slowest
        } else {
            IRREGULAR_INTERVAL_SECS
        }
    }
}

fn union(a: (f64, f64), b: (f64, f64)) -> (f64, f64) {
    (a.0.min(b.0), a.1.max(b.1))
}

/// Returns the time in which the recorder measured clocks, else that of the longest stream.
fn common_span(summary: &Summary) -> Option<(f64, f64)> {
    let measured = summary
        .streams
        .values()
        .flat_map(|stream| stream.offsets.iter().map(|&(time, value)| time + value));
    let measured = measured.filter(|time| time.is_finite());
    let span = measured.fold((f64::INFINITY, f64::NEG_INFINITY), |(from, to), time| {
        (from.min(time), to.max(time))
    });
    if span.0 <= span.1 {
        return Some(span);
    }
    let length = |stream: &&StreamSummary| stream.duration();
    let longest = summary
        .streams
        .values()
        .max_by(|a, b| length(a).total_cmp(&length(b)));
    longest.and_then(|stream| stream.span)
}

/// Streams of one recording overlap; a bit more is allowed to those that came early or late.
const FAR_SECS: f64 = 3600.0;
/// Single samples may lie before and after all that is known to be sound, but not by more.
const ASTRAY_SECS: f64 = 120.0;
const IRREGULAR_INTERVAL_SECS: f64 = 0.1;
