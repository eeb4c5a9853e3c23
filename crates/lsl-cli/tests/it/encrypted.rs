//! Encrypted streams between two machines of a lab, and every way in which they refuse each other.

use serde_json::{Value, json};

use crate::lab::{Ended, Lab};
use crate::machine::Machine;

/// What receivers get if it works.
fn receive(machine: &Machine<'_>, count: &str) -> Ended {
    machine.run(&["recv", "Test", "-o", "jsonl", "--count", count])
}

const GENERATE: [&str; 5] = ["gen", "--name", "Test", "--rate", "500"];

#[test]
fn the_commands_of_the_readme_enrol_two_machines() {
    let readme = include_str!("../../../../README.md");
    let lab = Lab::new();
    let [amp, rec] = ["amp", "rec"].map(|name| Machine::new(&lab, name));
    let mut lines: Vec<(&str, &str)> = readme
        .lines()
        .filter_map(|line| line.trim().split_once("$ "))
        .filter(|(prompt, _)| ["amp", "rec"].contains(prompt))
        .collect();
    let (prompt, check) = lines.pop().unwrap();
    assert_eq!((prompt, check), ("rec", "lsl trust check"));
    assert_eq!(lines.len(), 4, "{lines:?}");
    let mut printed = Vec::new();
    for (prompt, line) in lines {
        let machine = if prompt == "amp" { &amp } else { &rec };
        // The dots stand for the key that the other machine printed.
        let line = match line.split_once("lsl-ed25519:...") {
            None => line.to_owned(),
            Some((command, options)) => {
                let told: &String = printed
                    .iter()
                    .find(|told: &&String| told.starts_with(command))
                    .unwrap();
                format!("{told}{options}")
            }
        };
        let ended = machine.shell(&line).ok();
        printed.extend(
            ended
                .stdout
                .lines()
                .map(|line| line.trim().to_owned())
                .filter(|line| line.starts_with("lsl trust add")),
        );
    }

    let _generator = amp.start(&GENERATE);
    rec.run(&["info", "Test"]).ok();
    let checked = rec.shell(check).ok();
    assert!(checked.stdout.starts_with("ok "), "{checked:?}");
    assert!(checked.stdout.contains("Test on "), "{checked:?}");
    assert!(checked.stdout.contains(": amp1, "), "{checked:?}");
    let received = receive(&rec, "50").ok();
    assert_eq!(received.json_lines().len(), 50);
    received.says(&["Encrypted: ", " with amp1 (", &amp.fingerprint()]);
}

#[test]
fn commands_show_what_is_encrypted_and_by_whom() {
    let lab = Lab::new();
    let [amp, rec] = Machine::pair(&lab);
    let _generator = amp.start(&GENERATE);
    let info = rec.run(&["info", "Test", "--json"]).ok().json();
    assert_eq!(info["session"]["peer_name"], "amp1");
    assert_eq!(info["session"]["fingerprint"], json!(amp.fingerprint()));
    assert_eq!(info["encryption"]["policy"], "required");
    let text = rec.run(&["info", "Test"]).ok().stdout;
    assert!(text.contains("with amp1 (SHA256:"), "{text}");
    assert!(text.contains("authenticated"), "{text}");

    let list = |machine: &Machine<'_>| {
        let list = machine.run(&["list", "--json", "--timeout", "0.5"]).ok();
        list.json()[0]["encryption"].clone()
    };
    let seen = list(&rec);
    assert_eq!(seen["claimed_name"], "amp1");
    assert_eq!(seen["fingerprint"], json!(amp.fingerprint()));
    assert_eq!(list(&amp)["claimed_name"], "this device");
    assert_eq!(
        list(&Machine::new(&lab, "guest"))["claimed_name"],
        Value::Null
    );
    let table = rec.run(&["list", "--timeout", "0.5"]).ok().stdout;
    assert!(table.contains("ENCRYPTION"), "{table}");
    assert!(table.contains("required (amp1, claimed)"), "{table}");

    let status = rec.run(&["security", "status", "--json", "--timeout", "0.5"]);
    let status = status.ok().json();
    assert_eq!(status["policy"], "required");
    assert_eq!(status["network"]["required"], 1);
    assert_eq!(status["trusted"]["outlets"], 1);
    assert_eq!(status["trusted"]["inlets"], 0);
    assert_eq!(status["fingerprint"], json!(rec.fingerprint()));
}

