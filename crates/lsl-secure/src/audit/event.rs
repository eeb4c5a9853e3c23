//! Events that an auditor reads. Spec: LSS/1 §10. Nothing here knows where they go.

use std::net::SocketAddr;
use std::time::Duration;

use super::span::Span;
use crate::handshake::{TimedStep, Trail};
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

            /// Returns what kind of event it is.
            pub fn kind(&self) -> EventKind {
                self.kind
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
    /// Sets the tree that the event belongs to.
    span: Span,
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
    /// Sets how long the operation took that ends with the event.
    took: Duration,
    /// Sets the steps of the handshake that the event ends.
    steps: Vec<TimedStep>,
    /// Sets the sums of a closed session.
    traffic: Traffic,
    /// Sets what only few kinds of events have.
    more: Vec<(&'static str, Extra)>,
}

/// Value of a field that only few kinds of events have. Texts are made safe when the event is written.
#[derive(Debug, Clone)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Extra {
    Number(u64),
    Truth(bool),
    Text(String),
    Texts(Vec<String>),
}

impl From<u64> for Extra {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

impl From<bool> for Extra {
    fn from(truth: bool) -> Self {
        Self::Truth(truth)
    }
}

impl From<&str> for Extra {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<Vec<String>> for Extra {
    fn from(texts: Vec<String>) -> Self {
        Self::Texts(texts)
    }
}

/// Sums of one session, for `session_closed`.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
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
    DowngradeRefused = "downgrade_refused",
    KeyMade = "key_made",
    TrustChanged = "trust_changed",
    RecordingBegun = "recording_begun",
    RecordingEnded = "recording_ended",
    LogOpened = "log_opened",
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
                | Self::KeyMade
                | Self::TrustChanged
                | Self::RecordingBegun
                | Self::RecordingEnded
                | Self::LogOpened
        )
    }

    /// Which of the [`RATED`] budgets it draws on, if anybody on the network can cause it at will.
    pub(super) fn rated(self) -> Option<usize> {
        RATED.iter().position(|kind| *kind == self)
    }
}

/// Events that a stranger, or somebody with no right to more, can cause as often as he likes. Each has its own budget of lines, so that
/// a flood of one hides none of another.
pub(super) const RATED: [EventKind; 8] = [
    EventKind::HandshakeFailed,
    EventKind::PolicyRefused,
    EventKind::PlaintextAccepted,
    EventKind::PlaintextRefused,
    // A refusal in place of M3 needs no key.
    EventKind::PeerAlert,
    EventKind::LimitsHit,
    EventKind::StreamRefused,
    EventKind::DowngradeRefused,
];

/// An event with its time, and with what was left out before it.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) event: Event,
    /// Time since 1970 in UTC.
    pub(super) utc: Duration,
    /// Events of this kind since the last line of this kind that were only counted.
    pub(super) suppressed: Option<u64>,
}

impl Event {
    /// Sets tree, time and steps of the handshake that ends with the event.
    #[must_use]
    pub fn trail(self, trail: &Trail, now: f64) -> Self {
        let took = Duration::try_from_secs_f64(now - trail.begun);
        let event = self.span(trail.span()).took(took.unwrap_or_default());
        event.steps(trail.steps())
    }

    /// Adds a field that only few kinds of events have; `key` is no name of another field.
    #[must_use]
    pub fn with(mut self, key: &'static str, value: impl Into<Extra>) -> Self {
        let more = self.more.get_or_insert_default();
        more.push((key, value.into()));
        self
    }

    /// Version of the protocol, if there is a session.
    pub(super) fn version(&self) -> Option<u8> {
        (self.session.is_some() || self.suite.is_some()).then_some(VERSION)
    }

    /// Whether the fingerprint is only claimed, where there is one. All that are recorded today were
    /// proved.
    pub(super) fn claimed(&self) -> Option<bool> {
        self.peer.map(|_| false)
    }
}

/// Name of a role in lines and log messages.
pub(super) fn role_name(role: Role) -> &'static str {
    match role {
        Role::Outlet => "outlet",
        Role::Inlet => "inlet",
    }
}

/// Version of the protocol that this crate speaks.
const VERSION: u8 = 1;
