//! `lsl relay`: programs that see no stream read them through its port.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::Duration;
#[cfg(unix)]
use {
    lsl_core::{ChannelFormat, StreamInfo},
    std::net::TcpStream,
};

use lsl_core::local_clock;
use serde_json::Value;

#[cfg(target_os = "linux")]
use crate::lab::Running;
use crate::lab::{Ended, Lab};
use crate::machine::Machine;

/// A port that was free a moment ago.
fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    listener.local_addr().unwrap().port()
}

#[test]
fn programs_that_see_no_stream_read_them_through_a_relay() {
    // Their ports differ, so that neither finds the other's streams.
    let (near, far) = (Lab::new(), Lab::new());
    let port = free_port();
    let _relay = near.start(&["relay", "--listen", &format!("127.0.0.1:{port}")]);
    let generator = near.start(&[
        "gen",
        "--name",
        "Count",
        "--format",
        "int32",
        "--rate",
        "1000",
        "--pattern",
        "counter",
        "--count",
        "300",
        "--wait",
    ]);
    let settings = |lab: &Lab| std::fs::read_to_string(lab.path("lsl_api.cfg")).unwrap();
    let (_, session) = settings(&near)
        .split_once("SessionID = ")
        .map(|(a, b)| (a.to_owned(), b.trim().to_owned()))
        .unwrap();
    let config = format!("{}Relay = {{127.0.0.1:{port}}}\n", settings(&far));
    far.write("lsl_api.cfg", &config);
    let received = far
        .run(&[
            "--session",
            &session,
            "recv",
            "Count",
            "-o",
            "jsonl",
            "--history",
            "all",
            "--count",
            "300",
        ])
        .ok();
    let values = received
        .json_lines()
        .into_iter()
        .map(|line| line["v"][0].clone());
    assert!(values.eq((0..300).map(Value::from)), "{received:?}");
    generator.wait().ok();
    let port = port.to_string();
    let status = near
        .run(&["relay", "status", "--port", &port, "--json"])
        .ok();
    let status: Value = serde_json::from_str(&status.stdout).unwrap();
    let stream = &status["streams"][0];
    assert_eq!(
        (&stream["name"], &stream["received"], &stream["lost_exact"]),
        (&"Count".into(), &300.into(), &0.into()),
        "{status}"
    );
}

#[test]
fn a_relay_stands_between_networks_that_this_machine_is_in() {
    let lab = Lab::new();
    let listen = format!("127.0.0.1:{}", free_port());
    let relay = [
        "relay",
        "--listen",
        &listen,
        "--between",
        "127.0.0.1,192.0.2.7",
    ];
    let said = lab.run(&relay);
    assert_eq!(said.status, Some(1), "{said:?}");
    assert!(
        said.stderr
            .contains("192.0.2.7 is no address of this machine"),
        "{said:?}"
    );
}

#[cfg(unix)]
#[test]
fn a_hangup_reads_the_rules_again_and_a_mistake_changes_nothing() {
    let lab = Lab::new();
    let port = free_port().to_string();
    let file = lab.write("lsl-relay.toml", "");
    let listen = format!("127.0.0.1:{port}");
    let relay = lab.start(&["relay", "--listen", &listen, "--relay-config", &file]);
    let info = StreamInfo::new("Amp", "EEG", 1, 10.0, ChannelFormat::Int8, "amp").unwrap();
    let _outlet = lab.outlet(info);
    let listed = || {
        let mut stream = TcpStream::connect(&listen).ok()?;
        stream.write_all(b"LSL:watch/1 once\r\n\r\n").ok()?;
        let mut said = String::new();
        stream.read_to_string(&mut said).ok()?;
        Some(said.lines().filter(|line| line.starts_with("+ ")).count())
    };
    let sees = |streams| {
        let deadline = local_clock() + 20.0;
        while listed() != Some(streams) {
            assert!(local_clock() < deadline, "{:?}", listed());
            std::thread::sleep(Duration::from_millis(50));
        }
    };
    sees(1);
    lab.write("lsl-relay.toml", "[[rule]]\nreaders = []\n");
    relay.signal("HUP");
    sees(0);
    lab.write("lsl-relay.toml", "\n[[rule]]\nreader = []\n");
    relay.signal("HUP");
    std::thread::sleep(Duration::from_secs(1));
    sees(0);
    lab.write("lsl-relay.toml", "");
    relay.signal("HUP");
    sees(1);
    relay.signal("TERM");
    let said = relay.wait().ok().stderr;
    let mistake = said.lines().find(|line| line.contains("ERROR"));
    let mistake = mistake.expect(&said);
    assert!(
        mistake.contains("line 3") && mistake.contains("the settings before stay in use"),
        "{said}"
    );
}

