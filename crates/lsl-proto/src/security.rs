//! Policy of connections to outlets: the identity that an outlet must prove, keys that must not change, no way
//! back to plaintext, and texts for people. Audit events of both roles. Spec: LSS/1 §4.2-§4.4, §7.4, §10.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use lsl_secure::audit::{Event, EventKind, Span, Traffic, printable};
use lsl_secure::policy::{Way, not_secure_text};
use lsl_secure::{
    Cause, Descriptor, Error, Fingerprint, Policy, PublicKey, Role, SessionInfo, Totals,
};
use sha2::{Digest as _, Sha256};

use crate::StreamInfo;
use crate::describe::descriptor;

/// Builds the audit events of one session.
#[derive(Debug, Clone)]
pub struct SessionEvents {
    info: Arc<SessionInfo>,
    role: Role,
    peer: SocketAddr,
    stream_uid: String,
    span: Span,
    /// Kept, as it is the costliest part of an event; made for the first.
    fingerprint: OnceLock<Fingerprint>,
}

impl SessionEvents {
    /// `role` is ours, `peer` the address of the other side, `span` the tree of the connection.
    pub fn new(
        info: Arc<SessionInfo>,
        role: Role,
        peer: SocketAddr,
        stream_uid: String,
        span: Span,
    ) -> Self {
        Self {
            info,
            role,
            peer,
            stream_uid,
            span,
            fingerprint: OnceLock::new(),
        }
    }

    /// Returns what is known of the session.
    pub fn info(&self) -> &SessionInfo {
        &self.info
    }

    /// Returns the role of this side.
    pub fn role(&self) -> Role {
        self.role
    }

    /// Returns the address of the other side.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Builds an event of this session.
    pub fn event(&self, kind: EventKind) -> Event {
        Event::new(kind)
            .span(self.span)
            .session(self.info.id)
            .peer_addr(self.peer)
            .peer(
                *self
                    .fingerprint
                    .get_or_init(|| self.info.peer.fingerprint()),
            )
            .peer_name(self.info.peer_name.as_str())
            .role(self.role)
            .stream_uid(self.stream_uid.as_str())
    }

    /// Builds the event of an error that ends the session, if an auditor wants to know it.
    pub fn failure(&self, error: &Error) -> Option<Event> {
        let (kind, detail) = match error {
            Error::Alert { text, .. } => (EventKind::PeerAlert, text.clone()),
            _ if error.cause() == Cause::RecordAuthFailed => {
                (EventKind::RecordAuthFailed, error.to_string())
            }
            _ => return None,
        };
        Some(self.event(kind).cause(error.cause()).detail(detail))
    }

    /// Builds the last event of the session; `directions` are both, in any order.
    pub fn closed(&self, directions: [Totals; 2], duration_secs: f64, clean: bool) -> Event {
        let [one, other] = directions;
        self.event(EventKind::SessionClosed).traffic(Traffic {
            bytes: one.bytes + other.bytes,
            records: one.records + other.records,
            duration_secs,
            clean,
        })
    }
}

/// Builds an event of a connection without a session; `role` is ours.
pub fn connection_event(
    kind: EventKind,
    role: Role,
    policy: Policy,
    peer: SocketAddr,
    info: &StreamInfo,
) -> Event {
    Event::new(kind)
        .peer_addr(peer)
        .role(role)
        .policy(policy)
        .stream_uid(info.uid())
}

/// Returns the kind of the event that a handshake failed. `is_key_proved`: the cryptography was right up to the
/// peer's key.
pub fn failure_kind(role: Role, error: &Error, is_key_proved: bool) -> EventKind {
    match error {
        Error::Alert { .. } if role == Role::Inlet => EventKind::PeerAlert,
        Error::Session { .. } if is_key_proved && error.cause().is_verdict() => {
            EventKind::PolicyRefused
        }
        _ => EventKind::HandshakeFailed,
    }
}

/// Identity that a DESCRIPTOR must prove. Spec: LSS/1 §7.4.
#[derive(Debug, Clone, Copy)]
pub enum ExpectedIdentity<'a> {
    /// All of the outlet's info, and the stream that the user chose at first.
    Stream {
        /// Descriptor of the stream that the user chose.
        original: &'a Descriptor,
        /// Whether the choice was made among found streams, by anything that discovery said of them.
        was_found: bool,
    },
    /// Only what a redacted info shows: the rest is about to be asked for.
    Redacted,
    /// The relay that a stream comes through, which describes itself. Spec: relay §3.1.
    Relay {
        /// Key that its announcement of the stream came from; `None` before its first handshake.
        key: Option<PublicKey>,
    },
    /// A relay that the trust file lets link with this one. It describes itself, too. Spec: relay §3.1.
    Link,
}

