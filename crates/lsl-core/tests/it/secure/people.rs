//! Who takes part in a test: sides with keys, trust lists, audit logs, and contexts that see each
//! other but no other test.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use lsl_core::config::Config;
use lsl_core::secure::config::Settings;
use lsl_core::secure::trust::{Date, Peer, TrustList, TrustedRole};
use lsl_core::secure::{Policy, SecretKey, Security};
use lsl_core::{ChannelFormat, Context, Inlet, StreamInfo};
use serde_json::Value;

use crate::lab;

/// The place that a test has for itself.
pub struct Place {
    config: Config,
    dir: PathBuf,
}

/// A program with a key.
pub struct Side {
    pub security: Arc<Security>,
    pub context: Context,
    audit: PathBuf,
}

/// The key of a device with this name.
pub fn key_of(who: &str) -> SecretKey {
    let mut seed = [0x5a; 32];
    for (byte, letter) in seed.iter_mut().zip(who.bytes()) {
        *byte = letter;
    }
    SecretKey::from_seed(&seed)
}

/// An entry of a trust list.
pub fn trusted(who: &str, role: TrustedRole) -> Peer {
    Peer {
        name: who.to_owned(),
        key: key_of(who).public(),
        role,
        not_after: None,
        from: Vec::new(),
        streams: Vec::new(),
    }
}

/// How people see a device's key.
pub fn fingerprint_of(who: &str) -> String {
    key_of(who).public().fingerprint().to_string()
}

impl Place {
    pub fn new() -> Self {
        Self::with(&[])
    }

    /// With other settings, as `section.Key` and value.
    pub fn with(settings: &[(&str, &str)]) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("lsl-core-it-{}-{number}", std::process::id());
        let dir = std::env::temp_dir().join(name);
        fs::create_dir_all(&dir).unwrap();
        Self {
            config: lab::config_with(settings),
            dir,
        }
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// A program without keys.
    pub fn legacy(&self) -> Context {
        lab::plaintext(self.config.clone())
    }

    /// The device `who` under `policy`, which trusts others in both roles.
    pub fn side(&self, who: &str, policy: Policy, trusts: &[&str]) -> Side {
        let both = |who: &&str| trusted(who, TrustedRole::Both);
        let trusts = trusts.iter().map(both).collect();
        self.side_with(who, policy, trusts, |_| {})
    }

    pub fn side_with(
        &self,
        who: &str,
        policy: Policy,
        trusts: Vec<Peer>,
        change: impl FnOnce(&mut Settings),
    ) -> Side {
        let mut settings = Settings::new(policy);
        who.clone_into(&mut settings.name);
        if policy == Policy::Migrate {
            settings.migrate_until = Some("2999-12-31".parse().unwrap());
        }
        let audit = self.dir.join(format!("{who}-{}.jsonl", trusts.len()));
        settings.audit_file = Some(audit.clone());
        change(&mut settings);
        let trust = TrustList::from_peers(trusts).unwrap();
        let security = Security::from_parts(settings, key_of(who), trust).unwrap();
        self.assemble(security, audit)
    }

    /// A device that migrates until a day by a clock of its own.
    pub fn side_with_clock(
        &self,
        who: &str,
        until: Date,
        utc: impl Fn() -> Duration + Send + Sync + 'static,
    ) -> Side {
        let mut settings = Settings::new(Policy::Migrate);
        who.clone_into(&mut settings.name);
        settings.migrate_until = Some(until);
        let audit = self.dir.join(format!("{who}.jsonl"));
        settings.audit_file = Some(audit.clone());
        let (key, trust) = (key_of(who), TrustList::default());
        let security = Security::from_parts_with_clock(settings, key, trust, utc).unwrap();
        self.assemble(security, audit)
    }

    /// From a configuration file.
    pub fn side_of_file(&self, file: &Path, audit: PathBuf) -> Side {
        self.assemble(Security::from_file(file).unwrap(), audit)
    }

    fn assemble(&self, security: Security, audit: PathBuf) -> Side {
        let security = Arc::new(security);
        Side {
            context: Context::with_security(self.config.clone(), Arc::clone(&security)),
            security,
            audit,
        }
    }

    /// An outlet `amp` and an inlet `rec` that trust each other, under these policies.
    pub fn pair(&self, outlet: Policy, inlet: Policy) -> (Side, Side) {
        (
            self.side("amp", outlet, &["rec"]),
            self.side("rec", inlet, &["amp"]),
        )
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

impl Side {
    /// All audit lines of this event.
    pub fn audited(&self, event: &str) -> Vec<Value> {
        let mut lines = self.lines();
        lines.retain(|line| line["event"] == event);
        lines
    }

    fn lines(&self) -> Vec<Value> {
        let text = fs::read_to_string(&self.audit).unwrap_or_default();
        // The last line may be half written.
        let lines = text
            .split_inclusive('\n')
            .filter(|line| line.ends_with('\n'));
        lines
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    /// The events of the tree that `line` of a session belongs to, each once, by name. No line of the session is
    /// in another tree, and none of another session in this one.
    pub fn tree_of(&self, line: &Value) -> Vec<String> {
        let mut names = Vec::new();
        for it in self.lines() {
            let [in_tree, of_session] = ["span", "sid"].map(|key| it[key] == line[key]);
            if in_tree || of_session {
                assert!(in_tree && (of_session || it["sid"].is_null()), "{it}");
                names.push(it["event"].as_str().unwrap().to_owned());
            }
        }
        names.sort();
        names.dedup();
        names
    }

    /// Waits for an audit line of this event for which `wanted` holds.
    pub fn await_audit(&self, event: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let mut found = None;
        lab::until(&format!("an audit line {event}"), || {
            found = self.audited(event).into_iter().find(&wanted);
            found.is_some()
        });
        found.unwrap()
    }

    /// An inlet for a stream, that does not look elsewhere when it is disappointed.
    pub fn inlet_for(&self, info: &StreamInfo) -> Inlet {
        Inlet::builder(info)
            .context(&self.context)
            .recover(false)
            .create()
            .unwrap()
    }
}

/// Three channels of a stream with this name.
pub fn info(name: &str) -> StreamInfo {
    let source = format!("src-{name}");
    StreamInfo::new(name, "Test", 3, 100.0, ChannelFormat::Float32, source).unwrap()
}
