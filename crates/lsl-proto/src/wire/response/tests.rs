use proptest::prelude::*;

use super::*;
use crate::wire::discovery::tests::{hex, list, text, vector, vectors_named};
use crate::wire::request::{PROTOCOL_VERSION, Request};
use crate::wire::sequence::{Generation, Position};

const UID: &[u8] = b"0e-0f";

fn parser() -> ResponseParser {
    ResponseParser::new(
        PROTOCOL_VERSION,
        UID,
        ChannelFormat::Float32,
        ByteOrder::Little,
    )
}

/// Result for all bytes at once, followed by the end of the connection.
fn parse(bytes: &[u8]) -> Result<(FeedResponse, usize), FeedError> {
    let mut parser = parser();
    match parser.feed(bytes) {
        Ok(Some(done)) => Ok(done),
        Ok(None) => Err(parser.finish()),
        Err(error) => Err(error),
    }
}

fn with_headers(headers: &str) -> Result<FeedResponse, FeedError> {
    parse(format!("LSL/110 200 OK\r\n{headers}\r\n\r\n").as_bytes()).map(|(response, _)| response)
}

/// The formats of a stream whose captured feed is checked.
pub(crate) fn format_of(file: &serde_json::Value) -> ChannelFormat {
    if let Some(format) = file["inputs"]["channel_format"].as_str() {
        return format.parse().unwrap();
    }
    let xml = String::from_utf8(hex(&file["inputs"], "stream_xml_hex")).unwrap();
    let (_, rest) = xml.split_once("<channel_format>").unwrap();
    rest.split_once('<').unwrap().0.parse().unwrap()
}

#[test]
fn captured_responses_are_read_and_rewritten() {
    let mut seen = 0;
    for name in [vectors_named("feed110"), vectors_named("inlet110")].concat() {
        let file = vector(&name);
        let exchange = list(&file, "exchange");
        let Ok(Some(Request::StreamFeed { uid, .. })) =
            crate::wire::request::tests::parse(&hex(&exchange[0], "hex"))
        else {
            panic!("{name}");
        };
        let reply = &exchange[1];
        let bytes = hex(
            reply,
            if reply["hex"].is_string() {
                "hex"
            } else {
                "prefix_hex"
            },
        );
        // The status line says the version of the outlet.
        let version = if bytes.starts_with(b"LSL/100") {
            100
        } else {
            110
        };
        let make =
            || ResponseParser::new(PROTOCOL_VERSION, &uid, format_of(&file), ByteOrder::Little);
        let (response, consumed) = make().feed(&bytes).unwrap().unwrap();
        // One outlet, played by hand, leaves the order to the inlet; ours never do.
        let header = String::from_utf8(bytes[..consumed].to_vec()).unwrap();
        let header = header.replace("Byte-Order: 0\r", "Byte-Order: 1234\r");
        let ours = String::from_utf8(response.to_bytes(version, &uid)).unwrap();
        assert_eq!(ours, header, "{name}");
        // Whatever the pieces, the samples begin at the same place.
        for cut in 0..consumed {
            let mut parser = make();
            assert_eq!(parser.feed(&bytes[..cut]), Ok(None), "{name} {cut}");
            assert_eq!(
                parser.feed(&bytes[cut..]),
                Ok(Some((response, consumed - cut))),
                "{name}"
            );
        }
        seen += 1;
    }
    assert!(seen >= 30, "{seen}");
}

#[test]
fn captured_refusals_are_understood() {
    let file = vector("tcp-request-cases");
    let mut seen = Vec::new();
    for case in list(&file, "cases") {
        let bytes = hex(case, "reply_hex");
        if !bytes.starts_with(b"LSL/") || bytes.contains(&b'\n') {
            continue;
        }
        let refusal = match parse(&bytes).unwrap_err() {
            FeedError::NotFound => Refusal::NotFound,
            FeedError::Version => Refusal::Version,
            other => panic!("{}: {other}", text(case, "case")),
        };
        assert_eq!(refusal.to_bytes(PROTOCOL_VERSION), bytes);
        seen.push(refusal);
    }
    assert_eq!(
        seen,
        [Refusal::NotFound, Refusal::NotFound, Refusal::Version]
    );
    let synchronous = Refusal::SynchronousNeeds110.to_bytes(110);
    assert_eq!(
        synchronous,
        b"LSL/110 505 Synchronous outlet requires data protocol 1.10"
    );
    assert_eq!(parse(&synchronous), Err(FeedError::Version));
    assert_eq!(Refusal::Silent.to_bytes(110), b"");
}

