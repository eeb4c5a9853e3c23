//! Plaintext or not: pure decision tables. Spec: LSS/1 §4.3, §4.4.

use crate::Cause;

/// Policy of a process about streams without encryption.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Policy {
    /// Plaintext only; no handshake is made.
    Off,
    /// Both, until a date; every plaintext session is audited.
    Migrate,
    /// Encrypted sessions only, except `plaintext_allow`.
    Required,
}

impl Policy {
    /// Returns the name of the configuration: `off`, `migrate`, `required`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Migrate => "migrate",
            Self::Required => "required",
        }
    }
}

/// Amount of information that discovery shows. Spec: LSS/1 §7.3.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Discovery {
    /// The usual shortinfo with all its fields.
    #[default]
    Open,
    /// Shape and ports only; names are left out.
    Minimal,
}

/// An inlet's knowledge of the outlet that it is about to connect with.
#[derive(Debug, Clone, Copy)]
pub struct Candidate<'a> {
    /// Stream name, as the resolver found it.
    pub name: &'a str,
    /// Remote end as `address:port`, for messages.
    pub address: &'a str,
    /// The policy that its announcement of security (`<lsl_secure …/>`) names, if there is one: `off`, `migrate`,
    /// `required` or unknown; unauthenticated. Spec: LSS/1 §7.1.
    pub advert: Option<&'a str>,
    /// The fingerprint it had when it was encrypted before (`known_secure`).
    pub known_secure: Option<&'a str>,
    /// Whether `plaintext_allow` names its source id.
    pub plaintext_allowed: bool,
}

/// Way in which an inlet connects: plaintext, a handshake, or not at all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Way {
    /// Like any liblsl; audited if the policy is not `off`.
    Plaintext,
    /// Connect with a handshake, and in no other way.
    Secure,
    /// Do not connect; the text is E1, E3 or E4 of §4.4.
    Refuse {
        /// Cause for the audit log.
        cause: Cause,
        /// Sentence for the user, with a remedy where there is one.
        text: String,
    },
}

/// Chooses the way of an inlet. `searched` names the places where a configuration was looked for (E4).
///
/// An advert is a hint that may only narrow: it can turn plaintext into a handshake or a refusal,
/// never the other way round.
pub fn way_of_inlet(policy: Policy, candidate: &Candidate<'_>, searched: &str) -> Way {
    let Candidate { name, address, .. } = candidate;
    let refuse = |text: String| Way::Refuse {
        cause: Cause::PlaintextRefused,
        text,
    };
    match (policy, candidate.advert) {
        (Policy::Off, Some("required")) => refuse(format!(
            "stream \"{name}\" is encrypted and this program has no key; searched {searched}; run: \
             lsl key init"
        )),
        (Policy::Off, _) => Way::Plaintext,
        (Policy::Required | Policy::Migrate, Some(_)) => Way::Secure,
        (Policy::Required | Policy::Migrate, None) if candidate.plaintext_allowed => Way::Plaintext,
        (Policy::Required, None) => refuse(format!(
            "stream \"{name}\" at {address} does not offer encryption and security.policy is \
             \"required\""
        )),
        (Policy::Migrate, None) => match candidate.known_secure {
            Some(fingerprint) => refuse(format!(
                "stream \"{name}\" was encrypted before ({fingerprint}) but offers only plaintext \
                 now: possible downgrade; refused"
            )),
            None => Way::Plaintext,
        },
    }
}

/// R1 of §4.4, for `LSL:streamfeed` in plaintext.
pub const REFUSAL_403: &[u8] =
    b"LSL/110 403 Encryption required: this outlet only accepts lsl-secure sessions\r\n\r\n";

/// Answers `LSL:secure/1` on an outlet that knows LSS but is `off`.
pub const REFUSAL_501: &[u8] =
    b"LSL/110 501 Secure sessions are not enabled on this outlet\r\n\r\n";

/// R3 of §4.4, if a limit on sessions is reached.
pub const REFUSAL_503: &[u8] = b"LSL/110 503 Secure session limit reached, try again\r\n\r\n";

/// R3 of §4.4, if no version or suite is common.
pub const REFUSAL_505: &[u8] = b"LSL/110 505 Secure session version not supported\r\n\r\n";

/// Builds text E2 of §4.4 for an outlet that closed during the hello.
pub fn not_secure_text(address: &str) -> String {
    format!(
        "{address} is not an lsl-secure outlet (closed during hello); refusing plaintext because \
         security.policy is \"required\""
    )
}

/// E5 of §4.4: the outlet of `peer_name` does not trust this device. The names may come from anywhere.
pub(crate) fn not_trusted_text(
    peer_name: &str,
    fingerprint: &str,
    own_name: &str,
    own_key: &str,
) -> String {
    let own_name = lsl_platform::remedy::word(own_name);
    format!(
        "\"{peer_name}\" ({fingerprint}) does not trust this device; there run: lsl trust add \
         {own_name} {own_key}"
    )
}

#[cfg(test)]
mod tests;
