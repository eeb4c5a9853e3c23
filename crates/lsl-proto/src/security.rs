//! Audit events of sessions: the one place that builds them, for both roles. Spec: LSS/1 §10.

use std::net::SocketAddr;
use std::sync::Arc;

use lsl_secure::audit::{Event, EventKind, Traffic};
use lsl_secure::{Cause, Error, Role, SessionInfo, Totals};

/// Builds the audit events of one session.
#[derive(Debug, Clone)]
pub struct SessionEvents {
    info: Arc<SessionInfo>,
    role: Role,
    peer: SocketAddr,
    stream_uid: String,
}

impl SessionEvents {
    /// `role` is ours, `peer` the address of the other side.
    pub fn new(info: Arc<SessionInfo>, role: Role, peer: SocketAddr, stream_uid: String) -> Self {
        Self {
            info,
            role,
            peer,
            stream_uid,
        }
    }

    /// Returns what is known of the session.
    pub fn info(&self) -> &SessionInfo {
        &self.info
    }

    /// Returns the address of the other side.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Builds an event of this session.
    pub fn event(&self, kind: EventKind) -> Event {
        Event::new(kind)
            .session(self.info.id)
            .peer_addr(self.peer)
            .peer(self.info.peer.fingerprint())
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
