//! Reports while files are locked and unlocked: a bar on a terminal, a line for each file.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use indicatif::ProgressBar;
use lsl_core::secure::audit::{Audit, Event, EventKind, Span};
use lsl_core::secure::handshake::{Step, TimedStep};
use lsl_xdf::at_rest::{
    self, Cancel, End, ErrorKind, FileOutcome, Identities, Recipients, StepTime, Watch,
};
use serde::Serialize;

use crate::failure::{Failure, Outcome};
use crate::files::security_log;
use crate::interrupt::Stop;
use crate::ui::notice::note;
use crate::ui::progress;
use crate::ui::prompt;
use crate::ui::text::{count, printable};

/// Operation on files, as reported to people.
#[derive(Debug, Clone, Copy)]
pub(super) enum Deed {
    Lock,
    Unlock,
    Rotate,
    Verify,
}

/// Reports files as they get done. Shared by the threads that work on them.
pub(super) struct FileReporter<'a> {
    json: bool,
    /// What is done, as auditors call it.
    operation: &'static str,
    /// Past participle of the operation, as in "locked".
    done: &'static str,
    /// Event of the operation in the security log.
    event: EventKind,
    bar: ProgressBar,
    /// Security log, where one is kept.
    audit: Option<Audit>,
    /// Who can open what is written.
    recipients: Option<&'a Recipients>,
    /// Progress of each file, and the error that stopped the output.
    state: Mutex<ReportState>,
}

#[derive(Default)]
struct ReportState {
    files: Vec<(PathBuf, u64)>,
    total: u64,
    trouble: Option<Failure>,
}

/// Report of one file: an object of `--json`.
#[derive(Debug, Serialize)]
struct FileReport<'a> {
    file: &'a Path,
    output: Option<&'a Path>,
    result: &'static str,
    plain_bytes: Option<u64>,
    /// End of the encrypted file, where it was looked at.
    end: Option<&'static str>,
    source_removed: bool,
    error: Option<String>,
}

impl<'a> FileReporter<'a> {
    pub(super) fn new(
        json: bool,
        deed: Deed,
        files: &[PathBuf],
        recipients: Option<&'a Recipients>,
    ) -> Self {
        let (operation, doing, done, event) = match deed {
            Deed::Lock => ("lock", "Locking", "locked", EventKind::FileLocked),
            Deed::Unlock => ("unlock", "Unlocking", "unlocked", EventKind::FileUnlocked),
            Deed::Rotate => ("rotate", "Rotating", "rotated", EventKind::FileRotated),
            Deed::Verify => ("verify", "Verifying", "verified", EventKind::FileVerified),
        };
        let len = |file: &PathBuf| std::fs::metadata(file).map_or(0, |data| data.len());
        let total = files.iter().map(len).sum();
        Self {
            json,
            operation,
            done,
            event,
            bar: progress::bytes(total, doing),
            audit: security_log::found(),
            recipients,
            state: Mutex::new(ReportState {
                total,
                ..ReportState::default()
            }),
        }
    }

    /// Clears the bar and sums up: an error if any file failed.
    pub(super) fn end(self, outcomes: &[FileOutcome], cancel: &Cancel) -> Outcome {
        self.bar.finish_and_clear();
        let state = self
            .state
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(failure) = state.trouble {
            return Err(failure);
        }
        let failed: Vec<&at_rest::Error> = outcomes
            .iter()
            .filter_map(|outcome| outcome.result.as_ref().err())
            .collect();
        let Some(first) = failed.first() else {
            return Ok(());
        };
        if cancel.is_cancelled() {
            return Err(Failure::Runtime(format!(
                "stopped: {} of {} {}; of the others nothing is left behind",
                outcomes.len() - failed.len(),
                count(outcomes.len(), "file"),
                self.done,
            )));
        }
        let text = format!(
            "{} of {} not {}",
            failed.len(),
            count(outcomes.len(), "file"),
            self.done
        );
        Err(match first.kind() {
            ErrorKind::Argument if failed.iter().all(|e| e.kind() == ErrorKind::Argument) => {
                Failure::Usage(text)
            }
            _ => Failure::Runtime(text),
        })
    }

    /// Logs the outcome of a file in the security log, for auditors.
    fn log(&self, outcome: &FileOutcome) {
        let Some(audit) = &self.audit else {
            return;
        };
        let file = outcome.from.display();
        let event = match &outcome.result {
            Ok(done) => Event::new(self.event)
                .detail(file.to_string())
                .with("bytes", done.plain_bytes),
            // The end of a long text is cut off.
            Err(error) => Event::new(EventKind::FileFailed)
                .detail(format!("not {}: {error}: {file}", self.done)),
        };
        let mut event = event.with("operation", self.operation);
        // What failed may be no such file.
        if outcome.result.is_ok() {
            event = security_log::sealed(event, self.recipients);
        }
        let took = Duration::try_from_secs_f64(outcome.took_secs).unwrap_or_default();
        let steps: Vec<_> = outcome.steps.iter().map(timed).collect();
        audit.record(event.span(Span::begin()).took(took).steps(steps));
    }

