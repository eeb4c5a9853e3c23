//! Files that were cut, overwritten or robbed of their headers: what is repaired loads, and what is
//! lost is known by the numbers of the samples.

use lsl_proto::ChannelFormat;
use lsl_xdf::chunk::{Tag, append_chunk};
use lsl_xdf::repair::{Finding, Survey, survey};
use lsl_xdf::salvage::Salvage;
use lsl_xdf::{ErrorKind, FileHeader, Loaded, PipeSink, Recording, StreamHeader, Values, load};
use proptest::prelude::*;

use crate::made;

/// A whole recording and after which lengths how many samples of each stream were in it.
struct Recorded {
    bytes: Vec<u8>,
    steps: Vec<(u64, [usize; 2])>,
}

const FORMATS: [ChannelFormat; 2] = [ChannelFormat::Float32, ChannelFormat::String];

fn record(chunks: usize, per_chunk: usize) -> Recorded {
    let header = FileHeader::new("2026-11-22T00:00:00+0000");
    let mut recording = Recording::new(PipeSink(Vec::new()), &header, 0.0).unwrap();
    let mut steps = vec![(0, [0, 0])];
    for format in FORMATS {
        recording
            .add_stream(&made::header(format, 2, 100.0), 0.0)
            .unwrap();
    }
    let mut counts = [0, 0];
    for chunk in 0..chunks {
        let now = chunk as f64 * 3.0;
        for (index, format) in FORMATS.into_iter().enumerate() {
            let id = index as u32 + 1;
            let stamps = made::stamps(counts[index], per_chunk, 100.0);
            let values = made::values(format, counts[index], per_chunk, 2);
            recording.samples(id, &stamps, &values, now).unwrap();
            counts[index] += per_chunk;
            steps.push((recording.len(), counts));
            recording.clock_offset(id, now, 0.125, now).unwrap();
        }
    }
    recording.finish(chunks as f64 * 3.0).unwrap();
    Recorded {
        bytes: recording.into_sink().0,
        steps,
    }
}

fn repaired(bytes: &[u8]) -> (Survey, Vec<u8>) {
    let survey = survey(bytes).unwrap();
    let mut repaired = Vec::new();
    survey.write_repaired(bytes, &mut repaired).unwrap();
    assert_eq!(survey.repaired_len(), repaired.len() as u64);
    (survey, repaired)
}

/// The samples of each stream are the first ones that were recorded; how many.
fn first_ones(loaded: &Loaded) -> [usize; 2] {
    let mut counts = [0, 0];
    for stream in &loaded.streams {
        let index = stream.id as usize - 1;
        let count = stream.stamps.len();
        assert_eq!(stream.stamps, made::stamps(0, count, 100.0));
        assert_eq!(stream.values, made::values(FORMATS[index], 0, count, 2));
        counts[index] = count;
    }
    counts
}

/// Sound, closed, and the footers tell the truth.
fn assert_sound(bytes: &[u8]) -> Loaded {
    let again = survey(bytes).unwrap();
    let serious = again
        .findings
        .iter()
        .filter(|finding| !matches!(finding, Finding::NoOffsets { .. } | Finding::NoFileHeader));
    assert_eq!(serious.collect::<Vec<_>>(), Vec::<&Finding>::new());
    assert!(again.is_whole());
    let loaded = load(bytes).unwrap();
    assert_eq!(loaded.problems, []);
    for stream in &loaded.streams {
        let footer = stream.footer.as_ref().unwrap();
        assert_eq!(footer.sample_count(), Some(stream.stamps.len() as u64));
        assert_eq!(footer.clock_offsets(), stream.offsets);
        if let (Some(first), Some(last)) = (stream.stamps.first(), stream.stamps.last()) {
            assert_eq!(footer.first_timestamp(), Some(*first));
            assert_eq!(footer.last_timestamp(), Some(*last));
        }
    }
    loaded
}

#[test]
fn a_file_cut_at_any_byte_is_repaired_and_keeps_every_whole_sample() {
    let recorded = record(4, 3);
    let mut saved = 0;
    for cut in 4..=recorded.bytes.len() {
        let (survey, repaired) = repaired(&recorded.bytes[..cut]);
        let loaded = assert_sound(&repaired);
        let got = first_ones(&loaded);
        // All chunks that were whole are there, and all whole samples of the one that was not.
        let (_, whole) = recorded
            .steps
            .iter()
            .rfind(|(len, _)| *len <= cut as u64)
            .unwrap();
        assert!(
            got[0] >= whole[0] && got[1] >= whole[1],
            "{got:?} of {whole:?} at {cut}"
        );
        assert_eq!(got, first_ones(&load(&recorded.bytes[..cut]).unwrap()));
        saved += got[0] + got[1] - whole[0] - whole[1];
        assert!(survey.tail().is_some(), "could be done in place");
        if cut == recorded.bytes.len() {
            assert!(survey.is_whole());
            assert_eq!(repaired, recorded.bytes);
        }
    }
    assert!(saved > 100, "{saved} samples of chunks that were cut");
    for cut in 0..4 {
        let error = survey(&recorded.bytes[..cut]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotXdf);
    }
}

