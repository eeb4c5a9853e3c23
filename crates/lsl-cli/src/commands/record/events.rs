//! Describes the events of a recorder in words.

use std::thread;
use std::time::Duration;

use lsl_core::{Context, Timeout};
use lsl_record::{Complaint, Event, Events};

use super::display::{size, to_bytes, warning};
use super::messages::say;
use super::plan::Plan;
use super::resume;
use crate::streams::describe::{Described, one_line};
use crate::streams::encryption;
use crate::ui::text::{age, count, printable};

/// Says in words what recorders report.
#[derive(Clone, Copy)]
pub(super) struct Reporter<'a> {
    pub(super) context: &'a Context,
    pub(super) plan: &'a Plan,
    pub(super) events: &'a Events,
}

impl Reporter<'_> {
    /// Prints all events that have happened so far.
    pub(super) fn catch_up(&self) {
        while let Some(event) = self.events.next(Timeout::NOW) {
            self.say(event);
        }
    }

    /// Says what happens while something takes its time on another thread.
    pub(super) fn during<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        thread::scope(|scope| {
            let working = scope.spawn(work);
            while !working.is_finished() {
                if let Some(event) = self.events.next(NAP) {
                    self.say(event);
                }
            }
            self.catch_up();
            let done = working.join();
            done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    fn say(&self, event: Event) {
        match event {
            Event::Recording {
                path,
                streams,
                in_plaintext,
                bytes_per_sec,
                free,
            } => {
                say(format_args!(
                    "Recording {} into {}; Ctrl-C ends.",
                    count(streams.len(), "stream"),
                    path.display()
                ));
                for info in &streams {
                    say(format_args!("  {}", one_line(&Described::from(info))));
                }
                self.warn_of_plaintext(in_plaintext);
                if let Some(signer) = &self.plan.signer {
                    say(format_args!(
                        "Signed with the key of this device, {}.",
                        signer.fingerprint()
                    ));
                }
                if let Some(free) = free {
                    self.forecast(bytes_per_sec, free);
                }
            }
            Event::Displaced { path, moved } => {
                say(format_args!(
                    "{} was there already and is now {}.",
                    path.display(),
                    moved.display()
                ));
                resume::tell(&moved);
            }
            event => say(format_args!("lsl record: {}", text(event))),
        }
    }

    fn warn_of_plaintext(&self, streams: usize) {
        if streams > 0
            && let Some(warning) = encryption::plaintext_warning(self.context)
        {
            say(format_args!(
                "{} in plaintext. {warning}",
                count(streams, "stream")
            ));
        }
    }

    /// Says how long the disk will do.
    fn forecast(&self, bytes_per_sec: f64, free: u64) {
        let plan = self.plan;
        let left = (bytes_per_sec > 0.0).then(|| free as f64 / bytes_per_sec);
        if let Some(left) = left {
            say(format_args!(
                "About {} an hour; {} free, enough for {}.",
                size(to_bytes(bytes_per_sec * 3600.0)),
                size(free),
                age(left)
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
}

/// Describes an event in one sentence.
fn text(event: Event) -> String {
    let safe = |text: String| printable(&text);
    match event {
        Event::Awaited(label) => format!(
            "{} is not there yet; it is recorded when it comes.",
            safe(label)
        ),
        Event::NotConnected(name) => format!(
            "'{}' was found but does not connect (firewall?); still trying.",
            safe(name)
        ),
        Event::SpillOnSameDisk(folder) => format!(
            "--spill-dir {} is on the disk of the recording: both are full at once.",
            folder.display()
        ),
        Event::Found(name) => format!("'{}' has appeared; it is recorded from now on.", safe(name)),
        Event::Lost { name, reason } => format!(
            "'{}' is lost: {}. It goes on when it is back.",
            safe(name),
            safe(reason)
        ),
        Event::Returned { name, lost } => {
            let lost = match lost {
                Some(0) => "nothing is lost".to_owned(),
                Some(lost) => format!("{lost} samples are lost"),
                None => "what was lost meanwhile is not known".to_owned(),
            };
            format!("'{}' is back; {lost}.", safe(name))
        }
        Event::Missing {
            name,
            lost,
            after,
            reason,
        } => format!(
            "{lost} samples of '{}' are missing after {after:.6}: {reason}.",
            safe(name)
        ),
        Event::Refused { name, reason } => {
            format!("'{}' cannot be read: {}", safe(name), safe(reason))
        }
        Event::Unreachable { name, error } => {
            format!("'{}' does not connect: {error}", safe(name))
        }
        Event::Silent(name) => format!(
            "'{}' sends nothing and does not answer; is it cut off?",
            safe(name)
        ),
        Event::Twin(name) => format!(
            "'{}' is there twice with the same source id; both are recorded.",
            safe(name)
        ),
        Event::Unfit(name) => format!(
            "'{}' has no values, or too many; it is not recorded.",
            safe(name)
        ),
        Event::NotSynced(name) => format!(
            "the clock of '{}' cannot be measured (is UDP blocked?): its timestamps are recorded as \
             they come.",
            safe(name)
        ),
        Event::AlienClock { name, lag_secs } => format!(
            "'{}' stamps its samples {:.0} s {}: its clock is not that of LSL.",
            safe(name),
            lag_secs.abs(),
            if lag_secs > 0.0 {
                "in the past"
            } else {
                "in the future"
            }
        ),
        Event::TooManyStrangers => {
            "more streams are advertised that cannot be connected; nothing more is said of them."
                .to_owned()
        }
        Event::LowSpace(alarm) => format!("LOW SPACE: {}.", warning(&alarm)),
        Event::LeavingDisk { min_free, path } => format!(
            "LOW SPACE: less than the {} of --min-free. The recording goes on in {}.",
            size(min_free),
            path.display()
        ),
        Event::NotLeft(error) => {
            format!("it does not, since {error}; it goes on where it was.")
        }
        Event::Spilled { reason, path } => {
            format!("{reason}. The recording goes on in {}.", path.display())
        }
        Event::DiskFull(error) => {
            format!("DISK FULL: {error}. Samples wait in memory; free some space now.")
        }
        Event::RoomAgain => "there is room again, writing goes on.".to_owned(),
        Event::NoJournal(trouble) => format!("no journal: {trouble}"),
        Event::Trouble(trouble) => trouble,
        Event::GivenUp => "the disk is too slow: what waits in memory is given up.".to_owned(),
        Event::Client(complaint) => format!("remote control: {}", refusal(&complaint)),
        Event::Recording { .. } | Event::Displaced { .. } => String::new(),
    }
}

fn refusal(complaint: &Complaint) -> String {
    match complaint {
        Complaint::TooMany => "too many connections; a new one is refused.".to_owned(),
        Complaint::WebPage => "a web page tried to send commands; refused.".to_owned(),
        Complaint::Garbage => "somebody sent bytes that are no command; refused.".to_owned(),
        Complaint::NoToken(file) => format!(
            "a command without the token was refused. A client sends `auth TOKEN` first, the first \
             line of {}; --rcs-open lets everybody on this machine in, as LabRecorder does.",
            file.display()
        ),
    }
}

const NAP: Duration = Duration::from_millis(20);
