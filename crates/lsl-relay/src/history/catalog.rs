//! Which numbers of which streams lie in which segment. Spec: relay §9.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use lsl_proto::StreamInfo;

use super::index::Entry;
use super::plan::Stored;
use super::{Numbering, SegmentName};
use crate::book::Uid;

/// All segments of a folder, and the streams in them.
#[derive(Debug, Default)]
pub struct Catalog {
    segments: BTreeMap<u64, Segment>,
    streams: HashMap<Uid, Known>,
}

/// A stream of which something is kept.
#[derive(Debug)]
struct Known {
    info: Arc<StreamInfo>,
    /// Its newest numbering.
    numbering: Arc<Numbering>,
    /// Number behind its last sample, kept or lost, as far as it is known.
    end: u64,
}

/// A segment.
#[derive(Debug)]
pub struct Segment {
    /// Name of its file.
    pub name: SegmentName,
    /// Bytes that it takes, with its index.
    pub bytes: u64,
    parts: HashMap<Arc<Numbering>, Part>,
    /// Entries of each stream, while the segment is written.
    open: Option<HashMap<u32, Vec<Entry>>>,
    written: f64,
}

/// Samples of one numbering in a segment. Numbers may be missing in between.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Part {
    /// Number of the stream in the segment.
    pub stream: u32,
    /// Number of the first sample.
    pub first: u64,
    /// Number behind the last one.
    pub end: u64,
    /// Times at which the first sample of the first and of the last chunk arrived, in seconds since 1970.
    pub arrived: (f64, f64),
}

/// What is kept of one numbering.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Range {
    /// Number of the first sample.
    pub first: u64,
    /// Number behind the last one.
    pub end: u64,
    /// Times at which the first sample of the first and of the last chunk arrived, in seconds since 1970.
    pub arrived: (f64, f64),
}

/// Place of samples that are looked for.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    /// Segment that has the first of them.
    pub segment: SegmentName,
    /// Number of the stream in it.
    pub stream: u32,
    /// Chunk that has it; `None` if the index of the segment says.
    pub entry: Option<Entry>,
    /// Number behind the last sample of this numbering in the segment.
    pub end: u64,
}

impl Segment {
    /// Creates a segment that is about to be written.
    pub fn open(name: SegmentName) -> Self {
        Self {
            open: Some(HashMap::new()),
            ..Self::closed(name, 0, 0.0)
        }
    }

    /// Creates a segment that was written last at this time of a clock that nobody sets.
    pub fn closed(name: SegmentName, bytes: u64, written: f64) -> Self {
        Self {
            name,
            bytes,
            parts: HashMap::new(),
            open: None,
            written,
        }
    }

    /// Adds samples of a numbering, behind all that were added of it.
    fn add(&mut self, numbering: &Arc<Numbering>, entry: &Entry) {
        let part = Part {
            stream: entry.stream,
            first: entry.first,
            end: entry.end(),
            arrived: (entry.arrival, entry.arrival),
        };
        let known = self.parts.entry(Arc::clone(numbering)).or_insert(part);
        known.end = entry.end();
        known.arrived.1 = entry.arrival;
        if let Some(open) = &mut self.open {
            open.entry(entry.stream).or_default().push(*entry);
        }
    }
}

impl Catalog {
    /// Adds a segment; one of the same number is replaced.
    pub fn insert(&mut self, segment: Segment) {
        self.segments.insert(segment.name.number, segment);
    }

    /// Adds samples of a numbering to a segment, behind all that were added of it. It is the newest of its stream.
    pub fn add(
        &mut self,
        number: u64,
        (numbering, info): (&Arc<Numbering>, &Arc<StreamInfo>),
        entry: &Entry,
    ) {
        if let Some(segment) = self.segments.get_mut(&number) {
            segment.add(numbering, entry);
        }
        match self.streams.get_mut(&numbering.uid) {
            Some(known) if known.numbering == *numbering => known.end = known.end.max(entry.end()),
            _ => {
                let known = Known {
                    info: Arc::clone(info),
                    numbering: Arc::clone(numbering),
                    end: entry.end(),
                };
                self.streams.insert(Uid::clone(&numbering.uid), known);
            }
        }
    }

    /// Notes that a numbering had samples up to a number. Returns whether some that are not kept come behind all that
    /// are.
    pub fn note_end(&mut self, numbering: &Numbering, end: u64) -> bool {
        let known = self.streams.get_mut(&numbering.uid);
        let Some(known) = known.filter(|known| *known.numbering == *numbering) else {
            return false;
        };
        known.end = known.end.max(end);
        let kept = self.range(numbering, true);
        kept.is_some_and(|kept| kept.end < end)
    }

    /// Changes a segment.
    pub fn segment_mut(&mut self, number: u64) -> Option<&mut Segment> {
        self.segments.get_mut(&number)
    }

    /// Notes that a segment is written no more, at this time of a clock that nobody sets.
    pub fn close(&mut self, number: u64, now: f64) {
        if let Some(segment) = self.segments.get_mut(&number) {
            segment.open = None;
            segment.written = now;
        }
    }

