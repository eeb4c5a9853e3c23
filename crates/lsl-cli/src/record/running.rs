//! One recording from its beginning to its end: search, connect, then a file; the table meanwhile; at
//! the end everything up to that moment, footers, and a verdict.

use std::path::PathBuf;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use lsl_core::{Context, StreamInfo, local_clock};
use lsl_xdf::FileHeader;

use super::display::{Display, Row, Snapshot, size};
use super::live::{Live, Stamps, State};
use super::marks::Marks;
use super::output::Maker;
use super::remark::say;
use super::resume::Resume;
use super::session::{Search, Session, Wishes};
use super::strangers::TURN_SECS;
use super::stream::{Halt, OtherKeys};
use super::writer::{self, DISK, Ended, Queue, Settings};
use super::{REFUSED, STREAM_LOST, STREAM_MISSING, place, space};
use crate::absence;
use crate::date::rfc3339;
use crate::describe::Described;
use crate::encryption;
use crate::failure::{Failure, Outcome};
use crate::interrupt::Stop;
use crate::list::one_line;
use crate::table::{count, printable};

/// How to record.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    pub(super) timeout_secs: f64,
    pub(super) duration_secs: Option<f64>,
    pub(super) sync_secs: f64,
    pub(super) buffer_secs: f64,
    pub(super) min_free: u64,
    pub(super) spill: Option<PathBuf>,
    pub(super) json: bool,
    pub(super) resume: Resume,
    pub(super) stamps: Stamps,
    pub(super) other_keys: OtherKeys,
    pub(super) maker: Maker,
}

/// A recording that goes on.
pub(super) struct Running {
    context: Context,
    plan: Plan,
    session: Session,
    queue: Queue,
    writer: JoinHandle<Ended>,
    display: Display,
    started: f64,
    alarm: Option<String>,
    space_at: f64,
    free: Option<u64>,
    marks: Marks,
}

impl Running {
    /// Finds and connects the streams, then makes the file and starts to write.
    ///
    /// # Errors
    /// [`Failure::Recording`] if a stream is missing or refused, or the file cannot be made: there is
    /// no file then. `Ok(None)` if the user has had enough meanwhile.
    pub(super) fn begin(
        context: &Context,
        plan: &Plan,
        wishes: &Wishes,
        path: PathBuf,
        stop: &Stop,
    ) -> Outcome<Option<Self>> {
        context
            .security()
            .map_err(|error| Failure::Recording(REFUSED, error.to_string()))?;
        place::check(&path, plan.spill.as_deref())?;
        let mut search = Search::start(context, wishes)?;
        search.settle(plan.timeout_secs, stop);
        if stop.requested() {
            return Ok(None);
        }
        refuse_if_missing(context, plan, wishes, &search)?;
        let (queue, receiver) = Queue::new();
        let (buffer_secs, stamps, keys) = (plan.buffer_secs, plan.stamps, plan.other_keys);
        let mut session = Session::begin(context, search, &queue, buffer_secs, stamps, keys)?;
        connect(&mut session, plan.timeout_secs, stop);
        if stop.requested() {
            return Ok(None);
        }
        judge_connections(&mut session)?;
        announce(context, &session, &path);
        if let Some(device) = &plan.maker.device {
            say(format_args!(
                "Signed with the key of this device, {}.",
                device.fingerprint()
            ));
        }
        preflight(plan, &session, &path);
        let settings = Settings {
            path,
            maker: plan.maker.clone(),
            sync_secs: plan.sync_secs,
            spill: plan.spill.clone(),
            min_free: plan.min_free,
            header: file_header(),
        };
        let writer = writer::start(settings, receiver, queue.progress())?;
        session.note_recording();
        let started = local_clock();
        if let Some(duration) = plan.duration_secs {
            session.end_at(started + duration);
        }
        Ok(Some(Self {
            context: context.clone(),
            plan: plan.clone(),
            session,
            queue,
            writer,
            display: Display::new(plan.json),
            started,
            alarm: None,
            space_at: 0.0,
            free: None,
            marks: Marks::default(),
        }))
    }

