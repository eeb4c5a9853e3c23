//! The DESCRIPTOR of the reference script, and everything that must not parse. Spec: LSS/1 §7.4.

use proptest::prelude::*;
use serde::Deserialize;

use super::*;
use crate::testing::{unhex, unhex_array};

#[derive(Deserialize)]
struct Vector {
    texts: Vec<String>,
    channel_count: u32,
    nominal_srate: f64,
    channel_format: u8,
    created_at_bits: String,
    payload: String,
}

fn vector() -> Vector {
    #[derive(Deserialize)]
    struct File {
        descriptor: Vector,
    }
    let text = include_str!("../../tests/vectors/secure-session-vectors.json");
    serde_json::from_str::<File>(text).unwrap().descriptor
}

/// What an outlet with the values of the vector announces: the double of its shortinfo's text.
fn of_the_vector(vector: &Vector, created_at: f64) -> Descriptor {
    let text = |index: usize| unhex(&vector.texts[index]);
    Descriptor {
        uid: text(0),
        name: text(1),
        stream_type: text(2),
        source_id: text(3),
        hostname: text(4),
        session_id: text(5),
        channel_count: vector.channel_count,
        nominal_srate: vector.nominal_srate,
        channel_format: vector.channel_format,
        created_at,
    }
}

#[test]
fn the_payload_is_the_reference() {
    let vector = vector();
    let internal = f64::from_be_bytes(unhex_array(&vector.created_at_bits));
    // 16 significant digits, as `%#.16g` writes them, read back: one bit less.
    let seen: f64 = format!("{internal:.10}").parse().unwrap();
    assert_ne!(seen.to_bits(), internal.to_bits());
    let whole = of_the_vector(&vector, seen);
    assert_eq!(whole.name.len(), 1500);
    let cut = whole.clone().canonical();
    assert_eq!(cut.name.len(), 1024);
    assert_eq!(cut.clone().canonical(), cut);
    for descriptor in [&whole, &cut] {
        assert_eq!(descriptor.to_bytes(), unhex(&vector.payload));
    }
    let parsed = Descriptor::parse(&unhex(&vector.payload)).unwrap();
    assert_eq!(parsed, cut);
    assert_eq!(parsed.differs_from(&cut), None);
    let other_bit = of_the_vector(&vector, internal).canonical();
    assert_eq!(parsed.differs_from(&other_bit), Some("created_at"));
}

fn small() -> Descriptor {
    Descriptor {
        uid: b"uid".to_vec(),
        name: b"name".to_vec(),
        stream_type: b"EEG".to_vec(),
        source_id: Vec::new(),
        hostname: vec![0xff, 0, b'\r', b'\n'],
        session_id: b"default".to_vec(),
        channel_count: 8,
        nominal_srate: 0.0,
        channel_format: 7,
        created_at: 1.5,
    }
}

/// A field as it is on the wire.
fn field(field_type: u16, value: &[u8]) -> Vec<u8> {
    let len = u16::try_from(value.len()).unwrap();
    [&field_type.to_be_bytes()[..], &len.to_be_bytes(), value].concat()
}

/// The fields of [`small`], in order.
fn fields() -> Vec<Vec<u8>> {
    let (mut fields, payload) = (Vec::new(), small().to_bytes());
    let mut reader = Fields { rest: &payload };
    while !reader.rest.is_empty() {
        let (field_type, value) = reader.next().unwrap();
        fields.push(field(field_type, value));
    }
    assert_eq!(fields.concat(), payload);
    fields
}

fn parse(fields: &[Vec<u8>]) -> Result<Descriptor> {
    Descriptor::parse(&fields.concat())
}

fn is_malformed(result: &Result<Descriptor>) -> bool {
    matches!(result, Err(error) if error.cause() == Cause::Malformed)
}

#[test]
fn every_field_is_there_once_and_in_its_place() {
    assert_eq!(parse(&fields()).unwrap(), small());
    for at in 0..10 {
        let (mut missing, mut twice, mut unsorted) = (fields(), fields(), fields());
        missing.remove(at);
        twice.insert(at, twice[at].clone());
        unsorted.swap(at, (at + 1) % 10);
        for wrong in [missing, twice, unsorted] {
            assert!(is_malformed(&parse(&wrong)), "field {}", at + 1);
        }
    }
}

#[test]
fn lengths_and_values_are_exact() {
    for (field_type, len) in [(7, 4), (8, 8), (9, 1), (10, 8)] {
        for wrong_len in [0, len - 1, len + 1] {
            let mut wrong = fields();
            wrong[usize::from(field_type) - 1] = field(field_type, &vec![1; wrong_len]);
            assert!(is_malformed(&parse(&wrong)), "field {field_type}");
        }
    }
    for field_type in 1..=6 {
        let mut long = fields();
        long[usize::from(field_type) - 1] = field(field_type, &[b'x'; 1024]);
        assert!(parse(&long).is_ok());
        long[usize::from(field_type) - 1] = field(field_type, &[b'x'; 1025]);
        assert!(is_malformed(&parse(&long)), "field {field_type}");
    }
    for format in 0..=u8::MAX {
        let mut other = fields();
        other[8] = field(9, &[format]);
        assert_eq!(parse(&other).is_ok(), (1..=7).contains(&format));
    }
}

