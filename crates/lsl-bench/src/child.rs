//! Processes of this program that the driver starts, and the lines exchanged with them. A child that
//! is dropped is killed; one whose driver dies ends by itself, with its input.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::process::{self, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use lsl_cli::failure::{Failure, Outcome};
use lsl_cli::interrupt::{LONGEST_NAP, Stop};
use lsl_core::local_clock;
use lsl_platform::process::{interrupt, separate};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Environment variables of a child; `None` removes a variable.
pub(super) type Environment = Vec<(&'static str, Option<OsString>)>;

/// A child process that speaks JSON lines over its pipes.
#[derive(Debug)]
pub(super) struct Child {
    process: process::Child,
    lines: mpsc::Receiver<String>,
    /// The last that it wrote to its error output.
    remarks: Arc<Mutex<VecDeque<String>>>,
}

impl Child {
    /// Starts `lsl` with these arguments.
    pub(super) fn spawn(arguments: &[&str], environment: &Environment) -> Outcome<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(arguments);
        for (name, value) in environment {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        separate(&mut command);
        let mut process = command.spawn()?;
        let (to_us, lines) = mpsc::channel();
        if let Some(stdout) = process.stdout.take() {
            thread::spawn(move || {
                for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                    if to_us.send(line).is_err() {
                        break;
                    }
                }
            });
        }
        let remarks = Arc::<Mutex<VecDeque<String>>>::default();
        if let Some(stderr) = process.stderr.take() {
            let remarks = Arc::clone(&remarks);
            thread::spawn(move || {
                for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                    let mut remarks = remarks.lock().unwrap_or_else(PoisonError::into_inner);
                    if remarks.len() == MOST_REMARKS {
                        remarks.pop_front();
                    }
                    remarks.push_back(line);
                }
            });
        }
        Ok(Self {
            process,
            lines,
            remarks,
        })
    }

    /// Sends a value as one line of JSON; blocks while the pipe is full.
    pub(super) fn say(&mut self, what: &impl Serialize) -> Outcome {
        let mut line = serde_json::to_vec(what)?;
        line.push(b'\n');
        let written = match &mut self.process.stdin {
            Some(stdin) => stdin.write_all(&line),
            None => Ok(()),
        };
        written.map_err(|_| self.ended())
    }

    /// The next it says, within so many seconds.
    pub(super) fn hear<T: DeserializeOwned>(&mut self, stop: &Stop, secs: f64) -> Outcome<T> {
        let deadline = local_clock() + secs;
        loop {
            match self.lines.recv_timeout(LONGEST_NAP) {
                Ok(line) => {
                    return serde_json::from_str(&line).map_err(|_| {
                        Failure::Runtime(format!("a process of the benchmark said: {line}"))
                    });
                }
                Err(RecvTimeoutError::Disconnected) => return Err(self.ended()),
                Err(RecvTimeoutError::Timeout) if stop.requested() => return Err(interrupted()),
                Err(RecvTimeoutError::Timeout) if local_clock() > deadline => {
                    let text = format!("nothing happened for {secs:.0} s{}", self.remarked());
                    return Err(Failure::NotFound(text));
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    /// Returns the process id, to watch its resources.
    pub(super) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Returns the lines that arrived since the last call and were not read yet.
    pub(super) fn said(&self) -> Vec<String> {
        self.lines.try_iter().collect()
    }

    /// Returns the exit status once the process has ended.
    pub(super) fn status(&mut self) -> Outcome<Option<ExitStatus>> {
        Ok(self.process.try_wait()?)
    }

    /// Asks it to end, as Ctrl-C does.
    pub(super) fn interrupt(&mut self) -> Outcome {
        Ok(interrupt(&mut self.process)?)
    }

    /// The last that it wrote to its error output.
    pub(super) fn remarks(&self) -> Vec<String> {
        let remarks = self.remarks.lock().unwrap_or_else(PoisonError::into_inner);
        remarks.iter().cloned().collect()
    }

    fn ended(&mut self) -> Failure {
        // Its last words may still be on their way.
        thread::sleep(LONGEST_NAP);
        let how = match self.process.try_wait() {
            Ok(Some(status)) => format!(" ({status})"),
            _ => String::new(),
        };
        let text = format!("a process of the benchmark ended{how}{}", self.remarked());
        Failure::Lost(text)
    }

    fn remarked(&self) -> String {
        let remarks = self.remarks.lock().unwrap_or_else(PoisonError::into_inner);
        if remarks.is_empty() {
            return String::new();
        }
        let lines: Vec<&str> = remarks.iter().map(String::as_str).collect();
        format!("; it wrote: {}", lines.join(" | "))
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Creates the failure that ends everything at Ctrl-C.
pub(super) fn interrupted() -> Failure {
    Failure::Runtime("interrupted".into())
}

const MOST_REMARKS: usize = 5;
