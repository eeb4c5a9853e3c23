//! Security events, as `tracing` events and as append-only JSON lines. Spec: LSS/1 §10.

use std::net::SocketAddr;

use crate::{Cause, Fingerprint, Role, SessionId, Suite};

/// Something that an auditor wants to know. Made with [`Event::new`] and the setters; fields that do
/// not apply stay out. Texts from outside are made safe when the event is written.
#[derive(Debug, Clone)]
pub struct Event {
    pub(crate) kind: EventKind,
    pub(crate) session: Option<SessionId>,
    pub(crate) peer_addr: Option<SocketAddr>,
    pub(crate) peer: Option<Fingerprint>,
    pub(crate) peer_name: Option<String>,
    pub(crate) claimed: bool,
    pub(crate) role: Option<Role>,
    pub(crate) suite: Option<Suite>,
    pub(crate) policy: Option<crate::Policy>,
    pub(crate) stream_uid: Option<String>,
    pub(crate) cause: Option<Cause>,
    pub(crate) detail: Option<String>,
    pub(crate) traffic: Option<Traffic>,
}

/// What a session carried, for `session_closed`.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Traffic {
    /// DATA bytes of both directions.
    pub bytes: u64,
    /// Records of both directions.
    pub records: u64,
    /// How long it lived.
    pub duration_secs: f64,
    /// Whether it ended with CLOSE.
    pub clean: bool,
}

/// The name of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[expect(missing_docs, reason = "LSS/1 §10 lists them; the names say it")]
pub enum EventKind {
    HandshakeOk,
    HandshakeFailed,
    PolicyRefused,
    PlaintextAccepted,
    PlaintextRefused,
    PeerAlert,
    KeyUpdate,
    SessionClosed,
    RecordAuthFailed,
    TrustReloaded,
    Revoked,
    TimeStep,
    TimeRttRise,
    TimeUncertain,
    PeerChanged,
    TrustReloadFailed,
    LimitsHit,
    SharedKeyMode,
    ForceChacha20,
}

impl Event {
    /// An event without fields.
    pub fn new(kind: EventKind) -> Self {
        Self {
            kind,
            session: None,
            peer_addr: None,
            peer: None,
            peer_name: None,
            claimed: false,
            role: None,
            suite: None,
            policy: None,
            stream_uid: None,
            cause: None,
            detail: None,
            traffic: None,
        }
    }

    /// The session.
    #[must_use]
    pub fn session(mut self, id: SessionId) -> Self {
        self.session = Some(id);
        self
    }

    /// Where the peer is.
    #[must_use]
    pub fn peer_addr(mut self, address: SocketAddr) -> Self {
        self.peer_addr = Some(address);
        self
    }

    /// The authenticated peer.
    #[must_use]
    pub fn peer(mut self, fingerprint: Fingerprint) -> Self {
        self.peer = Some(fingerprint);
        self.claimed = false;
        self
    }

    /// Whom somebody not authenticated claims to be.
    #[must_use]
    pub fn claimed_peer(mut self, fingerprint: Fingerprint) -> Self {
        self.peer = Some(fingerprint);
        self.claimed = true;
        self
    }

    /// The peer's name in our trust file.
    #[must_use]
    pub fn peer_name(mut self, name: impl Into<String>) -> Self {
        self.peer_name = Some(name.into());
        self
    }

    /// The role of **this** side.
    #[must_use]
    pub fn role(mut self, role: Role) -> Self {
        self.role = Some(role);
        self
    }

    /// The suite in use.
    #[must_use]
    pub fn suite(mut self, suite: Suite) -> Self {
        self.suite = Some(suite);
        self
    }

    /// The policy that decided.
    #[must_use]
    pub fn policy(mut self, policy: crate::Policy) -> Self {
        self.policy = Some(policy);
        self
    }

    /// The stream.
    #[must_use]
    pub fn stream_uid(mut self, uid: impl Into<String>) -> Self {
        self.stream_uid = Some(uid.into());
        self
    }

    /// Why.
    #[must_use]
    pub fn cause(mut self, cause: Cause) -> Self {
        self.cause = Some(cause);
        self
    }

    /// What exactly, in words.
    #[must_use]
    pub fn detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = Some(detail.into());
        self
    }

    /// What was carried.
    #[must_use]
    pub fn traffic(mut self, traffic: Traffic) -> Self {
        self.traffic = Some(traffic);
        self
    }
}

/// Where events go. Never blocks; a full queue counts what it drops.
#[derive(Debug, Default)]
pub struct Audit {
    _todo: (),
}

impl Audit {
    /// Records an event: a `tracing` event (target `lsl_secure::audit`), and a line of the file.
    /// Failures of handshakes beyond 10 a second are counted, not written.
    pub fn record(&self, _event: Event) {
        unimplemented!()
    }

    /// Lines that did not fit into the queue or could not be written.
    pub fn dropped(&self) -> u64 {
        unimplemented!()
    }
}

/// Makes text from outside safe to print, log and store: at most 256 bytes, invalid UTF-8 replaced,
/// control and bidirectional-override characters escaped. Spec: LSS/1 §10.
pub fn printable(_text: &[u8]) -> String {
    unimplemented!()
}
