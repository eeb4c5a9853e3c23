use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::*;
use crate::ByteOrder;
use crate::wire::archive100::Encoder100;
use crate::wire::sample110::{Decoder110, Encoder110};

fn hex(bytes: &[u8]) -> String {
    let digit = |nibble: u8| char::from_digit(nibble.into(), 16).unwrap();
    bytes
        .iter()
        .flat_map(|byte| [digit(byte >> 4), digit(byte & 15)])
        .collect()
}

#[test]
fn patterns_are_those_of_liblsl() {
    let file = include_str!("../../../tests/vectors/test-patterns.json");
    let vectors: Value = serde_json::from_str(file).unwrap();
    let cases = vectors["cases"].as_array().unwrap();
    assert_eq!(cases.len(), 18);
    for case in cases {
        let format: ChannelFormat = case["channel_format"].as_str().unwrap().parse().unwrap();
        let channels = u32::try_from(case["channel_count"].as_u64().unwrap()).unwrap();
        let mut bytes = Vec::new();
        if case["protocol"] == "110" {
            Encoder110::new(format, channels, ByteOrder::Little).encode_test_patterns(&mut bytes);
        } else {
            Encoder100::new(format, channels).encode_test_patterns(&mut bytes);
        }
        let what = format!("{format} {channels} {}", case["protocol"]);
        assert_eq!(case["patterns_len"], bytes.len(), "{what}");
        if let Some(expected) = case["patterns_hex"].as_str() {
            assert_eq!(hex(&bytes), expected, "{what}");
        }
        assert_eq!(
            case["patterns_sha256"],
            hex(&Sha256::digest(&bytes)),
            "{what}"
        );
    }
}

#[test]
fn the_check_takes_its_own_patterns_and_no_others() {
    for format in ChannelFormat::STREAMABLE {
        for channels in [0, 1, 2, 300] {
            let feed = |order| {
                let mut bytes = Vec::new();
                Encoder110::new(format, channels, order).encode_test_patterns(&mut bytes);
                bytes
            };
            let check = |bytes: &[u8]| {
                let mut check = PatternCheck::new(format, channels);
                let mut rest = bytes;
                Decoder110::new(format, channels, ByteOrder::Little)
                    .decode_up_to(check.missing(), &mut rest, &mut check)
                    .is_ok_and(|_| check.missing() == 0 && check.matched())
            };
            let right = feed(ByteOrder::Little);
            assert!(check(&right), "{format} {channels}");
            // A byte order misunderstood shows at least in the timestamp.
            assert!(!check(&feed(ByteOrder::Big)), "{format} {channels}");
            let middle = right.len() / 2;
            for place in [1, 8, middle - 1, right.len() - 1] {
                let mut wrong = right.clone();
                wrong[place] ^= 1;
                assert!(!check(&wrong), "{format} {channels} byte {place}");
            }
        }
    }
}

#[test]
fn values_a_peer_merely_claims_cost_nothing() {
    // Four thousand million channels, eight bytes.
    let channels = u32::MAX as usize;
    for format in ChannelFormat::STREAMABLE {
        assert!(
            !verify(format, channels, 4, Some(TIMESTAMP), &[0; 8]),
            "{format}"
        );
    }
}
