//! Recording when things go wrong, and when nobody else may read it: full disks, encrypted files,
//! encrypted streams.

use std::path::Path;
use std::process::{Command, Stdio};

use lsl_core::local_clock;
use lsl_xdf::at_rest::{Decrypting, Ending, Identities, KeyPair};
use lsl_xdf::load;

use crate::lab::{Lab, Running};
use crate::machine::Machine;
use crate::record::{
    Verdict, counters, generate, nothing_is_missing, read, start, stream, until_recording,
};

/// Records with `small` as a disk of its own, of so many bytes; what is there afterwards is moved to
/// `kept`. `script` runs before, in a shell.
fn record_on_a_small_disk(lab: &Lab, bytes: u32, script: &str, words: &str) -> Running {
    let mut command = lab.command(&[]);
    let lsl = command.get_program().to_str().unwrap().to_owned();
    let shell = format!(
        "mkdir -p small kept && mount -t tmpfs -o size={bytes} none small || exit 9; {script} \
         {lsl} --loopback record {words} 2> kept/stderr; status=$?; \
         cat kept/stderr >&2; cp -a small/. kept/; exit $status"
    );
    let environment: Vec<_> = command
        .get_envs()
        .filter_map(|(key, value)| Some((key.to_owned(), value?.to_owned())))
        .collect();
    let folder = command.get_current_dir().unwrap().to_owned();
    command = Command::new("unshare");
    command
        .args(["--user", "--map-root-user", "--mount", "sh", "-c", &shell])
        .envs(environment)
        .env_remove("LSL_SECURE_CONFIG")
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    Running::start(&mut command)
}

fn fast<'a>() -> Vec<&'a str> {
    let mut words = generate("Amp", &["--wait", "--chunk", "20"]);
    let at = words.iter().position(|word| *word == "500").unwrap();
    words[at] = "4000";
    words
}

#[test]
fn a_full_disk_is_loud_and_the_file_stays_whole() {
    let lab = Lab::new();
    let _generator = lab.start(&fast());
    let words = "Amp -o small/full.xdf --duration 6 --min-free 0";
    let recorder = record_on_a_small_disk(&lab, 150_000, "", words);
    let ended = recorder
        .wait()
        .with(4, &["DISK FULL", "No space left", "samples are MISSING"]);
    let loaded = read(&lab.path("kept/full.xdf"));
    let amp = stream(&loaded, "Amp");
    // Every hole is in the footer, with its size.
    let numbers = counters(amp);
    assert_eq!(numbers[0], 0);
    let gaps = amp.footer.as_ref().unwrap().gaps();
    let missing_behind = |stamp: f64| -> i64 {
        let here = gaps
            .iter()
            .filter(|gap| gap.from.to_bits() == stamp.to_bits());
        let sizes = here.map(|gap| i64::try_from(gap.samples.unwrap()).unwrap());
        sizes.sum()
    };
    for (pair, stamp) in numbers.windows(2).zip(&amp.stamps) {
        assert_eq!(pair[1] - pair[0] - 1, missing_behind(*stamp), "{gaps:?}");
    }
    let missing: u64 = gaps.iter().map(|gap| gap.samples.unwrap()).sum();
    assert!(missing > 0);
    let last = ended.json_lines().pop().unwrap();
    assert_eq!(last["unwritten_samples"], missing);
    assert_eq!(
        last["streams"][0]["samples"],
        numbers.len() as u64 + missing,
        "what was received is in the file or in a gap"
    );
}

#[test]
fn a_disk_with_room_again_goes_on_where_it_was() {
    let lab = Lab::new();
    let _generator = lab.start(&fast());
    // The room in which the ballast lay.
    let script = "head -c 400000 /dev/zero > small/ballast; (for try in $(seq 200); do \
                  grep -qs 'DISK FULL' kept/stderr && break; sleep 0.1; done; rm small/ballast) &";
    let words = "Amp -o small/tight.xdf --duration 6 --min-free 0";
    record_on_a_small_disk(&lab, 460_000, script, words)
        .wait()
        .with(0, &["DISK FULL", "there is room again"]);
    let loaded = read(&lab.path("kept/tight.xdf"));
    let amp = stream(&loaded, "Amp");
    let numbers = nothing_is_missing(amp);
    assert_eq!(numbers[0], 0);
    assert!(numbers.len() > 20_000, "{}", numbers.len());
    assert!(amp.footer.as_ref().unwrap().gaps().is_empty());
}

