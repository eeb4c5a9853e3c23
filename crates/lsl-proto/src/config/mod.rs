//! The effective configuration: typed values, their origins, and the targets of queries derived
//! from them. All values go through the table in `keys`; only `load::Files` reads files or the
//! environment. Spec: lsl-protocol §3.3, §12.

mod encryption;
pub mod globs;
pub mod ini;
mod keys;
mod load;
mod network;
pub mod ports;
mod sections;
mod targets;
mod values;

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

pub use self::encryption::{
    EncryptionRequest, encryption_request_in_home, without_encryption_request,
};
pub use self::keys::{KEYS, Key, sample_file};
pub use self::load::{
    Diagnostic, Files, Loaded, Overrides, Severity, Source, home_folder, load, load_text,
};
pub use self::network::Ipv4Network;
use self::sections::Values;
pub use self::sections::{
    HostPort, InterfaceAddress, Ipv6Mode, KnownPeer, Lab, Log, Multicast, MulticastGroup, Ports,
    ResolveScope, Tuning,
};
pub use self::targets::{MAX_RELAYS, RELAY_PORT, Target, TargetKind};
use crate::{Error, Result};

/// All settings of `lsl_api.cfg`, complete with defaults.
///
/// ```
/// # use lsl_proto as lsl_core;
/// use lsl_core::config::Config;
///
/// let mut config = Config::default();
/// config.set("ports.BasePort", "17000")?;
/// config.set_session_id("lab 3")?;
/// assert_eq!(config.ports().base_port, 17000);
/// # Ok::<(), lsl_core::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    values: Values,
    bind: Bind,
    /// By index in `KEYS`; an absent key has its default.
    origins: BTreeMap<usize, Origin>,
    encryption_request: Option<Box<EncryptionRequest>>,
    /// The file that it was read from, or in which it would be looked for.
    file: Option<PathBuf>,
}

/// Interfaces that sockets may use. Not a key of the file: programs choose it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Bind {
    /// The interfaces that the file selects.
    #[default]
    All,
    /// Every socket is bound to a loopback address; nothing is sent or heard outside this host.
    Loopback,
    /// Sockets are bound to this address of the host, and whoever is not in its subnet is not heard: one face of a
    /// relay. Spec: relay §2.
    Address(IpAddr),
}

/// Origin of an effective value.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Origin {
    /// Built in, set by no source.
    Default,
    /// Read from a line of a file.
    File {
        /// Path under which it was read.
        path: PathBuf,
        /// Line number, counted from 1.
        line: usize,
    },
    /// Read from text that the program supplied instead of a file.
    Content {
        /// Line number, counted from 1.
        line: usize,
    },
    /// Set by the program through [`Config`].
    Api,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
            Self::Content { line } => write!(f, "configuration content, line {line}"),
            Self::Api => f.write_str("program"),
        }
    }
}

/// Key with its effective value: one row of `lsl config show`.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// Full name of the key, as `section.name`.
    pub key: String,
    /// Effective value, as it would be written in a file.
    pub value: String,
    /// Source of the value, if it was set.
    pub origin: Origin,
    /// Explanation for people, in one sentence.
    pub doc: &'static str,
    /// Value that holds without any configuration.
    pub default: &'static str,
}

impl Config {
    /// Returns the built-in values with every socket kept on the loopback interface.
    pub fn loopback() -> Self {
        let mut config = Self::default();
        config.set_bind(Bind::Loopback);
        config
    }

    /// Reads configuration text; keys it does not name keep their defaults. Oddities that liblsl
    /// accepts are accepted silently; [`load_text`] reports them.
    ///
    /// # Errors
    /// `Error::Config` names the line for which liblsl would reject the whole text.
    pub fn from_text(text: &str) -> Result<Self> {
        match load_text(text, &Source::Content) {
            Ok((config, _)) => Ok(config),
            Err(diagnostic) => Err(Error::Config(diagnostic.to_string())),
        }
    }

