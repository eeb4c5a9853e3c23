use super::*;
use crate::wire::discovery::tests::{hex, list, text, vector, vectors_named};
use crate::wire::request::{Request, tests::parse};
use crate::wire::response::tests::format_of;

const UID: &[u8] = b"uid";

fn outlet(format: ChannelFormat) -> OutletSide<'static> {
    OutletSide {
        version: 110,
        uid: UID,
        format,
        byte_order: ByteOrder::Little,
        writing: Writing::Queued,
        retains: false,
    }
}

/// Returns the first bytes of an outlet on a request; `None` if it asks for no feed.
fn first_bytes(outlet: &OutletSide<'_>, request: &[u8]) -> Option<(Vec<u8>, Option<Negotiated>)> {
    let decision = match parse(request) {
        Ok(Some(Request::StreamFeed {
            version,
            uid,
            headers,
        })) => negotiate(outlet, version, &uid, &headers),
        Ok(Some(Request::StreamFeed100 {
            max_buffer,
            max_chunk,
        })) => negotiate_100(outlet, max_buffer, max_chunk),
        _ => return None,
    };
    Some(match decision {
        Ok(feed) => (feed.preface_bytes(outlet), Some(feed)),
        Err(refusal) => (refusal.to_bytes(outlet.version), None),
    })
}

/// Checks the beginning of a captured reply; the samples after it belong to others.
fn check_reply(name: &str, outlet: &OutletSide<'_>, request: &[u8], reply: &[u8]) {
    let (first, feed) = first_bytes(outlet, request).unwrap_or_else(|| panic!("{name}"));
    let (preface, samples) = reply.split_at_checked(first.len()).unwrap_or((reply, &[]));
    assert_eq!(
        preface.escape_ascii().to_string(),
        first.escape_ascii().to_string(),
        "{name}"
    );
    let Some(feed) = feed else {
        assert_eq!(samples, b"", "{name}");
        return;
    };
    // The archive begins with its magic, a test pattern with tag 2 and its timestamp.
    let stamp = 123_456.789_f64;
    let beginning = match (feed.feed.data_protocol, feed.feed.byte_order) {
        (DataProtocol::V100, _) => vec![0x7f, 1, 9],
        (DataProtocol::V110, ByteOrder::Little) => [&[2], stamp.to_le_bytes().as_slice()].concat(),
        (DataProtocol::V110, ByteOrder::Big) => [&[2], stamp.to_be_bytes().as_slice()].concat(),
    };
    assert!(samples.starts_with(&beginning), "{name}");
}

#[test]
fn every_captured_case_is_answered_as_by_liblsl() {
    let mut seen = 0;
    for name in ["tcp-request-cases", "tcp-request-cases-float32"] {
        let file = vector(name);
        let outlet = OutletSide {
            uid: text(&file["vars"], "uid").as_bytes(),
            ..outlet(format_of(&file))
        };
        for case in list(&file, "cases") {
            let (request, reply) = (hex(case, "request_hex"), hex(case, "reply_hex"));
            let Some((_, feed)) = first_bytes(&outlet, &request) else {
                continue;
            };
            check_reply(text(case, "case"), &outlet, &request, &reply);
            // Every granted feed of this file asks for no queue, and is closed after the patterns.
            assert!(feed.is_none_or(|feed| feed.max_buffer_samples.is_none()));
            seen += 1;
        }
    }
    // The other 15 of 49 ask for something else or never complete.
    assert_eq!(seen, 34);
}

#[test]
fn every_captured_feed_begins_as_by_liblsl() {
    let mut seen = 0;
    for name in vectors_named("feed1") {
        let file = vector(&name);
        let exchange = list(&file, "exchange");
        let synchronous = name.contains("sync");
        let outlet = OutletSide {
            version: if name.ends_with("configured-100") {
                100
            } else {
                110
            },
            uid: text(&file["vars"], "uid").as_bytes(),
            writing: if synchronous {
                Writing::Synchronous
            } else {
                Writing::Queued
            },
            ..outlet(format_of(&file))
        };
        let reply = &exchange[1];
        let reply = hex(
            reply,
            if reply["hex"].is_string() {
                "hex"
            } else {
                "prefix_hex"
            },
        );
        let request = hex(&exchange[0], "hex");
        check_reply(&name, &outlet, &request, &reply);
        let (_, feed) = first_bytes(&outlet, &request).unwrap();
        assert_eq!(feed.unwrap().max_buffer_samples, Some(1000), "{name}");
        seen += 1;
    }
    assert!(seen >= 25, "{seen}");
}

