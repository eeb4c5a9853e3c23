mod golden;
mod granted;

use proptest::prelude::*;

use super::*;
use crate::value::append_raw;
use crate::wire::archive100::{Decoder100, Encoder100};

type Samples = Vec<(Option<f64>, Vec<u8>)>;

/// Collects the samples of a decoder.
#[derive(Debug, Default)]
struct Collected(Samples);

impl SampleSink for Collected {
    fn sample(&mut self, timestamp: Option<f64>, raw: &[u8]) {
        self.0.push((timestamp, raw.to_vec()));
    }
}

/// One sample in the raw layout, with every bit pattern possible.
fn any_raw(format: ChannelFormat, channels: usize) -> BoxedStrategy<Vec<u8>> {
    if format == ChannelFormat::String {
        let text = prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..20),
            proptest::collection::vec(any::<u8>(), 250..600),
        ];
        return proptest::collection::vec(text, channels)
            .prop_map(move |texts| {
                let mut raw = Vec::new();
                append_raw(&texts, format, &mut raw);
                raw
            })
            .boxed();
    }
    proptest::collection::vec(any::<u8>(), channels * format.value_size()).boxed()
}

fn any_stream() -> impl Strategy<Value = (ChannelFormat, u32, Samples)> {
    (
        proptest::sample::select(&ChannelFormat::STREAMABLE[..]),
        0_u32..6,
    )
        .prop_flat_map(|(format, channels)| {
            let sample = (any::<Option<u64>>(), any_raw(format, channels as usize)).prop_map(
                |(bits, raw)| {
                    (
                        bits.map(f64::from_bits)
                            .filter(|stamp| *stamp != DEDUCED_TIMESTAMP),
                        raw,
                    )
                },
            );
            (
                Just(format),
                Just(channels),
                proptest::collection::vec(sample, 0..8),
            )
        })
}

/// Cuts `bytes` at the given places (taken modulo the length).
fn pieces<'a>(bytes: &'a [u8], cuts: &[usize]) -> Vec<&'a [u8]> {
    let mut places: Vec<usize> = cuts.iter().map(|cut| cut % (bytes.len() + 1)).collect();
    places.extend([0, bytes.len()]);
    places.sort_unstable();
    places
        .windows(2)
        .map(|pair| &bytes[pair[0]..pair[1]])
        .collect()
}

/// So that NaN timestamps compare.
fn bits_of(samples: &[(Option<f64>, Vec<u8>)]) -> Vec<(Option<u64>, &[u8])> {
    samples
        .iter()
        .map(|(stamp, raw)| (stamp.map(f64::to_bits), raw.as_slice()))
        .collect()
}

/// The one NaN that 1.00 knows.
fn with_archive_nan(format: ChannelFormat, samples: &Samples) -> Samples {
    let one_nan = |(stamp, raw): &(Option<f64>, Vec<u8>)| {
        let nan64 = u64::MAX >> 1;
        let stamp = stamp.map(|s| if s.is_nan() { f64::from_bits(nan64) } else { s });
        let mut raw = raw.clone();
        if format == ChannelFormat::Float32 {
            for value in raw.as_chunks_mut::<4>().0 {
                if f32::from_ne_bytes(*value).is_nan() {
                    *value = 0x7fff_ffff_u32.to_ne_bytes();
                }
            }
        } else if format == ChannelFormat::Double64 {
            for value in raw.as_chunks_mut::<8>().0 {
                if f64::from_ne_bytes(*value).is_nan() {
                    *value = nan64.to_ne_bytes();
                }
            }
        }
        (stamp, raw)
    };
    samples.iter().map(one_nan).collect()
}

