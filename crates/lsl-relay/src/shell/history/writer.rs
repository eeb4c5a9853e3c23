//! The thread that owns the segment in progress. Spec: relay §9.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use lsl_core::relay::{FrameCodec, Frames};
use lsl_core::{StreamInfo, local_clock};
use lsl_platform::calendar::rfc3339;
use lsl_xdf::at_rest::{Encrypting, Recipients};
use lsl_xdf::chunk::{NUMBERS_TAG, PADDING_TAG};
use lsl_xdf::{
    FileHeader, FileSink, Recording, Sink, StreamHeader, SyncJob, Values, claim, journal_path,
};
use tokio::sync::mpsc::Receiver;

use super::folder::remove;
use super::{History, unix_now};
use crate::history::{
    Entry, GENERATION_ELEMENT, GenerationId, Numbering, Numbers, Segment, SegmentName, plan,
};

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
    /// No more samples of a numbering come: what was sent before is all.
    Over(Arc<Numbering>),
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
            Job::Over(numbering) => history.state().leave(&numbering),
            Job::Look => {}
        }
        if local_clock() - writer.looked_at >= LOOK_SECS {
            writer.look();
        }
    }
    writer.close();
}

struct Writer<'a> {
    history: &'a History,
    open: Option<Open>,
    looked_at: f64,
    /// When writing is tried again, if it has stopped.
    retry_at: f64,
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
    /// When what is not sealed yet is, in an encrypted segment.
    seal_at: f64,
    entries: u64,
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
            Ok(false) => self.drop_samples(samples),
            Err(error) => {
                self.drop_samples(samples);
                self.stop(&error);
            }
        }
    }

    fn drop_samples(&self, samples: &Samples) {
        let dropped = &self.history.dropped;
        dropped.fetch_add(samples.frames.count, Ordering::Relaxed);
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
        let plan = plan(&stored, open_bytes, free, &history.limits(), unix_now());
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
        let Some(open) = self.open.take() else {
            return;
        };
        let number = open.number;
        if let Err(error) = open.finish() {
            tracing::warn!("history: a segment is not finished: {error}");
        }
        self.history.state().catalog.close(number);
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
        let recording = Self::record(&path, history.recipients.as_ref(), &head);
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
            seal_at: f64::INFINITY,
            entries: 0,
        })
    }

    fn record(
        path: &Path,
        recipients: Option<&Recipients>,
        head: &FileHeader,
    ) -> Result<Recording<SegmentSink>, Box<dyn std::error::Error + Send + Sync>> {
        let now = local_clock();
        let file = claim(path)?.file;
        let sink = match recipients {
            None => SegmentSink::Plain(FileSink::new(file)),
            Some(recipients) => SegmentSink::Locked {
                file: FileSink::new(file.try_clone()?),
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
            let added = match self.add_stream(history, samples, now) {
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
        let bytes = self.bytes();
        let mut state = history.state();
        if let Some(segment) = state.catalog.segment_mut(self.number) {
            segment.add(numbering, &entry);
            segment.bytes = bytes;
        }
        Ok(true)
    }

    /// Writes the header of a numbering.
    ///
    /// # Errors
    /// Those of the system, and `InvalidData` if no file can have such a stream.
    fn add_stream(&mut self, history: &History, samples: &Samples, now: f64) -> io::Result<Stream> {
        let Samples {
            numbering, info, ..
        } = samples;
        let mut header = StreamHeader::from_info(info).map_err(failed)?;
        header.set(GENERATION_ELEMENT, &numbering.generation);
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
            arrival: 0.0,
        })?;
        let mut state = history.state();
        state.catalog.know(numbering, Arc::clone(info));
        let kept = state.catalog.range(numbering, true);
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
        if !std::mem::take(&mut self.has_unsynced) {
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

    fn finish(mut self) -> Result<(), lsl_xdf::Error> {
        self.recording.finish(local_clock())
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

/// File of a segment.
enum SegmentSink {
    Plain(FileSink),
    Locked {
        output: Box<Encrypting<File>>,
        /// Handle of the same file, for all but its content.
        file: FileSink,
    },
}

impl SegmentSink {
    fn file(&mut self) -> &mut FileSink {
        match self {
            Self::Plain(file) | Self::Locked { file, .. } => file,
        }
    }

    /// Returns how many bytes are to be written until all is sealed.
    fn bytes_to_seal(&self) -> usize {
        match self {
            Self::Plain(_) => 0,
            Self::Locked { output, .. } => output.bytes_to_seal(),
        }
    }
}

impl Sink for SegmentSink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(file) => file.write(bytes),
            Self::Locked { output, .. } => output.write(bytes),
        }
    }

    fn rewind(&mut self, len: u64) -> io::Result<()> {
        match self {
            Self::Plain(file) => file.rewind(len),
            // A call that failed took nothing.
            Self::Locked { output, .. } if output.accepted_bytes() == len => Ok(()),
            Self::Locked { .. } => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    fn reserve(&mut self, len: u64) -> io::Result<()> {
        // More than what encryption adds.
        self.file().reserve(len + len / 1024 + (16 << 10))
    }

    fn sync_job(&mut self) -> io::Result<SyncJob> {
        self.file().sync_job()
    }

    fn close(&mut self, len: u64) -> io::Result<()> {
        match self {
            Self::Plain(file) => file.close(len),
            Self::Locked { output, file } => {
                output.try_finish()?;
                file.close(output.output_bytes())
            }
        }
    }
}

const LOOK_SECS: f64 = 1.0;

/// Time in seconds after which writing is tried again. Spec: relay §9.
const RETRY_SECS: f64 = 5.0;

/// Time in seconds for which data of an encrypted segment may wait for its block.
const SEAL_SECS: f64 = 10.0;