#[test]
fn refusals_come_in_order() {
    let params = FeedParams {
        value_size: Some(8),
        ..FeedParams::default()
    };
    let queued = outlet(ChannelFormat::Float32);
    let synchronous = OutletSide {
        writing: Writing::Synchronous,
        ..queued
    };
    let check = |outlet, version, uid: &[u8], expected| {
        assert_eq!(
            negotiate(outlet, version, uid, &params).unwrap_err(),
            expected,
            "{version}"
        );
    };
    check(&synchronous, 200, b"other", Refusal::Version);
    check(&synchronous, 110, b"other", Refusal::NotFound);
    check(&synchronous, 100, b"other", Refusal::NotFound);
    check(&synchronous, 100, UID, Refusal::Silent);
    check(&synchronous, 110, UID, Refusal::SynchronousNeeds110);
    check(&synchronous, 110, b"", Refusal::SynchronousNeeds110);
    check(&queued, 110, b"UID", Refusal::NotFound);
    assert_eq!(negotiate_100(&synchronous, 1, 1), Err(Refusal::Silent));
    let archive = negotiate(&queued, 110, UID, &params).unwrap();
    assert_eq!(archive.feed.data_protocol, DataProtocol::V100);
    assert_eq!(archive.preface, Preface::Response);
    assert_eq!(
        negotiate(&queued, 109, UID, &params).unwrap().preface,
        Preface::None
    );
}

#[test]
fn byte_orders_follow_the_table() {
    use ByteOrder::{Big, Little};
    let check = |format, own, wanted, performance, value_size, expected| {
        let params = FeedParams {
            native_byte_order: wanted,
            endian_performance: performance,
            value_size,
            ..FeedParams::default()
        };
        let outlet = OutletSide {
            byte_order: own,
            ..outlet(format)
        };
        let feed = negotiate(&outlet, 110, UID, &params).unwrap().feed;
        assert_eq!(feed.byte_order, expected, "{format} {own:?} {params:?}");
    };
    let (float, int8, string) = (
        ChannelFormat::Float32,
        ChannelFormat::Int8,
        ChannelFormat::String,
    );
    check(float, Little, 1234, 0.0, Some(4), Little);
    check(float, Little, 4321, 0.0, Some(4), Big);
    check(float, Little, 4321, 6e6, None, Big);
    check(float, Little, 4321, 1e12, Some(4), Little);
    check(float, Little, 4321, f64::NAN, Some(4), Little);
    check(float, Little, 2134, 0.0, Some(4), Little);
    check(float, Big, 1234, 0.0, Some(4), Little);
    check(float, Big, 4321, 1e12, Some(4), Big);
    check(float, Big, 0, 0.0, Some(4), Big);
    // An archive has no order; the header still names the outlet's.
    check(float, Little, 4321, 0.0, Some(8), Little);
    check(int8, Little, 4321, 0.0, Some(1), Little);
    check(int8, Big, 1234, 0.0, None, Big);
    check(string, Little, 4321, 0.0, Some(32), Big);
    check(string, Little, 4321, 0.0, Some(0), Little);
    check(string, Little, 4321, 0.0, None, Little);
}

