//! A relay between outlets and the programs that read them, over loopback. Spec: relay §3, §5.

#[path = "relay/devices.rs"]
mod devices;
#[path = "relay/faces.rs"]
mod faces;
#[path = "relay/history.rs"]
mod history;
#[path = "relay/past.rs"]
mod past;
#[path = "relay/rights.rs"]
mod rights;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use lsl_core::config::Config;
use lsl_core::secure::trust::TrustList;
use lsl_core::{
    ChannelFormat, Context, Error, History, Inlet, Outlet, Selector, StreamInfo, local_clock,
};
use lsl_proto::wire::directory::{Record, RecordParser};
use lsl_relay::config::Config as RelayConfig;
use lsl_relay::shell::{Relay, StartError};

const SOON: Duration = Duration::from_secs(20);

fn context() -> Context {
    context_with(&[])
}

/// A context that meets no other, of no process: relays look for the streams of all sessions.
fn context_with(settings: &[(&str, &str)]) -> Context {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let process = u16::try_from(std::process::id() % 83).expect("small");
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let base = 18_000 + (process * 7 + number) % 600 * 20;
    let mut config = Config::loopback();
    config.set_ports(base, 19);
    config.set_multicast_port(base + 19);
    config.set("ports.IPv6", "disable").expect("a setting");
    for (key, value) in settings {
        config.set(key, value).expect("a setting");
    }
    Context::new(config)
}

fn relay(context: &Context, text: &str) -> Relay {
    relay_at(context, 0, text)
}

/// A relay that dials this one.
fn linked(context: &Context, to: &Relay) -> Relay {
    let address = to.addresses()[0];
    relay_at(context, 0, &format!("[relay]\nconnect = [\"{address}\"]\n"))
}

fn relay_at(context: &Context, port: u16, text: &str) -> Relay {
    let mut config = RelayConfig::parse(text, &TrustList::default()).expect("a configuration");
    config.listen = vec![(Ipv4Addr::LOCALHOST, port).into()];
    let until = local_clock() + SOON.as_secs_f64();
    loop {
        match Relay::start(context, &config, "hub", Vec::new()) {
            // The one before listens for a moment after its end.
            Err(StartError::Relay(Error::Io { .. })) if local_clock() < until => {
                std::thread::sleep(Duration::from_millis(5));
            }
            started => return started.expect("a relay"),
        }
    }
}

/// A type that no other process has: relays look for the streams of all sessions.
fn own(kind: &str) -> String {
    format!("{kind}-{}", std::process::id())
}

fn outlet(context: &Context, kind: &str, name: &str) -> Outlet {
    let info = StreamInfo::new(name, own(kind), 1, 0.0, ChannelFormat::Int32, name);
    let info = info.expect("an info");
    Outlet::builder(info)
        .context(context)
        .open()
        .expect("an outlet")
}

fn dial(relay: &Relay) -> TcpStream {
    let stream = TcpStream::connect(relay.addresses()[0]).expect("a connection");
    stream.set_read_timeout(Some(SOON)).expect("a timeout");
    stream
}

/// What the directory says to one who asks once for streams of this type: uids and documents.
fn listed(relay: &Relay, kind: &str) -> Vec<(String, String)> {
    told(relay, "once", kind)
}

fn told(relay: &Relay, terms: &str, kind: &str) -> Vec<(String, String)> {
    let mut stream = dial(relay);
    let request = format!("LSL:watch/1 {terms}\r\ntype='{}'\r\n", own(kind));
    stream.write_all(request.as_bytes()).expect("sent");
    let (mut bytes, mut parser) = (Vec::new(), RecordParser::new());
    stream.read_to_end(&mut bytes).expect("an answer");
    let (mut rest, mut found, mut is_complete) = (bytes.as_slice(), Vec::new(), false);
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
    while let Some(record) = parser.next(&mut rest).expect("records") {
        match record {
            Record::Stream { uid, xml } => found.push((text(uid), text(xml))),
            Record::Known => is_complete = true,
            other => panic!("{other:?}"),
        }
    }
    assert!(is_complete);
    found
}

