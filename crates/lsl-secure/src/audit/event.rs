//! Events that an auditor reads, and their form as a line. Spec: LSS/1 §10.
//!
//! Texts are made safe here, once, before any sink sees them. Nothing here knows where they go.

use std::net::SocketAddr;
use std::time::Duration;

use lsl_platform::calendar::rfc3339_nanos;
use serde::Serialize;

use super::text::printable;
use crate::{Cause, Fingerprint, Policy, Role, SessionId, Suite};

/// Makes [`Event`] of its optional fields, with a setter for each.
macro_rules! event_fields {
    ($($(#[$doc:meta])+ $field:ident: $type:ty,)+) => {
        /// Security event for an auditor. Made with [`Event::new`] and the setters; fields that do not
        /// apply stay out. Texts from outside are made safe when the event is written.
        #[derive(Debug, Clone)]
        pub struct Event {
            pub(crate) kind: EventKind,
            $(pub(crate) $field: Option<$type>,)+
        }

        impl Event {
            /// Creates an event whose fields are all empty.
            pub fn new(kind: EventKind) -> Self {
                Self { kind, $($field: None,)+ }
            }

            $(
                $(#[$doc])+
                #[must_use]
                pub fn $field(mut self, value: impl Into<$type>) -> Self {
                    self.$field = Some(value.into());
                    self
                }
            )+
        }
    };
}

event_fields! {
    /// Sets the session that the event belongs to.
    session: SessionId,
    /// Sets the remote address of the peer.
    peer_addr: SocketAddr,
    /// Sets the fingerprint that the peer proved.
    peer: Fingerprint,
    /// Sets the peer's name in our trust file.
    peer_name: String,
    /// Sets the role of **this** side.
    role: Role,
    /// Sets the suite that seals the session's records.
    suite: Suite,
    /// Sets the policy that decided about the event.
    policy: Policy,
    /// Sets the `uid` of the stream.
    stream_uid: String,
    /// Sets the cause; the line names it with its code.
    cause: Cause,
    /// Sets the explanation in words; cut to 1024 bytes.
    detail: String,
    /// Sets the sums of a closed session.
    traffic: Traffic,
}

/// Sums of one session, for `session_closed`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Traffic {
    /// DATA bytes of both directions.
    pub bytes: u64,
    /// Number of records of both directions.
    pub records: u64,
    /// Seconds from the handshake to the end.
    pub duration_secs: f64,
    /// Whether it ended with CLOSE.
    pub clean: bool,
}

/// Makes [`EventKind`] of its variants and their names.
macro_rules! event_kinds {
    ($($kind:ident = $name:literal,)+) => {
        /// The name of an event.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        #[expect(
            missing_docs,
            reason = "LSS/1 §10, recorder.md §4 and relay.md §10 list them; the names say it"
        )]
        pub enum EventKind {
            $($kind,)+
        }

        impl EventKind {
            /// Returns the name in lines and log messages: `handshake_ok`.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$kind => $name,)+
                }
            }
        }
    };
}

event_kinds! {
    HandshakeOk = "handshake_ok",
    HandshakeFailed = "handshake_failed",
    PolicyRefused = "policy_refused",
    PlaintextAccepted = "plaintext_accepted",
    PlaintextRefused = "plaintext_refused",
    PeerAlert = "peer_alert",
    KeyUpdate = "key_update",
    SessionClosed = "session_closed",
    RecordAuthFailed = "record_auth_failed",
    TrustReloaded = "trust_reloaded",
    Revoked = "revoked",
    TimeStep = "time_step",
    TimeRttRise = "time_rtt_rise",
    TimeUncertain = "time_uncertain",
    PeerChanged = "peer_changed",
    TrustReloadFailed = "trust_reload_failed",
    LimitsHit = "limits_hit",
    SharedKeyMode = "shared_key_mode",
    ForceChacha20 = "force_chacha20",
    FileLocked = "file_locked",
    FileUnlocked = "file_unlocked",
    FileRotated = "file_rotated",
    FileVerified = "file_verified",
    FileFailed = "file_failed",
    RelayInsecure = "relay_insecure",
    EngineDenied = "engine_denied",
    StreamRefused = "stream_refused",
    LinkUp = "link_up",
    LinkDown = "link_down",
}