    /// Looks after everything. Call it a few times a second; false once it has to end.
    pub(super) fn step(&mut self) -> bool {
        self.session.look();
        self.look_at_space();
        if self.display.is_due() {
            let snapshot = snapshot(&self.session, &self.queue, self.free, self.alarm.as_ref());
            self.display.update(snapshot);
        }
        let over = (self.plan.duration_secs)
            .is_some_and(|duration| local_clock() >= self.started + duration);
        !over && !self.queue.progress().has_failed()
    }

    fn look_at_space(&mut self) {
        let now = local_clock();
        if now < self.space_at {
            return;
        }
        self.space_at = now + SPACE_SECS;
        let files = self.queue.progress().files();
        self.free = files.last().and_then(|file| space::free(file));
        let alarm = self.free.and_then(|free| {
            space::alarm(free, self.display.left_secs(Some(free)), self.plan.min_free)
        });
        if let (Some(alarm), None) = (&alarm, &self.alarm) {
            say(format_args!("lsl record: LOW SPACE: {alarm}."));
        }
        self.alarm = alarm;
    }

    /// A text event of the operator.
    pub(super) fn mark(&mut self, text: &str) -> Outcome {
        self.marks.add(&self.queue, local_clock(), text)
    }

    /// Its state as JSON.
    pub(super) fn status(&self) -> Outcome<String> {
        let snapshot = snapshot(&self.session, &self.queue, self.free, self.alarm.as_ref());
        let line = self.display.line("status", snapshot, local_clock(), None);
        Ok(serde_json::to_string(&line)?)
    }

    /// Its streams as JSON.
    pub(super) fn streams(&self) -> Outcome<String> {
        let now = local_clock();
        let streams = self.session.streams().iter();
        let rows: Vec<Row> = streams.map(|live| Row::of(&live.reading(), now)).collect();
        Ok(serde_json::to_string(&rows)?)
    }

    /// Stops with everything up to this moment, writes the footers and says how it went.
    pub(super) fn end(mut self, stop: &Stop) -> Outcome {
        let until = match self.plan.duration_secs {
            Some(duration) => (self.started + duration).min(local_clock()),
            None => local_clock(),
        };
        self.queue.progress().end();
        self.session.halt(Halt::Drain(until, until + GRACE_SECS));
        let mut hurried_at = None;
        while !self.session.is_over() {
            if stop.hurried() && hurried_at.is_none() {
                self.session.halt(Halt::Now);
                hurried_at = Some(local_clock());
            }
            if hurried_at.is_some_and(|at| local_clock() > at + GRACE_SECS) {
                say("lsl record: the disk is too slow: what waits in memory is given up.");
                break;
            }
            thread::sleep(END_NAP);
        }
        let free = self.free;
        let progress = Arc::clone(self.queue.progress());
        let (streams, gone) = self.session.end();
        let ended = self.writer.join().unwrap_or_else(|_| Ended {
            trouble: vec!["the writer ended unexpectedly".into()],
            ..Ended::default()
        });
        let verdict = verdict(&streams, &gone, &ended, progress.unwritten());
        let status = verdict.as_ref().err().map_or(0, Failure::status);
        let mut snapshot = Snapshot::of(&streams, &progress);
        snapshot.free_bytes = free;
        self.display.finish(snapshot, status);
        let samples: u64 = ended.samples.values().sum();
        let files: Vec<String> = progress
            .files()
            .iter()
            .map(|file| file.display().to_string())
            .collect();
        say(format_args!(
            "Recorded {samples} samples of {}, {} in {}.",
            count(ended.samples.len(), "stream"),
            size(progress.bytes()),
            files.join(" and ")
        ));
        let gaps: u64 = streams.iter().map(|live| live.lock().gaps).sum();
        if gaps > 0 {
            let gaps = count(usize::try_from(gaps).unwrap_or(usize::MAX), "interruption");
            say(format_args!("{gaps}, see the gaps in the footers."));
        }
        drop(self.context);
        verdict
    }
}