#[test]
fn repair_is_what_it_was_when_interrupted_and_done_again() {
    let recorded = record(3, 2);
    let cut = recorded.bytes.len() / 2;
    let survey = survey(&recorded.bytes[..cut]).unwrap();
    let (keep, tail) = survey.tail().unwrap();
    let expected = first_ones(&load(&recorded.bytes[..keep as usize]).unwrap());
    for done in 0..tail.len() {
        let half = [&recorded.bytes[..keep as usize], &tail[..done]].concat();
        let (_, repaired) = repaired(&half);
        let got = first_ones(&assert_sound(&repaired));
        assert!(got[0] >= expected[0] && got[1] >= expected[1]);
    }
}

#[test]
fn a_power_cut_that_leaves_zeros_is_repaired() {
    let recorded = record(4, 3);
    for zeros in [1, 100, 5000] {
        let cut = recorded.bytes.len() / 2;
        let mut bytes = recorded.bytes[..cut].to_vec();
        bytes.resize(cut + zeros, 0);
        let (_, repaired) = repaired(&bytes);
        let loaded = assert_sound(&repaired);
        assert!(!loaded.streams.is_empty());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// Whatever was overwritten: what is repaired is sound, and so is what is salvaged.
    #[test]
    fn overwritten_files_become_sound(
        places in proptest::collection::vec((any::<prop::sample::Index>(), 1..40_usize, any::<u8>()), 1..5),
    ) {
        let mut bytes = record(5, 4).bytes;
        for (place, len, value) in places {
            let at = 4 + place.index(bytes.len() - 4);
            let end = (at + len).min(bytes.len());
            bytes[at..end].fill(value);
        }
        let (_, repaired) = repaired(&bytes);
        let again = survey(&repaired[..]).unwrap();
        prop_assert!(again.is_whole(), "{:?}", again.findings);
        let mut salvaged = Vec::new();
        Salvage::new().run(&bytes[..], &mut salvaged).unwrap();
        let again = survey(&salvaged[..]).unwrap();
        prop_assert!(again.is_whole(), "{:?}", again.findings);
    }
}

#[test]
fn a_hole_costs_what_was_in_it_up_to_the_boundary() {
    let recorded = record(20, 3);
    let mut bytes = recorded.bytes.clone();
    let at = recorded.steps[15].0 as usize;
    bytes[at..at + 30].fill(0xEE);
    let (survey, repaired) = repaired(&bytes);
    let loaded = load(&repaired[..]).unwrap();
    assert_eq!(loaded.problems, []);
    let counts: Vec<_> = loaded.streams.iter().map(|s| s.stamps.len()).collect();
    assert!(counts.iter().sum::<usize>() < 120);
    for stream in &loaded.streams {
        // Boundaries stand every 12 s here, which is 4 chunks of 3 samples each.
        assert!(stream.stamps.len() >= 60 - 15, "{counts:?}");
        assert_eq!(stream.stamps.last(), made::stamps(59, 1, 100.0).first());
    }
    assert!(survey.tail().is_none());
    // The footers tell what was recorded, the findings that it is not all there.
    let said = survey
        .findings
        .iter()
        .filter(|f| matches!(f, Finding::FooterCount { .. }));
    let robbed = counts.iter().filter(|&&count| count < 60);
    assert_eq!(said.count(), robbed.count());
}

#[test]
fn headers_that_strict_readers_refuse_are_written_anew() {
    let mut bytes = lsl_xdf::chunk::MAGIC.to_vec();
    let xml = b"<info><name>a & b</name><channel_count>1</channel_count><nominal_srate>0\
        </nominal_srate><channel_format>int8</channel_format><desc><my tag>\x01</my tag></desc></info>";
    append_chunk(&mut bytes, Tag::StreamHeader, &[&1_u32.to_le_bytes(), xml]);
    let mut content = vec![1, 0, 0, 0, 1, 1, 8];
    content.extend(5.0_f64.to_le_bytes());
    content.push(42);
    append_chunk(&mut bytes, Tag::Samples, &[&content]);
    let (_, repaired) = repaired(&bytes);
    let loaded = assert_sound(&repaired);
    assert_eq!(loaded.streams[0].header.name(), "a & b");
    assert_eq!(loaded.streams[0].values, Values::Int8(vec![42]));
}

/// The chunks of a recording that `keep` keeps.
fn filtered(bytes: &[u8], keep: impl Fn(Tag) -> bool) -> Vec<u8> {
    let mut rest = &bytes[4..];
    let mut out = bytes[..4].to_vec();
    while let lsl_xdf::chunk::Parsed::Done(head, len) = lsl_xdf::chunk::read_head(rest) {
        let end = len + head.content_len as usize;
        if keep(head.tag) {
            out.extend(&rest[..end]);
        }
        rest = &rest[end..];
    }
    out
}

#[test]
fn salvage_does_without_headers() {
    let recorded = record(6, 5);
    let headless = filtered(&recorded.bytes, |tag| {
        !matches!(tag, Tag::StreamHeader | Tag::StreamFooter | Tag::FileHeader)
    });
    let mut salvaged = Vec::new();
    let report = Salvage::new().run(&headless[..], &mut salvaged).unwrap();
    assert!(report.streams.values().all(|stream| stream.is_guessed));
    let loaded = assert_sound(&salvaged);
    for (index, stream) in loaded.streams.iter().enumerate() {
        assert_eq!(stream.header.channel_format(), FORMATS[index]);
        assert_eq!(stream.header.channel_count(), 2);
        assert_eq!(stream.values, made::values(FORMATS[index], 0, 30, 2));
    }
    assert_eq!(loaded.streams.len(), 2);

    // With the headers of another recording everything is as it was.
    let mut plan = Salvage::new();
    for (index, format) in FORMATS.into_iter().enumerate() {
        plan = plan.with_header(index as u32 + 1, made::header(format, 2, 100.0));
    }
    let mut salvaged = Vec::new();
    let report = plan.run(&headless[..], &mut salvaged).unwrap();
    assert!(
        report
            .streams
            .values()
            .all(|stream| !stream.is_guessed && stream.samples == 30)
    );
    assert_eq!(first_ones(&assert_sound(&salvaged)), [30, 30]);
}

#[test]
fn salvage_takes_out_single_streams_and_needs_no_magic() {
    let mut bytes = record(6, 5).bytes;
    bytes[..4].fill(0);
    let mut salvaged = Vec::new();
    let report = Salvage::new()
        .only([2])
        .run(&bytes[..], &mut salvaged)
        .unwrap();
    assert_eq!(report.problems.len(), 1);
    let loaded = assert_sound(&salvaged);
    assert_eq!(loaded.streams.len(), 1);
    assert_eq!(first_ones(&loaded), [0, 30]);
    for nothing in [&b""[..], b"XD", b"XDF:", &[0; 100]] {
        let mut salvaged = Vec::new();
        Salvage::new().run(nothing, &mut salvaged).unwrap();
        assert!(load(&salvaged[..]).unwrap().streams.is_empty());
    }
}

#[test]
fn salvage_keeps_a_stream_that_changed_its_shape_apart() {
    let mut bytes = lsl_xdf::chunk::MAGIC.to_vec();
    for channels in [1_u32, 2] {
        let header: StreamHeader = made::header(ChannelFormat::Int8, channels, 0.0);
        lsl_xdf::encode::stream_header(&mut bytes, 1, &header).unwrap();
        let values = Values::from(vec![channels as i8; channels as usize]);
        lsl_xdf::encode::SampleEncoder::new(1, &header)
            .chunk(&mut bytes, &[1.0], &values, 0, 1)
            .unwrap();
    }
    // To and fro, again and again: every shape has one place.
    let once = bytes.split_off(4);
    for _ in 0..50 {
        bytes.extend(&once);
    }
    let mut salvaged = Vec::new();
    let report = Salvage::new().run(&bytes[..], &mut salvaged).unwrap();
    assert_eq!(report.streams.len(), 2);
    let loaded = assert_sound(&salvaged);
    assert_eq!(loaded.streams[0].values, Values::Int8(vec![1; 50]));
    assert_eq!(loaded.streams[1].values, Values::Int8(vec![2; 100]));
}

/// A length that leads over other chunks hides them up to the next boundary only.
#[test]
fn a_wrong_length_of_any_chunk_costs_what_is_before_the_next_boundary() {
    for tag in [
        Tag::ClockOffset,
        Tag::Boundary,
        Tag::Other(0x7A00),
        Tag::StreamFooter,
    ] {
        let mut bytes = record(4, 3).bytes;
        let at = bytes.len();
        // Says that it is 2000 bytes long, and has 4.
        bytes.extend([4, 0xD0, 7, 0, 0]);
        bytes.extend(tag.code().to_le_bytes());
        bytes.extend([1, 0, 0, 0]);
        append_chunk(&mut bytes, Tag::Boundary, &[&lsl_xdf::chunk::BOUNDARY_UUID]);
        for _ in 0..300 {
            append_chunk(&mut bytes, Tag::ClockOffset, &[&[1, 0, 0, 0], &[0; 16]]);
        }
        let loaded = load(&bytes[..]).unwrap();
        assert_eq!(loaded.problems.len(), 1, "{tag}: {:?}", loaded.problems);
        assert_eq!(
            (loaded.problems[0].at, loaded.problems[0].len),
            (at as u64, 11 + 20)
        );
        assert_eq!(loaded.streams[0].offsets.len(), 4 + 300);
    }
}
