//! Whether what a repair leaves out at the end of a file was of any use. A crash leaves one chunk cut,
//! and perhaps zeros; everything else looks alike to a reader that finds no boundary any more, however
//! much could still be read behind it.

use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;

use crate::chunk::{BOUNDARY_UUID, INTEGRITY_TAG, PADDING_TAG, Tag};
use crate::decode::{Problem, ProblemKind};
use crate::integrity;

/// What has to hold for a stretch of a file to be of no use.
#[derive(Debug, Clone, PartialEq)]
enum Useless {
    /// It is nothing but zeros.
    Zeros(Range<u64>),
    /// It is the begin of a text: chunks of samples are none.
    Text(Range<u64>),
}

/// The longest begin of a sample that is left out without asking.
const LONG_SAMPLE: u64 = 64 << 10;

/// More stretches than a crash leaves.
const MOST: usize = 16;

/// What is left out of a file, and has to be looked at before that is done in place.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Doubts {
    stretches: Vec<Useless>,
    /// Something is lost for sure, or too much is in doubt.
    is_lost: bool,
}

impl Doubts {
    /// Takes note of a problem for which bytes are left out. `is_saved`: what was read of the chunk is
    /// written anew; `has_samples`: it is not, though there was something.
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
            // Less than a sample, unless it is the length of a text that is wrong.
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

    /// Takes note of bytes that are left out without any problem.
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

    /// Looks whether nothing of use is left out.
    ///
    /// # Errors
    /// Those of the system.
    pub(super) fn are_cleared(&self, mut file: impl Read + Seek) -> io::Result<bool> {
        if self.is_lost {
            return Ok(false);
        }
        for stretch in &self.stretches {
            let (range, is_useless): (_, fn(u8) -> bool) = match stretch {
                Useless::Zeros(range) => (range, |byte| byte == 0),
                // The head of every chunk of samples has a zero in it, and so has that of others.
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

/// What follows the head of a chunk that begins here. It is 4, 7 or 11 bytes long, and texts and paddings
/// of less than 256 bytes are none to worry about.
fn behind_head(range: Range<u64>) -> Range<u64> {
    (range.start + 11).min(range.end)..range.end
}
