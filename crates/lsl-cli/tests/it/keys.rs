//! `key`, `trust` and `security` where no stream is needed: files, their permissions, mistakes.

use crate::lab::{Lab, Running};
use crate::machine::{Machine, is_said};

#[test]
fn making_a_key_writes_three_files_and_says_what_to_run_elsewhere() {
    let lab = Lab::new();
    let amp = Machine::new(&lab, "amp1");
    let made = amp.run(&["key", "init", "--name", "amp1"]).ok();
    let key = amp.key();
    let line = format!("\n  lsl trust add amp1 {key}\n");
    assert!(made.stdout.contains(&line), "{made:?}");
    assert!(made.stdout.contains(&amp.fingerprint()), "{made:?}");
    assert_eq!(amp.mode(""), 0o700);
    assert_eq!(amp.mode("device_key.pem"), 0o600);
    for shared in ["lsl-secure.toml", "trusted_peers.toml"] {
        assert_eq!(amp.mode(shared) & 0o022, 0, "{shared}");
    }
    assert!(amp.read("lsl-secure.toml").contains("\nname = \"amp1\"\n"));
    assert!(
        amp.read("lsl-secure.toml")
            .contains("\npolicy = \"required\"\n")
    );
    assert!(
        amp.read("device_key.pem")
            .starts_with("-----BEGIN PRIVATE KEY-----")
    );

    let shown = amp.run(&["key", "show"]).ok().stdout;
    assert!(
        shown.contains(&key) && shown.contains("no passphrase"),
        "{shown}"
    );
    let listed = amp.run(&["trust", "list"]).ok();
    listed.says(&["nobody is trusted yet"]);
}

#[test]
fn a_key_is_never_overwritten() {
    let lab = Lab::new();
    let amp = Machine::with_key(&lab, "amp1");
    let files = ["device_key.pem", "lsl-secure.toml", "trusted_peers.toml"];
    let before = files.map(|name| amp.read(name));
    amp.run(&["key", "init", "--name", "other"])
        .refused(1, &["never overwritten", "device_key.pem", "lsl key show"]);
    assert_eq!(files.map(|name| amp.read(name)), before);

    // One file in the way is enough, and then none of the others is made.
    for name in files {
        let rec = Machine::new(&lab, name);
        std::fs::create_dir_all(rec.file("")).unwrap();
        // On Unix a link to nothing will do.
        #[cfg(unix)]
        std::os::unix::fs::symlink("/nowhere", rec.file(name)).unwrap();
        #[cfg(windows)]
        std::fs::write(rec.file(name), "").unwrap();
        rec.run(&["key", "init", "--name", "rec1"])
            .refused(1, &[name, "never overwritten"]);
        assert_eq!(std::fs::read_dir(rec.file("")).unwrap().count(), 1);
    }
}

#[test]
fn what_fails_leaves_nothing_behind() {
    let lab = Lab::new();
    let amp = Machine::new(&lab, "amp1");
    let check = |arguments: &[&str], status, part| {
        amp.run(&[&["key", "init"], arguments].concat())
            .refused(status, &[part]);
        assert!(!amp.file("").exists(), "{arguments:?}");
    };
    check(&["--name", ""], 2, "is empty");
    check(&["--name=-x"], 2, "looks like an option");
    check(&["--name", "a\nb"], 2, "control characters");
    check(&["--owner", "root"], 2, "--system");
    check(&["--passphrase"], 1, "passphrase");
    check(&["--next"], 1, "lsl key init");
    check(&["--dir", "/proc/none"], 1, "/proc/none");

    // Other directories work, and the user learns how programs find them.
    let directory = lab.path("elsewhere");
    amp.run(&["key", "init", "--dir", &directory, "--name", "it's"])
        .ok()
        .says(&["LSL_SECURE_CONFIG=", "elsewhere/lsl-secure.toml"]);
    assert!(!amp.file("").exists());
    let shown = amp.run(&["key", "show", "--dir", &directory]).ok().stdout;
    assert!(
        shown.contains("lsl trust add 'it'\\''s' lsl-ed25519:"),
        "{shown}"
    );
}