fn snapshot<'a>(
    session: &Session,
    queue: &'a Queue,
    free: Option<u64>,
    alarm: Option<&String>,
) -> Snapshot<'a> {
    let mut snapshot = Snapshot::of(session.streams(), queue.progress());
    snapshot.free_bytes = free;
    snapshot.alarm = alarm.cloned();
    let awaited = session.search().awaited();
    snapshot.awaited = awaited.into_iter().map(str::to_owned).collect();
    snapshot
}

fn refuse_if_missing(context: &Context, plan: &Plan, wishes: &Wishes, search: &Search) -> Outcome {
    let missing: Vec<String> = search.missing().into_iter().map(printable).collect();
    let secs = plan.timeout_secs;
    if !missing.is_empty() {
        return Err(Failure::Recording(
            STREAM_MISSING,
            format!(
                "required, but not there within {secs} s: {}. Nothing was recorded.\n{}",
                missing.join(", "),
                absence::explain(context)
            ),
        ));
    }
    if search.is_empty() && wishes.watched.is_empty() {
        return Err(Failure::Recording(
            STREAM_MISSING,
            format!(
                "no stream answered within {secs} s; nothing was recorded (--watch waits for \
                 streams that are not there yet)\n{}",
                absence::explain(context)
            ),
        ));
    }
    for text in search.awaited() {
        say(format_args!(
            "lsl record: {} is not there yet; it is recorded when it comes.",
            printable(text)
        ));
    }
    Ok(())
}

/// Waits until every stream flows or is known not to. Silent ones that are not required keep those that flow
/// waiting for the time of a turn: anybody can make them up.
fn connect(session: &mut Session, limit_secs: f64, stop: &Stop) {
    let start = local_clock();
    let limit = start + limit_secs.max(SHORTEST_CONNECT);
    loop {
        session.look();
        let now = local_clock();
        let suffices = || {
            let mut streams = session.streams().iter();
            now >= start + TURN_SECS && streams.any(|live| !live.is_unproven())
        };
        let is_over = session.is_clear() || (suffices() && session.unmet().is_empty());
        if is_over || now >= limit || !stop.sleep_until(now + NAP) {
            return;
        }
    }
}

/// Whether to begin with what is connected.
fn judge_connections(session: &mut Session) -> Outcome {
    let unmet = session.unmet();
    let mut refused = Vec::new();
    let mut silent = Vec::new();
    for live in session.streams() {
        let name = printable(&live.name());
        match live.state() {
            State::Refused(reason) => {
                refused.push((live.required, format!("'{name}': {}", printable(&reason))));
            }
            State::Connecting => silent.push(name),
            _ => {}
        }
    }
    let none_is_left = !refused.is_empty() && refused.len() == session.streams().len();
    if none_is_left || !unmet.is_empty() && refused.iter().any(|(required, _)| *required) {
        let lines: Vec<&str> = refused.iter().map(|(_, line)| line.as_str()).collect();
        return Err(Failure::Recording(
            REFUSED,
            format!(
                "encryption does not allow to record; nothing was recorded.\n{}\n\
                 `lsl trust check` says what to do about it.",
                lines.join("\n")
            ),
        ));
    }
    if !unmet.is_empty() {
        let unmet: Vec<String> = unmet.iter().map(|text| printable(text)).collect();
        return Err(Failure::Recording(
            STREAM_MISSING,
            format!(
                "required and found, but no connection is possible (firewall?): {}. Nothing was \
                 recorded.",
                unmet.join(", ")
            ),
        ));
    }
    for name in silent {
        say(format_args!(
            "lsl record: '{name}' was found but does not connect (firewall?); still trying."
        ));
    }
    Ok(())
}

