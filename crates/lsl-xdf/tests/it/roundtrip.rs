//! What is encoded is what is decoded, however the bytes arrive.

use std::io::{self, Read};

use lsl_proto::ChannelFormat;
use lsl_proto::StreamInfo;
use lsl_xdf::encode::{self, SampleEncoder};
use lsl_xdf::{FileHeader, StreamFooter, StreamHeader, Strings, Tally, Values, load};
use proptest::prelude::*;

use crate::made;

/// Gives the bytes in pieces of uneven sizes.
struct Pieces<'a>(&'a [u8], usize);

impl Read for Pieces<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.1 = self.1.wrapping_mul(1_103_515_245).wrapping_add(12345);
        let len = (1 + self.1 / 65536 % 5000)
            .min(self.0.len())
            .min(into.len());
        into[..len].copy_from_slice(&self.0[..len]);
        self.0 = &self.0[len..];
        Ok(len)
    }
}

fn any_values(format: ChannelFormat, len: usize) -> BoxedStrategy<Values> {
    use proptest::collection::vec;
    match format {
        ChannelFormat::Float32 => vec(any::<u32>(), len)
            .prop_map(|v| v.into_iter().map(f32::from_bits).collect::<Vec<_>>().into())
            .boxed(),
        ChannelFormat::Double64 => vec(any::<u64>(), len)
            .prop_map(|v| v.into_iter().map(f64::from_bits).collect::<Vec<_>>().into())
            .boxed(),
        ChannelFormat::Int32 => vec(any::<i32>(), len).prop_map(Values::from).boxed(),
        ChannelFormat::Int16 => vec(any::<i16>(), len).prop_map(Values::from).boxed(),
        ChannelFormat::Int8 => vec(any::<i8>(), len).prop_map(Values::from).boxed(),
        ChannelFormat::Int64 => vec(any::<i64>(), len).prop_map(Values::from).boxed(),
        ChannelFormat::String | ChannelFormat::Undefined => vec(vec(any::<u8>(), 0..400), len)
            .prop_map(|v| Values::String(v.into_iter().collect::<Strings>()))
            .boxed(),
    }
}

/// NaNs are equal to themselves here.
fn bits(values: &Values) -> Vec<Vec<u8>> {
    match values {
        Values::Float32(list) => list.iter().map(|v| v.to_le_bytes().to_vec()).collect(),
        Values::Double64(list) => list.iter().map(|v| v.to_le_bytes().to_vec()).collect(),
        Values::String(list) => list.iter().map(<[u8]>::to_vec).collect(),
        other => vec![format!("{other:?}").into_bytes()],
    }
}

#[derive(Debug)]
struct Case {
    format: ChannelFormat,
    channels: usize,
    srate: f64,
    stamps: Vec<f64>,
    values: Values,
    limit: usize,
    seed: usize,
}

