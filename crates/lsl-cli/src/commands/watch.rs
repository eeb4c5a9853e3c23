//! `lsl watch`: says at once when a stream that has to be there is not, or not as it should be. Spec: doctor §3.6

mod eye;
mod hook;
mod requirement;
mod state;

use std::io::{self, IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread;

use clap::Args;
use lsl_core::config::Loaded;
use lsl_core::{Context, local_clock};
use lsl_doctor::collect::{self, Wishes};
use lsl_doctor::observe::Asked;
use lsl_doctor::table::diagnose;
use lsl_platform::calendar::rfc3339;
use lsl_platform::clock::utc_now;
use serde::Serialize;

use self::eye::Seen;
use self::hook::{Call, Hook};
use self::requirement::Requirement;
use self::state::{Event, Kind, State, Watched};
use crate::failure::{Failure, Outcome};
use crate::globals::Globals;
use crate::interrupt::Stop;
use crate::streams::select::seconds;
use crate::ui::notice::note;

#[derive(Debug, Args)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a switch of the command line"
)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Watch {
    /// A stream that has to be there, and conditions behind semicolons; may be repeated
    #[arg(long, value_name = "STREAM", num_args = 1..)]
    require: Vec<String>,

    /// A file with one of these on each line; # begins a comment
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,

    /// Print lines of JSON
    #[arg(long)]
    json: bool,

    /// Command of the system's shell to run for each event: the line of JSON on its input, LSL_EVENT,
    /// LSL_STATE and LSL_STREAM in its environment; one at a time, 10 s each
    #[arg(long, value_name = "CMD")]
    hook: Option<String>,

    /// Ring the terminal's bell at each alarm
    #[arg(long)]
    bell: bool,

    /// Seconds to watch; else until Ctrl-C
    #[arg(long = "for", value_name = "SECS", value_parser = seconds)]
    duration: Option<f64>,

    /// Look once: end as soon as all is in order, or when the time-out is over
    #[arg(long)]
    once: bool,

    /// Seconds that a stream has to show up
    #[arg(long, value_name = "SECS", default_value = "10", value_parser = seconds)]
    timeout: f64,

    /// Read no samples: only whether streams are found, and their clocks
    #[arg(long)]
    light: bool,
}

const EXAMPLES: &str = "\
Examples:
  lsl watch --require Marker --require \"type='EEG'; rate>=248; key=amp1\"
  lsl watch --require Marker --once                    is it there, before the session?
  lsl watch --from streams.txt --json --for 3600
  lsl watch --require Amp --hook 'notify-send \"$LSL_STREAM is $LSL_STATE\"'

Conditions: silent<SECS (usual for regular streams: 2 s, or 20 samples), rate>=HZ (95 % of what it announces,
over 10 s, and as long as 5 samples take), late<MS (250), clock<MS (10; stamps of another clock always alarm), loss=0 (numbered losses and
interruptions), key=NAME or key=SHA256:..., host=NAME. It reads the streams, and so counts as a reader.

A condition that holds for 1 s is an alarm; 5 s without one clear it. The first stream that is missing or
closed is looked into as by `lsl doctor`.

Exit status: 0 no alarm (--once: all in order); 2 wrong usage; 3 a stream never came; 4 one was missing,
closed, silent, slow, lossy, late, duplicate, or of another clock; 5 a wrong key, or encryption forbids it.";

/// A line of `--json`.
#[derive(Debug, Serialize)]
struct Line<'a> {
    time: String,
    event: Kind,
    stream: &'a str,
    state: State,
    /// Seconds that it has been so.
    since: f64,
    detail: &'a str,
    finding: Option<&'a str>,
}

