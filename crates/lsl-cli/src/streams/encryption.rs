//! A stream's encryption in words: the announcement of an outlet, which is not authenticated, and
//! the proof by a session. Spec: LSS/1 §7.1.

use std::sync::Arc;

use lsl_core::secure::audit::printable;
use lsl_core::secure::{Policy, Role};
use lsl_core::{Context, Encryption, StreamInfo};
use lsl_proto::info::SecurityAdvert;
use lsl_proto::security::relay_id;
use serde::Serialize;

use crate::files::place::SecurityConfig;
use crate::files::trust;
use crate::ui::notice::note;

/// Announcement of an outlet about its encryption. Anybody can forge it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Claimed {
    /// `required`, `migrate`, or another text of the outlet.
    pub(crate) policy: String,
    pub(crate) fingerprint: Option<String>,
    pub(crate) next_fingerprint: Option<String>,
    /// Whether discovery shows only the shape and the ports of the stream.
    pub(crate) minimal: bool,
    /// Name of that fingerprint's owner in our trust file.
    #[serde(rename = "claimed_name")]
    pub(crate) name: Option<String>,
}

impl Claimed {
    /// Returns the announcement of a stream, without a name.
    pub(crate) fn of(info: &StreamInfo) -> Option<Self> {
        info.security_advert().map(Self::from)
    }
}

impl From<SecurityAdvert> for Claimed {
    fn from(advert: SecurityAdvert) -> Self {
        let safe = |text: String| printable(text.as_bytes());
        Self {
            policy: safe(advert.policy),
            fingerprint: advert.fingerprint.map(safe),
            next_fingerprint: advert.next_fingerprint.map(safe),
            minimal: advert.minimal,
            name: None,
        }
    }
}

/// Formats a table cell: `-`, `required`, `required (amp1, claimed)`.
pub(crate) fn cell(claimed: Option<&Claimed>) -> String {
    let Some(claimed) = claimed else {
        return "-".into();
    };
    match &claimed.name {
        Some(name) => format!("{} ({name}, claimed)", claimed.policy),
        None => claimed.policy.clone(),
    }
}

/// Fingerprints that our trust file knows, and this device's own.
#[derive(Debug, Default)]
pub(crate) struct Names {
    /// By the fingerprint of a key.
    keys: Vec<(String, String)>,
    /// By the id that a relay with this key has.
    relays: Vec<(String, String)>,
}

impl Names {
    /// Collects the names of a context. Reports if it can read or offer nothing, unless that is for
    /// want of a passphrase: looking needs none.
    pub(crate) fn of(context: &Context) -> Self {
        let (own, trust) = match context.security() {
            Ok(security) => {
                let own = security.local().map(|local| local.key.public());
                (own, security.trust())
            }
            Err(error) => {
                let place = SecurityConfig::find(None)
                    .ok()
                    .filter(SecurityConfig::needs_asking);
                let trust = place.and_then(|place| trust::read(place.trust_file().ok()?).ok());
                let Some(trust) = trust else {
                    note(format_args!(
                        "lsl: {error}\nlsl: until this is repaired no stream can be read or offered"
                    ));
                    return Self::default();
                };
                (None, Arc::new(trust))
            }
        };
        let own = own.map(|key| (key, THIS_DEVICE.to_owned()));
        let peers = trust.peers().iter();
        let peers = peers.map(|peer| (peer.key, peer.name.clone()));
        let mut names = Self::default();
        for (key, name) in own.into_iter().chain(peers) {
            let fingerprint = key.fingerprint().to_string();
            names.keys.push((fingerprint, name.clone()));
            names.relays.push((relay_id(&key), name));
        }
        names
    }

    /// Fills in the name of the claimed fingerprint.
    pub(super) fn complete(&self, claimed: &mut Claimed) {
        let fingerprint = claimed.fingerprint.as_ref();
        let mut keys = self.keys.iter();
        let found = keys.find(|(known, _)| Some(known) == fingerprint);
        claimed.name = found.map(|(_, name)| name.clone());
    }

