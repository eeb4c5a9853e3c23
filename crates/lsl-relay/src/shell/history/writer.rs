//! The thread that owns the segment in progress. Spec: relay §9.

use std::collections::{HashMap, VecDeque};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use lsl_core::relay::{FrameCodec, Frames};
use lsl_core::{StreamInfo, local_clock};
use lsl_platform::calendar::rfc3339;
use lsl_xdf::at_rest::Encrypting;
use lsl_xdf::chunk::{NUMBERS_TAG, PADDING_TAG};
use lsl_xdf::{FileHeader, FileSink, Recording, Values, claim, journal_path};
use tokio::sync::mpsc::Receiver;

use super::folder::{as_arrival, remove};
use super::sink::SegmentSink;
use super::{History, header, unix_now};
use crate::history::{Entry, GenerationId, Numbering, Numbers, Segment, SegmentName, plan};

/// Something to write.
#[derive(Debug)]
pub(super) enum Job {
    Samples(Samples),
    /// A measured offset: `value` is added to the clock of the stream, `time` by then, to get that of this machine.
    Offset {
        numbering: Arc<Numbering>,
        time: f64,
        value: f64,
    },
    /// No more samples of a numbering come from an outlet: what was sent before is all. If the stream has ended,
    /// it did before this number.
    Over {
        numbering: Arc<Numbering>,
        end: Option<u64>,
    },
    /// To look at the clock.
    Look,
}

/// Samples of one chunk.
#[derive(Debug)]
pub(super) struct Samples {
    pub(super) numbering: Arc<Numbering>,
    pub(super) info: Arc<StreamInfo>,
    pub(super) frames: Frames,
    /// When the first of them came, in seconds since 1970.
    pub(super) arrival: f64,
}

/// Writes until nobody sends any more, then finishes the segment.
pub(super) fn run(history: &History, mut jobs: Receiver<Job>) {
    let mut writer = Writer {
        history,
        open: None,
        looked_at: local_clock(),
        retry_at: 0.0,
        ends: Vec::new(),
    };
    writer.look();
    while let Some(job) = jobs.blocking_recv() {
        match job {
            Job::Samples(samples) => writer.samples(&samples),
            Job::Offset {
                numbering,
                time,
                value,
            } => writer.offset(&numbering, time, value),
            Job::Over { numbering, end } => writer.over(numbering, end),
            Job::Look => {}
        }
        if local_clock() - writer.looked_at >= LOOK_SECS {
            writer.look();
        }
    }
    writer.write_ends();
    writer.close();
}

struct Writer<'a> {
    history: &'a History,
    open: Option<Open>,
    looked_at: f64,
    /// When writing is tried again, if it has stopped.
    retry_at: f64,
    /// Numberings that have ended, which is not written yet.
    ends: Vec<(Arc<Numbering>, u64)>,
}

/// The segment in progress.
struct Open {
    number: u64,
    recording: Recording<SegmentSink>,
    index: File,
    /// `None` for what cannot be written.
    streams: HashMap<Arc<Numbering>, Option<Stream>>,
    begun: f64,
    has_unsynced: bool,
    /// Chunks that were written but cannot be read yet, with the bytes up to their ends.
    unsealed: VecDeque<(u64, Stored)>,
    /// When what is not sealed yet is, in an encrypted segment.
    seal_at: f64,
    entries: u64,
}

/// A chunk in the segment.
struct Stored {
    numbering: Arc<Numbering>,
    info: Arc<StreamInfo>,
    entry: Entry,
}

/// A numbering in the segment.
struct Stream {
    id: u32,
    generation: GenerationId,
    /// Number behind the last sample that is kept, in this segment or before.
    next: u64,
    codec: FrameCodec,
    /// Memory for the samples of a chunk.
    stamps: Vec<f64>,
    raw: Vec<u8>,
    values: Values,
}