impl Watch {
    pub(crate) fn run(&self, globals: &Globals) -> Outcome {
        let requirements = self.requirements()?;
        let loaded = globals.load()?;
        let context = Context::new(loaded.config.clone());
        let stop = Stop::install()?;
        let hook = self.hook.clone().map(Hook::new);
        let seen: Vec<Seen> = requirements.iter().map(|_| Seen::default()).collect();
        let failed: Mutex<Option<Failure>> = Mutex::default();
        let watched = thread::scope(|scope| {
            if let Some(hook) = &hook {
                scope.spawn(|| hook.run());
            }
            let (context, stop, failed) = (&context, &stop, &failed);
            for (wanted, seen) in requirements.iter().zip(&seen) {
                scope.spawn(move || {
                    if let Err(failure) = eye::look(context, wanted, self.light, seen, stop) {
                        let mut first = failed.lock().unwrap_or_else(PoisonError::into_inner);
                        first.get_or_insert(failure.context(&wanted.to_string()));
                        stop.request();
                    }
                });
            }
            let teller = Teller {
                watch: self,
                hook: hook.as_ref(),
            };
            let doctor = |wanted: &Requirement| finding(&loaded, context, wanted, stop);
            let watched = self.judge(&teller, &requirements, &seen, stop, doctor);
            // Also those that look, whatever went wrong.
            stop.request();
            if let Some(hook) = &hook {
                hook.end();
            }
            watched
        })?;
        match failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some(failure) => Err(failure),
            None => self.status(&watched),
        }
    }

    fn requirements(&self) -> Outcome<Vec<Requirement>> {
        let file = self.from.as_ref().map(|path| {
            std::fs::read_to_string(path)
                .map_err(|error| Failure::Runtime(format!("{}: {error}", path.display())))
        });
        let file = file.transpose()?.unwrap_or_default();
        let lines = file.lines().map(str::trim);
        let lines = lines.filter(|it| !it.is_empty() && !it.starts_with('#'));
        let all = self.require.iter().map(String::as_str).chain(lines);
        let all: Vec<Requirement> = all.map(Requirement::parse).collect::<Outcome<_>>()?;
        if all.is_empty() {
            return Err(Failure::Usage(
                "name what has to be there: --require STREAM, or --from FILE".into(),
            ));
        }
        for wanted in &all {
            wanted.stream.selector()?;
            if self.light && wanted.key.is_some() {
                return Err(Failure::Usage(format!(
                    "{wanted}: with --light nothing is opened, and no key is known"
                )));
            }
        }
        Ok(all)
    }

    /// Judges until the end, and returns how it went.
    fn judge(
        &self,
        teller: &Teller<'_>,
        requirements: &[Requirement],
        seen: &[Seen],
        stop: &Stop,
        doctor: impl Fn(&Requirement) -> Option<String> + Sync,
    ) -> Outcome<Vec<Watched>> {
        let start = local_clock();
        let end = match (self.once, self.duration) {
            (true, _) => start + self.timeout,
            (false, Some(secs)) => start + secs,
            (false, None) => f64::INFINITY,
        };
        let due = end.min(start + self.timeout);
        let watch = |wanted: &Requirement| Watched::new(wanted.limits, start, due);
        let mut watched: Vec<Watched> = requirements.iter().map(watch).collect();
        if !self.json {
            note("Watching; Ctrl-C ends.");
        }
        thread::scope(|scope| {
            let (sender, findings) = mpsc::channel();
            let mut has_asked = false;
            let mut now = start;
            while now < end && stop.sleep_until(now + LOOK_SECS) {
                now = local_clock();
                for (index, watched) in watched.iter_mut().enumerate() {
                    let (Some(seen), Some(wanted)) = (seen.get(index), requirements.get(index))
                    else {
                        continue;
                    };
                    for event in watched.look(now, &seen.facts()) {
                        teller.tell(wanted, &event, now, None)?;
                        let wants_doctor = event.kind == Kind::Alarm
                            && matches!(event.state, State::Missing | State::Closed);
                        if wants_doctor && !has_asked && !self.once {
                            has_asked = true;
                            let (sender, doctor) = (sender.clone(), &doctor);
                            scope.spawn(move || {
                                // Nobody may wait for it any more.
                                let _ = sender.send((index, event, doctor(wanted)));
                            });
                        }
                    }
                }
                if let Ok((index, event, Some(finding))) = findings.try_recv()
                    && let Some(wanted) = requirements.get(index)
                {
                    let event = Event {
                        kind: Kind::State,
                        ..event
                    };
                    teller.tell(wanted, &event, now, Some(&finding))?;
                }
                let is_settled = |it: &Watched| it.state() == State::Ok && it.is_settled(now);
                if self.once && watched.iter().all(is_settled) {
                    break;
                }
            }
            // The doctor looks at it, too.
            stop.request();
            for (watched, wanted) in watched.iter().zip(requirements) {
                teller.tell(wanted, &watched.end(), now, None)?;
            }
            Ok(watched)
        })
    }

    fn status(&self, watched: &[Watched]) -> Outcome {
        let has = |holds: &dyn Fn(State) -> bool| {
            watched.iter().any(|it| {
                if self.once {
                    holds(it.state())
                } else {
                    it.had_alarm(holds)
                }
            })
        };
        let status = if has(&|state| state == State::Key) {
            KEY
        } else if watched
            .iter()
            .any(|it| it.never_came() && (self.once || it.had_alarm(|_| true)))
        {
            NEVER_CAME
        } else if has(&|state| state != State::Ok) {
            TROUBLE
        } else {
            return Ok(());
        };
        Err(Failure::Told(status))
    }
}