impl EventKind {
    /// Returns true for events that need attention: they are warnings in the log.
    pub fn is_warning(self) -> bool {
        !matches!(
            self,
            Self::HandshakeOk
                | Self::KeyUpdate
                | Self::SessionClosed
                | Self::TrustReloaded
                | Self::ForceChacha20
                | Self::FileLocked
                | Self::FileUnlocked
                | Self::FileRotated
                | Self::FileVerified
                | Self::LinkUp
                | Self::LinkDown
        )
    }

    /// Which of the [`RATED`] budgets it draws on, if anybody on the network can cause it at will.
    pub(super) fn rated(self) -> Option<usize> {
        RATED.iter().position(|kind| *kind == self)
    }
}

/// Events that a stranger, or somebody with no right to more, can cause as often as he likes. Each has its own budget of lines, so that
/// a flood of one hides none of another.
pub(super) const RATED: [EventKind; 7] = [
    EventKind::HandshakeFailed,
    EventKind::PolicyRefused,
    EventKind::PlaintextAccepted,
    EventKind::PlaintextRefused,
    // A refusal in place of M3 needs no key.
    EventKind::PeerAlert,
    EventKind::LimitsHit,
    EventKind::StreamRefused,
];

/// An event as the sinks see it: every text safe to print, every field its JSON form. The order of
/// the fields is that of a line.
#[derive(Debug, Clone, Serialize)]
pub(super) struct AuditEntry {
    #[serde(skip)]
    pub(super) kind: EventKind,
    pub(super) ts: String,
    pub(super) event: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) sid: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) peer_addr: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) peer_fp: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) peer_name: Option<String>,
    /// Only where there is a fingerprint to believe or not. All that are recorded today were proved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) claimed: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) role: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) suite: Option<&'static str>,
    /// Version of the protocol, if there is a session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) version: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) policy: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) stream_uid: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) code: Option<u8>,
    /// Beside `code`, because two causes may share one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cause: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) detail: Option<String>,
    #[serde(flatten)]
    pub(super) traffic: Option<Traffic>,
    /// Events of this kind since the last line of this kind that were only counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) suppressed: Option<u64>,
}

impl AuditEntry {
    /// `now` is the time since 1970 in UTC.
    pub(super) fn new(event: Event, now: Duration) -> Self {
        let safe = |text: String| printable(text.as_bytes());
        let in_session = event.session.is_some() || event.suite.is_some();
        Self {
            kind: event.kind,
            ts: rfc3339_nanos(now),
            event: event.kind.name(),
            sid: event.session.map(|id| id.to_string()),
            peer_addr: event.peer_addr.map(|address| address.to_string()),
            peer_fp: event.peer.map(|fingerprint| fingerprint.to_string()),
            peer_name: event.peer_name.map(safe),
            claimed: event.peer.map(|_| false),
            role: event.role.map(|role| match role {
                Role::Outlet => "outlet",
                Role::Inlet => "inlet",
            }),
            suite: event.suite.map(Suite::name),
            version: in_session.then_some(VERSION),
            policy: event.policy.map(Policy::name),
            stream_uid: event.stream_uid.map(safe),
            code: event.cause.map(Cause::code),
            cause: event.cause.map(Cause::name),
            detail: event
                .detail
                .map(|text| lsl_platform::terminal::printable(text.as_bytes(), MAX_DETAIL)),
            traffic: event.traffic,
            suppressed: None,
        }
    }

    /// Estimates the length of the line in bytes from its constant parts and its longer texts.
    pub(super) fn usual_len(&self) -> usize {
        let texts = [
            &self.sid,
            &self.peer_addr,
            &self.peer_fp,
            &self.peer_name,
            &self.stream_uid,
            &self.detail,
        ];
        let texts = texts.into_iter().flatten().map(String::len);
        USUAL_LEN + texts.sum::<usize>()
    }
}

/// Version of the protocol that this crate speaks.
const VERSION: u8 = 1;

/// Length of a line without texts from outside: times, names, and its place in its chain.
const USUAL_LEN: usize = 256;

/// Fits our own sentences with their quotations: a key and the command that adds it.
const MAX_DETAIL: usize = 1024;
