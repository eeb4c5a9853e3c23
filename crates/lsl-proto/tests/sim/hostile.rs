//! Peers that mean harm, or were written by somebody who never read the protocol.

use std::net::{IpAddr, SocketAddr};

use lsl_proto::discovery::search::{Goal, Search, WaveTimes};
use lsl_proto::wire::response::{DataProtocol, FeedResponse};
use lsl_proto::wire::sample110::Encoder110;
use lsl_proto::{ByteOrder, ChannelFormat, StreamInfo};
use lsl_secure::handshake::PREAMBLE;
use lsl_secure::{Connection as Handshake, Policy};

use crate::dice::seeds;
use crate::peers::Identity;
use crate::programs::InletId;
use crate::programs::scripts::Script;
use crate::world::{HostId, SERVICE_PORT, World};

const UID: &str = "22222222-2222-4222-8222-222222222222";
const PORT: u16 = 17_000;

/// The short info of a stream at this address, which may be anything.
fn claim(address: IpAddr, changes: &[(&str, &str)]) -> String {
    let fields = [
        ("name", "claim"),
        ("type", "Test"),
        ("channel_count", "3"),
        ("channel_format", "float32"),
        ("source_id", "claim"),
        ("nominal_srate", "100.0000000000000"),
        ("version", "1.100000000000000"),
        ("created_at", "12.5"),
        ("uid", UID),
        ("session_id", "default"),
        ("hostname", "evil"),
        ("v4address", &address.to_string()),
        ("v4data_port", &PORT.to_string()),
        ("v4service_port", &PORT.to_string()),
        ("v6address", ""),
        ("v6data_port", "0"),
        ("v6service_port", "0"),
    ]
    .map(|(name, value)| {
        let change = changes.iter().find(|change| change.0 == name);
        format!(
            "<{name}>{}</{name}>",
            change.map_or(value, |change| change.1)
        )
    });
    format!(
        "<?xml version=\"1.0\"?>\n<info>{}<desc/></info>\n",
        fields.concat()
    )
}

/// An inlet for a claim, at whose address these bytes are sent. It gives up when it is disappointed.
fn victim(world: &mut World, changes: &[(&str, &str)], answer: &[u8]) -> InletId {
    let (evil, host) = (world.add_host(), world.add_host());
    let address = world.hosts[evil].address;
    let info = StreamInfo::from_xml(claim(address, changes).as_bytes()).unwrap();
    let script = Script {
        answer: answer.to_vec(),
        then_closes: false,
    };
    world.scripts.insert(SocketAddr::new(address, PORT), script);
    world.recovers = false;
    world.open_inlet_for(host, &info, Identity::off())
}

fn response(data_protocol: DataProtocol) -> Vec<u8> {
    let response = FeedResponse {
        byte_order: ByteOrder::NATIVE,
        suppress_subnormals: false,
        data_protocol,
        granted: None,
    };
    response.to_bytes(110, UID.as_bytes())
}

/// A response and the test patterns of an encoder.
fn opening(encoder: Encoder110) -> Vec<u8> {
    let mut bytes = response(DataProtocol::V110);
    encoder.encode_test_patterns(&mut bytes);
    bytes
}

