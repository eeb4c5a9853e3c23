//! `lsl doctor` on loopback: words, statuses and the form of its answers. What it finds in networks is shown by
//! `cargo xtask labs`.

use serde_json::json;

use crate::lab::Lab;

fn check(lab: &Lab, words: &[&str], status: i32, part: &str) {
    let ended = lab.run(&[&["doctor"], words].concat());
    assert_eq!(ended.status, Some(status), "{words:?}: {ended:?}");
    assert!(
        ended.stdout.contains(part),
        "{words:?}: {part} in {ended:?}"
    );
}

#[test]
fn a_stream_is_there_or_nearly_there() {
    let lab = Lab::new();
    let _generator = lab.start(&["gen", "--name", "Amp", "--type", "EEG"]);
    lab.run(&["info", "Amp"]).ok();
    check(&lab, &["Amp"], 0, "Nothing is wrong here.");
    check(&lab, &["--local"], 0, "Nothing is wrong here.");
    check(&lab, &["type='eeg'"], 1, "lsl info type=EEG");
    let ended = lab.run(&["doctor", "Amp", "Gaze"]);
    assert_eq!(ended.status, Some(2), "{ended:?}");
}

#[test]
fn a_stream_that_is_nowhere_has_no_cause() {
    let lab = Lab::new();
    let part = "the stream named 'Gaze' is not found";
    check(&lab, &["Gaze", "--all"], 3, part);
}

#[test]
fn a_stream_that_is_named_is_opened_and_read() {
    let lab = Lab::new();
    let _generator = lab.start(&["gen", "--name", "Amp"]);
    lab.run(&["info", "Amp"]).ok();
    let report = lab.run(&["doctor", "--json", "Amp"]).ok().json();
    let probed = &report["observations"]["probed"][0];
    assert_eq!(
        (&probed["name"], &probed["opened"]),
        (&json!("Amp"), &json!("yes"))
    );
    assert!(probed["fed"]["samples"].as_u64() > Some(20), "{probed}");
    assert!(probed["fed"]["clock"]["seconds"].is_f64(), "{probed}");
}

#[test]
fn json_is_one_object() {
    let lab = Lab::new();
    let ended = lab.run(&["doctor", "--json", "--local"]);
    let report = ended.ok().json();
    assert_eq!(
        (&report["v"], &report["healthy"]),
        (&json!(1), &json!(true))
    );
    let checks = report["checks"].as_array().unwrap();
    let state = |id: &str| {
        let check = checks.iter().find(|it| it["id"] == id);
        check.unwrap_or_else(|| panic!("{id} in {report}"))["state"].clone()
    };
    assert_eq!(state("cfg.file"), "ok");
    assert_eq!(state("wave"), "skipped");
}

#[test]
fn encryption_that_cannot_be_used_is_a_cause() {
    let lab = Lab::new();
    let path = lab.write("lsl-secure.toml", "policy = 7\n");
    let mut command = lab.command(&["doctor", "Amp"]);
    command.env("LSL_SECURE_CONFIG", path);
    let ended = crate::lab::Running::start(&mut command).wait();
    assert_eq!(ended.status, Some(1), "{ended:?}");
    assert!(ended.stdout.contains("FAULT cfg.secure"), "{ended:?}");
}

#[test]
fn a_code_that_is_mistyped_is_told() {
    let lab = Lab::new();
    for (words, part) in [
        (
            &["127.0.0.1", "--code", "4000-0000-0000-0JJQ"][..],
            "compare it with the other screen",
        ),
        (&["--code", "4000-0000-0000-0JJP"], "<STREAM|HOST>"),
        (
            &["Amp", "--code", "4000-0000-0000-0JJP"],
            "name the one host",
        ),
        (
            &["10.1.0.0/22", "--code", "4000-0000-0000-0JJP"],
            "name the one host",
        ),
        (&["serve", "no.such.host.invalid"], "has no address"),
        (&["serve", "10.1.0.0/22"], "is a network"),
    ] {
        let ended = lab.run(&[&["doctor"], words].concat());
        assert!(matches!(ended.status, Some(2 | 3)), "{words:?}: {ended:?}");
        assert!(
            ended.stderr.contains(part),
            "{words:?}: {part} in {ended:?}"
        );
    }
    let typed = "4000 0000 0000 ojjp";
    let ended = lab.run(&["doctor", "127.0.0.1", "--code", typed, "--local"]);
    assert_eq!(ended.status, Some(3), "{ended:?}");
    let told = "127.0.0.1 has heard no doctor.";
    assert!(ended.stdout.contains(told), "{ended:?}");
}

/// What must not be sent to anybody is nowhere in a report.
#[test]
fn a_report_has_no_secrets() {
    let lab = Lab::new();
    let home = lab.path("keys");
    lab.run(&["key", "init", "--dir", &home, "--name", "wardkey"])
        .ok();
    let read = |name: &str| std::fs::read_to_string(format!("{home}/{name}")).unwrap();
    let migrate = "policy = \"migrate\"\nmigrate_until = \"2099-12-31\"\n";
    let policy = read("lsl-secure.toml").replace("policy = \"required\"\n", migrate);
    std::fs::write(format!("{home}/lsl-secure.toml"), policy).unwrap();
    let file = lab.path("report.json");
    let _generator = lab.start(&["gen", "--name", "PatientMeyer", "--source-id", "bed-4711"]);
    lab.run(&["info", "PatientMeyer"]).ok();
    let mut command = lab.command(&["doctor", "PatientMeyer", "--report", &file]);
    command.env("LSL_SECURE_CONFIG", format!("{home}/lsl-secure.toml"));
    command.env("USER", "doctormeyer");
    crate::lab::Running::start(&mut command).wait().ok();
    let text = std::fs::read_to_string(&file).unwrap();
    let report: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(report["observations"]["probed"][0]["name"], "stream-1");
    assert!(report["surroundings"]["kernel"].is_string() || cfg!(not(target_os = "linux")));
    assert!(report["log"].as_array().is_some_and(|it| !it.is_empty()));
    let key = read("device_key.pem");
    let key = key.lines().nth(1).unwrap();
    let hostname = lsl_platform::process::hostname();
    let hostname = String::from_utf8_lossy(&hostname);
    for secret in [
        "PatientMeyer",
        "bed-4711",
        "wardkey",
        key,
        "lsl-ed25519:",
        "PRIVATE",
        "doctormeyer",
    ] {
        assert!(!text.contains(secret), "{secret} in {text}");
    }
    assert!(
        !text.contains(&format!("\"{hostname}\"")),
        "{hostname} in {text}"
    );
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        let mode = std::fs::metadata(&file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
    // An older one is evidence, too.
    let again = lab.run(&["doctor", "--local", "--report", &file]);
    assert_eq!(again.status, Some(1), "{again:?}");
}
