//! Protocol 1.10 samples and the gaps of granted feeds. Input: how to cut, format, channels, order and
//! subnormals, then the bytes of a feed, which is read as a granted one and as one that is not.

use lsl_proto::value::{RawStrings, raw_sample_len};
use lsl_proto::wire::sample110::{DecodeLimits, Decoder110, Encoder110, SampleSink};
use lsl_proto::wire::sequence::{Gap, SEQUENCE_LIMIT};
use lsl_proto::wire::testpattern::PatternCheck;
use lsl_proto::{ByteOrder, ChannelFormat, Error};

use super::{Controls, pieces};

/// Small, so that inputs of a few bytes reach them.
const LIMITS: DecodeLimits = DecodeLimits {
    string_bytes: 300,
    sample_bytes: 2000,
    shortinfo_bytes: 300,
};

/// Vectors grow by doubling, and two of them hold a sample while it is converted.
const MOST_HELD_BYTES: usize = 4 * LIMITS.sample_bytes;

#[derive(Debug, PartialEq)]
enum FeedItem {
    Sample(Option<u64>, Vec<u8>),
    Gap(Gap),
}

#[derive(Default)]
struct Items {
    all: Vec<FeedItem>,
    samples: usize,
}

impl SampleSink for Items {
    fn sample(&mut self, timestamp: Option<f64>, raw: &[u8]) {
        let bits = timestamp.map(f64::to_bits);
        self.all.push(FeedItem::Sample(bits, raw.to_vec()));
        self.samples += 1;
    }

    fn gap(&mut self, gap: Gap) -> Result<(), Error> {
        self.all.push(FeedItem::Gap(gap));
        Ok(())
    }
}

pub fn check(input: &[u8]) {
    for granted in [false, true] {
        check_feed(input, granted);
    }
}

fn check_feed(input: &[u8], granted: bool) {
    let mut controls = Controls { rest: input };
    let seed = controls.byte();
    let format = match controls.byte() % 8 {
        0 => ChannelFormat::Undefined,
        other => ChannelFormat::STREAMABLE[usize::from(other) - 1],
    };
    let channels = match controls.byte() {
        255 => u32::MAX,
        254 => 40_000,
        other => u32::from(other),
    };
    let flags = controls.byte();
    let order = if flags & 1 == 0 {
        ByteOrder::Little
    } else {
        ByteOrder::Big
    };
    let bytes = controls.rest;
    let new = || {
        Decoder110::new(format, channels, order)
            .with_limits(LIMITS)
            .with_gaps(granted)
            .with_subnormals_suppressed(flags & 2 != 0)
    };

    let whole = decode(new(), &[bytes]);
    assert_eq!(
        decode(new(), &pieces(seed, bytes)),
        whole,
        "depends on the cuts"
    );
    assert_eq!(
        decode_one_by_one(new(), bytes),
        whole,
        "depends on the pace"
    );
    let mut patterns = PatternCheck::new(format, channels);
    let _ = new().decode(&bytes[..bytes.len().min(1000)], &mut patterns);

    let encoder = Encoder110::new(format, channels, order);
    let mut encoded = Vec::new();
    for item in &whole.0 {
        let (timestamp, raw) = match item {
            FeedItem::Sample(timestamp, raw) => (timestamp, raw),
            FeedItem::Gap(gap) => {
                assert!(granted && gap.to < SEQUENCE_LIMIT);
                encoded.extend(gap.to_bytes(order));
                continue;
            }
        };
        match raw_sample_len(format, channels as usize) {
            Some(len) => assert_eq!(raw.len(), len),
            None => assert_eq!(RawStrings::new(raw).count(), channels as usize),
        }
        assert!(raw.len() <= LIMITS.sample_bytes);
        let timestamp = timestamp.map_or(lsl_proto::DEDUCED_TIMESTAMP, f64::from_bits);
        encoder
            .encode_raw(&mut encoded, timestamp, raw)
            .expect("a sample of this stream");
    }
    let again = decode(new(), &[&encoded]);
    assert_eq!(again.0, whole.0, "changed by encoding");
    assert!(again.1.is_ok() || whole.1.is_err());
}

/// Items and what ended them: whether the feed stands between two samples, or an error.
type Outcome = (Vec<FeedItem>, Result<bool, String>);

fn decode(mut decoder: Decoder110, pieces: &[&[u8]]) -> Outcome {
    let mut items = Items::default();
    for piece in pieces {
        let before = items.samples;
        match decoder.decode(piece, &mut items) {
            Ok(count) => assert_eq!(count, items.samples - before),
            Err(error) => return (items.all, Err(error.to_string())),
        }
        assert!(decoder.held_bytes() <= MOST_HELD_BYTES);
    }
    let between = decoder.is_between_samples();
    (items.all, Ok(between))
}

fn decode_one_by_one(mut decoder: Decoder110, mut bytes: &[u8]) -> Outcome {
    let mut items = Items::default();
    loop {
        match decoder.decode_up_to(1, &mut bytes, &mut items) {
            Ok(1) => {}
            Ok(_) => break,
            Err(error) => return (items.all, Err(error.to_string())),
        }
    }
    assert!(bytes.is_empty());
    let between = decoder.is_between_samples();
    (items.all, Ok(between))
}
