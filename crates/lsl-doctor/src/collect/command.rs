//! Commands of the system that only tell: by their full path, in English, with nothing to read, for a second.

use std::io::Read as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// Returns what the first of these programs that is there prints; `None` if it fails or takes too long.
pub(super) fn output(programs: &[&str], arguments: &[&str]) -> Option<String> {
    let program = programs.iter().find(|path| Path::new(path).is_file())?;
    let mut child = Command::new(program)
        .args(arguments)
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let output = child.stdout.take()?;
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut text = Vec::new();
        let read = output.take(LONGEST_BYTES).read_to_end(&mut text);
        // Who asked may have given up.
        let _ = sender.send(read.ok().map(|_| text));
    });
    let text = receiver.recv_timeout(LIMIT).ok().flatten();
    if text.is_none() {
        let _ = child.kill();
    }
    let has_ended = child.wait().is_ok_and(|status| status.success());
    let text = text.filter(|_| has_ended)?;
    Some(String::from_utf8_lossy(&text).into_owned())
}

const LIMIT: Duration = Duration::from_secs(1);
const LONGEST_BYTES: u64 = 4 << 20;
