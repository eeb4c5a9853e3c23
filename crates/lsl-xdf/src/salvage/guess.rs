//! Guesses about the samples of a stream without header. The shape of a chunk tells the number of bytes of
//! a sample's values; their meaning is a guess, and the header says so.

use lsl_proto::ChannelFormat;

use crate::chunk::{Parsed, read_varlen};
use crate::stream::StreamHeader;

/// Largest number of texts per sample that is tried.
const MAX_TEXTS: usize = 4096;

/// Work that a chunk may cost, in samples or texts looked at.
const MAX_STEPS: usize = 4_000_000;

/// Guesses a header from the content of a samples chunk behind the number of the stream.
pub(super) fn header(stream: u32, content: &[u8]) -> Option<StreamHeader> {
    let Parsed::Done(samples, at) = read_varlen(content) else {
        return None;
    };
    let bytes = content.get(at..)?;
    let samples = usize::try_from(samples).ok().filter(|&n| n > 0)?;
    // Every sample has at least one byte for its timestamp.
    if samples > bytes.len() {
        return None;
    }
    let (format, channels) = texts(bytes, samples)
        .map(|channels| (ChannelFormat::String, channels))
        .or_else(|| numbers(bytes, samples))?;
    let name = format!("salvaged-{stream}");
    let channels = u32::try_from(channels).ok()?;
    let mut header = StreamHeader::new(&name, "", channels, 0.0, format).ok()?;
    header.set(
        "salvaged",
        "this header is made up: name, type and rate are lost, the format is a guess",
    );
    Some(header)
}

/// Returns the bytes that the timestamp of a sample takes.
fn stamp_len(bytes: &[u8]) -> Option<usize> {
    match bytes.first()? {
        0 => Some(1),
        8 => Some(9),
        _ => None,
    }
}

/// Returns the number of texts per sample, if the chunk consists of texts.
fn texts(bytes: &[u8], samples: usize) -> Option<usize> {
    let mut steps = 0;
    'channels: for channels in 1..=MAX_TEXTS {
        let mut rest = bytes;
        for _ in 0..samples {
            rest = rest
                .get(stamp_len(rest).unwrap_or(usize::MAX)..)
                .unwrap_or(&[0xFF]);
            for _ in 0..channels {
                steps += 1;
                if steps > MAX_STEPS {
                    return None;
                }
                let text = match read_varlen(rest) {
                    Parsed::Done(len, at) => usize::try_from(len)
                        .ok()
                        .and_then(|len| rest.get(at..)?.split_at_checked(len)),
                    _ => None,
                };
                let Some((text, after)) = text else {
                    continue 'channels;
                };
                if std::str::from_utf8(text).is_err() {
                    continue 'channels;
                }
                rest = after;
            }
        }
        if rest.is_empty() {
            return Some(channels);
        }
    }
    None
}

/// Returns format and channels, if the chunk consists of numbers.
fn numbers(bytes: &[u8], samples: usize) -> Option<(ChannelFormat, usize)> {
    // With `full` timestamps in it, a chunk has samples * (1 + width) + 8 * full bytes.
    let budget = bytes.len().checked_sub(samples)?;
    let mut steps = 0;
    for full in (0..=samples.min(budget / 8)).rev() {
        let values = budget - 8 * full;
        if !values.is_multiple_of(samples) {
            continue;
        }
        let width = values / samples;
        if width > 0 && tiles(bytes, samples, width, &mut steps) {
            return Some(interpret(bytes, samples, width));
        }
        if steps > MAX_STEPS {
            break;
        }
    }
    None
}

/// Returns whether samples of `width` bytes and their timestamps fill the chunk exactly.
fn tiles(bytes: &[u8], samples: usize, width: usize, steps: &mut usize) -> bool {
    let mut rest = bytes;
    for _ in 0..samples {
        *steps += 1;
        let Some(len) = stamp_len(rest) else {
            return false;
        };
        match rest.get(len + width..) {
            Some(after) => rest = after,
            None => return false,
        }
    }
    rest.is_empty()
}

/// Chooses floats if the values look like measurements; integers otherwise, which lose nothing.
fn interpret(bytes: &[u8], samples: usize, width: usize) -> (ChannelFormat, usize) {
    let mut sound = [true; 2];
    let mut rest = bytes;
    for _ in 0..samples.min(2000) {
        let len = stamp_len(rest).unwrap_or(1);
        let Some(values) = rest.get(len..len + width) else {
            break;
        };
        let (doubles, floats) = (values.as_chunks::<8>(), values.as_chunks::<4>());
        let is_measured = |value: f64| value == 0.0 || (1e-9..1e9).contains(&value.abs());
        sound[0] &= doubles.1.is_empty()
            && doubles
                .0
                .iter()
                .all(|&v| is_measured(f64::from_le_bytes(v)));
        sound[1] &= floats.1.is_empty()
            && floats
                .0
                .iter()
                .all(|&v| is_measured(f64::from(f32::from_le_bytes(v))));
        rest = rest.get(len + width..).unwrap_or_default();
    }
    // Two floats may look like a double, but two halves of a double hardly like floats.
    match sound {
        [_, true] => (ChannelFormat::Float32, width / 4),
        [true, false] => (ChannelFormat::Double64, width / 8),
        _ if width.is_multiple_of(2) => (ChannelFormat::Int16, width / 2),
        _ => (ChannelFormat::Int8, width),
    }
}
