//! `lsl audit` on logs that the library writes.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use lsl_core::secure::audit::{Audit, Event, EventKind, Span};
use lsl_core::secure::{Cause, Role};

use crate::lab::Lab;

/// Writes a log of three lines, and the one before them.
fn write(path: &str) {
    let audit = Audit::open(Path::new(path), 0).unwrap();
    audit.record(Event::new(EventKind::TrustReloaded).detail("2 peers"));
    audit.record(
        Event::new(EventKind::HandshakeFailed)
            .role(Role::Outlet)
            .peer_addr("10.0.0.7:5000".parse::<SocketAddr>().unwrap())
            .cause(Cause::NotAuthorised)
            .detail("unknown\nkey"),
    );
    audit.record(Event::new(EventKind::HandshakeOk).peer_name("amp1"));
    assert!(audit.flush(Duration::from_secs(20)));
}

#[test]
fn tail_shows_the_last_events() {
    let lab = Lab::new();
    let log = lab.path("audit.jsonl");
    write(&log);
    let shown = lab.run(&["audit", "tail", &log]).ok().stdout;
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!(lines.len(), 4, "{shown}");
    assert!(lines[0].contains("log_opened  it-"), "{shown}");
    assert!(lines[1].ends_with("trust_reloaded  2 peers"), "{shown}");
    let failed = r"handshake_failed  10.0.0.7:5000  our outlet  not_authorised: unknown\nkey";
    assert!(lines[2].ends_with(failed), "{shown}");
    let last = lab.run(&["audit", "tail", &log, "-n", "1", "--json"]).ok();
    let last = last.json_lines();
    assert_eq!(last.len(), 1);
    assert_eq!(last[0]["peer_name"], "amp1");
    // Rotated files are part of it.
    fs::rename(&log, format!("{log}.1")).unwrap();
    write(&log);
    let shown = lab.run(&["audit", "tail", &log, "--json"]).ok();
    assert_eq!(shown.json_lines().len(), 8);
}

#[test]
fn tail_follows_across_rotation() {
    let lab = Lab::new();
    let log = lab.path("audit.jsonl");
    write(&log);
    let arguments = ["audit", "tail", &log, "-n", "1", "--follow", "--json"];
    let mut command = lab.command(&arguments).spawn().unwrap();
    let mut lines = BufReader::new(command.stdout.take().unwrap()).lines();
    let mut next = || lines.next().unwrap().unwrap();
    assert!(next().contains("handshake_ok"));
    fs::rename(&log, format!("{log}.1")).unwrap();
    write(&log);
    assert!(next().contains("log_opened"));
    assert!(next().contains("trust_reloaded"));
    assert!(next().contains("handshake_failed"));
    assert!(next().contains("handshake_ok"));
    command.kill().unwrap();
    command.wait().unwrap();
}

#[test]
fn follow_shows_what_comes_and_is_meant() {
    let lab = Lab::new();
    let log = lab.path("audit.jsonl");
    write(&log);
    let arguments = ["audit", "follow", &log, "--where", "event~shake", "--json"];
    let mut command = lab.command(&arguments).spawn().unwrap();
    let mut lines = BufReader::new(command.stdout.take().unwrap()).lines();
    // Until it looks, whenever that is, what is written is of the past.
    let audit = Audit::open(Path::new(&log), 0).unwrap();
    let first = std::thread::scope(|scope| {
        let first = scope.spawn(|| lines.next().unwrap().unwrap());
        while !first.is_finished() {
            audit.record(Event::new(EventKind::TrustReloaded));
            audit.record(Event::new(EventKind::HandshakeOk).peer_name("late"));
            assert!(audit.flush(Duration::from_secs(20)));
        }
        first.join().unwrap()
    });
    assert!(
        first.contains("handshake_ok") && first.contains("late"),
        "{first}"
    );
    command.kill().unwrap();
    command.wait().unwrap();
}