#[test]
fn programs_of_one_machine_need_no_entry() {
    let lab = Lab::new();
    let amp = Machine::with_key(&lab, "amp1");
    let _generator = amp.start(&GENERATE);
    receive(&amp, "5").ok().says(&["Encrypted: ", "amp1"]);
}

#[test]
fn one_direction_forgotten_is_told_with_the_command_that_repairs_it() {
    let lab = Lab::new();
    let [amp, rec] = ["amp1", "rec1"].map(|name| Machine::with_key(&lab, name));
    let generator = amp.start(&GENERATE);

    // Nobody trusts anybody: this side is told first, and how to get at the key.
    rec.run(&["recv", "Test", "--timeout", "10"])
        .refused(1, &["is not trusted by this device", "`lsl trust check`"]);
    let checked = rec.run(&["trust", "check"]);
    checked.refused(1, &["1 of 1 stream cannot be read"]);
    assert!(checked.stdout.contains("REFUSED"), "{checked:?}");
    assert!(checked.stdout.contains(&amp.fingerprint()), "{checked:?}");
    let line = checked
        .stdout
        .lines()
        .find(|line| line.trim().starts_with("lsl trust add"))
        .unwrap();
    // Without somebody who compares the fingerprint nothing is written.
    let before = rec.read("trusted_peers.toml");
    let refused = rec.shell(line);
    refused.refused(2, &["nothing was written", &amp.fingerprint()]);
    assert_eq!(rec.read("trusted_peers.toml"), before);
    // Asked again somebody else could answer: what was compared stands in the next command.
    let mut said = refused.stderr.lines();
    let line = said
        .find(|line| line.trim().starts_with("lsl trust add"))
        .unwrap();
    assert!(
        line.contains(&amp.key()) && line.contains("--role outlet"),
        "{line}"
    );
    rec.shell(line).ok();
    assert!(rec.read("trusted_peers.toml").contains(&amp.key()));

    // The other direction is missing: E5, with the command for the other machine.
    let told = format!("there run: lsl trust add rec1 {}", rec.key());
    let ended = rec.run(&["recv", "Test", "--timeout", "10"]);
    ended.refused(1, &["does not trust this device", &told]);
    let checked = rec.run(&["trust", "check"]);
    checked.refused(1, &[]);
    assert!(checked.stdout.contains(&told), "{checked:?}");
    let json = rec.run(&["trust", "check", "--json"]).json();
    assert_eq!(json[0]["result"], "refused_there");
    assert_eq!(json[0]["cause"], "not_authorised");
    let (_, command) = told.split_once("run: ").unwrap();
    amp.shell(command).ok();
    receive(&rec, "5").ok().says(&["Encrypted: "]);

    generator.kill();
}