#[test]
fn nothing_is_cut_off_or_left_over() {
    let payload = small().to_bytes();
    for len in 0..payload.len() {
        assert!(is_malformed(&Descriptor::parse(&payload[..len])), "{len}");
    }
    for extra in [vec![0], vec![0, 11], vec![0, 11, 0], vec![0, 11, 0, 1]] {
        assert!(is_malformed(&Descriptor::parse(
            &[payload.clone(), extra].concat()
        )));
    }
}

#[test]
fn later_fields_are_ignored_in_order_only() {
    let with = |later: &[(u16, &[u8])]| {
        let mut all = fields();
        all.extend(
            later
                .iter()
                .map(|(field_type, value)| field(*field_type, value)),
        );
        parse(&all)
    };
    assert_eq!(
        with(&[(11, b""), (12, b"more"), (0xffff, &vec![0; 60_000])]).unwrap(),
        small()
    );
    for wrong in [
        &[(10, &[0; 8][..])][..],
        &[(1, b"uid")],
        &[(0, b"")],
        &[(12, b""), (11, b"")],
        &[(11, b""), (11, b"")],
    ] {
        assert!(is_malformed(&with(wrong)));
    }
}

#[test]
fn the_first_difference_is_named() {
    let check = |name: &str, change: fn(&mut Descriptor)| {
        let mut other = small();
        change(&mut other);
        assert_eq!(other.differs_from(&small()), Some(name));
        assert_eq!(small().differs_from(&other), Some(name));
        // A restarted stream differs in its uid, and that comes first.
        other.uid = b"another".to_vec();
        assert_eq!(other.differs_from(&small()), Some("uid"));
    };
    check("uid", |other| other.uid.push(b'x'));
    check("name", |other| other.name.clear());
    check("type", |other| other.stream_type[0] = b'e');
    check("source_id", |other| other.source_id.push(0));
    check("hostname", |other| other.hostname.truncate(1));
    check("session_id", |other| other.session_id.push(b' '));
    check("channel_count", |other| other.channel_count += 1);
    check("nominal_srate", |other| other.nominal_srate = -0.0);
    check("channel_format", |other| other.channel_format = 1);
    check("created_at", |other| other.created_at = f64::NAN);
    assert_eq!(small().differs_from(&small()), None);
    let mut not_a_number = small();
    not_a_number.created_at = f64::NAN;
    assert_eq!(not_a_number.differs_from(&not_a_number.clone()), None);
}

#[test]
fn a_restarted_stream_keeps_what_identifies_it() {
    let check = |expected: Option<&str>, change: fn(&mut Descriptor)| {
        let (mut original, mut new) = (small(), small());
        original.source_id = b"source".to_vec();
        new.source_id = b"source".to_vec();
        change(&mut new);
        assert_eq!(new.is_other_stream_than(&original), expected);
    };
    check(None, |new| new.uid.clear());
    check(None, |new| new.hostname.clear());
    check(None, |new| new.session_id.clear());
    check(None, |new| new.nominal_srate = 1.0);
    check(None, |new| new.created_at = 9.0);
    check(Some("name"), |new| new.name.clear());
    check(Some("type"), |new| new.stream_type.clear());
    check(Some("source_id"), |new| new.source_id.clear());
    check(Some("channel_count"), |new| new.channel_count = 9);
    check(Some("channel_format"), |new| new.channel_format = 1);
    // What the original leaves open is free.
    let (mut open, mut new) = (small(), small());
    open.name.clear();
    open.stream_type.clear();
    new.source_id = b"anything".to_vec();
    assert_eq!(new.is_other_stream_than(&open), None);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

    #[test]
    fn whatever_is_written_reads_back(
        texts in prop::array::uniform6(prop::collection::vec(any::<u8>(), 0..1100)),
        channel_count: u32,
        rate_bits: u64,
        channel_format in 1_u8..=7,
        created_bits: u64,
    ) {
        let [uid, name, stream_type, source_id, hostname, session_id] = texts;
        let descriptor = Descriptor {
            uid, name, stream_type, source_id, hostname, session_id,
            channel_count,
            nominal_srate: f64::from_bits(rate_bits),
            channel_format,
            created_at: f64::from_bits(created_bits),
        }
        .canonical();
        let parsed = Descriptor::parse(&descriptor.to_bytes()).unwrap();
        prop_assert_eq!(parsed.differs_from(&descriptor), None);
    }

    #[test]
    fn arbitrary_bytes_never_panic(payload in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = Descriptor::parse(&payload);
    }
}

#[test]
fn a_text_of_any_length_is_cut_once_and_by_its_end() {
    for len in [1024, 1025, 60_000, 200_000] {
        let mut descriptor = small();
        descriptor.name = vec![b'n'; len];
        let mut other = descriptor.clone();
        if let Some(last) = other.name.last_mut() {
            *last = b'm';
        }
        let (cut, other) = (descriptor.canonical(), other.canonical());
        assert_eq!(cut.name.len(), 1024);
        assert_eq!(cut.differs_from(&other), Some("name"), "{len}");
        assert_eq!(Descriptor::parse(&cut.to_bytes()).unwrap(), cut);
    }
}
