//! The UDP service of a context: one socket per family for all its outlets, opened with the first and
//! closed with the last, and one more per outlet and family at the outlet's data port, as long as
//! there are not too many. Each answers clock probes and unicast discovery for all of them.
//!
//! Clock probes are answered in the receiving task, which never waits for a query to be evaluated.
//! Discovery answers go through one queue to one task, which paces them. Spec: lsl-protocol §3, §5, §12.1.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use lsl_platform::arrival::arrived_at;
use lsl_platform::clock::local_clock;
use lsl_platform::fork::Generation;
use lsl_platform::interfaces::Interface;
use lsl_proto::config::Ipv4Network;
use lsl_proto::discovery::advert::OwnSecurity;
use lsl_proto::discovery::answers::{AnswerQueue, MAX_WAITING, PendingQuery};
use lsl_proto::discovery::evaluation::Evaluator;
use lsl_proto::discovery::registry::{
    AnnouncedStream, Answer, Arrival, Registry, SourcePolicy, Subnet,
};
use lsl_proto::xml::Document;
use lsl_secure::{Policy, Security};
use tokio::net::UdpSocket;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinHandle;

use crate::drive_discovery::network_config::{NetworkConfig, present_interfaces};
use crate::drive_discovery::responder;
use crate::drive_outlet::origin::StreamClock;
use crate::net::monitor::lock_ignoring_poison;
use crate::net::overruns::Overruns;
use crate::net::runtime::{self, AbortOnDrop};
use crate::net::sealed_time::SealedClocks;
use crate::net::sockets::{self, Family};
use crate::stats::DiscoveryCounters;
use crate::{Error, Result};

/// The announcing side of a context. Start at [`Service::open`].
#[derive(Debug)]
pub(crate) struct Service {
    network: Arc<NetworkConfig>,
    shared: Arc<Shared>,
    /// Exists as long as an [`Announcement`] does.
    running: Mutex<Weak<ServiceSockets>>,
}

/// The part of a service that its tasks hold too.
#[derive(Debug)]
struct Shared {
    registry: Mutex<Registry>,
    /// Locked for the time of a query's turn, so nobody who answers clock probes takes it.
    evaluator: Mutex<Evaluator>,
    /// Sessions whose clock probes are answered.
    clocks: Arc<SealedClocks>,
    /// `None` forbids nothing in plaintext.
    security: Option<Arc<Security>>,
    counters: Arc<DiscoveryCounters>,
}

impl Shared {
    fn policy(&self) -> Policy {
        let security = self.security.as_ref();
        security.map_or(Policy::Off, |security| security.policy())
    }

    fn set_subnets(&self, subnets: Vec<Subnet>) {
        lock_ignoring_poison(&self.registry).set_subnets(subnets);
    }
}

impl Service {
    /// Makes a service without streams or sockets.
    pub(crate) fn new(
        network: Arc<NetworkConfig>,
        max_cached_queries: usize,
        policy: SourcePolicy,
        security: Option<Arc<Security>>,
        counters: Arc<DiscoveryCounters>,
    ) -> Self {
        let shared = Shared {
            registry: Mutex::new(Registry::new(policy)),
            evaluator: Mutex::new(Evaluator::new(max_cached_queries)),
            clocks: Arc::default(),
            security,
            counters,
        };
        Self {
            network,
            shared: Arc::new(shared),
            running: Mutex::default(),
        }
    }

    /// Opens the sockets if they are not, so that their ports are known. Nothing is announced until
    /// [`Announcement::publish`].
    ///
    /// # Errors
    /// [`Error::Io`] if no family can be opened or there is no runtime.
    pub(crate) fn open(&self) -> Result<Announcement> {
        let mut running = lock_ignoring_poison(&self.running);
        let service = match running.upgrade() {
            Some(service) if service.owner.is_current() => service,
            _ => {
                let service = Arc::new(ServiceSockets::open(&self.network, &self.shared)?);
                *running = Arc::downgrade(&service);
                service
            }
        };
        Ok(Announcement {
            shared: Arc::clone(&self.shared),
            service,
            keys: Vec::new(),
        })
    }

