//! The file of the specification, what rules decide, and mistakes with their line.

use std::path::Path;

use lsl_proto::{ChannelFormat, StreamInfo};
use lsl_secure::{Fingerprint, SecretKey};

use super::*;
use crate::rules::{Reader, Rule, Source};

fn key(of: u8) -> lsl_secure::PublicKey {
    SecretKey::from_seed(&[of; 32]).public()
}

fn fingerprint(of: u8) -> Fingerprint {
    key(of).fingerprint()
}

/// Trusts `rec1`, `rec2`, `lab2` and two keys called `twin`.
fn trust() -> TrustList {
    let entry =
        |(at, name): (u8, &str)| format!("[[peer]]\nname = \"{name}\"\nkey = \"{}\"\n", key(at));
    let names = [
        (1, "rec1"),
        (2, "rec2"),
        (3, "lab2"),
        (4, "twin"),
        (5, "twin"),
    ];
    let text: String = names.into_iter().map(entry).collect();
    TrustList::parse(&text, Path::new("t")).expect("a trust file")
}

fn parse(text: &str) -> Config {
    Config::parse(text, &trust()).unwrap_or_else(|error| panic!("{error}"))
}

fn stream(stream_type: &str) -> StreamInfo {
    let mut info = StreamInfo::new(
        "Amp",
        stream_type,
        8,
        250.0,
        ChannelFormat::Float32,
        "amp-1",
    )
    .expect("an info");
    info.desc_mut().into_child("subject").set("group", "a");
    info
}

#[test]
fn reads_the_file_of_the_specification() {
    let page = include_str!("../../../../docs/spec/relay.md");
    let blocks: Vec<_> = page.split("```toml\n").skip(1).collect();
    let [rules, file] = blocks[..] else {
        panic!("two blocks");
    };
    let block = |text: &'static str| text.split("```").next().expect("a block");
    let config = parse(block(file));
    assert_eq!(config.connect, ["lab2.example.org:16570"]);
    assert_eq!(
        (config.max_hops, config.linger_secs, config.listen.len()),
        (4, 10.0, 2)
    );
    let history = config.history.expect("history");
    assert_eq!(
        (history.max_age_secs, history.max_bytes, history.identity),
        (600.0, 20 << 30, None)
    );
    let engine = config.engine.expect("an engine");
    assert_eq!(
        (engine.layout, engine.max_age_secs, engine.max_bytes),
        (Layout::Packed, 3600.0, 4 << 30)
    );
    assert_eq!(engine.address.to_string(), "redis.lan:6379");
    assert_eq!(
        config.limits,
        RelayLimits {
            links: 64,
            clients: 1024,
            streams: 4096
        }
    );
    assert!(config.plaintext.is_none() && config.metrics.is_none());
    assert_eq!(parse(block(rules)).rules.0.len(), 1);
}

#[test]
fn an_empty_file_has_the_defaults_of_the_specification() {
    let config = parse("");
    assert_eq!(
        config.listen,
        [
            "0.0.0.0:16570".parse().expect("an address"),
            "[::]:16570".parse().expect("an address")
        ]
    );
    assert!(config.reoffer && config.history.is_none() && config.engine.is_none());
    let info = stream("EEG");
    assert!(config.publish.is_none());
    assert!(crate::rules::selects(
        parse("[relay]\nimport = \"*\"").import.as_ref(),
        &info
    ));
    let rule = config.rules.decide(&info, Source::Local);
    assert!(rule.history && rule.reoffer && !rule.engine);
    assert!(rule.may_read(Reader::Local) && rule.may_read(Reader::Key(fingerprint(9))));
}

