//! A4: a file that asks for encryption in Secure LSL's way stops all streams (E7), until `lsl config migrate`
//! or the user says otherwise.

use std::path::Path;
use std::process::{Command, Stdio};

use lsl_platform::remedy;
use serde_json::json;

use crate::lab::{Ended, Lab, Running};
use crate::machine::{Machine, is_said};

const ON: &str = "[lab]\nSessionID = lab3\n\n[security]\nenabled = true\nprivate_key = c2VjcmV0\n";

/// A command on a machine that finds its files by itself. Nothing here may reach a socket.
fn run(machine: &Machine<'_>, arguments: &[&str]) -> Ended {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lsl"));
    let home = machine.lab.path(machine.name);
    command
        .args(arguments)
        .current_dir(&home)
        .env("HOME", &home)
        .env("USERPROFILE", &home)
        .env_remove("LSL_SECURE_CONFIG")
        .env_remove("LSLAPICFG")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    Running::start(&mut command).wait()
}

/// A machine with one file of settings.
fn machine<'a>(lab: &'a Lab, name: &'static str, file: &str, text: &str) -> Machine<'a> {
    let path = format!("{name}/{file}");
    std::fs::create_dir_all(Path::new(&lab.path(&path)).parent().unwrap()).unwrap();
    lab.write(&path, text);
    Machine::new(lab, name)
}

const STATUS: [&str; 4] = ["security", "status", "--timeout", "0"];

#[test]
fn a_foreign_switch_stops_every_stream() {
    let lab = Lab::new();
    for (name, file, text, line) in [
        ("theirs", ".lsl_api/lsl_api.cfg", ON, ", line 5"),
        ("empty", ".lsl_api/lsl_api.cfg", "", ""),
        ("home", "lsl_api/lsl_api.cfg", ON, ", line 5"),
        ("here", "lsl_api.cfg", ON, ", line 5"),
        (
            "broken",
            "lsl_api.cfg",
            "[lab\n[security]\nenabled = 1\n",
            ", line 3",
        ),
    ] {
        let machine = machine(&lab, name, file, text);
        let e7 = format!(
            "{}{line} asks for encryption ([security])",
            lab.path(&format!("{name}/{file}"))
        );
        let words = [
            &*e7,
            "lsl config migrate",
            "policy = \"off\" in lsl-secure.toml",
        ];
        run(&machine, &["gen", "--duration", "0.1"]).refused(1, &words);
        let file = lab.path("never.xdf");
        run(&machine, &["record", "-o", &file, "--duration", "0.1"]).refused(5, &words);
        let status = run(&machine, &STATUS);
        assert_eq!(status.status, Some(1), "{status:?}");
        assert!(
            is_said(&status.stdout, &format!("ERROR: {e7}")),
            "{status:?}"
        );
        let check = run(&machine, &["config", "check"]);
        assert_eq!(check.status, Some(1), "{check:?}");
        assert!(is_said(&check.stdout, &format!("error: {e7}")), "{check:?}");
        // Files have nothing to do with it, but their commands say so.
        run(&machine, &["xdf", "info", "none.xdf"]).says(&[&e7]);
        // Nothing leaves a loopback context.
        machine.run(&["gen", "--duration", "0.1"]).ok();
        let json = run(
            &machine,
            &["security", "status", "--timeout", "0", "--json"],
        )
        .json();
        assert_eq!(json["policy"], json!(null), "{json}");
        // No value of foreign settings shows up anywhere.
        for ended in [status, check] {
            assert!(!format!("{ended:?}").contains("c2VjcmV0"), "{ended:?}");
        }
    }
}

#[test]
fn who_says_no_or_has_a_configuration_of_ours_streams() {
    let lab = Lab::new();
    for (name, value) in [
        ("a", "false"),
        ("b", "0"),
        ("c", "No"),
        ("d", "off ; for now"),
    ] {
        let text = format!("[security]\nenabled = {value}\nprivate_key = x\n");
        let machine = machine(&lab, name, ".lsl_api/lsl_api.cfg", &text);
        let status = run(&machine, &STATUS).ok();
        assert!(status.stdout.contains("policy        off"), "{status:?}");
        run(&machine, &["config", "check"]).ok();
    }
    let machine = machine(&lab, "ours", ".lsl_api/lsl_api.cfg", ON);
    machine.run(&["key", "init", "--name", "ours"]).ok();
    let status = run(&machine, &STATUS).ok();
    assert!(
        status.stdout.contains("policy        required"),
        "{status:?}"
    );
    machine.configure("policy = \"required\"", "policy = \"off\"");
    run(&machine, &STATUS).ok();
    let check = run(&machine, &["config", "check"]).ok();
    assert!(!check.stdout.contains("asks for encryption"), "{check:?}");
}

