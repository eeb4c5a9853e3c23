//! STREAM on the command line: how it is read, and the search for the one stream it means.

use std::io;
use std::time::Duration;

use clap::Args;
use lsl_core::{Context, ContinuousResolver, History, Selector, StreamInfo, Timeout};
use lsl_doctor::observe::StreamAsked;
use lsl_platform::calendar::Date;
use lsl_proto::query::Query;

use super::describe::Described;
use super::not_found;
use crate::failure::{Failure, Outcome};
use crate::ui::table::{Align, Table};
use crate::ui::text::printable;

/// Arguments that name one stream.
#[derive(Debug, Args)]
pub(crate) struct StreamArgs {
    /// Name of the stream, KEY=VALUE (name, type, source_id, uid, hostname, ...) or an XPath
    /// predicate such as "type='EEG' and channel_count>8"
    #[arg(value_name = "STREAM")]
    stream: String,

    /// Take the first match when several streams match
    #[arg(long)]
    first: bool,

    /// Seconds to wait for the stream to show up and to answer
    #[arg(long, value_name = "SECS", default_value = "5", value_parser = seconds)]
    timeout: f64,
}

impl StreamArgs {
    /// Returns the longest wait for each answer.
    pub(crate) fn timeout(&self) -> Timeout {
        Timeout::from_secs(self.timeout)
    }

    /// Finds the one stream that STREAM means. Blocks until the timeout.
    pub(crate) fn find(&self, context: &Context) -> Outcome<StreamInfo> {
        let wanted = Wanted::parse(&self.stream)?;
        let resolver =
            ContinuousResolver::in_context(context, &wanted.selector()?, Timeout::Forever)?;
        let limit = Duration::from_secs_f64(self.timeout);
        let mut found = resolver.wait_blocking(1, limit);
        if !self.first && !found.is_empty() {
            // Others would answer about as fast; one more round of answers tells.
            found = resolver.wait_blocking(2, SETTLE);
        }
        let mut found = found.into_iter();
        match (found.next(), found.len()) {
            (None, _) => Err(Failure::NotFound(format!(
                "no stream {wanted} answered within {} s\n{}",
                self.timeout,
                not_found::explain(context, Some(wanted.asked()))
            ))),
            (Some(info), 0) => Ok(info),
            (Some(info), _) if self.first => Ok(info),
            (Some(info), _) => {
                let all: Vec<Described> = std::iter::once(&info)
                    .chain(found.as_slice())
                    .map(Described::from)
                    .collect();
                Err(ambiguous(&wanted, &all)?)
            }
        }
    }
}

/// Meaning of STREAM on the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// The stream of this name.
    Name(String),
    /// Streams with this text in this field.
    Property(&'static str, String),
    /// Streams for which this XPath predicate holds.
    Predicate(String),
}

impl Wanted {
    /// Reads STREAM. `KEY=VALUE` with a known key is a property: the value is taken literally, it
    /// may contain blanks, quotes and brackets. Any other text with an operator, a quote or
    /// brackets is a predicate, and the rest is a name. Brackets alone may belong to a name: `Cap
    /// (left)` is one since it is no valid predicate.
    pub(crate) fn parse(text: &str) -> Outcome<Self> {
        if text.trim().is_empty() {
            return Err(Failure::Usage(
                "STREAM is empty; give a name or a predicate".into(),
            ));
        }
        if let Some((key, value)) = text.split_once('=')
            && let Some(key) = KEYS.iter().find(|known| **known == key)
            && is_literal(value)
        {
            return Ok(Self::Property(key, value.into()));
        }
        if let Some((key, _)) = unknown_property(text) {
            return Err(Failure::Usage(format!(
                "'{text}': there is no field '{key}'. Known are {}.\n\
                 Metadata is found by a predicate, with its text in quotes: \
                 \"desc/manufacturer='Acme'\"",
                KEYS.join(", ")
            )));
        }
        let parsed = Query::parse(text);
        if text.contains(['=', '<', '>', '\'', '"']) {
            return match parsed {
                Ok(_) => Ok(Self::Predicate(text.into())),
                Err(error) => Err(Failure::Usage(format!(
                    "'{}' is read as an XPath predicate, but: {error}\n\
                     If it is a name, write name={0}; texts in predicates stand in quotes: \
                     \"type='EEG'\"",
                    printable(text)
                ))),
            };
        }
        if text.contains(['(', '[']) && parsed.is_ok() {
            return Ok(Self::Predicate(text.into()));
        }
        Ok(Self::Name(text.into()))
    }

