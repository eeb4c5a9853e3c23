//! The index beside a segment: where its chunks are. Spec: relay §9.

use lsl_xdf::crc32;

use super::numbers::{is_sound, take};

/// Bytes of an entry.
pub const ENTRY_BYTES: usize = 40;

/// Samples of one chunk, and the place of the chunk that numbers them. One without samples is the header of the
/// stream, which stands before all its samples; or, if it has a number, the end of samples that are not kept.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Entry {
    /// Number of the stream in the segment.
    pub stream: u32,
    /// Number of samples.
    pub count: u32,
    /// Sequence number of the first sample.
    pub first: u64,
    /// Bytes before the chunk in the segment, as it was before encryption.
    pub offset: u64,
    /// Time at which the first sample arrived, in seconds since 1970; of a header the mark of its numbering.
    pub arrival: f64,
}

impl Entry {
    /// Returns the number behind the last sample.
    pub fn end(&self) -> u64 {
        self.first + u64::from(self.count)
    }

    /// Whether it is the header of its stream.
    pub fn is_header(&self) -> bool {
        self.end() == 0
    }

    /// Returns the entry as a file has it.
    pub fn to_bytes(&self) -> [u8; ENTRY_BYTES] {
        let mut bytes = [0; ENTRY_BYTES];
        let parts: [&[u8]; 5] = [
            &self.stream.to_le_bytes(),
            &self.count.to_le_bytes(),
            &self.first.to_le_bytes(),
            &self.offset.to_le_bytes(),
            &self.arrival.to_le_bytes(),
        ];
        let all = parts.concat();
        let parts = [&all[..], &crc32(&all).to_le_bytes(), &[0; 4]].concat();
        for (to, from) in bytes.iter_mut().zip(parts) {
            *to = from;
        }
        bytes
    }

    fn parse(bytes: &[u8; ENTRY_BYTES]) -> Option<Self> {
        let mut rest = &bytes[..];
        let content = bytes.first_chunk::<32>()?;
        let entry = Self {
            stream: u32::from_le_bytes(take(&mut rest)?),
            count: u32::from_le_bytes(take(&mut rest)?),
            first: u64::from_le_bytes(take(&mut rest)?),
            offset: u64::from_le_bytes(take(&mut rest)?),
            arrival: f64::from_le_bytes(take(&mut rest)?),
        };
        let is_whole = crc32(content) == u32::from_le_bytes(take(&mut rest)?);
        let is_end = rest == [0; 4];
        (is_whole && is_end && is_sound(entry.first, entry.arrival)).then_some(entry)
    }
}

/// Parses an index up to the first entry that is none, or does not lie behind the one before it.
pub fn parse_index(bytes: &[u8]) -> Vec<Entry> {
    let mut entries: Vec<Entry> = Vec::new();
    for bytes in bytes.as_chunks().0 {
        let before = entries.last().map(|entry| entry.offset);
        match Entry::parse(bytes) {
            Some(entry) if before.is_none_or(|before| before < entry.offset) => entries.push(entry),
            _ => break,
        }
    }
    entries
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_come_back_up_to_the_first_that_is_damaged() {
        let entry = |n: u32| Entry {
            stream: n % 3,
            count: 10,
            first: u64::from(n) * 10,
            offset: 100 + u64::from(n) * 1000,
            arrival: 1e9 + f64::from(n),
        };
        let entries: Vec<_> = (0..5).map(entry).collect();
        let bytes: Vec<u8> = entries.iter().flat_map(Entry::to_bytes).collect();
        assert_eq!(parse_index(&bytes), entries);
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let whole = bit / 8 / ENTRY_BYTES;
            assert_eq!(parse_index(&damaged), entries[..whole], "{bit}");
        }
        for cut in 0..bytes.len() {
            assert_eq!(parse_index(&bytes[..cut]), entries[..cut / ENTRY_BYTES]);
        }
        let twice = [&bytes[..40], &bytes[..40]].concat();
        assert_eq!(parse_index(&twice), entries[..1]);
    }
}
