//! Decides whether the bytes that a repair leaves out at the end of a file were useless. A crash leaves one
//! cut chunk, and perhaps zeros. Other damage without a later boundary looks alike to a reader, however
//! much is readable behind it.

use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;

use crate::chunk::{BOUNDARY_UUID, INTEGRITY_TAG, PADDING_TAG, Tag};
use crate::decode::{Problem, ProblemKind};
use crate::integrity;

/// Condition under which a stretch of a file is useless.
#[derive(Debug, Clone, PartialEq)]
enum Useless {
    /// It holds nothing but zeros.
    Zeros(Range<u64>),
    /// It is the beginning of a text, without any samples chunk.
    Text(Range<u64>),
}

/// Longest beginning of a sample that is left out without a check.
const LONG_SAMPLE: u64 = 64 << 10;

/// Largest number of stretches to check: a crash leaves fewer.
const MOST: usize = 16;

/// Bytes that a repair leaves out, to be checked before a repair in place.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct SuspectRanges {
    stretches: Vec<Useless>,
    /// Whether data are lost for sure, or too much is suspect.
    is_lost: bool,
}

impl SuspectRanges {
    /// Records a problem for which bytes are left out. `is_saved`: the part of the chunk that was read is
    /// written anew. `has_samples`: samples of the chunk were read.
    pub(super) fn problem(&mut self, problem: &Problem, is_saved: bool, has_samples: bool) {
        if has_samples && !is_saved {
            self.is_lost = true;
        }
        let range = problem.at..problem.at + problem.len;
        let zeros = Useless::Zeros(range.clone());
        match &problem.kind {
            // Written anew as a whole.
            ProblemKind::Flaw { .. } if is_saved => {}
            _ if problem.resumed => self.is_lost = true,
            ProblemKind::CutHead => {}
            // Less than a sample, unless the length of a text is wrong.
            ProblemKind::CutSamples { .. } => self.is_lost |= problem.len > LONG_SAMPLE,
            ProblemKind::Cut { tag, claimed, .. } => match tag {
                Tag::Samples => {}
                Tag::ClockOffset if *claimed == 4 + 16 => {}
                Tag::Boundary if *claimed == BOUNDARY_UUID.len() as u64 => {}
                Tag::Other(INTEGRITY_TAG) if *claimed < integrity::CHUNK_LEN => {}
                Tag::Other(PADDING_TAG) => self.later(Useless::Zeros(behind_head(range))),
                Tag::FileHeader => self.later(Useless::Text(behind_head(range))),
                Tag::StreamHeader | Tag::StreamFooter => {
                    let text = behind_head(range);
                    self.later(Useless::Text((text.start + 4).min(text.end)..text.end));
                }
                _ => self.later(zeros),
            },
            _ => self.later(zeros),
        }
    }

    /// Records bytes that are left out without any problem.
    pub(super) fn rest(&mut self, range: Range<u64>) {
        self.later(Useless::Zeros(range));
    }

    fn later(&mut self, stretch: Useless) {
        if self.stretches.len() < MOST {
            self.stretches.push(stretch);
        } else {
            self.is_lost = true;
        }
    }

    /// Returns whether everything left out is useless.
    ///
    /// # Errors
    /// Those of the system.
    pub(super) fn are_useless(&self, mut file: impl Read + Seek) -> io::Result<bool> {
        if self.is_lost {
            return Ok(false);
        }
        for stretch in &self.stretches {
            let (range, is_useless): (_, fn(u8) -> bool) = match stretch {
                Useless::Zeros(range) => (range, |byte| byte == 0),
                // The head of every samples chunk contains a zero, and so do other heads.
                Useless::Text(range) => (range, |byte| byte >= b'\t'),
            };
            file.seek(SeekFrom::Start(range.start))?;
            let mut left = range.end - range.start;
            let mut buffer = vec![0; 64 << 10];
            while left > 0 {
                let want = usize::try_from(left)
                    .unwrap_or(usize::MAX)
                    .min(buffer.len());
                let Some(part) = buffer.get_mut(..want) else {
                    break;
                };
                file.read_exact(part)?;
                if !part.iter().all(|&byte| is_useless(byte)) {
                    return Ok(false);
                }
                left -= want as u64;
            }
        }
        Ok(true)
    }
}

/// Returns the range behind the head of a chunk that begins here. A head has 4, 7 or 11 bytes; texts and
/// paddings of less than 256 bytes are unimportant.
fn behind_head(range: Range<u64>) -> Range<u64> {
    (range.start + 11).min(range.end)..range.end
}
