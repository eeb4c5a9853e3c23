//! `lsl-secure.toml`: where it is looked for and what it says. Fails closed. Spec: LSS/1 §11.

use std::path::{Path, PathBuf};

use crate::Result;
use crate::policy::{Discovery, Policy};
use crate::trust::Date;

/// The `[security]` table, checked; paths are absolute.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Settings {
    /// Shown to people.
    pub name: String,
    /// As written; see [`Security::policy`](crate::Security::policy) for what holds today.
    pub policy: Policy,
    /// Last day of `migrate`.
    pub migrate_until: Option<Date>,
    /// The private key.
    pub key_file: Option<PathBuf>,
    /// The trust file.
    pub trusted_peers: Option<PathBuf>,
    /// Whether our own key is welcome from other machines.
    pub allow_shared_key: bool,
    /// Whether AES is never used.
    pub force_chacha20: bool,
    /// The passphrase of `key_file`.
    pub passphrase_file: Option<PathBuf>,
    /// The pre-shared key.
    pub psk_file: Option<PathBuf>,
    /// Whether recovery must end at the same key.
    pub pin_peer: bool,
    /// How much discovery shows.
    pub discovery: Discovery,
    /// Padding of records.
    pub pad_to: u16,
    /// How long small records wait for more.
    pub coalesce_us: u32,
    /// Probes slower than this are not used.
    pub max_rtt_ms: u32,
    /// Uncertainty above this is audited.
    pub time_warn_ms: u32,
    /// The audit log.
    pub audit_file: Option<PathBuf>,
    /// 0: for ever.
    pub audit_keep_days: u32,
    /// Source ids of legacy streams that an inlet may read in plaintext (`[[plaintext_allow]]`).
    pub plaintext_allow: Vec<String>,
}

/// What the search for a configuration found.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Found {
    /// No place exists: plaintext as ever. The places that were looked at.
    Nothing {
        /// For messages.
        searched: Vec<PathBuf>,
    },
    /// A file that could be read and is valid, the system's floor already applied.
    Settings {
        /// What it says.
        settings: Box<Settings>,
        /// Where it is.
        file: PathBuf,
    },
}

/// Looks in all places: `LSL_SECURE_CONFIG`, the user's, the system's. Spec: LSS/1 §11.
///
/// # Errors
/// [`Error::File`](crate::Error::File) for a place that exists and cannot be used: never fall back.
pub fn search() -> Result<Found> {
    unimplemented!()
}

/// Reads one file, named by the program or the user.
///
/// # Errors
/// As [`search`]; also if it does not exist.
pub fn read(_file: &Path) -> Result<Settings> {
    unimplemented!()
}