/// A DESCRIPTOR that is not what was expected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mismatch {
    /// Another outlet lives at that address now: an ordinary event.
    Outlet,
    /// The outlet is the right one and not what discovery said of this field: somebody lied.
    Field(&'static str),
}

impl ExpectedIdentity<'_> {
    /// Returns the key that the other side must have, if there is only one.
    pub fn required_key(&self) -> Option<PublicKey> {
        match self {
            Self::Relay { key } => *key,
            Self::Stream { .. } | Self::Redacted | Self::Link => None,
        }
    }

    /// Returns whether the other side is a relay.
    pub fn is_relay(&self) -> bool {
        matches!(self, Self::Relay { .. } | Self::Link)
    }

    /// Compares what an outlet says of its stream with what is expected and with `info`, its info as found. Of a
    /// relay the key is to be known by then: this is asked of [`Relay`](Self::Relay).
    pub fn compare(&self, info: &StreamInfo, said: &Descriptor) -> Option<Mismatch> {
        let known = descriptor(info);
        let field = match self {
            Self::Link => return Self::Relay { key: None }.compare(info, said),
            Self::Relay { key } => {
                let id = key.as_ref().map(relay_id);
                let is_this = id.is_some_and(|id| said.uid == id.as_bytes());
                return (!is_this || said.stream_type != RELAY_TYPE)
                    .then_some(Mismatch::Field(if is_this { "type" } else { "relay id" }));
            }
            Self::Stream {
                original,
                was_found,
            } => said.differs_from(&known).or_else(|| {
                if *was_found && said.uid == original.uid {
                    // The very outlet of the choice: recovery must not wash off what was a lie of it.
                    said.differs_from(original)
                } else {
                    said.is_other_stream_than(original)
                }
            }),
            Self::Redacted => {
                let shown = Descriptor {
                    uid: known.uid,
                    channel_count: known.channel_count,
                    nominal_srate: known.nominal_srate,
                    channel_format: known.channel_format,
                    ..said.clone()
                };
                said.differs_from(&shown)
            }
        }?;
        Some(if said.uid == info.uid_bytes() {
            Mismatch::Field(field)
        } else {
            Mismatch::Outlet
        })
    }
}

/// Stream type in the DESCRIPTOR of a relay. Spec: relay §3.1.
pub const RELAY_TYPE: &[u8] = b"lsl-relay";

/// Returns the id of the relay with this key: 16 hexadecimal digits. Spec: relay §2.
pub fn relay_id(key: &PublicKey) -> String {
    let hash = Sha256::new()
        .chain_update(b"lsl-relay id")
        .chain_update(key.as_bytes());
    let hash = hash.finalize();
    let digits = hash.iter().take(8).map(|byte| format!("{byte:02x}"));
    digits.collect()
}

/// Findings of a handshake about an outlet.
#[derive(Debug, Default)]
pub struct Findings {
    /// Key that it has proved to own.
    pub key: Option<PublicKey>,
    /// Name of the key's owner. Empty until the key is known to be trusted.
    pub name: String,
    /// Whether its entry in the trust file covers other streams only.
    pub is_for_other_streams: bool,
    /// Whether its entry in the trust file makes it no relay, as it would have to be for a link.
    pub may_not_link: bool,
    /// The key that it would have to have.
    pub pinned: Option<PublicKey>,
    /// Difference between its DESCRIPTOR and what was expected.
    pub mismatch: Option<Mismatch>,
    /// Whether it should be a relay.
    pub is_relay: bool,
}

impl Findings {
    /// Builds the event of the failed handshake with the outlet of `info`.
    pub fn failure(
        &self,
        info: &StreamInfo,
        peer: SocketAddr,
        policy: Policy,
        error: &Error,
    ) -> Event {
        let kind = failure_kind(Role::Inlet, error, self.key.is_some());
        let mut event =
            connection_event(kind, Role::Inlet, policy, peer, info).cause(error.cause());
        if let Some(key) = self.key {
            event = event.peer(key.fingerprint());
        }
        if !self.name.is_empty() {
            event = event.peer_name(self.name.as_str());
        }
        event
    }