fn wait_for(relay: &Relay, kind: &str, streams: usize) -> Vec<(String, String)> {
    let until = local_clock() + SOON.as_secs_f64();
    loop {
        let found = listed(relay, kind);
        if found.len() == streams {
            return found;
        }
        assert!(local_clock() < until, "{found:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// An info that leads to the relay, as programs that asked it have one.
fn through(relay: &Relay, document: &str) -> StreamInfo {
    let mut info = StreamInfo::from_xml(document.as_bytes()).expect("a document");
    info.fill_v4_address("127.0.0.1");
    // Nobody answers there.
    info.set_v4_ports(relay.addresses()[0].port(), 9);
    info
}

#[test]
fn streams_of_the_network_are_listed_and_read_through_one_port() {
    let context = context();
    let outlets = ["one", "two"].map(|name| outlet(&context, "read", name));
    let relay = relay(&context, "");
    let found = wait_for(&relay, "read", 2);
    let inlets = outlets.each_ref().map(|outlet| {
        let uid = outlet.info().uid().into_owned();
        let (_, document) = found.iter().find(|(it, _)| *it == uid).expect("listed");
        assert!(document.contains("<lsl_relay v=\"1\""), "{document}");
        let builder = Inlet::builder(&through(&relay, document)).context(&context);
        let inlet = builder.history(History::Oldest).create().expect("an inlet");
        inlet.blocking().open(SOON).expect("open");
        inlet
    });
    for value in 0..50 {
        for (outlet, more) in outlets.iter().zip([0, 1000]) {
            outlet
                .push_at(&[value + more], f64::from(value + 1))
                .expect("pushed");
        }
    }
    outlets[0].skip(7).expect("skipped");
    outlets[0].push_at(&[57], 57.0).expect("pushed");
    for (inlet, more) in inlets.iter().zip([0, 1000]) {
        for value in 0..50 {
            let mut sample = [0];
            let stamp = inlet.blocking().pull(&mut sample, SOON).expect("a sample");
            assert_eq!(
                (sample[0], stamp),
                (value + more, Some(f64::from(value + 1)))
            );
        }
    }
    let mut sample = [0];
    inlets[0]
        .blocking()
        .pull(&mut sample, SOON)
        .expect("a sample");
    assert_eq!((sample[0], inlets[0].stats().lost_exact), (57, 7));
    // Numbers and numbering are the outlet's own.
    let position = inlets[0].position().expect("numbers");
    let uid = outlets[0].info().uid().into_owned();
    assert_eq!((position.next, position.generation.to_string()), (58, uid));
    let status = relay.status();
    let streams = status["streams"].as_array().expect("streams");
    let mut ours = streams.iter().filter(|it| it["type"] == own("read"));
    let flowing = ours.all(|it| it["state"] == "flowing" && it["readers"] == 1);
    assert!(flowing, "{status}");
    let [one, _] = outlets;
    drop((inlets, one));
    wait_for(&relay, "read", 1);
}

#[test]
fn a_peer_has_sixteen_watches() {
    let relay = relay(&context(), "");
    let watch = || {
        let mut stream = dial(&relay);
        stream.write_all(b"LSL:watch/1\r\n\r\n").expect("sent");
        let mut said = [0; 3];
        stream.read_exact(&mut said).expect("an answer");
        (stream, said)
    };
    let mut watches: Vec<_> = (0..16).map(|_| watch().0).collect();
    let (mut refused, said) = watch();
    let mut rest = String::new();
    refused.read_to_string(&mut rest).expect("closed");
    assert_eq!(
        (&said, rest.as_str()),
        (b"LSL", "/110 503 Relay limit reached, try again")
    );
    watches.pop();
    let until = local_clock() + SOON.as_secs_f64();
    while watch().1 == *b"LSL" {
        assert!(local_clock() < until);
    }
}

#[test]
fn monitoring_reads_the_numbers_by_http() {
    let context = context();
    let open = outlet;
    let outlet = open(&context, "counted", "secret");
    let relay = |text: &str| {
        let metrics = format!("[metrics]\nlisten = \"127.0.0.1:0\"\n{text}");
        relay(&context, &metrics)
    };
    let ask = |relay: &Relay, request: &str| {
        let address = relay.metrics_address().expect("metrics");
        let mut stream = TcpStream::connect(address).expect("a connection");
        stream.set_read_timeout(Some(SOON)).expect("a timeout");
        stream.write_all(request.as_bytes()).expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        answer
    };
    let get = |relay: &Relay, path: &str| {
        let answer = ask(
            relay,
            &format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"),
        );
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        let (_, body) = answer.split_once("\r\n\r\n").expect("a body");
        body.to_owned()
    };
    let first = relay("");
    wait_for(&first, "counted", 1);
    let uid = outlet.info().uid().into_owned();
    let (mut reader, _) = read(&first, &uid);
    for value in 0..50 {
        outlet.push(&[value]).expect("pushed");
    }
    let until = local_clock() + SOON.as_secs_f64();
    let is_told = |lines: &[&str]| loop {
        let page = get(&first, "/metrics");
        if lines.iter().all(|line| page.lines().any(|it| it == *line)) {
            return page;
        }
        assert!(local_clock() < until, "{lines:?}\n{page}");
        std::thread::sleep(Duration::from_millis(20));
    };
    let page = is_told(&[
        "lslrelay_samples_total{dir=\"in\"} 50",
        "lslrelay_samples_total{dir=\"out\"} 50",
        "lslrelay_readers 1",
        "lslrelay_streams{state=\"flowing\"} 1",
    ]);
    assert!(!page.contains("lslrelay_hop_seconds_count 0"), "{page}");
    reader.read_exact(&mut [0; 50]).expect("samples");
    // Who left is counted still, as is what is gone.
    drop((reader, outlet));
    is_told(&[
        "lslrelay_samples_total{dir=\"out\"} 50",
        "lslrelay_readers 0",
        "lslrelay_streams{state=\"flowing\"} 0",
        "lslrelay_streams{state=\"linger\"} 0",
    ]);
    let [_named, _other] = ["secret", "other"].map(|name| open(&context, "counted", name));
    assert_eq!(get(&first, "/healthz"), "ok\n");
    let status = |relay: &Relay| -> serde_json::Value {
        serde_json::from_str(&get(relay, "/status.json")).expect("JSON")
    };
    wait_for(&first, "counted", 2);
    let nameless = status(&first);
    assert_eq!(nameless["totals"]["samples_in"], 50);
    assert!(!nameless.to_string().contains("secret"), "{nameless}");
    for (request, answer) in [
        ("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", "404"),
        ("GET /healthz HTTP/1.1\r\nHost: evil.example\r\n\r\n", "403"),
        ("PUT /healthz HTTP/1.1\r\nHost: a\r\n\r\nbody", "405"),
        ("LSL:relay-status/1\r\n\r\n", "400"),
    ] {
        let said = ask(&first, request);
        assert!(said.starts_with(&format!("HTTP/1.1 {answer} ")), "{said}");
    }
    drop(first);
    let named = relay("labels = true\n");
    wait_for(&named, "counted", 2);
    assert!(status(&named).to_string().contains("secret"));
    let page = get(&named, "/metrics");
    assert!(
        page.contains("lslrelay_stream_readers{stream=\"secret\",uid="),
        "{page}"
    );
}

/// Asks for a feed, and reads the first bytes of the answer.
fn read(relay: &Relay, uid: &str) -> (TcpStream, String) {
    let mut stream = dial(relay);
    let request = format!("LSL:streamfeed/110 {uid}\r\nMax-Buffer-Length: 360\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("sent");
    let mut status = [0; 14];
    stream.read_exact(&mut status).expect("an answer");
    (stream, String::from_utf8_lossy(&status).into_owned())
}

/// Waits until a reader of a stream is closed. Returns how long it took in seconds.
fn until_closed(mut stream: TcpStream) -> f64 {
    let began = local_clock();
    let mut rest = [0; 4096];
    while stream.read(&mut rest).is_ok_and(|length| length > 0) {}
    local_clock() - began
}

#[test]
fn a_reload_hides_streams_and_ends_their_feeds() {
    let context = context();
    let outlets = ["open", "hidden"].map(|name| outlet(&context, "reloaded", name));
    let mut relay = relay(&context, "");
    wait_for(&relay, "reloaded", 2);
    let uids = outlets.each_ref().map(|it| it.info().uid().into_owned());
    let [(open, granted), (hidden, _)] = uids.each_ref().map(|uid| read(&relay, uid));
    assert_eq!(granted, "LSL/110 200 OK");
    let rules = "[[rule]]\nmatch = \"name='hidden'\"\nreaders = []\n";
    let mut rules = RelayConfig::parse(rules, &TrustList::default()).expect("rules");
    rules.limits.clients = 1;
    relay.reload(&rules);
    assert!(until_closed(hidden) < 5.0);
    // One client at a time from now on, and that place is taken.
    let (_, refused) = read(&relay, &uids[0]);
    assert_eq!(refused, "LSL/110 503 Re");
    outlets[0].push_at(&[7], 7.0).expect("pushed");
    (&open).read_exact(&mut [0; 13]).expect("it goes on");
    drop(open);
    rules.limits.clients = 8;
    relay.reload(&rules);
    let found = wait_for(&relay, "reloaded", 1);
    assert_eq!(found[0].0, uids[0]);
    relay.reload(&RelayConfig::parse("", &TrustList::default()).expect("no rules"));
    wait_for(&relay, "reloaded", 2);
}

#[test]
fn what_a_rule_hides_is_not_there() {
    let context = context();
    let outlets = ["open", "hidden"].map(|name| outlet(&context, "ruled", name));
    let rules = "[[rule]]\nmatch = \"name='hidden'\"\nreaders = []\n";
    let relay = relay(&context, rules);
    let found = wait_for(&relay, "ruled", 1);
    assert_eq!(found[0].0, outlets[0].info().uid());
    // The relay has both by now, or will have: nobody can tell.
    let uid = outlets[1].info().uid().into_owned();
    for request in [
        format!("LSL:fullinfo {uid}\r\n"),
        format!("LSL:streamfeed/110 {uid}\r\nMax-Buffer-Length: 360\r\n\r\n"),
        "LSL:fullinfo nobody\r\n".to_owned(),
    ] {
        let mut stream = dial(&relay);
        stream.write_all(request.as_bytes()).expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        assert!(
            answer.starts_with("LSL/110 404 Not found"),
            "{request} {answer}"
        );
    }
}

#[test]
fn a_reader_misses_nothing_while_the_relay_is_started_again() {
    let context = context();
    let outlet = outlet(&context, "again", "kept");
    let first = relay(&context, "");
    wait_for(&first, "again", 1);
    let port = first.addresses()[0].port();
    let mut relay = Some(first);
    // It finds nothing but by the relay.
    let far = context_with(&[("lab.Relay", &format!("{{127.0.0.1:{port}}}"))]);
    let selector = Selector::property("name", "kept").expect("a selector");
    let found = far.resolve_blocking(&selector, 1, SOON).expect("a search");
    let inlet = Inlet::builder(&found[0]).context(&far).create();
    let inlet = inlet.expect("an inlet");
    inlet.blocking().open(SOON).expect("open");
    let push = |values: std::ops::Range<i32>| {
        for value in values {
            let stamp = f64::from(value + 1);
            outlet.push_at(&[value], stamp).expect("pushed");
        }
    };
    let expect = |values: std::ops::Range<i32>| {
        for value in values {
            let mut sample = [-1];
            let stamp = inlet.blocking().pull(&mut sample, SOON).expect("a sample");
            assert_eq!((sample[0], stamp), (value, Some(f64::from(value + 1))));
        }
    };
    push(0..50);
    expect(0..50);
    for round in 1..3 {
        push(50 * round..50 * round + 20);
        drop(relay.take());
        push(50 * round + 20..50 * round + 40);
        relay = Some(relay_at(&context, port, ""));
        push(50 * round + 40..50 * round + 50);
        expect(50 * round..50 * round + 50);
    }
    let stats = inlet.stats();
    assert_eq!(
        (stats.lost_exact, stats.lost_unknown, stats.generations),
        (0, 0, 1)
    );
}

fn push(outlet: &Outlet, values: std::ops::Range<i32>) {
    for value in values {
        let stamp = f64::from(value + 1);
        outlet.push_at(&[value], stamp).expect("pushed");
    }
}

fn expect(inlet: &Inlet, values: std::ops::Range<i32>) {
    for value in values {
        let mut sample = [-1];
        let stamp = inlet.blocking().pull(&mut sample, SOON).expect("a sample");
        assert_eq!((sample[0], stamp), (value, Some(f64::from(value + 1))));
    }
}

#[test]
fn linked_relays_pass_streams_on_both_ways_and_lose_none_when_their_link_breaks() {
    // Three networks that see nothing of each other.
    let contexts = [context(), context(), context()];
    let names = ["first", "middle", "last"];
    let outlets = [0, 1, 2].map(|it| outlet(&contexts[it], "linked", names[it]));
    let middle = relay(&contexts[1], "");
    let mut ends = [&contexts[0], &contexts[2]].map(|it| Some(linked(it, &middle)));
    let uids = |relay: &Relay| wait_for(relay, "linked", 3).into_iter().map(|(uid, _)| uid);
    let expected: Vec<_> = uids(&middle).collect();
    for end in ends.iter().flatten() {
        assert!(uids(end).eq(expected.iter().cloned()));
    }
    let (first, last) = (ends[0].as_ref().expect("it"), ends[1].as_ref().expect("it"));
    // Two links lie between, and the numbers are the outlet's own.
    let document = |relay: &Relay, outlet: &Outlet| {
        let uid = outlet.info().uid().into_owned();
        let mut found = listed(relay, "linked").into_iter();
        found.find(|(it, _)| *it == uid).expect("listed").1
    };
    let far = document(last, &outlets[0]);
    assert_eq!(far.matches(&middle.id().to_string()).count(), 1, "{far}");
    let builder = Inlet::builder(&through(last, &far)).context(&contexts[2]);
    let inlet = builder.history(History::Oldest).create().expect("an inlet");
    inlet.blocking().open(SOON).expect("open");
    push(&outlets[0], 0..50);
    expect(&inlet, 0..50);
    let uid = outlets[0].info().uid().into_owned();
    let position = inlet.position().expect("numbers");
    assert_eq!((position.next, position.generation.to_string()), (50, uid));
    // And back.
    let builder = Inlet::builder(&through(first, &document(first, &outlets[2])));
    let back = builder.context(&contexts[0]).history(History::Oldest);
    let back = back.create().expect("an inlet");
    back.blocking().open(SOON).expect("open");
    push(&outlets[2], 0..50);
    expect(&back, 0..50);
    // The first relay goes, and comes back.
    push(&outlets[0], 50..60);
    drop(ends[0].take());
    push(&outlets[0], 60..70);
    let first = linked(&contexts[0], &middle);
    push(&outlets[0], 70..80);
    expect(&inlet, 50..80);
    let stats = inlet.stats();
    assert_eq!((stats.lost_exact, stats.lost_unknown), (0, 0));
    drop(first);
}
