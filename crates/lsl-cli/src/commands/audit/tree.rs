//! Trees of events: the lines of one connection, one below the other, as contexts of crypto-auditing.
//! Spec: audit §1.3, §1.5.

use std::io::{self, Write};

use lsl_platform::calendar::{DAY_SECS, Date};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::filter::Fields;
use crate::ui::text::printable;

/// All lines of a connection, or one that belongs to none.
#[derive(Debug)]
pub(super) struct Tree {
    id: String,
    lines: Vec<Fields>,
}

/// Returns what names the tree of a line: its span, else its session; else it is one of its own.
pub(super) fn tree_of(fields: &Fields) -> String {
    let text = |key| fields.get(key).and_then(Value::as_str);
    if let Some(id) = text("span").or_else(|| text("sid")) {
        return id.to_owned();
    }
    let seq = fields.get("seq").and_then(Value::as_u64);
    let chain = text("chain").unwrap_or_default();
    format!("{chain}:{}", seq.unwrap_or_default())
}

/// Returns the name of an event's context, and how the operation ended, if the event says.
pub(super) fn context_name(event: &str) -> (String, Option<&'static str>) {
    let (name, outcome) = match event {
        "handshake_ok" => ("handshake", Some("ok")),
        "handshake_failed" => ("handshake", Some("failed")),
        "policy_refused" => ("handshake", Some("refused")),
        "key_update" => ("rekey", None),
        "peer_alert" | "record_auth_failed" => ("alert", None),
        "time_step" | "time_rtt_rise" | "time_uncertain" => ("time", None),
        "revoked" => ("revoke", None),
        "session_closed" => ("close", None),
        "limits_hit" | "plaintext_refused" | "stream_refused" | "engine_denied" => ("refuse", None),
        "plaintext_accepted" => ("plaintext", None),
        "link_up" | "link_down" => ("link", None),
        "trust_reloaded" | "trust_reload_failed" => ("trust", None),
        "file_failed" => ("file", Some("failed")),
        "file_locked" | "file_unlocked" | "file_rotated" | "file_verified" => ("file", Some("ok")),
        other => (other, None),
    };
    (format!("lsl::{name}"), outcome)
}

impl Tree {
    pub(super) fn new(id: String) -> Self {
        Self {
            id,
            lines: Vec::new(),
        }
    }

    pub(super) fn push(&mut self, line: Fields) {
        self.lines.push(line);
    }

    /// Whether it is a connection; else it is one line.
    fn is_session(&self) -> bool {
        self.lines.iter().any(|line| {
            line.contains_key("sid")
                || (line.contains_key("span") && line.contains_key("peer_addr"))
        })
    }