#[test]
fn a_key_made_by_sudo_is_not_the_users() {
    let lab = Lab::new();
    let mut command = lab.command_on("amp1", &["key", "init"]);
    let output = command.env("SUDO_USER", "lab").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("programs of lab do not see it"), "{said}");
    assert!(said.contains("--system --owner USER"), "{said}");
    // Without a name, as E4 says it, the device is called like the host.
    let name = lsl_platform::process::hostname();
    let name = format!("name = \"{}\"", String::from_utf8_lossy(&name));
    let amp = Machine::new(&lab, "amp1");
    assert!(amp.read("lsl-secure.toml").contains(&name));
}

#[test]
fn the_environment_names_a_configuration() {
    let lab = Lab::new();
    let amp = Machine::with_key(&lab, "amp1");
    let rec = Machine::new(&lab, "rec1");
    let mut command = lab.command_on("rec1", &["key", "show", "--public"]);
    command.env("LSL_SECURE_CONFIG", amp.file("lsl-secure.toml"));
    let output = command.output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), amp.key());

    // A place that is named and not there is an error, not a reason to look further.
    let mut command = lab.command_on("rec1", &["security", "status", "--timeout", "0"]);
    command.env("LSL_SECURE_CONFIG", rec.file("absent.toml"));
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stdout).contains("absent.toml"));
}

#[test]
fn keys_that_others_can_read_are_refused() {
    let lab = Lab::new();
    let amp = Machine::with_key(&lab, "amp1");
    for (name, mode, remedy) in [
        ("device_key.pem", 0o644, "chmod 600"),
        ("trusted_peers.toml", 0o666, "chmod go-w"),
        ("lsl-secure.toml", 0o664, "chmod go-w"),
    ] {
        let before = amp.mode(name);
        amp.set_mode(name, mode);
        amp.run(&["gen", "--count", "1"])
            .refused(1, &[name, remedy]);
        let status = amp.run(&["security", "status", "--timeout", "0"]);
        status.refused(1, &["no LSL program streams until it is repaired"]);
        assert!(
            status.stdout.contains("ERROR: ") && is_said(&status.stdout, remedy),
            "{status:?}"
        );
        amp.set_mode(name, before);
    }
    amp.run(&["security", "status", "--timeout", "0"]).ok();
}

#[test]
fn a_broken_configuration_stops_streams_and_names_the_line() {
    let lab = Lab::new();
    let amp = Machine::with_key(&lab, "amp1");
    amp.configure("policy = \"required\"", "policy = \"requierd\"");
    for command in [
        &["gen", "--count", "1"][..],
        &["key", "show"],
        &["trust", "list"],
    ] {
        amp.run(command)
            .refused(1, &["lsl-secure.toml", "line ", "requierd"]);
    }
    let status = amp.run(&["security", "status", "--json", "--timeout", "0"]);
    assert_eq!(status.status, Some(1));
    let report = status.json();
    assert_eq!(report["policy"], serde_json::Value::Null);
    assert_eq!(report["errors"].as_array().unwrap().len(), 1, "{report}");
}

#[test]
fn what_is_no_public_key_is_refused() {
    let lab = Lab::new();
    let amp = Machine::with_key(&lab, "amp1");
    let rec = Machine::with_key(&lab, "rec1");
    let before = rec.read("trusted_peers.toml");
    let pem = amp.read("device_key.pem");
    let inside = pem.lines().nth(1).unwrap();
    let check = |key: &str, parts: &[&str]| {
        let ended = rec.run(&["trust", "add", "amp1", key]);
        ended.refused(2, parts);
        assert!(!ended.stderr.contains(inside), "{ended:?}");
        assert_eq!(rec.read("trusted_peers.toml"), before);
    };
    check("junk", &["neither a key", "lsl key show"]);
    check("lsl-ed25519:AAAA", &["no key", "lsl key show --public"]);
    // The neutral element: everybody could sign for it.
    check(
        "lsl-ed25519:AQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",
        &["no key"],
    );
    check(&amp.fingerprint(), &["fingerprint", "lsl key show"]);
    check(&rec.key(), &["this machine itself", "disk image"]);
    let warning = &[
        "PRIVATE key",
        "never leave its machine",
        "count it as stolen",
    ];
    check(&pem, warning);
    check(inside, warning);
    check(amp.file("device_key.pem").to_str().unwrap(), warning);

    rec.run(&["trust", "add", "amp1", &amp.key(), "--not-after", "soon"])
        .refused(2, &["2027-12-31"]);
    rec.run(&["trust", "add", "amp1", &amp.key(), "--from", "10.0.0.0/99"])
        .refused(2, &["10.0.0.0/99"]);
    rec.run(&["trust", "add", "", &amp.key()])
        .refused(2, &["is empty"]);
    assert_eq!(rec.read("trusted_peers.toml"), before);
}