impl Writer<'_> {
    fn samples(&mut self, samples: &Samples) {
        let is_stopped = self.history.state().stopped.is_some();
        let written = if is_stopped {
            Ok(false)
        } else {
            self.write(samples)
        };
        match written {
            Ok(true) => {}
            Ok(false) => self.history.lose(&samples.numbering, samples.frames.count),
            Err(error) => {
                self.history.lose(&samples.numbering, samples.frames.count);
                self.stop(&error);
            }
        }
    }

    fn over(&mut self, numbering: Arc<Numbering>, end: Option<u64>) {
        let mut state = self.history.state();
        if let Some(end) = end {
            state.catalog.note_end(&numbering, end);
        }
        state.change_live(&numbering, |live| {
            live.outlets = live.outlets.saturating_sub(1);
        });
        drop(state);
        if let Some(open) = self.open.as_mut().filter(|it| !it.unsealed.is_empty()) {
            // Until it can be read it is not over.
            open.seal_at = 0.0;
        }
        self.ends.extend(end.map(|end| (numbering, end)));
    }

    /// Writes down where streams ended whose last samples are lost.
    fn write_ends(&mut self) {
        for (numbering, end) in std::mem::take(&mut self.ends) {
            let (is_cut, is_live) = {
                let mut state = self.history.state();
                let is_live = state.live.contains_key(&numbering);
                (state.catalog.note_end(&numbering, end), is_live)
            };
            let is_stopped = self.history.state().stopped.is_some();
            if is_live || is_cut && is_stopped {
                self.ends.push((numbering, end));
            } else if is_cut && let Err(error) = self.write_end(&numbering, end) {
                self.ends.push((numbering, end));
                self.stop(&error);
            }
        }
    }

    fn write_end(&mut self, numbering: &Arc<Numbering>, end: u64) -> io::Result<()> {
        let open = match self.open.take() {
            Some(open) => open,
            None => Open::create(self.history)?,
        };
        let open = self.open.insert(open);
        open.write_end(self.history, numbering, end)
    }

    /// Writes samples. Returns whether they are kept: not those of a stream that no file can have.
    fn write(&mut self, samples: &Samples) -> io::Result<bool> {
        let open = match self.open.take() {
            Some(open) => open,
            None => Open::create(self.history)?,
        };
        let open = self.open.insert(open);
        let is_kept = open.write(self.history, samples)?;
        let (most_bytes, _) = self.history.limits().of_segment();
        if open.recording.len() >= most_bytes {
            self.close();
        }
        Ok(is_kept)
    }

    fn offset(&mut self, numbering: &Numbering, time: f64, value: f64) {
        let Some(open) = &mut self.open else {
            return;
        };
        if let Some(Some(stream)) = open.streams.get(numbering) {
            let written = (open.recording).clock_offset(stream.id, time, value, local_clock());
            match written.map_err(failed) {
                Err(error) if error.kind() != io::ErrorKind::InvalidData => self.stop(&error),
                _ => {}
            }
        }
    }

    /// Does what is due: syncs, begins another segment, lets old ones go, tries again.
    fn look(&mut self) {
        let now = local_clock();
        self.looked_at = now;
        let (_, most_secs) = self.history.limits().of_segment();
        if self
            .open
            .as_ref()
            .is_some_and(|open| now - open.begun >= most_secs)
        {
            self.close();
        }
        if let Some(open) = &mut self.open
            && let Err(error) = open.sync(now)
        {
            return self.stop(&error);
        }
        if let Some(open) = &mut self.open {
            open.publish(self.history);
        }
        self.write_ends();
        let is_full = self.let_go();
        let is_stopped = self.history.state().stopped.is_some();
        if is_full && !is_stopped {
            self.stop(&io::ErrorKind::StorageFull.into());
        } else if is_stopped && now >= self.retry_at {
            self.retry_at = now + RETRY_SECS;
            if !is_full {
                self.history.state().stopped = None;
                tracing::info!("history goes on in {}", self.history.folder.display());
            }
        }
    }

    /// Removes the segments that go. Returns whether there is too little room even then.
    fn let_go(&self) -> bool {
        let history = self.history;
        // The function looks at the folder of a file.
        let free = lsl_platform::disk::free_space(&history.folder.join("x"));
        let (stored, open_bytes) = history.state().catalog.stored();
        let plan = plan(&stored, open_bytes, free, &history.limits(), local_clock());
        for number in plan.remove {
            let name = history.state().catalog.remove(number);
            let Some(name) = name else {
                continue;
            };
            let path = history.folder.join(name.to_string());
            remove(&[
                &history.folder.join(name.index()),
                &journal_path(&path),
                &path,
            ]);
        }
        plan.is_full
    }

    fn close(&mut self) {
        let Some(mut open) = self.open.take() else {
            return;
        };
        if let Err(error) = open.recording.finish(local_clock()) {
            tracing::warn!("history: a segment is not finished: {error}");
        }
        open.publish(self.history);
        for (
            _,
            Stored {
                numbering, entry, ..
            },
        ) in open.unsealed
        {
            self.history.lose(&numbering, entry.count.into());
        }
        self.history
            .state()
            .catalog
            .close(open.number, local_clock());
    }

    /// Stops for a while. What was written stays.
    fn stop(&mut self, error: &io::Error) {
        self.close();
        let folder = &self.history.folder;
        let free = lsl_platform::disk::free_space(&folder.join("x"));
        let reason = match (error.kind(), free) {
            (io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded, Some(free)) => {
                #[expect(clippy::cast_precision_loss, reason = "for people")]
                let free = free as f64 / f64::from(1 << 30);
                format!("no room on {} ({free:.1} GiB free)", folder.display())
            }
            _ => format!("{}: {error}", folder.display()),
        };
        tracing::warn!("history stopped: {reason}; live goes on");
        self.history.state().stopped = Some(reason);
        self.retry_at = local_clock() + RETRY_SECS;
    }
}