fn case() -> impl Strategy<Value = Case> {
    let srate = prop_oneof![Just(0.0), Just(1000.0 / 3.0), Just(250.0), 1e-3..1e6];
    let shape = (
        0..7_usize,
        0..5_usize,
        0..120_usize,
        srate,
        1..4000_usize,
        any::<usize>(),
    );
    shape.prop_flat_map(|(format, channels, samples, srate, limit, seed)| {
        let format = ChannelFormat::STREAMABLE[format];
        // Mostly what the arithmetic of readers gives, sometimes anything.
        let steps = proptest::collection::vec(
            prop_oneof![4 => Just(None), 1 => any::<u64>().prop_map(|b| Some(f64::from_bits(b)))],
            samples,
        );
        let values = any_values(format, samples * channels);
        (steps, values).prop_map(move |(steps, values)| {
            let mut last = 12345.678;
            let stamps = steps
                .into_iter()
                .map(|step| {
                    last = step.unwrap_or(last + 1.0 / srate);
                    last
                })
                .collect();
            Case {
                format,
                channels,
                srate,
                stamps,
                values,
                limit,
                seed,
            }
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn all_formats_come_back_bit_by_bit(case in case()) {
        let header = made::header(case.format, case.channels as u32, case.srate);
        let mut file = lsl_xdf::chunk::MAGIC.to_vec();
        encode::file_header(&mut file, &FileHeader::new("2026-11-22T00:00:00+0000")).unwrap();
        encode::stream_header(&mut file, 3, &header).unwrap();
        let mut encoder = SampleEncoder::new(3, &header);
        let mut done = 0;
        while done < case.stamps.len() {
            done += encoder.chunk(&mut file, &case.stamps, &case.values, done, case.limit).unwrap();
            encode::boundary(&mut file);
        }
        encode::clock_offset(&mut file, 3, 1.5, -0.25);
        encode::private(&mut file, 0x7A01, b"chain").unwrap();
        let mut tally = Tally::default();
        tally.count(&case.stamps);
        tally.count_offset(1.5, -0.25);
        encode::stream_footer(&mut file, 3, &StreamFooter::new(&tally)).unwrap();

        let loaded = load(Pieces(&file, case.seed)).unwrap();
        prop_assert_eq!(&loaded.problems, &[]);
        let stream = loaded.stream(3).unwrap();
        let bit = |stamps: &[f64]| stamps.iter().map(|s| s.to_bits()).collect::<Vec<_>>();
        prop_assert_eq!(bit(&stream.stamps), bit(&case.stamps));
        prop_assert_eq!(bits(&stream.values), bits(&case.values));
        prop_assert_eq!(&stream.offsets, &[(1.5, -0.25)]);
        prop_assert_eq!(&loaded.private, &[(0x7A01, b"chain".to_vec())]);
        let footer = stream.footer.as_ref().unwrap();
        prop_assert_eq!(footer.sample_count(), Some(case.stamps.len() as u64));
        if let Some(first) = case.stamps.first().filter(|stamp| !stamp.is_nan()) {
            prop_assert_eq!(footer.first_timestamp(), Some(*first));
        }
        prop_assert_eq!(footer.clock_offsets(), [(1.5, -0.25)]);
    }
}

#[test]
fn stamps_are_elided_but_never_the_first_of_a_chunk() {
    let format = ChannelFormat::Int8;
    let header = made::header(format, 1, 250.0);
    let (stamps, values) = (made::stamps(0, 100, 250.0), made::values(format, 0, 100, 1));
    let mut file = lsl_xdf::chunk::MAGIC.to_vec();
    encode::stream_header(&mut file, 1, &header).unwrap();
    let mut encoder = SampleEncoder::new(1, &header);
    let first = encoder.chunk(&mut file, &stamps, &values, 0, 100).unwrap();
    // A chunk that is lost between two others changes no stamp of them.
    let lost = encoder
        .chunk(&mut Vec::new(), &stamps, &values, first, 100)
        .unwrap();
    encoder
        .chunk(&mut file, &stamps, &values, first + lost, 10_000)
        .unwrap();
    let loaded = load(&file[..]).unwrap();
    let stream = loaded.stream(1).unwrap();
    let kept = [&stamps[..first], &stamps[first + lost..]].concat();
    assert_eq!(stream.stamps, kept);
    assert!(
        stream.full_stamps < kept.len() / 3,
        "{}",
        stream.full_stamps
    );
    assert_eq!(loaded.problems, []);
}

#[test]
fn headers_keep_what_they_hold_and_become_legal() {
    let mut info =
        StreamInfo::new("EEG <1>", "EEG", 2, 250.0, ChannelFormat::Float32, "id&1").unwrap();
    info.desc_mut()
        .child("my channel")
        .set("1st", "a\u{1}b")
        .set("unit", "µV");
    let header = StreamHeader::from_info(&info).unwrap();
    assert_eq!(header.name(), "EEG <1>");
    assert_eq!(header.get("source_id").unwrap(), "id&1");
    let mut file = lsl_xdf::chunk::MAGIC.to_vec();
    encode::stream_header(&mut file, 1, &header).unwrap();
    let loaded = load(&file[..]).unwrap();
    assert_eq!(loaded.problems, [], "a strict reader would refuse it");
    let read = &loaded.stream(1).unwrap().header;
    let text = String::from_utf8(read.document().write()).unwrap();
    assert!(text.contains("<my_channel>"), "{text}");
    assert!(text.contains("<_1st>a\u{FFFD}b</_1st>"), "{text}");
    assert!(text.contains("<unit>µV</unit>"), "{text}");
}

#[test]
fn what_does_not_fit_together_is_refused() {
    let header = made::header(ChannelFormat::Int8, 2, 0.0);
    let mut encoder = SampleEncoder::new(1, &header);
    let mut out = Vec::new();
    for (stamps, values) in [
        (vec![1.0], Values::from(vec![1_i8])),
        (vec![1.0], vec![1_i16, 2].into()),
        (vec![], vec![1_i8, 2].into()),
    ] {
        assert!(encoder.chunk(&mut out, &stamps, &values, 0, 10).is_err());
    }
    assert!(encode::private(&mut out, 5, b"").is_err());
    assert!(out.is_empty());
}
