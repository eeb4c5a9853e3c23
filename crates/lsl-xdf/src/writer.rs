//! Recording in progress: chunks are appended whole or not at all, counted, and closed by footers. Knows
//! neither a clock (the caller passes the time) nor a thread.
//!
//! These hold at any time, whatever happens. The output is a sequence of whole chunks, except that the very
//! last one may be cut. Everything before a successful [`Recording::sync`] is on the disk. After an error
//! of an append nothing of it counts. Spec: recorder §3.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::chunk::MAGIC;
use crate::encode::{self, SampleEncoder};
use crate::integrity::{self, Chain, Signer};
use crate::journal::{Journal, JournalState, JournalStream, JournalWrite};
use crate::place::{self, claim};
use crate::sink::{FileSink, Sink, SyncJob};
use crate::stream::{FileHeader, Gap, StreamFooter, StreamHeader, Tally};
use crate::values::Values;
use crate::{Error, ErrorKind, Result};

/// Longest time between boundaries, in seconds.
const BOUNDARY_SECS: f64 = 10.0;

/// Bytes after which a boundary is due: with one more chunk there is one every 512 KiB. The search of pyxdf
/// misses some, in steps of 1 MiB that do not overlap.
const BOUNDARY_BYTES: u64 = 384 << 10;

/// Bytes of samples in one chunk.
const CHUNK_BYTES: usize = 128 << 10;

/// Recording into a file, or another [`Sink`].
///
/// ```
/// # use lsl_proto as lsl_core;
/// use lsl_core::ChannelFormat;
/// use lsl_xdf::{FileHeader, PipeSink, Recording, StreamHeader};
///
/// let header = FileHeader::new("2026-11-22T08:31:56+0000");
/// let mut recording = Recording::new(PipeSink(Vec::new()), &header, 0.0)?;
/// let eeg = StreamHeader::new("EEG", "EEG", 2, 250.0, ChannelFormat::Float32)?;
/// let eeg = recording.add_stream(&eeg, 0.0)?;
/// recording.clock_offset(eeg, 17.0, -0.003, 0.1)?;
/// recording.samples(eeg, &[17.0, 17.004], &vec![1.0_f32, 2.0, 3.0, 4.0].into(), 0.5)?;
/// recording.sync()?;
/// recording.finish(1.0)?;
/// let bytes = recording.into_sink().0;
/// assert_eq!(lsl_xdf::load(&bytes[..])?.streams[0].stamps, [17.0, 17.004]);
/// # Ok::<(), lsl_xdf::Error>(())
/// ```
#[derive(Debug)]
pub struct Recording<S> {
    sink: S,
    /// Length of the output in bytes, whole chunks only.
    len: u64,
    streams: BTreeMap<u32, WrittenStream>,
    /// Time of the last boundary, and bytes since.
    boundary_at: f64,
    since_boundary: u64,
    /// Reason why nothing more can be written.
    ended: Option<String>,
    /// Whether the last byte is written.
    is_sealed: bool,
    finished: bool,
    journal: Option<Journal>,
    /// Journal of `mark_unfinished`, which has no entries.
    mark: Option<Journal>,
    journal_trouble: Option<String>,
    path: Option<PathBuf>,
    moved: Option<PathBuf>,
    /// Bytes of room that the footers will need.
    footer_bytes: u64,
    buffer: Vec<u8>,
    /// Bytes written so far, until it is known whether they are signed.
    head: Vec<u8>,
    chain: Option<Chain>,
}

#[derive(Debug)]
struct WrittenStream {
    encoder: SampleEncoder,
    tally: Tally,
    extra: Vec<(String, String)>,
    /// Number of gaps with reserved room in the footer.
    safe_gaps: usize,
    is_closed: bool,
}

