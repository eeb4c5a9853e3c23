//! What is tested on each kind of server.

use std::time::Duration;

use lsl_core::{Error, History, Inlet, local_clock};
use lsl_relay::config::EngineConfig;
use lsl_relay::engine::resp::Reply;
use lsl_relay::engine::{Address, ErrorKind};
use lsl_relay::shell::{Relay, check_engine};

use super::proxy::Proxy;
use super::river;
use super::server::{Kind, Server, free_port};
use super::{
    SOON, Source, appends, certificates, check, context, context_with, engine, hand_over, relay,
    through, told, until, until_read, until_stored, write,
};

type Test = fn(&Kind);

pub(crate) const ALL: &[(&str, Test)] = &[
    ("cut_and_full", cut_and_full),
    ("failover_and_restart", failover_and_restart),
    ("two_relays", two_relays),
    ("trims", trims),
    ("past", past),
    ("refill", refill),
    ("rights", rights),
    ("policy", policy),
    ("tls", tls),
    ("river_of_others", river::others),
    ("river_again", river::again),
    ("river_limit", river::limit),
    ("river_standby", river::standby),
    ("river_trims", river::trims),
    ("replicas", replicas),
    ("trims_bytes", trims_bytes),
];

fn ok(reply: &Reply) {
    assert_eq!(reply.text(), Some("OK"), "{reply:?}");
}

/// Requests and replies that are lost with their connection, and no memory now and then.
fn cut_and_full(kind: &Kind) {
    let server = Server::start(kind, &[]);
    let proxy = Proxy::start(server.address());
    let context = context();
    let mut source = Source::new(&context, "cut");
    let relay = relay(&context, &format!("redis://{}", proxy.address()), "");
    until_read(&relay);
    proxy.set_cuts(10);
    let length = || {
        let keys = server.ask(&[&"KEYS", &"lsl:*:d"]);
        let key = keys.list().and_then(<[_]>::first).and_then(Reply::text);
        match key.map(|key| server.ask(&[&"XLEN", &key])) {
            Some(Reply::Integer(length)) => u64::try_from(length).unwrap(),
            _ => 0,
        }
    };
    let mut turn = 0;
    while length() < appends() {
        source.push_many(50);
        turn += 1;
        if turn % 20 == 5 {
            ok(&server.ask(&[&"CONFIG", &"SET", &"maxmemory", &"1"]));
            source.push_many(50);
            until(&relay, "it is full", |it| {
                it["errors"]["full"].as_u64() >= Some(1)
            });
            ok(&server.ask(&[&"CONFIG", &"SET", &"maxmemory", &"0"]));
        }
    }
    assert!(proxy.cut() > 0);
    proxy.set_cuts(0);
    until_stored(&relay, &source);
    // What a connection that was cut still had may come late, hence twice: readers skip it.
    check(&server, &source, true);
    println!(
        "engine: {} appends, {} cuts, {}",
        length(),
        proxy.cut(),
        engine(&relay)["errors"]
    );
    assert_eq!(engine(&relay)["lost"], 0);
}

/// A server that dies, whose replica lags; and one that comes back empty.
fn failover_and_restart(kind: &Kind) {
    let mut first = Server::start(kind, &[]);
    let mut second = Server::start(kind, &[]);
    let port = first.address().port().to_string();
    ok(&second.ask(&[&"REPLICAOF", &"127.0.0.1", &port]));
    let proxy = Proxy::start(first.address());
    let context = context();
    let mut source = Source::new(&context, "failover");
    let relay = relay(&context, &format!("redis://{}", proxy.address()), "");
    until_read(&relay);
    source.push_many(100);
    until_stored(&relay, &source);
    // From here on the replica has nothing of it.
    ok(&second.ask(&[&"REPLICAOF", &"NO", &"ONE"]));
    source.push_many(100);
    until_stored(&relay, &source);
    first.kill();
    proxy.set_target(second.address());
    source.push_many(100);
    until(&relay, "the second has it", |it| it["setbacks"] == 1);
    until_stored(&relay, &source);
    check(&second, &source, false);
    second.restart();
    source.push_many(10);
    until(&relay, "it was told again", |it| it["setbacks"] == 2);
    until_stored(&relay, &source);
    check(&second, &source, false);
    assert_eq!(engine(&relay)["lost"], 0);
}

/// Two relays that see the same stream: one writes it, and the other goes on when that ends.
fn two_relays(kind: &Kind) {
    let server = Server::start(kind, &[]);
    let (source, _relay) = hand_over(&format!("redis://{}", server.address()));
    check(&server, &source, false);
}

