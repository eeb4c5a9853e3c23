//! A recorder under remote control: the selected streams, the name of the next file, and the
//! present recording, if there is one.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use lsl_record::rcs::{Command, Request};
use serde_json::json;

use super::events::Reporter;
use super::messages::say;
use super::naming::{Naming, check_displaced};
use super::plan::{EVERYTHING, Wishes, selector};
use super::resume;
use super::running::{DISK, REFUSED, Running, STREAM_LOST};
use crate::failure::{Failure, Outcome};
use crate::interrupt::Stop;
use crate::ui::text::printable;

/// The recorder behind the remote control.
pub(super) struct Control<'a> {
    pub(super) reporter: Reporter<'a>,
    pub(super) naming: Naming,
    /// Streams of the next recording, if any are selected.
    pub(super) selected: Wishes,
    /// Whether `start` selects everything if nothing is.
    pub(super) start_selects_all: bool,
    pub(super) running: Option<Running<'a>>,
    /// Last error, for the answer to `status`.
    pub(super) last_error: Option<String>,
    /// Most serious failure of a recording so far.
    pub(super) worst: Option<Failure>,
}

impl Control<'_> {
    /// Obeys commands until `quit` or Ctrl-C. Returns the failure of the worst recording.
    pub(super) fn run(mut self, requests: &Receiver<Request>, stop: &Stop) -> Outcome {
        while !stop.requested() {
            match requests.recv_timeout(STEP) {
                Ok(request) => {
                    let quits = request.command == Command::Quit;
                    let answer = self.obey(request.command, stop);
                    if let Some(sender) = request.answer {
                        // The client may have gone.
                        let _ = sender.send(answer);
                    }
                    if quits {
                        // The process would be gone before its last words.
                        let _ = request.answered.recv_timeout(LAST_WORDS);
                        break;
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            self.reporter.catch_up();
            if let Some(running) = &mut self.running
                && !running.step()
            {
                self.end(stop);
            }
        }
        self.end(stop);
        self.worst.map_or(Ok(()), Err)
    }

    fn obey(&mut self, command: Command, stop: &Stop) -> String {
        let name = format!("{command:?}");
        let begins = command == Command::Start;
        let done = self.try_to_obey(command, stop);
        match done {
            Ok(answer) => answer,
            Err(failure) => {
                // A command may be answered with OK all the same.
                say(format_args!(
                    "lsl record: remote control: {}",
                    printable(&failure.to_string())
                ));
                let told = failure.to_string();
                // A client's mistake is no recording that failed.
                if begins && !matches!(failure, Failure::Usage(_)) {
                    self.count(failure);
                }
                let answer = json!({ "error": told, "command": name }).to_string();
                self.last_error = Some(told);
                answer
            }
        }
    }

    fn try_to_obey(&mut self, command: Command, stop: &Stop) -> Outcome<String> {
        match command {
            Command::SelectAll => self.selected.wanted = vec![EVERYTHING.to_owned()],
            Command::SelectNone => self.selected = Wishes::default(),
            Command::Select(text) => {
                selector(&text)?;
                if !self.selected.wanted.contains(&text) {
                    self.selected.wanted.push(text);
                }
                return Ok(json!({ "selected": self.selected.wanted }).to_string());
            }
            Command::Start => self.begin(stop)?,
            Command::Stop => self.end(stop),
            Command::Filename(pairs) => self.naming.apply(&pairs)?,
            Command::Status => return self.status(),
            Command::Streams => {
                let streams = self.running.as_ref().map(Running::streams).transpose()?;
                return Ok(streams.unwrap_or_else(|| "[]".to_owned()));
            }
            Command::Mark(text) => {
                let Some(running) = &self.running else {
                    return Err(Failure::Usage("mark: nothing is recorded".into()));
                };
                running.mark(&text)?;
                return Ok(json!({ "marked": text }).to_string());
            }
            Command::Quit => {
                self.end(stop);
                return Ok(json!({ "quit": true }).to_string());
            }
            // There is nothing to bring up to date.
            Command::Update => {}
            Command::Unknown => {
                return Err(Failure::Usage(
                    "unknown command; there are auth, select, start, stop, update, filename, status, \
                     streams, mark, quit"
                        .into(),
                ));
            }
        }
        Ok(String::new())
    }

    fn status(&self) -> Outcome<String> {
        match &self.running {
            Some(running) => running.status(),
            None => Ok(json!({
                "event": "status",
                "recording": false,
                "selected": self.selected.wanted,
                "last_error": self.last_error,
            })
            .to_string()),
        }
    }

    fn begin(&mut self, stop: &Stop) -> Outcome {
        if self.running.is_some() {
            return Err(Failure::Usage("start: a recording goes on already".into()));
        }
        let mut wishes = self.selected.clone();
        if wishes.is_empty() {
            if !self.start_selects_all {
                return Err(Failure::Usage(
                    "start: nothing is selected, so nothing is recorded (`select all` first, or \
                     --rcs-start-selects-all)"
                        .into(),
                ));
            }
            wishes.wanted = vec![EVERYTHING.to_owned()];
        }
        let plan = self.reporter.plan;
        let path = plan.name(self.naming.file()?);
        check_displaced(&path)?;
        resume::look_at(&path, plan.resume)?;
        self.running = Running::begin(self.reporter, &wishes, path, stop)?;
        self.last_error = None;
        Ok(())
    }

    fn end(&mut self, stop: &Stop) {
        let Some(running) = self.running.take() else {
            return;
        };
        if let Err(failure) = running.end(stop) {
            say(format_args!("lsl record: {failure}"));
            self.last_error = Some(failure.to_string());
            self.count(failure);
        }
    }

    /// Keeps the more serious failure of two.
    fn count(&mut self, failure: Failure) {
        if (self.worst.as_ref()).is_none_or(|worst| badness(&failure) > badness(worst)) {
            self.worst = Some(failure);
        }
    }
}

/// Ranks failures by the loss that they mean; missing samples rank highest.
fn badness(failure: &Failure) -> u8 {
    match failure.status() {
        DISK => 4,
        STREAM_LOST => 3,
        REFUSED => 2,
        _ => 1,
    }
}

const STEP: Duration = Duration::from_millis(100);
const LAST_WORDS: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_that_are_missing_are_the_worst() {
        let order = [1, REFUSED, STREAM_LOST, DISK];
        let badness = order.map(|status| badness(&Failure::Recording(status, String::new())));
        assert!(badness.is_sorted_by(|a, b| a < b), "{badness:?}");
    }
}
