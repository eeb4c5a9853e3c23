//! What the system knows of a connection that is silent: whether samples are left to read, and whether the other end is
//! there. An outlet that pauses is left alone. Spec: doctor §2.4.

use std::io::ErrorKind;
use std::net::UdpSocket;
use std::time::Duration;

use lsl_platform::clock::local_clock;
use lsl_proto::inlet::recovery::Flow;
use socket2::TcpKeepalive;

use crate::drive_inlet::connection::Connection;
use crate::drive_inlet::shared::InletShared;
use crate::net::sockets::KEEPALIVE;

impl InletShared {
    /// Returns how the feed flows. Reads it before it says that nothing came.
    pub(super) fn flow(&self) -> Flow {
        let mut state = self.feed.lock();
        let flow = state.flow();
        if !flow.is_silent(local_clock()) || !self.owner.is_current() {
            return flow;
        }
        let arrived = state.drain();
        let flow = state.flow();
        let is_broken = state.disconnect.is_some();
        drop(state);
        if arrived {
            self.feed.wake();
            self.notify();
        }
        if is_broken {
            self.work.notify_one();
        }
        flow
    }

    /// Has the system ask the other end of the connection for a few seconds whether it is there; it ends one that is
    /// not. Returns false if the address of this end is gone, so that no answer could arrive.
    pub(super) async fn probe(&self) -> bool {
        let set = |keepalive| {
            let state = self.feed.lock();
            if let Some(stream) = state.connection.as_deref().and_then(Connection::stream) {
                // What cannot be asked faster is asked as ever.
                let _ = stream.set_keepalive(keepalive);
            }
        };
        set(&PROBING);
        if self.is_cut() {
            return false;
        }
        tokio::time::sleep(PROBE_LIMIT).await;
        set(&KEEPALIVE.with_retries(RETRIES));
        true
    }

    /// Returns whether the address of this end of the connection is gone.
    pub(super) fn is_cut(&self) -> bool {
        let state = self.feed.lock();
        let stream = state.connection.as_deref().and_then(Connection::stream);
        let own = stream.and_then(|stream| stream.local_addr().ok());
        drop(state);
        let Some(mut own) = own.filter(|own| own.port() != 0) else {
            return false;
        };
        own.set_port(0);
        let bound = UdpSocket::bind(own);
        bound.is_err_and(|error| error.kind() == ErrorKind::AddrNotAvailable)
    }
}

/// Ends a connection of which nobody answers, within the time after it.
const PROBING: TcpKeepalive = TcpKeepalive::new()
    .with_time(Duration::from_secs(1))
    .with_interval(Duration::from_secs(1))
    .with_retries(3);
const PROBE_LIMIT: Duration = Duration::from_secs(6);

/// What Linux does by itself.
const RETRIES: u32 = 9;
