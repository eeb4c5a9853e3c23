//! One look at a recording from begin to end: its contents, as `info` shows them and as `convert`
//! and `lsl play` need them before they begin. Memory grows with the clock offsets only.

use std::collections::BTreeMap;
use std::io::Read;

use lsl_xdf::{Correction, Event, FileHeader, Gap, Reader, StreamHeader};

use crate::failure::Outcome;

/// Contents of a recording, without its samples.
#[derive(Debug, Default)]
pub(crate) struct Summary {
    pub(crate) file_header: Option<FileHeader>,
    pub(crate) streams: BTreeMap<u32, StreamSummary>,
    /// Number of places that could not be read.
    pub(crate) problems: u64,
    /// Bytes of the XDF file.
    pub(crate) len: u64,
}

/// Contents of one stream, without its samples.
#[derive(Debug)]
pub(crate) struct StreamSummary {
    pub(crate) header: StreamHeader,
    pub(crate) samples: u64,
    /// Smallest and largest timestamp, in seconds.
    pub(crate) span: Option<(f64, f64)>,
    /// Smallest and largest of the middle timestamps of chunks: garbage, as devices send when they
    /// die, is none of these.
    pub(crate) usual: Option<(f64, f64)>,
    pub(crate) offsets: Vec<(f64, f64)>,
    pub(crate) gaps: u64,
    /// Number of samples that are missing in the gaps, as far as it is known.
    pub(crate) missing: u64,
    /// Number of gaps of which that is not known.
    pub(crate) unknown_gaps: u64,
    /// Whether the stream was closed.
    pub(crate) has_footer: bool,
}

impl Summary {
    /// Reads a recording to its end.
    pub(crate) fn read(input: impl Read) -> Outcome<Self> {
        Self::read_and(input, |_| ())
    }

    /// Reads a recording to its end, showing every event to `look` first.
    pub(crate) fn read_and(input: impl Read, mut look: impl FnMut(&Event)) -> Outcome<Self> {
        let mut reader = Reader::new(input);
        let mut summary = Self::default();
        while let Some(found) = reader.next()? {
            look(&found.event);
            summary.take(found.event);
        }
        summary.len = reader.decoder().position();
        Ok(summary)
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::FileHeader(header) => self.file_header = Some(header),
            Event::StreamHeader { stream, header } => {
                let header_again = header.clone();
                self.streams
                    .entry(stream)
                    .and_modify(|known| known.header = header_again)
                    .or_insert_with(|| StreamSummary::new(header));
            }
            Event::Samples(batch) => {
                if let Some(known) = self.streams.get_mut(&batch.stream) {
                    known.count(&batch.stamps);
                }
            }
            Event::ClockOffset {
                stream,
                time,
                value,
            } => {
                if let Some(known) = self.streams.get_mut(&stream) {
                    known.offsets.push((time, value));
                }
            }
            Event::StreamFooter { stream, footer } => {
                if let Some(known) = self.streams.get_mut(&stream) {
                    known.has_footer = true;
                    known.count_gaps(&footer.gaps());
                }
            }
            Event::Problem(problem) => self.problems += u64::from(!problem.kind.is_harmless()),
            _ => {}
        }
    }
}

impl StreamSummary {
    fn new(header: StreamHeader) -> Self {
        Self {
            header,
            samples: 0,
            span: None,
            usual: None,
            offsets: Vec::new(),
            gaps: 0,
            missing: 0,
            unknown_gaps: 0,
            has_footer: false,
        }
    }

    fn count(&mut self, stamps: &[f64]) {
        self.samples += stamps.len() as u64;
        let extended = |span: Option<(f64, f64)>, stamp: f64| {
            let (first, last) = span.unwrap_or((stamp, stamp));
            Some((first.min(stamp), last.max(stamp)))
        };
        let finite = || stamps.iter().copied().filter(|stamp| stamp.is_finite());
        self.span = finite().fold(self.span, extended);
        if stamps.len() > 2 {
            let mut sorted: Vec<f64> = finite().collect();
            sorted.sort_unstable_by(f64::total_cmp);
            let middle = sorted.get(sorted.len() / 2).copied();
            self.usual = middle.into_iter().fold(self.usual, extended);
        }
    }

    fn count_gaps(&mut self, gaps: &[Gap]) {
        let samples = gaps.iter().map(|gap| gap.samples);
        self.gaps = gaps.len() as u64;
        self.unknown_gaps = samples.clone().filter(Option::is_none).count() as u64;
        self.missing = samples.flatten().fold(0, u64::saturating_add);
    }

    /// Returns the seconds from the first to the last sample.
    pub(crate) fn duration(&self) -> f64 {
        self.span.map_or(0.0, |(first, last)| last - first)
    }

    /// Returns the samples per second as they came; `None` if there are too few to say.
    pub(crate) fn effective_rate(&self) -> Option<f64> {
        let duration = self.duration();
        (self.samples > 1 && duration > 0.0).then(|| (self.samples - 1) as f64 / duration)
    }

    /// Fits the correction of its timestamps to the measured offsets.
    pub(crate) fn correction(&self) -> Correction {
        Correction::fit(&self.offsets)
    }
}
