//! The UDP service of a context: one socket per family for all its outlets, opened with the first and
//! closed with the last, and one more per outlet and family at the outlet's data port, as long as
//! there are not too many. Each answers clock probes and unicast discovery for all of them.
//!
//! Clock probes are answered in the receiving task, before anything else is thought about. Discovery
//! answers go through one queue to one task (`answers`), which paces them. Spec: lsl-protocol §3, §5, §12.1.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use lsl_platform::arrival::arrived_at;
use lsl_platform::clock::local_clock;
use lsl_platform::fork::Generation;
use tokio::net::UdpSocket;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinHandle;

use crate::drive_discovery::answers::{MAX_WAITING, Queued, send_answers};
use crate::drive_discovery::network_config::{NetworkConfig, present_interfaces};
use crate::drive_discovery::registry::{
    AnnouncedStream, Answer, Arrival, Registry, SourcePolicy, count,
};
use crate::drive_discovery::responder;
use crate::net::monitor::lock_ignoring_poison;
use crate::net::runtime::{self, AbortOnDrop};
use crate::net::sockets::{self, Family};
use crate::{Error, Result};

/// The announcing side of a context. Start at [`Service::open`].
#[derive(Debug)]
pub(crate) struct Service {
    network: Arc<NetworkConfig>,
    registry: Arc<Registry>,
    /// Exists as long as an [`Announcement`] does.
    running: Mutex<Weak<ServiceSockets>>,
}

impl Service {
    /// A registry without streams or sockets.
    pub(crate) fn new(
        network: Arc<NetworkConfig>,
        max_cached_queries: usize,
        policy: SourcePolicy,
        security: Option<Arc<lsl_secure::Security>>,
    ) -> Self {
        let registry = Registry::new(max_cached_queries, policy).under(security);
        Self {
            network,
            registry: Arc::new(registry),
            running: Mutex::default(),
        }
    }

    /// Opens the sockets if they are not, so that their ports are known. Nothing is registry until
    /// [`Announcement::publish`].
    ///
    /// # Errors
    /// [`Error::Io`] if no family can be opened or there is no runtime.
    pub(crate) fn open(&self) -> Result<Announcement> {
        let mut running = lock_ignoring_poison(&self.running);
        let service = match running.upgrade() {
            Some(service) if service.owner.is_current() => service,
            _ => {
                let service = Arc::new(ServiceSockets::open(&self.network, &self.registry)?);
                *running = Arc::downgrade(&service);
                service
            }
        };
        Ok(Announcement {
            registry: Arc::clone(&self.registry),
            service,
            keys: Vec::new(),
        })
    }

    /// The service ports in use, v4 and v6; 0 where there is none.
    pub(crate) fn service_ports(&self) -> ServicePorts {
        lock_ignoring_poison(&self.running)
            .upgrade()
            .map_or_else(ServicePorts::default, |service| service.ports)
    }

    /// Where sessions say that their clock probes are to be answered.
    pub(crate) fn clocks(&self) -> &Arc<crate::net::sealed_time::SealedClocks> {
        &self.registry.clocks
    }

    /// What is registry, and what happened to the queries so far.
    pub(crate) fn registry(&self) -> &Registry {
        &self.registry
    }
}

/// The UDP ports of a service; 0 where the family is not available.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ServicePorts {
    /// `v4service_port`
    pub v4: u16,
    /// `v6service_port`
    pub v6: u16,
}

/// An outlet's share in the service: keeps the sockets open and its stream registry until dropped.
#[derive(Debug)]
pub(crate) struct Announcement {
    registry: Arc<Registry>,
    service: Arc<ServiceSockets>,
    keys: Vec<u64>,
}

impl Announcement {
    /// The ports to write into the stream info.
    pub(crate) fn service_ports(&self) -> ServicePorts {
        self.service.ports
    }

    /// Room for one more socket of an outlet, if there are not too many.
    pub(crate) fn place(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.service.places).try_acquire_owned().ok()
    }

    /// Answers at an outlet's own socket as well, until the task is aborted.
    ///
    /// # Errors
    /// [`Error::Io`] if there is no runtime.
    pub(crate) fn listen(
        &self,
        socket: UdpSocket,
        place: OwnedSemaphorePermit,
    ) -> Result<JoinHandle<()>> {
        let answers = self.service.answers.clone();
        let registry = Arc::clone(&self.registry);
        runtime::spawn(async move {
            let _place = place;
            listen(Arc::new(socket), Arrival::Service, registry, answers).await;
        })
    }

    /// Answers queries with this stream from now on.
    pub(crate) fn publish(&mut self, stream: impl Into<Arc<AnnouncedStream>>) {
        self.keys.push(self.registry.add(stream));
    }
}

impl Drop for Announcement {
    fn drop(&mut self) {
        for &key in &self.keys {
            self.registry.remove(key);
        }
    }
}

/// The open sockets and their tasks.
#[derive(Debug)]
struct ServiceSockets {
    owner: Generation,
    ports: ServicePorts,
    answers: mpsc::Sender<Queued>,
    /// For sockets of outlets.
    places: Arc<Semaphore>,
    tasks: Vec<AbortOnDrop<()>>,
}

