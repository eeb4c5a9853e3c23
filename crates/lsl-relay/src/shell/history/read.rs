//! Reads the past from segments, on threads that may wait for the disk. Spec: relay §9.

use std::io;
use std::sync::Arc;

use lsl_core::relay::{FrameCodec, Frames, ReadPast, ReadingPast};
use lsl_core::{Error, Result};
use lsl_xdf::chunk::{NUMBERS_TAG, Tag};
use lsl_xdf::{Decoder, StreamHeader};
use tokio::task::spawn_blocking;

use super::History;
use super::folder::{Input, read_index};
use crate::history::{
    Entry, Found, Numbering, Numbers, SegmentName, first_behind, last_arrived, parse_index,
    read_chunk,
};

/// Reads one numbering.
#[derive(Debug)]
pub(super) struct PastReader {
    history: Arc<History>,
    numbering: Numbering,
    cursor: Option<Cursor>,
}

/// Segment that is read.
#[derive(Debug)]
struct Cursor {
    segment: SegmentName,
    stream: u32,
    input: Input,
    /// Entries of the stream in a segment that is written no more.
    entries: Option<Vec<Entry>>,
    decoder: Decoder,
    codec: FrameCodec,
}

impl PastReader {
    pub(super) fn new(history: Arc<History>, numbering: Numbering) -> Self {
        Self {
            history,
            numbering,
            cursor: None,
        }
    }
}

impl PastReader {
    /// Reads what is on the disk. Also returns the number up to which nothing there can be read.
    async fn read_next(&mut self, mut from: u64, until: u64) -> Result<(Option<Frames>, u64)> {
        // Not for longer: a peer that takes little would keep others waiting, who get nothing live meanwhile.
        let places = Arc::clone(&self.history.places);
        let place = places.acquire_owned().await;
        let (history, numbering) = (Arc::clone(&self.history), self.numbering.clone());
        let mut cursor = self.cursor.take();
        let reading = spawn_blocking(move || {
            let frames = read(&history, &numbering, &mut cursor, &mut from, until);
            // Here: a reader that leaves does not end what waits for the disk.
            drop(place);
            (frames, from, cursor)
        });
        let ended = |_| Error::Argument("the reader of the history was ended".into());
        let (frames, from, cursor) = reading.await.map_err(ended)?;
        self.cursor = cursor;
        Ok((frames, from))
    }
}

impl ReadPast for PastReader {
    fn read(&mut self, from: u64, until: u64) -> ReadingPast<'_> {
        Box::pin(async move {
            loop {
                // Before it looks: it is told of what is written after this.
                let history = Arc::clone(&self.history);
                let written = history.written.notified();
                let queued = history.queued_from(&self.numbering);
                let (frames, from) = self.read_next(from, until).await?;
                // What is still on its way to the disk is not missing.
                let is_coming = queued.is_some_and(|queued| queued <= from);
                if frames.is_some() || !is_coming {
                    return Ok(frames);
                }
                written.await;
            }
        })
    }
}

/// Reads the first samples from a number on and before another that can be read. Chunks that cannot are passed over,
/// which `from` tells.
fn read(
    history: &History,
    numbering: &Numbering,
    cursor: &mut Option<Cursor>,
    from: &mut u64,
    until: u64,
) -> Option<Frames> {
    loop {
        let range = (*from, until);
        let found = history
            .state()
            .catalog
            .find(numbering, range, history.reads_locked())?;
        if cursor.as_ref().is_none_or(|it| !it.is_at(&found)) {
            *cursor = None;
            match Cursor::open(history, numbering, &found) {
                Ok(opened) => *cursor = Some(opened),
                Err(error) => {
                    tracing::warn!("segment {} of the history: {error}", found.segment);
                    *from = found.end.max(*from);
                    continue;
                }
            }
        }
        let cursor = cursor.as_mut()?;
        let entry = match (found.entry, &cursor.entries) {
            (Some(entry), _) => Some(entry),
            (None, Some(entries)) => first_behind(entries, *from).copied(),
            (None, None) => None,
        };
        let Some(entry) = entry else {
            *from = found.end.max(*from);
            continue;
        };
        if entry.first >= until {
            return None;
        }
        match cursor.read(&entry, *from) {
            Ok(frames) if frames.count > 0 => return Some(frames),
            Ok(_) => {}
            Err(error) => tracing::warn!("segment {} of the history: {error}", found.segment),
        }
        *from = entry.end().max(*from);
    }
}

