use std::net::{Ipv4Addr, Ipv6Addr};

use lsl_proto::wire::discovery::QueryDatagram;
use lsl_proto::wire::timedata::TimeReply;
use serde_json::Value;

use super::*;
use crate::{Selector, StreamInfo};

const RETURN_PORT: u16 = 40_000;

fn local(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}

fn announced(shortinfos: &[Vec<u8>]) -> Registry {
    let registry = Registry::new(100, SourcePolicy::default());
    for shortinfo in shortinfos {
        let info = StreamInfo::from_xml(shortinfo).unwrap();
        registry.add(AnnouncedStream::plain(&info));
    }
    registry
}

/// A short info with this uid.
fn shortinfo(uid: &str) -> Vec<u8> {
    let format = crate::ChannelFormat::Float32;
    let mut info = StreamInfo::new("Name", "EEG", 2, 100.0, format, "source").unwrap();
    info.reset_uid(uid);
    info.to_shortinfo_xml()
}

fn query(text: &str, id: &str) -> Vec<u8> {
    format!("LSL:shortinfo\r\n{text}\r\n{RETURN_PORT} {id}\r\n").into_bytes()
}

/// Every reply to a datagram, with where it goes.
fn replies(
    registry: &Registry,
    arrival: Arrival,
    datagram: &[u8],
    from: SocketAddr,
    now: f64,
) -> Vec<(SocketAddr, Vec<u8>)> {
    match registry.answer(arrival, datagram, from, now) {
        Answer::Ignore => vec![],
        Answer::SealedTime(packet) => vec![(from, packet.to_vec())],
        Answer::Time(request) => vec![(from, request.reply(now, now + 1.0).to_bytes())],
        Answer::Streams(mut matches) => {
            let to = matches.to();
            let mut all = vec![];
            loop {
                match matches.step(registry, now) {
                    QueryStep::Reply(reply) => all.push((to, reply)),
                    QueryStep::No => {}
                    QueryStep::End => return all,
                }
            }
        }
    }
}

fn hex(text: &Value) -> Vec<u8> {
    let digits = text.as_str().unwrap();
    (0..digits.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap())
        .collect()
}

#[test]
fn golden_vectors() {
    let vectors = include_str!("../../../../lsl-proto/tests/vectors/udp-outlet-cases.json");
    let vectors: Value = serde_json::from_str(vectors).unwrap();
    let registry = announced(&[hex(&vectors["vars"]["shortinfo_hex"])]);
    for (number, case) in (0_u16..).zip(vectors["cases"].as_array().unwrap()) {
        let name = case["case"].as_str().unwrap();
        let responder = case["to"].as_str().unwrap().ends_with(":16571");
        let arrival = if responder {
            Arrival::Responder
        } else {
            Arrival::Service
        };
        let from = local(1234);
        // Far apart, so that no case repeats another one.
        let now = 10.0 * f64::from(number);
        let got = replies(&registry, arrival, &hex(&case["request_hex"]), from, now);
        // Malformed clock probes get uninitialised memory from liblsl and nothing from us; and where
        // liblsl sends one reply per responder socket, we have one responder.
        let malformed = [
            "timedata big id overflow",
            "timedata garbage",
            "timedata no body",
        ]
        .contains(&name);
        let expected = !malformed && case["n_replies"].as_u64().unwrap() > 0;
        assert_eq!(got.len(), usize::from(expected), "{name}");
        let Some((to, reply)) = got.first() else {
            continue;
        };
        let expected_reply = hex(&case["reply_hex"]);
        if name.starts_with("timedata") {
            assert_eq!(*to, from, "{name}");
            let (got, expected) = (
                TimeReply::parse(reply).unwrap(),
                TimeReply::parse(&expected_reply).unwrap(),
            );
            assert_eq!(
                (got.wave_id, got.t0.to_bits()),
                (expected.wave_id, expected.t0.to_bits())
            );
            assert_eq!(
                (got.t1.to_bits(), got.t2.to_bits()),
                (now.to_bits(), (now + 1.0).to_bits())
            );
        } else {
            let port = case["sent_from_port"].as_u64().unwrap();
            assert_eq!(u64::from(to.port()), port, "{name}");
            assert_eq!(*reply, expected_reply, "{name}");
        }
    }
}

#[test]
fn every_matching_stream_answers_until_it_is_removed() {
    let registry = announced(&[shortinfo("u-1"), shortinfo("u-2")]);
    let info = StreamInfo::from_xml(&shortinfo("u-3")).unwrap();
    let key = registry.add(AnnouncedStream::plain(&info));
    let ask = |text, now| {
        replies(
            &registry,
            Arrival::Service,
            &query(text, "1"),
            local(50_000),
            now,
        )
        .len()
    };
    assert_eq!(ask("name='Name'", 0.0), 3);
    assert_eq!(ask("uid='u-2'", 0.0), 1);
    assert_eq!(ask("nosuch", 0.0), 0);
    registry.remove(key);
    assert_eq!(ask("name='Name'", 1.0), 2);
}

