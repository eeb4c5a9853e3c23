//! How `lsl bench` gets to `lsl-bench`, for which a shell stands in. What that measures is tested where it is.

use std::os::unix::fs::symlink;
use std::process::{Command, Stdio};

use crate::lab::{Lab, Running};

/// A folder `bin` of the lab with `lsl` alone, and a command that runs it, with `path` as search path.
fn alone(lab: &Lab, path: &str, arguments: &[&str]) -> Command {
    let program = lab.path("bin/lsl");
    if !std::path::Path::new(&program).exists() {
        std::fs::create_dir(lab.path("bin")).unwrap();
        std::fs::hard_link(crate::PROGRAM, &program).unwrap();
    }
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env("PATH", path)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

#[test]
fn arguments_input_output_and_status_are_those_of_the_program() {
    let lab = Lab::new();
    let shell = |arguments: &[&str], path: &str| {
        let mut command = alone(&lab, path, &[&["bench"], arguments].concat());
        let running = Running::start(command.stdin(Stdio::piped()));
        running.type_in("typed\n").wait()
    };
    let script = "read line; echo \"$line\" \"$@\"; echo said >&2; exit 7";
    let words = [
        "-c", script, "name", "latency", "--help", "-h", "", "--", "-v",
    ];
    let found_on_path = lab.path("elsewhere");
    std::fs::create_dir(&found_on_path).unwrap();
    for place in ["elsewhere/lsl-bench", "bin/lsl-bench"] {
        // The folder of `lsl` is there from the first run on.
        symlink("/bin/sh", lab.path(place)).unwrap();
        let path = if place.starts_with("bin") {
            ""
        } else {
            &found_on_path
        };
        let ended = shell(&words, path);
        assert_eq!(ended.status, Some(7), "{ended:?}");
        assert_eq!(ended.stdout, "typed latency --help -h  -- -v\n");
        assert_eq!(ended.stderr, "said\n");
    }
    // `sh --help`, not ours.
    assert!(!shell(&["--help"], "").stdout.contains("ARGUMENTS"));
}

#[test]
fn without_the_program_its_package_is_named() {
    let lab = Lab::new();
    for arguments in [&["bench"][..], &["bench", "--help"], &["bench", "latency"]] {
        let ended = Running::start(&mut alone(&lab, "", arguments)).wait();
        ended.refused(3, &["lsl-rs", "cargo build --release -p lsl-bench"]);
    }
}
