//! Streams of River at a relay that reads or writes them.

use std::time::Duration;

use lsl_core::{ChannelFormat, Context, Inlet, Outlet, Selector, StreamInfo, local_clock};
use lsl_relay::engine::resp::Reply;
use lsl_relay::engine::river::{EntryId, entries};
use lsl_relay::shell::Relay;

use super::server::{Kind, Server};
use super::{Source, context, engine, relay, until, until_read, until_stored};

/// A stream whose samples are their indices, as another program would write it.
struct Stream<'a> {
    server: &'a Server,
    name: &'static str,
}

impl<'a> Stream<'a> {
    fn begin(server: &'a Server, name: &'static str) -> Self {
        let schema = r#"{"field_definitions":[{"name":"x","size":4,"type":"INT32"}]}"#;
        let (described, first) = (format!("{name}-metadata"), format!("{name}-0"));
        server.ask(&[
            &"HSET",
            &described,
            &"first_stream_key",
            &first,
            &"schema",
            &schema,
            &"initialized_at_us",
            &(local_clock() * 1e6).round().to_string(),
        ]);
        Self { server, name }
    }

    fn key(&self) -> String {
        format!("{}-0", self.name)
    }

    fn write(&self, indices: std::ops::Range<i32>) {
        for index in indices {
            let (val, i) = (index.to_le_bytes(), index.to_string());
            self.server
                .ask(&[&"XADD", &self.key(), &"*", &"val", &val, &"i", &i]);
        }
    }
}