proptest! {
    #[test]
    fn samples_cut_anywhere_arrive_as_sent(
        (format, channels, samples) in any_stream(),
        big in any::<bool>(),
        cuts in proptest::collection::vec(any::<usize>(), 0..40),
    ) {
        let order = if big { ByteOrder::Big } else { ByteOrder::Little };
        let encoder = Encoder110::new(format, channels, order);
        let mut bytes = Vec::new();
        for (stamp, raw) in &samples {
            encoder.encode_raw(&mut bytes, stamp.unwrap_or(DEDUCED_TIMESTAMP), raw).unwrap();
        }
        let mut decoder = Decoder110::new(format, channels, order);
        let mut got = Collected::default();
        for piece in pieces(&bytes, &cuts) {
            decoder.decode(piece, &mut got).unwrap();
        }
        prop_assert_eq!(bits_of(&got.0), bits_of(&samples));
        prop_assert!(decoder.is_between_samples());
    }

    #[test]
    fn archive_samples_cut_anywhere_arrive_as_sent(
        (format, channels, samples) in any_stream(),
        info in proptest::collection::vec(any::<u8>(), 0..300),
        cuts in proptest::collection::vec(any::<usize>(), 0..40),
    ) {
        let encoder = Encoder100::new(format, channels);
        let mut bytes = Vec::new();
        encoder.encode_preamble(&mut bytes, &info);
        for (stamp, raw) in &samples {
            encoder.encode_raw(&mut bytes, stamp.unwrap_or(DEDUCED_TIMESTAMP), raw).unwrap();
        }
        let mut decoder = Decoder100::new(format, channels);
        let mut got = Collected::default();
        for piece in pieces(&bytes, &cuts) {
            decoder.decode(piece, &mut got).unwrap();
        }
        prop_assert_eq!(decoder.shortinfo(), Some(info.as_slice()));
        let samples = with_archive_nan(format, &samples);
        prop_assert_eq!(bits_of(&got.0[2..]), bits_of(&samples));
        prop_assert!(decoder.is_between_samples());
    }

    #[test]
    fn hostile_bytes_neither_panic_nor_fill_the_memory(
        format in proptest::sample::select(&ChannelFormat::STREAMABLE[..]),
        channels in prop_oneof![0_u32..4, Just(u32::MAX)],
        valid_head in any::<bool>(),
        suppress in any::<bool>(),
        granted in any::<bool>(),
        noise in proptest::collection::vec(
            // Bytes that mean something get further than those that do not.
            prop_oneof![3 => proptest::sample::select(vec![0, 1, 2, 3, 4, 8, 9, 0x7f, 0xff]), 1 => any::<u8>()],
            0..2000,
        ),
        cuts in proptest::collection::vec(any::<usize>(), 0..10),
    ) {
        let limits = DecodeLimits { string_bytes: 100, sample_bytes: 300, shortinfo_bytes: 200 };
        let mut largest = 0;
        let mut sink = |_: Option<f64>, raw: &[u8]| largest = largest.max(raw.len());
        let mut held = 0;
        let mut v110 = Decoder110::new(format, channels, ByteOrder::Big)
            .with_limits(limits)
            .with_subnormals_suppressed(suppress)
            .with_gaps(granted);
        for piece in pieces(&noise, &cuts) {
            let result = v110.decode(piece, &mut sink);
            held = held.max(v110.held_bytes());
            if result.is_err() {
                break;
            }
        }
        let mut v100 = Decoder100::new(format, channels).with_limits(limits);
        let mut bytes = if valid_head { vec![0x7f, 1, 9, 0, 0, 0] } else { Vec::new() };
        bytes.extend(&noise);
        for piece in pieces(&bytes, &cuts) {
            let result = v100.decode(piece, &mut sink);
            held = held.max(v100.held_bytes());
            if result.is_err() {
                break;
            }
        }
        prop_assert!(largest <= limits.sample_bytes, "{}", largest);
        prop_assert!(held <= 4 * limits.sample_bytes, "{}", held);
    }
}

#[test]
fn the_worked_bytes_of_appendix_a() {
    let encoder = Encoder110::new(ChannelFormat::Float32, 2, ByteOrder::Little);
    let mut out = Vec::new();
    for (stamp, sample) in [(1000.5, [1.0_f32, -2.0]), (DEDUCED_TIMESTAMP, [3.0, 4.0])] {
        encoder.encode_sample(&mut out, stamp, &sample).unwrap();
    }
    let expected = [
        &[
            0x02, 0, 0, 0, 0, 0, 0x44, 0x8f, 0x40, 0, 0, 0x80, 0x3f, 0, 0, 0, 0xc0,
        ][..],
        &[0x01, 0, 0, 0x40, 0x40, 0, 0, 0x80, 0x40],
    ];
    assert_eq!(out, expected.concat());
    assert_eq!(encoder.sample_len(false), Some(17));
    assert_eq!(encoder.sample_len(true), Some(9));
}

#[test]
fn runs_are_the_samples_they_consist_of() {
    for format in ChannelFormat::STREAMABLE {
        for channels in [1_u32, 3] {
            let encoder = Encoder110::new(format, channels, ByteOrder::Big);
            let values: Vec<i32> = (0..4 * channels.cast_signed())
                .map(|n| n * 77 - 100)
                .collect();
            for stamps in [
                [5.0, DEDUCED_TIMESTAMP, 7.0, f64::INFINITY],
                [5.0, -1.0, -1.0, -1.0],
            ] {
                let (mut one_by_one, mut expected_ends) = (Vec::new(), Vec::new());
                for (sample, stamp) in values.chunks(channels as usize).zip(stamps) {
                    let out = &mut one_by_one;
                    encoder.encode_sample(out, stamp, sample).unwrap();
                    expected_ends.push(out.len());
                }
                let (mut out, mut ends) = (Vec::new(), Vec::new());
                let stamp = |n: usize| stamps[n];
                let is_run = encoder.encode_run(&values, stamp, usize::MAX, &mut out, &mut ends);
                assert_eq!(is_run, format != ChannelFormat::String);
                if is_run {
                    assert_eq!(
                        (out, ends),
                        (one_by_one, expected_ends),
                        "{format} {channels}"
                    );
                }
            }
        }
    }
}