    /// Prints it for people.
    pub(super) fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let Some(first) = self.lines.first() else {
            return Ok(());
        };
        let time = text(first, "ts");
        let time = time.get(..23).unwrap_or(&time).replacen('T', " ", 1);
        if !self.is_session() {
            return writeln!(out, "{}  {}", printable(&time), words(first));
        }
        // Whatever line has it: a handshake that fails knows less than one that does not.
        let any = |key: &str| {
            self.lines
                .iter()
                .map(|line| text(line, key))
                .find(|it| !it.is_empty())
        };
        let mut head = format!("{time}  lsl::session");
        for (before, key) in [
            ("  ", "peer_name"),
            ("  ", "peer_addr"),
            ("  our ", "role"),
            ("  stream ", "stream_uid"),
        ] {
            if let Some(value) = any(key) {
                head.push_str(before);
                head.push_str(&value);
            }
        }
        writeln!(out, "{}", printable(&head))?;
        for line in &self.lines {
            writeln!(out, "  {}", words(line))?;
            steps(line).iter().try_for_each(|step| step.write(4, out))?;
        }
        Ok(())
    }

    /// Writes what flame graphs are made of: names from the root on, and a weight, microseconds or 1.
    pub(super) fn fold(&self, counts: bool, out: &mut impl Write) -> io::Result<()> {
        let root = if self.is_session() {
            "lsl::session;"
        } else {
            ""
        };
        for line in &self.lines {
            let (name, _) = context_name(&text(line, "event"));
            let path = format!("{root}{}", folded(&name));
            let steps = steps(line);
            let in_steps = steps
                .iter()
                .fold(0_u64, |sum, step| sum.saturating_add(step.took_us));
            let took = line.get("took_us").and_then(Value::as_u64).unwrap_or(0);
            let weight = if counts {
                1
            } else {
                took.saturating_sub(in_steps)
            };
            if weight > 0 {
                writeln!(out, "{path} {weight}")?;
            }
            steps
                .iter()
                .try_for_each(|step| step.fold(&path, counts, out))?;
        }
        Ok(())
    }

    /// Returns it in the shape in which crypto-auditing's query prints contexts.
    pub(super) fn to_json(&self) -> Value {
        let id = hash(&[self.id.as_bytes()]);
        let lines: Vec<Value> = self
            .lines
            .iter()
            .map(|line| self.line_to_json(line))
            .collect();
        if !self.is_session() {
            return lines.into_iter().next().unwrap_or_default();
        }
        let edge = |key: &str, of: fn(i128, i128) -> i128| {
            let times = lines.iter().filter_map(|line| line[key].as_i64());
            let edge = times.map(i128::from).reduce(of).unwrap_or_default();
            i64::try_from(edge).unwrap_or_default()
        };
        let mut events = Fields::new();
        events.insert("name".into(), "lsl::session".into());
        for key in ["sid", "role", "peer_addr", "stream_uid"] {
            if let Some(value) = self.lines.iter().find_map(|line| line.get(key)) {
                events.insert(
                    format!("lsl::{}", key.replace("sid", "session_id")),
                    value.clone(),
                );
            }
        }
        json!({
            "context": id, "origin": "", "command": "",
            "start": edge("start", i128::min), "end": edge("end", i128::max),
            "events": events, "spans": lines,
        })
    }

    fn line_to_json(&self, line: &Fields) -> Value {
        let (name, outcome) = context_name(&text(line, "event"));
        let mut events = Fields::new();
        events.insert("name".into(), name.into());
        if let Some(outcome) = outcome {
            events.insert("lsl::outcome".into(), outcome.into());
        }
        for (key, value) in line {
            if !matches!(key.as_str(), "ts" | "prev" | "span" | "steps") {
                let value = value
                    .as_bool()
                    .map_or_else(|| value.clone(), |truth| u8::from(truth).into());
                events.insert(format!("lsl::{key}"), value);
            }
        }
        let seq = line.get("seq").and_then(Value::as_u64).unwrap_or_default();
        let chain = text(line, "chain");
        let id = hash(&[self.id.as_bytes(), chain.as_bytes(), &seq.to_be_bytes()]);
        let end = nanos(&text(line, "ts")).unwrap_or_default();
        let took = line
            .get("took_us")
            .and_then(Value::as_i64)
            .unwrap_or_default();
        let start = end.saturating_sub(took.saturating_mul(1000));
        let steps = steps(line).into_iter().enumerate();
        let steps = steps.map(|(index, step)| step.to_json(&id, start, index));
        let steps: Vec<_> = steps.collect();
        json!({
            "context": id, "origin": "", "command": "", "start": start, "end": end,
            "events": events, "spans": steps,
        })
    }
}

/// A step of a handshake, or several of one kind.
struct Timed {
    name: String,
    after_us: u64,
    took_us: u64,
    steps: Vec<Self>,
}

/// Returns the contexts that the steps of a line become.
fn steps(line: &Fields) -> Vec<Timed> {
    let is_outlet = line.get("role").is_some_and(|role| role == "outlet");
    let mut keys = ["lsl::inlet_key", "lsl::outlet_key"];
    if is_outlet {
        keys.reverse();
    }
    let [own, theirs] = keys;
    let mut groups: Vec<Timed> = Vec::new();
    let steps = line.get("steps").and_then(Value::as_array);
    for step in steps.into_iter().flatten() {
        let number = |at: usize| step.get(at).and_then(Value::as_u64).unwrap_or_default();
        let name = step.get(0).and_then(Value::as_str).unwrap_or_default();
        let (group, leaf) = match name {
            "generate" => ("lsl::key_exchange", Some("pk::generate")),
            "derive" => ("lsl::key_exchange", Some("pk::derive")),
            "sign" => (own, Some("pk::sign")),
            "verify" => (theirs, Some("pk::verify")),
            _ => ("", None),
        };
        let timed = |name: String| Timed {
            name,
            after_us: number(1),
            took_us: number(2),
            steps: Vec::new(),
        };
        let Some(leaf) = leaf else {
            let name = if name == "schedule" {
                "key_schedule"
            } else {
                name
            };
            groups.push(timed(format!("lsl::{name}")));
            continue;
        };
        let place = groups.iter().position(|it| it.name == group);
        let place = place.unwrap_or_else(|| {
            groups.push(Timed {
                took_us: 0,
                ..timed(group.to_owned())
            });
            groups.len() - 1
        });
        if let Some(group) = groups.get_mut(place) {
            group.took_us = group.took_us.saturating_add(number(2));
            group.steps.push(timed(leaf.to_owned()));
        }
    }
    groups
}

