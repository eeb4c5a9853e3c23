//! Whole searches over loopback sockets: announcing contexts on one side, resolvers on the other.

use std::net::{Ipv4Addr, UdpSocket};
use std::sync::atomic::{AtomicU32, Ordering};

use lsl_proto::config::Config;
use lsl_proto::discovery::answers::AnswerQueue;
use lsl_proto::discovery::evaluation::Evaluator;
use lsl_proto::discovery::registry::{AnnouncedStream, Answer, Arrival, Registry, SourcePolicy};
use lsl_proto::wire::discovery::QueryDatagram;
use lsl_proto::wire::timedata::{TimeReply, TimeRequest};

use lsl_secure::Policy;
use serde_json::Value;

use super::*;
use crate::ChannelFormat;
use crate::drive_discovery::serve::Announcement;
use crate::net::runtime;

const PLENTY: Duration = Duration::from_secs(20);

/// A configuration that no other test and no other program shares ports or session with.
fn private_config() -> Config {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let probe = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let base = probe.local_addr().unwrap().port().min(60_000);
    let mut config = Config::loopback();
    config.set_ports(base, 12);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    config
        .set_session_id(&format!("test {} {number}", std::process::id()))
        .unwrap();
    config
}

/// Announces a stream without serving it.
fn announce(context: &Context, uid: &str, stream_type: &str) -> Announcement {
    let mut announcement = context.service().open().unwrap();
    let ports = announcement.service_ports();
    let mut info =
        StreamInfo::new("Fake", stream_type, 2, 100.0, ChannelFormat::Int16, "src").unwrap();
    info.reset_uid(uid);
    info.set_session_id(context.config().lab().session_id.as_str());
    info.set_v4_ports(1, ports.v4);
    info.set_v6_ports(1, ports.v6);
    announcement.publish(AnnouncedStream::open(&info));
    announcement
}

#[test]
fn one_search_finds_forty_streams_of_four_programs() {
    let config = private_config();
    let contexts: Vec<Context> = (0..4).map(|_| Context::new(config.clone())).collect();
    let _announced: Vec<Announcement> = (0..40)
        .map(|number| announce(&contexts[number % 4], &format!("u{number:02}"), "EEG"))
        .collect();
    let resolver = Context::new(config);
    let found = resolver
        .resolve_blocking(&Selector::all(), 40, PLENTY)
        .unwrap();
    assert_eq!(found.len(), 40);
    assert!(found.is_sorted_by_key(|info| info.uid().into_owned()));
    assert!(
        found
            .iter()
            .all(|info| info.v4_address() == "127.0.0.1" || info.v6_address() == "::1")
    );

    let one = Selector::predicate("uid='u17'").unwrap();
    let found = resolver.resolve_blocking(&one, 1, PLENTY).unwrap();
    assert_eq!(found.len(), 1);
    let none = Selector::property("type", "it's \"none\"").unwrap();
    let found = resolver
        .resolve_blocking(&none, 1, Duration::from_millis(30))
        .unwrap();
    assert!(found.is_empty());
}

#[test]
fn calls_that_do_not_wait_find_a_stream_when_they_are_repeated() {
    let config = private_config();
    let context = Context::new(config.clone());
    let resolver = Context::new(config);
    let wanted = Selector::property("type", "EEG").unwrap();
    let look = |selector: &Selector| {
        resolver
            .resolve_blocking(selector, 1, Timeout::NOW)
            .unwrap()
    };
    let deadline = local_clock() + PLENTY.as_secs_f64();
    // As in each frame of a game, which runs before its stream does.
    let mut announced = None;
    let mut frames = 0;
    loop {
        let found = look(&wanted);
        if let [only] = &found[..] {
            assert_eq!(only.uid(), "late");
            break;
        }
        assert!(local_clock() < deadline, "in vain after {frames} frames");
        announced.get_or_insert_with(|| announce(&context, "late", "EEG"));
        frames += 1;
        std::thread::sleep(Duration::from_millis(5));
    }
    // Who asks once pays nothing; who asks for ever new things pays for few.
    let lingering = resolver.lingering();
    assert_eq!(lingering.searches(), 1);
    look(&Selector::all());
    assert_eq!(lingering.searches(), 1);
    for number in 0..70 {
        let other = Selector::property("type", format!("{number}")).unwrap();
        look(&other);
        look(&other);
    }
    assert!((2..=64).contains(&lingering.searches()));
    assert!(!lingering.end_unused(local_clock() + 6.0));
    assert_eq!(lingering.searches(), 0);
}

#[test]
fn resolves_inside_a_foreign_runtime() {
    let config = private_config();
    let context = Context::new(config.clone());
    let _announced = announce(&context, "u", "EEG");
    let resolver = Context::new(config);
    let foreign = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    #[expect(
        clippy::disallowed_methods,
        reason = "this test plays the foreign runtime"
    )]
    let found = foreign.block_on(async {
        let query = b"name='Fake'".to_vec();
        let timeout = Timeout::After(PLENTY);
        resolve_query(&resolver, query, 1, 0.05, timeout)
            .await
            .unwrap()
    });
    assert_eq!(found.len(), 1);
}