#[test]
fn migrate_copies_the_settings_and_makes_a_new_key() {
    let lab = Lab::new();
    let machine = machine(&lab, "amp1", ".lsl_api/lsl_api.cfg", ON);
    let theirs = lab.path("amp1/.lsl_api/lsl_api.cfg");
    let dry = run(
        &machine,
        &["config", "migrate", "--dry-run", "--name", "amp1"],
    )
    .ok();
    assert!(
        dry.stdout.contains("[security] with enabled, private_key"),
        "{dry:?}"
    );
    assert!(dry.stdout.contains("Nothing was changed"), "{dry:?}");
    assert!(!machine.file("").exists(), "{dry:?}");
    let dry = run(&machine, &["config", "migrate", "--dry-run", "--json"])
        .ok()
        .json();
    assert_eq!(dry["keys"], json!(["enabled", "private_key"]));
    assert_eq!(
        (&dry["settings"], &dry["fingerprint"]),
        (&json!("copied"), &json!(null))
    );

    let done = run(&machine, &["config", "migrate", "--name", "amp1"]).ok();
    for part in [
        &*format!("found         {theirs}"),
        &format!("lsl trust add amp1 {}", machine.key()),
        &remedy::remove(theirs.as_ref()),
        "move all devices in one go",
    ] {
        assert!(is_said(&done.stdout, part), "{part} in {done:?}");
    }
    assert!(!done.stdout.contains("c2VjcmV0"), "{done:?}");
    assert_eq!(machine.read("lsl_api.cfg"), "[lab]\nSessionID = lab3\n\n");
    assert_eq!(
        std::fs::read_to_string(&theirs).unwrap(),
        ON,
        "the old file stays"
    );
    let status = run(&machine, &STATUS).ok();
    assert!(
        status.stdout.contains("policy        required"),
        "{status:?}"
    );
    let again = run(&machine, &["config", "migrate"]).ok();
    assert_eq!(again.stdout, "nothing to migrate\n");
    let again = run(&machine, &["config", "migrate", "--json"]).ok().json();
    assert_eq!(again["file"], json!(null));
}

#[test]
fn migrate_never_overwrites_settings() {
    let lab = Lab::new();
    let own = "[lab]\nSessionID = mine\n";
    let machine = machine(&lab, "amp1", "lsl_api/lsl_api.cfg", own);
    let old = lab.write("old.cfg", ON);
    let done = run(&machine, &["config", "migrate", "--from", &old]).ok();
    assert!(
        done.stdout.contains("lab.SessionID = lab3, not mine"),
        "{done:?}"
    );
    assert_eq!(machine.read("lsl_api.cfg"), own);
    assert!(machine.file("lsl-secure.toml").exists());
}

#[cfg(unix)]
#[test]
fn migrate_in_place_leaves_the_file_and_says_how_to_clean_it() {
    let lab = Lab::new();
    let text = "security.key = x\n[security]\nenabled = true\n[lab]\nSessionID = lab3\n";
    let machine = machine(&lab, "amp1", "lsl_api/lsl_api.cfg", text);
    let done = run(&machine, &["config", "migrate", "--json"]).ok().json();
    assert_eq!(done["settings"], "in_place");
    assert_eq!(machine.read("lsl_api.cfg"), text);
    let remove = done["remove"].as_str().unwrap();
    let status = Command::new("sh").args(["-c", remove]).status().unwrap();
    assert!(status.success(), "{remove}");
    assert_eq!(machine.read("lsl_api.cfg"), "[lab]\nSessionID = lab3\n");
}

#[test]
fn migrate_refuses_what_it_cannot_do_whole() {
    let lab = Lab::new();
    let empty = machine(&lab, "none", "x", "");
    let nothing = run(&empty, &["config", "migrate"]).ok();
    assert_eq!(nothing.stdout, "nothing to migrate\n");
    run(&empty, &["config", "migrate", "--from", "absent.cfg"]).refused(1, &["absent.cfg"]);
    let broken = machine(
        &lab,
        "broken",
        "lsl_api.cfg",
        "[lab\n[security]\nenabled = 1\n",
    );
    run(&broken, &["config", "migrate"]).refused(1, &["line 1", "correct this line"]);
    assert!(!broken.file("lsl-secure.toml").exists());
    let half = machine(&lab, "half", ".lsl_api/lsl_api.cfg", ON);
    std::fs::create_dir_all(half.file("")).unwrap();
    std::fs::write(half.file("device_key.pem"), "").unwrap();
    run(&half, &["config", "migrate"]).refused(1, &["device_key.pem"]);
    assert!(!half.file("lsl_api.cfg").exists());
}

/// Only a file of Secure LSL asks for encryption by being there; `--config` names settings.
#[test]
fn settings_without_a_request_leave_nothing_to_migrate() {
    let lab = Lab::new();
    let machine = machine(&lab, "amp1", "x", "");
    let plain = lab.write("plain.cfg", "[lab]\nSessionID = lab3\n");
    let migrate = |options: &[&str]| run(&machine, &[options, &["config", "migrate"]].concat());
    let nothing = migrate(&["--config", &plain]).ok();
    assert_eq!(nothing.stdout, "nothing to migrate\n");
    assert!(!machine.file("").exists(), "{nothing:?}");
    let asking = lab.write("asking.cfg", ON);
    let done = migrate(&["--config", &asking]).ok();
    assert!(done.stdout.contains("enabled, private_key"), "{done:?}");
    assert!(machine.file("lsl-secure.toml").exists());
    let other = Machine::new(&lab, "amp2");
    std::fs::create_dir_all(lab.path("amp2")).unwrap();
    run(&other, &["config", "migrate", "--from", &plain]).ok();
    assert!(other.file("lsl-secure.toml").exists());
}

/// B8: a key is not made where others could replace it.
#[test]
fn a_directory_that_others_may_write_to_is_refused_before_anything_is_made() {
    let lab = Lab::new();
    let machine = Machine::new(&lab, "amp1");
    std::fs::create_dir_all(machine.file("")).unwrap();
    machine.set_mode("", 0o775);
    let words = ["mode 0775", "chmod go-w", "lsl_api"];
    machine.run(&["key", "init"]).refused(1, &words);
    assert!(!machine.file("device_key.pem").exists());
    machine.set_mode("", 0o755);
    machine.run(&["key", "init"]).ok();
    machine.set_mode("", 0o775);
    machine
        .run(&["gen", "--duration", "0.1"])
        .refused(1, &words);
}