    fn write(&self, outcome: &FileOutcome) -> io::Result<()> {
        let name = printable(&outcome.from.display().to_string());
        if self.json {
            let done = outcome.result.as_ref().ok();
            let line = FileReport {
                file: &outcome.from,
                output: outcome.to.as_deref().filter(|_| done.is_some()),
                result: if done.is_some() { self.done } else { "failed" },
                plain_bytes: done.map(|done| done.plain_bytes),
                end: done.and_then(|done| done.end).map(end_name),
                source_removed: done.is_some_and(|done| done.source_removed),
                error: outcome.result.as_ref().err().map(ToString::to_string),
            };
            let mut out = io::stdout().lock();
            serde_json::to_writer(&mut out, &line)?;
            writeln!(out)?;
            return out.flush();
        }
        match &outcome.result {
            Ok(done) => {
                let mut out = io::stdout().lock();
                write!(out, "{name}: {}", self.done)?;
                if let Some(to) = outcome.to.as_ref().filter(|to| **to != outcome.from) {
                    write!(out, " into {}", printable(&to.display().to_string()))?;
                }
                write!(out, ", {} bytes", done.plain_bytes)?;
                match done.end {
                    Some(End::CutOff) => write!(out, "; the encrypted file was cut off")?,
                    Some(End::Damaged) => write!(out, "; the encrypted file was damaged")?,
                    _ => {}
                }
                if done.source_removed {
                    write!(out, "; the original is gone")?;
                }
                writeln!(out)?;
                out.flush()
            }
            Err(at_rest::Error::Cancelled) => Ok(()),
            Err(error) => {
                note(format_args!("lsl: {name}: {error}"));
                Ok(())
            }
        }
    }
}

impl Watch for FileReporter<'_> {
    fn advanced(&self, file: &Path, done: u64, _total: u64) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match state.files.iter_mut().find(|(known, _)| known == file) {
            Some((_, bytes)) => *bytes = done,
            None => state.files.push((file.to_owned(), done)),
        }
        let sum: u64 = state.files.iter().map(|(_, bytes)| bytes).sum();
        self.bar.set_position(sum.min(state.total));
    }

    fn finished(&self, outcome: &FileOutcome) {
        self.log(outcome);
        let written = self.bar.suspend(|| self.write(outcome));
        if let Err(error) = written {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.trouble.get_or_insert_with(|| error.into());
        }
    }
}

/// Returns a step as auditors know it.
fn timed(time: &StepTime) -> TimedStep {
    let step = match time.step {
        at_rest::Step::Wrap => Step::Wrap,
        at_rest::Step::Unwrap => Step::Unwrap,
        at_rest::Step::Payload => Step::Payload,
        at_rest::Step::Copy => Step::Copy,
        at_rest::Step::Sync => Step::Sync,
    };
    TimedStep::new(step, time.after_secs, time.took_secs)
}

fn end_name(end: End) -> &'static str {
    match end {
        End::Whole => "whole",
        End::CutOff => "cut off",
        _ => "damaged",
    }
}

/// Makes Ctrl-C cancel the library's work. Passphrases are asked for before.
pub(super) fn cancel_on_interrupt() -> Outcome<Cancel> {
    Ok(Stop::install()?.first().clone())
}

/// Returns whether standard input and output are meant.
pub(super) fn is_pipe(files: &[PathBuf]) -> Outcome<bool> {
    let is_dash = |file: &PathBuf| file.as_os_str() == "-";
    match files {
        [one] => Ok(is_dash(one)),
        many if many.iter().any(is_dash) => Err(Failure::Usage(
            "`-`, standard input, stands alone: its output has one place to go".into(),
        )),
        _ => Ok(false),
    }
}

/// Asks for the passphrase of files that were locked with one, before the work begins: once for all.
pub(super) fn add_passphrase(identities: &mut Identities, files: &[PathBuf]) -> Outcome {
    let wants = |file: &PathBuf| {
        let opened = std::fs::File::open(file).map_err(at_rest::Error::from);
        let opened = opened.and_then(|file| {
            at_rest::Decrypting::new(file, &Identities::new(), at_rest::Ending::Tolerant)
        });
        matches!(opened, Err(at_rest::Error::PassphraseNeeded))
    };
    if let Some(file) = files.iter().find(|file| wants(file)) {
        let typed = prompt::ask(&format!("Passphrase for {}: ", file.display()))?;
        identities.add_passphrase(&typed);
    }
    Ok(())
}