#[test]
fn another_disk_takes_over_without_a_hole() {
    let lab = Lab::new();
    let _generator = lab.start(&fast());
    let words = "Amp -o small/first.xdf --spill-dir spill --duration 5 --min-free 0";
    record_on_a_small_disk(&lab, 150_000, "mkdir spill;", words)
        .wait()
        .with(4, &["No space left", "goes on in spill/first.xdf"]);
    let first = read(&lab.path("kept/first.xdf"));
    let second = read(&lab.path("spill/first.xdf"));
    let numbers = nothing_is_missing(stream(&first, "Amp"));
    let rest = nothing_is_missing(stream(&second, "Amp"));
    assert_eq!(numbers[0], 0);
    assert_eq!(rest[0], numbers.last().unwrap() + 1);
    assert!(numbers.len() + rest.len() > 15_000);
}

#[test]
fn a_disk_is_left_before_it_is_full() {
    let lab = Lab::new();
    let _generator = lab.start(&fast());
    let words = "Amp -o small/first.xdf --spill-dir spill --duration 5 --min-free 1M";
    record_on_a_small_disk(&lab, 1_100_000, "mkdir spill;", words)
        .wait()
        .with(0, &["LOW SPACE", "goes on in spill/first.xdf"]);
    let first = read(&lab.path("kept/first.xdf"));
    let second = read(&lab.path("spill/first.xdf"));
    let numbers = nothing_is_missing(stream(&first, "Amp"));
    let rest = nothing_is_missing(stream(&second, "Amp"));
    assert_eq!(numbers[0], 0);
    assert_eq!(rest[0], numbers.last().unwrap() + 1);
    // Readers need a clock offset to begin with, in the second file as well.
    for file in [&first, &second] {
        assert!(!stream(file, "Amp").offsets.is_empty());
    }
    assert!(numbers.len() + rest.len() > 15_000);
}

#[test]
fn a_spill_folder_on_the_same_disk_is_left_for_the_last() {
    let lab = Lab::new();
    let _generator = lab.start(&fast());
    let words = "Amp -o small/only.xdf --spill-dir small/spill --duration 2 --min-free 1M";
    let ended = record_on_a_small_disk(&lab, 900_000, "mkdir small/spill;", words).wait();
    let ended = ended.with(0, &["LOW SPACE", "on the disk of the recording"]);
    assert!(!ended.stderr.contains("goes on"), "{ended:?}");
    nothing_is_missing(stream(&read(&lab.path("kept/only.xdf")), "Amp"));
    let spilled = std::fs::read_dir(lab.path("kept/spill")).unwrap();
    assert_eq!(spilled.count(), 0);
}

#[test]
fn a_recording_can_be_encrypted_on_its_way_to_the_disk() {
    let lab = Lab::new();
    let pair = KeyPair::generate();
    let _generator = lab.start(&generate("Amp", &["--wait"]));
    let path = lab.path("secret.xdf.age");
    // The name says what it is, whatever was asked for.
    let words = ["-r", &pair.recipient, "-o", &lab.path("secret.xdf")];
    let recorder = start(&lab, &words);
    until_recording(&path, 0);
    lab.run(&["recv", "Amp", "-n", "700"]).ok();
    recorder.interrupt();
    recorder.wait().with(0, &["secret.xdf.age"]);
    let bytes = std::fs::read(&path).unwrap();
    assert!(bytes.starts_with(b"age-encryption.org/v1\n"));
    let contains = |text: &[u8]| bytes.windows(text.len()).any(|part| part == text);
    assert!(!contains(b"<info>") && !contains(b"XDF:"));
    let mut identities = Identities::new();
    identities.add("the key", &pair.identity).unwrap();
    let plain = Decrypting::new(&bytes[..], &identities, Ending::Strict).unwrap();
    let loaded = load(plain).unwrap();
    assert!(loaded.problems.is_empty(), "{:?}", loaded.problems);
    let amp = stream(&loaded, "Amp");
    let numbers = nothing_is_missing(amp);
    assert_eq!(numbers[0], 0);
    let footer = amp.footer.as_ref().unwrap();
    assert_eq!(footer.sample_count(), Some(numbers.len() as u64));
    // Nothing else is left behind.
    assert!(!Path::new(&lab.path("secret.xdf")).exists());
    assert!(!Path::new(&lab.path("secret.xdf.age.lslj")).exists());
}