#[cfg(unix)]
#[test]
fn a_reader_that_rules_name_no_more_is_ended_and_audited() {
    let (near, far) = (Lab::new(), Lab::new());
    let (hub, rec) = (
        Machine::with_key(&near, "hub"),
        Machine::with_key(&far, "rec"),
    );
    hub.run(&["trust", "add", "rec", &rec.key()]).ok();
    rec.run(&["trust", "add", "hub", &hub.key(), "--role", "relay"])
        .ok();
    hub.configure(
        "policy = \"required\"",
        "policy = \"migrate\"\nmigrate_until = \"2099-12-31\"",
    );
    hub.configure("audit_file = \"\"", "audit_file = \"audit.jsonl\"");
    let listen = format!("127.0.0.1:{}", free_port());
    let rules = |readers| {
        let rules = format!("[[rule]]\nmatch = \"name='Amp'\"\nreaders = [{readers}]\n");
        std::fs::write(hub.file("lsl-relay.toml"), rules).unwrap();
    };
    rules("\"rec\"");
    let relay = hub.start(&["relay", "--listen", &listen, "--insecure", "127.0.0.1:0"]);
    let _amp = hub.start(&["gen", "--name", "Amp", "--rate", "100"]);
    let settings = std::fs::read_to_string(near.path("lsl_api.cfg")).unwrap();
    let session = settings.split_once("SessionID = ").unwrap().1.trim();
    let config = std::fs::read_to_string(far.path("lsl_api.cfg")).unwrap();
    far.write("lsl_api.cfg", &format!("{config}Relay = {{{listen}}}\n"));
    let recv = [
        "--session",
        session,
        "recv",
        "Amp",
        "-o",
        "jsonl",
        "--timeout",
        "20",
    ];
    let _reader = rec.start_until_first_line(&recv);
    let events = |kind: &str| {
        let text = std::fs::read_to_string(hub.file("audit.jsonl")).unwrap_or_default();
        let lines = text
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines
            .filter(|line| line["event"] == kind)
            .collect::<Vec<_>>()
    };
    assert_eq!(
        (
            events("relay_insecure").len(),
            events("stream_refused").len()
        ),
        (1, 0)
    );
    rules("");
    let began = local_clock();
    relay.signal("HUP");
    let refused = loop {
        if let Some(refused) = events("stream_refused").pop() {
            break refused;
        }
        assert!(local_clock() - began < 5.0);
        std::thread::sleep(Duration::from_millis(20));
    };
    let detail = "stream \"Amp\": ended, no rule lets rec read it any more";
    assert_eq!(
        (&refused["peer_name"], &refused["detail"]),
        (&"rec".into(), &detail.into())
    );
    assert_eq!(refused["peer_fp"], rec.fingerprint());
    assert!(!events("session_closed").is_empty());
}

