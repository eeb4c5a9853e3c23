use super::*;
use crate::chunk::{append_chunk, append_varlen};
use crate::reader::{Loaded, load};
use crate::values::Strings;
use lsl_proto::ChannelFormat;

fn header_xml(format: &str, channels: usize, srate: &str) -> Vec<u8> {
    format!(
        "<?xml version=\"1.0\"?>\n<info>\n\t<name>s</name>\n\t<type>t</type>\n\
         \t<channel_count>{channels}</channel_count>\n\t<nominal_srate>{srate}</nominal_srate>\n\
         \t<channel_format>{format}</channel_format>\n\t<desc />\n</info>\n"
    )
    .into_bytes()
}

fn start(format: &str, channels: usize, srate: &str) -> Vec<u8> {
    let mut file = MAGIC.to_vec();
    append_chunk(
        &mut file,
        Tag::FileHeader,
        &[b"<info><version>1.0</version></info>"],
    );
    let xml = header_xml(format, channels, srate);
    append_chunk(&mut file, Tag::StreamHeader, &[&7_u32.to_le_bytes(), &xml]);
    file
}

/// Appends a samples chunk of stream 7 with the bytes that follow the count.
fn samples(file: &mut Vec<u8>, count: u64, content: &[u8]) {
    let mut number = Vec::new();
    append_varlen(&mut number, count);
    append_chunk(
        file,
        Tag::Samples,
        &[&7_u32.to_le_bytes(), &number, content],
    );
}

fn full(stamp: f64, values: &[u8]) -> Vec<u8> {
    [&[8], &stamp.to_le_bytes()[..], values].concat()
}

fn kinds(loaded: &Loaded) -> Vec<String> {
    let all = loaded.problems.iter();
    all.map(|problem| format!("{:?}", problem.kind)).collect()
}

#[test]
fn elided_stamps_count_on_over_chunks_as_labrecorder_writes_them() {
    let mut file = start("int8", 1, "4");
    samples(&mut file, 2, &[full(10.0, &[1]), vec![0, 2]].concat());
    // LabRecorder may leave out the first one of a chunk, too.
    samples(&mut file, 2, &[vec![0, 3], full(20.0, &[4])].concat());
    let loaded = load(&file[..]).unwrap();
    let stream = loaded.stream(7).unwrap();
    assert_eq!(stream.stamps, [10.0, 10.25, 10.5, 20.0]);
    assert_eq!(stream.values, Values::Int8(vec![1, 2, 3, 4]));
    assert_eq!(stream.full_stamps, 2);
    assert_eq!(loaded.problems, []);
}

#[test]
fn a_first_stamp_that_is_not_there_is_guessed_and_told() {
    let mut file = start("int8", 1, "4");
    samples(&mut file, 1, &[0, 1]);
    let loaded = load(&file[..]).unwrap();
    assert_eq!(loaded.stream(7).unwrap().stamps, [0.25]);
    assert_eq!(kinds(&loaded), ["StampsGuessed"]);
}

#[test]
fn lengths_may_have_any_width() {
    let mut file = start("string", 2, "0");
    let mut content = vec![4, 1, 0, 0, 0];
    content.extend(full(
        1.0,
        &[8, 2, 0, 0, 0, 0, 0, 0, 0, b'h', b'i', 4, 0, 0, 0, 0],
    ));
    content.splice(0..0, 7_u32.to_le_bytes());
    file.push(8);
    file.extend((content.len() as u64 + 2).to_le_bytes());
    file.extend([3, 0]);
    file.extend(content);
    let loaded = load(&file[..]).unwrap();
    let expected: Strings = ["hi", ""].into_iter().collect();
    assert_eq!(loaded.stream(7).unwrap().values, Values::String(expected));
    assert_eq!(loaded.problems, []);
}

#[test]
fn what_nobody_knows_is_skipped_and_shown() {
    let mut file = start("int16", 1, "0");
    append_chunk(&mut file, Tag::Other(99), &[b"what"]);
    append_chunk(&mut file, Tag::Other(0x7A01), &[]);
    append_chunk(&mut file, Tag::Other(0), &[&[1; 300]]);
    samples(&mut file, 1, &full(5.0, &[1, 2]));
    let loaded = load(&file[..]).unwrap();
    assert_eq!(loaded.private[0], (99, b"what".to_vec()));
    assert_eq!(loaded.private[1], (0x7A01, vec![]));
    assert_eq!(loaded.private.len(), 3);
    assert_eq!(
        loaded.stream(7).unwrap().values,
        Values::Int16(vec![0x0201])
    );
    assert_eq!(loaded.problems, []);
}

#[test]
fn zeros_and_garbage_are_left_at_the_next_boundary() {
    let mut file = start("int8", 1, "10");
    samples(&mut file, 1, &full(1.0, &[1]));
    let good = file.len() as u64;
    file.extend([0; 5000]);
    let lost = file.len() as u64 + 20 - good;
    append_chunk(&mut file, Tag::Boundary, &[&BOUNDARY_UUID]);
    samples(&mut file, 1, &[0, 2]);
    samples(&mut file, 1, &full(3.0, &[3]));
    let loaded = load(&file[..]).unwrap();
    let stream = loaded.stream(7).unwrap();
    assert_eq!(stream.values, Values::Int8(vec![1, 2, 3]));
    let problem = &loaded.problems[0];
    assert_eq!(
        (problem.at, problem.len, problem.resumed),
        (good, lost, true)
    );
    assert!(matches!(problem.kind, ProblemKind::Framing(_)));
    assert_eq!(loaded.problems[1].kind, ProblemKind::StampsGuessed);
}

