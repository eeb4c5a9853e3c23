use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use lsl_proto::discovery::ways::{DirectWay, Medium};
use lsl_proto::inlet::Exchange;
use lsl_proto::inlet::recovery::{Endpoint, Failure, Flow};

use super::*;
use crate::ChannelFormat;
use crate::StreamInfo;
use crate::context::Context;
use crate::net::runtime;
use crate::net::sockets::{self, Family};

fn shared(context: &Context, info: StreamInfo) -> Arc<InletShared> {
    Arc::new(InletShared::new(
        context.clone(),
        info,
        1,
        0,
        (true, true),
        false,
    ))
}

/// Fails one attempt. Returns whether the next one is for another outlet or address.
async fn recover(shared: &InletShared) -> bool {
    shared.tell(Input::Wanted(Purpose::Feed));
    let gone = shared.next_attempt(Purpose::Feed).await;
    assert!(shared.failed(&gone, &Error::Protocol("gone".into())));
    shared.next_attempt(Purpose::Feed).await.moves > gone.moves
}

/// Fails so many attempts at once that the feed seems to be hopeless.
fn give_up_hope(shared: &InletShared) {
    let mut recovery = shared.source.recovery.lock();
    recovery.handle(Input::Wanted(Purpose::Feed), 0.0);
    while !recovery.is_hopeless() {
        let attempt = recovery.poll_connect(Purpose::Feed, 0.0).unwrap();
        recovery.handle(Input::Failed(attempt.id, Failure::Connection), 0.0);
        recovery.poll_action().unwrap();
        recovery.handle(Input::Found(vec![StreamInfo::clone(&attempt.info)]), 0.0);
        recovery.handle_timeout(&Flow::default(), 100.0);
    }
}

#[test]
#[cfg_attr(target_os = "macos", ignore = "127.0.0.2 is not of this host there")]
fn an_outlet_that_answers_by_another_way_too_has_not_moved() {
    let mut config = lsl_proto::config::Config::loopback();
    config.set_ports(48_500, 20);
    config.set_session_id("source-two-ways").unwrap();
    let context = Context::new(config);
    let described = StreamInfo::new("n", "t", 1, 1.0, ChannelFormat::Int8, "two-ways");
    let outlet = crate::Outlet::builder(described.unwrap())
        .context(&context)
        .open()
        .unwrap();
    // Found once by 127.0.0.2, while answers to searches come from 127.0.0.1.
    let mut found = outlet.info().clone();
    found.fill_v4_address("127.0.0.2");
    let recover = |info: StreamInfo| {
        let shared = shared(&context, info);
        let (sender, receiver) = std::sync::mpsc::channel();
        runtime::spawn(async move { sender.send(recover(&shared).await).unwrap() }).unwrap();
        receiver.recv_timeout(Duration::from_secs(20)).unwrap()
    };
    assert!(recover(found.clone()), "nobody is there");
    let address = ("127.0.0.2", outlet.info().v4_data_port());
    let way = std::net::TcpListener::bind(address).unwrap();
    let text = outlet.info().to_shortinfo_xml();
    std::thread::spawn(move || {
        let (mut stream, _) = way.accept().unwrap();
        let mut request = [0; 1024];
        let length = stream.read(&mut request).unwrap();
        assert!(request[..length].starts_with(b"LSL:shortinfo\r\nuid="));
        stream.write_all(&text).unwrap();
    });
    assert!(!recover(found));
}

fn lost(context: &Context, number: usize) -> Arc<InletShared> {
    let source_id = format!("lost-{number}");
    let lost = StreamInfo::new("n", "t", 1, 1.0, ChannelFormat::Int8, source_id);
    shared(context, lost.unwrap())
}

