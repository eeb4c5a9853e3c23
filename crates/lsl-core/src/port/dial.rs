//! Connecting with the port of another relay. Spec: relay §3.1, §4.

use std::sync::Arc;
use std::time::Duration;

use lsl_proto::config::HostPort;
use lsl_proto::security::ExpectedIdentity;

use super::{DEFAULT_PORT, Peer};
use crate::drive_discovery::relays;
use crate::drive_inlet::peers::Peers;
use crate::drive_outlet::duplex::Duplex;
use crate::net::runtime::{self, AbortOnDrop};
use crate::{Context, Error, Result};

/// Connects with the port of the relay at `host[:port]`, in a session with a peer that the trust file has as a relay,
/// or in plaintext on this host if this program has no key. Sends `request`; what comes back is for the caller to
/// read. Takes at most `limit`. Dropping the future gives the connection up. Nothing is logged but the audit events.
///
/// # Errors
/// [`Error::Security`] with a text for people, [`Error::Io`], [`Error::Protocol`], [`Error::Timeout`];
/// [`Error::Argument`] if `host` is no host.
pub async fn dial(
    context: &Context,
    host: &str,
    limit: Duration,
    request: &[u8],
) -> Result<(Duplex, Peer)> {
    let HostPort { host, port } = host.parse().map_err(Error::Argument)?;
    let security = Arc::clone(context.security()?);
    let (context, request) = (context.clone(), request.to_vec());
    let dialling = async move {
        let relay = (&*host, port.unwrap_or(DEFAULT_PORT));
        // The caller knows best how often it tells people of failures.
        let peers = Arc::new(Peers::of_strangers());
        let expected = ExpectedIdentity::Link;
        let connecting = relays::connect(&context, relay, expected, &peers, &request);
        let connection = Box::pin(connecting).await?;
        Duplex::dialled(connection)
    };
    // Handshakes and sockets live on the threads of this crate.
    let dialling = runtime::spawn(tokio::time::timeout(limit, dialling))?;
    let dialled = (&mut AbortOnDrop(dialling).0).await;
    let dialled = dialled.map_err(|_| Error::Protocol("the runtime has ended".into()))?;
    let late = |_| Error::Timeout { operation: "dial" };
    let duplex = dialled.map_err(late)??;
    let connection = duplex.connection();
    let closed = || Error::Protocol("the connection is closed".into());
    let peer = Peer::of(connection.ok_or_else(closed)?, &security)?;
    Ok((duplex, peer))
}