#[test]
fn entries_are_added_shown_and_removed_and_comments_stay() {
    let lab = Lab::new();
    let [amp, rec] = ["amp1", "rec1"].map(|name| Machine::with_key(&lab, name));
    let guest = Machine::with_key(&lab, "guest");
    rec.run(&["trust", "add", "amp1", &amp.key()])
        .ok()
        .says(&["may also read this machine's streams"]);
    let with_amp = rec.read("trusted_peers.toml") + "\n# the end\n";
    std::fs::write(rec.file("trusted_peers.toml"), &with_amp).unwrap();
    let options = [
        "--role",
        "inlet",
        "--not-after",
        "2027-12-31",
        "--from",
        "10.1.0.0/16",
    ];
    rec.run(&[&["trust", "add", "amp1", &guest.key()][..], &options].concat())
        .ok()
        .says(&["also the name of another key", &amp.fingerprint()]);

    // The same key under any name.
    rec.run(&["trust", "add", "again", &amp.key()])
        .refused(2, &["already there", "'amp1'", "lsl trust remove SHA256:"]);

    let list = rec.run(&["trust", "list", "--json"]).ok().json();
    assert_eq!(list[0]["role"], "both");
    rec.run(&["trust", "add", "amp1", &amp.key(), "--role", "relay"])
        .ok()
        .says(&["is trusted as relay"]);
    let changed = with_amp.replacen("role = \"both\"", "role = \"relay\"", 1);
    assert!(rec.read("trusted_peers.toml").starts_with(&changed));
    rec.run(&["trust", "add", "amp1", &amp.key(), "--role", "both"])
        .ok();
    assert_eq!(list[1]["role"], "inlet");
    assert_eq!(list[1]["not_after"], "2027-12-31");
    assert_eq!(list[1]["from"], serde_json::json!(["10.1.0.0/16"]));
    let table = rec.run(&["trust", "list"]).ok().stdout;
    assert!(table.contains(&guest.fingerprint()), "{table}");

    // Two of that name: by fingerprint, then by name.
    rec.run(&["trust", "remove", "amp1"])
        .refused(2, &["2 entries", &amp.fingerprint(), &guest.fingerprint()]);
    rec.run(&["trust", "remove", "nobody"])
        .refused(3, &["no entry", &amp.fingerprint()]);
    rec.run(&["trust", "remove", &guest.fingerprint()])
        .ok()
        .says(&["no longer trusted", "5 seconds"]);
    assert_eq!(rec.read("trusted_peers.toml"), with_amp);
    rec.run(&["trust", "remove", "amp1"]).ok();
    let left = rec.read("trusted_peers.toml");
    assert!(
        left.contains("# the end") && !left.contains("\n[[peer]]"),
        "{left}"
    );
}

#[test]
fn entries_that_end_soon_are_announced() {
    let lab = Lab::new();
    let [amp, rec] = ["amp1", "rec1"].map(|name| Machine::with_key(&lab, name));
    rec.run(&[
        "trust",
        "add",
        "amp1",
        &amp.key(),
        "--not-after",
        "2026-01-31",
    ])
    .ok()
    .says(&["amp1 expired", "2026-01-31"]);
    let list = rec.run(&["trust", "list"]).ok();
    list.says(&["amp1 expired"]);
    assert!(list.stdout.contains("expired"), "{list:?}");
    let status = rec.run(&["security", "status", "--json", "--timeout", "0"]);
    let warnings = status.ok().json()["warnings"].to_string();
    assert!(warnings.contains("amp1 expired"), "{warnings}");
}

#[test]
fn the_common_file_serves_every_machine() {
    let lab = Lab::new();
    let [amp, rec] = Machine::pair(&lab);
    let common = lab.path("common.toml");
    amp.run(&["trust", "export", "-o", &common])
        .ok()
        .says(&["2 devices", "every machine"]);
    amp.run(&["trust", "export", "-o", &common])
        .refused(1, &["nothing is overwritten"]);
    let text = std::fs::read_to_string(&common).unwrap();
    assert_eq!(amp.run(&["trust", "export"]).ok().stdout, text);
    for machine in [&amp, &rec] {
        std::fs::write(machine.file("trusted_peers.toml"), &text).unwrap();
        let list = machine.run(&["trust", "list", "--json"]).ok().json();
        let own = |row: &serde_json::Value| row["this_device"] == true;
        assert_eq!(
            list.as_array()
                .unwrap()
                .iter()
                .filter(|row| own(row))
                .count(),
            1
        );
        assert_eq!(list.as_array().unwrap().len(), 2);
    }
}