/// Names what is recorded before it starts.
fn announce(context: &Context, session: &Session, path: &std::path::Path) {
    let streams = session.streams();
    say(format_args!(
        "Recording {} into {}; Ctrl-C ends.",
        count(streams.len(), "stream"),
        path.display()
    ));
    let mut in_plaintext = 0;
    for live in streams {
        let reading = live.reading();
        say(format_args!(
            "  {}",
            one_line(&Described::from(&reading.info))
        ));
        in_plaintext += usize::from(reading.has_header && reading.encryption.is_none());
    }
    if in_plaintext > 0
        && let Some(warning) = encryption::plaintext_warning(context)
    {
        say(format_args!(
            "{} in plaintext. {warning}",
            count(in_plaintext, "stream")
        ));
    }
}

/// Says how long the disk will do.
fn preflight(plan: &Plan, session: &Session, path: &std::path::Path) {
    let infos: Vec<StreamInfo> = session
        .streams()
        .iter()
        .map(|live| live.reading().info)
        .collect();
    let rate = space::estimate(&infos);
    let Some(free) = space::free(path) else {
        return;
    };
    let left = (rate > 0.0).then(|| free as f64 / rate);
    if let Some(left) = left {
        say(format_args!(
            "About {} an hour; {} free, enough for {}.",
            size(bytes(rate * 3600.0)),
            size(free),
            crate::table::age(left)
        ));
    }
    let short = plan
        .duration_secs
        .zip(left)
        .is_some_and(|(wanted, left)| left < wanted);
    if short {
        say("lsl record: LOW SPACE: not enough for --duration.");
    }
    if free < plan.min_free {
        say(format_args!(
            "lsl record: LOW SPACE: less than the {} of --min-free.",
            size(plan.min_free)
        ));
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "saturates: sizes are not negative"
)]
fn bytes(number: f64) -> u64 {
    number as u64
}

fn file_header() -> FileHeader {
    let utc = lsl_platform::clock::utc_now().as_secs();
    let mut header = FileHeader::new(&rfc3339(utc).replace('Z', "+0000"));
    header.set("writer", concat!("lsl-rs ", env!("CARGO_PKG_VERSION")));
    header
}

/// What the exit status says.
fn verdict(streams: &[Arc<Live>], gone: &[String], ended: &Ended, unwritten: u64) -> Outcome {
    let missing: u64 = streams.iter().map(|live| live.lock().missing).sum();
    if !ended.trouble.is_empty() || unwritten + missing > 0 {
        let mut text = ended.trouble.join("; ");
        if unwritten + missing > 0 {
            if !text.is_empty() {
                text.push_str("; ");
            }
            text.push_str(&(unwritten + missing).to_string());
            text.push_str(" samples are MISSING");
            text.push_str(if ended.is_finished {
                ", the footers say where"
            } else {
                ""
            });
        }
        if !ended.is_finished {
            text.push_str(
                "; the file has no end: make room, then `lsl xdf repair FILE` gives it one",
            );
        }
        return Err(Failure::Recording(DISK, text));
    }
    let named = |is: &dyn Fn(&State) -> bool| -> Vec<String> {
        let lost = streams.iter().filter(|live| {
            let reading = live.lock();
            reading.is_lost && is(&reading.state)
        });
        lost.map(|live| printable(&live.name())).collect()
    };
    let refused = named(&|state| matches!(state, State::Refused(_)));
    if !refused.is_empty() {
        return Err(Failure::Recording(
            REFUSED,
            format!(
                "not recorded, since encryption does not allow it: {}",
                refused.join(", ")
            ),
        ));
    }
    let mut lost = named(&|_| true);
    lost.extend(gone.iter().map(|text| printable(text)));
    if !lost.is_empty() {
        return Err(Failure::Recording(
            STREAM_LOST,
            format!("lost and not back: {}", lost.join(", ")),
        ));
    }
    Ok(())
}

/// How long streams may take to hand over what belongs to the recording.
const GRACE_SECS: f64 = 2.0;
const SHORTEST_CONNECT: f64 = 1.0;
const SPACE_SECS: f64 = 1.0;
const NAP: f64 = 0.02;
const END_NAP: Duration = Duration::from_millis(10);