#[test]
fn roles_and_dates_are_explained() {
    let lab = Lab::new();
    let [amp, rec] = Machine::pair(&lab);
    let _generator = amp.start(&GENERATE);
    rec.run(&["info", "Test"]).ok();
    let check = |machine: &Machine<'_>, from: &str, to: &str, result: &str, part: &str| {
        let before = machine.read("trusted_peers.toml");
        assert!(before.contains(from), "{before}");
        let changed = before.replace(from, to);
        std::fs::write(machine.file("trusted_peers.toml"), changed).unwrap();
        // The outlet looks at its file every two seconds and before each handshake.
        let checked = rec.run(&["trust", "check", "--json"]);
        let row = &checked.json()[0];
        assert_eq!(row["result"], result, "{row}");
        assert!(row["text"].to_string().contains(part), "{part} in {row}");
        assert_eq!(checked.status, Some(1));
        std::fs::write(machine.file("trusted_peers.toml"), before).unwrap();
    };
    let (outlet, inlet) = ("role = \"outlet\"", "role = \"inlet\"");
    check(&rec, outlet, inlet, "refused_here", "as inlet only");
    check(&amp, inlet, outlet, "refused_there", "not as inlet");
    let expired = |role: &str| format!("{role}\nnot_after = \"2026-01-31\"");
    check(
        &rec,
        outlet,
        &expired(outlet),
        "refused_here",
        "past its not_after",
    );
    check(
        &amp,
        inlet,
        &expired(inlet),
        "refused_there",
        "past its not_after",
    );
    let far = |role: &str| format!("{role}\nfrom = [\"10.9.0.0/16\"]");
    check(
        &rec,
        outlet,
        &far(outlet),
        "refused_here",
        "not from this address",
    );
    check(
        &amp,
        inlet,
        &far(inlet),
        "refused_there",
        "does not trust this device",
    );
    rec.run(&["trust", "check"]).ok();
}

#[test]
fn a_machine_without_a_key_is_told_so() {
    let lab = Lab::new();
    let amp = Machine::with_key(&lab, "amp1");
    let guest = Machine::new(&lab, "guest");
    let _generator = amp.start(&GENERATE);
    let ended = guest.run(&["recv", "Test", "--timeout", "10"]);
    ended.refused(
        1,
        &[
            "stream \"Test\" is encrypted and this program has no key; searched",
            "guest/lsl_api/lsl-secure.toml",
            "run: lsl key init",
        ],
    );
    guest
        .run(&["info", "Test", "--timeout", "10"])
        .refused(1, &["has no key", "lsl key init"]);
    let status = guest.run(&["security", "status", "--timeout", "0.5"]).ok();
    assert!(
        status.stdout.contains("cannot read 1 encrypted stream"),
        "{status:?}"
    );
}

#[test]
fn plaintext_is_not_read_where_encryption_is_required() {
    let lab = Lab::new();
    let rec = Machine::with_key(&lab, "rec1");
    let guest = Machine::new(&lab, "guest");
    let _generator = guest.start(&GENERATE);
    let refusal = "does not offer encryption and security.policy is \"required\"";
    rec.run(&["recv", "Test", "--timeout", "10"])
        .refused(1, &["stream \"Test\" at ", refusal]);
    rec.run(&["info", "Test", "--timeout", "10"])
        .refused(1, &[refusal]);
    let checked = rec.run(&["trust", "check"]).ok();
    assert!(checked.stdout.starts_with("plaintext"), "{checked:?}");
    checked.says(&["0 streams encrypted and in order, 1 plaintext"]);

    // Until a date, with a warning.
    rec.configure(
        "policy = \"required\"",
        "policy = \"migrate\"\nmigrate_until = \"2099-12-31\"",
    );
    receive(&rec, "5").ok().says(&["WARNING: not encrypted"]);
    let status = rec.run(&["security", "status", "--timeout", "0"]).ok();
    assert!(status.stdout.contains("until 2099-12-31"), "{status:?}");
    // And not after it.
    rec.configure("2099-12-31", "2026-01-31");
    rec.run(&["recv", "Test", "--timeout", "10"])
        .refused(1, &[refusal]);
}

#[test]
fn trust_that_is_withdrawn_ends_the_stream() {
    let lab = Lab::new();
    let [amp, rec] = Machine::pair(&lab);
    for (machine, peer) in [(&amp, "rec1"), (&rec, "amp1")] {
        let before = machine.read("trusted_peers.toml");
        let generator = amp.start(&GENERATE);
        let flowing = rec.start_until_first_line(&["recv", "Test", "--no-recover"]);
        machine.run(&["trust", "remove", peer]).ok();
        let ended = flowing.wait();
        assert_eq!(ended.status, Some(4), "{ended:?}");
        ended.says(&["Encrypted: "]);
        std::fs::write(machine.file("trusted_peers.toml"), before).unwrap();
        generator.kill();
    }
}

