//! Checks of permissions, and writing of whole files.

use std::os::unix::fs::symlink;

use super::scratch::Scratch;
use super::*;

#[test]
fn owner_and_mode_decide_who_may_read() {
    use Content::{Secret, Shared};
    let check = |content, mode: u32, owner: u32, user: u32, expected: Result<(), &str>| {
        let path = Path::new("/lab/device key.pem");
        let checked = check_access(path, content, 0o100_000 | mode, owner, user);
        match (&checked, expected) {
            (Ok(()), Ok(())) => {}
            (Err(text), Err(remedy)) if text.contains(remedy) => {}
            _ => panic!("{content:?} {mode:o} {owner} {user}: {checked:?}, not {expected:?}"),
        }
    };
    let chmod = Err("chmod 600 '/lab/device key.pem'");
    for mode in [0o600, 0o400, 0o700] {
        check(Secret, mode, 1000, 1000, Ok(()));
        check(Secret, mode, 0, 1000, Ok(()));
    }
    for mode in [0o644, 0o640, 0o604, 0o660, 0o666, 0o601, 0o610] {
        check(Secret, mode, 1000, 1000, chmod);
        check(Secret, mode, 0, 0, chmod);
    }
    check(
        Secret,
        0o600,
        1001,
        1000,
        Err("chown 1000 '/lab/device key.pem'"),
    );
    check(Secret, 0o600, 1001, 0, Ok(()));
    check(Secret, 0o644, 1001, 0, chmod);
    for mode in [0o600, 0o644, 0o444, 0o755] {
        check(Shared, mode, 1000, 1000, Ok(()));
        check(Shared, mode, 0, 1000, Ok(()));
    }
    for mode in [0o664, 0o646, 0o666, 0o620] {
        check(
            Shared,
            mode,
            1000,
            1000,
            Err("chmod go-w '/lab/device key.pem'"),
        );
    }
    check(Shared, 0o644, 1001, 1000, Err("belongs to user 1001"));
    check(Shared, 0o644, 1001, 0, Ok(()));
    // The message names the mode, and the one for mounted secrets.
    let text = check_access(Path::new("k"), Secret, 0o100_644, 0, 0).unwrap_err();
    assert!(
        text.contains("mode 0644") && text.contains("mode 0400"),
        "{text}"
    );
}

#[test]
fn reading_says_what_is_wrong_and_what_to_do() {
    let scratch = Scratch::new();
    let check = |path: &Path, words: &[&str]| {
        let error = read_text(path, Content::Secret).unwrap_err().to_string();
        assert!(error.starts_with(&path.display().to_string()), "{error}");
        for word in words {
            assert!(error.contains(word), "{error} lacks {word}");
        }
    };
    let good = scratch.write("good", "text", 0o600);
    assert_eq!(*read_text(&good, Content::Secret).unwrap(), "text");
    check(&scratch.path("none"), &["cannot be read", "lsl key init"]);
    check(scratch.as_ref(), &["not a regular file"]);
    check(Path::new("/dev/null"), &["not a regular file"]);
    check(
        &scratch.write("open", "x", 0o644),
        &["mode 0644", "chmod 600"],
    );
    let link = scratch.path("link");
    symlink(&good, &link).unwrap();
    assert_eq!(*read_text(&link, Content::Secret).unwrap(), "text");
    // What counts is the file behind the link.
    scratch.chmod("good", 0o640);
    check(&link, &["mode 0640"]);
    let dangling = scratch.path("dangling");
    symlink(scratch.path("nowhere"), &dangling).unwrap();
    check(&dangling, &["cannot be read"]);
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
            assert!(error.contains(&remedy), "{error} lacks {remedy}");
            assert!(error.contains(&format!("mode {mode:04o}")), "{error}");
        }
        // With the sticky bit nobody replaces what is somebody else's, as where secrets are mounted.
        for mode in [0o700, 0o755, 0o1777, 0o3777] {
            scratch.chmod("lsl api", mode);
            assert_eq!(*read_text(&file, content).unwrap(), "text", "{mode:o}");
        }
    }
    check_directory(&scratch.path("none")).unwrap();
}

/// Whoever may write to a directory anywhere in a chain of links chooses the file.
#[test]
fn a_directory_behind_a_link_that_others_may_write_to_is_refused() {
    let scratch = Scratch::new();
    scratch.write("shared/file", "text", 0o600);
    scratch.write("between/x", "", 0o600);
    scratch.write("own/x", "", 0o600);
    symlink("../shared/file", scratch.path("between/link")).unwrap();
    symlink(scratch.path("between/link"), scratch.path("own/link")).unwrap();
    let link = scratch.path("own/link");
    for directory in ["shared", "between", "own"] {
        for each in ["shared", "between", "own"] {
            scratch.chmod(each, 0o755);
        }
        assert_eq!(*read_text(&link, Content::Secret).unwrap(), "text");
        scratch.chmod(directory, 0o775);
        let error = read_text(&link, Content::Secret).unwrap_err().to_string();
        assert!(error.contains("0775 lets other users"), "{error}");
        assert!(error.contains(directory), "{error}");
    }
}

#[test]
fn a_pipe_does_not_stop_the_reader() {
    let scratch = Scratch::new();
    let path = scratch.path("pipe");
    let made = std::process::Command::new("mkfifo").arg(&path).status();
    assert!(made.expect("coreutils have mkfifo").success());
    let error = read_text(&path, Content::Shared).unwrap_err();
    assert!(error.to_string().contains("not a regular file"), "{error}");
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
    // Nor through a link, even one that leads nowhere.
    symlink(scratch.path("elsewhere"), scratch.path("link")).unwrap();
    assert!(create(&scratch.path("link"), b"two").is_err());
    let error = create(&scratch.path("no such/key"), b"x")
        .unwrap_err()
        .to_string();
    assert!(error.contains("mkdir -p '"), "{error}");
    assert_eq!(scratch.names(), ["key", "link"]);
}

#[test]
fn replacing_keeps_mode_and_links_and_leaves_nothing_behind() {
    let scratch = Scratch::new();
    let path = scratch.write("trust", "old", 0o640);
    symlink(&path, scratch.path("link")).unwrap();
    replace(&scratch.path("link"), b"new").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"new");
    assert_eq!(scratch.mode("trust"), 0o640);
    assert!(
        fs::symlink_metadata(scratch.path("link"))
            .unwrap()
            .is_symlink()
    );
    assert!(Stamp::of_path(&path).unwrap().is_finished());
    assert!(replace(&scratch.path("none"), b"x").is_err());
    assert!(replace(scratch.as_ref(), b"x").is_err());
    assert_eq!(scratch.names(), ["link", "trust"]);
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
fn words_can_be_pasted() {
    let check = |word: &str, expected: &str| assert_eq!(quote(word), expected);
    check("amp1", "amp1");
    check("/lab/lsl_api/key_2.pem", "/lab/lsl_api/key_2.pem");
    check("", "''");
    check("amp 1", "'amp 1'");
    check("$(reboot)", "'$(reboot)'");
    check("it's", r"'it'\''s'");
    check("~x", "'~x'");
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