    /// Returns the values of section `[ports]`.
    pub const fn ports(&self) -> &Ports {
        &self.values.ports
    }

    /// Returns the values of section `[multicast]`.
    pub const fn multicast(&self) -> &Multicast {
        &self.values.multicast
    }

    /// Returns the values of section `[lab]`.
    pub const fn lab(&self) -> &Lab {
        &self.values.lab
    }

    /// Returns the values of section `[tuning]`.
    pub const fn tuning(&self) -> &Tuning {
        &self.values.tuning
    }

    /// Returns the values of section `[log]`.
    pub const fn log(&self) -> &Log {
        &self.values.log
    }

    /// Returns the request for encryption in the way of another library, if there is one. Without a
    /// `lsl-secure.toml` nothing streams then. Spec: audit §5.
    pub fn encryption_request(&self) -> Option<&EncryptionRequest> {
        self.encryption_request.as_deref()
    }

    /// Returns the interfaces that sockets may use.
    pub const fn bind(&self) -> Bind {
        self.bind
    }

    /// Chooses the interfaces that sockets may use.
    pub fn set_bind(&mut self, bind: Bind) {
        self.bind = bind;
    }

    /// Sets any key from text, as it would be written in a file. Unlike a file, a program gets an
    /// error for every oddity that liblsl tolerates.
    ///
    /// # Errors
    /// `Error::Argument` if `key` (`section.name`) is unknown or `value` is not of its kind; then
    /// nothing has changed.
    pub fn set(&mut self, key: &str, value: &str) -> Result<()> {
        let mut changed = self.clone();
        let mut problems = Vec::new();
        let applied = changed.apply(key, value, Origin::Api, &mut problems);
        let reason = match applied {
            Ok(true) if problems.is_empty() => {
                *self = changed;
                return Ok(());
            }
            Ok(true) => problems.join("; "),
            Ok(false) => {
                "there is no such key".to_owned()
                    + &keys::suggest(key)
                        .map(|near| format!(", did you mean '{}'?", near.path()))
                        .unwrap_or_default()
            }
            Err(reason) => reason,
        };
        Err(Error::Argument(format!(
            "configuration key '{key}': {reason}"
        )))
    }

    /// Sets `lab.SessionID`; only streams of this session are visible.
    ///
    /// # Errors
    /// `Error::Argument` if it contains control characters: it is sent in header lines.
    pub fn set_session_id(&mut self, session_id: &str) -> Result<()> {
        if session_id.chars().any(char::is_control) {
            return Err(Error::Argument(
                "a session id is one line of text".to_owned(),
            ));
        }
        session_id.clone_into(&mut self.values.lab.session_id);
        self.mark("lab.SessionID");
        Ok(())
    }

    /// Sets `lab.KnownPeers` from texts such as `host`, `host:port`, `::1`, `[::1]:port`.
    ///
    /// # Errors
    /// `Error::Argument` names the first text that is none of these.
    pub fn set_known_peers(&mut self, peers: &[&str]) -> Result<()> {
        let read = |peer: &&str| <KnownPeer as values::Item>::read(ini::trim(peer));
        self.values.lab.known_peers = peers
            .iter()
            .map(read)
            .collect::<Result<_, _>>()
            .map_err(Error::Argument)?;
        self.mark("lab.KnownPeers");
        Ok(())
    }

    /// Sets `multicast.ResolveScope`, the reach of queries.
    pub fn set_resolve_scope(&mut self, scope: ResolveScope) {
        self.values.multicast.resolve_scope = scope;
        self.mark("multicast.ResolveScope");
    }

    /// Sets `ports.BasePort` and `ports.PortRange`, the ports tried.
    pub fn set_ports(&mut self, base_port: u16, port_range: u16) {
        self.values.ports.base_port = base_port;
        self.values.ports.port_range = port_range;
        self.mark("ports.BasePort");
        self.mark("ports.PortRange");
    }

