//! Runs a command for each event: one at a time, ten seconds each, the newest sixteen wait. Names from the network
//! reach it by its input and environment, never in the command.

use std::collections::VecDeque;
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use lsl_core::local_clock;
use lsl_platform::process::{kill, separate};

use crate::ui::notice::note;

/// What a hook hears of an event.
#[derive(Debug, Clone)]
pub(super) struct Call {
    pub(super) event: String,
    pub(super) state: String,
    pub(super) stream: String,
    /// The line of JSON.
    pub(super) line: String,
}

/// A command, and what waits for it.
#[derive(Debug)]
pub(super) struct Hook {
    command: String,
    queue: Mutex<Queue>,
    bell: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Call>,
    left_out: u64,
    /// Until when what waits is still run.
    end: Option<f64>,
}

impl Hook {
    pub(super) fn new(command: String) -> Self {
        Self {
            command,
            queue: Mutex::default(),
            bell: Condvar::new(),
        }
    }

    /// Has it run for an event.
    pub(super) fn push(&self, call: Call) {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        queue.waiting.push_back(call);
        if queue.waiting.len() > MOST_WAITING {
            queue.waiting.pop_front();
            queue.left_out += 1;
        }
        self.bell.notify_one();
    }

    /// Lets it finish, for a while.
    pub(super) fn end(&self) {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        queue.end = Some(local_clock() + LIMIT_SECS);
        self.bell.notify_one();
    }

    /// Runs it for each event, until the end.
    pub(super) fn run(&self) {
        loop {
            let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
            while queue.waiting.is_empty() && queue.end.is_none() {
                queue = self
                    .bell
                    .wait(queue)
                    .unwrap_or_else(PoisonError::into_inner);
            }
            let is_over = queue.end.is_some_and(|end| local_clock() >= end);
            let next = if is_over {
                None
            } else {
                queue.waiting.pop_front()
            };
            let Some(call) = next else {
                let left_out = queue.left_out + queue.waiting.len() as u64;
                if left_out > 0 {
                    note(format_args!(
                        "lsl: the hook was too slow: {left_out} events were not told to it"
                    ));
                }
                return;
            };
            drop(queue);
            if let Err(error) = self.call(&call) {
                note(format_args!("lsl: the hook: {error}"));
            }
        }
    }

    fn call(&self, call: &Call) -> std::io::Result<()> {
        let mut command = if cfg!(windows) {
            let mut command = Command::new("cmd");
            command.args(["/C", &self.command]);
            command
        } else {
            let mut command = Command::new("/bin/sh");
            command.args(["-c", &self.command]);
            command
        };
        command
            .env("LSL_EVENT", &call.event)
            .env("LSL_STATE", &call.state)
            // What no variable can hold is none.
            .env("LSL_STREAM", call.stream.replace('\0', ""))
            .stdin(Stdio::piped())
            // Ours carries nothing but events.
            .stdout(Stdio::null());
        separate(&mut command);
        let mut child = command.spawn()?;
        if let Some(mut input) = child.stdin.take() {
            // Shorter than any pipe; whoever does not read it does not want it.
            let _ = writeln!(input, "{}", call.line);
        }
        let end = local_clock() + LIMIT_SECS;
        while child.try_wait()?.is_none() {
            if local_clock() >= end {
                kill(&mut child)?;
                note(format_args!(
                    "lsl: the hook ran for {LIMIT_SECS} s and was ended"
                ));
                break;
            }
            std::thread::sleep(NAP);
        }
        Ok(())
    }
}

const LIMIT_SECS: f64 = 10.0;
const MOST_WAITING: usize = 16;
const NAP: Duration = Duration::from_millis(20);