    /// Returns the name of a relay, or its id.
    pub(super) fn of_relay(&self, id: &str) -> String {
        let found = self.relays.iter().find(|(known, _)| known == id);
        found.map_or_else(|| id.to_owned(), |(_, name)| name.clone())
    }
}

/// Peer and cipher of an authenticated session, for `--json`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Proved {
    pub(crate) peer_name: String,
    pub(crate) fingerprint: String,
    pub(crate) cipher: &'static str,
}

impl From<Encryption> for Proved {
    fn from(encryption: Encryption) -> Self {
        Self {
            peer_name: encryption.peer_name,
            fingerprint: encryption.fingerprint,
            cipher: encryption.suite,
        }
    }
}

/// Formats a sentence with the peer and the cipher of an encrypted connection.
pub(crate) fn sentence(proved: &Proved) -> String {
    let Proved {
        peer_name,
        fingerprint,
        cipher,
    } = proved;
    let name = printable(peer_name.as_bytes());
    format!("{cipher} with {name} ({fingerprint}), authenticated")
}

/// Describes the machines that may read our streams, if this one encrypts at all.
pub(crate) fn readers(context: &Context) -> Option<String> {
    let security = context.security().ok()?;
    let trust = security.trust();
    let may_read: Vec<String> = trust
        .peers()
        .iter()
        .filter(|peer| peer.role.allows(Role::Inlet))
        .map(|peer| printable(peer.name.as_bytes()))
        .collect();
    let count = may_read.len();
    match (security.policy(), count) {
        (Policy::Off, _) => None,
        (Policy::Migrate, _) => Some(
            "Encrypted for trusted machines; others read it in plaintext (policy 'migrate').".into(),
        ),
        (_, 0) => Some(
            "Encrypted. Only this machine may read it: no other is trusted as inlet yet. Run `lsl key \
             show` there, and here\nthe line it prints."
                .into(),
        ),
        (_, 1..=SHORT_LIST) => Some(format!("Encrypted for {}.", may_read.join(", "))),
        _ => Some(format!("Encrypted for {count} trusted machines.")),
    }
}

/// Returns the warning for a connection in plaintext, if it is worth a line.
pub(crate) fn plaintext_warning(context: &Context) -> Option<&'static str> {
    let policy = context.security().ok()?.policy();
    (policy != Policy::Off).then_some(
        "WARNING: not encrypted. Anybody on the network can read and change this stream; the policy \
         'migrate' (or plaintext_allow) of this machine lets it pass.",
    )
}

/// Most names listed: more do not fit into a line.
const SHORT_LIST: usize = 5;
/// The name of our own key; no entry of the trust file.
const THIS_DEVICE: &str = "this device";

#[cfg(test)]
mod tests {
    use super::*;

    fn claimed(policy: &str, fingerprint: Option<&str>) -> Claimed {
        Claimed {
            policy: policy.into(),
            fingerprint: fingerprint.map(Into::into),
            next_fingerprint: None,
            minimal: false,
            name: None,
        }
    }

    #[test]
    fn claims_are_marked_as_such() {
        let names = Names {
            keys: vec![("SHA256:a".into(), "amp1".into())],
            relays: vec![("00aa".into(), "hub".into())],
        };
        assert_eq!(
            (names.of_relay("00aa"), names.of_relay("1")),
            ("hub".into(), "1".into())
        );
        let check = |fingerprint, expected| {
            let mut claimed = claimed("required", fingerprint);
            names.complete(&mut claimed);
            assert_eq!(cell(Some(&claimed)), expected);
        };
        check(Some("SHA256:a"), "required (amp1, claimed)");
        check(Some("SHA256:A"), "required");
        check(None, "required");
        assert_eq!(cell(None), "-");
    }
}