impl Timed {
    fn write(&self, indent: usize, out: &mut impl Write) -> io::Result<()> {
        let name = printable(&self.name);
        writeln!(out, "{:indent$}{name}  {} µs", "", self.took_us)?;
        self.steps
            .iter()
            .try_for_each(|step| step.write(indent + 2, out))
    }

    /// Writes stacks below `root`.
    fn fold(&self, root: &str, counts: bool, out: &mut impl Write) -> io::Result<()> {
        let path = format!("{root};{}", folded(&self.name));
        if self.steps.is_empty() {
            let weight = if counts { 1 } else { self.took_us };
            return writeln!(out, "{path} {weight}");
        }
        self.steps
            .iter()
            .try_for_each(|step| step.fold(&path, counts, out))
    }

    fn to_json(&self, line: &str, begin: i64, index: usize) -> Value {
        let nanos = |us: u64| i64::try_from(us).unwrap_or(i64::MAX).saturating_mul(1000);
        let start = begin.saturating_add(nanos(self.after_us));
        let id = hash(&[line.as_bytes(), &index.to_be_bytes()]);
        let steps = self.steps.iter().enumerate();
        let steps = steps.map(|(index, step)| step.to_json(&id, begin, index));
        json!({
            "start": start, "end": start.saturating_add(nanos(self.took_us)),
            "events": { "name": self.name }, "spans": steps.collect::<Vec<_>>(),
            "context": id, "origin": "", "command": "",
        })
    }
}

/// Semicolons and spaces separate in folded stacks.
fn folded(name: &str) -> String {
    printable(name).replace([';', ' '], "_")
}

/// Puts a line into words, without what its connection has in common.
fn words(line: &Fields) -> String {
    let event = text(line, "event");
    let (name, outcome) = context_name(&event);
    let mut words = vec![name, outcome.map_or(event, str::to_owned)];
    words.extend(["suite", "policy", "cause", "detail"].map(|key| text(line, key)));
    for (key, unit) in [
        ("bytes", "bytes"),
        ("duration_secs", "s"),
        ("took_us", "µs"),
    ] {
        if let Some(number) = line.get(key).filter(|number| number.is_number()) {
            words.push(format!("{number} {unit}"));
        }
    }
    if let Some(number) = line.get("suppressed").and_then(Value::as_u64) {
        words.push(format!("(and {number} like it before)"));
    }
    words.retain(|word| !word.is_empty());
    printable(&words.join("  "))
}

fn text(line: &Fields, key: &str) -> String {
    let text = line.get(key).and_then(Value::as_str);
    text.unwrap_or_default().to_owned()
}

/// Returns the first 16 bytes of the SHA-256 of the parts, in hex.
fn hash(parts: &[&[u8]]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part);
    }
    let digits = hash.finalize();
    digits
        .iter()
        .take(16)
        .fold(String::new(), |mut text, byte| {
            // Writing to a string cannot fail.
            let _ = std::fmt::Write::write_fmt(&mut text, format_args!("{byte:02x}"));
            text
        })
}

