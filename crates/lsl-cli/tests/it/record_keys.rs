//! Whose key a recorded stream has: another one does not take over within a recording, however well it
//! is trusted, unless that was asked for.

use std::fs::File;

use lsl_xdf::Loaded;

use crate::lab::{Lab, Running};
use crate::machine::Machine;
use crate::record::{counters, generate, read, stream, until, until_recording};

/// Two amplifiers with keys of their own, and a recorder that trusts both.
fn machines(lab: &Lab) -> [Machine<'_>; 3] {
    let [amp, rec] = Machine::pair(lab);
    let spare = Machine::with_key(lab, "spare");
    spare
        .run(&["trust", "add", "rec1", &rec.key(), "--role", "inlet"])
        .ok();
    rec.run(&["trust", "add", "spare", &spare.key(), "--role", "outlet"])
        .ok();
    [amp, spare, rec]
}

/// What the footer says of keys.
fn key_changes(loaded: &Loaded) -> String {
    let footer = stream(loaded, "Amp").footer.as_ref().unwrap();
    footer.get("key_changes").unwrap_or_default().into_owned()
}

/// Each sender counts from 0.
fn senders(loaded: &Loaded) -> usize {
    let numbers = counters(stream(loaded, "Amp"));
    1 + numbers.windows(2).filter(|pair| pair[1] < pair[0]).count()
}

/// Records with standard error in a file, which is read while it is written.
fn record(rec: &Machine<'_>, path: &str, more: &[&str]) -> Running {
    let words = ["record", "Amp", "-o", path];
    let mut command = rec.lab.command_on(rec.name, &[&words, more].concat());
    command.stderr(File::create(format!("{path}.told")).unwrap());
    Running::start(&mut command)
}

fn told(path: &str) -> String {
    std::fs::read_to_string(format!("{path}.told")).unwrap()
}

#[test]
fn key_swap_a_second_trusted_key_does_not_take_over_a_recorded_stream() {
    let lab = Lab::new();
    let [amp, spare, rec] = machines(&lab);
    let sender = amp.start(&generate("Amp", &[]));
    let path = lab.path("swap.xdf");
    let recorder = record(&rec, &path, &[]);
    until_recording(&path, 20_000);
    sender.kill();
    // The same stream by everything that discovery says, from another trusted device.
    let impostor = spare.start(&generate("Amp", &[]));
    let size = || std::fs::metadata(&path).unwrap().len();
    let before = size();
    until("refusal", || {
        assert!(size() < before + 20_000, "the impostor is recorded");
        told(&path).contains("'Amp' cannot be read")
    });
    // The first one returns beside it, and goes on.
    let back = amp.start(&generate("Amp", &[]));
    until_recording(&path, before + 20_000);
    recorder.interrupt();
    assert_eq!(recorder.wait().status, Some(0), "{}", told(&path));
    drop((impostor, back));
    let (key, other) = (amp.fingerprint(), spare.fingerprint());
    let told = told(&path);
    for part in [&*other, &*key, "another one than before", "'Amp' is back"] {
        assert!(told.contains(part), "{part} in {told}");
    }
    let loaded = read(&path);
    assert_eq!(senders(&loaded), 2, "the first one, twice");
    let noted = key_changes(&loaded);
    let expected = format!("refused spare {other} in place of {key} at ");
    assert!(noted.starts_with(&expected), "{noted}");
}

#[test]
fn key_swap_is_allowed_to_who_asks_for_it_and_stands_in_the_footer() {
    let lab = Lab::new();
    let [amp, spare, rec] = machines(&lab);
    let sender = amp.start(&generate("Amp", &[]));
    let path = lab.path("allowed.xdf");
    let recorder = record(&rec, &path, &["--allow-key-change"]);
    until_recording(&path, 20_000);
    sender.kill();
    let _successor = spare.start(&generate("Amp", &[]));
    let before = std::fs::metadata(&path).unwrap().len();
    until_recording(&path, before + 20_000);
    recorder.interrupt();
    assert_eq!(recorder.wait().status, Some(0), "{}", told(&path));
    let loaded = read(&path);
    assert_eq!(senders(&loaded), 2);
    let noted = key_changes(&loaded);
    assert!(noted.starts_with("accepted spare "), "{noted}");
}