#[test]
fn what_cannot_be_done_is_refused_and_nobody_is_no_relay() {
    let lab = Lab::new();
    let file = lab.write("lsl-relay.toml", "[local]\nplaintext = \"type='EEG'\"\n");
    let refused = lab.run(&["relay", "--listen", "127.0.0.1:0", "--relay-config", &file]);
    assert_eq!(refused.status, Some(2));
    assert!(
        refused.stderr.contains("has no [local] plaintext yet"),
        "{refused:?}"
    );
    let unknown = lab.write("lsl-relay.toml", "\n[relay]\nlisten_at = []\n");
    let refused = lab.run(&["relay", "--relay-config", &unknown]);
    assert_eq!(refused.status, Some(2));
    assert!(refused.stderr.contains("line 3"), "{refused:?}");
    let refused = lab.run(&["relay"]);
    assert_eq!(refused.status, Some(5));
    assert!(refused.stderr.contains("run: lsl key init"), "{refused:?}");
    let taken = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let (at, port) = (
        taken.local_addr().unwrap(),
        taken.local_addr().unwrap().port(),
    );
    let metrics = lab.write("lsl-relay.toml", &format!("[metrics]\nlisten = \"{at}\"\n"));
    for (listen, text) in [
        (
            at.to_string(),
            format!("port {port} is taken; another relay? lsl relay status --port {port}"),
        ),
        (
            "127.0.0.1:0".to_owned(),
            format!("[metrics] cannot listen at {at}"),
        ),
    ] {
        let refused = lab.run(&["relay", "--listen", &listen, "--relay-config", &metrics]);
        assert_eq!(refused.status, Some(1), "{refused:?}");
        assert!(refused.stderr.contains(&text), "{refused:?}");
    }
    let nobody = lab.run(&["relay", "status", "--port", &free_port().to_string()]);
    assert_eq!(nobody.status, Some(3));
}

/// Runs a command until it says these words.
#[test]
fn an_engine_that_would_delete_samples_is_refused_and_one_that_is_not_there_is_awaited() {
    let lab = Lab::new();
    let (server, nobody) = (TcpListener::bind(("127.0.0.1", 0)).unwrap(), free_port());
    let deleting = server.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in server.incoming().map_while(Result::ok) {
            let mut stream = stream;
            let info = "# Memory\r\nmaxmemory_policy:allkeys-lru\r\n";
            let replies = format!("+OK\r\n${}\r\n{info}\r\n", info.len());
            let _ = stream.read(&mut [0; 1024]);
            let _ = stream.write_all(replies.as_bytes());
            let _ = stream.read(&mut [0; 1024]);
        }
    });
    let url = format!("redis://{deleting}");
    let relay = ["relay", "--listen", "127.0.0.1:0", "--engine"];
    let refused = lab.run(&[&relay[..], &[&url]].concat());
    assert_eq!(refused.status, Some(4), "{refused:?}");
    let text = format!(
        "Redis at {deleting}: it would delete history: maxmemory-policy is allkeys-lru; set noeviction"
    );
    assert!(refused.stderr.contains(&text), "{refused:?}");
    for wrong in ["http://x", "redis://lsl:secret@x"] {
        let refused = lab.run(&[&relay[..], &[wrong]].concat());
        assert_eq!(refused.status, Some(2), "{refused:?}");
        assert!(!refused.stderr.contains("secret"), "{refused:?}");
    }
    let port = free_port().to_string();
    let listen = format!("127.0.0.1:{port}");
    let url = format!("redis://127.0.0.1:{nobody}");
    let _relay = lab.start(&["relay", "--listen", &listen, "--engine", &url]);
    let ask = || lab.run(&["relay", "status", "--port", &port]);
    let limit = local_clock() + 20.0;
    let mut status = ask();
    while status.status != Some(0) {
        assert!(local_clock() < limit, "{status:?}");
        std::thread::sleep(Duration::from_millis(50));
        status = ask();
    }
    let line = format!("engine 127.0.0.1:{nobody} idle: 0 streams");
    assert!(status.stdout.contains(&line), "{status:?}");
}