impl Open {
    fn create(history: &History) -> io::Result<Self> {
        let now = lsl_platform::clock::utc_now();
        let begun = rfc3339(Duration::from_secs(now.as_secs()));
        let number = history.state().catalog.last_number().unwrap_or(0) + 1;
        let name = SegmentName::new(&begun, number, history.recipients.is_some());
        let path = history.folder.join(name.to_string());
        let head = FileHeader::new(&begun.replace('Z', "+0000"));
        let recording = Self::record(history, &path, &head);
        let index = history.folder.join(name.index());
        let opened = recording.map_err(io::Error::other).and_then(|recording| {
            let file = OpenOptions::new().append(true).create(true).open(&index)?;
            Ok((recording, file))
        });
        // Every few seconds there may be another try.
        let failed = |_: &io::Error| remove(&[&index, &journal_path(&path), &path]);
        let (recording, index) = opened.inspect_err(failed)?;
        if let Some(trouble) = recording.journal_trouble() {
            tracing::warn!("history: a crash may cost more than the last second: {trouble}");
        }
        history.state().catalog.insert(Segment::open(name));
        Ok(Self {
            number,
            recording,
            index,
            streams: HashMap::new(),
            begun: local_clock(),
            has_unsynced: false,
            unsealed: VecDeque::new(),
            seal_at: f64::INFINITY,
            entries: 0,
        })
    }

    fn record(
        history: &History,
        path: &Path,
        head: &FileHeader,
    ) -> Result<Recording<SegmentSink>, Box<dyn std::error::Error + Send + Sync>> {
        let now = local_clock();
        let file = claim(path)?.file;
        // What is reserved is taken from what others, and `min_free`, have.
        let (most_bytes, _) = history.limits().of_segment();
        let sink = |file| FileSink::new(file).reserving(most_bytes / 16);
        let sink = match &history.recipients {
            None => SegmentSink::Plain(sink(file)),
            Some(recipients) => SegmentSink::Locked {
                file: sink(file.try_clone()?),
                output: Box::new(Encrypting::new(file, recipients)?),
            },
        };
        let mut recording = Recording::new(sink, head, now)?;
        recording.mark_unfinished(path);
        Ok(recording)
    }

