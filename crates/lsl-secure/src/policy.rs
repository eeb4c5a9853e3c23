//! Plaintext or not: pure decision tables. Spec: LSS/1 §4.3, §4.4.

use crate::Cause;

/// What may happen without encryption.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Policy {
    /// Plaintext only.
    Off,
    /// Both, until a date; every plaintext session is audited.
    Migrate,
    /// Encrypted only.
    Required,
}

/// How much discovery shows. Spec: LSS/1 §7.3.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Discovery {
    /// The usual shortinfo.
    #[default]
    Open,
    /// Shape and ports only.
    Minimal,
}

/// What an outlet announces of its security (`<lsl_secure …/>`); unauthenticated. Spec: LSS/1 §7.1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Advert {
    /// Attribute `policy`.
    pub policy: String,
    /// Attribute `fp`, claimed.
    pub fingerprint: Option<String>,
    /// Attribute `mode` is `minimal`.
    pub minimal: bool,
}

/// What an inlet knows of the outlet it is about to connect with.
#[derive(Debug, Clone, Copy)]
pub struct Candidate<'a> {
    /// Its name, as resolved.
    pub name: &'a str,
    /// Where it is: `address:port`.
    pub address: &'a str,
    /// What it announces.
    pub advert: Option<&'a Advert>,
    /// The fingerprint it had when it was encrypted before (`known_secure`).
    pub known_secure: Option<&'a str>,
    /// Whether `plaintext_allow` names its source id.
    pub plaintext_allowed: bool,
}

/// How an inlet connects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Way {
    /// Like any liblsl; audited if the policy is not `off`.
    Plaintext,
    /// With a handshake, and nothing else.
    Secure,
    /// Not at all; the text is E1, E3 or E4 of §4.4.
    Refuse {
        /// For audit.
        cause: Cause,
        /// For people.
        text: String,
    },
}

/// Chooses the way of an inlet. `searched` names the places where a configuration was looked for (E4).
pub fn way_of_inlet(_policy: Policy, _candidate: &Candidate<'_>, _searched: &str) -> Way {
    unimplemented!()
}

/// R1 of §4.4, for `LSL:streamfeed` in plaintext.
pub const REFUSAL_403: &[u8] =
    b"LSL/110 403 Encryption required: this outlet only accepts lsl-secure sessions\r\n\r\n";

/// For `LSL:secure/1` on an outlet that is aware of LSS but `off`.
pub const REFUSAL_501: &[u8] =
    b"LSL/110 501 Secure sessions are not enabled on this outlet\r\n\r\n";

/// R3, limits.
pub const REFUSAL_503: &[u8] = b"LSL/110 503 Secure session limit reached, try again\r\n\r\n";

/// R3, no common version or suite.
pub const REFUSAL_505: &[u8] = b"LSL/110 505 Secure session version not supported\r\n\r\n";

/// E2 of §4.4.
pub fn not_secure_text(address: &str) -> String {
    format!(
        "{address} is not an lsl-secure outlet (closed during hello); refusing plaintext because \
         security.policy is \"required\""
    )
}