    /// Returns the service ports in use, v4 and v6; 0 where there is none.
    pub(crate) fn service_ports(&self) -> ServicePorts {
        lock_ignoring_poison(&self.running)
            .upgrade()
            .map_or_else(ServicePorts::default, |service| service.ports)
    }

    /// Returns the sessions whose clock probes are answered.
    pub(crate) fn clocks(&self) -> &Arc<SealedClocks> {
        &self.shared.clocks
    }

    /// Returns whether the query of a TCP connection selects a document.
    ///
    /// # Errors
    /// [`Error::Query`] if it is none or may not cost what it does.
    pub(crate) fn selects(
        &self,
        query: &[u8],
        from: IpAddr,
        document: &Document,
        now: f64,
    ) -> Result<bool> {
        lock_ignoring_poison(&self.shared.evaluator).selects(query, from, document, now)
    }

    /// Answers these hosts wherever they are.
    pub(crate) fn know(&self, peers: Vec<IpAddr>, networks: Vec<Ipv4Network>) {
        lock_ignoring_poison(&self.shared.registry).set_known(peers, networks);
    }

    #[cfg(test)]
    pub(crate) fn registry(&self) -> std::sync::MutexGuard<'_, Registry> {
        lock_ignoring_poison(&self.shared.registry)
    }
}

/// Returns what discovery shows of this security.
pub(crate) fn own_security(security: &Security) -> OwnSecurity {
    OwnSecurity {
        policy: security.policy(),
        discovery: security.discovery(),
        advert: security.advert().unwrap_or_default(),
    }
}

/// The UDP ports of a service; 0 where the family is not available.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ServicePorts {
    /// UDP port over IPv4 (`v4service_port`).
    pub v4: u16,
    /// UDP port over IPv6 (`v6service_port`).
    pub v6: u16,
}

/// An outlet's share in the service: keeps the sockets open and its stream registry until dropped.
#[derive(Debug)]
pub(crate) struct Announcement {
    shared: Arc<Shared>,
    service: Arc<ServiceSockets>,
    keys: Vec<u64>,
}

impl Announcement {
    /// Returns the ports to write into the stream info.
    pub(crate) fn service_ports(&self) -> ServicePorts {
        self.service.ports
    }

    /// Returns the place for one more socket of an outlet, if there are not too many.
    pub(crate) fn place(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.service.places).try_acquire_owned().ok()
    }

    /// Answers at an outlet's own socket as well, until the task is aborted. Clock probes are answered in the clock of
    /// a source, if one is given.
    ///
    /// # Errors
    /// [`Error::Io`] if there is no runtime.
    pub(crate) fn listen(
        &self,
        socket: UdpSocket,
        place: Option<OwnedSemaphorePermit>,
        source: Option<Arc<StreamClock>>,
    ) -> Result<JoinHandle<()>> {
        let answers = self.service.answers.clone();
        let shared = Arc::clone(&self.shared);
        runtime::spawn(async move {
            let _place = place;
            let socket = Arc::new(socket);
            let at = Listener {
                answers_by: Arc::clone(&socket),
                socket,
                arrival: Arrival::Service,
                source,
            };
            listen(at, shared, answers).await;
        })
    }

    /// Answers queries with this stream from now on.
    pub(crate) fn publish(&mut self, stream: impl Into<Arc<AnnouncedStream>>) {
        let mut registry = lock_ignoring_poison(&self.shared.registry);
        self.keys.push(registry.add(stream));
    }

    /// Answers queries with this stream in the place of those before.
    pub(crate) fn republish(&mut self, stream: impl Into<Arc<AnnouncedStream>>) {
        let mut registry = lock_ignoring_poison(&self.shared.registry);
        let key = registry.add(stream);
        for before in std::mem::replace(&mut self.keys, vec![key]) {
            registry.remove(before);
        }
    }
}

