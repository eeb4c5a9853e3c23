//! Reads `lsl-secure.toml`: the places of the file and its settings. Fails closed. Spec: LSS/1 §11.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use toml::Spanned;

use crate::files::line_at;
use crate::policy::{Discovery, Policy};
use crate::trust::{Date, checked_date, syntax_error, toml_string};
use crate::{Error, Result};

mod places;
#[cfg(test)]
mod tests;

pub(crate) use places::Places;

/// The `[security]` table, checked; paths are absolute.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Settings {
    /// Label of this machine; the host name unless the file sets one.
    pub name: String,
    /// Policy as written; see [`Security::policy`](crate::Security::policy) for the one in force
    /// today.
    pub policy: Policy,
    /// Last day (UTC) on which `migrate` still allows plaintext.
    pub migrate_until: Option<Date>,
    /// Path of the private key (PKCS#8 PEM).
    pub key_file: Option<PathBuf>,
    /// Path of the trust file, `trusted_peers.toml`.
    pub trusted_peers: Option<PathBuf>,
    /// Whether our own key is welcome from other machines.
    pub allow_shared_key: bool,
    /// Whether AES is never used.
    pub force_chacha20: bool,
    /// Path of the passphrase that opens `key_file`.
    pub passphrase_file: Option<PathBuf>,
    /// Path of the pre-shared key.
    pub psk_file: Option<PathBuf>,
    /// Whether recovery must end at the same key.
    pub pin_peer: bool,
    /// Information that our outlets show to resolvers without a session.
    pub discovery: Discovery,
    /// Multiple to which sent records are padded: 0, or a power of two 16..=4096.
    pub pad_to: u16,
    /// Time in µs that small records wait for more.
    pub coalesce_us: u32,
    /// Probes slower than this are not used.
    pub max_rtt_ms: u32,
    /// Uncertainty above this is audited.
    pub time_warn_ms: u32,
    /// Path of the audit log; `None` emits `tracing` events only.
    pub audit_file: Option<PathBuf>,
    /// Days that rotated audit files stay; 0 keeps them for ever.
    pub audit_keep_days: u32,
    /// Source ids of legacy streams that an inlet may read in plaintext (`[[plaintext_allow]]`).
    pub plaintext_allow: Vec<String>,
}

impl Settings {
    /// Creates the settings of a file that holds nothing but this policy; no path is set. `migrate`
    /// also needs [`migrate_until`](Self::migrate_until): without it, it acts as `required`.
    pub fn new(policy: Policy) -> Self {
        Self {
            name: String::from_utf8_lossy(&lsl_platform::process::hostname()).into_owned(),
            policy,
            migrate_until: None,
            key_file: None,
            trusted_peers: None,
            allow_shared_key: false,
            force_chacha20: false,
            passphrase_file: None,
            psk_file: None,
            pin_peer: false,
            discovery: Discovery::Open,
            pad_to: 0,
            coalesce_us: 0,
            max_rtt_ms: 128,
            time_warn_ms: 5,
            audit_file: None,
            audit_keep_days: 0,
            plaintext_allow: Vec::new(),
        }
    }

    /// Reads the text of a `lsl-secure.toml` at the absolute path `file`. The system's floor is not
    /// applied.
    pub(crate) fn parse(text: &str, file: &Path) -> Result<Self> {
        let raw: RawFile =
            toml::from_str(text).map_err(|error| syntax_error(text, file, &error))?;
        let Some(security) = raw.security else {
            return Err(Error::file(
                file,
                "has no [security] table; add the line [security], or make a file with: lsl key init",
            ));
        };
        let checked = security.check(file).and_then(|settings| {
            let allow = raw.plaintext_allow.into_iter().map(|allow| {
                if allow.source_id.get_ref().is_empty() {
                    let reason = "an empty source_id is no stream; write the one of the stream";
                    Err((allow.source_id.span().start, reason.to_owned()))
                } else {
                    Ok(allow.source_id.into_inner())
                }
            });
            Ok(Self {
                plaintext_allow: allow.collect::<Result<_, _>>()?,
                ..settings
            })
        });
        checked.map_err(|(offset, reason)| {
            Error::file(file, format!("line {}: {reason}", line_at(text, offset)))
        })
    }

    /// The last day of `migrate`, `None` if the policy is another one.
    pub(crate) fn last_day_of_migrate(&self) -> Option<Date> {
        self.migrate_until
            .filter(|_| self.policy == Policy::Migrate)
    }
}

/// Result of the search for a configuration.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Found {
    /// No place exists, so that streams stay in plaintext.
    Nothing {
        /// Places that were looked at, for messages.
        searched: Vec<PathBuf>,
    },
    /// A file that could be read and is valid, the system's floor already applied.
    Settings {
        /// Checked settings of the file.
        settings: Box<Settings>,
        /// Absolute path of the file.
        file: PathBuf,
    },
}

/// Looks in all places: `LSL_SECURE_CONFIG`, the user's, the system's. Spec: LSS/1 §11.
///
/// # Errors
/// [`Error::File`] for a place that exists and cannot be used: never fall back.
pub fn search() -> Result<Found> {
    Places::of_this_process().search()
}

/// Reads one file, named by the program or the user. The system's floor is applied.
///
/// # Errors
/// As [`search`]; also if it does not exist.
pub fn read(file: &Path) -> Result<Settings> {
    Places::of_this_process().read(file)
}

