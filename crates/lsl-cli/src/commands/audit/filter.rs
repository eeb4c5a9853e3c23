//! Which events a command is to show: by time, and by what their lines say.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use lsl_platform::calendar::{Date, rfc3339};
use lsl_platform::clock::utc_now;
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::{Map, Value};

use super::context::{Context, is_of_steps, nameless};

/// A line of a log, field by field.
pub(super) type Fields = Map<String, Value>;

/// Conditions on what a line says.
#[derive(Debug, Clone, Default, Args)]
pub(super) struct Conditions {
    /// Only where KEY OP VALUE holds: KEY is a field of the line, a key of a context or of one of its steps,
    /// or `name`, OP one of = != ~ (contains) < <= > >=; several must all hold
    #[arg(long = "where", value_name = "EXPR")]
    conditions: Vec<Condition>,
}

/// Conditions on when an event was recorded.
#[derive(Debug, Default, Args)]
pub(super) struct Times {
    /// Only events from then on: `30s`, `10min`, `2h` or `3d` ago, `today`, or a time in UTC as the log has it
    #[arg(long, value_name = "WHEN")]
    since: Option<When>,

    /// Only events before then
    #[arg(long, value_name = "WHEN")]
    until: Option<When>,
}

/// A moment, as the beginning of a `ts` in UTC.
#[derive(Debug, Clone, PartialEq)]
struct When(String);

#[derive(Debug, Clone)]
struct Condition {
    key: String,
    operator: Operator,
    value: String,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Operator {
    Contains,
    /// Any of these, or none of them.
    Compares(&'static [Ordering], bool),
}

/// Finds out whether a line may be meant, from no more fields than it takes: most lines are not. Where it says so,
/// [`Conditions::hold`] and [`Times::hold`] decide.
pub(super) fn may_hold(line: &[u8], times: &Times, conditions: &Conditions) -> bool {
    let mut deserializer = serde_json::Deserializer::from_slice(line);
    let held = deserializer.deserialize_map(Glance(times, conditions));
    held.unwrap_or(false)
}

/// Keeps no field, and looks at no more than are asked for.
struct Glance<'a>(&'a Times, &'a Conditions);

/// Name of a field.
#[derive(Deserialize)]
struct Name<'line>(#[serde(borrow)] Cow<'line, str>);

impl<'line> Visitor<'line> for Glance<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a line")
    }

    fn visit_map<A: MapAccess<'line>>(self, mut map: A) -> Result<bool, A::Error> {
        let Self(times, conditions) = self;
        // Of fields with one name the last one counts, as in `Fields`: no other may hide a line.
        let mut denied: Vec<Cow<'_, str>> = Vec::new();
        while let Some(Name(key)) = map.next_key()? {
            let mut asked = conditions.conditions.iter();
            let is_asked = asked.any(|it| it.key() == key && !is_of_steps(&key));
            if !is_asked && key != "ts" {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            let value: Value = map.next_value()?;
            let is_of_time = key != "ts" || times.hold_for(value.as_str().unwrap_or_default());
            denied.retain(|before| *before != key);
            if !is_of_time || !conditions.hold_for(&key, &text_of(&value)) {
                denied.push(key);
            }
        }
        Ok(denied.is_empty())
    }
}

fn text_of(value: &Value) -> Cow<'_, str> {
    match value {
        Value::String(text) => text.into(),
        value => value.to_string().into(),
    }
}

impl Conditions {
    /// Returns whether those of one key hold for its value.
    fn hold_for(&self, key: &str, value: &str) -> bool {
        let mut own = self.conditions.iter().filter(|it| it.key() == key);
        own.all(|it| it.holds(value))
    }

    /// Returns whether all of them hold for a line, or for one of its steps: what a step does not say itself,
    /// its line says.
    pub(super) fn hold(&self, fields: &Fields) -> bool {
        let mut made = None;
        let of_line = |key: &str, made: &mut Option<Context>| {
            if let Some(value) = fields.get(key) {
                return text_of(value).into_owned();
            }
            let context = made.get_or_insert_with(|| nameless(fields));
            context.get(key).unwrap_or_default()
        };
        let mut all = self.conditions.iter();
        if all.all(|it| it.holds(&of_line(it.key(), &mut made))) {
            return true;
        }
        if !fields.contains_key("steps") {
            return false;
        }
        let context = nameless(fields);
        let mut found = false;
        let mut look = |step: &Context| {
            // Any step lacks a name that is not meant: it must have something that is.
            let mut has_own = false;
            let mut all = self.conditions.iter();
            found |= all.all(|it| {
                let own = match it.key() {
                    "took_us" => Some(step.took_us().to_string()),
                    key => step.get(key),
                };
                has_own |= own.is_some() && it.key() != "took_us" && !it.is_denial();
                it.holds(&own.unwrap_or_else(|| of_line(it.key(), &mut made)))
            }) && has_own;
        };
        for step in &context.steps {
            step.each(None, &mut |step, _| look(step));
        }
        found
    }