#[test]
fn protocols_and_subnormals_follow_the_table() {
    use DataProtocol::{V100, V110};
    let default = FeedParams::default();
    let check = |format, version, params: FeedParams, expected| {
        let outlet = outlet(format);
        let feed = negotiate(&outlet, version, b"", &params).unwrap().feed;
        assert_eq!(
            (feed.data_protocol, feed.suppress_subnormals),
            expected,
            "{params:?}"
        );
    };
    let (float, string) = (ChannelFormat::Float32, ChannelFormat::String);
    let flush = FeedParams {
        supports_subnormals: false,
        ..default
    };
    check(float, 110, default, (V110, false));
    check(float, 199, default, (V110, false));
    check(float, 110, flush, (V110, true));
    check(ChannelFormat::Double64, 110, flush, (V110, true));
    check(ChannelFormat::Int32, 110, flush, (V110, false));
    check(string, 110, flush, (V110, false));
    check(float, 100, flush, (V100, false));
    check(
        float,
        110,
        FeedParams {
            value_size: Some(8),
            ..flush
        },
        (V100, false),
    );
    check(
        float,
        110,
        FeedParams {
            value_size: Some(-4),
            ..default
        },
        (V100, false),
    );
    check(
        string,
        110,
        FeedParams {
            value_size: Some(32),
            ..default
        },
        (V110, false),
    );
    check(
        string,
        110,
        FeedParams {
            has_ieee754_floats: false,
            ..default
        },
        (V100, false),
    );
    for (wanted, expected) in [
        (100, V100),
        (109, V100),
        (110, V110),
        (120, V110),
        (-1, V100),
    ] {
        let params = FeedParams {
            protocol_version: Some(wanted),
            ..default
        };
        check(float, 110, params, (expected, false));
    }
}

#[test]
fn feeds_are_granted_in_the_order_of_the_outlet() {
    let asking = FeedParams {
        native_byte_order: 4321,
        max_buffer_length: 9,
        replay_from: Some(ReplayFrom::Oldest),
        ..FeedParams::default()
    };
    let retaining = OutletSide {
        retains: true,
        ..outlet(ChannelFormat::Float32)
    };
    let check = |outlet: OutletSide<'_>, params: FeedParams, expected: bool| {
        let negotiated = negotiate(&outlet, 110, UID, &params).unwrap();
        let asked = params.replay_from.filter(|_| expected);
        assert_eq!(negotiated.replay_from, asked, "{outlet:?} {params:?}");
        assert_eq!(negotiated.feed.granted, None);
        // Without a grant it is as if nothing had been asked.
        let silent = FeedParams {
            replay_from: None,
            ..params
        };
        let ungranted = negotiate(&outlet, 110, UID, &silent).unwrap();
        let mut same = negotiated;
        if expected {
            assert_eq!(negotiated.feed.byte_order, outlet.byte_order);
            (same.replay_from, same.feed.byte_order) = (None, ungranted.feed.byte_order);
        }
        assert_eq!(same, ungranted);
    };
    let big = OutletSide {
        byte_order: ByteOrder::Big,
        ..retaining
    };
    let little = FeedParams {
        native_byte_order: 1234,
        ..asking
    };
    check(retaining, asking, true);
    check(retaining, little, true);
    check(big, little, true);
    let text = OutletSide {
        format: ChannelFormat::String,
        ..retaining
    };
    check(text, asking, true);
    let unretained = OutletSide {
        retains: false,
        ..retaining
    };
    check(unretained, asking, false);
    let synchronous = OutletSide {
        writing: Writing::Synchronous,
        ..retaining
    };
    check(synchronous, asking, false);
    let old = OutletSide {
        version: 100,
        ..retaining
    };
    check(old, asking, false);
    for params in [
        FeedParams {
            replay_from: None,
            ..asking
        },
        FeedParams {
            protocol_version: Some(100),
            ..asking
        },
        FeedParams {
            value_size: Some(8),
            ..asking
        },
        FeedParams {
            max_buffer_length: 0,
            ..asking
        },
    ] {
        check(retaining, params, false);
    }
    let old = negotiate(&retaining, 109, UID, &asking).unwrap();
    assert_eq!(old.replay_from, None);
    assert_eq!(negotiate_100(&retaining, 9, 0).unwrap().replay_from, None);
}

#[test]
fn lengths_below_one_mean_none() {
    let outlet = outlet(ChannelFormat::Int16);
    for (length, expected) in [
        (-5, None),
        (0, None),
        (1, Some(1)),
        (i32::MAX, Some(2_147_483_647)),
    ] {
        let feed = negotiate_100(&outlet, length, length).unwrap();
        assert_eq!(feed.max_buffer_samples, expected);
        assert_eq!(feed.max_chunk_samples, expected.unwrap_or(0));
    }
}