#[test]
fn status_lines_decide() {
    let check = |line: &str, expected: FeedError| {
        // Without line end the close of the connection completes the line.
        assert_eq!(parse(line.as_bytes()), Err(expected), "{line:?}");
        let complete = format!("{line}\r\n");
        assert_eq!(
            parser().feed(complete.as_bytes()),
            Err(expected),
            "{line:?}"
        );
    };
    let malformed = FeedError::Malformed("status line");
    check("  LSL/110   404\tNot found", FeedError::NotFound);
    check("LSL/110 505 x", FeedError::Version);
    check("LSL/200 200 OK", FeedError::Version);
    check("LSL/200 404 OK", FeedError::Version);
    check("LSL/110 500 x", FeedError::Refused(500));
    check("LSL/110 301 x", FeedError::Redirect(301));
    check("LSL/110 200", malformed);
    check("HTTP/1.1 200 OK", malformed);
    check("LSL/x 200 OK", malformed);
    check("LSL/-1 200 OK", malformed);
    check("LSL/110 ok OK", malformed);
    check("LSL/110 99999999999 OK", malformed);
    assert_eq!(parse(b""), Err(FeedError::Closed));
    assert_eq!(parse(b"LSL/110 200 OK"), Err(FeedError::Closed));
    assert_eq!(
        parse(b"LSL/110 200 OK\r\nUID: 0e-0f\r\n"),
        Err(FeedError::Closed)
    );
    assert_eq!(parse(b"\r\n"), Err(malformed));
    // A blank line without CR does not end the headers. Spec: lsl-protocol §14 Q16.
    assert_eq!(parse(b"LSL/110 200 OK\n\n"), Err(FeedError::Closed));
    assert!(parse(b"LSL/199 100 OK\n\r\n").is_ok());
}

#[test]
fn headers_decide() {
    let default = FeedResponse {
        byte_order: ByteOrder::Little,
        suppress_subnormals: false,
        data_protocol: DataProtocol::V100,
        granted: None,
    };
    let check = |headers, expected| assert_eq!(with_headers(headers), expected, "{headers:?}");
    check("x: y", Ok(default));
    check("UID: 0E-0F", Ok(default));
    check("UID: 0e", Err(FeedError::NotFound));
    check("Byte-Order: 0", Ok(default));
    check(
        "byte-order: 4321 ; big",
        Ok(FeedResponse {
            byte_order: ByteOrder::Big,
            ..default
        }),
    );
    check("Byte-Order: 2134", Err(FeedError::ByteOrder(2134)));
    check("Byte-Order: ", Err(FeedError::Malformed("byte-order")));
    check(
        "Suppress-Subnormals: 1",
        Ok(FeedResponse {
            suppress_subnormals: true,
            ..default
        }),
    );
    check("Suppress-Subnormals: true", Ok(default));
    let framed = FeedResponse {
        data_protocol: DataProtocol::V110,
        ..default
    };
    check("Data-Protocol-Version: 110", Ok(framed));
    check("Data-Protocol-Version: 105", Ok(default));
    check("Data-Protocol-Version: 111", Err(FeedError::Version));
    check(
        "Data-Protocol-Version: -1",
        Err(FeedError::Malformed("data-protocol-version")),
    );
    check("; a: b", Err(FeedError::Malformed("comment")));
    // One byte has no order.
    let mut parser = ResponseParser::new(110, UID, ChannelFormat::Int8, ByteOrder::Big);
    let (response, _) = parser
        .feed(b"LSL/110 200 OK\r\nByte-Order: 2134\r\n\r\n")
        .unwrap()
        .unwrap();
    assert_eq!(response.byte_order, ByteOrder::Big);
    // Ours is compared lower-cased too, so an upper-case uid can be met.
    let mut parser = ResponseParser::new(110, b"0E", ChannelFormat::Int8, ByteOrder::Little);
    assert!(matches!(
        parser.feed(b"LSL/110 200 OK\r\nUID: 0E\r\n\r\n"),
        Ok(Some(_))
    ));
}