    /// Sets `ports.MulticastPort`, where outlets hear queries.
    pub fn set_multicast_port(&mut self, port: u16) {
        self.values.ports.multicast_port = port;
        self.mark("ports.MulticastPort");
    }

    /// Sets `ports.IPv6`, the address families in use.
    pub fn set_ipv6(&mut self, mode: Ipv6Mode) {
        self.values.ports.ipv6 = mode;
        self.mark("ports.IPv6");
    }

    /// Returns the file from which `lab.KnownPeers` is read again while the program runs, see
    /// [`reread_peers`](Self::reread_peers): the one in use or, without any, that of the user. `None` if the program
    /// chose the peers itself.
    pub fn peers_file(&self) -> Option<&Path> {
        let (index, _) = keys::find("lab.KnownPeers")?;
        let is_chosen = matches!(self.origins.get(&index), Some(Origin::Api));
        self.file.as_deref().filter(|_| !is_chosen)
    }

    /// Takes `lab.KnownPeers` from the present `text` of [`peers_file`](Self::peers_file), and nothing else.
    ///
    /// # Errors
    /// The first mistake that concerns them. Nothing has changed then.
    pub fn reread_peers(&mut self, text: &str) -> Result<(), Diagnostic> {
        let source = Source::Api(self.file.clone().unwrap_or_default());
        let (fresh, remarks) = load_text(text, &source)?;
        let is_mistake = |remark: &Diagnostic| {
            remark.severity >= Severity::Warning && remark.text.starts_with("lab.KnownPeers")
        };
        if let Some(mistake) = remarks.into_iter().find(is_mistake) {
            return Err(mistake);
        }
        self.values.lab.known_peers = fresh.values.lab.known_peers;
        Ok(())
    }

    /// Returns every key with its effective value, in the order of the sample file.
    pub fn entries(&self) -> Vec<Entry> {
        KEYS.iter()
            .enumerate()
            .map(|(index, key)| Entry {
                key: key.path(),
                value: (key.show)(&self.values),
                origin: self.origins.get(&index).cloned().unwrap_or(Origin::Default),
                doc: key.doc,
                default: key.default,
            })
            .collect()
    }

    /// Reads one value. Returns false for an unknown key; an error rejects the whole file.
    fn apply(
        &mut self,
        path: &str,
        text: &str,
        origin: Origin,
        problems: &mut Vec<String>,
    ) -> Result<bool, String> {
        let Some((index, key)) = keys::find(path) else {
            return Ok(false);
        };
        (key.read)(&mut self.values, text, key.range, problems)?;
        // The one number whose range liblsl enforces by rejecting the file.
        let level = self.values.log.level;
        if !(-3..=9).contains(&level) {
            return Err(format!("{level} is outside -3 to 9"));
        }
        self.origins.insert(index, origin);
        Ok(true)
    }

    fn mark(&mut self, path: &str) {
        if let Some((index, _)) = keys::find(path) {
            self.origins.insert(index, Origin::Api);
        }
    }
}

