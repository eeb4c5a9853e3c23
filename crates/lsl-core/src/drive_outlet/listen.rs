//! An outlet's TCP side: its listeners. Spec: lsl-protocol §6.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lsl_platform::clock::local_clock;
use lsl_platform::descriptors;
use lsl_proto::config::ports::PortSearch;
use lsl_proto::describe;
use lsl_proto::discovery::advert;
use lsl_proto::outlet::request::OutletOptions;
use tokio::net::{TcpListener, UdpSocket};
use tokio::task::{AbortHandle, JoinSet};

use crate::byte_stream::ByteStream;
use crate::context::Context;
use crate::drive_discovery::serve::{Announcement, own_security};
use crate::drive_outlet::handshake;
use crate::drive_outlet::identity::Accept;
use crate::drive_outlet::origin::Origin;
use crate::drive_outlet::push::OutletShared;
use crate::net::monitor::lock_ignoring_poison;
use crate::net::sockets::{self, Family};
use crate::net::{runtime, uid};
use crate::{Error, Result, StreamInfo};

/// The listeners of an outlet and its place in the context's registry. Dropping or stopping it makes
/// the outlet undiscoverable and refuses new connections at once.
#[derive(Debug, Default)]
pub(crate) struct Acceptors {
    open: Mutex<Option<Open>>,
}

#[derive(Debug)]
struct Open {
    /// Held for its drop, which takes the stream back.
    _announcement: Announcement,
    tasks: Vec<AbortHandle>,
}

impl Acceptors {
    /// Binds the data ports, completes `info` with everything an outlet assigns, announces it and
    /// starts to accept.
    ///
    /// # Errors
    /// [`Error::Io`] if no address family can be bound.
    pub(crate) fn open(
        context: &Context,
        mut info: StreamInfo,
        options: OutletOptions,
    ) -> Result<(Arc<OutletShared>, Self)> {
        let config = context.config();
        // The shared UDP service is bound before TCP, as liblsl does with an outlet's own.
        let mut announcement = context.service().open()?;
        let mut service = announcement.service_ports();
        let network = context.network();
        let mut listeners = Vec::new();
        let mut services = Vec::new();
        let (mut v4_port, mut v6_port) = (0, 0);
        let mut failure = None;
        for &family in &network.families {
            let (data, service) = match family {
                Family::V4 => (&mut v4_port, &mut service.v4),
                Family::V6 => (&mut v6_port, &mut service.v6),
            };
            let place = announcement.place();
            let shared = place.is_some().then_some(*service);
            match bind(network.bind_address(family), network.ports, shared) {
                Ok((listener, port, own)) => {
                    *data = port;
                    if let (Some(own), Some(place)) = (own, place) {
                        *service = port;
                        services.push((own, place));
                    }
                    listeners.push(listener);
                }
                Err(error) => {
                    tracing::info!(%error, ?family, "no data port");
                    failure = Some(error);
                }
            }
        }
        if let (true, Some(error)) = (listeners.is_empty(), failure) {
            return Err(error);
        }
        info.reset_uid(&uid::random()?);
        info.set_created_at(local_clock());
        info.set_session_id(config.lab().session_id.as_str());
        info.set_hostname(uid::hostname());
        info.set_version(config.tuning().protocol_version);
        info.set_v4_ports(v4_port, service.v4);
        info.set_v6_ports(v6_port, service.v6);
        advert::write_advert(&mut info, &own_security(context.security()?));
        let shared = Arc::new(OutletShared::new(context.clone(), info, options)?);
        look_after(&shared);
        let mut tasks = Vec::new();
        for listener in listeners {
            let accepting = accept(listener, Arc::clone(&shared));
            tasks.push(runtime::spawn(accepting)?.abort_handle());
        }
        for (own, place) in services {
            tasks.push(announcement.listen(own, place)?.abort_handle());
        }
        announcement.publish(Arc::clone(&shared.advertised));
        let open = Open {
            _announcement: announcement,
            tasks,
        };
        Ok((
            shared,
            Self {
                open: Mutex::new(Some(open)),
            },
        ))
    }

