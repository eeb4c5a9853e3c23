use std::net::{Ipv4Addr, Ipv6Addr};

use serde_json::Value;

use super::*;
use crate::ChannelFormat;
use crate::discovery::answers::AnswerQueue;
use crate::discovery::evaluation::{EvaluationCounters, Evaluator};
use crate::query::CHEAP_WORK;
use crate::wire::timedata::TimeReply;

const RETURN_PORT: u16 = 40_000;

fn local(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}

/// The announced streams, and the answers to those who ask.
struct Outlets {
    registry: Registry,
    evaluator: Evaluator,
    answers: AnswerQueue<()>,
}

fn announced(shortinfos: &[Vec<u8>]) -> Outlets {
    let mut registry = Registry::new(SourcePolicy::default());
    for shortinfo in shortinfos {
        let info = StreamInfo::from_xml(shortinfo).unwrap();
        registry.add(AnnouncedStream::open(&info));
    }
    Outlets {
        registry,
        evaluator: Evaluator::new(100),
        answers: AnswerQueue::default(),
    }
}

/// A short info with this uid.
fn shortinfo(uid: &str) -> Vec<u8> {
    let format = ChannelFormat::Float32;
    let mut info = StreamInfo::new("Name", "EEG", 2, 100.0, format, "source").unwrap();
    info.reset_uid(uid);
    info.to_shortinfo_xml()
}

fn query(text: &str, id: &str) -> Vec<u8> {
    format!("LSL:shortinfo\r\n{text}\r\n{RETURN_PORT} {id}\r\n").into_bytes()
}

impl Outlets {
    /// Returns every reply to a datagram, with the endpoint that it goes to.
    fn replies(
        &mut self,
        arrival: Arrival,
        datagram: &[u8],
        from: SocketAddr,
        now: f64,
    ) -> Vec<(SocketAddr, Vec<u8>)> {
        let registry = &mut self.registry;
        match registry.handle_datagram(arrival, datagram, from, || Policy::Off, now) {
            Answer::Ignore | Answer::SealedTime => vec![],
            Answer::Time(request) => vec![(from, request.reply(now, now + 1.0).to_bytes())],
            Answer::Query(query) => {
                self.answers.push((), query, now);
                let mut all = vec![];
                while let Some(at) = self.answers.poll_timeout(now) {
                    let evaluator = &mut self.evaluator;
                    while let Some(reply) = self.answers.poll_transmit(evaluator, Policy::Off, at) {
                        all.push((reply.to, reply.bytes));
                    }
                }
                all
            }
        }
    }