/// Whatever comes instead of samples, the inlet says that the stream is lost and why.
#[test]
fn feeds_that_break_the_protocol_are_lost() {
    let float = |channels| Encoder110::new(ChannelFormat::Float32, channels, ByteOrder::NATIVE);
    let text = Encoder110::new(ChannelFormat::String, 1, ByteOrder::NATIVE);
    let (opened, ok) = (opening(text), b"LSL/110 200 OK\r\n");
    let archive = response(DataProtocol::V100);
    let bomb = [
        &3_u32.wrapping_shl(16).to_le_bytes()[..],
        &b"<a>".repeat(1 << 16),
    ]
    .concat();
    let int16 = Encoder110::new(ChannelFormat::Int16, 6, ByteOrder::NATIVE);
    let swapped = Encoder110::new(ChannelFormat::Float32, 3, ByteOrder::Big);
    let nothing: Vec<u8> = vec![2; 42];
    let floats: [(Vec<Vec<u8>>, &str); 20] = [
        (vec![b"LSL/110 404 Not found\r\n".to_vec()], "another one"),
        (vec![b"LSL/110 505 Version\r\n".to_vec()], "versions"),
        (vec![b"LSL/110 302 Found there\r\n".to_vec()], "redirects"),
        (vec![b"HTTP/1.1 200 OK\r\n\r\n".to_vec()], "malformed"),
        (vec![vec![0; 100_000]], "too long"),
        (vec![b"LSL/999 200 OK\r\n\r\n".to_vec()], "versions"),
        (
            vec![ok.to_vec(), b"Byte-Order: 2134\r\n".to_vec()],
            "byte order",
        ),
        (
            vec![ok.to_vec(), b"Data-Protocol-Version: 999\r\n".to_vec()],
            "versions",
        ),
        (
            vec![ok.to_vec(), b"UID: somebody-else\r\n".to_vec()],
            "another one",
        ),
        (
            vec![ok.to_vec(), b"A: ".to_vec(), vec![b'b'; 1 << 20]],
            "too long",
        ),
        (vec![ok.to_vec(), b"A: b\r\n".repeat(1 << 16)], "too long"),
        (vec![opening(float(0)), nothing.clone()], "test patterns"),
        (vec![opening(int16), nothing.clone()], "test patterns"),
        (vec![opening(swapped), nothing], "test patterns"),
        (vec![archive.clone(), b"samples".to_vec()], "archive"),
        (vec![archive.clone(), vec![0x7f, 1, 18]], "version"),
        (
            vec![archive.clone(), vec![0x7f, 1, 9, 8], vec![1; 8]],
            "larger than",
        ),
        (
            vec![archive.clone(), vec![0x7f, 1, 9, 0xff, 0]],
            "archive item",
        ),
        (
            vec![archive.clone(), vec![0x7f, 1, 9, 1, 3], b"<a>".to_vec()],
            "stream info",
        ),
        (vec![archive, vec![0x7f, 1, 9, 4], bomb], "nested"),
    ];
    let texts: [(Vec<Vec<u8>>, &str); 4] = [
        (vec![opened.clone(), vec![1, 3, 0, 0, 0]], "string length"),
        (vec![opened.clone(), vec![1, 0]], "string length"),
        (
            vec![opened.clone(), vec![1, 8], vec![0xff; 8]],
            "larger than",
        ),
        (
            vec![opened, vec![1, 4, 0xff, 0xff, 0xff, 0xff]],
            "larger than",
        ),
    ];
    let text_claim = [("channel_format", "string"), ("channel_count", "1")];
    let floats = floats.iter().map(|case| (&[][..], case));
    let cases = floats.chain(texts.iter().map(|case| (&text_claim[..], case)));
    for (number, (changes, (parts, reason))) in cases.enumerate() {
        // Cut differently each time, with another seed.
        let mut world = World::new(number as u64);
        world.network.window = 1 << (6 + world.dice.below(14));
        let inlet = victim(&mut world, changes, &parts.concat());
        world.inlet(inlet).set_pulls(None);
        let deadline = world.now + 14.0;
        assert!(
            world.run_until(deadline, |it| it.inlet(inlet).is_lost()),
            "{reason}"
        );
        let error = world.inlet(inlet).errors[0].to_string();
        assert!(error.contains(reason), "{reason}: {error}");
        assert_eq!(world.inlet(inlet).feed.counts().samples, 0);
    }
}

/// Outlets that never come to a point are left at the limit, or hold nothing but their connection.
#[test]
fn feeds_that_never_come_to_a_point_are_left() {
    let text = [("channel_format", "string"), ("channel_count", "1")];
    let answers = [
        Vec::new(),
        b"LSL/110 200 ".to_vec(),
        response(DataProtocol::V110),
    ];
    for answer in answers {
        seeds(|seed| {
            let mut world = World::new(seed);
            let inlet = victim(&mut world, &text, &answer);
            let begin = world.now;
            let deadline = begin + 60.0;
            assert!(world.run_until(deadline, |it| it.inlet(inlet).is_lost()));
            assert!((world.now - begin - 15.0).abs() < 0.1);
            world.run_for(2.0);
            assert!(world.peers[0].is_over, "the other side is told");
        });
    }
}

