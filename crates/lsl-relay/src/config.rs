//! Reads `lsl-relay.toml`. Unknown fields are errors, and every error names its line. Spec: relay §10, §13.

mod raw;
#[cfg(test)]
mod tests;

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

use lsl_proto::query::Query;
use lsl_secure::trust::TrustList;

use crate::engine::Address;
use crate::engine::river::Pattern;
use crate::rules::Rules;

/// Port of a relay unless another one is named.
pub const DEFAULT_PORT: u16 = 16_570;

/// Checked settings. The command line's options are put in their place after reading.
#[derive(Debug, Clone)]
pub struct Config {
    /// Addresses of the port.
    pub listen: Vec<SocketAddr>,
    /// Relays to dial, as `HOST:PORT`.
    pub connect: Vec<String>,
    /// Streams that links may see, within the rules; `None`: all.
    pub publish: Option<Query>,
    /// Streams that are taken from links; `None`: all.
    pub import: Option<Query>,
    /// Relays on the longest path that is accepted.
    pub max_hops: usize,
    /// Time in seconds for which a stream without readers is read on.
    pub linger_secs: f64,
    /// Whether streams are offered on faces.
    pub reoffer: bool,
    /// Addresses of the faces; none: one face, all interfaces.
    pub between: Vec<IpAddr>,
    /// Streams whose re-offered outlets stay plaintext under `required`.
    pub plaintext: Option<Query>,
    /// Settings of the history; `None`: nothing is kept.
    pub history: Option<HistoryConfig>,
    /// Settings of the engine; `None`: there is none.
    pub engine: Option<EngineConfig>,
    /// Address that metrics are served at.
    pub metrics: Option<SocketAddr>,
    /// Whether metrics name streams.
    pub metrics_labels: bool,
    /// Limits of numbers.
    pub limits: RelayLimits,
    /// Who may read what.
    pub rules: Rules,
}

/// Limits on what peers may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RelayLimits {
    /// Links at a time.
    pub links: usize,
    /// Client connections at a time.
    pub clients: usize,
    /// Streams, and substreams of one link.
    pub streams: u32,
}

/// The `[history]` table.
#[derive(Debug, Clone, PartialEq)]
pub struct HistoryConfig {
    /// Folder of the segments.
    pub dir: PathBuf,
    /// Age in seconds beyond which segments go.
    pub max_age_secs: f64,
    /// Bytes of all segments.
    pub max_bytes: u64,
    /// Bytes that stay free on the disk.
    pub min_free_bytes: u64,
    /// Recipients that segments are encrypted for.
    pub recipients: Vec<String>,
    /// File of the identity that opens them.
    pub identity: Option<PathBuf>,
}

/// Keys and values of an engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// Chunks of samples.
    Packed,
    /// As River reads and writes.
    River,
}

/// The `[engine]` table.
#[derive(Debug, Clone, PartialEq)]
pub struct EngineConfig {
    /// Address of the server.
    pub address: Address,
    /// Keys and values.
    pub layout: Layout,
    /// Name of the user.
    pub user: Option<String>,
    /// File of the password.
    pub password_file: Option<PathBuf>,
    /// File of the certificates that the server is checked with.
    pub ca_file: Option<PathBuf>,
    /// Age in seconds beyond which samples go.
    pub max_age_secs: f64,
    /// Bytes that are kept.
    pub max_bytes: u64,
    /// Replicas that must have what was appended.
    pub min_replicas: u32,
    /// Time in ms for which samples are gathered.
    pub flush_ms: u32,
    /// Whether old keys of River's layout are removed.
    pub river_trim: bool,
    /// Rate in samples per second of streams that River made.
    pub river_rate: f64,
    /// Streams of River that are offered; `None`: none.
    pub river: Option<Pattern>,
}

impl EngineConfig {
    /// Creates the settings that hold where nothing else is said.
    pub fn new(address: Address) -> Self {
        Self {
            address,
            layout: Layout::Packed,
            user: None,
            password_file: None,
            ca_file: None,
            max_age_secs: 3600.0,
            max_bytes: 4 << 30,
            min_replicas: 0,
            flush_ms: 8,
            river_trim: false,
            river_rate: 0.0,
            river: None,
        }
    }
}

impl FromStr for Layout {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "packed" => Ok(Self::Packed),
            "river" => Ok(Self::River),
            _ => Err("layout is \"packed\" or \"river\"".to_owned()),
        }
    }
}

/// Mistake in the file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {reason}")]
pub struct ConfigError {
    /// Line, counted from 1.
    pub line: usize,
    /// Mistake and remedy.
    pub reason: String,
}

impl Config {
    /// Reads the text of the file. `trust` resolves names of readers and relays.
    ///
    /// # Errors
    /// [`ConfigError`] for the first mistake found.
    pub fn parse(text: &str, trust: &TrustList) -> Result<Self, ConfigError> {
        raw::parse(text, trust)
    }
}

impl HistoryConfig {
    /// Returns the usual settings of a history in this folder.
    pub fn at(dir: PathBuf) -> Self {
        Self {
            dir,
            max_age_secs: 600.0,
            max_bytes: 20 << 30,
            min_free_bytes: 1 << 30,
            recipients: Vec::new(),
            identity: None,
        }
    }
}

/// Parses `10min` to seconds.
///
/// # Errors
/// A text that says what is expected.
pub fn age(text: &str) -> Result<f64, String> {
    const UNITS: [(&str, u64); 4] = [("min", 60), ("s", 1), ("h", 3600), ("d", 86_400)];
    let secs = scaled(text, &UNITS, "a time such as 30s, 10min, 1h or 2d")?;
    Ok(f64::from(u32::try_from(secs).unwrap_or(u32::MAX)))
}

/// Parses `20GiB` to bytes.
///
/// # Errors
/// A text that says what is expected.
pub fn size(text: &str) -> Result<u64, String> {
    const UNITS: [(&str, u64); 4] = [
        ("KiB", 1 << 10),
        ("MiB", 1 << 20),
        ("GiB", 1 << 30),
        ("TiB", 1 << 40),
    ];
    scaled(text, &UNITS, "a size such as 512MiB, 20GiB or 1TiB")
}

/// Parses a whole number above 0 with a unit.
fn scaled(text: &str, units: &[(&str, u64)], what: &str) -> Result<u64, String> {
    let value = units.iter().find_map(|(unit, scale)| {
        let number: u64 = text.strip_suffix(unit)?.trim_end().parse().ok()?;
        number.checked_mul(*scale).filter(|value| *value > 0)
    });
    value.ok_or_else(|| format!("{text:?} is not {what}"))
}

/// Returns a relay that people named as `HOST:PORT`.
///
/// # Errors
/// A text that says what is expected.
pub fn target(host: &str) -> Result<String, String> {
    let after_address = host.rsplit_once(']').map_or(host, |(_, rest)| rest);
    let is_bare_v6 = host.parse::<std::net::Ipv6Addr>().is_ok();
    let port = if is_bare_v6 {
        None
    } else {
        after_address.rsplit_once(':')
    };
    let is_port = port.is_none_or(|(_, port)| port.parse::<u16>().is_ok_and(|port| port != 0));
    let is_blank = host.is_empty()
        || !is_bare_v6 && host.starts_with(':')
        || host.contains(char::is_whitespace);
    if is_blank || !is_port {
        return Err("a relay is HOST or HOST:PORT".to_owned());
    }
    Ok(match port {
        Some(_) => host.to_owned(),
        None if is_bare_v6 => format!("[{host}]:{DEFAULT_PORT}"),
        None => format!("{host}:{DEFAULT_PORT}"),
    })
}
