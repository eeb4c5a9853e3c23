//! The pass that surveys a file.

use std::collections::BTreeMap;
use std::io::Read;
use std::ops::Range;

use super::suspect::SuspectRanges;
use super::{Finding, Segment, StreamSummary, Survey};
use crate::chunk::Tag;
use crate::decode::{Batch, Event, Located, Problem, ProblemKind};
use crate::encode::{self, SampleEncoder};
use crate::reader::Reader;
use crate::stream::{FileHeader, StreamFooter, StreamHeader};
use crate::{Error, Result};

/// Number of findings that are listed.
const MAX_FINDINGS: usize = 10_000;

/// Number of changes beyond which a file is not repaired but salvaged.
const MAX_CHANGES: usize = 100_000;

/// Longest chunk whose readable samples are written anew when the rest of it is damaged, in bytes of memory.
const MAX_REWRITTEN: usize = 4 << 20;

/// Upper limit for all bytes that are written anew.
const MAX_WRITTEN: usize = 64 << 20;

/// Clock offsets listed in all footers together, so that a file of nothing else does not fill the memory.
const MAX_OFFSETS: usize = 1 << 20;

/// Surveys a file from beginning to end.
///
/// # Errors
/// [`Error::NotXdf`], [`Error::Io`] of the input, [`Error::Argument`] for a file that is damaged in
/// more than 100,000 places: salvage it.
pub fn survey(input: impl Read) -> Result<Survey> {
    let mut reader = Reader::new(input);
    let mut pass = Pass::default();
    while let Some(found) = reader.next()? {
        let decoder = reader.decoder();
        pass.take(found, decoder.complete_until())?;
    }
    let decoder = reader.decoder();
    pass.end(decoder.complete_until(), decoder.position())
}

#[derive(Default)]
struct Pass {
    streams: BTreeMap<u32, SurveyedStream>,
    findings: Vec<Finding>,
    /// Ranges that do not stay, in order, with the bytes that replace them.
    changes: Vec<(Range<u64>, Vec<u8>)>,
    written: usize,
    offsets: usize,
    boundaries: u64,
    has_file_header: bool,
    /// The last chunk of XML, in case it has a flaw.
    xml: Option<Xml>,
    chunk: Option<OpenChunk>,
    suspects: SuspectRanges,
}

struct SurveyedStream {
    summary: StreamSummary,
    encoder: SampleEncoder,
    footer_count: Option<u64>,
    backwards: u64,
    not_finite: u64,
    behind_footer: bool,
    second_header: bool,
    /// Whether timestamps are on the recorder's clock already.
    is_synced: bool,
}

enum Xml {
    File(FileHeader),
    Header(u32, StreamHeader),
    Footer(u32, StreamFooter),
}

/// Samples chunk that may turn out to be damaged further on.
struct OpenChunk {
    at: u64,
    stream: u32,
    samples: u64,
    bytes: usize,
    /// Batches of the stream, unless they are too many.
    batches: Vec<Batch>,
    /// Counts of the stream before this chunk.
    before: Counted,
}

#[derive(Clone, Copy)]
struct Counted {
    first: Option<f64>,
    last: Option<f64>,
    samples: u64,
}

impl Pass {
    fn take(&mut self, found: Located, complete: u64) -> Result<()> {
        if let Event::Problem(problem) = found.event {
            return self.problem(problem, complete);
        }
        if self
            .chunk
            .as_ref()
            .is_some_and(|chunk| chunk.at != found.at)
        {
            self.chunk = None;
        }
        self.xml = None;
        match found.event {
            Event::FileHeader(header) => {
                self.has_file_header = true;
                self.xml = Some(Xml::File(header));
            }
            Event::StreamHeader { stream, header } => {
                self.header(stream, &header);
                self.xml = Some(Xml::Header(stream, header));
            }
            Event::Samples(batch) => self.samples(found.at, batch),
            Event::ClockOffset {
                stream,
                time,
                value,
            } => {
                if let Some(known) = self.streams.get_mut(&stream) {
                    known.not_finite += u64::from(!time.is_finite() || !value.is_finite());
                    let tally = &mut known.summary.tally;
                    if self.offsets < MAX_OFFSETS {
                        self.offsets += 1;
                        tally.count_offset(time, value);
                    } else {
                        tally.offset_count += 1;
                    }
                }
            }
            Event::Boundary => self.boundaries += 1,
            Event::StreamFooter { stream, footer } => {
                if let Some(known) = self.streams.get_mut(&stream) {
                    known.summary.has_footer = true;
                    known.footer_count = footer.sample_count();
                    known.behind_footer = false;
                }
                self.xml = Some(Xml::Footer(stream, footer));
            }
            Event::Private { .. } | Event::Orphan { .. } | Event::Problem(_) => {}
        }
        Ok(())
    }

