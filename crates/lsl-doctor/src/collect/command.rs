//! Commands of the system that only tell: by their full path, in English, with nothing to read, until a deadline.

use std::io::Read as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use lsl_core::local_clock;

/// Returns what the first of these programs that is there prints; `None` if it fails or takes too long.
pub(super) fn output(programs: &[&str], arguments: &[&str], deadline: f64) -> Option<String> {
    let left = Duration::try_from_secs_f64(deadline - local_clock()).ok()?;
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
    let text = receiver.recv_timeout(left).ok().flatten();
    if text.is_none() {
        let _ = child.kill();
    }
    let has_ended = child.wait().is_ok_and(|status| status.success());
    let text = text.filter(|_| has_ended)?;
    Some(String::from_utf8_lossy(&text).into_owned())
}

const LONGEST_BYTES: u64 = 4 << 20;

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn commands_share_a_deadline() {
        let sh: &[&str] = &["/bin/sh"];
        let late = local_clock() + 60.0;
        assert_eq!(output(sh, &["-c", "echo x"], late).as_deref(), Some("x\n"));
        let soon = local_clock() + 0.05;
        assert_eq!(output(sh, &["-c", "exec sleep 60"], soon), None);
        assert_eq!(output(sh, &["-c", "echo x"], soon), None);
        assert!(local_clock() < late);
    }
}