#[test]
fn a_continuous_resolver_reports_coming_and_going() {
    let mut config = private_config();
    for (key, value) in [
        ("tuning.MulticastMinRTT", "0.01"),
        ("tuning.UnicastMinRTT", "0.01"),
        ("tuning.ContinuousResolveInterval", "0.1"),
    ] {
        config.set(key, value).unwrap();
    }
    let context = Context::new(config.clone());
    let resolver = ContinuousResolver::in_context(
        &Context::new(config),
        &Selector::property("type", "EEG").unwrap(),
        Duration::from_secs(1),
    )
    .unwrap();
    assert!(resolver.next_event_blocking(Timeout::NOW).is_none());
    let stays = announce(&context, "stays", "EEG");
    let goes = announce(&context, "goes", "EEG");
    let _other = announce(&context, "other", "Markers");
    let mut appeared = Vec::new();
    while appeared.len() < 2 {
        if let ResolverEvent::Appeared(info) = resolver.next_event_blocking(PLENTY).unwrap() {
            appeared.push(info.uid().into_owned());
        }
    }
    appeared.sort();
    assert_eq!(appeared, ["goes", "stays"]);
    assert_eq!(resolver.results().len(), 2);
    drop(goes);
    loop {
        match resolver.next_event_blocking(PLENTY).unwrap() {
            ResolverEvent::Lost(info) => {
                assert_eq!(info.uid(), "goes");
                break;
            }
            ResolverEvent::Appeared(info) => panic!("{} appeared again", info.uid()),
            _ => {}
        }
    }
    assert_eq!(resolver.results().len(), 1);
    drop(stays);
}

#[test]
fn the_service_tells_the_time_and_closes_with_the_last_stream() {
    let context = Context::new(private_config());
    assert_eq!(context.service().service_ports().v4, 0);
    let first = announce(&context, "a", "EEG");
    let second = announce(&context, "b", "EEG");
    let port = first.service_ports().v4;
    assert_eq!(second.service_ports(), first.service_ports());
    drop(first);

    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    socket.set_read_timeout(Some(PLENTY)).unwrap();
    let request = TimeRequest {
        wave_id: -7,
        t0: local_clock(),
    };
    socket
        .send_to(&request.to_bytes(), (Ipv4Addr::LOCALHOST, port))
        .unwrap();
    let mut buffer = [0; 256];
    let (length, from) = socket.recv_from(&mut buffer).unwrap();
    let now = local_clock();
    let reply = TimeReply::parse(&buffer[..length]).unwrap();
    assert_eq!((from.port(), reply.wave_id), (port, -7));
    // Text has 16 digits, so the comparison allows a nanosecond.
    assert!(request.t0 - 1e-9 <= reply.t1 && reply.t1 <= reply.t2 && reply.t2 <= now + 1e-9);

    drop(second);
    assert_eq!(context.service().service_ports().v4, 0);
    // The tasks end soon, and with them the port is free again.
    while UdpSocket::bind((Ipv4Addr::LOCALHOST, port)).is_err() {
        std::thread::yield_now();
    }
}

#[test]
fn junk_does_not_stop_the_service() {
    let config = private_config();
    let context = Context::new(config.clone());
    let announced = announce(&context, "u", "EEG");
    let port = announced.service_ports().v4;
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    for junk in [
        b"".as_slice(),
        b"\n\n\n",
        b"LSL:shortinfo",
        &vec![0xff; 60_000],
    ] {
        socket.send_to(junk, (Ipv4Addr::LOCALHOST, port)).unwrap();
    }
    let found = Context::new(config)
        .resolve_blocking(&Selector::all(), 1, PLENTY)
        .unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!(context.service().registry().counters.malformed, 1);
}

#[test]
fn dropping_a_search_frees_its_port() {
    let mut config = private_config();
    config.set("ports.IPv6", "disable").unwrap();
    let base = config.ports().base_port;
    let context = Context::new(config);
    let resolver =
        ContinuousResolver::in_context(&context, &Selector::all(), Timeout::Forever).unwrap();
    drop(resolver);
    while UdpSocket::bind((Ipv4Addr::LOCALHOST, base)).is_err() {
        std::thread::yield_now();
    }
    // A search whose caller lost interest half-way.
    let task = runtime::spawn({
        let context = context.clone();
        async move { context.resolve(&Selector::all(), 1, Timeout::Forever).await }
    })
    .unwrap();
    task.abort();
    while UdpSocket::bind((Ipv4Addr::LOCALHOST, base)).is_err() {
        std::thread::yield_now();
    }
}