    /// Says why the handshake with the outlet of `info` failed. `pins`: the configuration demands that streams
    /// keep their keys; `not_trusted` is the text for an outlet that does not trust us.
    pub fn text(
        &self,
        info: &StreamInfo,
        peer: SocketAddr,
        error: &Error,
        pins: bool,
        not_trusted: impl FnOnce(&PublicKey) -> String,
    ) -> String {
        let stream = if self.is_relay {
            format!("relay at {peer}")
        } else {
            format!("stream \"{}\" at {peer}", printable(info.name_bytes()))
        };
        let (cause, key) = (error.cause(), self.key);
        let is_ours = matches!(error, Error::Session { .. });
        match (self.mismatch, key) {
            (Some(Mismatch::Field(field)), _) if is_ours && self.is_relay => {
                return format!("{stream} is no relay: it has another {field}; refused");
            }
            (Some(Mismatch::Field(field)), _) if is_ours => {
                let hides = info.security_advert();
                let advice = if hides.is_some_and(|advert| advert.minimal) {
                    " (it shows itself only to programs with security.discovery = \"minimal\")"
                } else {
                    ""
                };
                return format!(
                    "{stream} is not what discovery said of it: its {field} is another one; \
                     refused{advice}"
                );
            }
            (_, Some(key))
                if matches!(error, Error::Alert { .. }) && cause == Cause::NotAuthorised =>
            {
                return not_trusted(&key);
            }
            _ if is_ours && cause == Cause::PeerNotSecure => {
                return not_secure_text(&peer.to_string());
            }
            _ => {}
        }
        let Some(key) = key.filter(|_| is_ours) else {
            return format!("{stream}: {error}");
        };
        if cause == Cause::RoleNotAllowed && self.may_not_link {
            return not_a_relay_text(&self.name, &key);
        }
        let fingerprint = key.fingerprint();
        if let (Cause::NotAuthorised, Some(before)) = (cause, self.pinned) {
            let by = if pins {
                "security.pin_peer is set"
            } else {
                "the reader pins it"
            };
            return format!(
                "{stream}: its key {fingerprint} is another one than before ({}), and {by}",
                before.fingerprint()
            );
        }
        let reason = match cause {
            Cause::NotAuthorised => "is not trusted by this device",
            Cause::RoleNotAllowed if self.is_for_other_streams => {
                "is trusted for other streams only: see `streams` of its entry in the trust file"
            }
            Cause::RoleNotAllowed => "may not send streams to this device",
            Cause::Expired => "is trusted no longer: its not_after has passed",
            Cause::SelfKey => "is our own, but it is another machine (was a disk image copied?)",
            _ => return format!("{stream}: {error}"),
        };
        let remedy = if self.is_relay && cause == Cause::NotAuthorised {
            format!(
                "; if `lsl key show` says that there, run: lsl trust add NAME {key} --role relay"
            )
        } else {
            String::new()
        };
        format!(
            "{stream}: its key {fingerprint} {reason} ({}){remedy}",
            cause.name()
        )
    }
}

/// Says what makes the peer with this name and key a relay, which it would have to be to be linked.
pub fn not_a_relay_text(name: &str, key: &PublicKey) -> String {
    format!(
        "{name} ({}) is trusted, but not as a relay; run: lsl trust add {name} {key} --role relay",
        key.fingerprint()
    )
}

/// Returns the way to connect with the outlet of `info`, given that of the policy. A stream that was tried with
/// encryption once is not tried without, whatever discovery says by then.
pub fn way_after(has_tried: bool, info: &StreamInfo, way: Way) -> Way {
    if way != Way::Plaintext || !has_tried {
        return way;
    }
    Way::Refuse {
        cause: Cause::PlaintextRefused,
        text: format!(
            "stream \"{}\" offered encryption before but offers only plaintext now: possible \
             downgrade; refused",
            printable(info.name_bytes())
        ),
    }
}

/// Keys of the outlets of one stream.
#[derive(Debug, Default)]
pub struct PeerKeys {
    /// Whether every other key than the first one is refused, whatever the configuration says.
    pub pins: bool,
    /// Key of the outlet that was accepted last.
    pub key: Option<PublicKey>,
    /// Whether encryption was ever tried, with whatever result. From then on there is no way back to plaintext.
    pub has_tried: bool,
    /// Changes so far, each pair of keys once, the first sixteen.
    pub changes: Vec<KeyChange>,
}

/// An outlet that was trusted and had another key than the one before.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct KeyChange {
    /// The key before the change, as `SHA256:…`.
    pub before: String,
    /// The key after the change, as `SHA256:…`.
    pub after: String,
    /// Name of the new key's owner in our trust file.
    pub peer_name: String,
    /// Whether the outlet was refused, because the key is pinned.
    pub is_refused: bool,
    /// When that was first seen, in seconds of `local_clock`.
    pub time: f64,
}

impl PeerKeys {
    /// Returns the key of the outlet before, if `key` is another one.
    pub fn before(&self, key: PublicKey) -> Option<PublicKey> {
        self.key.filter(|before| *before != key)
    }

    /// Returns the key that `key` must not replace, if it is another one and the configuration (`pins`) or
    /// the history says so. Remembers such a try.
    pub fn pinned_against(
        &mut self,
        key: PublicKey,
        name: &str,
        pins: bool,
        now: f64,
    ) -> Option<PublicKey> {
        let before = self.before(key).filter(|_| pins || self.pins)?;
        self.note(before, key, name, true, now);
        Some(before)
    }