impl Recording<FileSink> {
    /// Creates a recording in a new file, with folders and a journal. A file of this name is renamed, see
    /// [`moved`](Self::moved). `now` is the time in seconds, by any clock that goes on evenly.
    ///
    /// # Errors
    /// [`Error::Argument`] for a path without name, [`Error::Path`] and [`Error::Io`] of the system.
    pub fn create(path: &Path, header: &FileHeader, now: f64) -> Result<Self> {
        let claimed = claim(path)?;
        let mut recording = Self::new(FileSink::new(claimed.file), header, now)?;
        recording.moved = claimed.moved;
        match Journal::create(path) {
            Ok(journal) => recording.journal = Some(journal),
            Err(error) => recording.journal_trouble = Some(error.to_string()),
        }
        place::sync_folder_of(path).map_err(Error::path("make", path))?;
        recording.path = Some(path.to_owned());
        Ok(recording)
    }
}

impl<S: Sink> Recording<S> {
    /// Creates a recording in a sink that is empty. There is no journal.
    ///
    /// # Errors
    /// [`Error::Argument`] for a header that is too long, [`Error::Io`] of the sink.
    pub fn new(sink: S, header: &FileHeader, now: f64) -> Result<Self> {
        let mut recording = Self {
            sink,
            len: 0,
            streams: BTreeMap::new(),
            boundary_at: now,
            since_boundary: 0,
            ended: None,
            is_sealed: false,
            finished: false,
            journal: None,
            mark: None,
            journal_trouble: None,
            path: None,
            moved: None,
            footer_bytes: 0,
            buffer: Vec::new(),
            head: Vec::new(),
            chain: None,
        };
        let mut bytes = MAGIC.to_vec();
        encode::file_header(&mut bytes, header)?;
        recording.append(&bytes)?;
        recording.head = bytes;
        Ok(recording)
    }

    /// Keeps a journal beside the file at `path` until the recording is finished, as a sign that it is not.
    /// It has no entries: for sinks that cannot tell the part of a recording that reached the disk.
    pub fn mark_unfinished(&mut self, path: &Path) {
        match Journal::create(path) {
            Ok(mark) => self.mark = Some(mark),
            Err(error) => self.journal_trouble = Some(error.to_string()),
        }
    }

    /// Signs the recording from its first byte on, see [`integrity`](crate::integrity). Links come every MiB,
    /// at the end and, as long as something is appended or [`tick`](Self::tick) is called, every ten seconds.
    ///
    /// # Errors
    /// [`Error::Argument`] once something was appended.
    pub fn sign_with(&mut self, signer: Box<dyn Signer>, now: f64) -> Result<()> {
        if self.head.is_empty() || self.chain.is_some() {
            let text = "a recording is signed from its begin or not at all";
            return Err(Error::Argument(text.to_owned()));
        }
        self.chain = Some(Chain::new(signer, &self.head, now));
        // Room for the last link.
        self.footer_bytes += integrity::CHUNK_LEN;
        Ok(())
    }

    /// Adds a stream and returns its number. A stream that was lost and returns keeps its number: a second
    /// header would make readers forget the first samples.
    ///
    /// # Errors
    /// [`Error::Io`] and [`Error::Ended`]; the stream is not there then.
    pub fn add_stream(&mut self, header: &StreamHeader, now: f64) -> Result<u32> {
        let id = self.streams.last_key_value().map_or(0, |(&last, _)| last);
        let Some(id) = id.checked_add(1) else {
            return Err(Error::Argument("too many streams".to_owned()));
        };
        self.add_stream_as(id, header, now)?;
        Ok(id)
    }

    /// Adds a stream with a given number that is not in use.
    pub(crate) fn add_stream_as(&mut self, id: u32, header: &StreamHeader, now: f64) -> Result<()> {
        let stream = WrittenStream {
            encoder: SampleEncoder::new(id, header),
            tally: Tally::default(),
            extra: Vec::new(),
            safe_gaps: 0,
            is_closed: false,
        };
        self.begin(now);
        encode::stream_header(&mut self.buffer, id, header)?;
        self.footer_bytes += stream.tally.footer_len();
        self.flush(now)
            .inspect_err(|_| self.footer_bytes -= Tally::default().footer_len())?;
        self.streams.insert(id, stream);
        Ok(())
    }

