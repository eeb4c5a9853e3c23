//! One recording from its beginning to its end, as the command shows it: remarks and the table meanwhile,
//! and a verdict.

use std::path::PathBuf;
use std::time::Duration;

use lsl_core::secure::audit::{Event, EventKind, Span};
use lsl_core::{Context, local_clock};
use lsl_doctor::observe::StreamAsked;
use lsl_record::{Recorder, Report, StartError, Status, Stop as Mode, StreamStatus};
use lsl_xdf::ErrorKind;

use super::display::{Display, StatusLine, StreamRow, size};
use super::events::Reporter;
use super::messages::say;
use super::plan::{Plan, Wishes};
use crate::failure::{Failure, Outcome};
use crate::files::security_log;
use crate::interrupt::Stop;
use crate::streams::not_found;
use crate::ui::text::{count, printable};

/// A recording that goes on.
pub(super) struct Running<'a> {
    reporter: Reporter<'a>,
    recorder: Recorder,
    display: Display,
    /// Tree of its events.
    span: Span,
}

impl<'a> Running<'a> {
    /// Finds and connects the streams, then makes the file and starts to write.
    ///
    /// # Errors
    /// [`Failure::Recording`] if a stream is missing or refused, or the file cannot be made: there is
    /// no file then. `Ok(None)` if the user has had enough meanwhile.
    pub(super) fn begin(
        reporter: Reporter<'a>,
        wishes: &Wishes,
        path: PathBuf,
        stop: &Stop,
    ) -> Outcome<Option<Self>> {
        let Reporter {
            context,
            plan,
            events,
        } = reporter;
        let recorder = plan.recorder(context, wishes, path, events)?;
        match reporter.during(|| recorder.start(plan.timeout_secs, stop.first())) {
            Ok(recorder) => {
                let span = Span::begin();
                log(
                    reporter,
                    span,
                    EventKind::RecordingBegun,
                    &recorder.status(),
                    |it| it,
                );
                Ok(Some(Self {
                    reporter,
                    recorder,
                    display: Display::new(plan.json),
                    span,
                }))
            }
            Err(StartError::Cancelled) => Ok(None),
            Err(error) => Err(not_started(error, context, plan)),
        }
    }

    /// Shows how it is going. Call it a few times a second; false once it has to end.
    pub(super) fn step(&mut self) -> bool {
        self.reporter.catch_up();
        if self.display.is_due() {
            self.display.update(&self.recorder.status());
        }
        !self.recorder.is_over()
    }

    /// A text event of the operator.
    pub(super) fn mark(&self, text: &str) -> Outcome {
        let marked = self.recorder.mark(text);
        marked.map_err(|error| Failure::Runtime(format!("mark: not recorded, {error}")))
    }

    /// Returns the state of the recording as JSON.
    pub(super) fn status(&self) -> Outcome<String> {
        let line = StatusLine::of("status", &self.recorder.status(), None);
        Ok(serde_json::to_string(&line)?)
    }

    /// Returns the streams of the recording as JSON.
    pub(super) fn streams(&self) -> Outcome<String> {
        let now = local_clock();
        let status = self.recorder.status();
        let rows: Vec<StreamRow> = status
            .streams
            .iter()
            .map(|it| StreamRow::of(it, now))
            .collect();
        Ok(serde_json::to_string(&rows)?)
    }

    /// Stops with everything up to this moment, writes the footers and says how it went.
    pub(super) fn end(self, stop: &Stop) -> Outcome {
        let mode = Mode::Drain {
            until: local_clock(),
            grace_secs: GRACE_SECS,
        };
        let (reporter, span) = (self.reporter, self.span);
        let (recorder, mut display) = (self.recorder, self.display);
        let report = (self.reporter).during(|| recorder.stop(mode, stop.second()));
        log(
            reporter,
            span,
            EventKind::RecordingEnded,
            &report.status,
            |event| {
                let gaps = report.status.streams.iter().map(|it| it.gaps).sum::<u64>();
                let took = Duration::try_from_secs_f64(report.status.secs).unwrap_or_default();
                let event = event.took(took).with("samples", report.samples);
                event.with("gaps", gaps).with("bytes", report.status.bytes)
            },
        );
        let verdict = verdict(&report);
        let status = verdict.as_ref().err().map_or(0, Failure::status);
        display.finish(&report.status, status);
        sum_up(&report);
        verdict
    }
}

/// Tells auditors of a recording.
fn log(
    reporter: Reporter<'_>,
    span: Span,
    kind: EventKind,
    status: &Status,
    more: impl FnOnce(Event) -> Event,
) {
    let Reporter { context, plan, .. } = reporter;
    let Ok(security) = context.security() else {
        return;
    };
    security.audit().record_with(kind, |kind| {
        let files = status.files.iter().map(|file| file.display().to_string());
        let mut event = Event::new(kind)
            .span(span)
            .detail(files.collect::<Vec<_>>().join(", "))
            .with("streams", status.streams.len() as u64)
            .with("encrypted", plan.recipients.is_some())
            .with("signed", plan.signer.is_some());
        event = match &plan.recipients {
            Some(recipients) => security_log::sealed(event, Some(recipients)),
            None => event.with("format", "xdf"),
        };
        if let Some(signer) = &plan.signer {
            event = event.with("signer", &*signer.fingerprint().to_string());
        }
        more(event)
    });
}

/// What a recording looked for, in words.
fn asked(text: &str) -> StreamAsked {
    StreamAsked {
        text: text.to_owned(),
        ..StreamAsked::default()
    }
}