/// What memory has no more comes from the engine, also of a stream that is over, to readers of another relay.
fn past(kind: &Kind) {
    let server = Server::start(kind, &[]);
    let url = format!("redis://{}", server.address());
    // Of 120,000 samples it keeps a third.
    let context = context_with(&[("tuning.RetainTotalBytes", "1048576")]);
    let mut source = Source::new(&context, "past");
    let first = relay(&context, &url, "");
    until_read(&first);
    source.push_steadily(60_000, &first);
    std::thread::sleep(Duration::from_secs(2));
    let begun = local_clock();
    source.push_steadily(60_000, &first);
    until_stored(&first, &source);
    let [document] = &told(&first, "once")[..] else {
        panic!("{:?}", told(&first, "once"));
    };
    let reader = |relay: &Relay, document: &str, history| {
        let inlet = Inlet::builder(&through(relay, document)).context(&context);
        let inlet = inlet.recover(false).samples_first(true).history(history);
        inlet.create().unwrap()
    };
    let pull = |inlet: &Inlet| {
        let mut sample = [0];
        let pulled = inlet.blocking().pull(&mut sample, SOON);
        pulled.map(|stamp| (sample[0], stamp.unwrap()))
    };
    let reads = |inlet: &Inlet, numbers: std::ops::Range<i32>| {
        for n in numbers {
            assert_eq!(pull(inlet).unwrap().0, n);
        }
        let stats = inlet.stats();
        assert_eq!((stats.lost_exact, stats.lost_unknown), (0, 0));
    };
    reads(&reader(&first, document, History::Oldest), 0..120_000);
    reads(
        &reader(&first, document, History::Samples(100_000)),
        20_000..120_000,
    );
    let since = reader(
        &first,
        document,
        History::Seconds(local_clock() - begun + 0.5),
    );
    let begin = pull(&since).unwrap().0;
    assert!((50_000..=60_000).contains(&begin), "{begin}");
    reads(&since, begin + 1..120_000);
    drop((since, source.outlet));
    let second = relay(&context, &url, "");
    let limit = local_clock() + 40.0;
    let document = loop {
        if let [document] = &told(&second, "once past")[..]
            && document.contains(" ended=\"")
        {
            break document.clone();
        }
        assert!(local_clock() < limit, "{:?}", told(&second, "once past"));
        std::thread::sleep(Duration::from_millis(50));
    };
    let over = reader(&second, &document, History::Oldest);
    reads(&over, 0..120_000);
    assert!(matches!(pull(&over), Err(Error::Lost { .. })));
}

