use proptest::prelude::*;
use serde_json::Value;

use super::*;

/// A golden vector file of this crate.
pub(crate) fn vector(name: &str) -> Value {
    let path = format!("{}/tests/vectors/{name}.json", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    serde_json::from_str(&text).expect("vectors are JSON")
}

/// The names of all vector files that start with `prefix`.
pub(crate) fn vectors_named(prefix: &str) -> Vec<String> {
    let directory = format!("{}/tests/vectors", env!("CARGO_MANIFEST_DIR"));
    let mut names: Vec<String> = std::fs::read_dir(directory)
        .expect("vectors are in the repository")
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| name.starts_with(prefix))
        .filter_map(|name| name.strip_suffix(".json").map(str::to_owned))
        .collect();
    names.sort();
    assert!(!names.is_empty(), "no vector is named {prefix}*");
    names
}

/// The entries of an array inside a vector.
pub(crate) fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key]
        .as_array()
        .unwrap_or_else(|| panic!("{key} is no array"))
}

/// A text inside a vector.
pub(crate) fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key]
        .as_str()
        .unwrap_or_else(|| panic!("{key} is no text"))
}

/// Bytes that a vector gives in hexadecimal.
pub(crate) fn hex(value: &Value, key: &str) -> Vec<u8> {
    let digits = text(value, key);
    assert!(digits.len().is_multiple_of(2), "{key} has half a byte");
    (0..digits.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&digits[at..at + 2], 16).expect("hexadecimal"))
        .collect()
}

#[test]
fn queries_of_a_real_resolver_are_read_and_rewritten() {
    let mut seen = 0;
    for file in ["udp-resolver-queries", "inlet-recovery-queries"] {
        for case in list(&vector(file), "cases") {
            let bytes = hex(case, "datagram_hex");
            let datagram = QueryDatagram::parse(&bytes).unwrap();
            assert_eq!(datagram.to_bytes(), bytes, "{case}");
            assert_eq!(
                datagram.id,
                query_id(datagram.query).to_string().as_bytes(),
                "{case}"
            );
            if let Some(query) = case["query"].as_str() {
                assert_eq!(datagram.query, query.as_bytes());
                assert_eq!(
                    Some(u64::from(datagram.return_port)),
                    case["return_port"].as_u64()
                );
            }
            seen += 1;
        }
    }
    assert_eq!(seen, 7);
}

#[test]
fn query_ids_are_those_of_libstdcxx() {
    for example in list(&vector("udp-resolver-replies"), "libstdcxx_hash_examples") {
        let query = text(example, "query");
        assert_eq!(
            query_id(query.as_bytes()).to_string(),
            text(example, "hash"),
            "{query:?}"
        );
    }
}

/// Each vector case of the outlet is read as expected; the query itself is judged elsewhere.
#[test]
fn an_outlet_reads_what_liblsl_reads() {
    let file = vector("udp-outlet-cases");
    let matching = b"session_id='default' and name='Vec-udp'".as_slice();
    let xml = hex(&file["vars"], "shortinfo_hex");
    for case in list(&file, "cases") {
        let name = text(case, "case");
        let bytes = hex(case, "request_hex");
        let parsed = parse_datagram(&bytes);
        let answered = case["n_replies"].as_u64().unwrap() > 0;
        match parsed {
            Ok(Request::Discovery(query)) => {
                let matches = [matching, b""].contains(&query.query);
                assert_eq!(matches, answered, "{name}");
                if answered {
                    let reply = hex(case, "reply_hex");
                    let parts = ReplyDatagram::parse(&reply).unwrap();
                    assert_eq!(
                        parts,
                        ReplyDatagram {
                            id: query.id,
                            xml: &xml
                        },
                        "{name}"
                    );
                    assert_eq!(parts.to_bytes(), reply, "{name}");
                    assert_eq!(
                        Some(u64::from(query.return_port)),
                        case["sent_from_port"].as_u64()
                    );
                }
            }
            Ok(Request::TimeData(request)) => {
                let port_differs = name == "timedata on multicast port is ignored";
                assert_eq!(answered, !port_differs, "{name}");
                if answered {
                    let reply = hex(case, "reply_hex");
                    let parts = timedata::TimeReply::parse(&reply).unwrap();
                    assert_eq!(
                        request.reply(parts.t1, parts.t2).to_bytes(),
                        reply,
                        "{name}"
                    );
                }
            }
            Ok(Request::Unknown) => assert!(!answered, "{name}"),
            // Deviation: liblsl answers these with stale memory. Spec: lsl-protocol §5.1, §15.
            Err(error) => {
                let malformed = [
                    "timedata big id overflow",
                    "timedata garbage",
                    "timedata no body",
                ];
                assert!(malformed.contains(&name), "{name}: {error}");
                assert_eq!(error, DatagramError::Number);
            }
        }
    }
}

