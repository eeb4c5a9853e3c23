//! Symbolic links that somebody who may write beside a recording laid in its way: whatever `lsl` makes
//! there, what a link leads to stays as it is.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use crate::lab::Lab;
use crate::record::{Verdict, generate, nothing_is_missing, read, start, stream};
use crate::recordings::whole;

const PRECIOUS: &str = "not a byte of this may change";

/// A lab with a file that links lead to.
fn victim() -> (Lab, String) {
    let lab = Lab::new();
    fs::create_dir(lab.path("data")).unwrap();
    let precious = lab.write("precious", PRECIOUS);
    (lab, precious)
}

#[track_caller]
fn is_untouched(precious: &str) {
    assert_eq!(fs::read_to_string(precious).unwrap(), PRECIOUS);
}

#[test]
fn symlinks_in_place_of_a_journal_are_moved_aside() {
    let (lab, precious) = victim();
    let made = lab.path("made");
    for (name, target) in [("one", &precious), ("two", &made)] {
        symlink(target, lab.path(&format!("data/{name}.xdf.lslj"))).unwrap();
    }
    let _generator = lab.start(&generate("Amp", &[]));
    for name in ["one", "two"] {
        let path = lab.path(&format!("data/{name}.xdf"));
        let ended = start(&lab, &["Amp", "-o", &path, "--duration", "0.2"]).wait();
        assert!(!ended.ok().stderr.contains("no journal"), "{name}");
        nothing_is_missing(stream(&read(&path), "Amp"));
        let aside = lab.path(&format!("data/{name}_old1.xdf.lslj"));
        assert!(Path::new(&aside).is_symlink(), "{name}");
    }
    is_untouched(&precious);
    assert!(!Path::new(&made).exists());
}

#[test]
fn an_old_journal_is_moved_aside() {
    let (lab, _precious) = victim();
    let path = lab.path("data/run.xdf");
    lab.write("data/run.xdf.lslj", "of a recording that is gone");
    // Not to be taken for the journal of this one.
    lab.write("data/run_old1.xdf", "");
    let _generator = lab.start(&generate("Amp", &[]));
    start(&lab, &["Amp", "-o", &path, "--duration", "0.2"])
        .wait()
        .ok();
    read(&path);
    let aside = fs::read_to_string(lab.path("data/run_old2.xdf.lslj"));
    assert_eq!(aside.unwrap(), "of a recording that is gone");
}

#[test]
fn symlinks_in_place_of_a_recording_are_renamed_and_not_followed() {
    let (lab, precious) = victim();
    let path = lab.path("data/run.xdf");
    symlink(&precious, &path).unwrap();
    let _generator = lab.start(&generate("Amp", &[]));
    let words = ["Amp", "-o", &path, "--duration", "0.2", "--resume"];
    start(&lab, &words).wait().with(0, &["is now"]);
    read(&path);
    is_untouched(&precious);
}

#[test]
fn symlinks_in_place_of_an_unfinished_table_are_not_followed() {
    let (lab, precious) = victim();
    let recording = lab.path("data/a.xdf");
    fs::write(&recording, whole()).unwrap();
    let convert = |more: &[&str]| {
        let mut words = vec!["xdf", "convert", recording.as_str()];
        words.extend(more);
        lab.run(&words)
    };
    convert(&[]).ok();
    let tables: Vec<String> = fs::read_dir(lab.path("data"))
        .unwrap()
        .map(|entry| entry.unwrap().path().to_str().unwrap().to_owned())
        .filter(|path| path.contains(".csv"))
        .collect();
    assert_eq!(tables.len(), 2);
    let before = fs::read(&tables[0]).unwrap();
    for table in &tables {
        symlink(&precious, format!("{table}.part")).unwrap();
    }
    convert(&["--force"]).ok();
    is_untouched(&precious);
    assert_eq!(fs::read(&tables[0]).unwrap(), before);
    assert!(!Path::new(&format!("{}.part", tables[0])).is_symlink());
    // Nor is one in the place of the table itself.
    fs::remove_file(&tables[0]).unwrap();
    symlink(&precious, &tables[0]).unwrap();
    convert(&[]).with(2, &["exists already"]);
    convert(&["--force"]).ok();
    is_untouched(&precious);
    assert_eq!(fs::read(&tables[0]).unwrap(), before);
}

#[test]
fn symlinks_in_place_of_a_locked_file_are_not_followed() {
    let (lab, precious) = victim();
    let recording = lab.path("data/a.xdf");
    fs::write(&recording, whole()).unwrap();
    let key = lab.run(&["key", "age", &lab.path("key")]).ok();
    let key = key.stdout.trim();
    symlink(&precious, lab.path("data/a.xdf.age")).unwrap();
    let locked = lab.run(&["lock", "-r", key, &recording]);
    assert_ne!(locked.status, Some(0), "{locked:?}");
    lab.run(&["lock", "-r", key, "--force", &recording]).ok();
    is_untouched(&precious);
    let unlocked = lab.path("data/a.xdf");
    let _ = fs::remove_file(&unlocked);
    symlink(&precious, &unlocked).unwrap();
    let age = lab.path("data/a.xdf.age");
    let words = ["unlock", "-i", &lab.path("key"), "--force", &age];
    lab.run(&words).ok();
    is_untouched(&precious);
    assert_eq!(fs::read(&unlocked).unwrap(), whole());
}
