//! Salvage of damaged files: everything readable is written anew. Missing headers are made up, every
//! readable sample of a damaged chunk counts, single streams can be selected. Unlike a repair it keeps no
//! byte as it was. One pass; memory does not grow with the file.

mod guess;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read, Write};

use crate::decode::{Batch, Decoder, Event, MAX_STREAMS, Problem};
use crate::reader::Reader;
use crate::sink::PipeSink;
use crate::stream::{FileHeader, StreamHeader};
use crate::writer::Recording;
use crate::{Error, Result};

/// Salvage of a file, with the streams to take and headers known from elsewhere.
#[derive(Debug, Clone, Default)]
pub struct Salvage {
    headers: BTreeMap<u32, StreamHeader>,
    only: Option<BTreeSet<u32>>,
}

/// Result for one salvaged stream.
#[derive(Debug, Clone, PartialEq)]
pub struct Salvaged {
    /// Number of the stream in the damaged file; it has the same one in the new file if that was
    /// free.
    pub from: u32,
    /// Number of samples that were written.
    pub samples: u64,
    /// Number of clock offsets that were written.
    pub offsets: u64,
    /// Whether its header was made up: then the format is a guess.
    pub is_guessed: bool,
}

/// Report about a salvaged file.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SalvageReport {
    /// The streams by their number in the new file.
    pub streams: BTreeMap<u32, Salvaged>,
    /// Problems of the input, the first 10,000.
    pub problems: Vec<Problem>,
    /// Bytes that could not be read.
    pub lost_bytes: u64,
    /// Number of chunks of unknown streams whose format cannot be guessed.
    pub unknown_chunks: u64,
}

impl Salvage {
    /// Creates a salvage of all streams.
    pub fn new() -> Self {
        Self::default()
    }

    /// Uses this header for a stream that has none in the file, for instance from another recording of the
    /// same device.
    #[must_use]
    pub fn with_header(mut self, stream: u32, header: StreamHeader) -> Self {
        self.headers.insert(stream, header);
        self
    }

    /// Restricts the salvage to these streams; further calls add more.
    #[must_use]
    pub fn only(mut self, streams: impl IntoIterator<Item = u32>) -> Self {
        self.only.get_or_insert_default().extend(streams);
        self
    }

    /// Reads `input` from beginning to end and writes a sound file.
    ///
    /// # Errors
    /// [`Error::Io`] of either side. No damage of the input is an error.
    pub fn run(&self, mut input: impl Read, output: impl Write) -> Result<SalvageReport> {
        // The input may end within the four bytes of the magic, or behind them.
        let mut start = Vec::new();
        let took = (&mut input).take(4).read_to_end(&mut start);
        took.map_err(Error::io("read the recording"))?;
        if start.len() < 4 {
            start = crate::chunk::MAGIC.to_vec();
        }
        let mut decoder = Decoder::new().without_magic().with_orphans();
        for (&stream, header) in &self.headers {
            decoder.declare(stream, header);
        }
        let mut reader = Reader::with_decoder(io::Cursor::new(start).chain(input), decoder);
        let mut pass = Pass {
            plan: self,
            output: Some(output),
            recording: None,
            places: BTreeMap::new(),
            shapes: BTreeMap::new(),
            free: u32::MAX - 1,
            report: SalvageReport::default(),
        };
        while let Some(found) = reader.next()? {
            pass.take(found.event, reader.decoder())?;
        }
        pass.end()
    }
}

/// The time stands still: boundaries are written by bytes alone.
const NOW: f64 = 0.0;

struct Pass<'a, W> {
    plan: &'a Salvage,
    /// `None` once the file header is written.
    output: Option<W>,
    recording: Option<Recording<PipeSink<W>>>,
    /// Output stream of each input stream.
    places: BTreeMap<u32, OutputStream>,
    /// Number in the output of every shape of a stream, by its input number, format and channels.
    shapes: BTreeMap<(u32, &'static str, usize), u32>,
    /// Number from which to search downwards for a free one.
    free: u32,
    report: SalvageReport,
}

struct OutputStream {
    id: u32,
    format: lsl_proto::ChannelFormat,
    channels: usize,
}

