//! Protocol 1.00 archives. Input: how to cut, format, channels, then the bytes of a feed.

use lsl_proto::ChannelFormat;
use lsl_proto::value::{RawStrings, raw_sample_len};
use lsl_proto::wire::archive100::{Decoder100, Encoder100};
use lsl_proto::wire::sample110::DecodeLimits;

use super::{Controls, pieces};

/// Small, so that inputs of a few bytes reach them.
const LIMITS: DecodeLimits = DecodeLimits {
    string_bytes: 300,
    sample_bytes: 2000,
    shortinfo_bytes: 2000,
};

/// Vectors grow by doubling.
const MOST_HELD_BYTES: usize = 2 * (LIMITS.sample_bytes + LIMITS.shortinfo_bytes);

/// Test patterns at the head of every archive.
const PATTERNS: usize = 2;

type Sample = (Option<u64>, Vec<u8>);

pub fn check(input: &[u8]) {
    let mut controls = Controls { rest: input };
    let seed = controls.byte();
    let format = match controls.byte() % 8 {
        0 => ChannelFormat::Undefined,
        other => ChannelFormat::STREAMABLE[usize::from(other) - 1],
    };
    let channels = match controls.byte() {
        255 => u32::MAX,
        other => u32::from(other),
    };
    let bytes = controls.rest;
    let new = || Decoder100::new(format, channels).with_limits(LIMITS);

    let whole = decode(new(), &[bytes]);
    assert_eq!(
        decode(new(), &pieces(seed, bytes)),
        whole,
        "depends on the cuts"
    );
    let Some(shortinfo) = &whole.shortinfo else {
        assert!(whole.samples.is_empty());
        return;
    };
    assert!(shortinfo.len() <= LIMITS.shortinfo_bytes);
    if format == ChannelFormat::Undefined || whole.samples.is_empty() {
        return;
    }
    for (_, raw) in &whole.samples {
        match raw_sample_len(format, channels as usize) {
            Some(len) => assert_eq!(raw.len(), len),
            None => assert_eq!(RawStrings::new(raw).count(), channels as usize),
        }
        assert!(raw.len() <= LIMITS.sample_bytes);
    }
    // The archive knows one NaN only, so the bytes are compared, not the values.
    let encoded = encode(format, channels, shortinfo, &whole.samples);
    let again = decode(new(), &[&encoded]);
    assert_eq!(again.shortinfo.as_ref(), Some(shortinfo));
    if again.ended.is_ok() {
        assert_eq!(again.samples.len(), PATTERNS + whole.samples.len());
        assert_eq!(
            encode(format, channels, shortinfo, &again.samples[PATTERNS..]),
            encoded,
            "changed by encoding"
        );
    } else {
        // Only the patterns can be larger than what was read before: their texts are ours.
        assert_eq!(format, ChannelFormat::String);
    }
}

#[derive(Debug, PartialEq)]
struct Outcome {
    shortinfo: Option<Vec<u8>>,
    samples: Vec<Sample>,
    /// Whether the feed stands between two samples, or an error.
    ended: Result<bool, String>,
}

fn decode(mut decoder: Decoder100, pieces: &[&[u8]]) -> Outcome {
    let mut samples = Vec::new();
    let mut failure = None;
    for piece in pieces {
        let mut sink = |timestamp: Option<f64>, raw: &[u8]| {
            samples.push((timestamp.map(f64::to_bits), raw.to_vec()));
        };
        if let Err(error) = decoder.decode(piece, &mut sink) {
            failure = Some(error.to_string());
            break;
        }
        assert!(decoder.held_bytes() <= MOST_HELD_BYTES);
    }
    Outcome {
        shortinfo: decoder.shortinfo().map(<[u8]>::to_vec),
        samples,
        ended: failure.map_or_else(|| Ok(decoder.is_between_samples()), Err),
    }
}

fn encode(format: ChannelFormat, channels: u32, shortinfo: &[u8], samples: &[Sample]) -> Vec<u8> {
    let encoder = Encoder100::new(format, channels);
    let mut out = Vec::new();
    encoder.encode_preamble(&mut out, shortinfo);
    for (timestamp, raw) in samples {
        let timestamp = timestamp.map_or(lsl_proto::DEDUCED_TIMESTAMP, f64::from_bits);
        encoder
            .encode_raw(&mut out, timestamp, raw)
            .expect("a sample of this stream");
    }
    out
}
