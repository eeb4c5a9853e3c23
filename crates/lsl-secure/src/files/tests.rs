//! Checks of permissions, and writing of whole files.

use super::scratch::{Scratch, says};
use super::*;

#[test]
fn reading_says_what_is_wrong_and_what_to_do() {
    let scratch = Scratch::new();
    let check = |path: &Path, words: &[&str]| {
        let error = read_text(path, Content::Secret).unwrap_err().to_string();
        assert!(error.starts_with(&path.display().to_string()), "{error}");
        for word in words {
            assert!(says(&error, word), "{error} lacks {word}");
        }
    };
    let good = scratch.write("good", "text", 0o600);
    assert_eq!(*read_text(&good, Content::Secret).unwrap(), "text");
    check(&scratch.path("none"), &["cannot be read", "lsl key init"]);
    check(scratch.as_ref(), &["not a regular file"]);
    check(
        &scratch.write("open", "x", 0o644),
        &["mode 0644", "chmod 600"],
    );
    let long = scratch.write("long", &"x".repeat(1 << 20), 0o600);
    assert_eq!(read_text(&long, Content::Secret).unwrap().len(), 1 << 20);
    check(
        &scratch.write("longer", &"x".repeat((1 << 20) + 1), 0o600),
        &["1 MiB"],
    );
    let latin = scratch.path("latin");
    fs::write(&latin, b"a\nb\xe4\n").unwrap();
    scratch.chmod("latin", 0o600);
    check(&latin, &["line 2", "UTF-8"]);
}

#[test]
fn a_directory_that_others_may_write_to_is_refused() {
    let scratch = Scratch::new();
    for content in [Content::Secret, Content::Shared] {
        let file = scratch.write("lsl api/file", "text", 0o600);
        for mode in [0o775, 0o770, 0o777, 0o702] {
            scratch.chmod("lsl api", mode);
            let error = read_text(&file, content).unwrap_err().to_string();
            let directory = scratch.path("lsl api").display().to_string();
            assert!(error.starts_with(&directory), "{error}");
            let remedy = format!("chmod go-w '{directory}'");
            assert!(says(&error, &remedy), "{error} lacks {remedy}");
            assert!(says(&error, &format!("mode {mode:04o}")), "{error}");
        }
        for mode in [0o700, 0o755] {
            scratch.chmod("lsl api", mode);
            assert_eq!(*read_text(&file, content).unwrap(), "text", "{mode:o}");
        }
    }
    check_directory(&scratch.path("none")).unwrap();
}

#[test]
fn new_files_are_private_and_never_overwrite() {
    let scratch = Scratch::new();
    let path = scratch.path("key");
    create(&path, b"one").unwrap();
    assert_eq!(scratch.mode("key"), 0o600);
    let error = create(&path, b"two").unwrap_err().to_string();
    assert!(error.contains("never overwritten"), "{error}");
    assert_eq!(fs::read(&path).unwrap(), b"one");
    let error = create(&scratch.path("no such/key"), b"x")
        .unwrap_err()
        .to_string();
    let command = remedy::make_folder(&scratch.path("no such"));
    assert!(error.ends_with(&command), "{error}");
    assert_eq!(scratch.names(), ["key"]);
}

#[test]
fn replacing_keeps_the_readers_and_leaves_nothing_behind() {
    let scratch = Scratch::new();
    for mode in [0o600, 0o644] {
        let path = scratch.write("trust", "old", mode);
        replace(&path, b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(scratch.mode("trust"), mode);
        assert!(Stamp::of_path(&path).unwrap().is_finished());
    }
    assert!(replace(&scratch.path("none"), b"x").is_err());
    assert!(replace(scratch.as_ref(), b"x").is_err());
    assert_eq!(scratch.names(), ["trust"]);
}

#[test]
fn a_stamp_sees_every_change() {
    let scratch = Scratch::new();
    let path = scratch.write("file", "1", 0o600);
    let stamp = || Stamp::of_path(&path).unwrap();
    let old = stamp();
    assert_eq!(stamp(), old);
    replace(&path, b"2").unwrap();
    let renamed = stamp();
    assert_ne!(renamed, old);
    fs::write(&path, "33").unwrap();
    let longer = stamp();
    assert_ne!(longer, renamed);
    assert_eq!(
        read_stamped(&path, Content::Secret, MAX_LEN).unwrap().1,
        longer
    );
}

#[test]
fn lines_are_counted_from_one() {
    let check = |offset, expected| assert_eq!(line_at("ab\ncd\n", offset), expected, "{offset}");
    check(0, 1);
    check(2, 1);
    check(3, 2);
    check(6, 3);
    check(99, 3);
}

#[test]
fn what_a_killed_process_left_behind_is_in_nobodys_way() {
    let scratch = Scratch::new();
    let path = scratch.write("f", "old", 0o600);
    let process = std::process::id();
    for count in 0..100 {
        scratch.write(&format!(".f.{process}.{count}.tmp"), "half", 0o600);
    }
    replace(&path, b"new").unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "new");
    assert_eq!(scratch.names().len(), 101);
}

#[cfg(unix)]
mod unix;
