//! Who accepts connections: the stream that the DESCRIPTOR of every session describes, and whom it lets in. An
//! outlet has one identity, the port of a relay has one for all the streams behind it. Spec: LSS/1 §4.2, §7.4.

use std::net::{Shutdown, SocketAddr};
use std::sync::Arc;

use lsl_proto::describe;
use lsl_proto::outlet::connection as proto;
use lsl_proto::outlet::request::{Permission, Refused, plaintext_permission};
use lsl_proto::security::connection_event;
use lsl_proto::wire::request::Request;
use lsl_secure::audit::{self, EventKind};
use lsl_secure::{Cause, Descriptor, Local, Policy, Role, Security, SessionGuard};

use crate::context::Context;
use crate::drive_outlet::connection::Connection;
use crate::drive_outlet::link::Link;
use crate::drive_outlet::origin::StreamClock;
use crate::net::trust_watch;
use crate::stats::Counter;
use crate::{Result, StreamInfo};

/// What is the same for every connection that is accepted at one place.
#[derive(Debug)]
pub(crate) struct Identity {
    pub(crate) context: Context,
    pub(crate) info: StreamInfo,
    /// Who we are and whom we let in.
    pub(crate) security: Arc<Security>,
    /// What the DESCRIPTOR of every session says.
    pub(crate) descriptor: Arc<Descriptor>,
    /// Connections that were refused or failed before they were answered.
    pub(crate) refused: Counter,
    /// Leads to many streams. Spec: relay §3.
    pub(crate) is_port: bool,
    /// Clock in which peers are answered, if it is not ours. Spec: relay §7.
    pub(crate) clock: Option<Arc<StreamClock>>,
}

/// Takes the connections of a listener; clones are handles to the same one.
pub(crate) trait Accept: Clone + Send + Sync + 'static {
    /// Returns who accepts them.
    fn identity(&self) -> &Identity;

    /// Awaits the request of a connection and answers it. A feed goes on in a task of its own.
    fn answer(&self, connection: Connection) -> impl Future<Output = Result<()>> + Send;
}

impl Identity {
    /// # Errors
    /// [`Error::Security`](crate::Error::Security) if the security configuration cannot be used.
    pub(crate) fn new(context: Context, info: StreamInfo) -> Result<Self> {
        let descriptor = describe::descriptor(&describe::as_received(&info));
        Ok(Self {
            security: Arc::clone(context.security()?),
            context,
            info,
            descriptor: Arc::new(descriptor),
            refused: Counter::default(),
            is_port: false,
            clock: None,
        })
    }

    /// # Errors
    /// As [`new`](Self::new).
    pub(crate) fn of_port(context: Context, info: StreamInfo) -> Result<Self> {
        let identity = Self::new(context, info)?;
        Ok(Self {
            is_port: true,
            ..identity
        })
    }

    /// # Errors
    /// As [`new`](Self::new).
    pub(crate) fn with_clock(
        context: Context,
        info: StreamInfo,
        clock: Arc<StreamClock>,
    ) -> Result<Self> {
        let identity = Self::new(context, info)?;
        Ok(Self {
            clock: Some(clock),
            ..identity
        })
    }

    /// Returns a fresh connection as one that expects the requests that are answered here.
    pub(crate) fn expecting(&self, machine: proto::Connection) -> proto::Connection {
        match (self.is_port, &self.clock) {
            (true, _) => machine.for_port(),
            (false, Some(_)) => machine.for_another_clock(),
            (false, None) => machine,
        }
    }

    /// Returns what this side brings into sessions, whose connections the limits of the process count. `None` if
    /// there is no encryption: their number is for the acceptor to limit. To a port a key is enough.
    pub(crate) fn sessions(&self) -> Option<Arc<Local>> {
        if self.security.policy() == Policy::Off && !self.is_port {
            return None;
        }
        self.security.local().cloned()
    }

    /// Builds an event of a connection without a session.
    pub(crate) fn event(&self, kind: EventKind, peer: SocketAddr) -> audit::Event {
        connection_event(kind, Role::Outlet, self.security.policy(), peer, &self.info)
    }

    /// Records an event.
    pub(crate) fn audit(&self, event: audit::Event) {
        self.security.audit().record(event);
    }

    /// Returns what the peer of a request in plaintext is told that is refused; `None` if it is answered.
    pub(crate) fn refused_plaintext(
        self: &Arc<Self>,
        link: &Arc<Link>,
        request: &Request,
    ) -> Option<&'static [u8]> {
        let plaintext = |kind, method| self.event(kind, link.peer).detail(method);
        let policy = self.security.policy();
        let Refused { method, text } = match plaintext_permission(policy, request) {
            Permission::Granted => return None,
            Permission::Denied(refused) => refused,
            Permission::Migrating(refused) => {
                if let Some(enrolled) = self.register_plaintext(link) {
                    // A connection asks for one feed.
                    let _ = link.plaintext.set(enrolled);
                    trust_watch::watch(&self.security);
                    self.audit(plaintext(EventKind::PlaintextAccepted, refused.method));
                    return None;
                }
                refused
            }
        };
        let refused = plaintext(EventKind::PlaintextRefused, method);
        self.audit(refused.cause(Cause::PlaintextRefused));
        self.refused.add(1);
        Some(text)
    }

    /// Makes a plaintext connection end when `migrate` does; `None` if that is over by now.
    fn register_plaintext(self: &Arc<Self>, link: &Arc<Link>) -> Option<SessionGuard> {
        let (connection, identity) = (Arc::downgrade(link), Arc::downgrade(self));
        let end = move || {
            if let (Some(link), Some(identity)) = (connection.upgrade(), identity.upgrade()) {
                let event = identity.event(EventKind::PlaintextRefused, link.peer);
                let event = event.cause(Cause::PlaintextRefused);
                identity.audit(event.detail("migrate_until has passed; the reader is cut off"));
                link.shut_down(Shutdown::Both);
            }
        };
        self.security.register_plaintext(end).ok()
    }
}