    /// Removes a segment, and the streams of which nothing else is kept.
    pub fn remove(&mut self, number: u64) -> Option<SegmentName> {
        let removed = self.segments.remove(&number)?;
        for numbering in removed.parts.keys() {
            let newest = self.streams.get(&numbering.uid).map(|it| &it.numbering);
            let is_kept = |it: &Segment| newest.is_some_and(|of| it.parts.contains_key(of));
            if !self.segments.values().any(is_kept) {
                self.streams.remove(&numbering.uid);
            }
        }
        Some(removed.name)
    }

    /// Returns the closed segments, oldest first, and the bytes of the others.
    pub fn stored(&self) -> (Vec<Stored>, u64) {
        let (mut stored, mut open_bytes) = (Vec::new(), 0);
        for segment in self.segments.values() {
            if segment.open.is_some() {
                open_bytes += segment.bytes;
            } else {
                stored.push(Stored {
                    number: segment.name.number,
                    bytes: segment.bytes,
                    written: segment.written,
                });
            }
        }
        (stored, open_bytes)
    }

    /// Returns the largest number of a segment.
    pub fn last_number(&self) -> Option<u64> {
        self.segments.last_key_value().map(|(number, _)| *number)
    }

    /// Returns the number of segments.
    pub fn len(&self) -> usize {
        self.segments.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    /// Returns all streams of which something is kept, with the newest numbering of each.
    pub fn streams(&self) -> impl Iterator<Item = (&Arc<Numbering>, &Arc<StreamInfo>)> {
        (self.streams.values()).map(|known| (&known.numbering, &known.info))
    }

    /// Returns the newest numbering of a stream, and its document.
    pub fn newest(&self, uid: &str) -> Option<(&Arc<Numbering>, &Arc<StreamInfo>)> {
        let known = self.streams.get(uid)?;
        Some((&known.numbering, &known.info))
    }

    /// Returns the number behind the last sample of the newest numbering of a stream, kept or lost.
    pub fn end(&self, uid: &str) -> Option<u64> {
        self.streams.get(uid).map(|known| known.end)
    }

    /// Returns what is kept of a numbering; in encrypted segments only if those can be read.
    pub fn range(&self, numbering: &Numbering, reads_locked: bool) -> Option<Range> {
        let mut parts = self.parts(numbering, reads_locked).map(|(_, part)| part);
        let first = parts.next()?;
        let last = parts.last().unwrap_or(first);
        Some(Range {
            first: first.first,
            end: last.end,
            arrived: (first.arrived.0, last.arrived.1),
        })
    }

    fn parts(
        &self,
        numbering: &Numbering,
        reads_locked: bool,
    ) -> impl Iterator<Item = (&Segment, &Part)> {
        let segments = self.segments.values();
        let segments = segments.filter(move |it| reads_locked || !it.name.is_locked);
        segments.filter_map(move |it| Some((it, it.parts.get(numbering)?)))
    }

    /// Finds the first samples at or after a number and before another.
    pub fn find(
        &self,
        numbering: &Numbering,
        (from, until): (u64, u64),
        reads_locked: bool,
    ) -> Option<Found> {
        let mut parts = self.parts(numbering, reads_locked);
        let (segment, part) = parts.find(|(_, part)| part.end > from)?;
        if part.first >= until {
            return None;
        }
        let entry = match &segment.open {
            Some(open) => Some(*first_behind(open.get(&part.stream)?, from)?),
            None => None,
        };
        Some(Found {
            segment: segment.name.clone(),
            stream: part.stream,
            entry: entry.filter(|entry| entry.first < until),
            end: part.end,
        })
        .filter(|found| segment.open.is_none() || found.entry.is_some())
    }

    /// Finds the segment with the last chunk of a numbering that began to arrive at a time or before; the first one if
    /// all came later, and `None` if nothing is kept.
    pub fn find_arrival(
        &self,
        numbering: &Numbering,
        at: f64,
        reads_locked: bool,
    ) -> Option<Found> {
        let mut parts = self.parts(numbering, reads_locked).peekable();
        let mut found = *parts.peek()?;
        for part in parts.take_while(|(_, part)| part.arrived.0 <= at) {
            found = part;
        }
        let (segment, part) = found;
        let entry = (segment.open.as_ref())
            .and_then(|open| last_arrived(open.get(&part.stream)?, at).copied());
        Some(Found {
            segment: segment.name.clone(),
            stream: part.stream,
            entry,
            end: part.end,
        })
    }
}

/// Returns the first of a stream's entries that has samples at or after a number.
pub fn first_behind(entries: &[Entry], from: u64) -> Option<&Entry> {
    entries.get(entries.partition_point(|entry| entry.end() <= from))
}

/// Returns the last of a stream's entries that began to arrive at a time or before, or the first.
pub fn last_arrived(entries: &[Entry], at: f64) -> Option<&Entry> {
    let behind = entries.partition_point(|entry| entry.arrival <= at);
    entries.get(behind.saturating_sub(1))
}

#[cfg(test)]
mod tests {
    use lsl_proto::ChannelFormat;

    use super::*;

    fn name(number: u64, is_locked: bool) -> SegmentName {
        SegmentName::new("2026-11-22T08:31:56Z", number, is_locked)
    }

