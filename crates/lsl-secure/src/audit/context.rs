//! Contexts, as crypto-auditing calls them: operations within operations, which events and the steps of handshakes
//! become, in exports as in probes. Spec: audit §1.3.

use std::borrow::Cow;

/// Name of a context with the keys that it has each time.
pub type Named = (&'static str, &'static [(&'static str, Constant)]);

/// Value that is the same each time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Constant {
    Word(u32),
    Text(&'static str),
}

/// Returns the name of an event's context, and how the operation ended, if the event says.
pub fn context_name(event: &str) -> (Cow<'static, str>, Option<&'static str>) {
    let (name, outcome) = match event {
        "handshake_ok" => (HANDSHAKE, Some("ok")),
        "handshake_failed" => (HANDSHAKE, Some("failed")),
        "policy_refused" => (HANDSHAKE, Some("refused")),
        "key_update" => ("lsl::rekey", None),
        "peer_alert" | "record_auth_failed" => ("lsl::alert", None),
        "time_step" | "time_rtt_rise" | "time_uncertain" => ("lsl::time", None),
        "revoked" => ("lsl::revoke", None),
        "session_closed" => ("lsl::close", None),
        "limits_hit" | "plaintext_refused" | "stream_refused" | "engine_denied" => {
            ("lsl::refuse", None)
        }
        "downgrade_refused" => ("lsl::downgrade", None),
        "plaintext_accepted" => ("lsl::plaintext", None),
        "link_up" | "link_down" => ("lsl::link", None),
        "trust_reloaded" | "trust_reload_failed" | "trust_changed" => ("lsl::trust", None),
        "key_made" => ("lsl::key", None),
        "log_opened" => ("lsl::log", None),
        "file_failed" => ("lsl::file", Some("failed")),
        "file_locked" | "file_unlocked" | "file_rotated" | "file_verified" => {
            ("lsl::file", Some("ok"))
        }
        "recording_begun" | "recording_ended" => ("lsl::recording", None),
        other => return (format!("lsl::{other}").into(), None),
    };
    (name.into(), outcome)
}

/// Returns the context that a step of a handshake belongs to, and its own, if these are two. `None` for a step that
/// this version does not know.
pub fn contexts_of(step: &str, is_outlet: bool) -> Option<(Named, Option<Named>)> {
    let mut keys = [INLET_KEY, OUTLET_KEY];
    if is_outlet {
        keys.reverse();
    }
    let [own, theirs] = keys.map(|name| (name, ED25519));
    let exchange = (KEY_EXCHANGE, GROUP);
    Some(match step {
        "generate" => (exchange, Some((GENERATE, X25519))),
        "derive" => (exchange, Some((DERIVE, ECDH))),
        "sign" => (own, Some((SIGN, EDDSA))),
        "verify" => (theirs, Some((VERIFY, EDDSA))),
        "schedule" => ((KEY_SCHEDULE, HKDF), None),
        _ => return None,
    })
}

/// Contexts of a handshake, each after the one that it lies in.
pub(super) const PARTS: [&str; 10] = [
    SESSION,
    HANDSHAKE,
    KEY_EXCHANGE,
    GENERATE,
    DERIVE,
    OUTLET_KEY,
    INLET_KEY,
    SIGN,
    VERIFY,
    KEY_SCHEDULE,
];

/// Name of the context of a connection.
pub const SESSION: &str = "lsl::session";
pub(super) const HANDSHAKE: &str = "lsl::handshake";
const KEY_EXCHANGE: &str = "lsl::key_exchange";
const OUTLET_KEY: &str = "lsl::outlet_key";
const INLET_KEY: &str = "lsl::inlet_key";
const KEY_SCHEDULE: &str = "lsl::key_schedule";
const GENERATE: &str = "pk::generate";
const DERIVE: &str = "pk::derive";
const SIGN: &str = "pk::sign";
const VERIFY: &str = "pk::verify";

type Keys = &'static [(&'static str, Constant)];

const GROUP: Keys = &[("lsl::group", Constant::Text("x25519"))];
const ED25519: Keys = &[("lsl::key_algorithm", Constant::Text("ed25519"))];
const HKDF: Keys = &[("lsl::kdf", Constant::Text("hkdf-sha256"))];
const X25519: Keys = &[
    ("pk::algorithm", Constant::Text("x25519")),
    ("pk::bits", Constant::Word(256)),
];
const ECDH: Keys = &[
    ("pk::algorithm", Constant::Text("ecdh")),
    ("pk::curve", Constant::Text("x25519")),
    ("pk::bits", Constant::Word(256)),
    ("pk::static", Constant::Word(0)),
];
const EDDSA: Keys = &[
    ("pk::algorithm", Constant::Text("eddsa")),
    ("pk::curve", Constant::Text("ed25519")),
    ("pk::bits", Constant::Word(256)),
];
