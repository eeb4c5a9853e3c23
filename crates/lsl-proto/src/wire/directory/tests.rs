use proptest::prelude::*;

use super::*;

const UID: &[u8] = b"39d71c4e-a901-4450-9e30-ee6f79450e0c";

/// A record with an owner, as the parser's borrow its buffers.
#[derive(Debug, Clone, PartialEq)]
enum Kept {
    Stream(Vec<u8>, Vec<u8>),
    Gone(Vec<u8>, Withdrawal),
    Clock(Vec<u8>, SourceClock),
    Known,
}

impl Kept {
    fn of(record: Record<'_>) -> Self {
        match record {
            Record::Stream { uid, xml } => Self::Stream(uid.to_vec(), xml.to_vec()),
            Record::Gone { uid, reason } => Self::Gone(uid.to_vec(), reason),
            Record::Clock { uid, clock } => Self::Clock(uid.to_vec(), clock),
            Record::Known => Self::Known,
        }
    }

    fn record(&self) -> Record<'_> {
        match self {
            Self::Stream(uid, xml) => Record::Stream { uid, xml },
            Self::Gone(uid, reason) => Record::Gone {
                uid,
                reason: *reason,
            },
            Self::Clock(uid, clock) => Record::Clock { uid, clock: *clock },
            Self::Known => Record::Known,
        }
    }
}

/// Reads pieces as they come; what was read before a mistake counts.
fn read<'a>(
    pieces: impl IntoIterator<Item = &'a [u8]>,
) -> (Vec<Kept>, Result<RecordParser, RecordError>) {
    let mut parser = RecordParser::new();
    let mut records = Vec::new();
    for mut piece in pieces {
        loop {
            match parser.next(&mut piece) {
                Ok(Some(record)) => records.push(Kept::of(record)),
                Ok(None) => break,
                Err(error) => return (records, Err(error)),
            }
        }
        assert!(piece.is_empty());
        assert!(parser.line.len() <= MAX_LINE_BYTES && parser.xml.len() <= MAX_DOCUMENT_BYTES);
    }
    (records, Ok(parser))
}

fn check(text: &str, expected: Result<&[Kept], RecordError>) {
    let (records, result) = read([text.as_bytes()]);
    match (expected, result) {
        (Ok(expected), Ok(_)) => assert_eq!(records, expected, "{text:?}"),
        (Err(expected), Err(error)) => assert_eq!(error, expected, "{text:?}"),
        (_, result) => panic!("{text:?}: {records:?}, {:?}", result.err()),
    }
}

#[test]
fn records_are_written_as_the_specification_says() {
    let clock = SourceClock {
        offset_secs: -0.1,
        uncertainty_secs: 0.0002,
        measured_at: 2.0,
    };
    let mut out = Vec::new();
    for record in [
        Record::Stream {
            uid: UID,
            xml: b"<info/>",
        },
        Record::Gone {
            uid: b"u",
            reason: Withdrawal::Hidden,
        },
        Record::Clock { uid: b"u", clock },
        Record::Known,
    ] {
        record.append_to(&mut out).unwrap();
    }
    let expected = "+ 39d71c4e-a901-4450-9e30-ee6f79450e0c 7\r\n<info/>- u hidden\r\n\
                    t u -0.10000000000000001 0.00020000000000000001 2\r\n=\r\n";
    assert_eq!(String::from_utf8(out).unwrap(), expected);
}

#[test]
fn records_are_read_by_the_grammar() {
    let stream = |uid: &str, xml: &str| Kept::Stream(uid.into(), xml.into());
    check("", Ok(&[]));
    check("=\r\n=\r\n", Ok(&[Kept::Known, Kept::Known]));
    check(
        "+ u 0\r\n+ v 3\r\na\r\n",
        Ok(&[stream("u", ""), stream("v", "a\r\n")]),
    );
    check("+ u 4\r\nabc", Ok(&[]));
    check(
        "- u ended\r\n",
        Ok(&[Kept::Gone(b"u".to_vec(), Withdrawal::Ended)]),
    );
    let far = "a".repeat(MAX_UID_BYTES);
    check(&format!("+ {far} 1\r\nx"), Ok(&[stream(&far, "x")]));
    check(&format!("+ {far}a 1\r\nx"), Err(RecordError::Uid));
    check("+ u 1048577\r\n", Err(RecordError::TooLong));
    check("+ u 99999999999999999999999\r\n", Err(RecordError::Number));
    for number in ["", "-1", "+1", "1x", "0x1"] {
        check(&format!("+ u {number}\r\n"), Err(RecordError::Number));
    }
    for clock in ["nan 0 0", "inf 0 0", "0 -1 0", "1e999 0 0", "0 0 x"] {
        check(&format!("t u {clock}\r\n"), Err(RecordError::Number));
    }
    for kind in [
        "",
        " ",
        "= ",
        "== ",
        "+ u",
        "+ u 1 1",
        "- u",
        "- u gone",
        "t u 0 0",
        "LSL/110 404",
    ] {
        check(&format!("{kind}\r\n"), Err(RecordError::Kind));
    }
    for uid in ["", "\u{e4}", "a\tb", "a\0"] {
        check(&format!("- {uid} lost\r\n"), Err(RecordError::Uid));
    }
    check("=\n", Err(RecordError::Line));
    check(&"a".repeat(MAX_LINE_BYTES + 1), Err(RecordError::Line));
}

