//! The port of a relay: one TCP port, under one identity, that serves many streams. Spec: relay §3.

pub(crate) mod dial;
pub(crate) mod handler;
pub(crate) mod offer;
mod passing;

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use lsl_platform::clock::local_clock;
use lsl_proto::outlet::connection::{self as proto, Event, Stage};
use lsl_proto::outlet::request::{Feed, Reply};
use lsl_proto::wire::request::{
    FIRST_VERSION_WITH_HEADERS, PROTOCOL_VERSION, PortRequest, Request,
};
use lsl_proto::wire::response::Refusal;
use lsl_secure::audit::EventKind;
use lsl_secure::policy::REFUSAL_403;
use lsl_secure::{Cause, Policy};
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;

use crate::byte_stream::ByteStream;
use crate::byte_stream::substream::Substream;
use crate::drive_outlet::connection::Connection;
use crate::drive_outlet::duplex::Duplex;
use crate::drive_outlet::identity::{Accept, Identity};
use crate::drive_outlet::origin::StreamClock;
use crate::drive_outlet::past::Served;
use crate::drive_outlet::{listen, refusal};
use crate::net::scope::Scope;
use crate::net::sockets;
use crate::net::{runtime, uid};
use crate::{ChannelFormat, Context, Error, Result, StreamInfo};
use handler::{Handler, Peer, is_loopback};
use passing::{find, lend_keys, negotiate, unknown};

/// Settings of a [`Port`].
#[derive(Debug, Clone)]
pub struct PortOptions {
    /// Addresses to listen at; port 0 leaves it to the system. Spec: relay §3 on plaintext.
    pub listen: Vec<SocketAddr>,
    /// More of them, where plaintext is answered from anywhere.
    pub insecure: Vec<SocketAddr>,
    /// Relay id: 16 lower-case hex digits.
    pub id: String,
    /// Name of the relay, for people.
    pub name: String,
    /// Connections that are served at a time.
    pub most_connections: usize,
}

/// The open port of a relay. Dropping it refuses new connections and ends those whose requests a
/// [`Handler`] serves; feeds end with their outlets.
pub struct Port {
    addresses: Vec<SocketAddr>,
    tasks: Vec<AbortHandle>,
    places: Arc<Semaphore>,
    /// Limit that `places` has, or will have once enough connections ended.
    most_connections: AtomicUsize,
    scope: Scope,
    answer: Answer,
}

/// Answers a request that came through a link.
type Answer = Box<dyn Fn(Arc<dyn Substream>, Vec<u8>, Peer) + Send + Sync>;

/// Default TCP port of a relay. Spec: relay §1.
pub const DEFAULT_PORT: u16 = 16570;

impl Port {
    /// Listens at all addresses, for as long as the port is held.
    ///
    /// # Errors
    /// [`Error::Io`] if one cannot be bound; [`Error::Security`] beyond loopback without a device key, for insecure
    /// addresses where the policy is `required`, and if the security configuration cannot be used;
    /// [`Error::Argument`] for an empty name.
    pub fn open(context: &Context, options: &PortOptions, handler: impl Handler) -> Result<Self> {
        let security = context.security()?;
        if security.local().is_none() && !options.listen.iter().all(is_loopback) {
            let text =
                "no device key: relays listen beyond loopback only with one; run: lsl key init";
            return Err(Error::Security(text.into()));
        }
        if security.policy() == Policy::Required && !options.insecure.is_empty() {
            let text = "this machine's policy is required: no address of a relay may be insecure";
            return Err(Error::Security(text.into()));
        }
        let scope = Scope::default();
        let most_connections = options.most_connections.min(MOST_PLACES);
        let places = Arc::new(Semaphore::new(most_connections));
        let shared = Arc::new(Shared {
            identity: Identity::of_port(context.clone(), describe(context, options)?)?,
            handler,
            places: Arc::clone(&places),
            scope: scope.clone(),
        });
        let mut listeners = Vec::new();
        let of_links = Face {
            shared: Arc::clone(&shared),
            is_insecure: false,
        };
        let mut port = Self {
            addresses: Vec::new(),
            tasks: Vec::new(),
            places,
            most_connections: AtomicUsize::new(most_connections),
            scope,
            answer: Box::new(move |substream, request, peer| {
                let serving = of_links.clone().serve(substream, request, peer);
                of_links.shared.scope.spawn(serving);
            }),
        };
        let insecure = options.insecure.iter().map(|address| (address, true));
        for (&address, is_insecure) in
            (options.listen.iter().map(|address| (address, false))).chain(insecure)
        {
            let failed = |source| Error::io(format!("cannot listen at {address}"), source);
            let listener = sockets::tcp_acceptor_at(address).map_err(failed)?;
            port.addresses.push(listener.local_addr().map_err(failed)?);
            listeners.push((sockets::into_tokio_listener(listener)?, is_insecure));
        }
        for (listener, is_insecure) in listeners {
            let face = Face {
                shared: Arc::clone(&shared),
                is_insecure,
            };
            let accepting = listen::accept(listener, face);
            port.tasks.push(runtime::spawn(accepting)?.abort_handle());
        }
        Ok(port)
    }