    /// Appends samples with the timestamps that the stream gave them; many of them become several chunks.
    ///
    /// # Errors
    /// [`Error::Argument`] if they do not fit the stream, [`Error::Io`] and [`Error::Ended`]. None of
    /// them is in the file then: unless it is `Ended`, the same call may be made again.
    pub fn samples(&mut self, id: u32, stamps: &[f64], values: &Values, now: f64) -> Result<()> {
        self.begin(now);
        self.append_samples(id, stamps, values, CHUNK_BYTES, now)
    }

    /// Appends samples, all of them as one chunk, behind a private one that says more of them; both or none. Returns
    /// where the private chunk begins.
    ///
    /// # Errors
    /// As [`samples`](Self::samples) and [`private`](Self::private).
    pub fn samples_behind(
        &mut self,
        (tag, content): (u16, &[u8]),
        id: u32,
        stamps: &[f64],
        values: &Values,
        now: f64,
    ) -> Result<u64> {
        self.begin(now);
        let at = self.len + self.buffer.len() as u64;
        encode::private(&mut self.buffer, tag, content)?;
        self.append_samples(id, stamps, values, usize::MAX, now)?;
        Ok(at)
    }

    /// Appends samples, in chunks of about so many bytes, to what is in the buffer, and writes that.
    fn append_samples(
        &mut self,
        id: u32,
        stamps: &[f64],
        values: &Values,
        chunk_bytes: usize,
        now: f64,
    ) -> Result<()> {
        let mut since = if self.buffer.is_empty() {
            self.since_boundary
        } else {
            0
        };
        let stream = open_stream(&mut self.streams, id)?;
        stream.encoder.check(stamps, values)?;
        let mut done = 0;
        while done < stamps.len() {
            let before = self.buffer.len() as u64;
            if since >= BOUNDARY_BYTES {
                encode::boundary(&mut self.buffer);
                since = 0;
            }
            let (encoder, buffer) = (&mut stream.encoder, &mut self.buffer);
            done += encoder.chunk(buffer, stamps, values, done, chunk_bytes)?;
            since += self.buffer.len() as u64 - before;
        }
        if stamps.is_empty() {
            return Ok(());
        }
        self.flush(now)?;
        self.since_boundary = self.since_boundary.min(since);
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.tally.count(stamps);
        }
        Ok(())
    }

    /// Appends a measured clock offset. `value` is added to the stream's clock to get the recorder's;
    /// `time` is the stream's clock when it was measured.
    ///
    /// # Errors
    /// [`Error::Argument`] for an unknown stream and for numbers that are not finite, [`Error::Io`] and
    /// [`Error::Ended`]. It is not in the file then.
    pub fn clock_offset(&mut self, id: u32, time: f64, value: f64, now: f64) -> Result<()> {
        if !(time.is_finite() && value.is_finite()) {
            let text = format!("{value} at {time} is no clock offset");
            return Err(Error::Argument(text));
        }
        open_stream(&mut self.streams, id)?;
        self.begin(now);
        encode::clock_offset(&mut self.buffer, id, time, value);
        self.flush(now)?;
        self.count(id, |tally| tally.count_offset(time, value));
        Ok(())
    }

    /// Adds a gap to the footer; nothing is written yet.
    ///
    /// # Errors
    /// [`Error::Argument`] for an unknown stream.
    pub fn gap(&mut self, id: u32, gap: Gap) -> Result<()> {
        open_stream(&mut self.streams, id)?;
        self.count(id, |tally| tally.count_gap(gap));
        // Reserve now, before the disk is full. If it is full already, the footer lists the gaps that fit.
        if self.sink.reserve(self.len + self.footer_bytes).is_ok()
            && let Some(stream) = self.streams.get_mut(&id)
        {
            stream.safe_gaps = stream.tally.gaps.len();
        }
        Ok(())
    }

    /// Adds an element of text to the footer (`utc`, `writer`); nothing is written yet.
    ///
    /// # Errors
    /// [`Error::Argument`] for an unknown stream.
    pub fn note(&mut self, id: u32, name: &str, text: &str) -> Result<()> {
        let stream = open_stream(&mut self.streams, id)?;
        stream.extra.retain(|(known, _)| known != name);
        stream.extra.push((name.to_owned(), text.to_owned()));
        self.footer_bytes += 6 * text.len() as u64 + 2 * name.len() as u64 + 10;
        Ok(())
    }

    fn count(&mut self, id: u32, count: impl FnOnce(&mut Tally)) {
        if let Some(stream) = self.streams.get_mut(&id) {
            let before = stream.tally.footer_len();
            count(&mut stream.tally);
            self.footer_bytes += stream.tally.footer_len() - before;
        }
    }

    /// Appends a private chunk, which other readers skip.
    ///
    /// # Errors
    /// [`Error::Argument`] for a tag that is not private, [`Error::Io`] and [`Error::Ended`]. It is
    /// not in the file then.
    pub fn private(&mut self, tag: u16, content: &[u8], now: f64) -> Result<()> {
        self.begin(now);
        encode::private(&mut self.buffer, tag, content)?;
        self.flush(now)
    }

    /// Writes a boundary if ten seconds have passed without one. Every append does the same.
    ///
    /// # Errors
    /// [`Error::Io`] and [`Error::Ended`].
    pub fn tick(&mut self, now: f64) -> Result<()> {
        self.begin(now);
        if self.buffer.is_empty() {
            self.link_if_due(now);
            return Ok(());
        }
        self.flush(now)
    }

    /// Syncs everything appended so far, so that it survives a loss of power, and records that in the
    /// journal. Blocks as long as the disk does; [`begin_sync`](Self::begin_sync) lets another thread wait.
    ///
    /// # Errors
    /// [`Error::Io`]: the disk may have lost data written since the last time, so the recording has ended.
    /// [`Error::Ended`].
    pub fn sync(&mut self) -> Result<()> {
        let done = self.begin_sync()?.run();
        self.end_sync(done)
    }

    /// Begins a [`sync`](Self::sync) that [`PendingSync::run`] waits for, on any thread. Its result must be
    /// passed to [`end_sync`](Self::end_sync). One at a time.
    ///
    /// # Errors
    /// [`Error::Io`] and [`Error::Ended`].
    pub fn begin_sync(&mut self) -> Result<PendingSync> {
        self.refuse_if_ended()?;
        let data = self.sink.sync_job();
        let data = data.map_err(|error| self.end("sync the recording", error))?;
        let state = self.journal_state();
        let journal = self.journal.as_mut().map(|journal| journal.entry(&state));
        Ok(PendingSync { data, journal })
    }

    /// Records the result of a [`PendingSync`].
    ///
    /// # Errors
    /// [`Error::Io`] if it failed; the recording has ended then.
    pub fn end_sync(&mut self, synced: Synced) -> Result<()> {
        if let Some(trouble) = synced.journal_trouble {
            self.journal_trouble = Some(trouble);
        }
        synced
            .data
            .map_err(|error| self.end("sync the recording", error))
    }

    fn journal_state(&self) -> JournalState {
        let streams = self.streams.iter().map(|(&id, stream)| JournalStream {
            stream: id,
            samples: stream.tally.samples,
            first: stream.tally.first.unwrap_or(f64::NAN),
            last: stream.tally.last.unwrap_or(f64::NAN),
            offsets: u32::try_from(stream.tally.offset_count).unwrap_or(u32::MAX),
        });
        JournalState {
            len: self.len,
            stream_count: u32::try_from(self.streams.len()).unwrap_or(u32::MAX),
            streams: streams.collect(),
        }
    }

    /// Writes the footer of a stream that will not return.
    ///
    /// # Errors
    /// [`Error::Argument`] if there is no such stream or it has its footer, [`Error::Io`] and
    /// [`Error::Ended`]; the footer is not in the file then.
    pub fn close_stream(&mut self, id: u32, now: f64) -> Result<()> {
        let stream = open_stream(&mut self.streams, id)?;
        let safe_gaps = (stream.safe_gaps < stream.tally.gaps.len()).then_some(stream.safe_gaps);
        // From here on the footer uses the room that was kept for it.
        let kept = std::mem::take(&mut self.footer_bytes);
        let mut done = self.footer(id, usize::MAX, now);
        if let (Err(error), Some(safe_gaps)) = (&done, safe_gaps)
            && error.kind() == ErrorKind::Full
        {
            // A footer with some gaps left out is better than none.
            done = self.footer(id, safe_gaps, now);
        }
        self.footer_bytes = kept;
        done?;
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.is_closed = true;
            self.footer_bytes = kept.saturating_sub(stream.tally.footer_len());
        }
        Ok(())
    }

    /// Appends a footer that lists at most `gaps` gaps.
    fn footer(&mut self, id: u32, gaps: usize, now: f64) -> Result<()> {
        let stream = open_stream(&mut self.streams, id)?;
        let mut footer = if gaps < stream.tally.gaps.len() {
            let mut shorter = stream.tally.clone();
            shorter.gaps.truncate(gaps);
            StreamFooter::new(&shorter)
        } else {
            StreamFooter::new(&stream.tally)
        };
        for (name, text) in &stream.extra {
            footer.set(name, text);
        }
        self.begin(now);
        encode::stream_footer(&mut self.buffer, id, &footer)?;
        self.flush(now)
    }

    /// Writes the missing footers and a boundary, syncs everything and deletes the journal. After an error
    /// it may be called again, unless that was [`Error::Ended`].
    ///
    /// # Errors
    /// [`Error::Io`] and [`Error::Ended`]. The file can be repaired then.
    pub fn finish(&mut self, now: f64) -> Result<()> {
        if self.finished {
            return Ok(());
        }
        let open = self.streams.iter().filter(|(_, stream)| !stream.is_closed);
        let open: Vec<u32> = open.map(|(&id, _)| id).collect();
        let mut first_error = None;
        for id in open {
            // A footer that does not fit must not prevent the others.
            if let Err(error) = self.close_stream(id, now) {
                first_error.get_or_insert(error);
            }
        }
        if let Some(error) = first_error {
            return Err(error);
        }
        if !self.is_sealed {
            self.begin(now);
            if self.buffer.is_empty() {
                encode::boundary(&mut self.buffer);
            }
            self.flush(now)?;
            if let Some(link) = self.chain.as_ref().map(Chain::last_link) {
                self.append(&link)?;
            }
            // A second try would write behind the last link.
            self.is_sealed = true;
        }
        if let Err(source) = self.sink.close(self.len) {
            let error = Error::io("close the recording")(source);
            // After a lack of room it can be repeated; after other errors the disk may have lost data.
            if error.kind() != ErrorKind::Full {
                self.ended = Some(error.to_string());
            }
            return Err(error);
        }
        self.finished = true;
        for journal in self.journal.take().into_iter().chain(self.mark.take()) {
            if let Err(error) = journal.delete() {
                self.journal_trouble = Some(error.to_string());
            }
        }
        Ok(())
    }

    /// Returns the sink, finished or not.
    pub fn into_sink(self) -> S {
        self.sink
    }

    /// Borrows the sink of the recording.
    pub fn sink(&self) -> &S {
        &self.sink
    }

    /// Returns the bytes in whole chunks so far.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Returns whether nothing is written, which is never so.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the counts of a stream so far.
    pub fn tally(&self, id: u32) -> Option<&Tally> {
        self.streams.get(&id).map(|stream| &stream.tally)
    }

    /// Returns the path of the file; `None` for other sinks.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Returns the new path of the file that had this name before.
    pub fn moved(&self) -> Option<&Path> {
        self.moved.as_deref()
    }

    /// Returns the last error of the journal, which never hinders the recording.
    pub fn journal_trouble(&self) -> Option<&str> {
        self.journal_trouble.as_deref()
    }

    /// Returns the reason why nothing more can be written.
    pub fn ended(&self) -> Option<&str> {
        self.ended.as_deref()
    }

    /// Begins a buffer, with a boundary if one is due.
    fn begin(&mut self, now: f64) {
        self.buffer.clear();
        let is_due = now - self.boundary_at >= BOUNDARY_SECS;
        if self.since_boundary > 0 && (is_due || self.since_boundary >= BOUNDARY_BYTES) {
            encode::boundary(&mut self.buffer);
        }
    }

    /// Appends the buffer, and a link if one is due.
    fn flush(&mut self, now: f64) -> Result<()> {
        let buffer = std::mem::take(&mut self.buffer);
        let done = self.append(&buffer);
        if done.is_ok() {
            // A boundary from `begin` stands at the front.
            let mut boundary = Vec::new();
            encode::boundary(&mut boundary);
            if buffer.starts_with(&boundary) {
                self.boundary_at = now;
                self.since_boundary = 0;
            }
            self.since_boundary += buffer.len() as u64;
        }
        self.buffer = buffer;
        // A long footer should not stay in memory.
        self.buffer.clear();
        self.buffer.shrink_to(8 * CHUNK_BYTES);
        if done.is_ok() {
            self.link_if_due(now);
        }
        done
    }

    fn refuse_if_ended(&self) -> Result<()> {
        match &self.ended {
            Some(reason) => Err(Error::Ended(reason.clone())),
            None if self.finished => Err(Error::Ended("it is finished".to_owned())),
            None if self.is_sealed => Err(Error::Ended("it is about to be closed".to_owned())),
            None => Ok(()),
        }
    }

    fn end(&mut self, doing: &'static str, source: std::io::Error) -> Error {
        let error = Error::io(doing)(source);
        self.ended = Some(error.to_string());
        error
    }

    /// Appends bytes, all or none.
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.refuse_if_ended()?;
        let end = self.len + bytes.len() as u64;
        // Keeps room for the footers, so that a full disk does not leave a file without them.
        self.sink
            .reserve(end + self.footer_bytes)
            .map_err(Error::io("write the recording"))?;
        let mut rest = bytes;
        while !rest.is_empty() {
            let error = match self.sink.write(rest) {
                Ok(0) => std::io::ErrorKind::WriteZero.into(),
                Ok(written) => {
                    rest = rest.get(written..).unwrap_or_default();
                    continue;
                }
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => error,
            };
            if let Err(stuck) = self.sink.rewind(self.len) {
                let reason = format!("{error}, and what was half written stays: {stuck}");
                self.ended = Some(reason);
            }
            return Err(Error::io("write the recording")(error));
        }
        self.len = end;
        match &mut self.chain {
            Some(chain) => chain.wrote(bytes),
            // It is too late to begin a chain.
            None => self.head = Vec::new(),
        }
        Ok(())
    }

    /// Appends a link of the chain, if one is due. After a failure it stays due.
    fn link_if_due(&mut self, now: f64) {
        let link = self.chain.as_ref().and_then(|chain| chain.due_link(now));
        if let Some(link) = link
            && self.append(&link).is_ok()
            && let Some(chain) = &mut self.chain
        {
            chain.linked(now);
        }
    }
}

fn open_stream(streams: &mut BTreeMap<u32, WrittenStream>, id: u32) -> Result<&mut WrittenStream> {
    match streams.get_mut(&id) {
        None => Err(Error::Argument(format!("there is no stream {id}"))),
        Some(stream) if stream.is_closed => {
            Err(Error::Argument(format!("stream {id} has its footer")))
        }
        Some(stream) => Ok(stream),
    }
}

/// Data on its way to the disk.
pub struct PendingSync {
    data: SyncJob,
    journal: Option<JournalWrite>,
}

impl std::fmt::Debug for PendingSync {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PendingSync").finish_non_exhaustive()
    }
}

impl PendingSync {
    /// Waits for the disk. The journal is written only after the data.
    pub fn run(self) -> Synced {
        let data = (self.data)();
        let journal = match self.journal {
            Some(entry) if data.is_ok() => entry.write(),
            _ => Ok(()),
        };
        Synced {
            data,
            journal_trouble: journal.err().map(|error| error.to_string()),
        }
    }
}

/// Result of a completed [`PendingSync`].
#[derive(Debug)]
#[must_use = "an error ends the recording: give it to `end_sync`"]
pub struct Synced {
    data: std::io::Result<()>,
    journal_trouble: Option<String>,
}