#[test]
fn passphrases() {
    let lab = Lab::new();
    let amp = Machine::new(&lab, "amp1");
    amp.run_typing(&["key", "init", "--name", "amp1", "--passphrase"], "\n")
        .refused(2, &["empty passphrase"]);
    amp.run_typing(&["key", "init", "--name", "amp1", "--passphrase"], "one\n")
        .ok()
        .says(&["only `lsl` can ask", "passphrase_file"]);
    let key = |input: &str| amp.run_typing(&["key", "show", "--public"], input);
    let public = key("one\n").ok().stdout;
    key("two\n").refused(1, &["passphrase"]);
    key("").refused(1, &["a passphrase is needed"]);

    // Libraries and programs without somebody to ask say what they need.
    amp.run(&["gen", "--count", "1"])
        .refused(1, &["passphrase_file"]);
    let status = amp.run(&["security", "status", "--timeout", "0"]);
    assert_eq!(status.status, Some(1));
    assert!(status.stdout.contains("passphrase_file"), "{status:?}");

    // Others see neither old nor new one: both come from standard input.
    amp.run_typing(&["key", "passwd"], "one\ntwo\n").ok();
    key("one\n").refused(1, &["passphrase"]);
    assert_eq!(key("two\n").ok().stdout, public);
    assert_eq!(amp.mode("device_key.pem"), 0o600);

    std::fs::write(amp.file("passphrase"), "two\n").unwrap();
    amp.set_mode("passphrase", 0o644);
    amp.configure("passphrase_file = \"\"", "passphrase_file = \"passphrase\"");
    amp.run(&["key", "show"]).refused(1, &["chmod 600"]);
    amp.set_mode("passphrase", 0o600);
    assert_eq!(amp.key(), public.trim());
    amp.run(&["gen", "--rate", "1000", "--count", "1"]).ok();

    amp.run(&["key", "passwd", "--remove"])
        .ok()
        .says(&["no passphrase any more"]);
    amp.configure("passphrase_file = \"passphrase\"", "passphrase_file = \"\"");
    assert_eq!(amp.key(), public.trim());
    amp.run(&["key", "passwd", "--remove"])
        .refused(2, &["has no passphrase"]);
}

#[test]
fn the_next_key_waits_beside_the_present_one() {
    let lab = Lab::new();
    let amp = Machine::with_key(&lab, "amp1");
    let (before, key) = (amp.read("device_key.pem"), amp.key());
    let made = amp.run(&["key", "init", "--next"]).ok().stdout;
    assert_eq!(amp.mode("device_key_next.pem"), 0o600);
    assert_eq!(amp.read("device_key.pem"), before);
    assert!(
        made.contains(&format!("lsl trust remove {}", amp.fingerprint())),
        "{made}"
    );
    let line = made
        .lines()
        .find(|line| line.contains("lsl trust add"))
        .unwrap();
    let next = line.split_whitespace().last().unwrap().to_owned();
    assert_ne!(next, key);
    amp.run(&["key", "init", "--next"])
        .refused(1, &["device_key_next.pem", "never overwritten"]);

    std::fs::rename(amp.file("device_key_next.pem"), amp.file("device_key.pem")).unwrap();
    assert_eq!(amp.key(), next);
}

#[test]
fn the_shared_key_of_the_lab() {
    let lab = Lab::new();
    let amp = Machine::with_key(&lab, "amp1");
    let made = amp.run(&["key", "psk"]).ok().stdout;
    assert_eq!(amp.mode("lab.psk"), 0o600);
    let setting = "psk_file = \"lab.psk\"";
    assert!(
        made.contains(setting) && made.contains("every machine"),
        "{made}"
    );
    let line = made.lines().find(|line| line.contains(setting)).unwrap();
    let number: usize = line
        .trim()
        .strip_prefix("line ")
        .and_then(|rest| rest.split(':').next()?.parse().ok())
        .unwrap();
    let text = amp.read("lsl-secure.toml");
    assert_eq!(text.lines().nth(number - 1), Some("psk_file = \"\""));
    amp.run(&["key", "psk"])
        .refused(1, &["lab.psk", "never overwritten"]);
    amp.configure("psk_file = \"\"", setting);
    amp.run(&["key", "psk"]).refused(1, &["already names"]);
    let report = amp.run(&["security", "status", "--json", "--timeout", "0"]);
    assert_eq!(report.ok().json()["psk"], true);
}