#[test]
fn a_search_ends_with_the_last_connection_that_waits_for_it() {
    let mut config = lsl_proto::config::Config::loopback();
    config.set_ports(48_430, 2);
    config.set_session_id("source-unwanted-search").unwrap();
    let context = Context::new(config);
    let lost = lost(&context, 0);
    // Not wanted, so that it waits and works for the others.
    let worker = Arc::clone(&lost);
    let working = async move { drop(worker.next_attempt(Purpose::FullInfo).await) };
    let _working = runtime::AbortOnDrop(runtime::spawn(working).unwrap());
    let until_searching = |searches: usize| {
        let deadline = local_clock() + 20.0;
        while context.lost().sharing() != searches {
            assert!(local_clock() < deadline, "not {searches}");
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    for _ in 0..2 {
        lost.tell(Input::Wanted(Purpose::Feed));
        let poll = |recovery: &mut Recovery| recovery.poll_connect(Purpose::Feed, local_clock());
        let gone = lost.source.recovery.update(poll).unwrap();
        assert!(lost.failed(&gone, &Error::Protocol("gone".into())));
        until_searching(1);
        lost.tell(Input::Done(Purpose::Feed));
        until_searching(0);
    }
}

#[test]
fn streams_that_are_lost_together_share_one_search() {
    // Where the searches look for outlets, and nobody answers.
    const FIRST_PORT: u16 = 48_590;
    const STREAMS: usize = 400;
    let somebody = std::net::UdpSocket::bind(("127.0.0.1", FIRST_PORT)).unwrap();
    let mut config = lsl_proto::config::Config::loopback();
    config.set_ports(FIRST_PORT, 2);
    config.set_session_id("source-many-lost").unwrap();
    let context = Context::new(config);
    // Before the first wave, however long it takes to lose them all.
    let started = local_clock();
    let tasks: Vec<_> = (0..STREAMS)
        .map(|number| {
            let lost = lost(&context, number);
            let searching = async move {
                recover(&lost).await;
            };
            runtime::AbortOnDrop(runtime::spawn(searching).unwrap())
        })
        .collect();
    somebody
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    let mut buffer = [0; 1500];
    let mut named = std::collections::HashSet::<Vec<u8>>::new();
    let mut for_all = 0_u32;
    while for_all < 6 {
        let length = somebody.recv(&mut buffer).expect("they are looked for");
        let lines = buffer[..length].split(|byte| *byte == b'\n');
        let query: Vec<u8> = lines.skip(1).take(1).flatten().copied().collect();
        if query.trim_ascii().is_empty() {
            for_all += 1;
        } else {
            named.insert(query);
        }
        // A wave asks a port at most twice.
        let passed = local_clock() - started;
        let waves = 2.0 + passed / 1.25;
        assert!(
            f64::from(for_all) <= 2.0 * waves,
            "{for_all} after {passed} s"
        );
    }
    // Four in each of the first waves, before most were lost.
    assert!(named.len() <= 12, "{}", named.len());
    assert_eq!(context.lost().sharing(), STREAMS);
    drop(tasks);
}

#[test]
fn all_streams_of_a_program_that_restarts_come_back() {
    const STREAMS: usize = 60;
    let mut config = lsl_proto::config::Config::loopback();
    config.set_ports(48_440, 20);
    config.set_session_id("source-restart").unwrap();
    let context = Context::new(config);
    let (sender, receiver) = std::sync::mpsc::channel();
    for number in 0..STREAMS {
        let (lost, sender) = (lost(&context, number), sender.clone());
        let searching = async move {
            let recovered = recover(&lost).await;
            let source_id = lost.source.info().source_id().into_owned();
            sender.send((recovered, source_id)).unwrap();
        };
        drop(runtime::spawn(searching).unwrap());
    }
    let open = |number| {
        let source_id = format!("lost-{number}");
        let info = StreamInfo::new("n", "t", 1, 1.0, ChannelFormat::Int8, source_id);
        let outlet = crate::Outlet::builder(info.unwrap()).context(&context);
        outlet.open().unwrap()
    };
    let _outlets: Vec<_> = (0..STREAMS).map(open).collect();
    let mut back = std::collections::HashSet::new();
    while back.len() < STREAMS {
        let (recovered, source_id) = receiver.recv_timeout(Duration::from_secs(20)).unwrap();
        assert!(recovered);
        back.insert(source_id);
    }
    assert_eq!(context.lost().sharing(), 0);
}

#[test]
#[cfg_attr(target_os = "macos", ignore = "127.0.0.2 is not of this host there")]
fn hundreds_of_streams_of_a_silent_host_keep_no_other_from_its_turn() {
    const LIMIT: Duration = Duration::from_mins(10);
    let mut config = lsl_proto::config::Config::loopback();
    config.set_ports(48_510, 8);
    config.set_session_id("source-silent-host").unwrap();
    let context = Context::new(config);
    let silent = std::net::TcpListener::bind("127.0.0.2:0").unwrap();
    let silent = silent.local_addr().unwrap();
    let outlet = crate::Outlet::builder(lost(&context, 0).info.clone()).context(&context);
    let outlet = outlet.open().unwrap();
    let answers = (Ipv4Addr::LOCALHOST, outlet.info().v4_data_port()).into();
    let (sender, receiver) = std::sync::mpsc::channel();
    let ask = |number: usize, peer: SocketAddr| {
        let (lost, sender) = (lost(&context, number), sender.clone());
        give_up_hope(&lost);
        let asking = async move {
            let source = &lost.source;
            let info = source.info();
            let request = b"LSL:fullinfo\r\n";
            let answer = source.exchange(&info, peer, request, 1 << 20, LIMIT).await;
            sender.send(answer.is_ok()).unwrap();
        };
        runtime::AbortOnDrop(runtime::spawn(asking).unwrap())
    };
    let _silent: Vec<_> = (1..300).map(|number| ask(number, silent)).collect();
    let _answers = ask(0, answers);
    assert_eq!(receiver.recv_timeout(Duration::from_mins(1)), Ok(true));
}

#[test]
fn an_address_that_does_not_answer_over_tcp_gives_way_to_the_other() {
    for heals in ["1", "0"] {
        gives_way_to_the_other(heals);
    }
}

fn gives_way_to_the_other(heals: &str) {
    let mut config = lsl_proto::config::Config::loopback();
    config.set("lab.SelfHealing", heals).unwrap();
    config.set_ports(48_420, 8);
    config.set_session_id("source-falls-over").unwrap();
    let context = Context::new(config);
    let described = StreamInfo::new("n", "t", 1, 1.0, ChannelFormat::Int8, "two-families");
    let outlet = crate::Outlet::builder(described.unwrap())
        .context(&context)
        .open()
        .unwrap();
    let there = outlet.info();
    if there.v6_data_port() == 0 {
        eprintln!("no IPv6 on this host: nothing to fall over to");
        return;
    }
    let try_with = |deaf: Family| {
        let held = sockets::silent_listener((deaf.loopback(), 0).into());
        let place = held[0].local_addr().unwrap().as_socket();
        let port = place.unwrap().port();
        let mut info = there.clone();
        info.fill_v4_address("127.0.0.1");
        info.fill_v6_address("::1");
        match deaf {
            Family::V4 => info.set_v4_ports(port, there.v4_service_port()),
            Family::V6 => info.set_v6_ports(port, there.v6_service_port()),
        }
        let shared = shared(&context, info.clone());
        let source = &shared.source;
        let mut other = source.recovery.lock().endpoint().unwrap();
        if Family::of(other.data.ip()) != deaf {
            other = source.recovery.lock().endpoints(&info, other.data, &[])[1];
        }
        source.recovery.lock().use_endpoint(other);
        let (sender, receiver) = std::sync::mpsc::channel();
        let dialling = async move {
            let source = &shared.source;
            let from = source.recovery.lock().endpoint().unwrap();
            let limit = Duration::from_mins(1);
            let exchange = || Exchange::reply(b"LSL:fullinfo\r\n", 1 << 20);
            let dialled = source.dial(Purpose::FullInfo, &info, from.data, exchange, limit);
            let dialled = dialled.await.map(drop);
            let family = |endpoint: Endpoint| Family::of(endpoint.data.ip());
            let to = source.recovery.lock().endpoint().map(family);
            sender.send((family(from), dialled, to)).unwrap();
        };
        drop(runtime::spawn(dialling).unwrap());
        // Without a way out the limit would pass.
        let limit = Duration::from_secs(30);
        let (from, dialled, to) = receiver.recv_timeout(limit).unwrap();
        assert_eq!(from, deaf);
        dialled.unwrap();
        assert_ne!(to, Some(deaf));
        drop(held);
    };
    try_with(Family::V4);
    try_with(Family::V6);
}

#[test]
#[cfg_attr(target_os = "macos", ignore = "127.0.0.2 is not of this host there")]
fn an_outlet_is_reached_where_it_answered_too() {
    let context = Context::new(lsl_proto::config::Config::loopback());
    let held = sockets::silent_listener((Ipv4Addr::LOCALHOST, 0).into());
    let port = held[0].local_addr().unwrap().as_socket().unwrap().port();
    let there = SocketAddr::from(([127, 0, 0, 2], port));
    let listener = std::net::TcpListener::bind(there).unwrap();
    let mut info = StreamInfo::new("n", "t", 1, 1.0, ChannelFormat::Int8, "ways").unwrap();
    info.reset_uid("ways");
    info.set_v4_ports(port, port);
    info.fill_v4_address("127.0.0.1");
    let way = DirectWay {
        host: SocketAddr::new(there.ip(), 0),
        by: Medium::Tcp,
        round_trip_secs: 0.1,
    };
    context.known_hosts().answered(b"ways", way);
    let shared = shared(&context, info.clone());
    let (sender, receiver) = std::sync::mpsc::channel();
    let (sent, forgotten) = std::sync::mpsc::channel();
    let dialling = async move {
        let source = &shared.source;
        let attempt = source.recovery.update(|recovery| {
            recovery.handle(Input::Wanted(Purpose::FullInfo), 0.0);
            recovery.poll_connect(Purpose::FullInfo, 0.0).unwrap()
        });
        let from = attempt.endpoint.unwrap();
        let exchange = || Exchange::reply(b"LSL:fullinfo\r\n", 1 << 20);
        let dial = |limit| source.dial(Purpose::FullInfo, &info, from.data, exchange, limit);
        let dialled = dial(Duration::from_mins(1)).await;
        let to = source.recovery.lock().endpoint().unwrap();
        let peer = dialled.map(|connection| connection.peer());
        sender.send((peer.unwrap(), to.data)).unwrap();
        // It was somebody else, and is neither tried again at once nor remembered.
        let failed = Input::Failed(attempt.id, Failure::Connection);
        source.recovery.lock().handle(failed, 0.0);
        let again = dial(Duration::from_millis(50)).await;
        let known = context.known_hosts().ways_to(b"ways");
        sent.send((again.is_err(), known.len())).unwrap();
    };
    drop(runtime::spawn(dialling).unwrap());
    let (sender, requests) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = String::new();
        stream.read_to_string(&mut request).unwrap();
        sender.send(request).unwrap();
    });
    let limit = Duration::from_secs(30);
    let request = requests.recv_timeout(limit).unwrap();
    assert_eq!(request, "LSL:fullinfo\r\n");
    let ended = receiver.recv_timeout(limit).unwrap();
    assert_eq!(ended, (there, there));
    assert_eq!(forgotten.recv_timeout(limit).unwrap(), (true, 0));
    drop(held);
}

