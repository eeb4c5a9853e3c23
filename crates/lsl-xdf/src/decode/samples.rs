//! Decoding of samples inside a chunk.

use lsl_proto::ChannelFormat;

use super::Batch;
use crate::chunk::{Parsed, read_varlen};
use crate::stream::StreamHeader;
use crate::values::Values;

/// State of a stream that is needed to read its samples.
#[derive(Debug, Clone)]
pub(crate) struct Track {
    format: ChannelFormat,
    channels: usize,
    interval: f64,
    /// Timestamp from which an elided one is counted.
    last: f64,
    /// Whether that is the sample before: not at the beginning, nor behind a loss.
    follows: bool,
}

impl Track {
    pub(crate) fn new(header: &StreamHeader) -> Self {
        Self {
            format: header.channel_format(),
            channels: header.channel_count(),
            interval: header.interval(),
            last: 0.0,
            follows: false,
        }
    }

    /// Notes that samples of this stream may be missing here.
    pub(crate) fn broken(&mut self) {
        self.follows = false;
    }
}

/// Samples that were taken from a chunk.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    /// Number of bytes of these samples.
    pub(crate) bytes: usize,
    /// Batch of at least one sample; `None` if not even one is complete.
    pub(crate) batch: Option<Batch>,
    /// Reason why nothing more can be taken, however many bytes follow. Only if there is no batch.
    pub(crate) bad: Option<&'static str>,
    /// Whether a timestamp was counted from one that is not the sample before.
    pub(crate) guessed: bool,
}

/// Takes complete samples, at most `samples` and not many more than `limit` bytes.
pub(crate) fn take(
    track: &mut Track,
    stream: u32,
    content: &[u8],
    samples: u64,
    limit: usize,
) -> Taken {
    let mut taken = Taken::default();
    let Some(values) = Values::new(track.format) else {
        return taken;
    };
    let mut batch = Batch {
        stream,
        stamps: Vec::new(),
        values,
        full_stamps: 0,
    };
    let most = usize::try_from(samples).unwrap_or(usize::MAX);
    let mut rest = content;
    while batch.stamps.len() < most && content.len() - rest.len() < limit {
        let (stamp, after) = match rest.split_first() {
            None => break,
            Some((0, after)) => (None, after),
            Some((8, after)) => match after.split_first_chunk::<8>() {
                None => break,
                Some((stamp, after)) => (Some(f64::from_le_bytes(*stamp)), after),
            },
            Some(_) => {
                taken.bad = Some("a timestamp has neither 0 nor 8 bytes");
                break;
            }
        };
        match take_values(track, &mut batch.values, after) {
            Parsed::Done((), len) => rest = after.get(len..).unwrap_or_default(),
            Parsed::Need(_) => break,
            Parsed::Bad(reason) => {
                taken.bad = Some(reason);
                break;
            }
        }
        let stamp = if let Some(stamp) = stamp {
            batch.full_stamps += 1;
            stamp
        } else {
            taken.guessed |= !track.follows;
            track.last + track.interval
        };
        track.last = stamp;
        track.follows = true;
        batch.stamps.push(stamp);
    }
    taken.bytes = content.len() - rest.len();
    if !batch.stamps.is_empty() {
        taken.bad = None;
        taken.batch = Some(batch);
    }
    taken
}

/// Takes the values of one sample, or none at all.
fn take_values(track: &Track, values: &mut Values, bytes: &[u8]) -> Parsed<()> {
    if let Values::String(strings) = values {
        let before = strings.len();
        let mut rest = bytes;
        for _ in 0..track.channels {
            let text = match read_varlen(rest) {
                Parsed::Done(len, at) => usize::try_from(len)
                    .ok()
                    .and_then(|len| rest.get(at..)?.split_at_checked(len)),
                Parsed::Need(_) => None,
                Parsed::Bad(reason) => {
                    strings.truncate(before);
                    return Parsed::Bad(reason);
                }
            };
            let Some((text, after)) = text else {
                strings.truncate(before);
                return Parsed::Need(bytes.len() + 1);
            };
            strings.push(text);
            rest = after;
        }
        return Parsed::Done((), bytes.len() - rest.len());
    }
    let Some(len) = track.channels.checked_mul(track.format.value_size()) else {
        return Parsed::Bad("a sample is too long");
    };
    match bytes.get(..len) {
        Some(numbers) => {
            values.extend_from_le(numbers);
            Parsed::Done((), len)
        }
        None => Parsed::Need(len),
    }
}