#[test]
fn where_nothing_is_set_up_commands_say_how() {
    let lab = Lab::new();
    let amp = Machine::new(&lab, "amp1");
    for command in [&["key", "show"][..], &["trust", "list"], &["key", "psk"]] {
        amp.run(command)
            .refused(1, &["lsl key init --name", "amp1/lsl_api/lsl-secure.toml"]);
    }
    amp.run(&["trust", "check"]).refused(1, &["lsl key init"]);
    let status = amp.run(&["security", "status", "--timeout", "0"]).ok();
    assert!(
        status.stdout.contains("off: nothing is encrypted"),
        "{status:?}"
    );
    assert!(status.stdout.contains("lsl key init"), "{status:?}");
}

#[test]
fn a_policy_left_off_is_not_forgotten() {
    let lab = Lab::new();
    let amp = Machine::with_key(&lab, "amp1");
    amp.configure("policy = \"required\"", "policy = \"off\"");
    let status = amp.run(&["security", "status", "--timeout", "0"]).ok();
    assert!(
        status.stdout.contains("WARNING: policy = \"off\" although"),
        "{status:?}"
    );
    amp.run(&["gen", "--rate", "1000", "--count", "1"])
        .ok()
        .says(&["has a key", "\"off\""]);
}

#[test]
fn commands_at_the_same_time_do_not_undo_each_other() {
    let lab = Lab::new();
    let amp = Machine::with_key(&lab, "amp1");
    let names = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let keys = names.map(|name| Machine::with_key(&lab, name).key());
    let running: Vec<_> = names
        .iter()
        .zip(&keys)
        .map(|(name, key)| amp.start(&["trust", "add", name, key]))
        .collect();
    let ended: Vec<_> = running.into_iter().map(Running::wait).collect();
    let listed = amp.run(&["trust", "list"]).ok().stdout;
    for (key, ended) in keys.iter().zip(&ended) {
        let there = amp.read("trusted_peers.toml").contains(key);
        // Whoever comes second may have to try again, but is told so.
        assert_eq!(there, ended.status == Some(0), "{ended:?}\n{listed}");
        if !there {
            ended.says(&["somebody else changed it just now; run the command again"]);
        }
    }
}

#[cfg(unix)]
#[test]
fn an_exported_file_is_accepted_whatever_the_umask() {
    let lab = Lab::new();
    let amp = Machine::with_key(&lab, "amp1");
    let line = r#"umask 002; exec "$0" trust export -o ../common.toml"#;
    let status = std::process::Command::new("sh")
        .args(["-c", line, env!("CARGO_BIN_EXE_lsl")])
        .current_dir(amp.file(""))
        .env("HOME", lab.path("amp1"))
        .env_remove("LSL_SECURE_CONFIG")
        .status();
    assert!(status.unwrap().success());
    std::fs::rename(amp.file("../common.toml"), amp.file("trusted_peers.toml")).unwrap();
    amp.run(&["trust", "list"]).ok();
}

#[test]
fn why_migrate_acts_as_required_is_told_rightly() {
    let lab = Lab::new();
    let amp = Machine::with_key(&lab, "amp1");
    amp.configure(
        "policy = \"required\"",
        "policy = \"migrate\"\nmigrate_until = \"2099-12-31\"",
    );
    let status = || {
        amp.run(&["security", "status", "--timeout", "0"])
            .ok()
            .stdout
    };
    assert!(status().contains("until 2099-12-31"));
    amp.set_mode("known_secure", 0o644);
    let told = status();
    assert!(
        told.contains("known_secure") && !told.contains("is over"),
        "{told}"
    );
    amp.set_mode("known_secure", 0o600);
    amp.configure("2099-12-31", "2026-01-31");
    assert!(status().contains("migrate_until is over"));
}