    fn header(&mut self, stream: u32, header: &StreamHeader) {
        if let Some(known) = self.streams.get_mut(&stream) {
            known.second_header = true;
            known.encoder = SampleEncoder::new(stream, header);
            return;
        }
        let short = |text: &str| text.chars().take(200).collect();
        let known = SurveyedStream {
            summary: StreamSummary {
                name: short(&header.name()),
                stream_type: short(&header.stream_type()),
                format: header.channel_format(),
                channels: header.channel_count(),
                nominal_srate: header.nominal_srate(),
                tally: crate::Tally::default(),
                lost_samples: 0,
                has_footer: false,
            },
            encoder: SampleEncoder::new(stream, header),
            footer_count: None,
            backwards: 0,
            not_finite: 0,
            is_synced: header.get("synced").is_some(),
            behind_footer: false,
            second_header: false,
        };
        self.streams.insert(stream, known);
    }

    fn samples(&mut self, at: u64, batch: Batch) {
        let Some(known) = self.streams.get_mut(&batch.stream) else {
            return;
        };
        let tally = &mut known.summary.tally;
        let chunk = self.chunk.get_or_insert_with(|| OpenChunk {
            at,
            stream: batch.stream,
            samples: 0,
            bytes: 0,
            batches: Vec::new(),
            before: Counted {
                first: tally.first,
                last: tally.last,
                samples: tally.samples,
            },
        });
        let mut last = tally.last.unwrap_or(f64::NEG_INFINITY);
        for &stamp in &batch.stamps {
            known.backwards += u64::from(stamp < last);
            known.not_finite += u64::from(!stamp.is_finite());
            last = stamp;
        }
        known.behind_footer |= known.summary.has_footer;
        tally.count(&batch.stamps);
        chunk.samples += batch.stamps.len() as u64;
        chunk.bytes += 8 * batch.stamps.len() + batch.values.memory();
        if chunk.bytes <= MAX_REWRITTEN {
            chunk.batches.push(batch);
        }
    }

    fn problem(&mut self, problem: Problem, complete: u64) -> Result<()> {
        let replacement = self.replacement(&problem);
        let range = problem.chunk_at..problem.at + problem.len;
        let chunk = self.chunk.as_ref();
        let has_samples = chunk.is_some_and(|chunk| chunk.at == problem.chunk_at);
        let is_saved = replacement.is_some();
        match (&problem.kind, replacement) {
            (ProblemKind::Flaw { .. }, Some(bytes)) => self.change(problem.at..complete, bytes)?,
            (ProblemKind::Flaw { .. } | ProblemKind::StampsGuessed, _) => {}
            // Too long for us, but whole: other programs may know it.
            (
                ProblemKind::TooLong {
                    tag: Tag::Other(_), ..
                },
                _,
            ) if !problem.resumed => {}
            (_, replacement) => {
                if replacement.is_none() {
                    self.forget_chunk(&problem);
                }
                self.suspects.problem(&problem, is_saved, has_samples);
                self.change(range, replacement.unwrap_or_default())?;
            }
        }
        if let ProblemKind::CutSamples { samples } | ProblemKind::BadSamples { samples, .. } =
            &problem.kind
            && let Some(known) = problem.stream.and_then(|id| self.streams.get_mut(&id))
        {
            let lost = &mut known.summary.lost_samples;
            *lost = lost.saturating_add(*samples);
        }
        self.find(Finding::Problem(problem));
        Ok(())
    }