#[test]
fn an_outlet_that_answers_where_it_was_is_not_looked_for() {
    let mut config = lsl_proto::config::Config::loopback();
    config.set_ports(48_560, 20);
    config.set_session_id("source-in-place").unwrap();
    let context = Context::new(config);
    let described = StreamInfo::new("n", "t", 1, 1.0, ChannelFormat::Int8, "in-place");
    let outlet = crate::Outlet::builder(described.unwrap())
        .context(&context)
        .open()
        .unwrap();
    let mut known = outlet.info().clone();
    known.fill_v4_address("127.0.0.1");
    let answers = |info: &StreamInfo| {
        let shared = shared(&context, info.clone());
        let (sender, receiver) = std::sync::mpsc::channel();
        let asking = async move { shared.source.asked_in_place().await.is_some() };
        runtime::spawn(async move { sender.send(asking.await).unwrap() }).unwrap();
        receiver.recv_timeout(Duration::from_secs(20)).unwrap()
    };
    assert!(answers(&known));
    let mut other = known.clone();
    other.reset_uid("another");
    assert!(!answers(&other), "its successor took its port");
    drop(outlet);
    assert!(!answers(&known));
}

/// Under `required`, with the key of both ends.
fn encrypted(name: &str) -> Context {
    encrypted_as(name, 5, &[])
}