/// Says what happens, to whoever wants to hear it.
struct Teller<'a> {
    watch: &'a Watch,
    hook: Option<&'a Hook>,
}

impl Teller<'_> {
    fn tell(
        &self,
        wanted: &Requirement,
        event: &Event,
        now: f64,
        finding: Option<&str>,
    ) -> Outcome {
        let line = Line {
            time: rfc3339(utc_now()),
            event: event.kind,
            stream: &wanted.text,
            state: event.state,
            since: ((now - event.since).max(0.0) * 10.0).round() / 10.0,
            detail: &event.detail,
            finding,
        };
        let json = serde_json::to_string(&line)?;
        let mut out = io::stdout().lock();
        if self.watch.json {
            writeln!(out, "{json}")?;
        } else {
            let word = match event.kind {
                Kind::State => "     ",
                Kind::Alarm => "ALARM",
                Kind::Clear => "clear",
                Kind::End => "end  ",
            };
            let state = event.state.name();
            writeln!(
                out,
                "{}  {word}  {wanted}: {state}  {}",
                line.time, event.detail
            )?;
            for text in finding.iter().flat_map(|it| it.lines()) {
                writeln!(out, "    {text}")?;
            }
        }
        out.flush()?;
        if event.kind == Kind::Alarm && self.watch.bell && io::stderr().is_terminal() {
            io::stderr().write_all(b"\x07")?;
        }
        if let Some(hook) = self.hook {
            hook.push(Call {
                event: format!("{:?}", event.kind).to_ascii_lowercase(),
                state: event.state.name().to_owned(),
                stream: wanted.text.clone(),
                line: json,
            });
        }
        Ok(())
    }
}

/// Returns what the doctor says of a stream.
fn finding(
    loaded: &Loaded,
    context: &Context,
    wanted: &Requirement,
    stop: &Stop,
) -> Option<String> {
    let selector = wanted.stream.selector().ok()?;
    let asked = Asked {
        stream: Some(wanted.stream.asked()),
        ..Asked::default()
    };
    let (seen, _) = collect::run(&Wishes {
        loaded,
        context,
        selector: Some(&selector),
        asked: &asked,
        hosts: &[],
        post: None,
        is_local: false,
        patience: 1.0,
        stop: &|| stop.requested(),
        progress: &|_| {},
    });
    let diagnosis = diagnose(&seen);
    let first = diagnosis.findings.first();
    let text = first.map(lsl_doctor::report::finding_text);
    text.or_else(|| diagnosis.unexplained.first().map(ToString::to_string))
}

/// Exit statuses.
const NEVER_CAME: u8 = 3;
const TROUBLE: u8 = 4;
const KEY: u8 = 5;
const LOOK_SECS: f64 = 0.1;