/// Returns the number of the first sample that came at this time or later, in seconds since 1970; of an irregular
/// stream the first of its chunk.
pub(super) fn since(history: &History, numbering: &Numbering, at: f64) -> Option<u64> {
    let (found, info) = {
        let state = history.state();
        let found = (state.catalog).find_arrival(numbering, at, history.reads_locked())?;
        let (_, info) = state.catalog.newest(&numbering.uid)?;
        (found, Arc::clone(info))
    };
    let entry = match found.entry {
        Some(entry) => entry,
        None => *last_arrived(&entries(history, &found).ok()?, at)?,
    };
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "not negative, and limited"
    )]
    let passed = ((at - entry.arrival).max(0.0) * info.nominal_srate()) as u64;
    Some(entry.first + passed.min(entry.count.into()))
}

/// Reads the entries of one stream in a segment that is written no more.
fn entries(history: &History, found: &Found) -> io::Result<Vec<Entry>> {
    let path = history.folder.join(found.segment.to_string());
    let index = history.folder.join(found.segment.index());
    let mut entries = parse_index(&read_index(&path, &index)?);
    entries.retain(|entry| entry.stream == found.stream && entry.count > 0);
    Ok(entries)
}

impl Cursor {
    fn open(history: &History, numbering: &Numbering, found: &Found) -> io::Result<Self> {
        let gone = || io::Error::other("nothing is known of its stream");
        let info = {
            let state = history.state();
            let (_, info) = state.catalog.newest(&numbering.uid).ok_or_else(gone)?;
            Arc::clone(info)
        };
        let path = history.folder.join(found.segment.to_string());
        let identities = history.identities.as_ref();
        let header = StreamHeader::from_info(&info).map_err(io::Error::other)?;
        let mut decoder = Decoder::new();
        decoder.declare(found.stream, &header);
        Ok(Self {
            segment: found.segment.clone(),
            stream: found.stream,
            input: Input::open(&path, found.segment.is_locked, identities)?,
            entries: match found.entry {
                Some(_) => None,
                None => Some(entries(history, found)?),
            },
            decoder,
            codec: FrameCodec::new(&info),
        })
    }

    /// Whether it has what was found; not if that is to be looked for in the index, which was not read.
    fn is_at(&self, found: &Found) -> bool {
        let is_same = self.segment == found.segment && self.stream == found.stream;
        is_same && (found.entry.is_some() || self.entries.is_some())
    }

    /// Reads the samples of a chunk from a number on.
    fn read(&mut self, entry: &Entry, from: u64) -> io::Result<Frames> {
        self.input.seek(entry.offset)?;
        let numbers = self.chunk(Tag::Other(NUMBERS_TAG))?;
        let is_it = |it: Numbers| it.stream == entry.stream && it.first == entry.first;
        if !Numbers::parse(&numbers).is_some_and(is_it) {
            return Err(io::Error::other(
                "a chunk has not the numbers that the index says",
            ));
        }
        let samples = self.chunk(Tag::Samples)?;
        let batch = samples
            .get(4..)
            .and_then(|content| self.decoder.adopt(entry.stream, content))
            .ok_or_else(|| io::Error::other("a chunk of samples is damaged"))?;
        let count = batch.stamps.len().min(entry.count as usize);
        let skipped = from.saturating_sub(entry.first);
        let skipped = usize::try_from(skipped).unwrap_or(usize::MAX).min(count);
        let channels = batch.values.len() / batch.stamps.len().max(1);
        let mut raw = Vec::new();
        (batch.values).append_raw(skipped * channels..count * channels, &mut raw);
        let mut frames = Frames {
            first: entry.first + skipped as u64,
            ..Frames::default()
        };
        let stamps = batch.stamps.get(skipped..count).unwrap_or_default();
        let encoded: Result<()> = self.codec.encode(stamps, &raw, &mut frames);
        encoded.map_err(io::Error::other)?;
        Ok(frames)
    }

    /// Reads the content of the next chunk, which is of this kind.
    fn chunk(&mut self, tag: Tag) -> io::Result<Vec<u8>> {
        match read_chunk(&mut self.input, MAX_CHUNK_BYTES)? {
            Some((found, content)) if found == tag => Ok(content),
            _ => Err(io::Error::other("a chunk is not what the index says")),
        }
    }
}

/// Bytes of the largest chunk that is read: one sample, if that is larger than 64 KiB.
const MAX_CHUNK_BYTES: u64 = 512 << 20;