impl<W: Write> Pass<'_, W> {
    /// Returns the recording. The first call begins it, with the file header if that came first.
    fn recording(&mut self, header: Option<&FileHeader>) -> Result<&mut Recording<PipeSink<W>>> {
        let recording = match (self.recording.take(), self.output.take()) {
            (Some(recording), _) => recording,
            (None, Some(output)) => {
                let blank = FileHeader::new("");
                Recording::new(PipeSink(output), header.unwrap_or(&blank), NOW)?
            }
            // An earlier error has consumed it.
            (None, None) => return Err(Error::Ended("it could not be begun".to_owned())),
        };
        Ok(self.recording.insert(recording))
    }

    fn take(&mut self, event: Event, decoder: &mut Decoder) -> Result<()> {
        match event {
            Event::FileHeader(header) => {
                if self.recording.is_none() {
                    self.recording(Some(&header))?;
                }
            }
            Event::StreamHeader { stream, header } => self.place(stream, &header, false)?,
            Event::Samples(batch) => {
                if !self.places.contains_key(&batch.stream)
                    && let Some(header) = self.plan.headers.get(&batch.stream)
                {
                    self.place(batch.stream, header, false)?;
                }
                self.samples(&batch)?;
            }
            Event::Orphan { stream, content } => match guess::header(stream, &content) {
                Some(header) => {
                    decoder.declare(stream, &header);
                    self.place(stream, &header, true)?;
                    if let Some(batch) = decoder.adopt(stream, &content) {
                        self.samples(&batch)?;
                    }
                }
                None => self.report.unknown_chunks += 1,
            },
            Event::ClockOffset {
                stream,
                time,
                value,
            } => {
                if let Some(place) = self.places.get(&stream)
                    && time.is_finite()
                    && value.is_finite()
                {
                    let id = place.id;
                    self.recording(None)?.clock_offset(id, time, value, NOW)?;
                }
            }
            Event::StreamFooter { stream, footer } => {
                if let Some(place) = self.places.get(&stream) {
                    let id = place.id;
                    let recording = self.recording(None)?;
                    for gap in footer.gaps() {
                        recording.gap(id, gap)?;
                    }
                }
            }
            Event::Private { tag, content } => {
                // A chain over other bytes proves nothing.
                let is_kept = self.plan.only.is_none()
                    && tag > crate::chunk::INTEGRITY_TAG
                    && tag >= crate::chunk::FIRST_PRIVATE_TAG;
                if is_kept {
                    self.recording(None)?.private(tag, &content, NOW)?;
                }
            }
            Event::Boundary => {}
            Event::Problem(problem) => {
                self.report.lost_bytes += problem.len;
                if self.report.problems.len() < 10_000 {
                    self.report.problems.push(problem);
                }
            }
        }
        Ok(())
    }

    /// Finds a place in the new file for a stream, unless its present one fits.
    fn place(&mut self, stream: u32, header: &StreamHeader, is_guessed: bool) -> Result<()> {
        if self
            .plan
            .only
            .as_ref()
            .is_some_and(|only| !only.contains(&stream))
        {
            return Ok(());
        }
        let (format, channels) = (header.channel_format(), header.channel_count());
        let fits = |place: &OutputStream| (place.format, place.channels) == (format, channels);
        if self.places.get(&stream).is_some_and(fits) {
            return Ok(());
        }
        let taken = &self.report.streams;
        let id = if taken.contains_key(&stream) {
            // A stream that alternates between shapes has a place for each.
            let key = (stream, format.name(), channels);
            if let Some(&id) = self.shapes.get(&key) {
                let place = OutputStream {
                    id,
                    format,
                    channels,
                };
                self.places.insert(stream, place);
                return Ok(());
            }
            // From the top, where no writer begins.
            while self.free > 0 && taken.contains_key(&self.free) {
                self.free -= 1;
            }
            self.free
        } else {
            stream
        };
        if taken.len() >= MAX_STREAMS {
            // Its samples must not go into another stream.
            self.places.remove(&stream);
            return Ok(());
        }
        self.recording(None)?.add_stream_as(id, header, NOW)?;
        self.shapes.insert((stream, format.name(), channels), id);
        self.places.insert(
            stream,
            OutputStream {
                id,
                format,
                channels,
            },
        );
        self.report.streams.insert(
            id,
            Salvaged {
                from: stream,
                samples: 0,
                offsets: 0,
                is_guessed,
            },
        );
        Ok(())
    }

    fn samples(&mut self, batch: &Batch) -> Result<()> {
        if let Some(place) = self.places.get(&batch.stream) {
            let id = place.id;
            let recording = self.recording(None)?;
            recording.samples(id, &batch.stamps, &batch.values, NOW)?;
        }
        Ok(())
    }

    fn end(mut self) -> Result<SalvageReport> {
        let recording = self.recording(None)?;
        recording.finish(NOW)?;
        let tallies: Vec<_> = self
            .report
            .streams
            .keys()
            .filter_map(|&id| Some((id, self.recording.as_ref()?.tally(id)?)))
            .map(|(id, tally)| (id, tally.samples, tally.offset_count))
            .collect();
        for (id, samples, offsets) in tallies {
            if let Some(stream) = self.report.streams.get_mut(&id) {
                stream.samples = samples;
                stream.offsets = offsets;
            }
        }
        Ok(self.report)
    }
}