/// Explains a recording that did not start, with advice.
fn not_started(error: StartError, context: &Context, plan: &Plan) -> Failure {
    let secs = plan.timeout_secs;
    match error {
        StartError::Security(error) => Failure::Recording(REFUSED, error.to_string()),
        StartError::NoSpillFolder(_) | StartError::SpillsIntoItself(_) => {
            Failure::Usage(format!("--spill-dir {error}"))
        }
        StartError::NotAFile(_) => Failure::Usage(error.to_string()),
        StartError::NoHistory => Failure::Usage(format!("--history: {error}")),
        StartError::Folder { .. } => Failure::Recording(DISK, error.to_string()),
        StartError::Search(error) => error.into(),
        StartError::Missing(labels) => Failure::Recording(
            STREAM_MISSING,
            format!(
                "required, but not there within {secs} s: {}. Nothing was recorded.\n{}",
                joined(&labels),
                not_found::explain(context, Some(asked(&joined(&labels))))
            ),
        ),
        StartError::NothingFound => Failure::Recording(
            STREAM_MISSING,
            format!(
                "no stream answered within {secs} s; nothing was recorded (--watch waits for \
                 streams that are not there yet)\n{}",
                not_found::explain(context, Some(asked("a stream")))
            ),
        ),
        StartError::Refused(streams) => {
            let line = |(name, reason): &(String, String)| {
                format!("'{}': {}", printable(name), printable(reason))
            };
            let lines: Vec<String> = streams.iter().map(line).collect();
            Failure::Recording(
                REFUSED,
                format!(
                    "encryption does not allow to record; nothing was recorded.\n{}\n\
                     `lsl trust check` says what to do about it.",
                    lines.join("\n")
                ),
            )
        }
        StartError::Unreachable(labels) => Failure::Recording(
            STREAM_MISSING,
            format!(
                "required and found, but no connection is possible (firewall?): {}. Nothing was \
                 recorded.",
                joined(&labels)
            ),
        ),
        StartError::Output(error) => match error.kind() {
            ErrorKind::Argument => Failure::Usage(error.to_string()),
            _ => Failure::Recording(DISK, error.to_string()),
        },
        StartError::Threads(_) | StartError::Cancelled => Failure::Runtime(error.to_string()),
    }
}

fn joined(names: &[String]) -> String {
    let names: Vec<String> = names.iter().map(|name| printable(name)).collect();
    names.join(", ")
}

/// Decides the exit status from the report.
fn verdict(report: &Report) -> Outcome {
    let missing = report.status.missing();
    if !report.trouble.is_empty() || missing > 0 {
        let mut text = report.trouble.join("; ");
        if missing > 0 {
            if !text.is_empty() {
                text.push_str("; ");
            }
            text.push_str(&missing.to_string());
            text.push_str(" samples are MISSING");
            text.push_str(if report.is_finished {
                ", the footers say where"
            } else {
                ""
            });
        }
        if !report.is_finished {
            text.push_str(
                "; the file has no end: make room, then `lsl xdf repair FILE` gives it one",
            );
        }
        return Err(Failure::Recording(DISK, text));
    }
    if !report.refused.is_empty() {
        return Err(Failure::Recording(
            REFUSED,
            format!(
                "not recorded, since encryption does not allow it: {}",
                joined(&report.refused)
            ),
        ));
    }
    if !report.lost.is_empty() {
        return Err(Failure::Recording(
            STREAM_LOST,
            format!("lost and not back: {}", joined(&report.lost)),
        ));
    }
    Ok(())
}

/// Prints the sums of the recording.
fn sum_up(report: &Report) {
    let status = &report.status;
    let files = status.files.iter().map(|file| file.display().to_string());
    let files: Vec<String> = files.collect();
    say(format_args!(
        "Recorded {} samples of {}, {} in {}.",
        report.samples,
        count(report.recorded_streams, "stream"),
        size(status.bytes),
        files.join(" and ")
    ));
    let gaps: u64 = status.streams.iter().map(|stream| stream.gaps).sum();
    if gaps > 0 {
        let gaps = count(usize::try_from(gaps).unwrap_or(usize::MAX), "interruption");
        let lost = lost(&status.streams).map_or_else(String::new, |lost| format!(" {lost}"));
        say(format_args!("{gaps}, see the gaps in the footers.{lost}"));
    }
}

/// Describes what was lost before it came here, if anything.
fn lost(streams: &[StreamStatus]) -> Option<String> {
    let exact: u64 = streams.iter().map(|stream| stream.lost).sum();
    let unknown: u64 = streams.iter().map(|stream| stream.unknown_losses).sum();
    let of = |losses| format!("of {losses} nobody knows how many");
    match (exact, unknown) {
        (0, 0) => None,
        (exact, 0) => Some(format!("Lost: {exact} samples.")),
        (0, unknown) => Some(format!("Lost: {}.", of(unknown))),
        (exact, unknown) => Some(format!("Lost: {exact} samples; {}.", of(unknown))),
    }
}

/// A stream that was required is not there.
const STREAM_MISSING: u8 = 2;
/// A stream went away and did not come back.
pub(super) const STREAM_LOST: u8 = 3;
/// The disk failed, or was too slow.
pub(super) const DISK: u8 = 4;
/// Encryption does not allow it.
pub(super) const REFUSED: u8 = 5;
/// Time that streams may take to hand over their last samples.
const GRACE_SECS: f64 = 2.0;