/// A stream that claims to be enormous is accepted, but nothing is allocated for the claim.
#[test]
fn claims_of_size_cost_nothing() {
    let claims = [
        [("channel_count", "2147483647"), ("name", "wide")],
        [("channel_count", "100000000"), ("name", "broad")],
        [("nominal_srate", "2147483647.0"), ("name", "fast")],
        [("nominal_srate", "1e300"), ("name", "faster")],
    ];
    for changes in claims {
        seeds(|seed| {
            let mut world = World::new(seed);
            let answer = [response(DataProtocol::V110), vec![2; 1000]].concat();
            let inlet = victim(&mut world, &changes, &answer);
            world.run_for(1.0);
            // The widest is refused at once, the others wait for the rest of their test patterns.
            assert!(!world.inlet(inlet).is_open());
            world.run_for(15.0);
            assert!(world.inlet(inlet).is_lost());
        });
    }
}

/// Answers that describe no stream are no results, and do not hide the one that is.
#[test]
fn replies_that_describe_no_stream_are_dropped() {
    seeds(|seed| {
        let mut world = World::new(seed);
        let (host, resolver) = (world.add_host(), world.add_host());
        world.announce(host, "found", "Fake");
        let evil = SocketAddr::new([192, 168, 1, 77].into(), SERVICE_PORT);
        let claims: [&[(&str, &str)]; 11] = [
            &[("uid", "")],
            &[("nominal_srate", "nan")],
            &[("nominal_srate", "-1")],
            &[("nominal_srate", "inf")],
            &[("nominal_srate", "1e999")],
            &[("nominal_srate", "")],
            &[("channel_count", "-1")],
            &[("channel_count", "99999999999")],
            &[("channel_count", "")],
            &[("version", "nan")],
            &[("name", "")],
        ];
        let mut replies: Vec<_> = claims
            .iter()
            .map(|it| claim(evil.ip(), it).into_bytes())
            .collect();
        replies.extend([
            Vec::new(),
            vec![0; 1000],
            b"<".repeat(30_000),
            b"<a>".repeat(20_000),
            b"<a b='c'/>".repeat(5000),
            format!("<!DOCTYPE {}", "[<!".repeat(10_000)).into_bytes(),
            format!("<info><name>{}", "&lt;".repeat(15_000)).into_bytes(),
        ]);
        let goal = Goal::Once {
            minimum: 0,
            not_before: world.now,
            deadline: world.now + 2.0,
        };
        let search = Search::new(
            "session_id='default'",
            WaveTimes::default(),
            goal,
            world.now,
        );
        let id = world.start(resolver, search);
        let port = world.search(id).port;
        let question = world.search(id).search.datagram(port).unwrap();
        let question = String::from_utf8(question).unwrap();
        let number = question.split_whitespace().last().unwrap().to_owned();
        let to = SocketAddr::new(world.hosts[resolver].address, port);
        for reply in &replies {
            let datagram = [number.as_bytes(), b"\r\n", reply].concat();
            world.send(None, evil, to, &datagram);
        }
        world.run_search(id);
        assert_eq!(world.results(id), ["found"]);
    });
}

/// Says `bytes` in two parts, and that it has no more to say. Returns what is answered.
fn ask(world: &mut World, host: HostId, bytes: &[u8], cut: usize) -> Vec<u8> {
    let peer = world.dial(host, 0);
    let connection = &world.connections[&world.connects];
    connection.link.allow_plaintext();
    world.say(peer, &bytes[..cut]);
    let pause = world.dice.share() * 2.0;
    world.run_for(pause);
    world.say(peer, &bytes[cut..]);
    world.half_close(peer);
    world.run_for(2.0);
    assert!(world.peers[peer].is_over);
    std::mem::take(&mut world.peers[peer].received)
}

