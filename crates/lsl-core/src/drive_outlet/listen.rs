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
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::{AbortHandle, JoinSet};

use crate::byte_stream::ByteStream;
use crate::context::Context;
use crate::drive_discovery::serve::{Announcement, ServicePorts, own_security};
use crate::drive_outlet::handshake;
use crate::drive_outlet::identity::Accept;
use crate::drive_outlet::origin::Origin;
use crate::drive_outlet::push::OutletShared;
use crate::drive_outlet::shown::Shown;
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
    /// Takes the stream back when it is dropped.
    announcement: Announcement,
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
        let ports = Ports::bind(context, Service::Any)?;
        info.remove_relay_mark();
        info.reset_uid(&uid::random()?);
        info.set_created_at(local_clock());
        info.set_session_id(config.lab().session_id.as_str());
        info.set_hostname(uid::hostname());
        ports.complete(&mut info, context)?;
        let shared = Arc::new(OutletShared::new(context.clone(), info, options)?);
        look_after(&shared);
        let acceptors = ports.accept(&shared, &shared.shown)?;
        Ok((shared, acceptors))
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

    /// Announces something else from now on.
    pub(crate) fn announce(&self, shown: &Shown) {
        if let Some(open) = &mut *lock_ignoring_poison(&self.open) {
            open.announcement.republish(Arc::clone(&shown.advertised));
        }
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

/// Ports of an outlet that is not announced yet.
#[derive(Debug)]
pub(crate) struct Ports {
    announcement: Announcement,
    /// Data ports over IPv4 and IPv6, and the service ports; 0 where there is none.
    data: ServicePorts,
    service: ServicePorts,
    listeners: Vec<TcpListener>,
    /// UDP sockets of its own, each with the place that it takes.
    services: Vec<(UdpSocket, Option<OwnedSemaphorePermit>)>,
}

/// Where the clock probes of an outlet are answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Service {
    /// At sockets of its own, or those that all outlets of the context share.
    Any,
    /// At sockets of its own alone, because they are answered in another clock there.
    Own,
}

impl Ports {
    /// Binds the ports of each address family that can be had.
    ///
    /// # Errors
    /// [`Error::Io`] if there is none.
    pub(crate) fn bind(context: &Context, service: Service) -> Result<Self> {
        // The shared UDP service is bound before TCP, as liblsl does with an outlet's own.
        let announcement = context.service().open()?;
        let shared = announcement.service_ports();
        let mut ports = Self {
            data: ServicePorts::default(),
            service: match service {
                Service::Any => shared,
                Service::Own => ServicePorts::default(),
            },
            announcement,
            listeners: Vec::new(),
            services: Vec::new(),
        };
        let network = context.network();
        let mut failure = None;
        for &family in &network.families {
            let address = network.bind_address(family);
            let shared = match family {
                Family::V4 => shared.v4,
                Family::V6 => shared.v6,
            };
            // Without a place it goes without sockets of its own, if it may.
            let place = match service {
                Service::Any => ports.announcement.place(),
                Service::Own => None,
            };
            let wants_own = service == Service::Own || place.is_some();
            let bound = bind(address, network.ports, wants_own.then_some(shared));
            let bound = bound.and_then(|(listener, port, own)| match own {
                None if service == Service::Own => {
                    let own = own_service(address, network.ports)?;
                    Ok((listener, port, Some(own)))
                }
                own => Ok((listener, port, own)),
            });
            match bound {
                Ok((listener, port, own)) => ports.add(family, (listener, port), own, place),
                Err(error) => {
                    tracing::info!(%error, ?family, "no data port");
                    failure = Some(error);
                }
            }
        }
        match failure {
            Some(error) if ports.listeners.is_empty() => Err(error),
            _ => Ok(ports),
        }
    }

    fn add(
        &mut self,
        family: Family,
        (listener, port): (TcpListener, u16),
        own: Option<(UdpSocket, u16)>,
        place: Option<OwnedSemaphorePermit>,
    ) {
        let (data, service) = match family {
            Family::V4 => (&mut self.data.v4, &mut self.service.v4),
            Family::V6 => (&mut self.data.v6, &mut self.service.v6),
        };
        *data = port;
        if let Some((own, port)) = own {
            *service = port;
            self.services.push((own, place));
        }
        self.listeners.push(listener);
    }

    /// Writes the ports, the protocol version and our advert into the info.
    ///
    /// # Errors
    /// [`Error::Security`] if the security configuration cannot be used.
    pub(crate) fn complete(&self, info: &mut StreamInfo, context: &Context) -> Result<()> {
        info.set_version(context.config().tuning().protocol_version);
        info.set_v4_ports(self.data.v4, self.service.v4);
        info.set_v6_ports(self.data.v6, self.service.v6);
        advert::write_advert(info, &own_security(context.security()?));
        Ok(())
    }

    /// Starts to accept, to answer and to announce the outlet.
    ///
    /// # Errors
    /// [`Error::Io`] if there is no runtime.
    pub(crate) fn accept(self, acceptor: &impl Accept, shown: &Shown) -> Result<Acceptors> {
        let Self {
            mut announcement,
            listeners,
            services,
            ..
        } = self;
        let mut tasks = Vec::new();
        for listener in listeners {
            let accepting = accept(listener, acceptor.clone());
            tasks.push(runtime::spawn(accepting)?.abort_handle());
        }
        for (own, place) in services {
            let clock = acceptor.identity().clock.clone();
            tasks.push(announcement.listen(own, place, clock)?.abort_handle());
        }
        announcement.publish(Arc::clone(&shown.advertised));
        Ok(Acceptors {
            open: Mutex::new(Some(Open {
                announcement,
                tasks,
            })),
        })
    }
}

/// The listener of a family, its port, and perhaps a UDP socket on the same one, if the outlet may have
/// one beside that at `shared`.
fn bind(address: IpAddr, search: PortSearch, shared: Option<u16>) -> Result<Bound> {
    let context = |source| Error::io(format!("cannot bind a data port at {address}"), source);
    let bound = match shared {
        Some(shared) => sockets::outlet_ports(address, search, shared),
        None => sockets::tcp_acceptor(address, search).map(|listener| (listener, None)),
    };
    let (listener, own) = bound.map_err(context)?;
    let port = listener.local_addr().map_err(context)?.port();
    let own = own.map(sockets::into_tokio_udp).transpose()?;
    let own = own.map(|own| (own, port));
    Ok((sockets::into_tokio_listener(listener)?, port, own))
}

/// Listener and port of a family, and a UDP socket with its port.
type Bound = (TcpListener, u16, Option<(UdpSocket, u16)>);

/// A UDP socket at any port: those of the range are left to the searches that look there.
fn own_service(address: IpAddr, search: PortSearch) -> Result<(UdpSocket, u16)> {
    let search = if search.allow_random {
        PortSearch::ANY
    } else {
        search
    };
    let context = |source| Error::io(format!("cannot open a UDP service on {address}"), source);
    let socket = sockets::udp_service(address, search).map_err(context)?;
    let port = socket.local_addr().map_err(context)?.port();
    Ok((sockets::into_tokio_udp(socket)?, port))
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
