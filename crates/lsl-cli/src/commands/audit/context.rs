//! Contexts, as crypto-auditing calls them: operations within operations, which the lines of a log and
//! their steps become. Spec: audit §1.1, §1.3.

use std::borrow::Cow;
use std::fmt;

use lsl_core::secure::audit::context::{Constant, Named, SESSION, context_name, contexts_of};
use lsl_platform::calendar::{DAY_SECS, Date};
use serde::Deserialize;
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::filter::Fields;

/// Identifies a context; equal for equal lines, whoever reads them.
pub(super) type Id = [u8; 16];

/// An operation with what is known of it, and the operations that it was made of.
#[derive(Debug)]
pub(super) struct Context {
    pub(super) id: Id,
    pub(super) name: String,
    /// Nanoseconds since 1970, as `end`.
    pub(super) start: i64,
    pub(super) end: i64,
    pub(super) data: Vec<(Cow<'static, str>, Data)>,
    pub(super) steps: Vec<Self>,
}

/// Value of a key.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Data {
    Word(i64),
    Text(Cow<'static, str>),
    Bytes(Vec<u8>),
}

/// What says which tree a line belongs to; cheaper to read than all its fields.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Place<'line> {
    #[serde(borrow)]
    event: Option<Cow<'line, str>>,
    #[serde(borrow)]
    span: Option<Cow<'line, str>>,
    #[serde(borrow)]
    sid: Option<Cow<'line, str>>,
    #[serde(borrow)]
    peer_addr: Option<Cow<'line, str>>,
    #[serde(borrow)]
    pub(super) chain: Option<Cow<'line, str>>,
    pub(super) seq: u64,
}

/// When what a line tells of began and ended.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Moment<'line> {
    #[serde(borrow)]
    ts: Cow<'line, str>,
    took_us: i64,
}

impl Moment<'_> {
    /// Returns nanoseconds since 1970.
    pub(super) fn start(&self) -> Option<i64> {
        Some(nanos(&self.ts)?.saturating_sub(micros(self.took_us)))
    }
}

impl<'line> Place<'line> {
    /// Reads the place of a line; `None` if it is none of an audit log.
    pub(super) fn of(line: &'line [u8]) -> Option<Self> {
        let place = serde_json::from_slice(line).or_else(|_| {
            // One of the names may be there twice.
            let fields = serde_json::from_slice::<Fields>(line)?;
            Ok::<Self, serde_json::Error>(Place::of_fields(&fields).into_owned())
        });
        place.ok().filter(|place| place.event.is_some())
    }

    pub(super) fn of_fields(fields: &'line Fields) -> Self {
        let text = |key| {
            let text = fields.get(key).and_then(Value::as_str);
            text.map(Cow::Borrowed)
        };
        Self {
            event: text("event"),
            span: text("span"),
            sid: text("sid"),
            peer_addr: text("peer_addr"),
            chain: text("chain"),
            seq: fields.get("seq").and_then(Value::as_u64).unwrap_or(0),
        }
    }

    fn into_owned(self) -> Place<'static> {
        let own = |text: Option<Cow<'_, str>>| text.map(|it| Cow::Owned(it.into_owned()));
        Place {
            event: own(self.event),
            span: own(self.span),
            sid: own(self.sid),
            peer_addr: own(self.peer_addr),
            chain: own(self.chain),
            seq: self.seq,
        }
    }

    /// Returns what names the tree of the line: its span, else its session; else it is one of its own.
    pub(super) fn tree(&self) -> Id {
        match self.span.as_ref().or(self.sid.as_ref()) {
            Some(name) => named(name),
            None => self.line(),
        }
    }

    /// Whether it is the first line of a chain in its file, which says what program writes it.
    pub(super) fn begins_chain(&self) -> bool {
        self.event.as_deref() == Some("log_opened")
    }

    /// Whether the tree is that of a connection.
    pub(super) fn is_session(&self) -> bool {
        self.sid.is_some() || (self.span.is_some() && self.peer_addr.is_some())
    }

    fn line(&self) -> Id {
        let tree = self.span.as_ref().or(self.sid.as_ref());
        let tree = tree.map(|name| named(name).to_vec()).unwrap_or_default();
        let chain = self.chain.as_deref().unwrap_or_default();
        hash(&[&tree, chain.as_bytes(), &self.seq.to_be_bytes()])
    }
}

/// Returns the bytes that a span or a session is written as.
fn named(name: &str) -> Id {
    from_hex(name).unwrap_or_else(|| hash(&[name.as_bytes()]))
}

/// Returns the context of a connection, as far as `lines` tell of it.
pub(super) fn session<'a>(lines: impl Iterator<Item = &'a Fields> + Clone) -> Option<Context> {
    let place = Place::of_fields(lines.clone().next()?);
    let mut data = Vec::new();
    for key in ["sid", "role", "peer_addr", "stream_uid"] {
        if let Some(value) = lines.clone().find_map(|line| line.get(key)) {
            data.extend(entry(key, value));
        }
    }
    Some(Context {
        id: place.tree(),
        name: SESSION.into(),
        start: lines.clone().map(|line| times(line).0).min()?,
        end: lines.map(|line| times(line).1).max()?,
        data,
        steps: Vec::new(),
    })
}