#[test]
fn a_resolver_reads_what_liblsl_reads() {
    let file = vector("udp-resolver-replies");
    for case in list(&file, "cases") {
        let name = text(case, "case");
        let bytes = hex(case, "reply_hex");
        let own = text(case, "query_id_placeholder").as_bytes();
        let accepted = ReplyDatagram::parse(&bytes).is_ok_and(|reply| reply.id == own);
        assert_eq!(accepted, !list(case, "resolved").is_empty(), "{name}");
    }
}

#[test]
fn malformed_queries_are_refused() {
    let check = |datagram: &[u8], expected| {
        assert_eq!(
            QueryDatagram::parse(datagram),
            Err(expected),
            "{}",
            datagram.escape_ascii()
        );
    };
    check(b"", DatagramError::Command);
    check(b"LSL:shortinfoX\r\n\r\n1 1", DatagramError::Command);
    check(b"LSL:timedata\r\n1 1\r\n", DatagramError::Command);
    check(b"LSL:shortinfo", DatagramError::ReturnPort);
    check(b"LSL:shortinfo\r\na\r\n", DatagramError::ReturnPort);
    check(
        b"LSL:shortinfo\r\na\r\n{port} 1\r\n",
        DatagramError::ReturnPort,
    );
    check(b"LSL:shortinfo\r\na\r\n0 1\r\n", DatagramError::ReturnPort);
    check(b"LSL:shortinfo\r\na\r\n-5 1\r\n", DatagramError::ReturnPort);
    check(
        b"LSL:shortinfo\r\na\r\n65536 1\r\n",
        DatagramError::ReturnPort,
    );
    let long = |query: usize, id: usize| {
        format!(
            "LSL:shortinfo\r\n{}\r\n7 {}",
            "q".repeat(query),
            "i".repeat(id)
        )
        .into_bytes()
    };
    assert!(QueryDatagram::parse(&long(MAX_QUERY_BYTES, MAX_QUERY_ID_BYTES)).is_ok());
    check(&long(MAX_QUERY_BYTES + 1, 1), DatagramError::QueryTooLong);
    check(
        &long(1, MAX_QUERY_ID_BYTES + 1),
        DatagramError::QueryIdTooLong,
    );
}

#[test]
fn a_query_cannot_break_its_line() {
    let datagram = QueryDatagram {
        query: b"name='a\r\n7 7'",
        return_port: 9,
        id: b"x",
    };
    let bytes = datagram.to_bytes();
    assert_eq!(bytes, b"LSL:shortinfo\r\nname='a  7 7'\r\n9 x\r\n");
}

proptest! {
    #[test]
    fn any_bytes_are_survived(datagram in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = parse_datagram(&datagram);
        let _ = ReplyDatagram::parse(&datagram);
        let mut query = b"LSL:shortinfo\n".to_vec();
        query.extend_from_slice(&datagram);
        if let Ok(Request::Discovery(parsed)) = parse_datagram(&query) {
            prop_assert!(parsed.return_port != 0);
            prop_assert!(!parsed.query.contains(&b'\n'));
        }
    }

    #[test]
    fn queries_and_replies_survive_the_wire(
        query in "[ -~]{0,80}", port in 1u16.., id in "[!-~]{0,20}", xml in any::<Vec<u8>>(),
    ) {
        let query = query.trim_ascii();
        let sent = QueryDatagram { query: query.as_bytes(), return_port: port, id: id.as_bytes() };
        let bytes = sent.to_bytes();
        prop_assert_eq!(QueryDatagram::parse(&bytes), Ok(sent));
        let sent = ReplyDatagram { id: id.as_bytes(), xml: &xml };
        let bytes = sent.to_bytes();
        prop_assert_eq!(ReplyDatagram::parse(&bytes), Ok(sent));
    }
}