#[test]
fn what_no_reader_accepts_is_not_written() {
    let refused = |record: Record<'_>, error| {
        let mut out = b"before".to_vec();
        assert_eq!(record.append_to(&mut out), Err(error));
        assert_eq!(out, b"before");
    };
    let stream = |uid, xml| Record::Stream { uid, xml };
    refused(stream(b"", b""), RecordError::Uid);
    refused(stream(b"a b", b""), RecordError::Uid);
    refused(stream(&[b'a'; 65], b""), RecordError::Uid);
    refused(
        stream(b"u", &vec![b' '; MAX_DOCUMENT_BYTES + 1]),
        RecordError::TooLong,
    );
    for (uncertainty_secs, measured_at) in [(f64::NAN, 0.0), (-1.0, 0.0), (0.0, f64::INFINITY)] {
        let clock = SourceClock {
            offset_secs: 0.0,
            uncertainty_secs,
            measured_at,
        };
        refused(Record::Clock { uid: b"u", clock }, RecordError::Number);
    }
}

#[test]
fn nothing_is_allocated_for_a_claim() {
    let (records, parser) = read([&b"+ u 1048576\r\nabc"[..]]);
    let parser = parser.unwrap();
    assert!(
        records.is_empty() && parser.xml.capacity() < 64,
        "{parser:?}"
    );
}

#[test]
fn memory_of_a_long_document_goes_back() {
    let mut bytes = Vec::new();
    let xml = vec![b' '; MAX_DOCUMENT_BYTES];
    let long = Record::Stream {
        uid: UID,
        xml: &xml,
    };
    long.append_to(&mut bytes).unwrap();
    Record::Known.append_to(&mut bytes).unwrap();
    let (records, parser) = read(bytes.chunks(4096));
    assert_eq!(records.len(), 2);
    assert!(parser.unwrap().xml.capacity() <= KEEP_BYTES);
}

#[test]
fn requests_are_written_and_read() {
    for (once, past, text) in [
        (false, false, "LSL:watch/1\r\nname='a'\r\n"),
        (true, false, "LSL:watch/1 once\r\nname='a'\r\n"),
        (false, true, "LSL:watch/1 past\r\nname='a'\r\n"),
        (true, true, "LSL:watch/1 once past\r\nname='a'\r\n"),
    ] {
        let query = b"name='a'".to_vec();
        let request = WatchRequest { once, past, query };
        assert_eq!(request.to_bytes(), text.as_bytes());
        assert_eq!(WatchRequest::parse(text.as_bytes()), Some(request));
    }
    for line in [
        "LSL:watch",
        "LSL:watch/11",
        "LSL:watch/1 ever",
        "LSL:watch/1 past once",
        "LSL:watch/1 once once",
    ] {
        assert_eq!(WatchRequest::parse_command(line.as_bytes()), None, "{line}");
    }
    let query = |len| [&b"LSL:watch/1\r\n"[..], &vec![b'a'; len], b"\r\n"].concat();
    assert!(WatchRequest::parse(&query(MAX_QUERY_BYTES)).is_some());
    assert!(WatchRequest::parse(&query(MAX_QUERY_BYTES + 1)).is_none());
}

fn secs() -> impl Strategy<Value = f64> {
    any::<f64>().prop_filter("a number", |secs| secs.is_finite())
}

fn records() -> impl Strategy<Value = Vec<Kept>> {
    let uid = || "[!-~]{1,64}".prop_map(String::into_bytes);
    let xml = proptest::collection::vec(any::<u8>(), 0..300);
    let reason = prop_oneof![
        Just(Withdrawal::Ended),
        Just(Withdrawal::Lost),
        Just(Withdrawal::Hidden)
    ];
    let clock = (secs(), secs(), secs()).prop_map(|(offset, uncertainty, at)| SourceClock {
        offset_secs: offset,
        uncertainty_secs: uncertainty.abs(),
        measured_at: at,
    });
    let record = prop_oneof![
        (uid(), xml).prop_map(|(uid, xml)| Kept::Stream(uid, xml)),
        (uid(), reason).prop_map(|(uid, reason)| Kept::Gone(uid, reason)),
        (uid(), clock).prop_map(|(uid, clock)| Kept::Clock(uid, clock)),
        Just(Kept::Known),
    ];
    proptest::collection::vec(record, 0..8)
}

proptest! {
    #[test]
    fn what_is_written_is_read_however_it_is_cut(
        records in records(),
        lens in proptest::collection::vec(1_usize..40, 1..20),
    ) {
        let mut bytes = Vec::new();
        for kept in &records {
            kept.record().append_to(&mut bytes).unwrap();
        }
        let mut rest = &bytes[..];
        let mut pieces = Vec::new();
        for len in lens.into_iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (piece, after) = rest.split_at(len.min(rest.len()));
            pieces.push(piece);
            rest = after;
        }
        let (read, result) = read(pieces);
        prop_assert!(result.is_ok());
        prop_assert_eq!(read, records);
    }

    #[test]
    fn any_bytes_are_read_the_same_however_they_are_cut(
        bytes in proptest::collection::vec(prop_oneof![Just(b'\r'), Just(b'\n'), Just(b'='), Just(b'+'), Just(b' '), Just(b'1'), any::<u8>()], 0..200),
    ) {
        let (whole, end) = read([&bytes[..]]);
        let (single, single_end) = read(bytes.chunks(1));
        prop_assert_eq!(whole, single);
        prop_assert_eq!(end.err(), single_end.err());
    }
}
