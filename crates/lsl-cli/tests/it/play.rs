//! `lsl play`: what was recorded arrives again, equal and in time.

use std::fs;

use serde_json::{Value, json};

use crate::lab::{Ended, Lab};
use crate::recordings::{RATE, SAMPLES, SECRET, find, marker_stamp, value, whole};

/// Receives both streams of a recording while it plays.
fn received(lab: &Lab, arguments: &[&str], samples: usize) -> (Ended, Vec<Value>, Vec<Value>) {
    let play = lab.start(&[&["play", "--wait"], arguments].concat());
    let count = samples.to_string();
    let eeg = lab.start(&["recv", "Amp", "-o", "jsonl", "--count", &count]);
    let markers = lab.start(&["recv", "Markers", "-o", "jsonl", "--count", "3"]);
    let (eeg, markers) = (eeg.wait().ok(), markers.wait().ok());
    (play.wait().ok(), eeg.json_lines(), markers.json_lines())
}

fn stamps(lines: &[Value]) -> Vec<f64> {
    lines
        .iter()
        .map(|line| line["t"].as_f64().unwrap())
        .collect()
}

#[expect(clippy::cast_precision_loss, reason = "small numbers")]
fn check(eeg: &[Value], markers: &[Value], speed: f64) {
    let values: Vec<Value> = eeg.iter().map(|line| line["v"].clone()).collect();
    let expected: Vec<Value> = (0..SAMPLES)
        .map(|n| json!([value(n, 0), value(n, 1)]))
        .collect();
    assert_eq!(values, expected);
    let eeg = stamps(eeg);
    for (n, stamp) in eeg.iter().enumerate() {
        let since = n as f64 / RATE / speed;
        assert!((stamp - eeg[0] - since).abs() < 1e-6, "{n}: {stamp}");
    }
    // Markers were stamped by another clock, and stand where they stood between the samples.
    for (index, line) in markers.iter().enumerate() {
        let part = 2 * index + 1;
        assert_eq!(line["v"], json!([format!("{SECRET}, part {part}")]));
        let since = ((part * 50 + 25) as f64 / RATE + 0.001) / speed;
        let found = line["t"].as_f64().unwrap() - eeg[0];
        assert!((found - since).abs() < 1e-6, "{found} {since}");
    }
}

#[test]
fn a_recording_arrives_as_it_was() {
    let lab = Lab::new();
    let path = lab.path("a.xdf");
    fs::write(&path, whole()).unwrap();
    let (played, eeg, markers) = received(&lab, &[&path], SAMPLES);
    check(&eeg, &markers, 1.0);
    assert!(
        played.stderr.contains("Played 303 samples of 2 streams"),
        "{played:?}"
    );
}

#[test]
fn an_encrypted_one_at_another_speed() {
    let lab = Lab::new();
    let key = lab.path("key.txt");
    let public = lab.run(&["key", "age", &key]).ok().stdout;
    let path = lab.path("a.xdf");
    fs::write(&path, whole()).unwrap();
    lab.run(&["lock", "--remove", "-r", public.trim(), &path])
        .ok();
    let path = format!("{path}.age");
    let arguments = ["--speed", "4", "--identity", &key, &path];
    let (_, eeg, markers) = received(&lab, &arguments, SAMPLES);
    check(&eeg, &markers, 4.0);
}

#[cfg(unix)]
#[test]
fn one_stream_from_the_middle_again_and_again() {
    let lab = Lab::new();
    let path = lab.path("a.xdf");
    // As a crash left it: playing needs no repair.
    fs::write(&path, crate::recordings::cut()).unwrap();
    let whole = lab.run(&["xdf", "info", "--json", &path]).ok().json();
    let there = usize::try_from(whole["streams"][0]["samples"].as_u64().unwrap()).unwrap();
    let play = lab.start(&[
        "play",
        "--wait",
        "--loop",
        "--start",
        "0.1",
        "--streams",
        "Amp",
        &path,
    ]);
    let round = there - 50;
    let count = (2 * round).to_string();
    let eeg = lab
        .run(&["recv", "Amp", "-o", "jsonl", "--count", &count])
        .ok();
    play.interrupt();
    let played = play.wait().ok();
    assert!(played.stderr.contains("of 1 stream"), "{played:?}");
    let lines = eeg.json_lines();
    for (n, line) in lines.iter().enumerate() {
        let sample = 50 + n % round;
        assert_eq!(
            line["v"],
            json!([value(sample, 0), value(sample, 1)]),
            "{n}"
        );
    }
    let stamps = stamps(&lines);
    for pair in stamps.windows(2) {
        assert!((pair[1] - pair[0] - 1.0 / RATE).abs() < 1e-6, "{pair:?}");
    }
}

#[test]
fn a_garbage_timestamp_holds_nothing_up() {
    let lab = Lab::new();
    let path = lab.path("a.xdf");
    let mut bytes = whole();
    // The first marker, which would come long before all, and the last one, which would never come.
    let stamps: Vec<usize> = (0..3)
        .map(|part| {
            let stamp = marker_stamp(2 * part + 1);
            find(&bytes, &stamp.to_le_bytes())[0]
        })
        .collect();
    bytes[stamps[0]..stamps[0] + 8].copy_from_slice(&0.5_f64.to_le_bytes());
    bytes[stamps[2]..stamps[2] + 8].copy_from_slice(&1e9_f64.to_le_bytes());
    fs::write(&path, bytes).unwrap();
    let (played, eeg, markers) = received(&lab, &[&path], SAMPLES);
    assert_eq!((eeg.len(), markers.len()), (SAMPLES, 3));
    assert!(
        played
            .stderr
            .contains("2 samples of stream 2 'Markers' lie minutes away"),
        "{played:?}"
    );
}

#[test]
fn what_cannot_be_played_is_told() {
    let lab = Lab::new();
    let path = lab.path("a.xdf");
    fs::write(&path, whole()).unwrap();
    let check = |arguments: &[&str], status, part: &str| {
        let ended = lab.run(&[&["play", &path], arguments].concat());
        assert_eq!(ended.status, Some(status), "{ended:?}");
        assert!(ended.stderr.contains(part), "{ended:?}");
    };
    check(&["--streams", "Nobody"], 3, "no stream 'Nobody'");
    check(&["--start", "100"], 2, "behind its end");
    check(&["--speed", "0"], 2, "between");
}
