//! Fields of the file as written, and what they may be.

use std::collections::{BTreeMap, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::path::PathBuf;
use std::str::FromStr;

use lsl_proto::query::{ParseError, Query};
use lsl_secure::Fingerprint;
use lsl_secure::trust::TrustList;
use serde::Deserialize;
use toml::Spanned;

use super::{Config, ConfigError, DEFAULT_PORT, EngineConfig, HistoryConfig, Layout, RelayLimits};
use crate::engine::Address;
use crate::rules::{From, Predicate, Readers, Rule, Rules};

/// Offset of a mistake, and its text.
type Mistake = (usize, String);

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct RawFile {
    relay: RawRelay,
    local: RawLocal,
    history: Option<RawHistory>,
    engine: Option<RawEngine>,
    metrics: RawMetrics,
    limits: RawLimits,
    groups: BTreeMap<String, Vec<Spanned<String>>>,
    rule: Vec<RawRule>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct RawRelay {
    listen: Option<Vec<Spanned<String>>>,
    connect: Vec<Spanned<String>>,
    publish: Option<Spanned<String>>,
    import: Option<Spanned<String>>,
    max_hops: Option<Spanned<usize>>,
    linger_s: Option<Spanned<f64>>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct RawLocal {
    reoffer: Option<bool>,
    between: Vec<Spanned<String>>,
    plaintext: Option<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawHistory {
    dir: Spanned<String>,
    max_age: Option<Spanned<String>>,
    max_size: Option<Spanned<String>>,
    min_free: Option<Spanned<String>>,
    #[serde(default)]
    recipients: Vec<String>,
    identity: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawEngine {
    url: Spanned<String>,
    layout: Option<Spanned<String>>,
    user: Option<String>,
    password_file: Option<String>,
    ca_file: Option<String>,
    max_age: Option<Spanned<String>>,
    max_size: Option<Spanned<String>>,
    #[serde(default)]
    min_replicas: u32,
    flush_ms: Option<u32>,
    #[serde(default)]
    river_trim: bool,
    #[serde(default)]
    river_rate: f64,
    river: Option<Spanned<String>>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct RawMetrics {
    listen: Option<Spanned<String>>,
    labels: bool,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct RawLimits {
    links: Option<usize>,
    clients: Option<usize>,
    streams: Option<Spanned<u32>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRule {
    #[serde(rename = "match")]
    query: Option<Spanned<String>>,
    from: Option<Spanned<String>>,
    readers: Option<Vec<Spanned<String>>>,
    history: Option<bool>,
    engine: Option<bool>,
    reoffer: Option<bool>,
    #[serde(default)]
    seal: Vec<Spanned<String>>,
}

pub(super) fn parse(text: &str, trust: &TrustList) -> Result<Config, ConfigError> {
    let raw: RawFile = toml::from_str(text).map_err(|error| {
        let offset = error.span().map_or(0, |span: Range<usize>| span.start);
        at(text, (offset, error.message().replace('\n', ", ")))
    })?;
    raw.check(trust).map_err(|mistake| at(text, mistake))
}

fn at(text: &str, (offset, reason): Mistake) -> ConfigError {
    let before = text.get(..offset).unwrap_or_default();
    let line = 1 + before.matches('\n').count();
    ConfigError { line, reason }
}

impl RawFile {
    fn check(self, trust: &TrustList) -> Result<Config, Mistake> {
        let names = Names {
            groups: &self.groups,
            trust,
        };
        // A group that nobody uses is checked too.
        for member in self.groups.values().flatten() {
            names.key(member)?;
        }
        let rules = self.rule.into_iter().map(|rule| rule.check(&names));
        let RawRelay {
            listen,
            connect,
            publish,
            import,
            max_hops,
            linger_s,
        } = self.relay;
        let listen = match listen {
            Some(addresses) => list(&addresses, "HOST:PORT with a numeric address")?,
            None => vec![
                (std::net::Ipv4Addr::UNSPECIFIED, DEFAULT_PORT).into(),
                (std::net::Ipv6Addr::UNSPECIFIED, DEFAULT_PORT).into(),
            ],
        };
        let connect = connect.iter().map(target).collect::<Result<_, _>>()?;
        let max_hops = within(max_hops, 4, 1..=16, "max_hops")?;
        let linger = linger_s.map_or(Ok(10.0), |it| {
            let secs = *it.get_ref();
            let is_right = (0.0..=3600.0).contains(&secs);
            is_right.then_some(secs).ok_or_else(|| {
                let reason = "linger_s is a number of seconds from 0 to 3600";
                (it.span().start, reason.to_owned())
            })
        })?;
        let streams = within(self.limits.streams, 4096, 1..=65_536, "streams")?;
        Ok(Config {
            rules: Rules(rules.collect::<Result<_, _>>()?),
            listen,
            connect,
            publish: extent(publish)?,
            import: extent(import)?,
            max_hops,
            linger_secs: linger,
            reoffer: self.local.reoffer.unwrap_or(true),
            between: list::<IpAddr>(&self.local.between, "an IP address of this machine")?,
            plaintext: query(self.local.plaintext)?,
            history: self.history.map(RawHistory::check).transpose()?,
            engine: self.engine.map(RawEngine::check).transpose()?,
            metrics: match self.metrics.listen {
                Some(text) if !text.get_ref().is_empty() => Some(one::<SocketAddr>(
                    &text,
                    "HOST:PORT with a numeric address",
                )?),
                _ => None,
            },
            metrics_labels: self.metrics.labels,
            limits: RelayLimits {
                links: self.limits.links.unwrap_or(64),
                clients: self.limits.clients.unwrap_or(1024),
                streams,
            },
        })
    }
}

impl RawHistory {
    fn check(self) -> Result<HistoryConfig, Mistake> {
        if self.dir.get_ref().is_empty() {
            return Err((self.dir.span().start, "dir names no folder".to_owned()));
        }
        let usual = HistoryConfig::at(self.dir.into_inner().into());
        Ok(HistoryConfig {
            dir: usual.dir,
            max_age_secs: age(self.max_age, usual.max_age_secs)?,
            max_bytes: size(self.max_size, usual.max_bytes)?,
            min_free_bytes: size(self.min_free, usual.min_free_bytes)?,
            recipients: self.recipients,
            identity: path(self.identity),
        })
    }
}

impl RawEngine {
    fn check(self) -> Result<EngineConfig, Mistake> {
        let wrong = |at: usize| move |reason| (at, reason);
        let address = Address::parse(self.url.get_ref()).map_err(wrong(self.url.span().start))?;
        let base = EngineConfig::new(address);
        let layout = self.layout.map(|layout| {
            let layout_of = |text: &String| text.parse::<Layout>();
            layout_of(layout.get_ref()).map_err(wrong(layout.span().start))
        });
        let river = self.river.map(|river| {
            let pattern = river.get_ref().parse();
            pattern.map_err(wrong(river.span().start))
        });
        Ok(EngineConfig {
            layout: layout.transpose()?.unwrap_or(base.layout),
            user: self.user.filter(|user| !user.is_empty()),
            password_file: path(self.password_file),
            ca_file: path(self.ca_file),
            max_age_secs: age(self.max_age, base.max_age_secs)?,
            max_bytes: size(self.max_size, base.max_bytes)?,
            min_replicas: self.min_replicas,
            flush_ms: self.flush_ms.unwrap_or(base.flush_ms),
            river_trim: self.river_trim,
            river_rate: self.river_rate,
            river: river.transpose()?,
            ..base
        })
    }
}

impl RawRule {
    fn check(self, names: &Names<'_>) -> Result<Rule, Mistake> {
        if let Some(seal) = self.seal.first() {
            let reason = "this version cannot seal; remove seal, or the stream goes out unsealed";
            return Err((seal.span().start, reason.to_owned()));
        }
        let base = Rule::default();
        Ok(Rule {
            predicate: parse_some(self.query, Predicate::parse)?,
            from: match self.from {
                None => From::Anywhere,
                Some(from) => match from.get_ref().as_str() {
                    "local" => From::Local,
                    "links" => From::Links,
                    _ => From::Relay(names.key(&from)?),
                },
            },
            readers: match self.readers {
                None => base.readers,
                Some(readers) => names.readers(&readers)?,
            },
            history: self.history.unwrap_or(base.history),
            engine: self.engine.unwrap_or(base.engine),
            reoffer: self.reoffer.unwrap_or(base.reoffer),
        })
    }
}

/// Names that rules may use.
struct Names<'a> {
    groups: &'a BTreeMap<String, Vec<Spanned<String>>>,
    trust: &'a TrustList,
}

impl Names<'_> {
    fn readers(&self, readers: &[Spanned<String>]) -> Result<Readers, Mistake> {
        let mut keys = HashSet::new();
        let mut local = false;
        for reader in readers {
            if reader.get_ref() == "local" {
                local = true;
            } else if let Some(members) = self.groups.get(reader.get_ref()) {
                for member in members {
                    keys.insert(self.key(member)?);
                }
            } else {
                keys.insert(self.key(reader)?);
            }
        }
        Ok(Readers::Only { keys, local })
    }

    /// Returns the key that a name of the trust file, or a fingerprint in it, stands for.
    fn key(&self, name: &Spanned<String>) -> Result<Fingerprint, Mistake> {
        let text = name.get_ref();
        let is_named = |key: &Fingerprint, label: &String| {
            label == text || text.starts_with("SHA256:") && key.to_string() == *text
        };
        let peers = self.trust.peers().iter();
        let keys = peers.map(|peer| (peer.key.fingerprint(), &peer.name));
        let mut keys = keys.filter(|(key, label)| is_named(key, label));
        let wrong = |reason: String| (name.span().start, reason);
        let Some((key, _)) = keys.next() else {
            let reason = format!("{text:?} is no trusted peer; see: lsl trust list");
            return Err(wrong(reason));
        };
        if keys.next().is_some() {
            let reason = format!("{text:?} names several trusted peers; write the SHA256: of one");
            return Err(wrong(reason));
        }
        Ok(key)
    }
}

/// Parses a predicate; none if it is left out or blank.
fn query(text: Option<Spanned<String>>) -> Result<Option<Query>, Mistake> {
    parse_some(text, |text| Query::parse(text))
}

fn parse_some<T>(
    text: Option<Spanned<String>>,
    parse: impl FnOnce(&str) -> Result<T, ParseError>,
) -> Result<Option<T>, Mistake> {
    let Some(text) = text.filter(|text| !text.get_ref().trim().is_empty()) else {
        return Ok(None);
    };
    let parsed = parse(text.get_ref());
    let wrong = |error: ParseError| (text.span().start, error.to_string());
    parsed.map(Some).map_err(wrong)
}

/// Parses what is published or imported; none if it is left out. A blank one could mean all or nothing.
fn extent(text: Option<Spanned<String>>) -> Result<Option<Query>, Mistake> {
    let blank = text
        .as_ref()
        .filter(|text| text.get_ref().trim().is_empty());
    match blank.map(|text| text.span().start) {
        Some(at) => Err((
            at,
            "write \"*\" for every stream, \"false()\" for none".to_owned(),
        )),
        None => query(text),
    }
}

fn target(text: &Spanned<String>) -> Result<String, Mistake> {
    super::target(text.get_ref()).map_err(|reason| (text.span().start, reason))
}

fn list<T: FromStr>(texts: &[Spanned<String>], what: &str) -> Result<Vec<T>, Mistake> {
    texts.iter().map(|text| one(text, what)).collect()
}

fn one<T: FromStr>(text: &Spanned<String>, what: &str) -> Result<T, Mistake> {
    let wrong = |_| {
        (
            text.span().start,
            format!("{:?} is not {what}", text.get_ref()),
        )
    };
    text.get_ref().parse().map_err(wrong)
}

fn within<T: Copy + PartialOrd + std::fmt::Display>(
    value: Option<Spanned<T>>,
    default: T,
    range: std::ops::RangeInclusive<T>,
    name: &str,
) -> Result<T, Mistake> {
    let Some(value) = value else {
        return Ok(default);
    };
    if range.contains(value.get_ref()) {
        return Ok(*value.get_ref());
    }
    let reason = format!(
        "{name} is a number from {} to {}",
        range.start(),
        range.end()
    );
    Err((value.span().start, reason))
}

fn path(text: Option<String>) -> Option<PathBuf> {
    text.filter(|text| !text.is_empty()).map(PathBuf::from)
}

/// Parses `10min` to seconds.
fn age(text: Option<Spanned<String>>, default: f64) -> Result<f64, Mistake> {
    scaled(text, default, super::age)
}

/// Parses `20GiB` to bytes.
fn size(text: Option<Spanned<String>>, default: u64) -> Result<u64, Mistake> {
    scaled(text, default, super::size)
}

/// Parses a number with a unit.
fn scaled<T>(
    text: Option<Spanned<String>>,
    default: T,
    parse: impl Fn(&str) -> Result<T, String>,
) -> Result<T, Mistake> {
    let Some(text) = text else {
        return Ok(default);
    };
    parse(text.get_ref()).map_err(|reason| (text.span().start, reason))
}