#[test]
fn query_shows_connections_whole() {
    let lab = Lab::new();
    let log = lab.path("audit.jsonl");
    write(&log);
    let audit = Audit::open(Path::new(&log), 0).unwrap();
    let spans = [Span::begin(), Span::begin()];
    let address = "10.0.0.7:5000".parse::<SocketAddr>().unwrap();
    for kind in [
        EventKind::HandshakeOk,
        EventKind::KeyUpdate,
        EventKind::SessionClosed,
    ] {
        for (span, name) in spans.into_iter().zip(["amp1", "amp2"]) {
            let event = Event::new(kind)
                .span(span)
                .peer_addr(address)
                .peer_name(name);
            audit.record(event.took(Duration::from_micros(312)));
        }
    }
    assert!(audit.flush(Duration::from_secs(20)));
    fs::rename(&log, format!("{log}.1")).unwrap();
    fs::write(&log, "nonsense\n").unwrap();

    let query = |more: &[&str]| lab.run(&[&["audit", "query", &log], more].concat()).ok();
    let shown = query(&[
        "--since",
        "1h",
        "--where",
        "event=key_update",
        "--where",
        "peer_name=amp2",
    ]);
    let lines: Vec<_> = shown.stdout.lines().collect();
    assert_eq!(lines.len(), 4, "{shown:?}");
    assert!(
        lines[0].ends_with("lsl::session  amp2  10.0.0.7:5000"),
        "{shown:?}"
    );
    assert_eq!(lines[1], "  lsl::handshake  ok  312 µs");
    assert_eq!(lines[3], "  lsl::close  session_closed  312 µs");
    assert!(shown.stderr.contains("1 line cannot be read"), "{shown:?}");
    assert_eq!(query(&["--until", "1h"]).stdout, "");
    // Both connections, three lines of none, and what wrote either chain.
    let all = query(&["--json"]).json();
    assert_eq!(all.as_array().unwrap().len(), 7);
    assert_eq!(all[6]["spans"].as_array().unwrap().len(), 3);
    assert_eq!(all[0]["events"]["name"], "lsl::log");
    // Also where that line is not asked for.
    let one = query(&["--json", "--where", "peer_name=amp2"]).json();
    assert_eq!(one.as_array().unwrap().len(), 1);
    assert_eq!(one[0]["command"], all[0]["events"]["lsl::exe"]);
    let folded = query(&[
        "--folded",
        "--where",
        "peer_name=amp1",
        "--where",
        "name=lsl::rekey",
    ]);
    assert!(
        folded.stdout.contains("lsl::session;lsl::handshake 312\n"),
        "{folded:?}"
    );
    assert_eq!(
        lab.run(&["audit", "query", &log, "--where", "x"]).status,
        Some(2)
    );
}

#[test]
fn verify_finds_the_line_that_was_changed() {
    let lab = Lab::new();
    let log = lab.path("audit.jsonl");
    write(&log);
    fs::rename(&log, format!("{log}.1")).unwrap();
    write(&log);
    let whole = lab.run(&["audit", "verify", &log]).ok();
    assert_eq!(whole.stdout, "8 lines, 2 chains, 2 files\n");
    // As a shell expands `audit.jsonl*`.
    let rotated = format!("{log}.1");
    lab.run(&["audit", "verify", &log, &rotated]).ok();

    let text = fs::read_to_string(&log).unwrap();
    let check = |changed: &str, place: &str, words: &str| {
        fs::write(&log, changed).unwrap();
        let broken = lab.run(&["audit", "verify", &log]);
        assert_eq!(broken.status, Some(1), "{broken:?}");
        let expected = format!("{log}:{place}: ");
        let line = broken
            .stdout
            .lines()
            .find(|line| line.starts_with(&expected));
        let line = line.unwrap_or_else(|| panic!("{expected} in {broken:?}"));
        assert!(line.contains(words), "{line}");
        assert!(broken.stderr.contains("1 break"), "{broken:?}");
    };
    check(&text.replace("10.0.0.7", "10.0.0.8"), "4", "was changed");
    let mut lines: Vec<&str> = text.split_inclusive('\n').collect();
    lines.remove(1);
    let without_second = lines.concat();
    check(&without_second, "2", "line 1 should be here");
    check(&format!("{text}{{}}\n"), "5", "not a line of an audit file");
    let without_first = text.split_once('\n').unwrap().1;
    check(without_first, "1", "first lines are missing");
    let late = lab.run(&["audit", "verify", &log, "--allow-missing-start"]);
    assert!(late.ok().stderr.contains("1 chain"), "says so");

    let absent = lab.run(&["audit", "verify", &lab.path("absent")]);
    assert_eq!(absent.status, Some(3), "{absent:?}");
}

