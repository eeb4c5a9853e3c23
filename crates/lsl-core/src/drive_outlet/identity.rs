//! Who accepts connections: the stream that the DESCRIPTOR of every session describes, and whom it lets in. An
//! outlet has one identity, the port of a relay has one for all the streams behind it. Spec: LSS/1 §4.2, §7.4.

use std::net::SocketAddr;
use std::sync::Arc;

use lsl_proto::describe;
use lsl_proto::outlet::connection as proto;
use lsl_proto::security::connection_event;
use lsl_secure::audit::{self, EventKind};
use lsl_secure::{Descriptor, Local, Policy, Role, Security};

use crate::context::Context;
use crate::drive_outlet::connection::Connection;
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

    /// Returns a fresh connection as one that expects the requests that are answered here.
    pub(crate) fn expecting(&self, machine: proto::Connection) -> proto::Connection {
        if self.is_port {
            machine.for_port()
        } else {
            machine
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
}
