//! Trees of events: the lines of one connection, one below the other, for people, as JSON and as folded
//! stacks. Spec: audit §1.3, §1.5.

use std::io::{self, Write};
use std::rc::Rc;

use lsl_core::secure::audit::context::context_name;
use serde_json::{Map, Value, json};

use super::context::{Context, Data, Place, hex, line as context_of, session, text};
use super::filter::Fields;
use super::program::Program;
use super::pseudonyms::Pseudonyms;
use crate::ui::text::printable;

/// All lines of a connection, or one that belongs to none.
#[derive(Debug)]
pub(super) struct Tree {
    lines: Vec<Fields>,
    /// Who wrote them.
    program: Rc<Program>,
}

/// What the stacks of a flame graph are to weigh, and what to name.
#[derive(Debug, Clone, Default)]
pub(super) struct Stacks {
    /// Operations instead of microseconds.
    pub(super) counts: bool,
    /// Key whose value goes below the names.
    pub(super) by: Option<String>,
}

impl Tree {
    /// Creates one of lines that this program wrote.
    pub(super) fn new(lines: Vec<Fields>, program: Rc<Program>) -> Self {
        Self { lines, program }
    }

    /// Hides who was there.
    pub(super) fn hide(&mut self, pseudonyms: &Pseudonyms) {
        self.lines.iter_mut().for_each(|it| pseudonyms.apply(it));
        self.program = pseudonyms.program(&self.program);
    }

    /// Whether it is a connection; else it is one line.
    fn is_session(&self) -> bool {
        let mut places = self.lines.iter().map(Place::of_fields);
        places.any(|place| place.is_session())
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
            let steps = context_of(line).steps;
            steps.iter().try_for_each(|step| write_step(step, 4, out))?;
        }
        Ok(())
    }

    /// Hands what flame graphs are made of to `take`: names from the root on, and a weight, microseconds
    /// or 1.
    pub(super) fn fold(&self, stacks: &Stacks, mut take: impl FnMut(String, u64)) {
        let root = if self.is_session() {
            "lsl::session"
        } else {
            ""
        };
        for fields in &self.lines {
            stacks.fold(&context_of(fields), root, None, true, &mut take);
        }
    }

    /// Returns it in the shape in which crypto-auditing's query prints contexts.
    pub(super) fn to_json(&self) -> Value {
        let lines: Vec<Value> = self
            .lines
            .iter()
            .map(|it| to_json(&context_of(it), &self.program))
            .collect();
        if !self.is_session() {
            return lines.into_iter().next().unwrap_or_default();
        }
        let Some(session) = session(self.lines.iter()) else {
            return Value::Null;
        };
        let mut json = to_json(&session, &self.program);
        json["spans"] = lines.into();
        json
    }
}

impl Stacks {
    fn fold(
        &self,
        context: &Context,
        root: &str,
        line: Option<&Context>,
        is_line: bool,
        take: &mut impl FnMut(String, u64),
    ) {
        let mut path = root.to_owned();
        let mut add = |name: &str| {
            if !path.is_empty() {
                path.push(';');
            }
            // Semicolons and spaces separate.
            path.push_str(&printable(name).replace([';', ' '], "_"));
        };
        add(&context.name);
        let names = path.clone();
        let line = line.unwrap_or(context);
        if let Some(key) = &self.by
            && let Some(value) = context.get(key).or_else(|| line.get(key))
        {
            path.push(';');
            path.push_str(&printable(&value).replace([';', ' '], "_"));
        }
        let in_steps = context.steps.iter().map(work_us).sum();
        let own = if !is_line && !context.steps.is_empty() {
            0
        } else if self.counts {
            1
        } else {
            context.took_us().saturating_sub(in_steps)
        };
        if let Ok(own @ 1..) = u64::try_from(own) {
            take(path, own);
        }
        for step in &context.steps {
            self.fold(step, &names, Some(line), false, take);
        }
    }
}

/// Returns the microseconds that a step took, or those in it.
fn work_us(step: &Context) -> i64 {
    if step.steps.is_empty() {
        return step.took_us();
    }
    step.steps.iter().map(work_us).fold(0, i64::saturating_add)
}

fn write_step(step: &Context, indent: usize, out: &mut impl Write) -> io::Result<()> {
    let name = printable(&step.name);
    writeln!(out, "{:indent$}{name}  {} µs", "", work_us(step))?;
    step.steps
        .iter()
        .try_for_each(|step| write_step(step, indent + 2, out))
}

fn to_json(context: &Context, program: &Program) -> Value {
    let mut events = Map::new();
    events.insert("name".into(), context.name.clone().into());
    for (key, data) in &context.data {
        let value = match data {
            Data::Word(number) => (*number).into(),
            Data::Text(_) | Data::Bytes(_) => data.to_string().into(),
        };
        events.insert(key.to_string(), value);
    }
    let steps = context.steps.iter().map(|step| to_json(step, program));
    json!({
        "context": hex(&context.id), "origin": hex(&program.origin), "command": program.executable,
        "start": context.start, "end": context.end, "events": events, "spans": steps.collect::<Vec<_>>(),
    })
}

/// Puts a line into words, without what its connection has in common.
fn words(line: &Fields) -> String {
    let event = text(line, "event");
    let (name, outcome) = context_name(&event);
    let mut words = vec![name.into_owned(), outcome.map_or(event, str::to_owned)];
    words.extend(["exe", "suite", "policy", "cause", "detail"].map(|key| text(line, key)));
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

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(lines: &[&str]) -> Tree {
        let lines = lines.iter().map(|line| serde_json::from_str(line).unwrap());
        Tree::new(lines.collect(), Rc::default())
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

    fn folded(lines: &[&str], counts: bool, by: Option<&str>) -> String {
        let by = by.map(str::to_owned);
        let mut text = String::new();
        tree(lines).fold(&Stacks { counts, by }, |path, weight| {
            text.extend([&path, " ", &weight.to_string(), "\n"]);
        });
        text
    }

    #[test]
    fn folded_stacks_weigh_what_took_time() {
        let expected = "lsl::session;lsl::handshake 74\n\
            lsl::session;lsl::handshake;lsl::key_exchange;pk::generate 41\n\
            lsl::session;lsl::handshake;lsl::key_exchange;pk::derive 48\n\
            lsl::session;lsl::handshake;lsl::outlet_key;pk::verify 80\n\
            lsl::session;lsl::handshake;lsl::inlet_key;pk::sign 60\n\
            lsl::session;lsl::handshake;lsl::key_schedule 9\n";
        assert_eq!(folded(&LINES, false, None), expected);
        let text = folded(&LINES, true, None);
        assert!(
            text.starts_with("lsl::session;lsl::handshake 1\n"),
            "{text}"
        );
        assert!(text.ends_with("lsl::session;lsl::close 1\n"), "{text}");
        let text = folded(&[r#"{"event":"a b;c\n"}"#], true, None);
        assert_eq!(text, "lsl::a_b_c\\n 1\n");
        // A step has the values of its line, unless it has its own.
        let text = folded(&LINES, false, Some("peer_name"));
        assert!(
            text.contains("lsl::inlet_key;pk::sign;amp1\\u{202e} 60\n"),
            "{text}"
        );
        let text = folded(&LINES, false, Some("pk::curve"));
        assert!(
            text.contains("pk::sign;ed25519 60\n") && text.contains("pk::generate 41\n"),
            "{text}"
        );
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
}
