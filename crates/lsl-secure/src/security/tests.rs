//! A device's life with its files: start, decisions, reload, revocation.

use std::fs;
use std::sync::atomic::{AtomicI64, AtomicUsize};
use std::time::Duration;

use super::*;
use crate::audit::Span;
use crate::files;
use crate::files::scratch::{Scratch, says};
use crate::keyfile;

mod migrate;
mod own_key;
mod reload;
mod start;

/// A device in a directory of its own, with clocks that can be turned.
struct Lab {
    scratch: Scratch,
    /// Milliseconds added to both clocks, and to the wall clock alone.
    passed: Arc<AtomicI64>,
    set_by: Arc<AtomicI64>,
}

/// Seeds of the keys in these tests.
const OWN: u8 = 1;
const AMP: u8 = 2;
const REC: u8 = 3;
const STRANGER: u8 = 9;

const LAN: &str = "192.168.7.20";
const HERE: &str = "192.168.7.10";

fn key(seed: u8) -> PublicKey {
    SecretKey::from_seed(&[seed; 32]).public()
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn peer(name: &str, seed: u8, more: &str) -> String {
    format!(
        "[[peer]]\nname = \"{name}\"\nkey = \"{}\"\n{more}\n",
        key(seed)
    )
}

/// The amplifier and the recorder, each in its role.
fn both() -> String {
    peer("amp", AMP, "role = \"outlet\"") + &peer("rec", REC, "role = \"inlet\"")
}

impl Lab {
    fn new(trust: &str) -> Self {
        let scratch = Scratch::new();
        let own = SecretKey::from_seed(&[OWN; 32]);
        keyfile::write_new_key(&scratch.path("device_key.pem"), &own, None).unwrap();
        scratch.write("trusted_peers.toml", trust, 0o644);
        Self {
            scratch,
            passed: Arc::default(),
            set_by: Arc::default(),
        }
    }

    /// Starts a program with these lines of `[security]`.
    fn start(&self, lines: &str) -> Result<Arc<Security>> {
        let text = format!("[security]\nname = \"own\"\naudit_file = \"audit.jsonl\"\n{lines}\n");
        let file = self.scratch.write("lsl-secure.toml", &text, 0o644);
        let places = Places {
            variable: Some(file.into()),
            home: None,
            home_is_closed: false,
            system: self.scratch.path("etc/lsl-secure.toml"),
            elevated: false,
        };
        Security::search_in(&places, self.clock()).map(Arc::new)
    }

    fn required(&self) -> Arc<Security> {
        self.start("policy = \"required\"").unwrap()
    }

    fn clock(&self) -> Clock {
        let start = lsl_platform::clock::utc_now();
        let (passed, set_by) = (Arc::clone(&self.passed), Arc::clone(&self.set_by));
        let utc = move || {
            let offset = passed.load(Ordering::Relaxed) + set_by.load(Ordering::Relaxed);
            let change = Duration::from_millis(offset.unsigned_abs());
            match offset {
                0.. => start + change,
                _ => start.saturating_sub(change),
            }
        };
        let passed = Arc::clone(&self.passed);
        #[expect(clippy::cast_precision_loss, reason = "a test is short")]
        Clock::fake(utc, move || passed.load(Ordering::Relaxed) as f64 / 1e3)
    }

    fn pass(&self, secs: i64) {
        self.passed.fetch_add(1000 * secs, Ordering::Relaxed);
    }

    /// Sets the wall clock to this many seconds after the machine's.
    fn set_clock(&self, secs: i64) {
        self.set_by.store(1000 * secs, Ordering::Relaxed);
    }

    /// Replaces the trust file by rename, as `lsl trust` does.
    fn replace_trust(&self, text: &str) {
        files::replace(&self.scratch.path("trusted_peers.toml"), text.as_bytes()).unwrap();
    }

    /// The events of the audit file with their details, in order.
    fn events(&self, security: &Security) -> Vec<(String, String)> {
        assert!(security.audit().flush(Duration::from_secs(20)));
        let text = fs::read_to_string(self.scratch.path("audit.jsonl")).unwrap_or_default();
        let parse = |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap();
        let field = |value: &serde_json::Value, name: &str| {
            value
                .get(name)
                .and_then(|v| v.as_str())
                .unwrap_or("")
                .to_owned()
        };
        let events = text.lines().map(parse);
        events
            .map(|event| (field(&event, "event"), field(&event, "detail")))
            .filter(|(event, _)| event != "log_opened")
            .collect()
    }

    fn count(&self, security: &Security, event: &str) -> usize {
        let events = self.events(security);
        events.iter().filter(|(name, _)| name == event).count()
    }
}

/// Counts how often a session was told to end.
#[derive(Clone, Default)]
struct Ends(Arc<AtomicUsize>);

impl Ends {
    fn callback(&self) -> impl Fn(Cause) + Send + Sync + 'static {
        let count = Arc::clone(&self.0);
        move |cause| {
            assert_eq!(cause, Cause::Revoked);
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

fn live(seed: u8, role: Role, remote: &str) -> SessionEntry {
    SessionEntry {
        peer: key(seed),
        role,
        remote: ip(remote),
        local: ip(HERE),
        stream: Descriptor {
            uid: b"uid".to_vec(),
            ..Descriptor::default()
        },
        span: Span::begin(),
    }
}

fn decide(security: &Security, seed: u8, role: Role, remote: &str) -> Result<String, Cause> {
    security.authorise(&key(seed), role, ip(remote), ip(HERE))
}