/// Returns the nanoseconds since 1970 of a `ts`.
fn nanos(ts: &str) -> Option<i64> {
    let date: Date = ts.get(..10)?.parse().ok()?;
    let days = date.days_since("1970-01-01".parse().ok()?);
    let part = |at: usize| ts.get(at..at + 2)?.parse::<i64>().ok();
    let secs = part(11)? * 3600 + part(14)? * 60 + part(17)?;
    let fraction = ts.get(19..)?.trim_end_matches('Z').trim_start_matches('.');
    let nanos = format!("{fraction:0<9.9}").parse::<i64>().ok()?;
    let secs = i64::from(days) * i64::try_from(DAY_SECS).ok()? + secs;
    secs.checked_mul(1_000_000_000)?.checked_add(nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(lines: &[&str]) -> Tree {
        let mut tree = Tree::new("0f".repeat(16));
        for line in lines {
            tree.push(serde_json::from_str(line).unwrap());
        }
        tree
    }

    const LINES: [&str; 2] = [
        r#"{"ts":"2026-11-22T19:53:28.104000000Z","event":"handshake_ok","span":"0f","sid":"aa",
            "peer_name":"amp1\u202e","peer_addr":"10.1.0.7:16572","role":"inlet","suite":"AES-256-GCM",
            "policy":"required","stream_uid":"uid-1","took_us":312,
            "steps":[["generate",0,41],["derive",60,48],["verify",120,80],["sign",210,60],["schedule",280,9]],"chain":"c","seq":4,"claimed":false}"#,
        r#"{"ts":"2026-11-22T21:53:28.104Z","event":"session_closed","span":"0f","sid":"aa","bytes":5,
            "duration_secs":7200.5,"clean":true,"chain":"c","seq":5}"#,
    ];

    #[test]
    fn a_session_is_read_from_top_to_bottom() {
        let mut out = Vec::new();
        tree(&LINES).write(&mut out).unwrap();
        let expected = "2026-11-22 19:53:28.104  lsl::session  amp1\\u{202e}  10.1.0.7:16572  our inlet  stream uid-1\n\
            \x20 lsl::handshake  ok  AES-256-GCM  required  312 µs\n\
            \x20   lsl::key_exchange  89 µs\n\
            \x20     pk::generate  41 µs\n\
            \x20     pk::derive  48 µs\n\
            \x20   lsl::outlet_key  80 µs\n\
            \x20     pk::verify  80 µs\n\
            \x20   lsl::inlet_key  60 µs\n\
            \x20     pk::sign  60 µs\n\
            \x20   lsl::key_schedule  9 µs\n\
            \x20 lsl::close  session_closed  5 bytes  7200.5 s\n";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
        let mut out = Vec::new();
        tree(&[r#"{"ts":"x","event":"trust_reloaded","detail":"2 peers"}"#])
            .write(&mut out)
            .unwrap();
        assert_eq!(out, b"x  lsl::trust  trust_reloaded  2 peers\n");
    }

    #[test]
    fn folded_stacks_weigh_what_took_time() {
        let mut out = Vec::new();
        tree(&LINES).fold(false, &mut out).unwrap();
        let expected = "lsl::session;lsl::handshake 74\n\
            lsl::session;lsl::handshake;lsl::key_exchange;pk::generate 41\n\
            lsl::session;lsl::handshake;lsl::key_exchange;pk::derive 48\n\
            lsl::session;lsl::handshake;lsl::outlet_key;pk::verify 80\n\
            lsl::session;lsl::handshake;lsl::inlet_key;pk::sign 60\n\
            lsl::session;lsl::handshake;lsl::key_schedule 9\n";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
        let mut out = Vec::new();
        tree(&LINES).fold(true, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(
            text.starts_with("lsl::session;lsl::handshake 1\n"),
            "{text}"
        );
        assert!(text.ends_with("lsl::session;lsl::close 1\n"), "{text}");
        let mut out = Vec::new();
        tree(&[r#"{"event":"a b;c\n"}"#])
            .fold(true, &mut out)
            .unwrap();
        assert_eq!(out, b"lsl::a_b_c\\n 1\n");
    }

    #[test]
    fn json_has_contexts_within_contexts() {
        let session = tree(&LINES).to_json();
        assert_eq!(session["events"]["name"], "lsl::session");
        assert_eq!(session["events"]["lsl::session_id"], "aa");
        let [handshake, close] = [&session["spans"][0], &session["spans"][1]];
        assert_eq!(handshake["events"]["lsl::outcome"], "ok");
        assert_eq!(handshake["events"]["lsl::claimed"], 0);
        assert_eq!(handshake["end"], 1_795_377_208_104_000_000_i64);
        assert_eq!(handshake["start"], 1_795_377_208_103_688_000_i64);
        assert_eq!(
            (&session["start"], &session["end"]),
            (&handshake["start"], &close["end"])
        );
        assert_ne!(handshake["context"], close["context"]);
        let verify = &handshake["spans"][1]["spans"][0];
        assert_eq!(verify["events"]["name"], "pk::verify");
        assert_eq!(verify["start"], 1_795_377_208_103_808_000_i64);
        assert_eq!(verify["end"], 1_795_377_208_103_888_000_i64);
        assert_eq!(handshake["context"].as_str().unwrap().len(), 32);
        assert_eq!(tree(&[]).to_json(), Value::Null);
    }

    #[test]
    fn times_of_all_kinds_are_read_or_not() {
        assert_eq!(nanos("1970-01-02T00:00:01.5Z"), Some(86_401_500_000_000));
        assert_eq!(nanos("1970-01-01T00:00:00Z"), Some(0));
        for ts in [
            "",
            "x",
            "2026-11-22",
            "2026-11-22T1\u{e9}:00:00Z",
            "2026-11-22T10:00:00.xZ",
        ] {
            assert_eq!(nanos(ts), None, "{ts}");
        }
    }
}