#[test]
fn summary_counts() {
    let lab = Lab::new();
    let log = lab.path("audit.jsonl");
    write(&log);
    write(&log);
    let summary = lab.run(&["audit", "summary", &log, "--json"]).ok().json();
    assert_eq!(summary["lines"], 8);
    assert_eq!(summary["events"]["handshake_failed"], 2);
    assert_eq!(summary["failures"]["not_authorised"], 2);
    assert_eq!(summary["peers"]["10.0.0.7"]["failures"], 2);
    let shown = lab.run(&["audit", "summary", &log]).ok().stdout;
    assert!(
        shown.contains("FAILED BECAUSE") && shown.contains("amp1"),
        "{shown}"
    );
}

#[test]
fn the_configuration_names_the_log() {
    let lab = Lab::new();
    let log = lab.path("audit.jsonl");
    write(&log);
    let configured = |content: &str| {
        let file = lab.write("lsl-secure.toml", content);
        let mut command = lab.command(&["audit", "verify"]);
        command.env("LSL_SECURE_CONFIG", file).output().unwrap()
    };
    let ended = configured("[security]\npolicy = \"off\"\naudit_file = \"audit.jsonl\"\n");
    assert!(ended.status.success(), "{ended:?}");
    assert!(String::from_utf8_lossy(&ended.stdout).starts_with("4 lines"));
    let ended = configured("[security]\npolicy = \"off\"\n");
    assert_eq!(ended.status.code(), Some(2), "{ended:?}");
    assert!(String::from_utf8_lossy(&ended.stderr).contains("audit_file"));
}

#[test]
fn commands_that_change_keys_and_trust_are_logged() {
    let lab = Lab::new();
    let directory = lab.path("device");
    let log = lab.path("audit.jsonl");
    lab.run(&["key", "init", "--name", "amp1", "--dir", &directory])
        .ok();
    let config = format!("{directory}/lsl-secure.toml");
    let text = fs::read_to_string(&config).unwrap();
    // TOML's basic strings have escapes.
    let slashes = log.replace('\\', "/");
    let text = text.replace("audit_file = \"\"", &format!("audit_file = \"{slashes}\""));
    fs::write(&config, text).unwrap();
    lab.run(&["key", "init", "--next", "--dir", &directory])
        .ok();
    let other = lab.path("other");
    lab.run(&["key", "init", "--name", "rec1", "--dir", &other])
        .ok();
    let shown = lab.run(&["key", "show", "--dir", &other]).ok().stdout;
    let key = shown
        .split_whitespace()
        .find(|it| it.starts_with("lsl-ed25519:"))
        .unwrap();
    let add = [
        "trust",
        "add",
        "rec1",
        key,
        "--role",
        "inlet",
        "--from",
        "10.1.0.0/16",
    ];
    lab.run(&[&add[..], &["--dir", &directory]].concat()).ok();
    lab.run(&[
        "trust", "add", "rec1", key, "--role", "both", "--dir", &directory,
    ])
    .ok();
    lab.run(&["trust", "remove", "rec1", "--dir", &directory])
        .ok();
    // Each command has a chain of its own.
    let tail = [
        "audit",
        "tail",
        &log,
        "--json",
        "--where",
        "event!=log_opened",
    ];
    let lines = lab.run(&tail).ok().json_lines();
    let told = |key: &str| -> Vec<String> {
        let texts = lines
            .iter()
            .map(|line| line[key].as_str().unwrap_or_default().to_owned());
        texts.collect()
    };
    let changed = "trust_changed";
    assert_eq!(told("event"), ["key_made", changed, changed, changed]);
    assert_eq!(told("action"), ["next", "added", "changed", "removed"]);
    assert_eq!(told("trust_role"), ["", "inlet", "both", "both"]);
    assert_eq!(lines[1]["from"], serde_json::json!(["10.1.0.0/16"]));
    assert!(
        told("peer_fp").iter().all(|it| it.starts_with("SHA256:")),
        "{lines:?}"
    );
}
