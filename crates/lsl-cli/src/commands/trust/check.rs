//! `lsl trust check`: opens a session with every visible outlet, and reports refusals.

use std::io::{self, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use clap::Args;
use lsl_core::secure::{Local, Policy, Security};
use lsl_core::{Selector, StreamInfo};
use lsl_doctor::collect::trust::{Judged, Verdict, judge};
use serde::Serialize;

use crate::failure::{Failure, Outcome};
use crate::files::place::PlaceArgs;
use crate::globals::Globals;
use crate::streams::describe::Described;
use crate::streams::not_found;
use crate::streams::select::seconds;
use crate::ui::notice::note;
use crate::ui::text;

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Check {
    /// Print a JSON array
    #[arg(long)]
    json: bool,

    /// Seconds to look for outlets
    #[arg(long, value_name = "SECS", default_value = "1.5", value_parser = seconds)]
    timeout: f64,

    #[command(flatten)]
    place: PlaceArgs,
}

const EXAMPLES: &str = "\
Examples:
  lsl trust check
  lsl trust check --json | jq '.[] | select(.result != \"ok\")'
  lsl trust check --dir /etc/lsl_api     with the key of the whole machine

Reads nothing of the streams. Run it where you will record. Exit status 1 if this machine or an outlet
refuses, or an outlet does not answer; 3 if there are no outlets.";

/// Result for one stream: an element of `--json`.
#[derive(Debug, Serialize)]
struct CheckedStream {
    name: String,
    hostname: String,
    uid: String,
    address: String,
    result: Verdict,
    /// The outlet's key, if it got so far as to prove it.
    fingerprint: Option<String>,
    /// Our name for the outlet's device.
    peer_name: Option<String>,
    cipher: Option<&'static str>,
    /// Name of the cause, as in the audit log.
    cause: Option<&'static str>,
    /// Explanation of the trouble, with advice.
    text: Option<String>,
}

impl Check {
    pub(super) fn run(&self, globals: &Globals) -> Outcome {
        let context = globals.context_in(self.place.directory())?;
        let security = context.security()?;
        let Some(local) = security.local() else {
            return Err(Failure::Runtime(
                "this machine has no key, there is nothing to check.\nRun: lsl key init --name NAME"
                    .into(),
            ));
        };
        let timeout = Duration::from_secs_f64(self.timeout);
        let mut found = context.resolve_blocking(&Selector::all(), 0, timeout)?;
        if found.is_empty() {
            if self.json {
                writeln!(io::stdout().lock(), "[]")?;
            }
            return Err(Failure::NotFound(format!(
                "no stream answered within {} s, so nothing was checked; start the senders first\n{}",
                self.timeout,
                not_found::explain(&context, None)
            )));
        }
        found.sort_by(|a, b| (a.name_bytes(), a.uid_bytes()).cmp(&(b.name_bytes(), b.uid_bytes())));
        if !self.json && security.policy() == Policy::Off {
            note("The policy of this machine is 'off': its programs do not encrypt yet.");
        }
        let rows = check_all(security, local, &found);
        self.report(&rows)
    }

    fn report(&self, rows: &[CheckedStream]) -> Outcome {
        let mut out = io::stdout().lock();
        if self.json {
            serde_json::to_writer_pretty(&mut out, rows)?;
            writeln!(out)?;
        } else {
            for row in rows {
                write_row(row, &mut out)?;
            }
        }
        out.flush()?;
        drop(out);
        let number =
            |wanted: fn(Verdict) -> bool| rows.iter().filter(|row| wanted(row.result)).count();
        let bad = number(|verdict| !matches!(verdict, Verdict::Ok | Verdict::Plaintext));
        if bad > 0 {
            return Err(Failure::Runtime(format!(
                "{bad} of {} cannot be read encrypted",
                text::count(rows.len(), "stream")
            )));
        }
        if !self.json {
            note(format_args!(
                "{} encrypted and in order, {} plaintext.",
                text::count(number(|verdict| verdict == Verdict::Ok), "stream"),
                number(|verdict| verdict == Verdict::Plaintext)
            ));
        }
        Ok(())
    }
}

fn write_row(row: &CheckedStream, out: &mut impl Write) -> io::Result<()> {
    let mark = match row.result {
        Verdict::Ok => "ok       ",
        Verdict::Plaintext => "plaintext",
        Verdict::RefusedHere | Verdict::RefusedThere => "REFUSED  ",
        Verdict::Failed => "FAILED   ",
    };
    let name = text::printable(&row.name);
    let host = text::printable(&row.hostname);
    let address = text::printable(&row.address);
    write!(out, "{mark}  {name} on {host}, {address}")?;
    if let (Verdict::Ok, Some(peer), Some(cipher)) = (row.result, &row.peer_name, row.cipher) {
        write!(out, ": {}, {cipher}", text::printable(peer))?;
    }
    writeln!(out)?;
    for line in row.text.iter().flat_map(|text| text.lines()) {
        writeln!(out, "           {}", text::printable(line))?;
    }
    Ok(())
}

/// Checks a few at a time: each costs both ends asymmetric work.
fn check_all(security: &Security, local: &Arc<Local>, found: &[StreamInfo]) -> Vec<CheckedStream> {
    let rows: Mutex<Vec<Option<CheckedStream>>> = Mutex::new(found.iter().map(|_| None).collect());
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..WORKERS.min(found.len()) {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(info) = found.get(index) else { break };
                    let row = CheckedStream::of(info, judge(security, local, info, &|| false));
                    let mut rows = rows
                        .lock()
                        .unwrap_or_else(std::sync::PoisonError::into_inner);
                    rows[index] = Some(row);
                }
            });
        }
    });
    let rows = rows.into_inner();
    rows.unwrap_or_else(std::sync::PoisonError::into_inner)
        .into_iter()
        .flatten()
        .collect()
}

impl CheckedStream {
    fn of(info: &StreamInfo, judged: Judged) -> Self {
        let stream = Described::from(info);
        Self {
            address: stream.addresses().first().cloned().unwrap_or_default(),
            name: stream.name,
            hostname: stream.hostname,
            uid: stream.uid,
            result: judged.verdict,
            fingerprint: judged.fingerprint,
            peer_name: judged.peer_name,
            cipher: judged.cipher,
            cause: judged.cause,
            text: judged.text,
        }
    }
}

const WORKERS: usize = 8;
