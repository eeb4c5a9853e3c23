//! What liblsl asks and answers, as recorded from it.

use serde_json::Value;

use super::*;

fn hex(text: &Value) -> Vec<u8> {
    let digits = text.as_str().unwrap();
    (0..digits.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap())
        .collect()
}

#[test]
fn golden_replies() {
    let vectors = include_str!("../../../../tests/vectors/udp-resolver-replies.json");
    let vectors: Value = serde_json::from_str(vectors).unwrap();
    let query = vectors["query"].as_str().unwrap();
    for case in vectors["cases"].as_array().unwrap() {
        let name = case["case"].as_str().unwrap();
        let mut search = Search::new(query, WaveTimes::default(), once(0, 0.0, 1e9), 0.0);
        if name == "two replies same uid: first wins" {
            // The file has only the second of the two; the first was the one of case "normal".
            search.handle_datagram(peer(), &hex(&vectors["cases"][0]["reply_hex"]), 0.5);
        }
        let received = search.handle_datagram(peer(), &hex(&case["reply_hex"]), 1.0);
        if name == "reply not matching the query is still accepted" {
            // By liblsl; we drop what is not asked for (§15).
            assert_eq!(received, Received::Foreign);
            assert!(search.is_empty());
            continue;
        }
        let results = search.results(1.0);
        // liblsl returns invalid infos under an explanatory name; we drop and count them (§15).
        let expected: Vec<&Value> = case["resolved"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|info| !info["uid"].as_str().unwrap().is_empty())
            .collect();
        let invalid = case["resolved"].as_array().unwrap().len() - expected.len();
        assert_eq!(results.len(), expected.len(), "{name}");
        assert_eq!(search.invalid(), invalid as u64, "{name}");
        for (info, expected) in results.iter().zip(expected) {
            assert_eq!(info.uid(), expected["uid"].as_str().unwrap(), "{name}");
            assert_eq!(info.name(), expected["name"].as_str().unwrap(), "{name}");
            assert_eq!(
                u64::from(info.version()),
                expected["version"].as_u64().unwrap(),
                "{name}"
            );
            assert_eq!(
                u64::from(info.channel_count()),
                expected["cc"].as_u64().unwrap(),
                "{name}"
            );
            let xml = String::from_utf8(info.to_xml()).unwrap();
            assert_eq!(xml, expected["xml"].as_str().unwrap(), "{name}");
        }
    }
}

#[test]
fn golden_queries() {
    let vectors = include_str!("../../../../tests/vectors/udp-resolver-queries.json");
    let vectors: Value = serde_json::from_str(vectors).unwrap();
    for case in vectors["cases"].as_array().unwrap() {
        let query = case["query"].as_str().unwrap();
        let search = Search::new(query, WaveTimes::default(), once(0, 0.0, 1.0), 0.0);
        let port = u16::try_from(case["return_port"].as_u64().unwrap()).unwrap();
        assert_eq!(
            search.datagram(port),
            Some(hex(&case["datagram_hex"])),
            "{query}"
        );
    }
}

#[test]
fn golden_recovery_queries() {
    let vectors = include_str!("../../../../tests/vectors/inlet-recovery-queries.json");
    let vectors: Value = serde_json::from_str(vectors).unwrap();
    let mut checked = 0;
    for case in vectors["cases"].as_array().unwrap() {
        let name = case["case"].as_str().unwrap();
        // The unresolved case has no info from the wire; its query has the same form.
        let Some(xml) = case["stream_xml"].as_str() else {
            continue;
        };
        let info = StreamInfo::from_xml(xml.as_bytes()).unwrap();
        let query = crate::inlet::successor::recovery_query(&info);
        let search = Search::new(query, WaveTimes::default(), once(1, 0.0, 1.0), 0.0);
        assert_eq!(
            search.datagram(16573),
            Some(hex(&case["datagram_hex"])),
            "{name}"
        );
        checked += 1;
    }
    assert!(checked >= 3);
}

#[test]
fn golden_matches_are_never_dropped() {
    let vectors = include_str!("../../../../tests/vectors/query-match.json");
    let vectors: Value = serde_json::from_str(vectors).unwrap();
    let (mut selected, mut dropped) = (0, 0);
    for name in ["A", "B"] {
        let xml = vectors["documents"][name]["xml_utf8"].as_str().unwrap();
        let info = StreamInfo::from_xml(xml.as_bytes()).unwrap();
        let short = info.to_shortinfo_xml();
        for case in vectors["cases"].as_array().unwrap() {
            let query = case["query"].as_str().unwrap();
            let mut search = Search::new(query, WaveTimes::default(), once(1, 0.0, 200.0), 100.0);
            let received = search.handle_reply(peer(), &short, 100.1);
            if case[name].as_bool().unwrap() {
                assert_eq!(received, Received::New, "{query}");
                selected += 1;
            } else if received == Received::Foreign {
                dropped += 1;
            }
        }
    }
    assert!(selected >= 100, "{selected}");
    assert!(dropped >= 50, "{dropped}");
}