impl ServiceSockets {
    fn open(network: &Arc<NetworkConfig>, registry: &Arc<Registry>) -> Result<Self> {
        registry.set_interfaces(present_interfaces().into());
        let (answers, queue) = mpsc::channel(MAX_WAITING);
        let mut running = Self {
            owner: Generation::current(),
            ports: ServicePorts::default(),
            answers,
            places: Arc::new(Semaphore::new(MAX_OWN_SOCKETS)),
            tasks: Vec::new(),
        };
        let mut failure = None;
        for &family in &network.families {
            match bind(network, family) {
                Ok((socket, port)) => {
                    match family {
                        Family::V4 => running.ports.v4 = port,
                        Family::V6 => running.ports.v6 = port,
                    }
                    running.listen(socket, Arrival::Service, registry)?;
                }
                Err(error) => {
                    tracing::warn!(?family, %error, "no UDP service for this family");
                    failure = Some(error);
                }
            }
        }
        if let (ServicePorts { v4: 0, v6: 0 }, Some(error)) = (running.ports, failure) {
            return Err(error);
        }
        for &family in &network.families {
            let Some((socket, memberships)) = responder::open(network, family) else {
                continue;
            };
            running.listen(socket, Arrival::Responder, registry)?;
            let upkeep = responder::upkeep(memberships, Arc::clone(network), Arc::clone(registry));
            running.tasks.push(AbortOnDrop(runtime::spawn(upkeep)?));
        }
        let counters = Arc::clone(registry);
        running
            .tasks
            .push(AbortOnDrop(runtime::spawn(send_answers(queue, counters))?));
        Ok(running)
    }

    fn listen(
        &mut self,
        socket: UdpSocket,
        arrival: Arrival,
        registry: &Arc<Registry>,
    ) -> Result<()> {
        let answers = self.answers.clone();
        let task = listen(Arc::new(socket), arrival, Arc::clone(registry), answers);
        self.tasks.push(AbortOnDrop(runtime::spawn(task)?));
        Ok(())
    }
}

impl Drop for ServiceSockets {
    fn drop(&mut self) {
        if !self.owner.is_current() {
            // A forked child: the tasks run in the parent, whose reactor this process must not touch.
            std::mem::forget(std::mem::take(&mut self.tasks));
        }
    }
}

fn bind(network: &NetworkConfig, family: Family) -> Result<(UdpSocket, u16)> {
    let address = network.bind_address(family);
    let context = |source| Error::io(format!("cannot open a UDP service on {address}"), source);
    let socket = sockets::udp_service(address, network.ports).map_err(context)?;
    let port = socket.local_addr().map_err(context)?.port();
    Ok((sockets::into_tokio_udp(socket)?, port))
}

/// Reads one socket for ever.
async fn listen(
    socket: Arc<UdpSocket>,
    arrival: Arrival,
    registry: Arc<Registry>,
    answers: mpsc::Sender<Queued>,
) {
    loop {
        let received = sockets::receive_from(&socket, |datagram, from| {
            // The thread may have been busy since the datagram came, which is nobody's offset.
            let received_at = arrived_at(&*socket).unwrap_or_else(local_clock);
            let answer = registry.answer(arrival, datagram, from, received_at);
            (answer, from, received_at)
        });
        let (answer, from, received_at) = match received.await {
            Ok(received) => received,
            Err(error) => {
                // Such as an interface that went down; it must not become a busy loop.
                tracing::debug!(%error, "receiving failed");
                tokio::time::sleep(ERROR_PAUSE).await;
                continue;
            }
        };
        match answer {
            Answer::Ignore => {}
            Answer::Time(request) => send_time(&socket, request, received_at, from).await,
            Answer::SealedTime(reply) => {
                if let Err(error) = socket.send_to(&reply, from).await {
                    tracing::debug!(%error, to = %from, "cannot answer a clock probe");
                }
            }
            Answer::Streams(matches) => {
                let Ok(place) = answers.clone().try_reserve_owned() else {
                    count(&registry.counters.overflow);
                    continue;
                };
                let pause_secs = matches.due() - received_at;
                let queued = (Arc::clone(&socket), matches);
                if pause_secs > 0.0 {
                    let pause = Duration::from_secs_f64(pause_secs);
                    // Bounded in number by the places of the queue, in time by the registry.
                    tokio::spawn(async move {
                        tokio::time::sleep(pause).await;
                        place.send(queued);
                    });
                } else {
                    place.send(queued);
                }
            }
        }
    }
}

async fn send_time(
    socket: &UdpSocket,
    request: lsl_proto::wire::timedata::TimeRequest,
    received_at: f64,
    to: SocketAddr,
) {
    // `send_to` tries before it waits, so the second reading of the clock is as late as can be. A
    // late answer would only spoil the sender's measurement, hence no second try.
    let reply = request.reply(received_at, local_clock()).to_bytes();
    if let Err(error) = socket.send_to(&reply, to).await {
        tracing::debug!(%error, %to, "cannot answer a clock probe");
    }
}

/// Sockets of outlets, two per outlet. Further outlets answer at the shared ones alone.
const MAX_OWN_SOCKETS: usize = 1000;
const ERROR_PAUSE: Duration = Duration::from_millis(20);

#[cfg(all(test, target_os = "linux"))]
mod tests;