#[test]
fn the_first_rule_that_matches_decides() {
    let config = parse(&format!(
        "[groups]\nclinic = [\"rec1\", \"rec2\"]\n\
         [[rule]]\nmatch = \"type='EEG' and desc/subject/group='a'\"\nfrom = \"local\"\nreaders = [\"clinic\", \"local\"]\n\
         [[rule]]\nmatch = \"type='EEG'\"\nfrom = \"lab2\"\nreaders = [\"{}\"]\nengine = true\nhistory = false\n\
         [[rule]]\nfrom = \"links\"\nreaders = []\nreoffer = false\n",
        fingerprint(2),
    ));
    let readers = |rule: &Rule| {
        let keys = [1, 2, 3].map(|of| rule.may_read(Reader::Key(fingerprint(of))));
        (keys, rule.may_read(Reader::Local))
    };
    let decide = |kind: &str, source| config.rules.decide(&stream(kind), source);
    let eeg = decide("EEG", Source::Local);
    assert_eq!(readers(eeg), ([true, true, false], true));
    assert!(eeg.history && !eeg.engine);
    let far = decide("EEG", Source::Link(Some(fingerprint(3))));
    assert_eq!(readers(far), ([false, true, false], false));
    assert!(far.engine && !far.history && far.reoffer);
    for source in [Source::Link(Some(fingerprint(1))), Source::Link(None)] {
        let other = decide("EEG", source);
        assert_eq!(readers(other), ([false; 3], false));
        assert!(!other.reoffer);
    }
    assert_eq!(readers(decide("Markers", Source::Local)), ([true; 3], true));
}

#[test]
fn mistakes_are_told_with_their_line() {
    for (text, line, reason) in [
        ("[relay]\nlisten = [\"x\"]", 2, "numeric address"),
        ("[relay]\n\ncolour = 1", 3, "unknown field"),
        ("[colour]", 1, "unknown field"),
        ("[relay]\nmax_hops = 0", 2, "from 1 to 16"),
        ("[relay]\nlinger_s = -1.0", 2, "from 0 to 3600"),
        ("[relay]\nconnect = [\"a b\"]", 2, "HOST:PORT"),
        ("[relay]\nconnect = [\n\"a\",\n\"a:b\"]", 4, "HOST:PORT"),
        ("[relay]\npublish = \"type=\"", 2, "Invalid query"),
        ("[relay]\nimport = \" \"", 2, "false()"),
        ("[relay]\npublish = 1", 2, "expected a string"),
        ("[local]\nbetween = [\"10.1.0\"]", 2, "IP address"),
        ("[history]\nmax_age = \"1h\"", 1, "missing field"),
        ("[history]\ndir = \"x\"\nmax_age = \"10\"", 3, "10min"),
        (
            "[history]\ndir = \"x\"\nmax_size = \"99999999999TiB\"",
            3,
            "20GiB",
        ),
        ("[engine]\nurl = \"redis://lsl:pass@x\"", 2, "password_file"),
        ("[engine]\nurl = \"http://x\"", 2, "redis://HOST"),
        (
            "[engine]\nurl = \"redis://x\"\nlayout = \"flat\"",
            3,
            "packed",
        ),
        ("[groups]\na = [\"nobody\"]", 2, "no trusted peer"),
        (
            "[[rule]]\nreaders = [\"rec1\",\n\"SHA256:x\"]",
            3,
            "no trusted peer",
        ),
        ("[[rule]]\nfrom = \"lab3\"", 2, "no trusted peer"),
        ("[[rule]]\nreaders = [\"twin\"]", 2, "several"),
        ("[[rule]]\nseal = [\"age1x\"]", 2, "cannot seal"),
        ("[relay]\nlisten = [", 2, ""),
    ] {
        let error = Config::parse(text, &trust()).expect_err(text);
        assert_eq!(error.line, line, "{text}: {error}");
        assert!(error.reason.contains(reason), "{text}: {error}");
    }
}

#[test]
fn relays_get_the_default_port() {
    let config =
        parse("[relay]\nconnect = [\"a\", \"a:1\", \"10.1.2.3\", \"::1\", \"[::1]:7\", \"[::1]\"]");
    let expected = [
        "a:16570",
        "a:1",
        "10.1.2.3:16570",
        "[::1]:16570",
        "[::1]:7",
        "[::1]:16570",
    ];
    assert_eq!(config.connect, expected);
}