    fn numbering(uid: &str) -> Arc<Numbering> {
        let (uid, generation) = (uid.into(), "0-a".into());
        Arc::new(Numbering { uid, generation })
    }

    fn entry(first: u64, count: u32, arrival: f64) -> Entry {
        Entry {
            stream: 1,
            count,
            first,
            offset: first,
            arrival,
        }
    }

    /// Two closed segments with 0..100 and 200..300, and an open one with 300..320 and 400..420.
    fn catalog() -> (Catalog, Arc<Numbering>) {
        let (mut catalog, a) = (Catalog::default(), numbering("a"));
        let info = StreamInfo::new("a", "", 1, 0.0, ChannelFormat::Int8, "a").expect("an info");
        let stream = (&a, &Arc::new(info));
        for (number, first, arrival) in [(5, 0, 0.0), (7, 200, 200.0)] {
            catalog.insert(Segment::closed(
                name(number, number == 5),
                50,
                arrival + 90.0,
            ));
            catalog.add(number, stream, &entry(first, 60, arrival));
            catalog.add(number, stream, &entry(first + 60, 40, arrival + 60.0));
        }
        catalog.insert(Segment::open(name(8, false)));
        catalog.add(8, stream, &entry(300, 20, 300.0));
        catalog.add(8, stream, &entry(400, 20, 400.0));
        (catalog, a)
    }

    #[test]
    fn samples_are_found_by_number() {
        let (catalog, a) = catalog();
        let find = |from, until| {
            let found = catalog.find(&a, (from, until), true);
            found.map(|it| (it.segment.number, it.entry.map(|entry| entry.first)))
        };
        assert_eq!(find(0, u64::MAX), Some((5, None)));
        assert_eq!(find(100, u64::MAX), Some((7, None)));
        assert_eq!(find(299, u64::MAX), Some((7, None)));
        assert_eq!(find(100, 200), None);
        assert_eq!(find(300, u64::MAX), Some((8, Some(300))));
        assert_eq!(find(320, u64::MAX), Some((8, Some(400))));
        assert_eq!(find(320, 400), None);
        assert_eq!(find(420, u64::MAX), None);
        assert_eq!(catalog.find(&numbering("b"), (0, 9), true), None);
        let range = catalog.range(&a, true).expect("some");
        assert_eq!(
            (range.first, range.end, range.arrived),
            (0, 420, (0.0, 400.0))
        );
        // Without the key of what is encrypted.
        assert_eq!(catalog.range(&a, false).map(|it| it.first), Some(200));
    }

    #[test]
    fn samples_are_found_by_arrival() {
        let (catalog, a) = catalog();
        let find = |at| {
            let found = catalog.find_arrival(&a, at, true);
            found.map(|it| (it.segment.number, it.entry.map(|entry| entry.first)))
        };
        assert_eq!(find(-5.0), Some((5, None)));
        assert_eq!(find(199.0), Some((5, None)));
        assert_eq!(find(200.0), Some((7, None)));
        assert_eq!(find(399.0), Some((8, Some(300))));
        assert_eq!(find(1e9), Some((8, Some(400))));
        let entries = [entry(0, 5, 1.0), entry(5, 5, 2.0)];
        let first = |at| last_arrived(&entries, at).map(|entry| entry.first);
        assert_eq!(
            [first(0.0), first(1.9), first(2.0)],
            [Some(0), Some(0), Some(5)]
        );
    }

    #[test]
    fn streams_go_with_their_last_segment_and_the_open_one_is_told_apart() {
        let (mut catalog, a) = catalog();
        let (stored, _) = catalog.stored();
        let numbers: Vec<_> = stored.iter().map(|it| (it.number, it.written)).collect();
        assert_eq!(numbers, [(5, 90.0), (7, 290.0)]);
        for number in [5, 7] {
            assert!(catalog.remove(number).is_some() && catalog.newest("a").is_some());
        }
        assert_eq!(catalog.range(&a, true).map(|it| it.first), Some(300));
        catalog.close(8, 500.0);
        assert_eq!(
            catalog.find(&a, (0, 500), true).map(|it| it.entry),
            Some(None)
        );
        assert!(catalog.remove(8).is_some() && catalog.newest("a").is_none());
        assert!(catalog.is_empty());
    }

    #[test]
    fn samples_that_were_lost_behind_all_that_are_kept_are_known() {
        let (mut catalog, a) = catalog();
        assert_eq!(catalog.end("a"), Some(420));
        assert!(!catalog.note_end(&a, 420) && catalog.note_end(&a, 450));
        assert_eq!(catalog.end("a"), Some(450));
        assert_eq!(catalog.range(&a, true).map(|it| it.end), Some(420));
        // It is of another stream, or none of this one's newest.
        assert!(!catalog.note_end(&numbering("b"), 9) && catalog.end("b").is_none());
        // They came after all.
        let stream = (&a, &Arc::clone(&catalog.streams["a"].info));
        catalog.add(8, stream, &entry(420, 60, 420.0));
        assert_eq!(catalog.end("a"), Some(480));
    }
}