    /// Creates an outlet without listeners or announcement, which forwards the stream of a received `info`.
    ///
    /// # Errors
    /// Those of [`OutletShared::with_origin`].
    pub(crate) fn without(
        context: &Context,
        info: &StreamInfo,
        options: OutletOptions,
        origin: Origin,
    ) -> Result<(Arc<OutletShared>, Self)> {
        // Who reads it has the description from elsewhere.
        let mut info = describe::as_received(info);
        info.set_version(context.config().tuning().protocol_version);
        let shared = OutletShared::with_origin(context.clone(), info, options, Some(origin))?;
        let shared = Arc::new(shared);
        look_after(&shared);
        Ok((shared, Self::default()))
    }

    /// Ends discovery and stops accepting.
    pub(crate) fn stop(&self) {
        let open = lock_ignoring_poison(&self.open).take();
        for task in open.iter().flat_map(|open| &open.tasks) {
            task.abort();
        }
    }
}

/// Has what it retains looked after.
fn look_after(shared: &Arc<OutletShared>) {
    if shared.look_after_retention(local_clock()) {
        shared.identity.context.retaining().add(shared);
    }
}

/// The listener of a family, its port, and perhaps a UDP socket on the same one, if the outlet may have
/// one beside that at `shared`.
fn bind(
    address: IpAddr,
    search: PortSearch,
    shared: Option<u16>,
) -> Result<(TcpListener, u16, Option<UdpSocket>)> {
    let context = |source| Error::io(format!("cannot bind a data port at {address}"), source);
    let bound = match shared {
        Some(shared) => sockets::outlet_ports(address, search, shared),
        None => sockets::tcp_acceptor(address, search).map(|listener| (listener, None)),
    };
    let (listener, own) = bound.map_err(context)?;
    let port = listener.local_addr().map_err(context)?.port();
    let own = own.map(sockets::into_tokio_udp).transpose()?;
    Ok((sockets::into_tokio_listener(listener)?, port, own))
}

/// Accepts connections for ever.
pub(crate) async fn accept(listener: TcpListener, acceptor: impl Accept) {
    let identity = acceptor.identity();
    // Dropped with this task, and every unfinished handshake with it.
    let mut handshakes = JoinSet::new();
    let mut newest_last: VecDeque<AbortHandle> = VecDeque::new();
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                let tuning = identity.context.config().tuning();
                let stream = match sockets::accepted(stream, peer, tuning) {
                    Ok(stream) => stream,
                    Err(error) => {
                        identity.refused.add(1);
                        tracing::debug!(%peer, %error, "connection ended");
                        continue;
                    }
                };
                while handshakes.try_join_next().is_some() {}
                newest_last.retain(|handshake| !handshake.is_finished());
                if identity.sessions().is_none()
                    && newest_last.len() >= MAX_HANDSHAKES
                    && let Some(oldest) = newest_last.pop_front()
                {
                    // Idle connections must not keep a real inlet out.
                    oldest.abort();
                    identity.refused.add(1);
                }
                newest_last.push_back(handshakes.spawn(serve(stream, peer, acceptor.clone())));
            }
            Err(error) => {
                if descriptors::made_room_after(&error) {
                    continue;
                }
                // Out of descriptors, most likely: others may be closed soon.
                let error = descriptors::explained(error);
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_RETRY).await;
            }
        }
    }
}

async fn serve(stream: ByteStream, peer: SocketAddr, acceptor: impl Accept) {
    if let Err(error) = handshake::serve(stream, peer, &acceptor).await {
        acceptor.identity().refused.add(1);
        tracing::debug!(%peer, %error, "connection ended");
    }
}

/// Connections of one listener that may be waiting for their request at the same time.
const MAX_HANDSHAKES: usize = 256;

/// Pause after a failed accept.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);
