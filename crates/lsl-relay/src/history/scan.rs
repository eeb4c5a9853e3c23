//! Finds the chunks of a segment that an index has. Spec: relay §9.

use std::io::{self, ErrorKind, Read};

use lsl_xdf::chunk::{Head, NUMBERS_TAG, Parsed, Tag, read_head, read_varlen};
use lsl_xdf::decode::MAX_WHOLE_BYTES;

use super::index::Entry;
use super::numbers::{NUMBERS_BYTES, Numbers};

/// Returns the entries of the chunks that `input` gives, which begins with a chunk at `offset`; up to the first that
/// is cut off or none. Samples that were numbered and are not there, or not all of them, are told by an entry of an
/// end. `header` is told the content of each header, of one that is too long its beginning. Memory does not depend on
/// what lengths claim.
///
/// # Errors
/// Those of the input, but not its end.
pub fn scan(
    mut input: impl Read,
    offset: u64,
    mut header: impl FnMut(&[u8]),
) -> io::Result<Vec<Entry>> {
    let mut entries = Vec::new();
    let mut at = offset;
    let mut numbers: Option<(u64, Numbers)> = None;
    loop {
        match chunk(&mut input, at, &mut numbers, &mut header) {
            Ok(Some((len, found))) => {
                entries.extend(found.into_iter().flatten());
                at += len;
            }
            Err(error) if error.kind() != ErrorKind::UnexpectedEof => return Err(error),
            Ok(None) | Err(_) => {
                entries.extend(numbers.and_then(end));
                return Ok(entries);
            }
        }
    }
}

/// Returns the entry of numbers whose samples are not there.
fn end((offset, numbers): (u64, Numbers)) -> Option<Entry> {
    let entry = Entry {
        stream: numbers.stream,
        count: 0,
        first: numbers.first + u64::from(numbers.count),
        offset,
        arrival: numbers.arrival,
    };
    (!entry.is_header()).then_some(entry)
}