impl Drop for Announcement {
    fn drop(&mut self) {
        for &key in &self.keys {
            lock_ignoring_poison(&self.shared.registry).remove(key);
        }
    }
}

/// The open sockets and their tasks.
#[derive(Debug)]
struct ServiceSockets {
    owner: Generation,
    ports: ServicePorts,
    answers: mpsc::Sender<QueuedQuery>,
    /// Limits the sockets that outlets open for themselves.
    places: Arc<Semaphore>,
    tasks: Vec<AbortOnDrop<()>>,
}

impl ServiceSockets {
    fn open(network: &Arc<NetworkConfig>, shared: &Arc<Shared>) -> Result<Self> {
        shared.set_subnets(network.subnets(&present_interfaces()));
        let (answers, queue) = mpsc::channel(MAX_WAITING);
        let mut running = Self {
            owner: Generation::current(),
            ports: ServicePorts::default(),
            answers,
            places: Arc::new(Semaphore::new(MAX_OWN_SOCKETS)),
            tasks: Vec::new(),
        };
        let mut failure = None;
        let mut services = Vec::new();
        for &family in &network.families {
            match bind(network, family) {
                Ok((socket, port)) => {
                    match family {
                        Family::V4 => running.ports.v4 = port,
                        Family::V6 => running.ports.v6 = port,
                    }
                    let socket = Arc::new(socket);
                    services.push((family, Arc::clone(&socket)));
                    running.listen(socket, Arrival::Service, None, shared)?;
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
            // Who gets an answer connects with the address that it comes from: that of the face.
            let service = services.iter().find(|(of, _)| *of == family);
            let answers_by = service.filter(|_| network.face.is_some());
            let answers_by = answers_by.map(|(_, socket)| Arc::clone(socket));
            running.listen(Arc::new(socket), Arrival::Responder, answers_by, shared)?;
            let (host, own) = (Arc::clone(shared), Arc::clone(network));
            let set_subnets = move |present: &[Interface]| host.set_subnets(own.subnets(present));
            let upkeep = responder::upkeep(memberships, Arc::clone(network), set_subnets);
            running.tasks.push(AbortOnDrop(runtime::spawn(upkeep)?));
        }
        let answering = send_answers(queue, Arc::clone(shared));
        running.tasks.push(AbortOnDrop(runtime::spawn(answering)?));
        Ok(running)
    }

    fn listen(
        &mut self,
        socket: Arc<UdpSocket>,
        arrival: Arrival,
        answers_by: Option<Arc<UdpSocket>>,
        shared: &Arc<Shared>,
    ) -> Result<()> {
        let at = Listener {
            answers_by: answers_by.unwrap_or_else(|| Arc::clone(&socket)),
            socket,
            arrival,
            source: None,
        };
        let task = listen(at, Arc::clone(shared), self.answers.clone());
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

/// A query with the socket that answers it.
type QueuedQuery = (Arc<UdpSocket>, PendingQuery);

/// A socket of the service.
struct Listener {
    socket: Arc<UdpSocket>,
    arrival: Arrival,
    /// Socket by which queries are answered, as a rule the same.
    answers_by: Arc<UdpSocket>,
    /// Clock in which plaintext clock probes are answered, if it is not ours.
    source: Option<Arc<StreamClock>>,
}

/// Reads one socket of the service for ever.
async fn listen(at: Listener, shared: Arc<Shared>, answers: mpsc::Sender<QueuedQuery>) {
    let Listener {
        socket,
        arrival,
        answers_by,
        source,
    } = at;
    let mut overruns = Overruns::default();
    loop {
        let received = sockets::receive_from(&socket, |datagram, from| {
            // The thread may have been busy since the datagram came, which is nobody's offset.
            let received_at = arrived_at(&*socket).unwrap_or_else(local_clock);
            let mut registry = lock_ignoring_poison(&shared.registry);
            let policy = || shared.policy();
            let answer = registry.handle_datagram(arrival, datagram, from, policy, received_at);
            drop(registry);
            let is_sealed = matches!(answer, Answer::SealedTime);
            let sealed = is_sealed.then(|| shared.clocks.answer(datagram, received_at));
            (answer, sealed.flatten(), from, received_at)
        });
        let (answer, sealed, from, received_at) = match received.await {
            Ok(received) => received,
            Err(error) => {
                // Such as an interface that went down; it must not become a busy loop.
                tracing::debug!(%error, "receiving failed");
                tokio::time::sleep(ERROR_PAUSE).await;
                continue;
            }
        };
        overruns.look_now_and_then(&*socket, &shared.counters, received_at);
        match answer {
            Answer::Ignore => {}
            Answer::Time(request) => {
                let shifts = match &source {
                    None => Some((0.0, 0.0)),
                    Some(source) => source.shifts(),
                };
                if let Some(shifts) = shifts {
                    send_time(&socket, request, (received_at, shifts), from).await;
                }
            }
            Answer::SealedTime => {
                let Some(reply) = sealed else {
                    lock_ignoring_poison(&shared.registry).counters.time_dropped += 1;
                    continue;
                };
                if let Err(error) = socket.send_to(&reply, from).await {
                    tracing::debug!(%error, to = %from, "cannot answer a clock probe");
                }
            }
            Answer::Query(query) => {
                if answers.try_send((Arc::clone(&answers_by), query)).is_err() {
                    lock_ignoring_poison(&shared.registry).counters.overflow += 1;
                }
            }
        }
    }
}

/// Evaluates and answers the queries that come, until nobody can send any more.
async fn send_answers(mut queries: mpsc::Receiver<QueuedQuery>, shared: Arc<Shared>) {
    let mut answers = AnswerQueue::default();
    loop {
        while let Ok((socket, query)) = queries.try_recv() {
            answers.push(socket, query, local_clock());
        }
        let now = loop {
            let (now, policy) = (local_clock(), shared.policy());
            let reply = {
                let mut evaluator = lock_ignoring_poison(&shared.evaluator);
                answers.poll_transmit(&mut evaluator, policy, now)
            };
            let Some(reply) = reply else {
                break now;
            };
            if let Err(error) = reply.at.send_to(&reply.bytes, reply.to).await {
                tracing::debug!(%error, to = %reply.to, "cannot answer a query");
                answers.handle_unsent();
            }
        };
        let pause = answers.poll_timeout(now).map(|time| time - now);
        let pause = pause.map(|secs| Duration::from_secs_f64(secs.max(0.0)));
        match pause {
            Some(Duration::ZERO) => tokio::task::yield_now().await,
            Some(pause) if !answers.is_idle() => tokio::time::sleep(pause).await,
            _ => {
                let pause = pause.unwrap_or(Duration::MAX);
                match tokio::time::timeout(pause, queries.recv()).await {
                    Ok(Some((socket, query))) => answers.push(socket, query, local_clock()),
                    Ok(None) => return,
                    Err(_) => {}
                }
            }
        }
    }
}

async fn send_time(
    socket: &UdpSocket,
    request: lsl_proto::wire::timedata::TimeRequest,
    (received_at, (first, second)): (f64, (f64, f64)),
    to: SocketAddr,
) {
    // `send_to` tries before it waits, so the second reading of the clock is as late as can be. A
    // late answer would only spoil the sender's measurement, hence no second try.
    let reply = request.reply(received_at + first, local_clock() + second);
    let reply = reply.to_bytes();
    if let Err(error) = socket.send_to(&reply, to).await {
        tracing::debug!(%error, %to, "cannot answer a clock probe");
    }
}

/// Sockets of outlets, two per outlet. Further outlets answer at the shared ones alone.
const MAX_OWN_SOCKETS: usize = 1000;
const ERROR_PAUSE: Duration = Duration::from_millis(20);

#[cfg(all(test, target_os = "linux"))]
mod tests;