impl Default for Config {
    /// Returns the built-in value of every key.
    fn default() -> Self {
        let mut values = Values::default();
        for key in KEYS {
            // A test reads every default; none has problems.
            let _ = (key.read)(&mut values, key.default, key.range, &mut Vec::new());
        }
        Self {
            values,
            bind: Bind::All,
            origins: BTreeMap::new(),
            encryption_request: None,
            file: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_by_text_is_strict_and_changes_nothing_on_error() {
        let mut config = Config::default();
        let before = config.clone();
        for (key, value, part) in [
            ("ports.BasePort", "abc", "not a decimal number"),
            ("ports.BasePort", "70000", "wraps"),
            ("ports.AllowRandomPorts", "true", "write 0 or 1"),
            ("ports.IPv6", "maybe", "none of"),
            ("lab.KnownPeers", "a, b", "a set is written"),
            ("multicast.ListenAddress", "here", "not an IP address"),
            ("tuning.TimeProbeCount", "0", "outside"),
            ("log.level", "10", "outside -3 to 9"),
            ("lab.SessionId", "x", "did you mean 'lab.SessionID'?"),
            ("nonsense", "x", "no such key"),
        ] {
            let error = config.set(key, value).expect_err(key).to_string();
            assert!(error.contains(part) && error.contains(key), "{error}");
            assert_eq!(config, before, "{key}");
        }
    }

    #[test]
    fn every_key_can_be_set_to_its_default_and_then_says_so() {
        let mut config = Config::default();
        for key in KEYS {
            config
                .set(&key.path(), key.default)
                .unwrap_or_else(|error| panic!("{error}"));
        }
        assert_eq!(config.values, Config::default().values);
        assert!(
            config
                .entries()
                .iter()
                .all(|e| e.origin == Origin::Api && e.value == e.default)
        );
    }

    #[test]
    fn typed_setters_change_value_and_origin() {
        let mut config = Config::default();
        config.set_session_id("s 1").unwrap();
        config.set_known_peers(&["a", " b:5 ", "[::1]:6"]).unwrap();
        config.set_resolve_scope(ResolveScope::Link);
        config.set_ports(17000, 4);
        config.set_multicast_port(17);
        config.set_ipv6(Ipv6Mode::Force);
        assert!(config.set_session_id("a\r\nb").is_err());
        assert!(config.set_known_peers(&["ok", ""]).is_err());
        let changed: Vec<(String, String)> = config
            .entries()
            .into_iter()
            .filter(|entry| entry.origin == Origin::Api)
            .map(|entry| (entry.key, entry.value))
            .collect();
        let expected = [
            ("ports.MulticastPort", "17"),
            ("ports.BasePort", "17000"),
            ("ports.PortRange", "4"),
            ("ports.IPv6", "force"),
            ("multicast.ResolveScope", "link"),
            ("lab.KnownPeers", "{a, b:5, [::1]:6}"),
            ("lab.SessionID", "s 1"),
        ];
        let expected = expected.map(|(key, value)| (key.to_owned(), value.to_owned()));
        assert_eq!(changed, expected);
    }

    #[test]
    fn built_in_values_are_those_of_the_specification() {
        let config = Config::default();
        let (ports, tuning) = (config.ports(), config.tuning());
        assert_eq!(
            (ports.multicast_port, ports.base_port, ports.port_range),
            (16571, 16572, 32)
        );
        assert!(ports.allow_random_ports && ports.ipv6 == Ipv6Mode::Allow);
        assert_eq!(config.multicast().ipv6_group, MulticastGroup::default());
        assert_eq!(
            (config.lab().session_id.as_str(), config.log().level),
            ("default", 0)
        );
        assert_eq!(
            (tuning.time_probe_count, tuning.time_update_min_probes),
            (8, 6)
        );
        let times = [
            (tuning.time_probe_interval_secs, 0.064),
            (tuning.time_probe_max_rtt_secs, 0.128),
            (tuning.time_update_interval_secs, 2.0),
            (tuning.multicast_min_rtt_secs, 0.5),
            (tuning.multicast_max_rtt_secs, 3.0),
            (tuning.unicast_min_rtt_secs, 0.75),
            (tuning.unicast_max_rtt_secs, 5.0),
            (tuning.continuous_resolve_interval_secs, 0.5),
            (tuning.watchdog_check_interval_secs, 15.0),
            (tuning.sync_send_timeout_secs, 15.0),
        ];
        for (value, expected) in times {
            assert!(
                value.to_bits() == f64::to_bits(expected),
                "{value} {expected}"
            );
        }
        assert!(
            config
                .entries()
                .iter()
                .all(|entry| entry.origin == Origin::Default)
        );
    }
}