#[test]
fn the_wrong_number_of_values_is_refused_before_a_byte_is_written() {
    let mut out = Vec::new();
    for format in ChannelFormat::STREAMABLE {
        let encoder = Encoder110::new(format, 3, ByteOrder::Little);
        for count in [0, 2, 4] {
            let values = vec![1_i16; count];
            assert!(
                encoder.encode_sample(&mut out, 1.0, &values).is_err(),
                "{format} {count}"
            );
            let mut raw = Vec::new();
            append_raw(&values, format, &mut raw);
            assert!(
                encoder.encode_raw(&mut out, 1.0, &raw).is_err(),
                "{format} {count}"
            );
        }
        let none = Encoder110::new(format, 0, ByteOrder::Little);
        assert!(none.encode_sample(&mut out, 1.0, &[1_i16]).is_err());
    }
    assert_eq!(out, b"");
}

#[test]
fn lengths_beyond_the_limit_are_refused_when_claimed() {
    let limits = DecodeLimits {
        string_bytes: 300,
        sample_bytes: 400,
        ..DecodeLimits::default()
    };
    let check = |wire: &[u8], accepted: bool| {
        let mut decoder =
            Decoder110::new(ChannelFormat::String, 2, ByteOrder::Little).with_limits(limits);
        let result = decoder.decode(wire, &mut Collected::default());
        assert_eq!(result.is_ok(), accepted, "{wire:?}: {result:?}");
        assert!(decoder.held_bytes() < 1000);
    };
    check(&[1, 2, 0x2c, 1], true); // 300
    check(&[1, 2, 0x2d, 1], false); // 301
    check(&[1, 8, 0, 0, 0, 0, 0, 0, 0, 0x80], false);
    check(&[1, 4, 0xff, 0xff, 0xff, 0xff], false);
    let mut two = vec![1, 1, 200];
    two.extend([b'a'; 200]);
    check(&[&two[..], &[1, 184]].concat(), true); // 8 + 200 + 8 + 184 = 400
    check(&[&two[..], &[1, 185]].concat(), false);
    for width in (0..=255).filter(|width| ![1, 2, 4, 8].contains(width)) {
        check(&[1, width], false);
    }
    let mut wide = Decoder110::new(ChannelFormat::Int64, u32::MAX, ByteOrder::Little);
    assert!(wide.decode(&[1], &mut Collected::default()).is_err());
}

#[test]
fn a_limited_decode_leaves_the_rest() {
    let encoder = Encoder110::new(ChannelFormat::String, 1, ByteOrder::NATIVE);
    let mut bytes = Vec::new();
    for text in ["a", "b", "c"] {
        encoder.encode_sample(&mut bytes, 3.0, &[text]).unwrap();
    }
    let mut decoder = Decoder110::new(ChannelFormat::String, 1, ByteOrder::NATIVE);
    let (mut input, mut got) = (bytes.as_slice(), Collected::default());
    assert_eq!(decoder.decode_up_to(0, &mut input, &mut got).unwrap(), 0);
    assert_eq!(decoder.decode_up_to(2, &mut input, &mut got).unwrap(), 2);
    assert_eq!(input.len(), bytes.len() / 3);
    assert_eq!(decoder.decode(&input[..5], &mut got).unwrap(), 0);
    assert!(!decoder.is_between_samples());
    assert_eq!(decoder.decode(&input[5..], &mut got).unwrap(), 1);
    assert_eq!(got.0.len(), 3);
}

#[test]
fn an_explicit_minus_one_is_deduced() {
    let wire = [&[2][..], &(-1.0_f64).to_be_bytes(), &[7]].concat();
    let mut got = Collected::default();
    let mut decoder = Decoder110::new(ChannelFormat::Int8, 1, ByteOrder::Big);
    decoder.decode(&wire, &mut got).unwrap();
    assert_eq!(got.0, [(None, vec![7])]);
    let mut deducer = TimestampDeducer::new(4.0);
    let stamps = [None, Some(2.0), Some(-1.0), None].map(|stamp| deducer.next(stamp).to_string());
    assert_eq!(stamps, ["0.25", "2", "2.25", "2.5"]);
}