    pub(super) fn is_empty(&self) -> bool {
        self.conditions.is_empty()
    }

    #[cfg(test)]
    pub(super) fn one(text: &str) -> Self {
        let conditions = vec![text.parse().unwrap()];
        Self { conditions }
    }
}

impl Times {
    /// Returns whether a line is of that time.
    pub(super) fn hold(&self, fields: &Fields) -> bool {
        self.hold_for(fields.get("ts").and_then(Value::as_str).unwrap_or_default())
    }

    fn hold_for(&self, ts: &str) -> bool {
        let ts = ts.trim_end_matches('Z');
        let is_since = self.since.as_ref().is_none_or(|since| ts >= &since.0[..]);
        is_since && self.until.as_ref().is_none_or(|until| ts < &until.0[..])
    }

    pub(super) fn is_empty(&self) -> bool {
        self.since.is_none() && self.until.is_none()
    }
}

impl Condition {
    /// The key without our own scope.
    fn key(&self) -> &str {
        self.key.strip_prefix("lsl::").unwrap_or(&self.key)
    }

    /// Whether it is `!=`.
    fn is_denial(&self) -> bool {
        matches!(self.operator, Operator::Compares(_, false))
    }

    fn holds(&self, value: &str) -> bool {
        match self.operator {
            Operator::Contains => value.contains(&self.value),
            Operator::Compares(any, holds) => {
                let numbers = (value.parse::<f64>(), self.value.parse::<f64>());
                let order = match numbers {
                    (Ok(one), Ok(other)) => one.partial_cmp(&other),
                    _ => Some(value.cmp(self.value.as_str())),
                };
                order.is_some_and(|order| any.contains(&order)) == holds
            }
        }
    }
}

/// The operators, those first that begin with another one.
const OPERATORS: [(&str, Operator); 7] = [
    ("!=", Operator::Compares(&[Ordering::Equal], false)),
    (
        "<=",
        Operator::Compares(&[Ordering::Less, Ordering::Equal], true),
    ),
    (
        ">=",
        Operator::Compares(&[Ordering::Greater, Ordering::Equal], true),
    ),
    ("=", Operator::Compares(&[Ordering::Equal], true)),
    ("<", Operator::Compares(&[Ordering::Less], true)),
    (">", Operator::Compares(&[Ordering::Greater], true)),
    ("~", Operator::Contains),
];

impl FromStr for Condition {
    type Err = NotThat;

    fn from_str(text: &str) -> Result<Self, NotThat> {
        let found = text.char_indices().find_map(|(at, _)| {
            let (key, rest) = text.split_at(at);
            OPERATORS.iter().find_map(|(sign, operator)| {
                let value = rest.strip_prefix(sign)?;
                Some((key.trim(), *operator, value.trim()))
            })
        });
        match found {
            Some((key, operator, value)) if !key.is_empty() => Ok(Self {
                key: key.to_owned(),
                operator,
                value: value.to_owned(),
            }),
            _ => Err(NotThat("write KEY OP VALUE, for instance 'cause=timeout'")),
        }
    }
}

impl FromStr for When {
    type Err = NotThat;

    fn from_str(text: &str) -> Result<Self, NotThat> {
        let now = utc_now();
        if text == "today" {
            return Ok(Self(Date::from_unix_time(now).to_string()));
        }
        let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let secs = match text.get(digits.len()..) {
            Some("s") => 1,
            Some("min") => 60,
            Some("h") => 3600,
            Some("d") => 86_400,
            _ => 0,
        };
        if let (true, Ok(number)) = (secs > 0, digits.parse::<u64>()) {
            let ago = Duration::from_secs(number.saturating_mul(secs));
            let then = rfc3339(now.saturating_sub(ago));
            return Ok(Self(then.trim_end_matches('Z').to_owned()));
        }
        // A beginning of a time is one, too: a day, a minute.
        let moment = text.trim_end_matches('Z').replacen(' ', "T", 1);
        let shape = "0000-00-00T00:00:00.000000000";
        let fits = moment
            .chars()
            .zip(shape.chars())
            .all(|(c, place)| match place {
                '0' => c.is_ascii_digit(),
                _ => c == place,
            });
        if fits && (10..=shape.len()).contains(&moment.len()) {
            return Ok(Self(moment));
        }
        Err(NotThat(
            "write 30s, 10min, 2h, 3d, today, 2026-11-22 or 2026-11-22T19:30:00Z (in UTC)",
        ))
    }
}