/// What a connection is, is decided by its first bytes, however they arrive.
#[test]
fn requests_may_be_cut_anywhere() {
    let requests: [(&[u8], &[u8]); 9] = [
        (b"LSL:shortinfo\r\n\r\n", b"<?xml"),
        (b"LSL:shortinfo\r\nname='other'\r\n", b""),
        (b"LSL:fullinfo\r\n", b"<?xml"),
        (
            b"LSL:streamfeed/110\r\nMax-Buffer-Length: 9\r\n\r\n",
            b"LSL/110 200 OK\r\n",
        ),
        (b"LSL:streamfeed/110 other\r\nA: b\r\n\r\n", b"LSL/110 404"),
        // Archives begin so.
        (b"LSL:streamfeed\r\n0 0\r\n", b"\x7f"),
        (b"LSL:secrets\r\n", b""),
        (b"LSL:secure/2\r\n", b""),
        (b"\r\n", b""),
    ];
    seeds(|seed| {
        let mut world = World::new(seed);
        let (near, far) = (world.add_host(), world.add_host());
        let policy = if seed % 2 == 0 {
            Policy::Off
        } else {
            Policy::Migrate
        };
        world.open_outlet(near, "plain", Identity::new("amp", policy, &["rec"]), 100);
        for (request, answer) in requests {
            let cut = usize::try_from(seed).unwrap() % request.len();
            let received = ask(&mut world, far, request, cut);
            let shown = String::from_utf8_lossy(request);
            assert!(received.starts_with(answer), "{shown:?} at {cut}");
            assert_eq!(received.is_empty(), answer.is_empty(), "{shown:?} at {cut}");
        }
    });
}

/// Preamble and M1 of a device.
fn hello(world: &mut World, who: &Identity) -> Vec<u8> {
    let mut hello = Vec::new();
    let mut initiator = Handshake::initiator(who.local.clone(), b"", 0.0, &mut world.dice).unwrap();
    let take = |bytes: &[u8]| {
        hello.extend_from_slice(bytes);
        Ok(bytes.len())
    };
    assert!(initiator.flush(|| 0.0, take).unwrap());
    hello
}

/// Who stops half way is ended, at the limit of what it owes.
#[test]
fn silence_before_a_session_is_ended() {
    seeds(|seed| {
        let mut world = World::new(seed);
        let (near, far) = (world.add_host(), world.add_host());
        let amp = Identity::new("amp", Policy::Required, &["rec"]);
        let outlet = world.open_outlet(near, "silence", amp.clone(), 100);
        let hello = hello(&mut world, &amp);
        let (preamble, all) = (PREAMBLE.len(), hello.len());
        for (said, answer, limit) in [
            (0, 0, 3.0),
            (1, 0, 3.0),
            (preamble - 1, 0, 3.0),
            (preamble, 0, 3.0),
            (all, 188, 5.0),
        ] {
            let peer = world.dial(far, outlet);
            world.connections[&world.connects].link.allow_plaintext();
            world.say(peer, &hello[..said]);
            let begin = world.now;
            let is_over = |it: &mut World| it.peers[peer].is_over;
            assert!(world.run_until(begin + 60.0, is_over), "after {said}");
            let took = world.now - begin;
            assert!((limit..limit + 1.0).contains(&took), "{said}: {took}");
            assert_eq!(world.peers[peer].received.len(), answer, "after {said}");
        }
        world.run_for(2.0);
        assert!(world.outlet(outlet).connections.is_empty());
    });
}

#[test]
fn the_hello_may_be_cut_anywhere_and_a_wrong_byte_makes_it_none() {
    seeds(|seed| {
        let mut world = World::new(seed);
        let (near, far) = (world.add_host(), world.add_host());
        let rec = Identity::new("rec", Policy::Required, &["amp"]);
        let amp = Identity::new("amp", Policy::Required, &["rec"]);
        let outlet = world.open_outlet(near, "cut", amp, 100);
        let hello = hello(&mut world, &rec);
        for _ in 0..5 {
            let length = u64::try_from(hello.len()).unwrap();
            let cut = usize::try_from(world.dice.below(length)).unwrap();
            let received = ask(&mut world, far, &hello, cut);
            assert_eq!(received.len(), 188, "M2 at {cut}");
            let at = usize::try_from(seed).unwrap() % PREAMBLE.len();
            let mut wrong = hello.clone();
            wrong[at] ^= 0x20;
            assert_eq!(ask(&mut world, far, &wrong, cut), b"", "byte {at}");
        }
        let inlet = world.open_inlet(far, outlet, rec);
        world.await_open(inlet);
    });
}