#[test]
fn the_lab_key_must_be_the_same_everywhere() {
    let lab = Lab::new();
    let [amp, rec] = Machine::pair(&lab);
    amp.run(&["key", "psk"]).ok();
    let set = |machine: &Machine<'_>| {
        machine.configure("psk_file = \"\"", "psk_file = \"lab.psk\"");
    };
    set(&amp);
    let _generator = amp.start(&GENERATE);
    let json = loop {
        let ended = rec.run(&["trust", "check", "--json"]);
        if ended.status != Some(3) {
            break ended.json();
        }
    };
    assert_eq!(json[0]["result"], "failed", "{json}");
    assert!(json[0]["text"].to_string().contains("psk_file"), "{json}");
    std::fs::copy(amp.file("lab.psk"), rec.file("lab.psk")).unwrap();
    // Wine copies no access.
    rec.set_mode("lab.psk", 0o600);
    set(&rec);
    receive(&rec, "5").ok().says(&["Encrypted: "]);
}

#[test]
fn minimal_discovery_hides_names_from_everybody_else() {
    let lab = Lab::new();
    let [amp, rec] = Machine::pair(&lab);
    let guest = Machine::new(&lab, "guest");
    for machine in [&amp, &rec] {
        machine.configure("discovery = \"open\"", "discovery = \"minimal\"");
    }
    let _generator = amp.start(&GENERATE);
    receive(&rec, "5").ok().says(&["Encrypted: ", "amp1"]);
    let info = rec.run(&["info", "Test", "--json"]).ok().json();
    assert_eq!(info["session"]["peer_name"], "amp1");
    assert_eq!(info["encryption"]["fingerprint"], Value::Null);
    rec.run(&["trust", "check"]).ok();

    // Not even the session can be asked for.
    guest.run(&["list", "--timeout", "0.5"]).refused(3, &[]);
    let sought = guest.run(&["recv", "Test", "--timeout", "0.5"]);
    sought.refused(3, &["no stream named 'Test'"]);
}

#[test]
fn a_key_may_be_trusted_for_some_streams_only() {
    let lab = Lab::new();
    let [amp, rec] = ["amp1", "rec1"].map(|name| Machine::with_key(&lab, name));
    amp.run(&["trust", "add", "rec1", &rec.key(), "--role", "inlet"])
        .ok();
    let key = amp.key();
    let add = |predicate: &str| {
        let words = ["trust", "add", "amp1", &key, "--role", "outlet"];
        rec.run(&[&words[..], &["--streams", predicate]].concat())
    };
    add("name=='Test'").refused(2, &["--streams"]);
    add(" ").refused(2, &["leave --streams out"]);
    add("name='Test'")
        .ok()
        .says(&["only streams that match name='Test'"]);
    let list = rec.run(&["trust", "list", "--json"]).ok().json();
    assert_eq!(list[0]["streams"], json!(["name='Test'"]));
    assert!(
        rec.read("trusted_peers.toml")
            .contains("streams = [\"name='Test'\"]")
    );
    let _own = amp.start(&GENERATE);
    let _other = amp.start(&["gen", "--name", "Other", "--rate", "500"]);
    receive(&rec, "10").ok();
    let words = ["recv", "Other", "--count", "1", "--timeout", "2"];
    let other = rec.run(&words);
    assert_ne!(other.status, Some(0), "{other:?}");
    other.says(&["Other", &amp.fingerprint(), "other streams only"]);
    assert!(other.stdout.is_empty(), "{other:?}");
    // A mistake stops everything.
    let bad = rec
        .read("trusted_peers.toml")
        .replace("name='Test'", "name=");
    std::fs::write(rec.file("trusted_peers.toml"), bad).unwrap();
    let stopped = receive(&rec, "1");
    assert_ne!(stopped.status, Some(0), "{stopped:?}");
    stopped.says(&["trusted_peers.toml", "amp1", "is no predicate"]);
}