/// Returns the context of a line.
pub(super) fn line(fields: &Fields) -> Context {
    let mut context = nameless(fields);
    let id = Place::of_fields(fields).line();
    context.id = id;
    // Counted as they are shown: what contains others before them.
    let mut index = 0_u16;
    let mut name_next = |step: &mut Context| {
        step.id = hash(&[&id, &index.to_be_bytes()]);
        index = index.saturating_add(1);
    };
    for group in &mut context.steps {
        name_next(group);
        group.steps.iter_mut().for_each(&mut name_next);
    }
    context
}

/// Returns the context of a line without the ids, which cost much where there are many lines.
pub(super) fn nameless(fields: &Fields) -> Context {
    let (start, end) = times(fields);
    let (name, outcome) = context_name(&text(fields, "event"));
    let name = name.into_owned();
    let mut data = Vec::new();
    if let Some(outcome) = outcome {
        data.push(("lsl::outcome".into(), Data::Text(outcome.into())));
    }
    for (key, value) in fields {
        if !matches!(key.as_str(), "ts" | "prev" | "span" | "steps") {
            data.extend(entry(key, value));
        }
    }
    Context {
        id: Id::default(),
        name,
        start,
        end,
        data,
        steps: steps(fields, start),
    }
}

/// Start and end of what a line tells of.
fn times(fields: &Fields) -> (i64, i64) {
    let end = nanos(&text(fields, "ts")).unwrap_or_default();
    let took = fields.get("took_us").and_then(Value::as_i64);
    (end.saturating_sub(micros(took.unwrap_or_default())), end)
}

fn micros(us: i64) -> i64 {
    us.saturating_mul(1000)
}

/// The key and value of a context for a field of a line.
fn entry(field: &str, value: &Value) -> Option<(Cow<'static, str>, Data)> {
    let key = match field {
        "sid" => "lsl::session_id",
        "suite" => "lsl::cipher",
        "version" => "lsl::protocol_version",
        "peer_fp" => "lsl::peer_key",
        "duration_secs" => "lsl::duration_ms",
        _ => "",
    };
    let data = match value {
        Value::Null => return None,
        Value::Bool(truth) => Data::Word((*truth).into()),
        Value::String(text) => match from_hex(text).filter(|_| field == "sid") {
            Some(id) => Data::Bytes(id.into()),
            None => Data::Text(text.clone().into()),
        },
        Value::Number(number) => Data::Word(match (number.as_i64(), number.as_f64()) {
            (Some(number), _) => number,
            (None, Some(secs)) if field == "duration_secs" => rounded(secs * 1e3),
            (None, number) => rounded(number.unwrap_or_default()),
        }),
        Value::Array(_) | Value::Object(_) => Data::Text(value.to_string().into()),
    };
    let key = match key {
        "" => format!("lsl::{field}").into(),
        key => key.into(),
    };
    Some((key, data))
}

#[expect(clippy::cast_possible_truncation, reason = "`as` saturates")]
fn rounded(number: f64) -> i64 {
    number.round() as i64
}

/// Whether a step may have this key itself, instead of what its line says.
pub(super) fn is_of_steps(key: &str) -> bool {
    let own = ["name", "took_us", "cipher", "group", "key_algorithm", "kdf"];
    own.contains(&key) || key.starts_with("pk::")
}

/// Returns the contexts that the steps of a line become.
fn steps(fields: &Fields, begin: i64) -> Vec<Context> {
    let is_outlet = fields.get("role").is_some_and(|role| role == "outlet");
    let operation = fields.get("operation").and_then(Value::as_str);
    let opens = matches!(operation, Some("unlock" | "verify"));
    let mut groups: Vec<Context> = Vec::new();
    let steps = fields.get("steps").and_then(Value::as_array);
    for step in steps.into_iter().flatten() {
        let number = |at: usize| step.get(at).and_then(Value::as_i64).unwrap_or_default();
        let name = step.get(0).and_then(Value::as_str).unwrap_or_default();
        let start = begin.saturating_add(micros(number(1)));
        let end = start.saturating_add(micros(number(2)));
        let context = |(name, keys): Named| Context {
            id: Id::default(),
            name: name.to_owned(),
            start,
            end,
            data: keys
                .iter()
                .map(|(k, v)| ((*k).into(), (*v).into()))
                .collect(),
            steps: Vec::new(),
        };
        let (mut group, leaf) = contexts_of(name, is_outlet).map_or_else(
            || (context(("", &[])), None),
            |(group, leaf)| (context(group), leaf.map(context)),
        );
        if group.name.is_empty() {
            group.name = match name {
                "payload" if opens => "lsl::open".to_owned(),
                "payload" => "lsl::seal".to_owned(),
                other => format!("lsl::{other}"),
            };
        }
        let place = match groups.iter().position(|it| it.name == group.name) {
            Some(place) if leaf.is_some() => place,
            _ => {
                for (step, key) in [("schedule", "suite"), ("payload", "cipher")] {
                    let value = fields.get(key).filter(|_| name == step);
                    group.data.extend(value.and_then(|it| entry(key, it)));
                }
                groups.push(group);
                groups.len() - 1
            }
        };
        if let (Some(group), Some(leaf)) = (groups.get_mut(place), leaf) {
            group.end = group.end.max(end);
            group.steps.push(leaf);
        }
    }
    groups
}