    fn write(&mut self, history: &History, samples: &Samples) -> io::Result<bool> {
        let now = local_clock();
        let numbering = &samples.numbering;
        if !self.streams.contains_key(numbering) {
            let added = match self.add_stream(history, numbering, &samples.info, now) {
                // Whoever describes a stream so stops no other.
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                    tracing::warn!("history cannot keep {numbering:?}: {error}");
                    None
                }
                added => Some(added?),
            };
            self.streams.insert(Arc::clone(numbering), added);
        }
        let Some(Some(stream)) = self.streams.get_mut(numbering) else {
            return Ok(false);
        };
        let mut frames = &samples.frames;
        let rest;
        if frames.first < stream.next {
            // A rule let go of the stream for a while, or its source sent again what waited here.
            let new = frames.starting_at(stream.next, &stream.codec);
            rest = new.map_err(io::Error::other)?;
            frames = &rest;
        }
        if frames.count == 0 {
            history.settle(numbering);
            return Ok(true);
        }
        stream.stamps.clear();
        stream.raw.clear();
        stream.values.clear();
        let Stream { stamps, raw, .. } = stream;
        let decoded = stream.codec.decode(frames, stamps, raw);
        decoded.map_err(io::Error::other)?;
        stream.values.extend_from_raw(raw);
        let count = u32::try_from(frames.count).map_err(io::Error::other)?;
        let numbers = Numbers {
            stream: stream.id,
            generation: stream.generation,
            first: frames.first,
            count,
            arrival: samples.arrival,
        };
        let chunk = (NUMBERS_TAG, &*numbers.to_bytes());
        let (id, values) = (stream.id, &stream.values);
        let offset = (self.recording).samples_behind(chunk, id, &stream.stamps, values, now);
        stream.next = frames.end();
        let entry = Entry {
            stream: id,
            count,
            first: frames.first,
            offset: offset.map_err(failed)?,
            arrival: samples.arrival,
        };
        self.note(&entry)?;
        let stored = Stored {
            numbering: Arc::clone(numbering),
            info: Arc::clone(&samples.info),
            entry,
        };
        self.unsealed.push_back((self.recording.len(), stored));
        self.publish(history);
        Ok(true)
    }

    /// Lets what can be read now be found.
    fn publish(&mut self, history: &History) {
        let readable = self.recording.sink().readable_bytes();
        let count = self.unsealed.partition_point(|(end, _)| *end <= readable);
        for (_, stored) in self.unsealed.drain(..count) {
            let stream = (&stored.numbering, &stored.info);
            (history.state().catalog).add(self.number, stream, &stored.entry);
            history.settle(&stored.numbering);
        }
        let bytes = self.bytes();
        if let Some(segment) = history.state().catalog.segment_mut(self.number) {
            segment.bytes = bytes;
        }
    }

    /// Writes down that a stream ended before this number, and that what is missing before it is lost.
    fn write_end(
        &mut self,
        history: &History,
        numbering: &Arc<Numbering>,
        end: u64,
    ) -> io::Result<()> {
        let now = local_clock();
        let known = {
            let state = history.state();
            let known = state.catalog.newest(&numbering.uid);
            known.map(|(_, info)| Arc::clone(info))
        };
        let Some(info) = known else {
            return Ok(());
        };
        if !self.streams.contains_key(numbering) {
            let added = self.add_stream(history, numbering, &info, now)?;
            self.streams.insert(Arc::clone(numbering), Some(added));
        }
        let Some(Some(stream)) = self.streams.get(numbering) else {
            return Ok(());
        };
        let numbers = Numbers {
            stream: stream.id,
            generation: stream.generation,
            first: end,
            count: 0,
            arrival: unix_now(),
        };
        // A boundary of its own may stand before it.
        self.recording.tick(now).map_err(failed)?;
        let offset = self.recording.len();
        let written = (self.recording).private(NUMBERS_TAG, &numbers.to_bytes(), now);
        written.map_err(failed)?;
        self.note(&Entry {
            stream: numbers.stream,
            count: 0,
            first: end,
            offset,
            arrival: numbers.arrival,
        })
    }

    /// Writes the header of a numbering.
    ///
    /// # Errors
    /// Those of the system, and `InvalidData` if no file can have such a stream.
    fn add_stream(
        &mut self,
        history: &History,
        numbering: &Numbering,
        info: &StreamInfo,
        now: f64,
    ) -> io::Result<Stream> {
        let header = header::of(numbering, info).map_err(failed)?;
        let none = || io::Error::new(io::ErrorKind::InvalidData, "a stream without format");
        let values = Values::new(header.channel_format()).ok_or_else(none)?;
        // A boundary of its own may stand before it.
        self.recording.tick(now).map_err(failed)?;
        let offset = self.recording.len();
        let id = self.recording.add_stream(&header, now).map_err(failed)?;
        self.note(&Entry {
            stream: id,
            count: 0,
            first: 0,
            offset,
            arrival: as_arrival(numbering),
        })?;
        let kept = history.state().catalog.range(numbering, true);
        Ok(Stream {
            id,
            generation: GenerationId::of(&numbering.generation),
            next: kept.map_or(0, |kept| kept.end),
            codec: FrameCodec::new(info),
            stamps: Vec::new(),
            raw: Vec::new(),
            values,
        })
    }

    /// Adds an entry to the index.
    fn note(&mut self, entry: &Entry) -> io::Result<()> {
        self.has_unsynced = true;
        self.entries += 1;
        self.index.write_all(&entry.to_bytes())
    }

    fn bytes(&self) -> u64 {
        self.recording.len() + self.entries * crate::history::ENTRY_BYTES as u64
    }

    /// Brings what was written to the disk.
    fn sync(&mut self, now: f64) -> io::Result<()> {
        let is_due = !self.unsealed.is_empty() && now >= self.seal_at;
        if !std::mem::take(&mut self.has_unsynced) && !is_due {
            return Ok(());
        }
        let unsealed = self.recording.sink().bytes_to_seal();
        if unsealed == 0 {
            self.seal_at = now + SEAL_SECS;
        } else if now >= self.seal_at {
            self.seal_at = now + SEAL_SECS;
            let padding = vec![0; unsealed];
            (self.recording.private(PADDING_TAG, &padding, now)).map_err(failed)?;
        } else {
            self.seal_at = self.seal_at.min(now + SEAL_SECS);
        }
        self.recording.sync().map_err(failed)
    }
}

/// Tells a full disk, and what no file can have, from other failures.
fn failed(error: lsl_xdf::Error) -> io::Error {
    let kind = match error.kind() {
        lsl_xdf::ErrorKind::Full => io::ErrorKind::StorageFull,
        lsl_xdf::ErrorKind::Argument => io::ErrorKind::InvalidData,
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, error)
}

const LOOK_SECS: f64 = 1.0;

/// Time in seconds after which writing is tried again. Spec: relay §9.
const RETRY_SECS: f64 = 5.0;

/// Time in seconds for which data of an encrypted segment may wait for its block.
const SEAL_SECS: f64 = 10.0;
