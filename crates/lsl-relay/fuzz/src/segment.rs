//! Segments and indices of a history, as a disk may have them: lengths are not believed, and the cuts do not matter.

use std::io::{Read, Result};

use lsl_relay::history::{ENTRY_BYTES, Entry, Numbers, SegmentName, parse_index, read_chunk, scan};

use super::split;

pub fn check(input: &[u8]) {
    let (length, bytes) = split(input);
    let entries = parse_index(bytes);
    let written: Vec<u8> = entries.iter().flat_map(Entry::to_bytes).collect();
    assert!(bytes.starts_with(&written) && written.len() == entries.len() * ENTRY_BYTES);
    check_order(&entries);

    let whole = scan(bytes, 4, |_| ()).expect("memory does not fail");
    assert_eq!(
        scan(Pieces(bytes, length), 4, |_| ()).expect("nor do pieces"),
        whole
    );
    check_order(&whole);
    let end = 4 + bytes.len() as u64;
    assert!(whole.iter().all(|entry| entry.offset < end));

    if let Some(numbers) = Numbers::parse(bytes) {
        assert_eq!(numbers.to_bytes(), bytes);
    }
    if let Ok(Some((_, content))) = read_chunk(&mut &bytes[..], 1 << 40) {
        assert!(content.len() <= bytes.len());
    }
    if let Some(name) = std::str::from_utf8(bytes).ok().and_then(SegmentName::parse) {
        assert_eq!(SegmentName::parse(&name.to_string()), Some(name));
    }
}

fn check_order(entries: &[Entry]) {
    assert!(entries.is_sorted_by(|one, other| one.offset < other.offset));
}

/// Bytes that come in pieces.
struct Pieces<'a>(&'a [u8], usize);

impl Read for Pieces<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let most = buffer.len().min(self.1);
        self.0.read(&mut buffer[..most])
    }
}