#[test]
fn copies_of_a_query_share_one_later_answer() {
    let registry = announced(&[shortinfo("u")]);
    #[expect(clippy::cast_possible_truncation, reason = "microseconds in a test")]
    let due = |arrival, from, text, id, now| match registry.answer(
        arrival,
        &query(text, id),
        from,
        now,
    ) {
        Answer::Streams(matches) => Some(((matches.due() - 5.0) * 1e6).round() as i32),
        _ => None,
    };
    let here = local(50_000);
    assert_eq!(due(Arrival::Responder, here, "", "1", 5.0), Some(0));
    // The same query by another way, group or source port.
    assert_eq!(due(Arrival::Responder, here, "", "1", 5.001), Some(10_000));
    assert_eq!(due(Arrival::Service, local(50_001), "", "1", 5.002), None);
    assert_eq!(due(Arrival::Service, here, "", "1", 5.009), None);
    // Another resolver: another id, address or query.
    assert_eq!(due(Arrival::Service, here, "", "2", 5.003), Some(3_000));
    assert_eq!(due(Arrival::Service, here, "name", "1", 5.003), Some(3_000));
    let elsewhere = (Ipv4Addr::new(192, 168, 1, 2), 50_000).into();
    assert_eq!(
        due(Arrival::Service, elsewhere, "", "1", 5.003),
        Some(3_000)
    );
    // A flood gets an answer every 10 ms.
    assert_eq!(due(Arrival::Responder, here, "", "1", 5.011), Some(20_000));
    assert_eq!(due(Arrival::Responder, here, "", "1", 5.012), None);
    // The next wave.
    assert_eq!(due(Arrival::Responder, here, "", "1", 5.5), Some(500_000));
    assert_eq!(registry.counters.duplicates.load(Ordering::Relaxed), 3);
}

#[test]
fn the_memory_of_queries_is_bounded() {
    let mut recent = RecentQueries::default();
    for id in 0..20_000_u32 {
        assert!(
            recent
                .due(local(2000), &id.to_le_bytes(), b"", 1.0)
                .is_some()
        );
    }
    assert!(recent.answers.len() <= MAX_RECENT_QUERIES);
}

#[test]
fn strangers_get_few_answers_and_sensible_ports_only() {
    let registry = announced(&[shortinfo("u")]);
    let interface = |address: &str, netmask: &str| Interface {
        name: "test0".into(),
        index: 2,
        address: address.parse().unwrap(),
        netmask: Some(netmask.parse().unwrap()),
        is_up: true,
        is_multicast: true,
        is_loopback: false,
    };
    let present = [
        interface("198.51.100.7", "255.255.255.0"),
        interface("2001:db8::7", "ffff:ffff:ffff:ffff::"),
    ];
    registry.set_interfaces(present.clone().into());
    let asks = |from: &str, expected: usize| {
        let from = SocketAddr::new(from.parse().unwrap(), 50_000);
        let got = replies(&registry, Arrival::Service, &query("", "1"), from, 0.0).len();
        assert_eq!(got, expected, "{from}");
    };
    for near in [
        "127.0.0.1",
        "::1",
        "10.1.2.3",
        "172.16.0.1",
        "192.168.7.7",
        "169.254.3.4",
        "100.64.0.1",
        "fe80::1",
        "fd00::1",
        "198.51.100.200",
        "2001:db8::1",
    ] {
        asks(near, 1);
    }
    for far in [
        "203.0.113.1",
        "198.51.101.1",
        "2001:db8:1::1",
        "172.32.0.1",
        "100.128.0.1",
    ] {
        assert!(!SourcePolicy::default().knows(far.parse().unwrap(), &present));
    }
    let flood = |now: f64| -> usize {
        let ask = |n: u32| {
            let from = SocketAddr::new("203.0.113.1".parse().unwrap(), 50_000);
            let query = query("", &n.to_string());
            replies(&registry, Arrival::Service, &query, from, now).len()
        };
        (0..200).map(ask).sum()
    };
    assert_eq!(flood(7.0), 50);
    assert_eq!(flood(8.5), 50);
    asks("10.1.2.4", 1);
    let privileged = b"LSL:shortinfo\r\n\r\n53 1\r\n";
    assert!(replies(&registry, Arrival::Service, privileged, local(1), 9.0).is_empty());
    assert_eq!(registry.counters.refused.load(Ordering::Relaxed), 301);

    let far: IpAddr = "203.0.113.1".parse().unwrap();
    let named = SourcePolicy {
        peers: vec![far],
        ..SourcePolicy::default()
    };
    assert!(named.knows(far, &present));
    let wide = SourcePolicy {
        allow_all: true,
        ..SourcePolicy::default()
    };
    assert!(wide.knows(far, &present));
    // Unknown subnets must not make a host deaf.
    assert!(SourcePolicy::default().knows(far, &[]));
}