#[test]
fn a_killed_recorder_leaves_an_encrypted_file_that_opens() {
    let lab = Lab::new();
    let pair = KeyPair::generate();
    let _generator = lab.start(&fast());
    let path = lab.path("killed.xdf.age");
    let recorder = start(&lab, &["-r", &pair.recipient, "-o", &path]);
    until_recording(&path, 400_000);
    let killed_at = local_clock();
    recorder.kill();
    let mut identities = Identities::new();
    identities.add("the key", &pair.identity).unwrap();
    let file = std::fs::File::open(&path).unwrap();
    let plain = Decrypting::new(file, &identities, Ending::Tolerant).unwrap();
    let loaded = load(plain).unwrap();
    let amp = stream(&loaded, "Amp");
    assert_eq!(nothing_is_missing(amp)[0], 0);
    let lost = killed_at - amp.stamps.last().unwrap();
    // A chunk, how often samples are taken, and 64 KiB; the rest is for a busy machine.
    assert!(lost < 0.5 + 0.1 + 2.5 + 1.0, "{lost} s");
}

#[test]
fn a_passphrase_encrypts_and_is_asked_for() {
    let lab = Lab::new();
    let _generator = lab.start(&generate("Amp", &[]));
    let path = lab.path("locked.xdf.age");
    let words = ["record", "--passphrase", "-o", &path, "--duration", "0.3"];
    let mut command = lab.command(&words);
    Running::start(command.stdin(Stdio::piped()))
        .type_in("open sesame\n")
        .wait()
        .ok();
    let mut identities = Identities::new();
    identities.add_passphrase(&"open sesame".to_owned().into());
    let file = std::fs::File::open(&path).unwrap();
    let plain = Decrypting::new(file, &identities, Ending::Strict).unwrap();
    nothing_is_missing(stream(&load(plain).unwrap(), "Amp"));
    start(&lab, &["--passphrase", "-r", "age1x"])
        .wait()
        .with(2, &["cannot be used with"]);
    start(&lab, &["-r", "age1x", "-o", &path])
        .wait()
        .with(2, &["--recipient"]);
}

#[test]
fn encrypted_streams_are_recorded_by_those_who_may() {
    let lab = Lab::new();
    let [amp, rec] = Machine::pair(&lab);
    let _generator = amp.start(&["gen", "--name", "Test", "--pattern", "counter"]);
    let path = rec.lab.path("rec1/secure.xdf");
    let ended = rec
        .run(&["record", "Test", "-o", &path, "--duration", "1"])
        .ok();
    let last = ended.json_lines().pop().unwrap();
    assert_eq!(last["streams"][0]["encrypted_with"], "amp1");
    nothing_is_missing(stream(&read(&path), "Test"));
}

#[test]
fn what_policy_forbids_is_not_recorded_and_said() {
    let lab = Lab::new();
    let [amp, rec] = ["amp1", "rec1"].map(|name| Machine::with_key(&lab, name));
    let _generator = amp.start(&["gen", "--name", "Secret"]);
    let path = lab.path("rec1/refused.xdf");
    rec.run(&["record", "-o", &path, "--timeout", "8"]).refused(
        5,
        &["encryption does not allow", "'Secret'", "lsl trust check"],
    );
    assert!(!Path::new(&path).exists());
    // A stream in plaintext, where the policy asks for encryption.
    let guest = Machine::new(&lab, "guest");
    let _plain = guest.start(&["gen", "--name", "Plain"]);
    rec.run(&[
        "record",
        "--require",
        "Plain",
        "-o",
        &path,
        "--timeout",
        "8",
    ])
    .refused(5, &["'Plain'"]);
    assert!(!Path::new(&path).exists());
    // One of two: the other is recorded, and the status tells.
    let _own = rec.start(&["gen", "--name", "Own", "--pattern", "counter"]);
    let words = ["record", "Own", "Secret", "-o", &path, "--duration", "1"];
    rec.run(&words)
        .refused(5, &["'Secret' cannot be read", "not recorded", "Secret"]);
    let loaded = read(&path);
    assert_eq!(loaded.streams.len(), 1);
    nothing_is_missing(stream(&loaded, "Own"));
}