/// Reads one chunk at `at`. Returns its length, and the entries that it completes; `None` if it is no chunk.
fn chunk(
    input: &mut impl Read,
    at: u64,
    numbers: &mut Option<(u64, Numbers)>,
    header: &mut impl FnMut(&[u8]),
) -> io::Result<Option<(u64, [Option<Entry>; 2])>> {
    let Some((head, len)) = head(input)? else {
        return Ok(None);
    };
    let mut content = input.take(head.content_len);
    let (mut lost, mut entry) = (numbers.and_then(end), None);
    let (mut next, mut text) = (None, Vec::new());
    match head.tag {
        Tag::StreamHeader => {
            let fits = head.content_len <= MAX_WHOLE_BYTES as u64;
            let most = if fits { head.content_len } else { 4 };
            content.by_ref().take(most).read_to_end(&mut text)?;
            entry = Some(Entry {
                stream: stream(&mut &text[..])?,
                count: 0,
                first: 0,
                offset: at,
                arrival: 0.0,
            });
        }
        Tag::Other(NUMBERS_TAG) if head.content_len == NUMBERS_BYTES as u64 => {
            let mut bytes = [0; NUMBERS_BYTES];
            content.read_exact(&mut bytes)?;
            next = Numbers::parse(&bytes).map(|it| (at, it));
        }
        Tag::Samples => {
            let stream = stream(&mut content)?;
            let samples = varlen(&mut content)?;
            // A repair may have left fewer than were written.
            let count = |it: &Numbers| it.count.min(u32::try_from(samples).unwrap_or(u32::MAX));
            let is_its = |(_, it): &(u64, Numbers)| it.stream == stream && count(it) > 0;
            if let Some((offset, it)) = numbers.filter(is_its) {
                lost = None;
                entry = Some(Entry {
                    stream,
                    count: count(&it),
                    first: it.first,
                    offset,
                    arrival: it.arrival,
                });
            }
        }
        _ => {}
    }
    let left = content.limit();
    if io::copy(&mut content, &mut io::sink())? < left {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    *numbers = next;
    if head.tag == Tag::StreamHeader {
        header(&text);
    }
    Ok(Some((len + head.content_len, [lost, entry])))
}

/// Reads the whole chunk that `input` gives next: its kind and its content of at most `most` bytes. `None` for no
/// chunk, or a longer one.
///
/// # Errors
/// Those of the input, its end included.
pub fn read_chunk(input: &mut impl Read, most: u64) -> io::Result<Option<(Tag, Vec<u8>)>> {
    let Some((head, _)) = head(input)?.filter(|(head, _)| head.content_len <= most) else {
        return Ok(None);
    };
    let mut content = Vec::new();
    // Grows with what is there.
    let read = input.take(head.content_len).read_to_end(&mut content)?;
    if (read as u64) < head.content_len {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    Ok(Some((head.tag, content)))
}

/// Reads the head of a chunk; its length in bytes is told, too.
fn head(input: &mut impl Read) -> io::Result<Option<(Head, u64)>> {
    parsed(input, read_head)
}

fn varlen(input: &mut impl Read) -> io::Result<u64> {
    let read = parsed(input, read_varlen)?;
    let (value, _) = read.ok_or_else(|| io::Error::from(ErrorKind::UnexpectedEof))?;
    Ok(value)
}

/// Reads bytes until they make something.
fn parsed<T>(
    input: &mut impl Read,
    parse: impl Fn(&[u8]) -> Parsed<T>,
) -> io::Result<Option<(T, u64)>> {
    let mut bytes = Vec::new();
    loop {
        match parse(&bytes) {
            Parsed::Done(value, len) => return Ok(Some((value, len as u64))),
            Parsed::Bad(_) => return Ok(None),
            Parsed::Need(need) => {
                let begin = bytes.len();
                bytes.resize(need.max(begin + 1), 0);
                input.read_exact(bytes.get_mut(begin..).unwrap_or_default())?;
            }
        }
    }
}

fn stream(content: &mut impl Read) -> io::Result<u32> {
    let mut bytes = [0; 4];
    content.read_exact(&mut bytes)?;
    Ok(u32::from_le_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use lsl_proto::ChannelFormat;
    use lsl_xdf::{FileHeader, PipeSink, Recording, StreamHeader};

    use super::super::numbers::GenerationId;
    use super::*;

    /// A segment with two streams, and its entries.
    fn segment() -> (Vec<u8>, Vec<Entry>) {
        let header = FileHeader::new("2026-11-22T08:31:56+0000");
        let mut recording = Recording::new(PipeSink(Vec::new()), &header, 0.0).expect("a file");
        let mut entries = Vec::new();
        let mut ids = Vec::new();
        for name in ["a", "b"] {
            let offset = recording.len();
            let header = StreamHeader::new(name, "", 1, 0.0, ChannelFormat::Int16).expect("header");
            let stream = recording.add_stream(&header, 0.0).expect("a stream");
            ids.push(stream);
            entries.push(Entry {
                stream,
                count: 0,
                first: 0,
                offset,
                arrival: 0.0,
            });
        }
        for n in 0..20_u32 {
            let stream = ids[n as usize % 2];
            let numbers = Numbers {
                stream,
                generation: GenerationId::of("0-a"),
                first: u64::from(n) * 100,
                count: n + 1,
                arrival: f64::from(n),
            };
            let stamps = vec![f64::from(n); n as usize + 1];
            let values = vec![7_i16; stamps.len()].into();
            // Boundaries stand between.
            let now = f64::from(n) * 6.0;
            let chunk = (NUMBERS_TAG, &*numbers.to_bytes());
            let offset = recording.samples_behind(chunk, stream, &stamps, &values, now);
            entries.push(Entry {
                stream,
                count: numbers.count,
                first: numbers.first,
                offset: offset.expect("samples"),
                arrival: numbers.arrival,
            });
        }
        recording.finish(200.0).expect("an end");
        (recording.into_sink().0, entries)
    }

    #[test]
    fn what_was_written_is_found_from_any_chunk_on() {
        let (file, entries) = segment();
        assert_eq!(scan(&file[4..], 4, |_| ()).expect("no error"), entries);
        for (n, entry) in entries.iter().enumerate() {
            let from = usize::try_from(entry.offset).expect("small");
            let found = scan(&file[from..], entry.offset, |_| ()).expect("no error");
            assert_eq!(found, entries[n..], "{n}");
        }
    }

    #[test]
    fn what_takes_more_room_in_a_file_than_in_memory_is_one_chunk_too() {
        let header = FileHeader::new("2026-11-22T08:31:56+0000");
        let mut recording = Recording::new(PipeSink(Vec::new()), &header, 0.0).expect("a file");
        // Stamps of irregular streams are always written, and equal ones take no room in frames.
        let header = StreamHeader::new("a", "", 1, 0.0, ChannelFormat::Int8).expect("header");
        let stream = recording.add_stream(&header, 0.0).expect("a stream");
        let numbers = Numbers {
            stream,
            generation: GenerationId::of("0-a"),
            first: 7,
            count: 32_000,
            arrival: 1.0,
        };
        let (stamps, values) = (vec![5.0; 32_000], vec![7_i8; 32_000].into());
        let chunk = (NUMBERS_TAG, &*numbers.to_bytes());
        let written = recording.samples_behind(chunk, stream, &stamps, &values, 0.0);
        let file = recording.into_sink().0;
        let found = scan(&file[4..], 4, |_| ()).expect("no error");
        let expected = Entry {
            stream,
            count: 32_000,
            first: 7,
            offset: written.expect("samples"),
            arrival: 1.0,
        };
        assert_eq!(found.last(), Some(&expected));
    }

    #[test]
    fn a_cut_costs_the_chunk_that_is_cut() {
        let (file, entries) = segment();
        for cut in 4..file.len() {
            let mut found = scan(&file[4..cut], 4, |_| ()).expect("no error");
            // What was numbered before the cut is known to be lost.
            let end = found.pop_if(|it| it.count == 0 && !it.is_header());
            assert_eq!(found, entries[..found.len()], "{cut}");
            let is_there = |it: &&Entry| it.offset < cut as u64;
            let missing = &entries[found.len()..entries.iter().filter(is_there).count()];
            assert!(missing.len() <= 1, "{cut}");
            if let Some(end) = end {
                let numbered = missing.iter().map(|it| (it.offset, it.stream, it.end()));
                assert!(numbered.eq([(end.offset, end.stream, end.first)]), "{cut}");
            }
            let behind = entries
                .iter()
                .map(|it| it.offset + 4 + NUMBERS_BYTES as u64);
            let is_numbered = behind.skip(2).any(|it| it == cut as u64);
            assert!(end.is_some() || !is_numbered, "{cut}");
        }
    }

    #[test]
    fn numbers_without_samples_tell_of_an_end() {
        let (file, entries) = segment();
        let last = entries.last().expect("some");
        let at = usize::try_from(last.offset).expect("small");
        let numbers = &file[at..at + 4 + NUMBERS_BYTES];
        let (middle, end) = (
            [numbers, &file[at..]].concat(),
            [numbers, &file[4..]].concat(),
        );
        let found = scan(&middle[..], last.offset, |_| ()).expect("no error");
        assert_eq!((found[0].count, found[0].first), (0, last.end()));
        assert_eq!((found[1].count, found.len()), (last.count, 2));
        let found = scan(&end[..], 4, |_| ()).expect("no error");
        assert_eq!(found[0].first, last.end());
        assert!(found[1].is_header());
    }

    #[test]
    fn fewer_samples_than_were_numbered_count() {
        let (mut file, entries) = segment();
        let last = entries.last().expect("some");
        let at = usize::try_from(last.offset).expect("small");
        // Count of the chunk behind the numbers: 4 + 2 bytes of head, stream, then the width.
        let samples = at + 2 + 2 + NUMBERS_BYTES;
        let found = file[samples..].windows(2).position(|it| it == [3, 0]);
        let count = samples + found.expect("a tag") + 7;
        assert_eq!(file[count], 20);
        file[count] = 5;
        let found = scan(&file[at..], last.offset, |_| ()).expect("no error");
        assert_eq!(found[0].count, 5);
    }
}