/// Waits until the relay offers a stream of this name, and no other.
fn until_offered(relay: &Relay, expected: &[&str]) {
    let limit = local_clock() + 40.0;
    loop {
        let status = relay.status();
        let streams = status["streams"].as_array().unwrap();
        let mut names: Vec<_> = streams
            .iter()
            .filter_map(|it| it["name"].as_str())
            .collect();
        names.sort_unstable();
        if names == expected {
            break;
        }
        assert!(local_clock() < limit, "{status}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn read(context: &Context, name: &str) -> Inlet {
    let selector = Selector::property("name", name).unwrap();
    let found = context.resolve_blocking(&selector, 1, Duration::from_secs(20));
    let inlet = Inlet::builder(&found.unwrap()[0]).context(context).create();
    inlet.unwrap()
}

fn expect(inlet: &Inlet, indices: std::ops::Range<i32>) {
    let mut sample = [0];
    for index in indices {
        let pulled = inlet.blocking().pull(&mut sample, Duration::from_secs(20));
        pulled.unwrap().expect("in time");
        assert_eq!(sample, [index]);
    }
}

/// Streams are offered, whatever else is written to the keys of one.
pub(crate) fn others(kind: &Kind) {
    let server = Server::start(kind, &[]);
    let one = Stream::begin(&server, "one");
    one.write(0..1);
    let url = format!("redis://{}", server.address());
    let relay = relay(&context(), &url, "river = \".*\"");
    until_offered(&relay, &["one"]);
    server.ask(&[&"XADD", &one.key(), &"*", &"something", &"else"]);
    Stream::begin(&server, "two").write(0..1);
    until_offered(&relay, &["two"]);
}

/// No more streams are looked at than a relay may have.
pub(crate) fn limit(kind: &Kind) {
    let server = Server::start(kind, &[]);
    for name in ["1", "2", "3", "4", "5", "6"] {
        Stream::begin(&server, name).write(0..1);
    }
    let url = format!("redis://{}", server.address());
    let relay = relay(&context(), &url, "river = \".*\"\n[limits]\nstreams = 4");
    let limit = local_clock() + 40.0;
    // Half of the places are for others.
    while relay.status()["totals"]["refused"]["streams"] != 4 {
        assert!(local_clock() < limit, "{}", relay.status());
        std::thread::sleep(Duration::from_millis(10));
    }
    let Reply::Bytes(said) = server.ask(&[&"INFO", &"commandstats"]) else {
        panic!("no statistics");
    };
    let said = String::from_utf8(said).unwrap();
    assert!(said.contains("cmdstat_hgetall:calls=4,"), "{said}");
}

/// Samples that a server lost and has again are passed on once, and a stream that begins anew is another one.
pub(crate) fn again(kind: &Kind) {
    let server = Server::start(kind, &[]);
    let stream = Stream::begin(&server, "one");
    stream.write(0..1);
    let url = format!("redis://{}", server.address());
    let context = context();
    let relay = relay(&context, &url, "river = \".*\"");
    until_offered(&relay, &["one"]);
    let inlet = read(&context, "one");
    inlet.blocking().open(Duration::from_secs(20)).unwrap();
    stream.write(1..50);
    expect(&inlet, 1..50);
    let last = server.ask(&[&"XREVRANGE", &stream.key(), &"+", &"-", &"COUNT", &"20"]);
    for entry in last.list().unwrap() {
        let id = entry.list().unwrap()[0].text().unwrap();
        assert_eq!(
            server.ask(&[&"XDEL", &stream.key(), &id]),
            Reply::Integer(1)
        );
    }
    stream.write(30..100);
    expect(&inlet, 50..100);
    server.ask(&[&"DEL", &stream.key()]);
    let stream = Stream::begin(&server, "one");
    let (mut sample, mut index) = ([0], 0);
    let soon = Duration::from_millis(100);
    while inlet.blocking().pull(&mut sample, soon).unwrap().is_none() {
        stream.write(index..index + 1);
        index += 1;
    }
    assert!(
        sample[0] < 100,
        "the number of the stream before: {sample:?}"
    );
}

/// A relay that stands by sees the end of what another one writes: nothing is begun anew for it.
pub(crate) fn standby(kind: &Kind) {
    let server = Server::start(kind, &[]);
    let url = format!("redis://{}", server.address());
    let context = context();
    let mut source = Source::new(&context, "standby");
    let first = relay(&context, &url, "layout = \"river\"");
    until_read(&first);
    source.push_many(20);
    until_stored(&first, &source);
    let second = relay(&context, &url, "layout = \"river\"");
    until_read(&second);
    until(&second, "it stands by", |it| it["standby"] == 1);
    drop(source);
    for relay in [&first, &second] {
        until(relay, "it is over", |it| it["streams"] == 0);
        assert_eq!(engine(relay)["lost"], 0);
    }
    assert_eq!(engine(&second)["stored"], 0);
    let names = server.ask(&[&"KEYS", &"*-metadata"]);
    let [name] = names.list().unwrap() else {
        panic!("{names:?}");
    };
    let key = name.text().unwrap().replace("-metadata", "-0");
    let end = server.ask(&[&"XREVRANGE", &key, &"+", &"-", &"COUNT", &"1"]);
    let end = entries(&end).unwrap().remove(0).kind;
    assert_eq!(end, lsl_relay::engine::river::Kind::Eof(19));
}

/// Keys that ended go when they are too old, and texts that have no place are counted as lost.
pub(crate) fn trims(kind: &Kind) {
    let server = Server::start(kind, &[]);
    let url = format!("redis://{}", server.address());
    let context = context();
    let info = StreamInfo::new("old", super::kind(), 1, 0.0, ChannelFormat::String, "old");
    let outlet = Outlet::builder(info.unwrap()).context(&context).open();
    let outlet = outlet.unwrap();
    let long = "x".repeat(70_000);
    let lines = "layout = \"river\"\nriver_trim = true\nmax_age = \"1s\"";
    let first = relay(&context, &url, lines);
    until_read(&first);
    for text in ["a", &long, "b"] {
        outlet.push(&[text]).unwrap();
    }
    until(&first, "two are stored", |it| {
        it["stored"] == 2 && it["lost"] == 1
    });
    let names = server.ask(&[&"KEYS", &"*-metadata"]);
    let described = names.list().unwrap()[0].text().unwrap().to_owned();
    let key = |number| described.replace("-metadata", &format!("-{number}"));
    // The first sample becomes eleven minutes older.
    let all = server.ask(&[&"XRANGE", &key(0), &"-", &"+"]);
    server.ask(&[&"DEL", &key(0)]);
    for (entry, older_ms) in all.list().unwrap().iter().zip([660_000, 0]) {
        let [id, fields] = entry.list().unwrap() else {
            panic!("{entry:?}");
        };
        let id = EntryId::parse(id.text().unwrap()).unwrap();
        let id = EntryId {
            ms: id.ms - older_ms,
            ..id
        };
        let (key, id) = (key(0), id.to_string());
        let mut parts: Vec<&dyn AsRef<[u8]>> = vec![&"XADD", &key, &id];
        let fields = fields.list().unwrap().iter();
        let fields: Vec<_> = fields.map(|it| it.bytes().unwrap()).collect();
        parts.extend(fields.iter().map(|it| it as &dyn AsRef<[u8]>));
        server.ask(&parts);
    }
    outlet.push(&["c"]).unwrap();
    until(&first, "three are stored", |it| it["stored"] == 3);
    drop(first);
    // It looks soon after it began.
    let second = relay(&context, &url, lines);
    let limit = local_clock() + 40.0;
    while server.ask(&[&"EXISTS", &key(0)]) != Reply::Integer(0) {
        assert!(local_clock() < limit);
        std::thread::sleep(Duration::from_millis(50));
    }
    let oldest = server.ask(&[&"HGET", &described, &"first_stream_key"]);
    assert_eq!(oldest.text(), Some(&*key(1)));
    assert_eq!(server.ask(&[&"XLEN", &key(1)]), Reply::Integer(1));
    outlet.push(&["d"]).unwrap();
    until(&second, "it goes on", |it| it["stored"] == 1);
    assert_eq!(engine(&second)["lost"], 0);
}
