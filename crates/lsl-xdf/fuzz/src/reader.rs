//! The reader. Input: how the bytes arrive, then a file.

use std::io::{self, Read};

use lsl_xdf::{Error, Event, Reader};

/// Gives the bytes in pieces of uneven sizes, or all at once for 0.
struct Pieces<'a>(&'a [u8], u32);

impl Read for Pieces<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let mut len = self.0.len().min(into.len());
        if self.1 != 0 {
            self.1 = self.1.wrapping_mul(1_664_525).wrapping_add(1_013_904_223) | 1;
            len = len.min(1 + (self.1 >> 27) as usize);
        }
        let (now, later) = self.0.split_at(len);
        into[..len].copy_from_slice(now);
        self.0 = later;
        Ok(len)
    }
}

pub fn check(input: &[u8]) {
    let (seed, file) = input.split_first().unwrap_or((&0, &[]));
    let whole = read(Pieces(file, 0), file.len());
    let cut = read(Pieces(file, u32::from(*seed)), file.len());
    assert_eq!(cut, whole, "depends on how the bytes arrive");
}

/// Everything that is told about a file.
fn read(input: Pieces<'_>, len: usize) -> Vec<String> {
    let mut reader = Reader::new(input);
    let mut told = Vec::new();
    let mut samples = 0;
    loop {
        match reader.next() {
            Ok(None) => break,
            Ok(Some(found)) => {
                assert!(found.at <= len as u64);
                if let Event::Samples(batch) = &found.event {
                    samples += batch.stamps.len();
                    assert!(batch.full_stamps <= batch.stamps.len());
                }
                if let Event::Problem(problem) = &found.event {
                    assert!(problem.at + problem.len <= len as u64);
                    assert!(problem.chunk_at <= problem.at);
                    assert!(!problem.to_string().is_empty());
                }
                told.push(format!("{found:?}"));
            }
            Err(error) => {
                assert!(matches!(error, Error::NotXdf(_)) && told.is_empty());
                return told;
            }
        }
    }
    assert!(samples <= len, "more samples than bytes");
    assert!(reader.window_capacity() <= (256 << 10) + 2 * len);
    let decoder = reader.decoder();
    assert_eq!(decoder.position(), len as u64);
    assert!(decoder.complete_until() <= len as u64);
    told
}