    /// Returns the bytes that replace a damaged chunk, if a part of it can be saved.
    fn replacement(&mut self, problem: &Problem) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        match &problem.kind {
            ProblemKind::Flaw { .. } => match self.xml.take()? {
                Xml::File(header) => encode::file_header(&mut bytes, &header),
                Xml::Header(stream, header) => encode::stream_header(&mut bytes, stream, &header),
                Xml::Footer(stream, footer) => encode::stream_footer(&mut bytes, stream, &footer),
            }
            .ok()?,
            ProblemKind::CutSamples { .. }
            | ProblemKind::BadSamples { .. }
            | ProblemKind::TrailingBytes => {
                let chunk = self.chunk.as_ref()?;
                if chunk.at != problem.chunk_at || chunk.bytes > MAX_REWRITTEN {
                    return None;
                }
                let encoder = &mut self.streams.get_mut(&chunk.stream)?.encoder;
                for batch in &chunk.batches {
                    let (stamps, values) = (&batch.stamps, &batch.values);
                    encoder
                        .chunk(&mut bytes, stamps, values, 0, usize::MAX)
                        .ok()?;
                }
            }
            _ => return None,
        }
        self.written += bytes.len();
        (self.written <= MAX_WRITTEN).then_some(bytes)
    }

    /// Subtracts the samples of a chunk that is dropped.
    fn forget_chunk(&mut self, problem: &Problem) {
        let Some(chunk) = self.chunk.take() else {
            return;
        };
        if chunk.at == problem.chunk_at
            && let Some(known) = self.streams.get_mut(&chunk.stream)
        {
            let tally = &mut known.summary.tally;
            tally.first = chunk.before.first;
            tally.last = chunk.before.last;
            tally.samples = chunk.before.samples;
            known.summary.lost_samples += chunk.samples;
        }
    }

    fn change(&mut self, range: Range<u64>, bytes: Vec<u8>) -> Result<()> {
        if self.changes.len() >= MAX_CHANGES {
            let text = "it is damaged in too many places for a repair: salvage it";
            return Err(Error::Argument(text.to_owned()));
        }
        match self.changes.last_mut() {
            // Two problems of one chunk.
            Some((last, _)) if range.start < last.end => last.end = last.end.max(range.end),
            Some((last, before)) if range.start == last.end => {
                last.end = range.end;
                before.extend(bytes);
            }
            _ => self.changes.push((range, bytes)),
        }
        Ok(())
    }

    fn find(&mut self, finding: Finding) {
        match self.findings.len() {
            0..MAX_FINDINGS => self.findings.push(finding),
            MAX_FINDINGS => self.findings.push(Finding::More),
            _ => {}
        }
    }

    fn end(mut self, complete: u64, len: u64) -> Result<Survey> {
        if !self.has_file_header {
            self.find(Finding::NoFileHeader);
        }
        let streams = std::mem::take(&mut self.streams);
        let mut footers = Vec::new();
        for (&stream, known) in &streams {
            let tally = &known.summary.tally;
            if !known.summary.has_footer {
                self.find(Finding::NoFooter { stream });
                let mut footer = StreamFooter::new(tally);
                footer.set("writer", "lsl-rs repair");
                encode::stream_footer(&mut footers, stream, &footer)?;
            }
            let found = tally.samples;
            match known.footer_count {
                Some(said) if said != found => self.find(Finding::FooterCount {
                    stream,
                    said,
                    found,
                }),
                _ => {}
            }
            if known.behind_footer {
                self.find(Finding::SamplesBehindFooter { stream });
            }
            if known.second_header {
                self.find(Finding::SecondHeader { stream });
            }
            if known.backwards > 0 {
                let times = known.backwards;
                self.find(Finding::Backwards { stream, times });
            }
            if known.not_finite > 0 {
                let times = known.not_finite;
                self.find(Finding::NotFinite { stream, times });
            }
            if found > 0 && tally.offset_count == 0 && !known.is_synced {
                self.find(Finding::NoOffsets { stream });
            }
        }
        let mut segments = Vec::new();
        let (mut at, mut dropped) = (0, 0);
        let mut is_cut = complete < len;
        for (range, bytes) in self.changes {
            if range.start > at {
                segments.push(Segment::Keep(at..range.start));
            }
            dropped += range.end - range.start;
            at = range.end;
            if at >= len {
                is_cut = true;
            }
            if !bytes.is_empty() {
                segments.push(Segment::Write(bytes));
            }
        }
        let end = complete.max(at);
        dropped += len - end;
        if end < len {
            self.suspects.rest(end..len);
        }
        if end > at {
            segments.push(Segment::Keep(at..end));
        }
        if is_cut || !footers.is_empty() {
            let mut tail = Vec::new();
            encode::boundary(&mut tail);
            tail.extend(footers);
            segments.push(Segment::Write(tail));
        }
        Ok(Survey {
            len,
            streams: streams
                .into_iter()
                .map(|(id, known)| (id, known.summary))
                .collect(),
            findings: self.findings,
            dropped_bytes: dropped,
            boundaries: self.boundaries,
            segments,
            suspects: self.suspects,
        })
    }
}
