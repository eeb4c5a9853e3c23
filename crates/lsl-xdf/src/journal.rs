//! Journal beside a recording that is not finished: the length and content of the file when it last reached
//! the disk. Repair works without it; with it one can tell whether promised data is missing. It holds no
//! samples and no names.
//!
//! Two slots of 4 KiB are written in turns, each with a checksum, so that one of the two is always whole.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::place;

/// Bytes of a slot: a page, so that the two share none.
const SLOT: usize = 4096;

const MAGIC: [u8; 8] = *b"LSLJRN1\n";

/// Bytes of magic, generation, length, streams in all, streams listed.
const HEAD: usize = 32;

/// Bytes of number, samples, first and last timestamp, clock offsets.
const ENTRY: usize = 32;

/// Streams that a slot has room for; further ones are only counted.
const MAX_ENTRIES: usize = (SLOT - HEAD - 4) / ENTRY;

/// Part of a recording that had reached the disk.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct JournalState {
    /// The length of the file, whole chunks only.
    pub len: u64,
    /// Number of streams in the file.
    pub stream_count: u32,
    /// Content of the file by stream; the first 126 streams.
    pub streams: Vec<JournalStream>,
}

/// Part of a stream that had reached the disk.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct JournalStream {
    /// Number of the stream in the file.
    pub stream: u32,
    /// Number of samples on the disk.
    pub samples: u64,
    /// Timestamp of the first one; NaN if there is none.
    pub first: f64,
    /// Timestamp of the last one; NaN if there is none.
    pub last: f64,
    /// Number of clock offsets on the disk.
    pub offsets: u32,
}

impl JournalState {
    /// Reads the journal of a file; `None` if it is missing or not whole.
    ///
    /// # Errors
    /// Those of the system, except that it is missing.
    pub fn read(path: &Path) -> io::Result<Option<Self>> {
        let mut bytes = Vec::new();
        // Anything but a file is none of ours, and opening a pipe would wait for its writer.
        match fs::symlink_metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            found => {
                if !found?.is_file() {
                    return Ok(None);
                }
            }
        }
        File::open(path)?
            .take(2 * SLOT as u64)
            .read_to_end(&mut bytes)?;
        let slots = bytes.chunks_exact(SLOT).filter_map(parse);
        Ok(slots
            .max_by_key(|(generation, _)| *generation)
            .map(|(_, state)| state))
    }

    fn slot(&self, generation: u64) -> Vec<u8> {
        let mut slot = MAGIC.to_vec();
        slot.extend(generation.to_le_bytes());
        slot.extend(self.len.to_le_bytes());
        slot.extend(self.stream_count.to_le_bytes());
        let listed = self.streams.len().min(MAX_ENTRIES);
        slot.extend(u32::try_from(listed).unwrap_or(0).to_le_bytes());
        for stream in self.streams.iter().take(listed) {
            slot.extend(stream.stream.to_le_bytes());
            slot.extend(stream.offsets.to_le_bytes());
            slot.extend(stream.samples.to_le_bytes());
            slot.extend(stream.first.to_le_bytes());
            slot.extend(stream.last.to_le_bytes());
        }
        slot.resize(SLOT - 4, 0);
        slot.extend(crc32(&slot).to_le_bytes());
        slot
    }
}

fn parse(slot: &[u8]) -> Option<(u64, JournalState)> {
    let (content, crc) = slot.split_last_chunk::<4>()?;
    if crc32(content) != u32::from_le_bytes(*crc) {
        return None;
    }
    let mut rest = content.strip_prefix(&MAGIC)?;
    let generation = u64::from_le_bytes(take(&mut rest)?);
    let mut state = JournalState {
        len: u64::from_le_bytes(take(&mut rest)?),
        stream_count: u32::from_le_bytes(take(&mut rest)?),
        streams: Vec::new(),
    };
    let listed = u32::from_le_bytes(take(&mut rest)?);
    for _ in 0..listed {
        let stream = u32::from_le_bytes(take(&mut rest)?);
        let offsets = u32::from_le_bytes(take(&mut rest)?);
        state.streams.push(JournalStream {
            stream,
            offsets,
            samples: u64::from_le_bytes(take(&mut rest)?),
            first: f64::from_le_bytes(take(&mut rest)?),
            last: f64::from_le_bytes(take(&mut rest)?),
        });
    }
    Some((generation, state))
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, after) = rest.split_first_chunk::<N>()?;
    *rest = after;
    Some(*taken)
}

/// Computes the checksum of Ethernet and zip, bit by bit: for few bytes, which need no table.
pub fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| {
            (crc >> 1) ^ (0xEDB8_8320 * (crc & 1))
        })
    })
}

/// Journal of a recording in progress.
#[derive(Debug)]
pub(crate) struct Journal {
    file: Arc<File>,
    path: PathBuf,
    generation: u64,
}

/// State on its way to the disk.
#[derive(Debug)]
pub(crate) struct JournalWrite {
    file: Arc<File>,
    at: u64,
    slot: Vec<u8>,
}

impl Journal {
    /// Creates a journal beside a recording; both slots are written, so that later ones need no room on the
    /// disk. A file of that name is moved aside: an old journal may tell of another file, and a symbolic
    /// link would redirect the writes.
    pub(crate) fn create(recording: &Path) -> io::Result<Self> {
        let path = place::journal_path(recording);
        let mut file = match File::create_new(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                place::move_journal_aside(recording)?;
                File::create_new(&path)?
            }
            file => file?,
        };
        let empty = JournalState::default();
        file.write_all(&[empty.slot(0), empty.slot(1)].concat())?;
        file.sync_all()?;
        Ok(Self {
            file: Arc::new(file),
            path,
            generation: 1,
        })
    }

    pub(crate) fn entry(&mut self, state: &JournalState) -> JournalWrite {
        self.generation += 1;
        JournalWrite {
            file: Arc::clone(&self.file),
            at: (self.generation % 2) * SLOT as u64,
            slot: state.slot(self.generation),
        }
    }

    /// Deletes the journal of a recording that is finished and on the disk.
    pub(crate) fn delete(self) -> io::Result<()> {
        fs::remove_file(&self.path)
    }
}

impl JournalWrite {
    pub(crate) fn write(self) -> io::Result<()> {
        let mut file = &*self.file;
        file.seek(SeekFrom::Start(self.at))?;
        file.write_all(&self.slot)?;
        file.sync_data()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(len: u64, streams: u32) -> JournalState {
        JournalState {
            len,
            stream_count: streams,
            streams: (0..streams)
                .map(|stream| JournalStream {
                    stream,
                    samples: 1 << 40,
                    first: 1.5,
                    last: 2.5,
                    offsets: 7,
                })
                .collect(),
        }
    }

    #[test]
    fn the_checksum_is_the_usual_one() {
        assert_eq!(crc32(b"123456789"), 0xCBF4_3926);
    }

    #[test]
    fn slots_come_back_and_damage_is_noticed() {
        let slot = state(99, 64).slot(3);
        assert_eq!(slot.len(), SLOT);
        assert_eq!(parse(&slot), Some((3, state(99, 64))));
        for at in [0, 8, 20, 100, SLOT - 1] {
            let mut bad = slot.clone();
            bad[at] ^= 1;
            assert_eq!(parse(&bad), None, "byte {at}");
        }
        let (_, many) = parse(&state(99, 5000).slot(3)).unwrap();
        assert_eq!((many.stream_count, many.streams.len()), (5000, MAX_ENTRIES));
    }
}