/// What two releases of liblsl answer to 267 predicates, most of them malformed:
/// `crates/lsl-interop/python/predicates.py` asked them.
#[test]
fn predicates_match_what_liblsl_matches() {
    let answers = include_str!("../../../../lsl-interop/python/predicates.json");
    let answers: Value = serde_json::from_str(answers).unwrap();
    let registry = announced(&[]);
    let format = crate::ChannelFormat::Float32;
    let mut info = StreamInfo::new("name", "type", 1, 100.0, format, "source").unwrap();
    info.set_session_id("default");
    registry.add(AnnouncedStream::plain(&info));
    let cases = answers["cases"].as_array().unwrap();
    assert!(cases.len() >= 250);
    for (number, case) in (0_u16..).zip(cases) {
        let shown = case["predicate"].as_str().unwrap();
        let predicate: Vec<u8> = shown.chars().map(|byte| byte as u8).collect();
        let matches = Query::parse(&predicate).is_ok_and(|query| info.matches(&query).unwrap());
        assert_eq!(matches, case["matches"].as_bool().unwrap(), "{shown:?}");
        let query = Selector::predicate(predicate).and_then(|it| it.to_query("default"));
        let answer = match &query {
            Err(_) => "refused",
            Ok(query) => {
                let datagram = QueryDatagram {
                    query,
                    return_port: RETURN_PORT,
                    id: b"1",
                }
                .to_bytes();
                let now = f64::from(number);
                match replies(&registry, Arrival::Service, &datagram, local(1234), now).len() {
                    0 => "none",
                    _ => "found",
                }
            }
        };
        // liblsl cuts a query at its line end; we send a blank for it.
        let expected = match shown {
            "\nname" => "found",
            _ => case["answer"].as_str().unwrap(),
        };
        assert_eq!(answer, expected, "{shown:?}");
    }
}

/// As over UDP: who asks over TCP may spend a little on every query, and a limited amount on costly ones.
#[test]
fn costly_queries_over_tcp_are_limited_too() {
    let registry = announced(&[]);
    let mut info = StreamInfo::from_xml(&shortinfo("u")).unwrap();
    let mut channels = info.desc_mut().into_child("channels");
    for n in 0..64 {
        channels
            .append_child("channel")
            .set("label", format!("C{n}"));
    }
    let ask = |text: &str, from: &str| {
        registry.selects(text.as_bytes(), from.parse().unwrap(), info.document(), 1.0)
    };
    let work = || registry.counters.query_work.load(Ordering::Relaxed);
    for n in 0..500 {
        let text = format!("//*[//*[//*[starts-with({n} div 7,'x')]]]");
        assert!(ask(&text, "127.0.0.1").is_err());
    }
    assert!(
        work() < 500 * 2 * lsl_proto::query::CHEAP_WORK + 2_200_000,
        "{}",
        work()
    );
    assert!(registry.counters.costly.load(Ordering::Relaxed) > 400);
    assert_eq!(ask("name='Name'", "127.0.0.1").ok(), Some(true));
    let costly = "count(//channel[label='C63' or label='C62'])=2";
    assert_eq!(ask(costly, "127.1.0.1").ok(), Some(true));
    assert!(
        ask(costly, "127.0.0.1").is_err(),
        "nothing is left for this host"
    );
    assert!(ask("name=", "127.1.0.1").is_err());
}

#[test]
fn replies_keep_the_scope_of_link_local_addresses() {
    let registry = announced(&[shortinfo("u")]);
    let from =
        std::net::SocketAddrV6::new(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1), 50_000, 0, 3);
    let got = replies(
        &registry,
        Arrival::Service,
        &query("", "1"),
        from.into(),
        0.0,
    );
    let SocketAddr::V6(to) = got[0].0 else {
        panic!("family changed")
    };
    assert_eq!((to.port(), to.scope_id()), (RETURN_PORT, 3));
}

#[test]
fn hostile_datagrams_are_counted_and_ignored() {
    let registry = announced(&[shortinfo("u")]);
    let long = query(&"a".repeat(5000), "1");
    let deep = query(&"(".repeat(4000), "1");
    for datagram in [
        b"LSL:shortinfo\r\n".as_slice(),
        b"LSL:shortinfo\r\n\r\n99999 1",
        b"LSL:shortinfo\r\n\r\nx",
        b"LSL:timedata\r\nx",
        &long,
        &deep,
    ] {
        assert!(replies(&registry, Arrival::Service, datagram, local(50_000), 0.0).is_empty());
    }
    assert_eq!(registry.counters.malformed.load(Ordering::Relaxed), 6);
}

proptest::proptest! {
    #[test]
    fn any_bytes_are_survived(tail: Vec<u8>, prefix in 0..3_usize) {
        let registry = announced(&[shortinfo("u")]);
        let prefix = [b"".as_slice(), b"LSL:shortinfo\r\n", b"LSL:timedata\r\n"][prefix];
        let datagram = [prefix, &tail].concat();
        replies(&registry, Arrival::Service, &datagram, local(50_000), 0.0);
        replies(&registry, Arrival::Responder, &datagram, local(50_001), 0.0);
    }
}
