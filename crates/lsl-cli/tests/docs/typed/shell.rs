//! A bash into which commands are typed, one after the other.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use lsl_core::local_clock;

use super::expected::{Manner, agree};

/// A shell of one machine; what still runs in it ends with it.
pub(crate) struct Shell {
    child: Child,
    stdin: ChildStdin,
    lines: Receiver<String>,
    home: PathBuf,
    /// Commands that were sent to the background.
    background: usize,
}

/// How a command ended.
#[derive(Debug)]
pub(crate) struct Typed {
    pub(crate) status: i32,
    /// Both outputs, as a terminal shows them.
    pub(crate) output: String,
    /// Whether it lived until it was interrupted.
    pub(crate) is_interrupted: bool,
}

impl Shell {
    /// Starts `command`, which must be a bash, in `home`.
    pub(crate) fn start(mut command: Command, home: &Path) -> Result<Self, String> {
        let mut child = command
            .current_dir(home)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            // A group of its own, to end everything in it.
            .process_group(0)
            .spawn()
            .map_err(|error| format!("{command:?}: {error}"))?;
        let stdin = child.stdin.take().ok_or("no standard input")?;
        let stdout = child.stdout.take().ok_or("no standard output")?;
        let (sender, lines) = channel();
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines() {
                let Ok(line) = line else { break };
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Ok(Self {
            child,
            stdin,
            lines,
            home: home.to_owned(),
            background: 0,
        })
    }

    /// Types a command and waits for its end; types Ctrl-C once it has printed `until_interrupt`.
    pub(crate) fn run(
        &mut self,
        command: &str,
        until_interrupt: Option<(&[String], Manner)>,
        limit: Duration,
    ) -> Result<Typed, String> {
        if let Some(command) = command.strip_suffix('&') {
            return self.run_in_background(command, limit);
        }
        // Braces, so that the shell reads the whole of it before it runs any of it, and so that a
        // command that asks something does not eat the next one.
        self.send(&format!(
            "{{ {command}\n}} </dev/null 2>&1\nprintf '\\n{END} %d\\n' $?\n"
        ))?;
        let deadline = local_clock() + limit.as_secs_f64();
        let mut output = String::new();
        let mut waits_for = until_interrupt;
        loop {
            let left = Duration::from_secs_f64((deadline - local_clock()).max(0.0));
            let line = match self.lines.recv_timeout(left) {
                Ok(line) => line,
                Err(RecvTimeoutError::Timeout) => {
                    return Err(format!("`{command}` did not end in {limit:?}:\n{output}"));
                }
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(format!("`{command}` ended the shell:\n{output}"));
                }
            };
            if let Some(status) = line.strip_prefix(END) {
                let status = status.trim().parse().map_err(|_| line)?;
                // The end mark begins with a line break of its own.
                output.pop();
                let is_interrupted = until_interrupt.is_some() && waits_for.is_none();
                return Ok(Typed {
                    status,
                    output,
                    is_interrupted,
                });
            }
            output += &line;
            output += "\n";
            if waits_for.is_some_and(|(shown, manner)| agree(shown, &output, manner)) {
                self.interrupt(deadline)?;
                waits_for = None;
            }
        }
    }

    /// Starts a command and waits until it has said something, for then it does what it is for.
    fn run_in_background(&mut self, command: &str, limit: Duration) -> Result<Typed, String> {
        self.background += 1;
        let log = format!(".background-{}", self.background);
        // The last thing in the log is the status, should it end.
        self.send(&format!(
            "{{ {{ {command}\n}}; printf '{END} %d\\n' $?; }} </dev/null >{log} 2>&1 &\n"
        ))?;
        let deadline = local_clock() + limit.as_secs_f64();
        loop {
            let output = std::fs::read_to_string(self.home.join(&log)).unwrap_or_default();
            if output.contains(END) {
                return Err(format!("`{command} &` ended at once:\n{output}"));
            }
            if output.contains('\n') {
                return Ok(Typed {
                    status: 0,
                    output,
                    is_interrupted: false,
                });
            }
            if local_clock() > deadline {
                return Err(format!("`{command} &` says nothing"));
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Interrupts what runs in the foreground: the youngest child that is not in the background.
    fn interrupt(&self, deadline: f64) -> Result<(), String> {
        let id = self.child.id();
        let children = format!("/proc/{id}/task/{id}/children");
        loop {
            let text = std::fs::read_to_string(&children).map_err(|error| error.to_string())?;
            let youngest = text.split_whitespace().last();
            if let Some(youngest) = youngest {
                let killed = Command::new("kill").args(["-INT", youngest]).status();
                return match killed {
                    Ok(status) if status.success() => Ok(()),
                    other => Err(format!("kill: {other:?}")),
                };
            }
            if local_clock() > deadline {
                return Err("nothing to interrupt".into());
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// What commands in the background said.
    pub(crate) fn background_output(&self) -> String {
        let logs = (1..=self.background).map(|n| self.home.join(format!(".background-{n}")));
        logs.filter_map(|log| std::fs::read_to_string(log).ok())
            .collect()
    }

    /// What commands in the background said that failed after they had begun well.
    pub(crate) fn background_failures(&self) -> String {
        let logs = (1..=self.background).map(|n| self.home.join(format!(".background-{n}")));
        logs.filter_map(|log| std::fs::read_to_string(log).ok())
            .filter(|said| said.contains(END) && !said.contains(&format!("{END} 0\n")))
            .collect()
    }

    fn send(&mut self, text: &str) -> Result<(), String> {
        let sent = self.stdin.write_all(text.as_bytes());
        sent.map_err(|error| format!("the shell is gone: {error}"))
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        // Those that ended are zombies of this group until the shell itself is waited for, so the
        // number cannot be somebody else's by now.
        let group = format!("-{}", self.child.id());
        let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
        let _ = self.child.wait();
    }
}

/// Marks the end of a command's output.
const END: &str = "@end-of-command@";
