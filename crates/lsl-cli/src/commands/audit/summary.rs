//! `lsl audit summary`: counts events, peers and causes of failure.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use super::lines::{AuditRecord, Lines, parse};
use super::{Log, count};
use crate::failure::Outcome;
use crate::ui::notice::note;
use crate::ui::table::{Align, Table};

#[derive(Debug, Args)]
pub(super) struct Summary {
    /// Log to read with its rotated files; by default the audit_file of the configuration
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(super) const EXAMPLES: &str = "\
Examples:
  lsl audit summary
  lsl audit summary copy/audit.jsonl --json | jq .failures

Counts include events that were only counted because there were more than ten of a kind a second.
A peer in (parentheses) is who somebody claimed to be without proof.";

/// Totals of a log: the object of `--json`.
#[derive(Debug, Default, Serialize)]
struct Totals {
    first: Option<String>,
    last: Option<String>,
    lines: u64,
    /// Lines that the writers report as lost.
    dropped: u64,
    /// Lines that are not of an audit log.
    unreadable: u64,
    events: BTreeMap<String, u64>,
    failures: BTreeMap<String, u64>,
    /// Sessions by what seals them.
    algorithms: BTreeMap<String, u64>,
    peers: BTreeMap<String, Peer>,
}

#[derive(Debug, Default, Serialize)]
struct Peer {
    events: u64,
    failures: u64,
    bytes: u64,
    last: String,
}

impl AuditRecord {
    /// Returns the peer of an event, as people know him best: by name, else key, else address.
    pub(super) fn peer(&self) -> String {
        let key = self.peer_name.as_ref().or(self.peer_fp.as_ref());
        match key {
            Some(key) if self.claimed => format!("({key})"),
            Some(key) => key.clone(),
            None => self.peer_addr.clone().unwrap_or_default(),
        }
    }

    /// Returns the [`peer`](Self::peer), of an address without the port, which says nothing.
    fn counted_peer(&self) -> String {
        let peer = self.peer();
        match peer.parse::<std::net::SocketAddr>() {
            Ok(address) => address.ip().to_canonical().to_string(),
            Err(_) => peer,
        }
    }

    fn is_failure(&self) -> bool {
        self.event.ends_with("_failed")
            || self.event.ends_with("_refused")
            || self.event == "revoked"
    }
}

impl Summary {
    pub(super) fn run(&self) -> Outcome {
        let log = Log::of(self.file.as_deref())?;
        let mut totals = Totals::default();
        for file in &log.files {
            let mut lines = Lines::open(file)?;
            while let Some(line) = lines.next()? {
                if !line.is_empty() {
                    totals.add(line);
                }
            }
        }
        let mut out = io::stdout().lock();
        if self.json {
            serde_json::to_writer_pretty(&mut out, &totals)?;
            writeln!(out)?;
        } else {
            totals.write(&mut out)?;
        }
        out.flush()?;
        drop(out);
        if log.expires && !self.json {
            note("Older lines were deleted: audit_keep_days.");
        }
        if totals.dropped > 0 && !self.json {
            let lost = count(totals.dropped, "line");
            note(format_args!("{lost} could not be written at the time."));
        }
        if totals.unreadable > 0 && !self.json {
            let unreadable = count(totals.unreadable, "line");
            note(format_args!(
                "{unreadable} cannot be read; `lsl audit verify` says which."
            ));
        }
        Ok(())
    }
}

impl Totals {
    fn add(&mut self, line: &[u8]) {
        let Some(entry) = parse(line) else {
            self.unreadable += 1;
            return;
        };
        let times = entry.suppressed.saturating_add(1);
        let add = |total: &mut u64, more: u64| *total = total.saturating_add(more);
        self.lines += 1;
        add(&mut self.dropped, entry.dropped);
        add(self.events.entry(entry.event.clone()).or_default(), times);
        if entry.is_failure() {
            let cause = entry.cause.as_ref().unwrap_or(&entry.event);
            add(self.failures.entry(cause.clone()).or_default(), times);
        }
        if let (Some(suite), "handshake_ok") = (&entry.suite, entry.event.as_str()) {
            add(self.algorithms.entry(suite.clone()).or_default(), times);
        }
        let peer = entry.counted_peer();
        if !peer.is_empty() {
            // Suppressed events may have been of others.
            let peer = self.peers.entry(peer).or_default();
            add(&mut peer.events, 1);
            add(&mut peer.failures, entry.is_failure().into());
            add(&mut peer.bytes, entry.bytes.unwrap_or(0));
            if entry.ts > peer.last {
                peer.last.clone_from(&entry.ts);
            }
        }
        // Writers take turns, and clocks are set: neither the first nor the last line need be it.
        if self.first.as_ref().is_none_or(|first| entry.ts < *first) {
            self.first = Some(entry.ts.clone());
        }
        if self.last.as_ref().is_none_or(|last| entry.ts > *last) {
            self.last = Some(entry.ts);
        }
    }

    fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let (left, right) = (Align::Left, Align::Right);
        match (&self.first, &self.last) {
            (Some(first), Some(last)) => {
                let lines = count(self.lines, "line");
                let (first, last) = (seconds(first), seconds(last));
                writeln!(out, "{lines} from {first} to {last} (UTC)")?;
            }
            _ => return writeln!(out, "no events"),
        }
        for (title, counts) in [
            ("EVENT", &self.events),
            ("FAILED BECAUSE", &self.failures),
            ("SEALED WITH", &self.algorithms),
        ] {
            if !counts.is_empty() {
                let mut table = Table::new(&[(title, left), ("COUNT", right)]);
                let mut rows: Vec<_> = counts.iter().collect();
                rows.sort_by_key(|(_, number)| std::cmp::Reverse(**number));
                for (name, number) in rows {
                    table.push([name.as_str(), &number.to_string()]);
                }
                writeln!(out)?;
                table.write(out, "")?;
            }
        }
        if !self.peers.is_empty() {
            let columns = [
                ("PEER", left),
                ("EVENTS", right),
                ("FAILED", right),
                ("BYTES", right),
                ("LAST", left),
            ];
            let mut table = Table::new(&columns);
            for (name, peer) in &self.peers {
                table.push([
                    name.as_str(),
                    &peer.events.to_string(),
                    &peer.failures.to_string(),
                    &peer.bytes.to_string(),
                    &seconds(&peer.last),
                ]);
            }
            writeln!(out)?;
            table.write(out, "")?;
        }
        Ok(())
    }
}

/// Formats a time in seconds: `2026-11-21 19:30:00` of `2026-11-21T19:30:00.123456789Z`.
fn seconds(ts: &str) -> String {
    let text = ts.get(..19).unwrap_or(ts).replacen('T', " ", 1);
    crate::ui::text::printable(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_include_what_was_suppressed() {
        let mut totals = Totals::default();
        for line in [
            r#"{"ts":"2026-11-21T10:00:02Z","event":"handshake_ok","peer_name":"amp1","suite":"AES-256-GCM","bytes":1}"#,
            r#"{"ts":"2026-11-21T10:00:01Z","event":"handshake_failed","cause":"timeout",
                "peer_addr":"[::ffff:10.0.0.1]:5","suppressed":90}"#,
            r#"{"ts":"2026-11-21T10:00:03Z","event":"handshake_failed","cause":"malformed",
                "peer_addr":"10.0.0.1:6","dropped":4}"#,
            r#"{"ts":"2026-11-21T10:00:03Z","event":"plaintext_refused","peer_addr":"10.0.0.1:7"}"#,
            r#"{"ts":"2026-11-21T10:00:03Z","event":"handshake_failed","cause":"self_key",
                "peer_name":"amp1","claimed":true}"#,
            "nonsense",
        ] {
            totals.add(line.as_bytes());
        }
        let expected = serde_json::json!({
            "first": "2026-11-21T10:00:01Z", "last": "2026-11-21T10:00:03Z",
            "lines": 5, "dropped": 4, "unreadable": 1,
            "events": { "handshake_ok": 1, "handshake_failed": 93, "plaintext_refused": 1 },
            "failures": { "timeout": 91, "malformed": 1, "plaintext_refused": 1, "self_key": 1 },
            "algorithms": { "AES-256-GCM": 1 },
            "peers": {
                "amp1": { "events": 1, "failures": 0, "bytes": 1, "last": "2026-11-21T10:00:02Z" },
                "10.0.0.1": { "events": 3, "failures": 3, "bytes": 0, "last": "2026-11-21T10:00:03Z" },
                "(amp1)": { "events": 1, "failures": 1, "bytes": 0, "last": "2026-11-21T10:00:03Z" },
            },
        });
        assert_eq!(serde_json::to_value(&totals).unwrap(), expected);
        let mut text = Vec::new();
        totals.write(&mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        let expected = "5 lines from 2026-11-21 10:00:01 to 2026-11-21 10:00:03 (UTC)\n\n\
                        EVENT              COUNT\nhandshake_failed      93\n";
        assert!(text.starts_with(expected), "{text}");
    }

    #[test]
    fn an_empty_log_says_so() {
        let mut text = Vec::new();
        Totals::default().write(&mut text).unwrap();
        assert_eq!(text, b"no events\n");
    }
}
