//! Reads a recording of numbered samples and finds the missing ones.

use std::collections::BTreeMap;
use std::io::Read;

use lsl_cli::failure::{Failure, Outcome};
use lsl_cli::interrupt::Stop;
use lsl_xdf::{Event, Reader, Values};

use crate::result::Gap;

/// The samples of one stream.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Proof {
    channels: usize,
    /// The number that comes next, and so how many samples there must be.
    pub(super) next: u64,
    pub(super) received: u64,
    /// Number of the first one that is missing and how many are from there on.
    pub(super) gaps: Vec<(u64, u64)>,
    /// Samples that are not in order or whose channels do not all carry the number.
    pub(super) wrong: u64,
    pub(super) has_footer: bool,
    /// Gaps that the recorder itself has noted.
    pub(super) noted_gaps: usize,
}

impl Proof {
    /// Takes samples of `channels` values each.
    fn add(&mut self, values: &[f32]) {
        for sample in values.chunks_exact(self.channels.max(1)) {
            let first = sample[0];
            // A number that is not ahead cannot have been sent.
            let number = exact(first).filter(|number| *number >= self.next);
            let Some(number) = number.filter(|_| {
                sample
                    .iter()
                    .all(|value| value.to_bits() == first.to_bits())
            }) else {
                self.wrong += 1;
                continue;
            };
            if number > self.next {
                self.gaps.push((self.next, number - self.next));
            }
            self.next = number + 1;
            self.received += 1;
        }
    }
}

/// The whole number that a value is.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "checked by comparing it with what it came from"
)]
fn exact(value: f32) -> Option<u64> {
    let number = value as u64;
    ((number as f32).to_bits() == value.to_bits()).then_some(number)
}

/// Reads a recording to its end.
pub(super) fn read(input: impl Read, stop: &Stop) -> Outcome<Vec<Proof>> {
    let mut reader = Reader::new(input);
    let mut streams: BTreeMap<u32, Proof> = BTreeMap::new();
    let failed = |error: lsl_xdf::Error| Failure::Runtime(format!("the recording: {error}"));
    while let Some(found) = reader.next().map_err(failed)? {
        if stop.requested() {
            return Err(crate::child::interrupted());
        }
        match found.event {
            Event::StreamHeader { stream, header } => {
                streams.entry(stream).or_default().channels = header.channel_count();
            }
            Event::Samples(batch) => {
                let stream = streams.entry(batch.stream).or_default();
                match &batch.values {
                    Values::Float32(values) => stream.add(values),
                    _ => stream.wrong += batch.stamps.len() as u64,
                }
            }
            Event::StreamFooter { stream, footer } => {
                let stream = streams.entry(stream).or_default();
                stream.has_footer = true;
                stream.noted_gaps = footer.gaps().len();
            }
            Event::Problem(problem) => {
                let text = format!(
                    "the recording is not whole, at byte {}: {problem}",
                    found.at
                );
                return Err(Failure::Lost(text));
            }
            _ => {}
        }
    }
    Ok(streams.into_values().collect())
}

/// The first gaps of all streams.
pub(super) fn gaps(streams: &[Proof]) -> Vec<Gap> {
    let of_all = streams.iter().zip(0..).flat_map(|(stream, reader)| {
        let gap = move |&(first, count): &(u64, u64)| Gap {
            reader,
            first,
            count,
        };
        stream.gaps.iter().map(gap)
    });
    of_all.take(MOST_GAPS).collect()
}

const MOST_GAPS: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;

    fn proof(values: &[f32]) -> Proof {
        let mut proof = Proof {
            channels: 2,
            ..Proof::default()
        };
        proof.add(values);
        proof
    }

    #[test]
    fn all_samples_gaps_and_wrong_ones() {
        let whole = proof(&[0.0, 0.0, 1.0, 1.0, 2.0, 2.0]);
        assert_eq!((whole.next, whole.received, whole.wrong), (3, 3, 0));
        assert_eq!(whole.gaps, []);

        let gaps = proof(&[2.0, 2.0, 3.0, 3.0, 7.0, 7.0]);
        assert_eq!((gaps.next, gaps.received), (8, 3));
        assert_eq!(gaps.gaps, [(0, 2), (4, 3)]);

        // Twice, a torn one, and none at all.
        let wrong = proof(&[0.0, 0.0, 0.0, 0.0, 1.0, 2.0, 0.5, 0.5, -1.0, -1.0]);
        assert_eq!((wrong.next, wrong.received, wrong.wrong), (1, 1, 4));
    }

    #[test]
    fn gaps_say_whose_they_are() {
        let streams = [proof(&[0.0, 0.0]), proof(&[1.0, 1.0])];
        let gap = Gap {
            reader: 1,
            first: 0,
            count: 1,
        };
        assert_eq!(gaps(&streams), [gap]);
    }
}
