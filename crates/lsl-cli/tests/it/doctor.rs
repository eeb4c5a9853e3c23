//! `lsl doctor` on loopback: words, statuses and the form of its answers. What it finds in networks is shown by
//! `cargo xtask labs`.

use serde_json::json;

use crate::lab::Lab;

#[test]
fn a_stream_is_there_nearly_there_or_not() {
    let lab = Lab::new();
    let _generator = lab.start(&["gen", "--name", "Amp", "--type", "EEG"]);
    lab.run(&["info", "Amp"]).ok();
    let check = |words: &[&str], status: i32, part: &str| {
        let ended = lab.run(&[&["doctor"], words].concat());
        assert_eq!(ended.status, Some(status), "{words:?}: {ended:?}");
        assert!(
            ended.stdout.contains(part),
            "{words:?}: {part} in {ended:?}"
        );
    };
    check(&["Amp"], 0, "Nothing is wrong here.");
    check(&["--local"], 0, "Nothing is wrong here.");
    check(&["type='eeg'"], 1, "lsl info type=EEG");
    check(
        &["Gaze", "--all"],
        3,
        "the stream named 'Gaze' is not found",
    );
    let ended = lab.run(&["doctor", "Amp", "Gaze"]);
    assert_eq!(ended.status, Some(2), "{ended:?}");
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