fn until(machine: &Machine<'_>, arguments: &[&str], words: &str) -> Ended {
    let deadline = local_clock() + 20.0;
    loop {
        let ended = machine.run(arguments);
        if ended.stdout.contains(words) {
            return ended;
        }
        assert!(local_clock() < deadline, "{words}: {ended:?}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn a_check_says_who_refuses_a_link_and_what_to_run() {
    let lab = Lab::new();
    let [hub, site] = ["hub", "site"].map(|name| Machine::with_key(&lab, name));
    let [port, own_port] = [free_port(), free_port()].map(|port| port.to_string());
    let [at, own_at] = [&port, &own_port].map(|port| format!("127.0.0.1:{port}"));
    let trust = |machine: &Machine<'_>, other: &Machine<'_>, role: &str| {
        let entry = [other.name, &other.key(), "--role", role];
        machine.run(&[&["trust", "add"], &entry[..]].concat()).ok();
    };
    let config = format!("[relay]\nlisten = [\"{own_at}\"]\nconnect = [\"{at}\"]\n");
    std::fs::write(site.file("lsl-relay.toml"), config).unwrap();
    let relays = [
        hub.start(&["relay", "--listen", &at, "--name", "Hub"]),
        site.start(&["relay"]),
    ];
    for (machine, port) in [(&hub, &port), (&site, &own_port)] {
        until(machine, &["relay", "status", "--port", port], "relay ");
    }
    let check = ["relay", "check"];
    let says = |words: &str| {
        let ended = until(&site, &check, words);
        let (status, is_own_fine) = (
            ended.status,
            ended.stdout.contains(&format!("ok      {own_at}: relay ")),
        );
        assert_eq!((status, is_own_fine), (Some(1), true), "{ended:?}");
        ended.stdout
    };
    says("is not trusted by this device");
    trust(&site, &hub, "outlet");
    let (fingerprint, key) = (hub.fingerprint(), hub.key());
    let remedy = format!("lsl trust add hub {key} --role relay");
    says(&format!(
        "FAILED  {at}: hub ({fingerprint}) is trusted, but not as a relay; run: {remedy}"
    ));
    let refused = site.run(&["relay", "status", "127.0.0.1", "--port", &port]);
    assert_eq!(refused.status, Some(5), "{refused:?}");
    site.shell(&remedy).ok();
    says("does not trust this device");
    trust(&hub, &site, "inlet");
    says(&format!(
        "FAILED  {at}: hub does not let us link: ask there for --role relay"
    ));
    let refused = site.run(&["relay", "status", &at]);
    assert_eq!(refused.status, Some(5), "{refused:?}");
    let text = "hub does not tell us what it does: ask there for --role relay";
    assert!(refused.stderr.contains(text), "{refused:?}");
    trust(&hub, &site, "relay");
    let fine = until(&site, &check, &format!("ok      {at}: relay "));
    assert_eq!(fine.status, Some(0), "{fine:?}");
    // The relay that runs there was refused, and tries again in a minute, or when its trust changes.
    trust(&site, &Machine::with_key(&lab, "other"), "inlet");
    // A second link would end its own: it is asked instead.
    let linked = until(&site, &check, ", linked");
    assert!(
        linked
            .stdout
            .contains(&format!("ok      {at}: relay hub (")),
        "{linked:?}"
    );
    let status = site.run(&["relay", "status", &at, "--json"]).ok().json();
    assert_eq!(
        (&status["name"], &status["links"][0]["name"]),
        (&"Hub".into(), &"site".into())
    );
    assert_eq!(status["links"][0]["state"], "up");
    let nobody = format!("127.0.0.1:{}", free_port());
    let failed = site.run(&["relay", "check", &own_at, &nobody]);
    assert_eq!(failed.status, Some(1), "{failed:?}");
    let own =
        format!("FAILED  {own_at}: this relay's own address is among connect (508): {own_at}");
    assert!(failed.stdout.contains(&own), "{failed:?}");
    assert!(
        failed.stdout.contains(&format!("FAILED  {nobody}: ")),
        "{failed:?}"
    );
    drop(relays);
    let stranger = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let at = stranger.local_addr().unwrap().to_string();
    let closing = std::thread::spawn(move || drop(stranger.accept()));
    let keyless = Machine::new(&lab, "keyless");
    let failed = keyless.run(&["relay", "check", &at]);
    closing.join().unwrap();
    let text = format!("FAILED  {at}: {at} is no relay (it closed the connection)");
    assert!(failed.stdout.contains(&text), "{failed:?}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_service_says_that_it_is_ready_and_ends_links_and_feeds_within_two_seconds() {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixDatagram};

    let lab = Lab::new();
    let port = free_port();
    let at = format!("127.0.0.1:{port}");
    let name = format!("lsl-relay-{port}");
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    let manager = UnixDatagram::bind_addr(&address).unwrap();
    manager
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    let told = || {
        let mut told = [0; 64];
        let length = manager.recv(&mut told).unwrap();
        String::from_utf8_lossy(&told[..length]).into_owned()
    };
    let info = StreamInfo::new("Amp", "EEG", 1, 10.0, ChannelFormat::Int8, "amp").unwrap();
    let outlet = lab.outlet(info);
    let mut command = lab.command(&["relay", "--listen", &at]);
    let relay = Running::start(command.env("NOTIFY_SOCKET", format!("@{name}")));
    assert_eq!(told(), "READY=1");
    let ask = |request: &str| {
        let mut stream = TcpStream::connect(&at).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut said = [0; 14];
        let read = stream.read_exact(&mut said);
        (stream, read.is_ok() && said == *b"LSL/110 200 OK")
    };
    let (mut link, is_linked) = ask(
        "LSL:relay/1\r\nRelay-Id: 0000000000000001\r\nFrames: 1\r\nWindow: 65536\r\nStreams: 9\r\n\r\n",
    );
    assert!(is_linked);
    let uid = outlet.info().uid().into_owned();
    let feed = format!("LSL:streamfeed/110 {uid}\r\nMax-Buffer-Length: 360\r\n\r\n");
    let deadline = local_clock() + 20.0;
    let mut reader = loop {
        if let (reader, true) = ask(&feed) {
            break reader;
        }
        assert!(local_clock() < deadline);
        std::thread::sleep(Duration::from_millis(50));
    };
    let watch = [
        "relay",
        "status",
        "--port",
        &port.to_string(),
        "--watch",
        "--json",
    ];
    let (shown, watched) = lab.run_until_first_line(&watch);
    watched.ok();
    let shown: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(shown["links"][0]["id"], "0000000000000001");
    let began = local_clock();
    relay.signal("TERM");
    assert_eq!(told(), "STOPPING=1");
    let (mut frames, mut rest) = (Vec::new(), Vec::new());
    link.read_to_end(&mut frames).unwrap();
    let bye = [&[8, 0, 0, 15, 0, 0, 0, 0, 0, 5][..], b"shutting down"].concat();
    assert!(frames.ends_with(&bye), "{frames:?}");
    reader.read_to_end(&mut rest).unwrap();
    relay.wait().ok();
    let secs = local_clock() - began;
    assert!(secs < 2.0, "{secs}");
}

/// A program elsewhere, which knows of this relay and sees no stream itself.
fn elsewhere(near: &Lab, port: u16) -> (Lab, String) {
    let far = Lab::new();
    let settings = |lab: &Lab| std::fs::read_to_string(lab.path("lsl_api.cfg")).unwrap();
    let near = settings(near);
    let (_, session) = near.split_once("SessionID = ").unwrap();
    let config = format!("{}Relay = {{127.0.0.1:{port}}}\n", settings(&far));
    far.write("lsl_api.cfg", &config);
    (far, session.trim().to_owned())
}

fn counter(count: &str) -> Vec<&str> {
    let shape = ["gen", "--name", "Count", "--format", "int32"];
    let speed = [
        "--rate",
        "1000",
        "--pattern",
        "counter",
        "--count",
        count,
        "--wait",
    ];
    [&shape[..], &speed].concat()
}

#[test]
fn what_a_relay_keeps_is_listed_read_and_recorded_when_its_stream_is_over() {
    let near = Lab::new();
    let (port, folder) = (free_port(), near.path("history"));
    let folder = &*folder;
    let listen = format!("127.0.0.1:{port}");
    let relay = ["relay", "--listen", &listen, "--history", folder];
    let _relay = near.start(&relay);
    // The history is its reader.
    near.start(&counter("500")).wait().ok();
    let (far, session) = elsewhere(&near, port);
    let run = |arguments: &[&str]| far.run(&[&["--session", &session], arguments].concat());
    let deadline = local_clock() + 20.0;
    let ended = loop {
        let listed = run(&["list", "--past", "--json", "--timeout", "0.5"]);
        let listed: Option<Value> = serde_json::from_str(&listed.stdout).ok();
        let stream = listed.and_then(|it| it.get(0).cloned());
        if let Some(ended) = stream.filter(|it| it["ended"].is_u64()) {
            break ended;
        }
        assert!(local_clock() < deadline);
    };
    assert_eq!(ended["name"], "Count");
    assert_eq!(run(&["list", "--timeout", "0.5"]).status, Some(3));
    let received = run(&["recv", "Count", "-o", "jsonl", "--since", "start"]).ok();
    let values = received.json_lines().into_iter();
    let values = values.map(|line| line["v"][0].clone());
    assert!(values.eq((0..500).map(Value::from)), "{received:?}");
    let file = far.path("late.xdf");
    let to = &*file;
    let options = [
        "record",
        "Count",
        "--since",
        "1h",
        "-o",
        to,
        "--duration",
        "2",
    ];
    run(&options).ok();
    let file = std::fs::read(&file).unwrap();
    let loaded = lsl_xdf::load(&file[..]).unwrap();
    // Eight channels have the same.
    let expected: Vec<i32> = (0..500 * 8).map(|n| n / 8).collect();
    assert_eq!(loaded.streams[0].values, expected.into());
    // There is nothing that could be kept in a file.
    let beside = near.path("lsl_api.cfg");
    let beside = &*beside;
    let refused = near.run(&["relay", "--listen", "127.0.0.1:0", "--history", beside]);
    assert_eq!(refused.status, Some(4), "{refused:?}");
    let usage = near.run(&["relay", "--listen", "127.0.0.1:0", "--history-age", "1h"]);
    assert_eq!(usage.status, Some(2), "{usage:?}");
}

#[cfg(unix)]
#[test]
fn a_relay_that_is_killed_loses_nothing_of_what_its_sources_still_have() {
    let near = Lab::new();
    let (port, folder) = (free_port(), near.path("history"));
    let folder = &*folder;
    let listen = format!("127.0.0.1:{port}");
    let relay = ["relay", "--listen", &listen, "--history", folder];
    let mut running = near.start(&relay);
    let _generator = near.start(&counter("1000000"));
    let kept = || {
        let port = port.to_string();
        let status = near.run(&["relay", "status", "--port", &port, "--json"]);
        let status: Option<Value> = serde_json::from_str(&status.stdout).ok();
        status.and_then(|it| it["streams"][0]["history"]["to"].as_u64())
    };
    let mut last = 0;
    for _ in 0..3 {
        let deadline = local_clock() + 30.0;
        while kept().is_none_or(|end| end <= last) {
            assert!(local_clock() < deadline, "{:?} after {last}", kept());
            std::thread::sleep(Duration::from_millis(50));
        }
        last = kept().unwrap_or(last);
        running.signal("KILL");
        running.wait();
        running = near.start(&relay);
    }
    let (far, session) = elsewhere(&near, port);
    let count = (last + 3000).to_string();
    let options = [
        "recv", "Count", "-o", "jsonl", "--since", "start", "--count", &count,
    ];
    let received = far
        .run(&[&["--session", &*session], &options[..]].concat())
        .ok();
    let values = received.json_lines().into_iter();
    let values = values.map(|line| line["v"][0].clone());
    assert!(
        values.eq((0..last + 3000).map(Value::from)),
        "{}",
        received.stderr
    );
}