#[test]
fn a_wrong_length_of_samples_costs_no_more_than_up_to_the_boundary() {
    let mut file = start("int8", 1, "0");
    // Claims a gigabyte.
    file.push(4);
    file.extend((1_u32 << 30).to_le_bytes());
    file.extend([3, 0, 7, 0, 0, 0, 1, 2]);
    file.extend(full(1.0, &[1]));
    file.extend(full(2.0, &[2]));
    append_chunk(&mut file, Tag::Boundary, &[&BOUNDARY_UUID]);
    samples(&mut file, 1, &full(3.0, &[3]));
    let loaded = load(&file[..]).unwrap();
    assert_eq!(loaded.stream(7).unwrap().stamps, [1.0, 2.0, 3.0]);
    assert_eq!(kinds(&loaded), ["TrailingBytes"]);
}

#[test]
fn bad_samples_keep_those_before_and_the_chunks_behind() {
    let mut file = start("int8", 1, "0");
    let content = [full(1.0, &[1]), vec![9], full(2.0, &[2])].concat();
    samples(&mut file, 2, &content);
    samples(&mut file, 1, &full(3.0, &[3]));
    let loaded = load(&file[..]).unwrap();
    assert_eq!(loaded.stream(7).unwrap().stamps, [1.0, 3.0]);
    assert!(kinds(&loaded)[0].starts_with("BadSamples { samples: 1"));
    // More samples than the chunk has room for.
    let mut file = start("int8", 1, "0");
    samples(&mut file, 1 << 40, &full(1.0, &[1]));
    samples(&mut file, 1, &full(3.0, &[3]));
    let loaded = load(&file[..]).unwrap();
    assert_eq!(loaded.stream(7).unwrap().stamps, [1.0, 3.0]);
}

#[test]
fn headers_may_be_missing_broken_or_come_again() {
    let mut file = MAGIC.to_vec();
    samples(&mut file, 1, &full(1.0, &[1]));
    append_chunk(
        &mut file,
        Tag::StreamHeader,
        &[&7_u32.to_le_bytes(), b"<info><name>x"],
    );
    // Cut markup with all that is needed is enough.
    let xml = header_xml("int8", 1, "0");
    append_chunk(
        &mut file,
        Tag::StreamHeader,
        &[&7_u32.to_le_bytes(), &xml[..xml.len() - 20]],
    );
    samples(&mut file, 1, &full(2.0, &[2]));
    append_chunk(
        &mut file,
        Tag::StreamHeader,
        &[&7_u32.to_le_bytes(), &header_xml("int8", 2, "0")],
    );
    samples(&mut file, 1, &full(3.0, &[3, 4]));
    let loaded = load(&file[..]).unwrap();
    assert_eq!(
        loaded.stream(7).unwrap().values,
        Values::Int8(vec![2, 3, 4])
    );
    let kinds = kinds(&loaded);
    assert_eq!(kinds.len(), 3, "{kinds:?}");
    assert_eq!(kinds[0], "NoHeader { tag: Samples }");
    assert!(kinds[1].starts_with("Unreadable { tag: StreamHeader"));
    assert!(kinds[2].starts_with("Flaw { tag: StreamHeader"));
}

#[test]
fn other_things_are_no_xdf() {
    for text in ["", "XDF", "XDG:", "\u{1f}\u{8b}xxxx"] {
        assert!(
            matches!(load(text.as_bytes()), Err(Error::NotXdf(_))),
            "{text}"
        );
    }
    assert!(load(&b"XDF:"[..]).unwrap().streams.is_empty());
}

#[test]
fn numbers_of_all_formats_are_little_endian() {
    for (format, bytes, expected) in [
        ("float32", vec![0, 0, 128, 63], Values::from(vec![1.0_f32])),
        (
            "double64",
            vec![0, 0, 0, 0, 0, 0, 0xF0, 0x3F],
            vec![1.0_f64].into(),
        ),
        (
            "int32",
            vec![1, 2, 0, 0x80],
            vec![-2_147_483_135_i32].into(),
        ),
        ("int16", vec![1, 0x80], vec![-32767_i16].into()),
        ("int8", vec![0xFF], vec![-1_i8].into()),
        (
            "int64",
            vec![1, 0, 0, 0, 0, 0, 0, 0x80],
            vec![i64::MIN + 1].into(),
        ),
    ] {
        let mut file = start(format, 1, "0");
        samples(&mut file, 1, &full(5.0, &bytes));
        assert_eq!(load(&file[..]).unwrap().stream(7).unwrap().values, expected);
    }
    assert_eq!(ChannelFormat::STREAMABLE.len(), 7);
}

#[test]
fn boundaries_are_found_wherever_the_window_is_cut() {
    let mut file = start("int8", 1, "0");
    file.push(77);
    file.extend(&BOUNDARY_UUID[..15]);
    file.extend([0x43; 3]);
    append_chunk(&mut file, Tag::Boundary, &[&BOUNDARY_UUID]);
    samples(&mut file, 1, &full(3.0, &[3]));
    for piece in 1..60 {
        let mut decoder = Decoder::new();
        let (mut at, mut have, mut stamps) = (0, piece, 0);
        loop {
            have = have.min(file.len());
            match decoder.step(&file[at..have], have == file.len()).unwrap() {
                DecodeStep::End => break,
                DecodeStep::Need(need) => {
                    assert!(need > have - at, "asks for what it has");
                    have = have.max(at + need).max(have + piece);
                }
                DecodeStep::Used(bytes, found) => {
                    at += bytes;
                    if let Some(Located {
                        event: Event::Samples(batch),
                        ..
                    }) = found
                    {
                        stamps += batch.stamps.len();
                    }
                }
            }
        }
        assert_eq!((stamps, at), (1, file.len()), "pieces of {piece}");
    }
}