    /// Returns the selector to search the network with.
    pub(crate) fn selector(&self) -> Outcome<Selector> {
        Ok(match self {
            Self::Name(name) => Selector::property("name", name)?,
            // Numbers have a text form of their own (`500.0000000000000`): compare them as numbers.
            Self::Property(key, value) if NUMBERS.contains(key) => {
                let number: f64 = value
                    .parse()
                    .map_err(|_| Failure::Usage(format!("{key}={value}: not a number")))?;
                Selector::predicate(format!("{key}={number}"))?
            }
            Self::Property(key, value) => Selector::property(key, value)?,
            Self::Predicate(text) => predicate(text)?,
        })
    }
}

impl Wanted {
    /// Returns what is meant, for those who explain why it is not found.
    pub(crate) fn asked(&self) -> StreamAsked {
        StreamAsked {
            text: format!("the stream {self}"),
            field: self.field(),
            found: false,
        }
    }

    /// Returns the field and the value that a stream is asked for by, if it is one.
    fn field(&self) -> Option<(String, String)> {
        match self {
            Self::Name(name) => Some(("name".to_owned(), name.clone())),
            Self::Property(key, value) => Some(((*key).to_owned(), value.clone())),
            Self::Predicate(text) => {
                let (key, value) = text.split_once('=')?;
                let value = value.trim();
                let value = ['\'', '"']
                    .iter()
                    .find_map(|quote| value.strip_prefix(*quote)?.strip_suffix(*quote))?;
                let is_word = !key.contains(OPERATORS) && !value.contains(['\'', '"']);
                is_word.then(|| (key.trim().to_owned(), value.to_owned()))
            }
        }
    }
}

impl std::fmt::Display for Wanted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Name(name) => write!(f, "named '{}'", printable(name)),
            Self::Property(key, value) => write!(f, "with {key} '{}'", printable(value)),
            Self::Predicate(text) => write!(f, "for which {} holds", printable(text)),
        }
    }
}

/// Parses a predicate as the user wrote it, and puts it in parentheses: the session is a term of
/// its own, whatever operators the predicate has.
pub(crate) fn predicate(text: &str) -> Outcome<Selector> {
    Selector::predicate(text)?;
    Ok(Selector::predicate(format!("({text})"))?)
}

/// Reads a number of seconds from the command line.
pub(crate) fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(secs) if (0.0..=LONGEST_SECS).contains(&secs) => Ok(secs),
        Ok(_) => Err(format!("between 0 and {LONGEST_SECS} seconds, please")),
        Err(_) => Err("not a number of seconds".into()),
    }
}

/// Reads from the command line how much of the past is wanted.
pub(crate) fn past(text: &str) -> Result<History, String> {
    if text == "all" {
        return Ok(History::Oldest);
    }
    let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit_secs = match &text[number.len()..] {
        "" | "s" => 1.0,
        "min" => 60.0,
        "h" => 3600.0,
        unit => {
            return Err(format!(
                "{unit} is no unit here: write 10s, 5min, 1h or all"
            ));
        }
    };
    seconds(number).map(|secs| History::Seconds(secs * unit_secs))
}

/// Reads from the command line since when samples are wanted: so long ago, or a time.
pub(crate) fn since(text: &str) -> Result<History, String> {
    if text == "start" {
        return Ok(History::Oldest);
    }
    let now = lsl_platform::clock::utc_now().as_secs_f64();
    match unix_time(text) {
        Some(time) if time > now => Err(format!("{text} is yet to come")),
        Some(time) => Ok(History::Seconds(now - time)),
        None if text == "all" => Err("write 10s, 5min, 1h or start".to_owned()),
        None => past(text),
    }
    .map_err(|error| {
        if text.contains(['T', ':']) {
            "write a time as 2026-11-22T08:31:56Z or 2026-11-22T08:31:56+01:00".to_owned()
        } else {
            error.replace(" or all", " or start")
        }
    })
}