    /// Returns the addresses in the order of the options, with the ports that the system chose.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Answers the request with which the peer of a link opened a substream, as if it had come inside a session of
    /// that peer at the port. Links count their substreams themselves: these have no place among the connections.
    /// Does not block. Spec: relay §4.2.
    pub fn serve(&self, substream: Arc<dyn Substream>, request: Vec<u8>, peer: Peer) {
        (self.answer)(substream, request, peer);
    }

    /// Changes how many connections are served at a time. Those that are too many by then go on to their ends.
    pub fn set_most_connections(&self, most: usize) {
        let most = most.min(MOST_PLACES);
        let before = self.most_connections.swap(most, Ordering::Relaxed);
        if most >= before {
            return self.places.add_permits(most - before);
        }
        let owed = before - most - self.places.forget_permits(before - most);
        let places = Arc::clone(&self.places);
        // Who waits is served before new connections; without a runtime nobody connects.
        let _ = runtime::spawn(async move {
            if let Ok(owed) = places
                .acquire_many(u32::try_from(owed).unwrap_or(u32::MAX))
                .await
            {
                owed.forget();
            }
        });
    }
}

impl fmt::Debug for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Port")
            .field("addresses", &self.addresses)
            .finish_non_exhaustive()
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
        self.scope.close();
    }
}

/// Returns the stream that the DESCRIPTOR of a port describes. Spec: relay §3.1.
fn describe(context: &Context, options: &PortOptions) -> Result<StreamInfo> {
    let PortOptions { id, name, .. } = options;
    let mut info = StreamInfo::new(
        name.as_str(),
        "lsl-relay",
        0,
        0.0,
        ChannelFormat::String,
        id.as_str(),
    )?;
    info.reset_uid(id);
    info.set_created_at(local_clock());
    info.set_session_id(context.config().lab().session_id.as_str());
    info.set_hostname(uid::hostname());
    Ok(info)
}

#[derive(Debug)]
struct Shared<H> {
    identity: Identity,
    handler: H,
    places: Arc<Semaphore>,
    /// Closed with the port.
    scope: Scope,
}

/// One address of a port.
#[derive(Debug)]
struct Face<H> {
    shared: Arc<Shared<H>>,
    is_insecure: bool,
}

impl<H> Clone for Face<H> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            is_insecure: self.is_insecure,
        }
    }
}

impl<H: Handler> Accept for Face<H> {
    fn identity(&self) -> &Identity {
        &self.shared.identity
    }

    async fn answer(&self, connection: Connection) -> Result<()> {
        let peer = Peer::of(&connection, &self.identity().security)?;
        self.answer_to(peer, connection).await
    }
}

impl<H: Handler> Face<H> {
    /// Answers a request that came through a link.
    async fn serve(self, substream: Arc<dyn Substream>, mut request: Vec<u8>, peer: Peer) {
        let mut stream = ByteStream::substream(substream);
        let mut machine = proto::Connection::new(false, local_clock()).for_port();
        let answering = async {
            stream
                .register()
                .map_err(|source| Error::io("link", source))?;
            let mut rest = &mut request[..];
            while !rest.is_empty() {
                let most = rest.len().min(machine.max_read());
                let (part, later) = std::mem::take(&mut rest).split_at_mut(most);
                machine.handle_input(part, local_clock())?;
                rest = later;
                // Links come inside a session, and nobody asks for one in it.
                if machine.stage() == Stage::Hello {
                    return Err(unknown());
                }
            }
            let key = peer.trusted.as_ref().map(|(key, _)| *key);
            let connection = Connection::through_link(stream, peer.address, machine, key);
            Box::pin(self.answer_to(peer, connection)).await
        };
        if let Err(error) = answering.await {
            self.shared.identity.refused.add(1);
            tracing::debug!(%error, "substream ended");
        }
    }

    async fn answer_to(&self, peer: Peer, mut connection: Connection) -> Result<()> {
        let next = match self.reply(&mut connection, peer).await {
            Ok(next) => next,
            Err(error) => {
                if connection.link().session().is_some() {
                    connection.close().await;
                }
                return Err(error);
            }
        };
        match next {
            Next::Done => {}
            Next::Hold(text) => refusal::hold_open(connection, text),
            Next::Feed(Served { outlet, past }, feed) => {
                let info = &outlet.shared.identity.info;
                let joined = outlet.shared.join(connection, &feed, info, past);
                if let Err((mut connection, refusal)) = joined {
                    let refused = self.refused(refusal);
                    return connection.finish(&refused).await;
                }
            }
            Next::TimeKeys(clock) => self.shared.scope.spawn(lend_keys(connection, clock)),
            Next::Serve(request, peer) => {
                let shared = Arc::clone(&self.shared);
                let duplex = Duplex::new(connection);
                let serving = async move { shared.handler.serve(request, peer, duplex).await };
                self.shared.scope.spawn(serving);
            }
        }
        Ok(())
    }