/// The directory in which `lsl key init` puts a user's files: `lsl_api` in the home directory.
/// `None` if this user has no home.
pub fn user_directory() -> Option<PathBuf> {
    let file = Places::of_this_process().user_file()?;
    file.parent().map(Path::to_owned)
}

/// The directory in which `lsl key init --system` puts its files.
pub fn system_directory() -> &'static Path {
    lsl_platform::directories::system()
}

/// A commented `lsl-secure.toml` with every key, policy `required`, for a device called `name`.
pub fn sample(name: &str) -> String {
    SAMPLE.replacen("\"NAME\"", &toml_string(name), 1)
}

const SAMPLE: &str = include_str!("config/sample.toml");

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawFile {
    security: Option<RawSecurity>,
    #[serde(default)]
    plaintext_allow: Vec<RawAllow>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawAllow {
    source_id: Spanned<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawSecurity {
    name: Option<Spanned<String>>,
    policy: Option<Spanned<String>>,
    migrate_until: Option<Spanned<toml::Value>>,
    key_file: Option<String>,
    trusted_peers: Option<String>,
    #[serde(default)]
    allow_shared_key: bool,
    #[serde(default)]
    force_chacha20: bool,
    passphrase_file: Option<String>,
    psk_file: Option<String>,
    #[serde(default)]
    pin_peer: bool,
    discovery: Option<Spanned<String>>,
    pad_to: Option<Spanned<u16>>,
    coalesce_us: Option<Spanned<u32>>,
    max_rtt_ms: Option<Spanned<u32>>,
    time_warn_ms: Option<u32>,
    audit_file: Option<String>,
    audit_keep_days: Option<u32>,
}

impl RawSecurity {
    /// The settings, or where and why not.
    fn check(self, file: &Path) -> Result<Settings, (usize, String)> {
        let wrong = |span: std::ops::Range<usize>, reason: String| Err((span.start, reason));
        // A configuration that does not say so means encryption (§4.3).
        let mut settings = Settings::new(Policy::Required);
        if let Some(policy) = &self.policy {
            settings.policy = match policy.get_ref().as_str() {
                "off" => Policy::Off,
                "migrate" => Policy::Migrate,
                "required" => Policy::Required,
                other => {
                    let reason = format!(
                        "policy {other:?} is unknown; write \"required\", \"migrate\" or \"off\""
                    );
                    return wrong(policy.span(), reason);
                }
            };
            if settings.policy == Policy::Migrate && self.migrate_until.is_none() {
                let reason = "policy \"migrate\" needs its last day; add migrate_until = \
                              \"2027-06-30\" (your day)";
                return wrong(policy.span(), reason.to_owned());
            }
        }
        if let Some(day) = &self.migrate_until {
            settings.migrate_until = Some(checked_date("migrate_until", day)?);
        }
        if let Some(name) = self.name {
            if name.get_ref().is_empty() || name.get_ref().chars().any(char::is_control) {
                let reason = "name is empty or has control characters; write another one";
                return wrong(name.span(), reason.to_owned());
            }
            settings.name = name.into_inner();
        }
        if let Some(discovery) = self.discovery {
            settings.discovery = match discovery.get_ref().as_str() {
                "open" => Discovery::Open,
                "minimal" => Discovery::Minimal,
                other => {
                    let reason =
                        format!("discovery {other:?} is unknown; write \"open\" or \"minimal\"");
                    return wrong(discovery.span(), reason);
                }
            };
        }
        if let Some(pad_to) = self.pad_to {
            let bytes = *pad_to.get_ref();
            if bytes != 0 && !((16..=4096).contains(&bytes) && bytes.is_power_of_two()) {
                let reason = "pad_to is 0 (no padding) or a power of two from 16 to 4096";
                return wrong(pad_to.span(), reason.to_owned());
            }
            settings.pad_to = bytes;
        }
        if let Some(coalesce) = self.coalesce_us {
            if *coalesce.get_ref() > MAX_COALESCE_US {
                let reason = format!("coalesce_us is at most {MAX_COALESCE_US} (1 s); write less");
                return wrong(coalesce.span(), reason);
            }
            settings.coalesce_us = *coalesce.get_ref();
        }
        if let Some(rtt) = self.max_rtt_ms {
            if *rtt.get_ref() == 0 {
                let reason = "max_rtt_ms of 0 refuses every time probe; write 128, in labs 5 to 10";
                return wrong(rtt.span(), reason.to_owned());
            }
            settings.max_rtt_ms = *rtt.get_ref();
        }
        // Relative paths start where the file is, never in the current directory.
        let directory = file.parent().unwrap_or_else(|| Path::new("/"));
        let path = |text: Option<String>, default: &str| {
            let text = text.unwrap_or_else(|| default.to_owned());
            (!text.is_empty()).then(|| directory.join(text))
        };
        Ok(Settings {
            key_file: path(self.key_file, "device_key.pem"),
            trusted_peers: path(self.trusted_peers, "trusted_peers.toml"),
            passphrase_file: path(self.passphrase_file, ""),
            psk_file: path(self.psk_file, ""),
            audit_file: path(self.audit_file, ""),
            allow_shared_key: self.allow_shared_key,
            force_chacha20: self.force_chacha20,
            pin_peer: self.pin_peer,
            time_warn_ms: self.time_warn_ms.unwrap_or(settings.time_warn_ms),
            audit_keep_days: self.audit_keep_days.unwrap_or(0),
            ..settings
        })
    }
}

const MAX_COALESCE_US: u32 = 1_000_000;