/// Returns the seconds since 1970 of a time in RFC 3339.
fn unix_time(text: &str) -> Option<f64> {
    let (date, time) = text.split_once(['T', 't', ' '])?;
    let days = date
        .parse::<Date>()
        .ok()?
        .days_since("1970-01-01".parse().ok()?);
    let (time, zone_secs) = if let Some(time) = time.strip_suffix(['Z', 'z']) {
        (time, 0.0)
    } else {
        let (time, zone) = time.split_at_checked(time.rfind(['+', '-'])?)?;
        let secs = of_day(&format!("{}:00", zone.get(1..)?))?;
        (time, if zone.starts_with('-') { -secs } else { secs })
    };
    Some(f64::from(days) * 86_400.0 + of_day(time)? - zone_secs)
}

/// Returns the seconds of `HH:MM:SS`, perhaps with a fraction.
fn of_day(text: &str) -> Option<f64> {
    let mut parts = text.split(':');
    let mut part = |digits: usize, most: f64| {
        let text = parts.next()?;
        let is_number = text.bytes().all(|it| it.is_ascii_digit() || it == b'.');
        let is_long = text.split('.').next()?.len() == digits;
        let value: f64 = text.parse().ok().filter(|_| is_number && is_long)?;
        (value < most).then_some(value)
    };
    let secs = part(2, 24.0)? * 3600.0 + part(2, 60.0)? * 60.0 + part(2, 61.0)?;
    parts.next().is_none().then_some(secs)
}

/// Returns whether the text behind `KEY=` is a value, not the rest of a predicate.
fn is_literal(value: &str) -> bool {
    !value.is_empty()
        && !value.starts_with(['\'', '"', ' ', '='])
        && !value.contains(['<', '>', '='])
}

/// Recognises `KEY=VALUE` with a key that is none. XPath would take both for names of elements, find
/// neither, and the user would wait for nothing.
fn unknown_property(text: &str) -> Option<(&str, &str)> {
    let (key, value) = text.split_once('=')?;
    let is_word = |word: &str| {
        word.starts_with(|c: char| c.is_alphabetic())
            && word
                .chars()
                .all(|c| c.is_alphanumeric() || "_-.".contains(c))
    };
    (!KEYS.contains(&key) && is_word(key) && is_word(value)).then_some((key, value))
}

fn ambiguous(wanted: &Wanted, found: &[Described]) -> io::Result<Failure> {
    let mut table =
        Table::new(&["NAME", "TYPE", "SOURCE ID", "HOST", "UID"].map(|name| (name, Align::Left)));
    for stream in found {
        let Described {
            name,
            stream_type,
            source_id,
            hostname,
            uid,
            ..
        } = stream;
        table.push([name, stream_type, source_id, hostname, uid]);
    }
    let mut rows = Vec::new();
    table.write(&mut rows, "  ")?;
    Ok(Failure::Usage(format!(
        "{} streams {wanted}:\n{}Choose one with source_id=..., hostname=... or uid=..., or take \
         any with --first",
        found.len(),
        String::from_utf8_lossy(&rows)
    )))
}

/// The fields of a stream info.
const KEYS: [&str; 13] = [
    "name",
    "type",
    "source_id",
    "uid",
    "hostname",
    "session_id",
    "channel_format",
    "channel_count",
    "nominal_srate",
    "version",
    "created_at",
    "v4data_port",
    "v6data_port",
];
/// Fields whose text is a number.
const NUMBERS: [&str; 6] = [
    "channel_count",
    "nominal_srate",
    "version",
    "created_at",
    "v4data_port",
    "v6data_port",
];

const SETTLE: Duration = Duration::from_millis(300);
const LONGEST_SECS: f64 = lsl_core::FOREVER_SECS;

