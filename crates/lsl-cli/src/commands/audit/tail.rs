//! `lsl audit tail`: the last events of a log, and those that come.

use std::collections::VecDeque;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use lsl_core::local_clock;

use super::filter::Conditions;
use super::follower::Follower;
use super::lines::{AuditRecord, parse};
use super::{Log, configured};
use crate::failure::{Failure, Outcome};
use crate::interrupt::Stop;
use crate::ui::notice::note;
use crate::ui::text::{printable, printable_json};

#[derive(Debug, Args)]
pub(super) struct Tail {
    /// Log to read; by default the audit_file of the configuration
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,

    /// How many events
    #[arg(short = 'n', value_name = "N", default_value_t = 10)]
    number: usize,

    /// Go on with events as they are recorded, also across rotation, until Ctrl-C
    #[arg(short, long)]
    follow: bool,

    #[command(flatten)]
    conditions: Conditions,

    /// Print the lines as they are: one JSON object each
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(super) struct Follow {
    /// Log to read; by default the audit_file of the configuration
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,

    #[command(flatten)]
    conditions: Conditions,

    /// Print the lines as they are: one JSON object each
    #[arg(long)]
    json: bool,
}

impl Follow {
    pub(super) fn run(&self) -> Outcome {
        let tail = Tail {
            file: self.file.clone(),
            number: 0,
            follow: true,
            conditions: self.conditions.clone(),
            json: self.json,
        };
        tail.run()
    }
}

pub(super) const FOLLOW_EXAMPLES: &str = "\
Examples:
  lsl audit follow
  lsl audit follow --where event~refused
  ssh amp1 lsl audit follow --json | jq .peer_name";

pub(super) const EXAMPLES: &str = "\
Examples:
  lsl audit tail -n 50
  lsl audit tail -n 50 --where peer_name=amp1
  lsl audit tail --json -n 1000 | jq 'select(.event == \"handshake_failed\")'

A peer in (parentheses) is who somebody claimed to be without proof.";

impl Tail {
    pub(super) fn run(&self) -> Outcome {
        let path = match &self.file {
            Some(path) => path.clone(),
            None => configured()?.0,
        };
        match Log::find(&path, false) {
            Err(Failure::NotFound(_)) if self.follow => {}
            found => drop(found?),
        }
        let mut follower = Follower::new(&path);
        let mut last = VecDeque::new();
        follower.read(|line| {
            if !line.is_empty() && self.number > 0 && self.wants(line) {
                if last.len() == self.number {
                    last.pop_front();
                }
                last.push_back(line.to_vec());
            }
            Ok(())
        })?;
        for line in last {
            self.show(&line)?;
        }
        if !self.follow {
            return Ok(());
        }
        let stop = Stop::install()?;
        if !self.json {
            note("Watching for events; Ctrl-C ends.");
        }
        while stop.sleep_until(local_clock() + LOOK_EVERY.as_secs_f64()) {
            follower.read(|line| {
                if self.wants(line) {
                    self.show(line)?;
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Returns whether a line is meant. What is no line of a log is told.
    fn wants(&self, line: &[u8]) -> bool {
        self.conditions.is_empty()
            || serde_json::from_slice(line).map_or(true, |fields| self.conditions.hold(&fields))
    }

    fn show(&self, line: &[u8]) -> Outcome {
        let mut out = io::stdout().lock();
        match parse(line) {
            Some(_) if self.json => {
                if out.is_terminal() {
                    let line = String::from_utf8_lossy(line);
                    out.write_all(printable_json(&line).as_bytes())?;
                } else {
                    out.write_all(line)?;
                }
                writeln!(out)?;
            }
            Some(entry) => writeln!(out, "{}", one_line(&entry))?,
            None => {
                drop(out);
                note("lsl: a line that is no audit event; `lsl audit verify` says where");
                return Ok(());
            }
        }
        Ok(out.flush()?)
    }
}

/// Formats an event for people, in one line.
fn one_line(entry: &AuditRecord) -> String {
    let mut text = format!("{}  {}", time(&entry.ts), entry.event);
    let mut add = |before: &str, part: &str| {
        if !part.is_empty() {
            text.push_str(before);
            text.push_str(part);
        }
    };
    add("  ", entry.exe.as_deref().unwrap_or_default());
    let peer = entry.peer();
    add("  ", &peer);
    let address = entry.peer_addr.as_deref().unwrap_or_default();
    if address != peer {
        add("  ", address);
    }
    add("  ", entry.suite.as_deref().unwrap_or_default());
    if let Some(role) = &entry.role {
        add("  our ", role);
    }
    if let Some(uid) = &entry.stream_uid {
        add("  stream ", uid);
    }
    if let (Some(bytes), Some(secs)) = (entry.bytes, entry.duration_secs) {
        let end = if entry.clean == Some(false) {
            ", cut off"
        } else {
            ""
        };
        add("  ", &format!("{bytes} bytes in {secs:.1} s{end}"));
    }
    add("  ", entry.cause.as_deref().unwrap_or_default());
    let detail = entry.detail.as_deref().unwrap_or_default();
    add(if entry.cause.is_some() { ": " } else { "  " }, detail);
    if entry.suppressed > 0 {
        add("  ", &format!("(and {} like it before)", entry.suppressed));
    }
    if entry.dropped > 0 {
        add("  ", &format!("({} lines lost before)", entry.dropped));
    }
    printable(&text)
}

/// Formats a time: `2026-11-21 19:30:00.123` of `2026-11-21T19:30:00.123456789Z`, UTC like the log.
fn time(ts: &str) -> String {
    ts.get(..23).unwrap_or(ts).replacen('T', " ", 1)
}

/// Interval between two looks at the file.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_read_like_sentences_and_cannot_steer_the_terminal() {
        let check = |json: &str, expected: &str| {
            assert_eq!(one_line(&parse(json.as_bytes()).unwrap()), expected);
        };
        check(
            r#"{"ts":"2026-11-21T19:30:00.123456789Z","event":"trust_reloaded","detail":"3 peers"}"#,
            "2026-11-21 19:30:00.123  trust_reloaded  3 peers",
        );
        check(
            r#"{"ts":"2026-11-21T19:30:00.123456789Z","event":"handshake_failed",
                "peer_addr":"10.0.0.1:5","peer_fp":"SHA256:abc","claimed":true,"role":"outlet",
                "cause":"not_authorised","detail":"unknown key","suppressed":7,"dropped":2}"#,
            "2026-11-21 19:30:00.123  handshake_failed  (SHA256:abc)  10.0.0.1:5  our outlet  \
             not_authorised: unknown key  (and 7 like it before)  (2 lines lost before)",
        );
        check(
            r#"{"ts":"x\u001b[2J","event":"session_closed","peer_name":"amp1\u202e","peer_fp":"S",
                "bytes":5,"duration_secs":1.25,"clean":false}"#,
            "x\\u{1b}[2J  session_closed  amp1\\u{202e}  5 bytes in 1.2 s, cut off",
        );
        check(
            r#"{"ts":"t","event":"plaintext_refused","peer_addr":"[::1]:5"}"#,
            "t  plaintext_refused  [::1]:5",
        );
    }
}