/// What a relay had in memory for an engine that takes nothing, and lost with it, comes from its history.
fn refill(kind: &Kind) {
    let server = Server::start(kind, &[]);
    let url = format!("redis://{}", server.address());
    let context = context_with(&[("tuning.RetainTotalBytes", "1048576")]);
    let folder = server.folder().join("history");
    let history = format!(
        "[history]\ndir = \"{}\"\nmin_free = \"1MiB\"",
        folder.display()
    );
    let mut source = Source::new(&context, "refill");
    let first = relay(&context, &url, &history);
    until_read(&first);
    source.push_steadily(10_000, &first);
    let until_kept = |end: u64| {
        let limit = local_clock() + 40.0;
        while first.status()["streams"][0]["history"]["to"].as_u64() < Some(end) {
            assert!(local_clock() < limit, "{}", first.status());
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    ok(&server.ask(&[&"CONFIG", &"SET", &"maxmemory", &"1"]));
    // More than its outlet retains, and all of it goes to disk.
    for _ in 0..10 {
        for _ in 0..10_000 {
            source.push();
        }
        until_kept(source.pushed() - 10_000);
    }
    until_kept(source.pushed());
    assert_eq!(engine(&first)["stored"], 10_000);
    drop(first);
    ok(&server.ask(&[&"CONFIG", &"SET", &"maxmemory", &"0"]));
    let second = relay(&context, &url, &history);
    until_read(&second);
    source.push();
    let rest = source.pushed() - 10_000;
    until(&second, "the rest is stored", |it| {
        it["stored"].as_u64() >= Some(rest)
    });
    assert_eq!(engine(&second)["lost"], 0);
    check(&server, &source, false);
}

/// Samples that are too old go, and what is left of a stream that ended goes by itself.
fn trims(kind: &Kind) {
    let server = Server::start(kind, &[]);
    let context = context();
    let mut source = Source::new(&context, "trims");
    let relay = relay(
        &context,
        &format!("redis://{}", server.address()),
        "max_age = \"1s\"",
    );
    until_read(&relay);
    source.push_many(100);
    until_stored(&relay, &source);
    let keys = server.ask(&[&"KEYS", &"lsl:*:d"]);
    let data = keys.list().unwrap()[0].text().unwrap().to_owned();
    let limit = local_clock() + 40.0;
    while server.ask(&[&"XLEN", &data]) != Reply::Integer(0) {
        assert!(local_clock() < limit);
        std::thread::sleep(Duration::from_millis(50));
    }
    // The last id is left, and the stream goes on.
    source.push_many(10);
    until_stored(&relay, &source);
    assert_eq!(
        (
            engine(&relay)["lost"].clone(),
            engine(&relay)["setbacks"].clone()
        ),
        (0.into(), 0.into())
    );
    let expires = |key: &str| matches!(server.ask(&[&"TTL", &key]), Reply::Integer(1..=61));
    assert!(expires(&data) && expires(&data.replace(":d", ":m")));
    let Reply::Bytes(_) = server.ask(&[&"HGET", &data.replace(":d", ":m"), &"xml"]) else {
        panic!("it is not described");
    };
}

/// Samples are stored when a replica has them, too: each once, however long there is none.
fn replicas(kind: &Kind) {
    let server = Server::start(kind, &[]);
    let port = server.address().port().to_string();
    let options = ["--replicaof", "127.0.0.1", &port];
    let mut replica = Server::start(kind, &options);
    let context = context();
    let mut source = Source::new(&context, "replicas");
    let url = format!("redis://{}", server.address());
    let relay = relay(&context, &url, "min_replicas = 1");
    until_read(&relay);
    source.push_many(50);
    until_stored(&relay, &source);
    check(&replica, &source, false);
    replica.kill();
    source.push_many(50);
    until(&relay, "it waits for a replica", |it| {
        it["error"] == "0 of 1 replicas have it" && it["state"] == "retry"
    });
    replica.restart();
    source.push_many(50);
    until_stored(&relay, &source);
    check(&replica, &source, false);
    check(&server, &source, false);
    assert_eq!(
        (
            engine(&relay)["lost"].clone(),
            engine(&relay)["setbacks"].clone()
        ),
        (0.into(), 0.into())
    );
}

/// The oldest samples go when there are too many bytes, not the newest.
fn trims_bytes(kind: &Kind) {
    let server = Server::start(kind, &[]);
    let context = context();
    let mut source = Source::new(&context, "bytes");
    let url = format!("redis://{}", server.address());
    let relay = relay(&context, &url, "max_size = \"16KiB\"");
    until_read(&relay);
    source.push_many(100);
    until_stored(&relay, &source);
    let keys = server.ask(&[&"KEYS", &"lsl:*:d"]);
    let data = keys.list().unwrap()[0].text().unwrap().to_owned();
    let ends = |from: &str| {
        let entry = server.ask(&[&from, &data, &"-", &"+", &"COUNT", &"1"]);
        let id = entry.list()?.first()?.list()?[0]
            .text()?
            .strip_suffix("-0")?;
        id.parse::<u64>().ok()
    };
    assert_eq!(ends("XRANGE"), Some(1));
    // About 100 bytes each.
    source.push_many(900);
    until_stored(&relay, &source);
    let limit = local_clock() + 40.0;
    while ends("XRANGE") < Some(300) {
        assert!(local_clock() < limit, "{:?}", ends("XRANGE"));
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(ends("XRANGE") < Some(950), "{:?}", ends("XRANGE"));
    source.push_many(10);
    until_stored(&relay, &source);
    assert_eq!(engine(&relay)["setbacks"], 0);
}

/// A user who may do what relay.md §12.1 lists can write; one who may not add is refused in words.
fn rights(kind: &Kind) {
    let server = Server::start(kind, &[]);
    let allowed = "~lsl:* +@stream +hset +hgetall +zadd +zrangebyscore +zremrangebyscore +set +get +expire +pexpire +wait +info \
                   +@connection";
    let user = |name: &str, rights: &str| {
        let mut command = vec!["ACL".to_owned(), "SETUSER".into(), name.into(), "on".into()];
        command.push(">secret".into());
        command.extend(rights.split_whitespace().map(str::to_owned));
        let parts: Vec<&dyn AsRef<[u8]>> = command.iter().map(|it| it as _).collect();
        ok(&server.ask(&parts));
    };
    user("lsl", allowed);
    user("reader", &format!("{allowed} -xadd"));
    let password = write(server.folder(), "password", "secret\n");
    let config = |name: &str| {
        let address = Address::parse(&format!("redis://{}", server.address())).unwrap();
        EngineConfig {
            user: Some(name.to_owned()),
            password_file: Some(password.clone().into()),
            ..EngineConfig::new(address)
        }
    };
    assert_eq!(check_engine(&config("lsl")), Ok(()));
    let denied = check_engine(&config("reader")).unwrap_err();
    assert_eq!(
        (denied.kind, &*denied.text),
        (ErrorKind::Denied, "the user may not XADD (NOPERM)")
    );
    let unknown = check_engine(&config("nobody")).unwrap_err();
    assert_eq!(unknown.kind, ErrorKind::Denied, "{unknown}");
    let lines = |name: &str| format!("user = \"{name}\"\npassword_file = \"{password}\"");
    let url = format!("redis://{}", server.address());
    let context = context();
    let mut source = Source::new(&context, "rights");
    let relay_of = |name: &str| relay(&context, &url, &lines(name));
    let refused = relay_of("reader");
    until_read(&refused);
    source.push_many(3);
    until(&refused, "it is refused", |it| it["state"] == "denied");
    assert_eq!(engine(&refused)["error"], "the user may not XADD (NOPERM)");
    drop(refused);
    let written = relay_of("lsl");
    until_read(&written);
    until(&written, "it is written", |it| it["state"] == "up");
    source.push_many(3);
    until(&written, "it is stored", |it| {
        it["stored"].as_u64() >= Some(3)
    });
    let status = written.status().to_string();
    assert!(
        !status.contains("secret") && !status.contains("password"),
        "{status}"
    );
    // A server repeats the arguments of a command that it does not know.
    let other = Server::start(kind, &["--rename-command", "AUTH", ""]);
    let address = Address::parse(&format!("redis://{}", other.address())).unwrap();
    let error = check_engine(&EngineConfig {
        address,
        ..config("lsl")
    });
    let text = error.unwrap_err().text;
    assert!(text.contains("AUTH") && !text.contains("secret"), "{text}");
}

/// A server that deletes what it has no room for is no engine.
fn policy(kind: &Kind) {
    let server = Server::start(kind, &["--maxmemory-policy", "allkeys-lru"]);
    let url = format!("redis://{}", server.address());
    let config = EngineConfig::new(Address::parse(&url).unwrap());
    let error = check_engine(&config).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Denied);
    assert_eq!(
        error.text,
        "it would delete history: maxmemory-policy is allkeys-lru; set noeviction"
    );
    ok(&server.ask(&[&"CONFIG", &"SET", &"maxmemory-policy", &"noeviction"]));
    assert_eq!(check_engine(&config), Ok(()));
}

/// Encrypted, and checked by the certificate of who signed the server's.
fn tls(kind: &Kind) {
    let folder = std::env::temp_dir().join(format!("lsl-engine-tls-{}", std::process::id()));
    let [certificate, own_key, ca] = certificates(&folder);
    let plain = Server::start(kind, &[]);
    let port = free_port();
    let encrypted = Server::start(
        kind,
        &[
            "--tls-port",
            &port.to_string(),
            "--tls-cert-file",
            &certificate,
            "--tls-key-file",
            &own_key,
            "--tls-ca-cert-file",
            &ca,
            "--tls-auth-clients",
            "no",
        ],
    );
    let at = |url: &str, ca_file: Option<&str>| {
        let config = EngineConfig {
            ca_file: ca_file.map(Into::into),
            ..EngineConfig::new(Address::parse(url).unwrap())
        };
        check_engine(&config)
    };
    let url = format!("rediss://127.0.0.1:{port}");
    assert_eq!(at(&url, Some(&ca)), Ok(()));
    assert_eq!(at(&format!("rediss://localhost:{port}"), Some(&ca)), Ok(()));
    // Somebody else's server, and one without TLS.
    let stranger = at(&url, None).unwrap_err();
    assert_eq!(stranger.kind, ErrorKind::Denied, "{stranger}");
    assert!(at(&format!("rediss://{}", plain.address()), Some(&ca)).is_err());
    let context = context();
    let mut source = Source::new(&context, "tls");
    let relay = relay(&context, &url, &format!("ca_file = \"{ca}\""));
    until_read(&relay);
    source.push_many(50);
    until_stored(&relay, &source);
    check(&encrypted, &source, false);
    drop(relay);
    std::fs::remove_dir_all(&folder).unwrap();
}