impl Context {
    /// Returns the microseconds that it took.
    pub(super) fn took_us(&self) -> i64 {
        self.end.saturating_sub(self.start) / 1000
    }

    /// Returns the value of a key, with or without its scope.
    pub(super) fn get(&self, key: &str) -> Option<String> {
        if key == "name" {
            return Some(self.name.clone());
        }
        let is = |name: &str| name == key || name.strip_prefix("lsl::") == Some(key);
        let found = self.data.iter().find(|(name, _)| is(name))?;
        Some(found.1.to_string())
    }

    /// Calls `take` for it and, after it, all in it, with what contains each.
    pub(super) fn each<'a>(
        &'a self,
        parent: Option<&'a Self>,
        take: &mut impl FnMut(&'a Self, Option<&'a Self>),
    ) {
        take(self, parent);
        for step in &self.steps {
            step.each(Some(self), take);
        }
    }
}

impl From<Constant> for Data {
    fn from(constant: Constant) -> Self {
        match constant {
            Constant::Word(number) => Self::Word(number.into()),
            Constant::Text(text) => Self::Text(text.into()),
        }
    }
}

impl fmt::Display for Data {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Word(number) => number.fmt(f),
            Self::Text(text) => f.write_str(text),
            Self::Bytes(bytes) => f.write_str(&hex(bytes)),
        }
    }
}

pub(super) fn text(line: &Fields, key: &str) -> String {
    let text = line.get(key).and_then(Value::as_str);
    text.unwrap_or_default().to_owned()
}

/// Returns the first 16 bytes of the SHA-256 of the parts.
pub(super) fn hash(parts: &[&[u8]]) -> Id {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part);
    }
    let digest = hash.finalize();
    digest.first_chunk().copied().unwrap_or_default()
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = fmt::Write::write_fmt(&mut text, format_args!("{byte:02x}"));
        text
    })
}

/// Reads bytes written as hex; none of anything else.
pub(super) fn bytes_of(text: &str) -> Vec<u8> {
    let digit = |at: usize| {
        text.get(at..at + 2)
            .and_then(|it| u8::from_str_radix(it, 16).ok())
    };
    let bytes: Option<Vec<u8>> = (0..text.len() / 2).map(|at| digit(2 * at)).collect();
    bytes.unwrap_or_default()
}

/// Reads 32 digits.
fn from_hex(text: &str) -> Option<Id> {
    if text.len() != 32 {
        return None;
    }
    bytes_of(text).try_into().ok()
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

    #[test]
    fn a_line_is_of_the_tree_that_it_names() {
        let tree = |line: &str| Place::of(line.as_bytes()).unwrap().tree();
        let span = "0f".repeat(16);
        let one = tree(&format!(r#"{{"event":"x","span":"{span}","sid":"aa"}}"#));
        assert_eq!(one, [15; 16]);
        assert_eq!(
            tree(r#"{"event":"x","sid":"aa"}"#),
            tree(r#"{"event":"y","sid":"aa","chain":"c"}"#)
        );
        let alone = r#"{"event":"x","chain":"c","seq":7}"#;
        let fields: Fields = serde_json::from_str(alone).unwrap();
        assert_eq!(tree(alone), line(&fields).id, "a tree is its only line");
        assert_eq!(tree(alone), Place::of_fields(&fields).tree());
        assert!(Place::of(b"{}").is_none() && Place::of(b"[]").is_none());
        // Of fields with one name the last one counts.
        let twice = r#"{"event":"x","sid":"bb","sid":"aa"}"#;
        assert_eq!(tree(twice), tree(r#"{"event":"x","sid":"aa"}"#));
    }

    #[test]
    fn fields_become_words_texts_and_bytes() {
        let fields = r#"{"event":"session_closed","ts":"x","sid":"0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f",
            "clean":true,"duration_secs":7200.5,"bytes":18446744073709551615,"none":null,"list":[1,"a"]}"#;
        let context = line(&serde_json::from_str(fields).unwrap());
        let check = |key: &str, value: Data| {
            let found = context.data.iter().find(|(name, _)| name == key);
            assert_eq!(found.map(|(_, data)| data), Some(&value), "{key}");
        };
        check("lsl::session_id", Data::Bytes(vec![15; 16]));
        check("lsl::clean", Data::Word(1));
        check("lsl::duration_ms", Data::Word(7_200_500));
        check("lsl::bytes", Data::Word(i64::MAX));
        check("lsl::list", Data::Text(r#"[1,"a"]"#.into()));
        assert_eq!(context.get("cipher"), None);
        assert_eq!(context.get("none"), None);
        assert_eq!(context.get("clean").unwrap(), "1");
    }
}
