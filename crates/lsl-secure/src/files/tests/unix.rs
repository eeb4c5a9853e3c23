//! Links, pipes and modes, as Unix has them.

use std::os::unix::fs::symlink;

use super::*;

#[test]
fn what_is_at_the_end_of_a_link_counts() {
    let scratch = Scratch::new();
    let check = |path: &Path, words: &str| {
        let error = read_text(path, Content::Secret).unwrap_err().to_string();
        assert!(error.starts_with(&path.display().to_string()), "{error}");
        assert!(error.contains(words), "{error} lacks {words}");
    };
    check(Path::new("/dev/null"), "not a regular file");
    let good = scratch.write("good", "text", 0o600);
    let link = scratch.path("link");
    symlink(&good, &link).unwrap();
    assert_eq!(*read_text(&link, Content::Secret).unwrap(), "text");
    // What counts is the file behind the link.
    scratch.chmod("good", 0o640);
    check(&link, "mode 0640");
    let dangling = scratch.path("dangling");
    symlink(scratch.path("nowhere"), &dangling).unwrap();
    check(&dangling, "cannot be read");
}

/// Nobody replaces what is somebody else's there, as where secrets are mounted.
#[test]
fn a_directory_with_the_sticky_bit_is_fine() {
    let scratch = Scratch::new();
    for content in [Content::Secret, Content::Shared] {
        let file = scratch.write("lsl api/file", "text", 0o600);
        for mode in [0o1777, 0o3777] {
            scratch.chmod("lsl api", mode);
            assert_eq!(*read_text(&file, content).unwrap(), "text", "{mode:o}");
        }
    }
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
fn nothing_is_made_through_a_link() {
    let scratch = Scratch::new();
    // Nor through a link, even one that leads nowhere.
    symlink(scratch.path("elsewhere"), scratch.path("link")).unwrap();
    assert!(create(&scratch.path("link"), b"two").is_err());
    let error = create(&scratch.path("no such/key"), b"x")
        .unwrap_err()
        .to_string();
    assert!(error.contains("mkdir -p '"), "{error}");
    assert_eq!(scratch.names(), ["link"]);
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