#[test]
fn grants_are_read_if_they_were_asked_for() {
    let generation = Generation::parse(UID).unwrap();
    let asked = ReplayFrom::At(
        Position {
            generation,
            next: 5,
        },
        None,
    );
    let head = "LSL/110 200 OK\r\nUID: 0e-0f\r\n";
    let framed = "Data-Protocol-Version: 110\r\n";
    let ask = |asked, headers: &str| {
        let bytes = format!("{head}{headers}\r\n");
        let result = parser().with_replay_from(asked).feed(bytes.as_bytes());
        result.map(|done| done.unwrap().0.granted)
    };
    let check = |headers: &str, expected: Result<Option<Granted>, FeedError>| {
        let headers = format!("{framed}{headers}");
        assert_eq!(ask(Some(asked), &headers), expected, "{headers:?}");
        assert_eq!(ask(None, &headers), Ok(None), "{headers:?}");
    };
    let granted = Granted {
        generation,
        begin: 5,
        live: 7,
        end: None,
    };
    let ended = Granted {
        end: Some(7),
        ..granted
    };
    let line = "Lslx-Sequence: 1 0E-0F 5 7\r\n";
    check("", Ok(None));
    check(line, Ok(Some(granted)));
    check("Lslx-End: 7\r\n", Ok(None));
    check(&format!("{line}Lslx-End: 7\r\n"), Ok(Some(ended)));
    check(&format!("Lslx-End: 7\r\n{line}"), Ok(Some(ended)));
    for value in [
        "",
        ";",
        "1 0e-0f 5",
        "2 0e-0f 5 7",
        "1 0e-0f 5 18446744073709551616",
        &format!("1 {} 5 7", "0".repeat(65)),
        &"1 ".repeat(8000),
    ] {
        let malformed = Err(FeedError::Sequence("lslx-sequence"));
        check(&format!("Lslx-Sequence: {value}\r\n"), malformed);
    }
    check(&line.repeat(2), Err(FeedError::Sequence("lslx-sequence")));
    let malformed = Err(FeedError::Sequence("lslx-end"));
    check("Lslx-End: x\r\n", malformed);
    check(&format!("{line}Lslx-End: -7\r\n"), malformed);
    for contradiction in [
        "Lslx-Sequence: 1 0e-0f 8 7\r\n",
        "Lslx-Sequence: 1 0e-0f 4 7\r\n",
        "Lslx-Sequence: 1 0e-0f 5 7\r\nLslx-End: 6\r\n",
    ] {
        let result = ask(Some(asked), &format!("{framed}{contradiction}"));
        assert!(
            matches!(result, Err(FeedError::Sequence(_))),
            "{contradiction:?}"
        );
    }
    // An archive has no place for a gap.
    let archive = ask(Some(asked), line);
    assert!(matches!(archive, Err(FeedError::Sequence(_))));
    // Ours is written last and read as it was meant.
    for granted in [granted, ended] {
        let response = FeedResponse {
            byte_order: ByteOrder::Big,
            suppress_subnormals: false,
            data_protocol: DataProtocol::V110,
            granted: Some(granted),
        };
        let bytes = response.to_bytes(110, UID);
        let parsed = parser().with_replay_from(Some(asked)).feed(&bytes);
        assert_eq!(parsed, Ok(Some((response, bytes.len()))));
    }
}

#[test]
fn headers_are_bounded() {
    let mut parser = parser();
    assert_eq!(parser.feed(b"LSL/110 200 OK\r\n"), Ok(None));
    let result = (0..MAX_RESPONSE_BYTES)
        .map(|_| parser.feed(b"x"))
        .find(Result::is_err);
    assert_eq!(result, Some(Err(FeedError::TooLong)));
    assert!(parser.line.len() <= MAX_RESPONSE_BYTES);
    let lines = b"x: y\r\n".repeat(MAX_RESPONSE_BYTES);
    assert_eq!(
        parse(&[b"LSL/110 200 OK\r\n", lines.as_slice()].concat()),
        Err(FeedError::TooLong)
    );
    // Samples are not counted.
    let samples = vec![0; 2 * MAX_RESPONSE_BYTES];
    let head = b"LSL/110 200 OK\r\n\r\n";
    let done = parse(&[head.as_slice(), &samples].concat());
    assert_eq!(done.map(|(_, consumed)| consumed), Ok(head.len()));
}

proptest! {
    #[test]
    fn pieces_do_not_matter(
        pieces in prop::collection::vec(prop::sample::select(vec![
            "LSL/110 200 OK", "LSL/110 404 no", "\r\n", "\r\n", "\n", "\r", "UID: 0e-0f", "Byte-Order: ",
            "4321", "0", "Data-Protocol-Version: 110", ";", ":", "x", "\x02\n\r\n",
        ]), 0..16),
        known in any::<bool>(),
    ) {
        let head = if known { "LSL/110 200 OK\r\n" } else { "" };
        let bytes = [head, &pieces.concat()].concat().into_bytes();
        let mut slow = parser();
        let mut result = None;
        for (index, byte) in bytes.iter().enumerate() {
            match slow.feed(std::slice::from_ref(byte)) {
                Ok(None) => {}
                Ok(Some((response, 1))) => {
                    result = Some(Ok((response, index + 1)));
                    break;
                }
                Ok(Some((_, consumed))) => prop_assert!(false, "consumed {consumed} of 1"),
                Err(error) => {
                    result = Some(Err(error));
                    break;
                }
            }
        }
        prop_assert_eq!(result.unwrap_or_else(|| Err(slow.finish())), parse(&bytes));
    }

    #[test]
    fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = parse(&bytes);
        let _ = parse(&[b"LSL/110 200 OK\r\n", bytes.as_slice()].concat());
    }
}