/// The same with a key of its own, trusting those of others.
fn encrypted_as(name: &str, seed: u8, trusts: &[u8]) -> Context {
    use lsl_secure::trust::{Peer, TrustList, TrustedRole};
    use lsl_secure::{Policy, SecretKey, Security, config::Settings};

    let mut config = lsl_proto::config::Config::loopback();
    config.set_ports(48_530, 20);
    config.set_session_id(name).unwrap();
    let peers = trusts.iter().map(|seed| Peer {
        name: format!("key-{seed}"),
        key: SecretKey::from_seed(&[*seed; 32]).public(),
        role: TrustedRole::Both,
        not_after: None,
        from: Vec::new(),
        streams: Vec::new(),
    });
    let trust = TrustList::from_peers(peers.collect()).unwrap();
    let key = SecretKey::from_seed(&[seed; 32]);
    let settings = Settings::new(Policy::Required);
    let security = Security::from_parts(settings, key, trust).unwrap();
    Context::with_security(config, Arc::new(security))
}

#[test]
fn an_inlet_leaves_a_successor_that_it_must_refuse_when_the_outlet_returns() {
    const NAME: &str = "source-refused-successor";
    let [reader, spare] = [(5, 6), (6, 5)].map(|(own, other)| encrypted_as(NAME, own, &[other]));
    let open = |context: &Context| {
        let info = StreamInfo::new("n", "t", 1, 1.0, ChannelFormat::Int8, NAME).unwrap();
        let outlet = crate::Outlet::builder(info).context(context);
        outlet.open().unwrap()
    };
    let until = |what: &str, mut holds: Box<dyn FnMut() -> bool + '_>| {
        let deadline = local_clock() + 40.0;
        while !holds() {
            assert!(local_clock() < deadline, "{what}");
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    let first = open(&reader);
    let mut found = describe_as_found(&first);
    found.fill_v4_address("127.0.0.1");
    let history = crate::PeerHistory::pinned();
    let inlet = crate::Inlet::builder(&found).context(&reader);
    let inlet = inlet.peer_history(&history).create().unwrap();
    inlet.blocking().open(Duration::from_secs(20)).unwrap();
    assert!(history.fingerprint().is_some());
    drop(first);
    let successor = open(&spare);
    let uid = successor.info().uid().into_owned();
    let is_refused = || inlet.present_info().uid() == uid && !history.key_changes().is_empty();
    until("the successor is refused", Box::new(is_refused));

    let back = open(&reader);
    let reads = || {
        back.push(&[7_i8]).unwrap();
        inlet.try_pull(&mut [0_i8]).unwrap().is_some()
    };
    until("the outlet that returned is read", Box::new(reads));
    assert_eq!(inlet.present_info().uid(), back.info().uid());
}

#[test]
fn a_lie_that_was_believed_once_is_not_believed_for_ever() {
    let context = encrypted("source-one-lie");
    let described = StreamInfo::new("n", "t", 1, 1.0, ChannelFormat::Int8, "one-lie").unwrap();
    let outlet = crate::Outlet::builder(described.clone())
        .context(&context)
        .open()
        .unwrap();
    let mut truth = describe_as_found(&outlet);
    truth.fill_v4_address("127.0.0.1");
    let mut lie = truth.clone();
    lie.set_hostname("elsewhere");
    let shared = shared(&context, described);
    // As if it had been adopted in place of a lost outlet.
    {
        let mut recovery = shared.source.recovery.lock();
        recovery.handle(Input::Wanted(Purpose::Feed), 0.0);
        let attempt = recovery.poll_connect(Purpose::Feed, 0.0).unwrap();
        recovery.handle(Input::Failed(attempt.id, Failure::Connection), 0.0);
        recovery.poll_action().unwrap();
        recovery.handle(Input::Found(vec![lie]), 0.0);
    }
    let recover = || {
        let (sender, receiver) = std::sync::mpsc::channel();
        let shared = Arc::clone(&shared);
        runtime::spawn(async move { sender.send(recover(&shared).await).unwrap() }).unwrap();
        receiver.recv_timeout(Duration::from_secs(20)).unwrap()
    };
    assert!(recover());
    let present = shared.source.info();
    assert_eq!(present.hostname_bytes(), truth.hostname_bytes());
    assert!(!recover());
}

fn describe_as_found(outlet: &crate::Outlet) -> StreamInfo {
    StreamInfo::from_xml(&outlet.info().to_shortinfo_xml()).unwrap()
}

#[test]
fn a_feed_is_dialled_again_at_once_unless_that_takes_long_or_was_refused() {
    let io = |kind: io::ErrorKind| Error::io("connection", kind.into());
    let security = || Error::Security("no".into());
    for (error, was_cut, expected) in [
        (io(io::ErrorKind::ConnectionReset), false, true),
        (io(io::ErrorKind::ConnectionRefused), false, true),
        (io(io::ErrorKind::TimedOut), false, false),
        (
            Error::Timeout {
                operation: "connect",
            },
            false,
            false,
        ),
        (Error::Protocol("closed".into()), false, true),
        (security(), false, false),
        (security(), true, true),
    ] {
        assert_eq!(is_cut(&error, was_cut), expected, "{error:?}");
    }
}