/// What makes a word a predicate.
pub(crate) const OPERATORS: [char; 8] = ['=', '<', '>', '\'', '"', ' ', '(', '['];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reading_streams() {
        let name = |text: &str| Wanted::Name(text.into());
        let property = |key, value: &str| Wanted::Property(key, value.into());
        let predicate = |text: &str| Wanted::Predicate(text.into());
        for (text, expected) in [
            ("BioSemi", name("BioSemi")),
            ("My Amp 2", name("My Amp 2")),
            ("EEG/left", name("EEG/left")),
            ("Cap (left)", name("Cap (left)")),
            ("rock and roll", name("rock and roll")),
            ("type=EEG", property("type", "EEG")),
            ("name=Cap (left)", property("name", "Cap (left)")),
            ("name=it's", property("name", "it's")),
            ("source_id=a-1", property("source_id", "a-1")),
            ("nominal_srate=500", property("nominal_srate", "500")),
            ("type='EEG'", predicate("type='EEG'")),
            (
                "type='EEG' and channel_count>8",
                predicate("type='EEG' and channel_count>8"),
            ),
            ("channel_count>8", predicate("channel_count>8")),
            (
                "starts-with(name,'Bio')",
                predicate("starts-with(name,'Bio')"),
            ),
            ("boolean(desc/cap)", predicate("boolean(desc/cap)")),
            ("colour=5", predicate("colour=5")),
            ("type = 'EEG'", predicate("type = 'EEG'")),
        ] {
            assert_eq!(Wanted::parse(text).unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn refused_streams_say_what_to_write() {
        for (text, part) in [
            ("", "empty"),
            (" ", "empty"),
            ("type='EEG", "name=type"),
            ("it's", "name=it's"),
            ("type==5", "predicate"),
            ("Type=EEG", "there is no field 'Type'"),
            ("manufacturer=Acme", "desc/manufacturer='Acme'"),
        ] {
            let failure = Wanted::parse(text).expect_err(text);
            assert!(matches!(failure, Failure::Usage(_)));
            assert!(failure.to_string().contains(part), "{failure}");
        }
        let failure = Wanted::parse("channel_count=many")
            .unwrap()
            .selector()
            .expect_err("number");
        assert!(failure.to_string().contains("not a number"), "{failure}");
    }

    #[test]
    fn queries_on_the_wire() {
        for (text, expected) in [
            ("Amp", "session_id='default' and name='Amp'"),
            ("name=it's", "session_id='default' and name=\"it's\""),
            (
                "nominal_srate=500.0",
                "session_id='default' and nominal_srate=500",
            ),
            (
                "type='a' or type='b'",
                "session_id='default' and (type='a' or type='b')",
            ),
        ] {
            let query = Wanted::parse(text)
                .unwrap()
                .selector()
                .unwrap()
                .to_query("default");
            assert_eq!(String::from_utf8(query.unwrap()).unwrap(), expected);
        }
        // Would leave the parentheses.
        assert!(predicate("name='a') or (name='b'").is_err());
    }

    #[test]
    fn pasts_have_units() {
        assert_eq!(past("all"), Ok(History::Oldest));
        assert_eq!(past("10s"), Ok(History::Seconds(10.0)));
        assert_eq!(past("1.5min"), Ok(History::Seconds(90.0)));
        assert_eq!(past("2h"), Ok(History::Seconds(7200.0)));
        assert_eq!(since("start"), Ok(History::Oldest));
        assert_eq!(since("10min"), Ok(History::Seconds(600.0)));
        assert!(since("all").is_err() && since("9999-01-01T00:00:00Z").is_err());
        let Ok(History::Seconds(secs)) = since("2026-11-22T09:31:56+01:00") else {
            panic!("a time");
        };
        let now = lsl_platform::clock::utc_now().as_secs_f64();
        assert!((now - secs - 1_795_336_316.0).abs() < 10.0, "{secs}");
        for text in ["", "s", "10 s", "10d", "-1s", "nan", "inf"] {
            assert!(past(text).is_err(), "{text}");
        }
    }

    #[test]
    fn numbers_of_seconds() {
        for (text, good) in [
            ("0", true),
            ("1.5", true),
            ("-1", false),
            ("nan", false),
            ("x", false),
        ] {
            assert_eq!(seconds(text).is_ok(), good, "{text}");
        }
    }

    #[test]
    fn fields_of_streams() {
        let field = |text: &str| Wanted::parse(text).unwrap().asked().field;
        let pair = |key: &str, value: &str| Some((key.to_owned(), value.to_owned()));
        assert_eq!(field("Amp"), pair("name", "Amp"));
        assert_eq!(field("type=eeg"), pair("type", "eeg"));
        assert_eq!(field("type='eeg'"), pair("type", "eeg"));
        assert_eq!(field("type='a' and name='b'"), None);
        assert_eq!(field("channel_count>8"), None);
    }
}
