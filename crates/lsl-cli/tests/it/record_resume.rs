//! Names under which there is a recording already: one without its end, or one that goes on.

use std::path::Path;

use lsl_xdf::at_rest::KeyPair;

use crate::lab::Lab;
use crate::record::{
    Verdict, generate, nothing_is_missing, read, start, stream, until, until_recording,
};

/// A recording whose recorder was killed.
fn kill_one(lab: &Lab, path: &str, more: &[&str]) {
    let recorder = start(lab, &[&["Amp", "-o", path, "--sync", "0.2"], more].concat());
    let bytes = if more.is_empty() { 8_000 } else { 0 };
    until_recording(path, bytes);
    // The first thing to follow.
    until("journal", || Path::new(&format!("{path}.lslj")).exists());
    recorder.kill();
}

#[test]
fn a_recording_without_its_end_is_repaired_when_wished() {
    let lab = Lab::new();
    let _generator = lab.start(&generate("Amp", &[]));
    let path = lab.path("run.xdf");
    let again = ["Amp", "-o", &path, "--duration", "0.3"];
    kill_one(&lab, &path, &[]);
    let told = start(&lab, &again).wait();
    let old = lab.path("run_old1.xdf");
    let command = format!("lsl xdf repair {old}");
    told.with(0, &["is now", "was not finished", &command]);
    read(&path);
    assert!(Path::new(&format!("{old}.lslj")).exists());
    let words: Vec<&str> = command.split(' ').skip(1).collect();
    lab.run(&words).ok();
    nothing_is_missing(stream(&read(&old), "Amp"));

    std::fs::remove_file(&path).unwrap();
    kill_one(&lab, &path, &[]);
    let ended = start(&lab, &[&again[..], &["--resume"]].concat()).wait();
    let ended = ended.with(
        0,
        &["not finished; repairing", "whole again", "run_old2.xdf"],
    );
    assert!(!ended.stderr.contains("lsl xdf repair"), "{ended:?}");
    nothing_is_missing(stream(&read(&lab.path("run_old2.xdf")), "Amp"));
    nothing_is_missing(stream(&read(&path), "Amp"));
    // What has its end is nobody's business.
    let ended = start(&lab, &[&again[..], &["--resume"]].concat()).wait();
    assert!(!ended.ok().stderr.contains("finished"));
}

#[test]
fn what_a_crash_left_under_another_name_is_found_too() {
    let lab = Lab::new();
    let _generator = lab.start(&generate("Amp", &[]));
    let (crashed, next) = (lab.path("run-1.xdf"), lab.path("run-2.xdf"));
    kill_one(&lab, &crashed, &[]);
    let again = ["Amp", "-o", &next, "--duration", "0.3"];
    let command = format!("lsl xdf repair {crashed}");
    let told = start(&lab, &again).wait();
    told.with(0, &["was not finished", &command]);
    let repaired = start(&lab, &[&again[..], &["--resume"]].concat()).wait();
    repaired.with(0, &["not finished; repairing", "whole again"]);
    nothing_is_missing(stream(&read(&crashed), "Amp"));
    assert!(!start(&lab, &again).wait().ok().stderr.contains("finished"));
}

#[test]
fn an_encrypted_one_needs_its_key() {
    let lab = Lab::new();
    let pair = KeyPair::generate();
    let _generator = lab.start(&generate("Amp", &[]));
    let path = lab.path("run.xdf.age");
    kill_one(&lab, &path, &["-r", &pair.recipient]);
    let words = [
        "Amp",
        "-o",
        &path,
        "-r",
        &pair.recipient,
        "--duration",
        "0.3",
    ];
    start(&lab, &[&words[..], &["--resume"]].concat())
        .wait()
        .with(
            0,
            &[
                "run_old1.xdf.age",
                "was not finished",
                "lsl xdf repair -i KEY",
            ],
        );
    assert!(Path::new(&lab.path("run_old1.xdf.age.lslj")).exists());
    assert!(!Path::new(&format!("{path}.lslj")).exists());
}

#[test]
fn a_file_that_is_being_recorded_is_left_alone() {
    let lab = Lab::new();
    let _generator = lab.start(&generate("Amp", &["--wait"]));
    let path = lab.path("run.xdf");
    let recorder = start(&lab, &["Amp", "-o", &path]);
    until_recording(&path, 8_000);
    start(&lab, &["Amp", "-o", &path, "--resume"])
        .wait()
        .with(2, &["is being recorded"]);
    let repaired = lab.run(&["xdf", "repair", &path]);
    assert!(
        repaired.stderr.contains("is being recorded"),
        "{repaired:?}"
    );
    recorder.interrupt();
    recorder.wait().ok();
    assert_eq!(nothing_is_missing(stream(&read(&path), "Amp"))[0], 0);
}