    /// Returns how many streams answer a query from this address.
    fn ask(&mut self, text: &str, id: &str, from: &str, now: f64) -> usize {
        let from = SocketAddr::new(from.parse().unwrap(), 50_000);
        let datagram = query(text, id);
        self.replies(Arrival::Service, &datagram, from, now).len()
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
    let vectors = include_str!("../../../tests/vectors/udp-outlet-cases.json");
    let vectors: Value = serde_json::from_str(vectors).unwrap();
    let mut outlets = announced(&[hex(&vectors["vars"]["shortinfo_hex"])]);
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
        let got = outlets.replies(arrival, &hex(&case["request_hex"]), from, now);
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
    let mut outlets = announced(&[shortinfo("u-1"), shortinfo("u-2")]);
    let info = StreamInfo::from_xml(&shortinfo("u-3")).unwrap();
    let key = outlets.registry.add(AnnouncedStream::open(&info));
    assert_eq!(outlets.ask("name='Name'", "1", "127.0.0.1", 0.0), 3);
    assert_eq!(outlets.ask("uid='u-2'", "1", "127.0.0.1", 0.0), 1);
    assert_eq!(outlets.ask("nosuch", "1", "127.0.0.1", 0.0), 0);
    outlets.registry.remove(key);
    assert_eq!(outlets.ask("name='Name'", "1", "127.0.0.1", 1.0), 2);
}

#[test]
fn copies_of_a_query_share_one_later_answer() {
    let mut outlets = announced(&[shortinfo("u")]);
    #[expect(clippy::cast_possible_truncation, reason = "microseconds in a test")]
    let mut due = |arrival, from, text, id, now| {
        let datagram = query(text, id);
        let registry = &mut outlets.registry;
        match registry.handle_datagram(arrival, &datagram, from, || Policy::Off, now) {
            Answer::Query(query) => Some(((query.due() - 5.0) * 1e6).round() as i32),
            _ => None,
        }
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
    assert_eq!(outlets.registry.counters.duplicates, 3);
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
    let mut outlets = announced(&[shortinfo("u")]);
    let subnet = |address: &str, netmask: &str| Subnet {
        address: address.parse().unwrap(),
        netmask: netmask.parse().ok(),
        index: 0,
    };
    let present = [
        subnet("198.51.100.7", "255.255.255.0"),
        subnet("2001:db8::7", "ffff:ffff:ffff:ffff::"),
    ];
    outlets.registry.set_subnets(present.to_vec());
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
        assert_eq!(outlets.ask("", "1", near, 0.0), 1, "{near}");
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
    let flood = |outlets: &mut Outlets, now: f64| -> usize {
        let ask = |n: u32| outlets.ask("", &n.to_string(), "203.0.113.1", now);
        (0..200).map(ask).sum()
    };
    assert_eq!(flood(&mut outlets, 7.0), 50);
    assert_eq!(flood(&mut outlets, 8.5), 50);
    assert_eq!(outlets.ask("", "1", "10.1.2.4", 0.0), 1);
    let privileged = b"LSL:shortinfo\r\n\r\n53 1\r\n";
    assert!(
        outlets
            .replies(Arrival::Service, privileged, local(1), 9.0)
            .is_empty()
    );
    assert_eq!(outlets.registry.counters.refused, 301);

    let far: IpAddr = "203.0.113.1".parse().unwrap();
    outlets.registry.set_known(vec![far], Vec::new());
    assert_eq!(flood(&mut outlets, 9.0), 200);
    let named = SourcePolicy {
        peers: vec![far],
        ..SourcePolicy::default()
    };
    assert!(named.knows(far, &present));
    let network = SourcePolicy {
        networks: vec!["203.0.113.0/24".parse().unwrap()],
        ..SourcePolicy::default()
    };
    assert!(network.knows(far, &present) && !network.knows([203, 0, 114, 1].into(), &present));
    let wide = SourcePolicy {
        allow_all: true,
        ..SourcePolicy::default()
    };
    assert!(wide.knows(far, &present));
    // Unknown subnets must not make a host deaf.
    assert!(SourcePolicy::default().knows(far, &[]));
}

#[test]
fn a_face_of_a_relay_hears_its_subnet_alone() {
    let mut outlets = announced(&[shortinfo("a")]);
    outlets.registry.sources = SourcePolicy {
        allow_all: true,
        peers: vec!["10.2.0.9".parse().unwrap()],
        networks: Vec::new(),
        only_subnets: true,
    };
    outlets.registry.set_subnets(vec![Subnet {
        address: "10.1.0.5".parse().unwrap(),
        netmask: Some("255.255.255.0".parse().unwrap()),
        index: 0,
    }]);
    for (n, (from, answers)) in [
        ("10.1.0.77", 1),
        ("10.1.0.5", 1),
        ("10.2.0.9", 0),
        ("127.0.0.1", 0),
    ]
    .into_iter()
    .enumerate()
    {
        assert_eq!(
            outlets.ask("", &n.to_string(), from, 1.0),
            answers,
            "{from}"
        );
    }
    // The same prefix on every link.
    let link_local = Subnet {
        address: "fe80::5".parse().unwrap(),
        netmask: Some("ffff:ffff:ffff:ffff::".parse().unwrap()),
        index: 2,
    };
    let from = |scope| std::net::SocketAddrV6::new("fe80::7".parse().unwrap(), 1, 0, scope);
    assert!(link_local.has(from(2).into()) && !link_local.has(from(3).into()));
}

#[test]
fn subnet_membership() {
    let check = |address: &str, netmask: &str, peer: &str, expected| {
        let subnet = Subnet {
            address: address.parse().unwrap(),
            netmask: netmask.parse().ok(),
            index: 0,
        };
        assert_eq!(subnet.contains(peer.parse().unwrap()), expected, "{peer}");
    };
    check("198.51.100.7", "255.255.255.0", "198.51.100.200", true);
    check("198.51.100.7", "255.255.255.0", "198.51.101.7", false);
    check("198.51.100.7", "255.255.255.0", "2001:db8::1", false);
    let v6 = "ffff:ffff:ffff:ffff::";
    check("2001:db8::1", v6, "2001:db8::2", true);
    check("2001:db8::1", v6, "2001:db8:1::2", false);
    // A tunnel that claims the whole internet proves nothing about a peer.
    check("198.51.100.7", "0.0.0.0", "203.0.113.1", false);
}

/// As over UDP: who asks over TCP may spend a little on every query, and a limited amount on costly ones.
#[test]
fn costly_queries_over_tcp_are_limited_too() {
    let mut evaluator = Evaluator::new(100);
    let mut info = StreamInfo::from_xml(&shortinfo("u")).unwrap();
    let mut channels = info.desc_mut().into_child("channels");
    for n in 0..64 {
        channels
            .append_child("channel")
            .set("label", format!("C{n}"));
    }
    let ask = |evaluator: &mut Evaluator, text: &str, from: &str| {
        evaluator.selects(text.as_bytes(), from.parse().unwrap(), info.document(), 1.0)
    };
    for n in 0..500 {
        let text = format!("//*[//*[//*[starts-with({n} div 7,'x')]]]");
        assert!(ask(&mut evaluator, &text, "127.0.0.1").is_err());
    }
    let EvaluationCounters { costly, work, .. } = evaluator.counters;
    assert!(work < 500 * 2 * CHEAP_WORK + 2_200_000, "{work}");
    assert!(costly > 400, "{costly}");
    let mut ask = |text, from| ask(&mut evaluator, text, from).ok();
    assert_eq!(ask("name='Name'", "127.0.0.1"), Some(true));
    let costly = "count(//channel[label='C63' or label='C62'])=2";
    assert_eq!(ask(costly, "127.1.0.1"), Some(true));
    assert_eq!(
        ask(costly, "127.0.0.1"),
        None,
        "nothing is left for this host"
    );
    assert_eq!(ask("name=", "127.1.0.1"), None);
}

#[test]
fn replies_keep_the_scope_of_link_local_addresses() {
    let mut outlets = announced(&[shortinfo("u")]);
    let from =
        std::net::SocketAddrV6::new(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1), 50_000, 0, 3);
    let got = outlets.replies(Arrival::Service, &query("", "1"), from.into(), 0.0);
    let SocketAddr::V6(to) = got[0].0 else {
        panic!("family changed")
    };
    assert_eq!((to.port(), to.scope_id()), (RETURN_PORT, 3));
}

#[test]
fn hostile_datagrams_are_counted_and_ignored() {
    let mut outlets = announced(&[shortinfo("u")]);
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
        assert!(
            outlets
                .replies(Arrival::Service, datagram, local(50_000), 0.0)
                .is_empty()
        );
    }
    let malformed = outlets.registry.counters.malformed + outlets.evaluator.counters.malformed;
    assert_eq!(malformed, 6);
}

proptest::proptest! {
    #[test]
    fn any_bytes_are_survived(tail: Vec<u8>, prefix in 0..3_usize) {
        let mut outlets = announced(&[shortinfo("u")]);
        let prefix = [b"".as_slice(), b"LSL:shortinfo\r\n", b"LSL:timedata\r\n"][prefix];
        let datagram = [prefix, &tail].concat();
        outlets.replies(Arrival::Service, &datagram, local(50_000), 0.0);
        outlets.replies(Arrival::Responder, &datagram, local(50_001), 0.0);
    }
}