    async fn reply(&self, connection: &mut Connection, peer: Peer) -> Result<Next> {
        let Shared {
            identity,
            handler,
            places,
            ..
        } = &*self.shared;
        let Event::Request(request) = connection.event().await? else {
            return Err(unknown());
        };
        if peer.trusted.is_none() && !self.is_insecure && !is_loopback(&peer.address) {
            let refused = identity.event(EventKind::PlaintextRefused, peer.address);
            identity.audit(refused.cause(Cause::PlaintextRefused));
            identity.refused.add(1);
            handler.refused(Cause::PlaintextRefused);
            return Ok(Next::Hold(match request {
                Request::StreamFeed { .. } => REFUSAL_403,
                _ => b"",
            }));
        }
        if peer.link.is_none() {
            let Ok(place) = Arc::clone(places).try_acquire_owned() else {
                let limit = identity.event(EventKind::LimitsHit, peer.address);
                let limit = limit.cause(Cause::Busy);
                identity.audit(limit.detail("connections that a relay serves"));
                handler.refused(Cause::Busy);
                let refused = self.refused(Refusal::RelayLimit);
                connection.finish(&refused).await?;
                return Ok(Next::Done);
            };
            connection.hold(place);
        }
        let bytes = match request {
            Request::ShortInfo { query } => handler.shortinfo(&query, &peer),
            Request::Port(PortRequest::FullInfo { uid }) => {
                // Held until it is sent. Nobody closes them.
                let _place = peer.documents.acquire().await;
                let found = handler.fullinfo(&uid, &peer);
                let bytes = found.unwrap_or_else(|| self.refused(Refusal::NotFound));
                connection.finish(&bytes).await?;
                return Ok(Next::Done);
            }
            Request::Port(PortRequest::TimeKeys { uid })
                if peer.trusted.is_some() || peer.link.is_some() =>
            {
                match handler.clock(&uid, &peer) {
                    Some(clock) => {
                        if peer.link.is_some() {
                            // No PING follows: the directory of the link has the answers.
                            clock.ask();
                        }
                        return Ok(Next::TimeKeys(clock));
                    }
                    None => self.refused(Refusal::NotFound),
                }
            }
            // There are no keys to lend.
            Request::Port(PortRequest::TimeKeys { .. }) => return Err(unknown()),
            Request::Port(request) => return Ok(Next::Serve(request, peer)),
            Request::StreamFeed {
                version, ref uid, ..
            } if version >= FIRST_VERSION_WITH_HEADERS && !uid.is_empty() => {
                match self.feed(connection, &request, uid, &peer).await? {
                    Ok(next) => return Ok(next),
                    Err(bytes) => bytes,
                }
            }
            _ => return Err(unknown()),
        };
        connection.finish(&bytes).await?;
        Ok(Next::Done)
    }

    /// Negotiates a feed, or returns what its peer is told instead.
    async fn feed(
        &self,
        connection: &mut Connection,
        request: &Request,
        uid: &[u8],
        peer: &Peer,
    ) -> Result<Result<Next, Vec<u8>>> {
        let Shared {
            identity, handler, ..
        } = &*self.shared;
        let served = match find(handler, connection, request, uid, peer).await? {
            Ok(served) => served,
            Err(refusal) => return Ok(Err(self.refused(refusal))),
        };
        let shared = &served.outlet.shared;
        if let Some((key, _)) = &peer.trusted {
            let (remote, local) = (peer.address.ip(), peer.local.ip());
            let descriptor = &shared.identity.descriptor;
            // What the trust file keeps from a peer, no relay gives it.
            let admitted = (identity.security).admits_stream(key, remote, local, descriptor);
            if admitted.is_err() {
                return Ok(Err(self.refused(Refusal::NotFound)));
            }
        }
        let shown = (&shared.identity.info, &*shared.shown.shortinfo);
        Ok(match negotiate(&served, shown, connection, request)? {
            Reply::Feed(feed) => Ok(Next::Feed(served, feed)),
            Reply::Bytes(bytes) => Err(bytes),
            Reply::Refusal(refusal) => Err(self.refused(refusal)),
        })
    }

    fn refused(&self, refusal: Refusal) -> Vec<u8> {
        self.shared.identity.refused.add(1);
        refusal.to_bytes(PROTOCOL_VERSION)
    }
}

/// What becomes of a connection after its request.
enum Next {
    /// It was answered.
    Done,
    /// It is refused with this text, or none, and held.
    Hold(&'static [u8]),
    /// It lends the keys of its session, for the clock of a stream.
    TimeKeys(Arc<StreamClock>),
    /// It becomes a consumer of this stream.
    Feed(Served, Box<Feed>),
    /// It is for the handler to serve.
    Serve(PortRequest, Peer),
}

/// Limit of what counts places.
const MOST_PLACES: usize = u32::MAX as usize >> 3;

#[cfg(test)]
mod tests;
