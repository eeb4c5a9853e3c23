//! Who answers for the streams of a relay, and whom. Spec: relay §3.

use std::net::SocketAddr;
use std::sync::Arc;

use lsl_proto::wire::request::PortRequest;
use lsl_proto::wire::sequence::ReplayFrom;
use lsl_secure::{Cause, PublicKey, Security};
use tokio::sync::Semaphore;

#[cfg(doc)]
use super::{Port, offer::Offer};
use crate::drive_inlet::handshake::may_link;
use crate::drive_outlet::connection::Connection;
use crate::drive_outlet::duplex::Duplex;
use crate::drive_outlet::origin::StreamClock;
use crate::drive_outlet::past::Served;
use crate::{Error, Result};

/// Answers the requests that come in at a [`Port`], and those for feeds that come in at an [`Offer`]. All of it runs on the threads of this crate: what takes long is
/// for tasks of the implementor.
pub trait Handler: Send + Sync + 'static {
    /// Returns the outlet of a stream, once it can be read: made by [`OutletBuilder::relayed`], and held by the
    /// implementor as long as it shall be served; and what is kept of the stream elsewhere, if the peer may need it. `from` is where the peer wants to begin.
    /// Dropped where the peer leaves, or after 15 s.
    ///
    /// [`OutletBuilder::relayed`]: crate::OutletBuilder::relayed
    ///
    /// # Errors
    /// What the peer is told.
    fn stream(
        &self,
        uid: &[u8],
        from: Option<ReplayFrom>,
        peer: &Peer,
    ) -> impl Future<Output = Result<Served, Refused>> + Send;

    /// Returns the short info of the matching stream with the smallest uid, or nothing.
    fn shortinfo(&self, query: &[u8], peer: &Peer) -> Vec<u8>;

    /// Returns the full info of a stream; `None` if there is none that this peer may read.
    fn fullinfo(&self, uid: &[u8], peer: &Peer) -> Option<Vec<u8>>;

    /// Returns the clock of a stream, for one who asks for nothing else; `None` if there is none that this peer
    /// may read.
    fn clock(&self, uid: &[u8], peer: &Peer) -> Option<Arc<StreamClock>>;

    /// Serves a request to watch, to link or for the status. What it returns is awaited on a thread of this crate
    /// and dropped with the port.
    fn serve(
        &self,
        request: PortRequest,
        peer: Peer,
        duplex: Duplex,
    ) -> impl Future<Output = ()> + Send;

    /// Is told of a refusal that is none of its own: of plaintext, or beyond the connections that are served.
    fn refused(&self, _cause: Cause) {}
}

/// Peer of a connection, as far as it is known.
#[derive(Debug, Clone)]
pub struct Peer {
    /// Address of the peer.
    pub address: SocketAddr,
    /// Address of our end of the connection.
    pub local: SocketAddr,
    /// Key that it has proved to own, and its name in our trust file; `None` in plaintext.
    pub trusted: Option<(PublicKey, String)>,
    /// Number of the link through which its request came; `None` for connections with the port.
    pub link: Option<u64>,
    /// Whether it may link with this relay: by its role in the trust file, or as a program on this machine.
    pub is_relay: bool,
    /// Places for answers that are whole documents. Clones share them, as substreams of a link do, each of which may
    /// leave its answer unread.
    pub(crate) documents: Arc<Semaphore>,
}

/// Reason for which a stream is not served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// Unknown, gone, or not for this peer, which cannot tell the difference.
    NotFound,
    /// Beyond a limit; the peer may try again.
    Busy,
}

impl Peer {
    pub(crate) fn of(connection: &Connection, security: &Security) -> Result<Self> {
        let link = connection.link();
        let local = connection.stream.local_addr();
        Ok(Self {
            address: link.peer,
            local: local.map_err(|source| Error::io("connection", source))?,
            trusted: link
                .session()
                .map(|session| (session.peer(), session.peer_name().to_owned())),
            link: None,
            is_relay: match &link.key {
                Some(key) => may_link(security, key),
                None => is_loopback(&link.peer),
            },
            documents: Arc::new(Semaphore::new(MOST_DOCUMENTS)),
        })
    }

    /// Returns a peer at this address that has proved nothing.
    pub fn unknown(address: SocketAddr) -> Self {
        Self {
            address,
            local: address,
            trusted: None,
            link: None,
            is_relay: false,
            documents: Arc::new(Semaphore::new(MOST_DOCUMENTS)),
        }
    }

    /// Whether it is a program on this machine that reads in plaintext.
    pub fn is_local(&self) -> bool {
        self.trusted.is_none() && is_loopback(&self.address)
    }
}

pub(crate) fn is_loopback(address: &SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}

/// Whole documents on their way to one peer at a time.
const MOST_DOCUMENTS: usize = 2;