    /// Accepts the key of an outlet. Returns the key that was there before if it is another one.
    ///
    /// # Errors
    /// That key, if it is pinned: another handshake of the stream was faster.
    pub fn accept(
        &mut self,
        key: PublicKey,
        name: &str,
        pins: bool,
        now: f64,
    ) -> Result<Option<PublicKey>, PublicKey> {
        if let Some(pinned) = self.pinned_against(key, name, pins, now) {
            return Err(pinned);
        }
        let before = self.before(key);
        if let Some(before) = before {
            self.note(before, key, name, false, now);
        }
        self.key = Some(key);
        Ok(before)
    }

    fn note(
        &mut self,
        before: PublicKey,
        after: PublicKey,
        peer_name: &str,
        is_refused: bool,
        time: f64,
    ) {
        let change = KeyChange {
            before: before.fingerprint().to_string(),
            after: after.fingerprint().to_string(),
            peer_name: peer_name.to_owned(),
            is_refused,
            time,
        };
        let is_known = |known: &KeyChange| {
            (&known.before, &known.after, known.is_refused)
                == (&change.before, &change.after, is_refused)
        };
        if self.changes.len() < MAX_CHANGES && !self.changes.iter().any(is_known) {
            self.changes.push(change);
        }
    }
}

/// Changes of keys that are remembered; a stream has few, and a trusted outlet may try many.
const MAX_CHANGES: usize = 16;

#[cfg(test)]
mod tests {
    use lsl_secure::SecretKey;

    use super::*;

    #[test]
    fn a_relay_is_named_by_its_key() {
        let [own, other] = [1, 2].map(|seed| SecretKey::from_seed(&[seed; 32]).public());
        let id = relay_id(&own);
        assert!(id.len() == 16 && id.bytes().all(|byte| byte.is_ascii_hexdigit()));
        let info = StreamInfo::new("lab2", "", 0, 0.0, crate::ChannelFormat::String, "");
        let info = info.unwrap();
        let says = |uid: &str, stream_type: &[u8]| Descriptor {
            uid: uid.as_bytes().to_vec(),
            stream_type: stream_type.to_vec(),
            ..descriptor(&info)
        };
        let relay = ExpectedIdentity::Relay { key: Some(own) };
        assert!(relay.is_relay() && relay.required_key() == Some(own));
        let check = |said: Descriptor, key: &PublicKey| {
            ExpectedIdentity::Relay { key: Some(*key) }.compare(&info, &said)
        };
        assert_eq!(check(says(&id, RELAY_TYPE), &own), None);
        let relay_id = Some(Mismatch::Field("relay id"));
        assert_eq!(check(says(&id, RELAY_TYPE), &other), relay_id);
        assert_eq!(check(says("", RELAY_TYPE), &own), relay_id);
        assert_eq!(
            check(says(&id, b"EEG"), &own),
            Some(Mismatch::Field("type"))
        );
    }

    #[test]
    fn a_pinned_key_is_not_replaced() {
        let [first, second] = [1, 2].map(|seed| SecretKey::from_seed(&[seed; 32]).public());
        let mut keys = PeerKeys {
            pins: true,
            ..PeerKeys::default()
        };
        assert_eq!(keys.accept(first, "amp", false, 0.0), Ok(None));
        assert_eq!(keys.pinned_against(first, "amp", false, 0.0), None);
        for _ in 0..3 {
            assert_eq!(
                keys.pinned_against(second, "spare", false, 0.0),
                Some(first)
            );
            // The handshake of the first one may end between check and acceptance.
            assert_eq!(keys.accept(second, "spare", false, 0.0), Err(first));
        }
        assert_eq!(keys.key, Some(first));
        let changes = &keys.changes;
        assert_eq!(changes.len(), 1, "{changes:?}");
        assert!(changes[0].is_refused && changes[0].peer_name == "spare");

        let mut keys = PeerKeys::default();
        assert_eq!(keys.accept(first, "amp", false, 0.0), Ok(None));
        assert_eq!(keys.pinned_against(second, "spare", true, 0.0), Some(first));
        assert_eq!(keys.accept(second, "spare", false, 0.0), Ok(Some(first)));
        let refused: Vec<_> = keys.changes.iter().map(|it| it.is_refused).collect();
        assert_eq!(refused, [true, false]);
        for seed in 3..60 {
            let other = SecretKey::from_seed(&[seed; 32]).public();
            keys.pinned_against(other, "x", true, 0.0);
        }
        assert_eq!(keys.changes.len(), MAX_CHANGES);
    }
}
