//! Recording when what is around it fails: outputs that nobody reads or that are full, terminals that
//! are gone, places that are none, streams that come late.

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use crate::lab::{Lab, Running};
use crate::record::{
    Verdict, generate, nothing_is_missing, read, start, stream, until, until_recording,
};

#[test]
fn a_full_output_does_not_end_a_recording() {
    let lab = Lab::new();
    let path = lab.path("full.xdf");
    let _generator = lab.start(&generate("Amp", &["--wait"]));
    let mut command = lab.command(&["record", "-o", &path, "--duration", "2.5"]);
    let full = File::options().write(true).open("/dev/full").unwrap();
    Running::start(command.stdout(full))
        .wait()
        .with(0, &["nothing can be shown", "Recorded "]);
    let loaded = read(&path);
    assert!(nothing_is_missing(stream(&loaded, "Amp")).len() > 500);
}

/// An output with no room left, and the end that nobody reads.
fn unread() -> (Stdio, UnixStream) {
    let (mut output, end) = UnixStream::pair().unwrap();
    output.set_nonblocking(true).unwrap();
    let error = loop {
        if let Err(error) = output.write_all(&[b'\n'; 512]) {
            break error;
        }
    };
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
    output.set_nonblocking(false).unwrap();
    (OwnedFd::from(output).into(), end)
}

#[test]
fn outputs_that_nobody_reads_hold_nothing_up() {
    let lab = Lab::new();
    let path = lab.path("unread.xdf");
    let generator = lab.start(&generate("Amp", &["--wait"]));
    let mut command = lab.command(&["record", "-o", &path, "--watch", "Amp"]);
    let ((stdout, _out), (stderr, _err)) = (unread(), unread());
    let recorder = Running::start(command.stdout(stdout).stderr(stderr));
    until_recording(&path, 10_000);
    // Its stream says that it is lost, and that it is back.
    drop(generator);
    let _again = lab.start(&generate("Amp", &["--wait"]));
    let length = || std::fs::metadata(&path).unwrap().len();
    let before = length();
    until_recording(&path, before + 10_000);
    recorder.interrupt();
    recorder.wait().ok();
    assert_eq!(read(&path).streams.len(), 1);
}

#[test]
fn a_terminal_that_is_gone_ends_nothing_that_nohup_started() {
    let lab = Lab::new();
    let path = lab.path("nohup.xdf");
    let _generator = lab.start(&generate("Amp", &["--wait"]));
    let lsl = lab.command(&["record", "-o", &path]);
    let mut command = Command::new("sh");
    command
        .args(["-c", "trap '' HUP; exec \"$0\" \"$@\""])
        .arg(lsl.get_program())
        .args(lsl.get_args())
        .current_dir(lsl.get_current_dir().unwrap())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    for (key, value) in lsl.get_envs() {
        match value {
            Some(value) => command.env(key, value),
            None => command.env_remove(key),
        };
    }
    let recorder = Running::start(&mut command);
    until_recording(&path, 10_000);
    recorder.signal("HUP");
    let before = std::fs::metadata(&path).unwrap().len();
    until_recording(&path, before + 20_000);
    recorder.interrupt();
    recorder.wait().with(0, &["Recorded "]);
    nothing_is_missing(stream(&read(&path), "Amp"));
}

#[test]
fn without_any_stream_the_timeout_is_kept() {
    let lab = Lab::new();
    let path = lab.path("late.xdf");
    let recorder = start(&lab, &["-o", &path, "--timeout", "20", "--duration", "0.5"]);
    // Everything that is there has answered long since.
    thread::sleep(Duration::from_secs(3));
    let _generator = lab.start(&generate("Amp", &["--wait"]));
    recorder.wait().ok();
    nothing_is_missing(stream(&read(&path), "Amp"));
}

#[test]
fn ctrl_c_before_the_beginning_is_no_success() {
    let lab = Lab::new();
    let path = lab.path("none.xdf");
    let recorder = start(&lab, &["-o", &path, "--timeout", "30"]);
    let status = format!("/proc/{}/status", recorder.id());
    until("search that can be stopped", || {
        let status = std::fs::read_to_string(&status).unwrap();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        let caught = u64::from_str_radix(caught.unwrap().trim(), 16).unwrap();
        // SIGINT is signal 2.
        caught & 0b10 != 0
    });
    recorder.interrupt();
    recorder.wait().with(130, &["nothing was recorded"]);
    assert!(!Path::new(&path).exists());
}

#[test]
fn places_that_are_none_are_told_before_anything_else() {
    let lab = Lab::new();
    let folder = lab.path("study");
    std::fs::create_dir(&folder).unwrap();
    let check = |words: &[&str], status, part| {
        // No stream is there, which would be said first.
        start(&lab, words).wait().with(status, &[part]);
    };
    check(&["-o", &folder], 2, "is a folder or a device");
    assert!(Path::new(&folder).is_dir(), "it was renamed");
    check(&["-o", "/dev/null"], 2, "is a folder or a device");
    check(&["-o", "/proc/x.xdf"], 4, "cannot record into /proc");
    let path = lab.path("study/x.xdf");
    check(
        &["-o", &path, "--spill-dir", &lab.path("spill")],
        2,
        "there is no such folder",
    );
    // There its own file would make way for the next one.
    let words = ["-o", &path, "--spill-dir", &folder];
    check(&words, 2, "the folder of the recording itself");
    let other = lab.path("other");
    std::fs::create_dir(&other).unwrap();
    let words = ["-o", &path, "--spill-dir", &other, "--timeout", "0.1"];
    check(&words, 2, "is on the disk of the recording");
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
}