/// What should have been written instead.
#[derive(Debug)]
struct NotThat(&'static str);

impl fmt::Display for NotThat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for NotThat {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_compare_numbers_and_texts() {
        let line = r#"{"ts":"2026-11-22T19:30:00.5Z","event":"handshake_failed","cause":"timeout","took_us":900,
            "clean":false,"suite":"AES-256-GCM","steps":[["generate",0,41],["sign",50,300]]}"#;
        let fields: Fields = serde_json::from_str(line).unwrap();
        let check = |text: &str, expected: bool| {
            let conditions = text.split(" & ").map(|it| it.parse().unwrap());
            let conditions = conditions.collect();
            let conditions = Conditions { conditions };
            assert_eq!(conditions.hold(&fields), expected, "{text}");
            // A glance only rejects what is not meant, and what a field of the line decides.
            let glance = may_hold(line.as_bytes(), &Times::default(), &conditions);
            assert!(glance || !expected, "{text}");
            let decides = ["cause != timeout", "event~=failed"].contains(&text);
            assert!(!glance || !decides, "{text}");
        };
        check("cause=timeout", true);
        check("cause != timeout", false);
        check("cause~time", true);
        check("took_us>=1000", false);
        check("took_us < 1000", true);
        check("lsl::took_us>89", true);
        check("clean=false", true);
        check("absent=", true);
        check("absent!=x", true);
        check("name=lsl::handshake", true);
        check("event~=failed", false);
        check("cipher=AES-256-GCM & outcome=failed", true);
        check("pk::curve=ed25519", true);
        check("pk::curve=p256", false);
        // Of one step, which has what its line says too.
        check("name=pk::sign & cause=timeout & took_us>200", true);
        check("name=pk::generate & pk::curve=ed25519", false);
        check("name=pk::generate & took_us>200", false);
        check("name!=lsl::handshake", false);
        for text in ["", "cause", "=timeout"] {
            assert!(text.parse::<Condition>().is_err(), "{text}");
        }
    }

    #[test]
    fn of_fields_with_one_name_the_last_one_counts() {
        let line = r#"{"ts":"2026-11-22T19:30:00Z","cause":"busy",
            "c\u0061use":"timeout","ts":"2026-11-23T19:30:00Z"}"#;
        let fields: Fields = serde_json::from_str(line).unwrap();
        for (condition, since, expected) in [
            ("cause=timeout", "2026-11-23", true),
            ("cause=busy", "2026-11-23", false),
            ("cause=timeout", "2026-11-24", false),
        ] {
            let conditions = Conditions::one(condition);
            let times = Times {
                since: Some(since.parse().unwrap()),
                until: None,
            };
            let held = conditions.hold(&fields) && times.hold(&fields);
            let glance = may_hold(line.as_bytes(), &times, &conditions);
            assert_eq!((held, glance), (expected, expected), "{condition} {since}");
        }
    }

    #[test]
    fn times_are_compared_as_the_log_writes_them() {
        let line = r#"{"ts":"2026-11-22T19:30:00.500000000Z"}"#;
        let fields: Fields = serde_json::from_str(line).unwrap();
        let check = |since: &str, until: &str, expected: bool| {
            let times = Times {
                since: Some(since.parse().unwrap()),
                until: Some(until.parse().unwrap()),
            };
            assert_eq!(times.hold(&fields), expected, "{since} {until}");
            let glance = may_hold(line.as_bytes(), &times, &Conditions::default());
            assert_eq!(glance, expected, "{since} {until}");
        };
        check("2026-11-22", "2026-11-23", true);
        check("2026-11-22T19:30:00Z", "2026-11-22 19:30:01", true);
        check("2026-11-22T19:30:00.6Z", "2026-11-23", false);
        check("2026-11-21", "2026-11-22", false);
        check("9999999d", "2026-11-22T19:30:00.500000001Z", true);
        for text in [
            "",
            "yesterday",
            "3",
            "3w",
            "2026-11",
            "2026-11-22T19:30:00+01:00",
        ] {
            assert!(text.parse::<When>().is_err(), "{text}");
        }
        assert_eq!("today".parse::<When>().unwrap().0.len(), 10);
    }
}