#[test]
fn resolves_over_tcp_when_told_to() {
    use std::io::{Read, Write};
    // A port that answers the TCP form alone, in the range that resolvers ask.
    let server = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let mut config = private_config();
    config.set_ports(server.local_addr().unwrap().port(), 1);
    config.set("lab.ResolveOverTCP", "1").unwrap();
    let session = config.lab().session_id.clone();
    let serving = std::thread::spawn(move || {
        let (mut stream, _) = server.accept().unwrap();
        let expected = format!("LSL:shortinfo\r\nsession_id='{session}'\r\n");
        let mut request = vec![0; expected.len()];
        stream.read_exact(&mut request).unwrap();
        assert_eq!(request, expected.as_bytes());
        let mut info =
            StreamInfo::new("Tcp", "EEG", 2, 100.0, ChannelFormat::Int16, "src").unwrap();
        info.reset_uid("u");
        info.set_session_id(session);
        stream.write_all(&info.to_shortinfo_xml()).unwrap();
    });
    let found = Context::new(config)
        .resolve_blocking(&Selector::all(), 1, PLENTY)
        .unwrap();
    serving.join().unwrap();
    assert_eq!(
        (found[0].name(), found[0].v4_address()),
        ("Tcp".into(), "127.0.0.1".into())
    );
}

#[test]
fn selectors_say_what_liblsl_says_and_quote_what_it_cannot() {
    let check = |selector: Result<Selector>, expected: &str| {
        let query = selector.unwrap().to_query("default").unwrap();
        assert_eq!(String::from_utf8(query).unwrap(), expected);
    };
    check(Ok(Selector::all()), "session_id='default'");
    check(
        Selector::property("name", "Foo"),
        "session_id='default' and name='Foo'",
    );
    check(
        Selector::property("name", "a'b"),
        "session_id='default' and name=\"a'b\"",
    );
    check(
        Selector::predicate("starts-with(name,'A') and count(//channel)=0"),
        "session_id='default' and starts-with(name,'A') and count(//channel)=0",
    );
    assert!(Selector::predicate("name='").is_err());
    assert!(Selector::property("na me)", "x").is_err());
}

/// What two releases of liblsl answer to 267 predicates, most of them malformed:
/// `crates/lsl-interop/python/predicates.py` asked them.
#[test]
fn predicates_match_what_liblsl_matches() {
    let answers = include_str!("../../../lsl-interop/python/predicates.json");
    let answers: Value = serde_json::from_str(answers).unwrap();
    let (mut registry, mut evaluator) =
        (Registry::new(SourcePolicy::default()), Evaluator::new(100));
    let mut queue = AnswerQueue::default();
    let format = ChannelFormat::Float32;
    let mut info = StreamInfo::new("name", "type", 1, 100.0, format, "source").unwrap();
    info.set_session_id("default");
    registry.add(AnnouncedStream::open(&info));
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
                    return_port: 40_000,
                    id: b"1",
                }
                .to_bytes();
                let now = f64::from(number);
                let from = (Ipv4Addr::LOCALHOST, 1234).into();
                let policy = || Policy::Off;
                let arrival = Arrival::Service;
                match registry.handle_datagram(arrival, &datagram, from, policy, now) {
                    Answer::Query(query) => queue.push((), query, now),
                    answer => panic!("{answer:?}"),
                }
                let mut answers = 0;
                while let Some(at) = queue.poll_timeout(now) {
                    let poll = || queue.poll_transmit(&mut evaluator, Policy::Off, at);
                    answers += std::iter::from_fn(poll).count();
                }
                ["none", "found"][answers]
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

#[test]
fn hosts_that_drop_what_is_sent_do_not_keep_others_from_being_asked_over_tcp() {
    use std::io::{Read, Write};
    use std::net::SocketAddr;

    let mut config = private_config();
    let ports = config.ports().base_port..config.ports().base_port + 12;
    let deaf = (2..=13).map(|host| Ipv4Addr::new(127, 0, 0, host));
    let held: Vec<_> = deaf
        .clone()
        .flat_map(|host| {
            ports
                .clone()
                .map(move |port| SocketAddr::from((host, port)))
        })
        .map(crate::net::sockets::silent_listener)
        .collect();
    let live = Ipv4Addr::new(127, 0, 0, 14);
    let peers: Vec<_> = deaf.chain([live]).map(|host| host.to_string()).collect();
    config.set("lab.ResolveOverTCP", "1").unwrap();
    config
        .set("lab.KnownPeers", &format!("{{{}}}", peers.join(", ")))
        .unwrap();
    let listener = std::net::TcpListener::bind((live, ports.start)).unwrap();
    let mut info = StreamInfo::new("Fake", "EEG", 2, 100.0, ChannelFormat::Int16, "src").unwrap();
    info.reset_uid("over-tcp");
    info.set_session_id(config.lab().session_id.as_str());
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            let mut connection = connection.unwrap();
            let _ = connection.read(&mut [0; 2000]);
            let _ = connection.write_all(&info.to_shortinfo_xml());
        }
    });
    let context = Context::new(config);
    let found = context
        .resolve_blocking(&Selector::all(), 1, PLENTY)
        .unwrap();
    assert_eq!(found.len(), 1);
    drop(held);
}
