//! Drives a [`Search`]: one socket per family for its whole life, which sends every query and
//! receives every reply, as liblsl 1.18 does. Spec: lsl-protocol §3.1, §3.3, §3.4, §3.6.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lsl_platform::clock::local_clock;
use lsl_platform::fork::PerProcess;
use lsl_proto::discovery::search::{Received, Search, Step};
use lsl_proto::wire::discovery::ReplyDatagram;
use tokio::net::UdpSocket;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::context::Context;
use crate::drive_discovery::network_config::{NetworkConfig, present_interfaces};
use crate::drive_discovery::redacted::{self, Prober, QueryExposure};
use crate::drive_inlet::connection::exchange;
use crate::net::monitor::{Monitor, lock_ignoring_poison};
use crate::net::runtime::{self, AbortOnDrop};
use crate::net::sockets::{self, Family};
use crate::{Error, Result};

/// A search that runs on the process runtime until dropped.
#[derive(Debug)]
pub(crate) struct RunningSearch {
    /// The search; waiters are woken when it ends and when there is an event to take.
    pub monitor: Arc<Monitor<SearchState>>,
    _tasks: Vec<AbortOnDrop<()>>,
}

/// A search and whether it is over.
#[derive(Debug)]
pub(crate) struct SearchState {
    /// The search.
    pub search: Search,
    /// Whether it has ended.
    pub done: bool,
}

impl RunningSearch {
    /// Opens the sockets and sends the first queries soon.
    ///
    /// # Errors
    /// [`Error::Io`] if no family can be opened or there is no runtime.
    pub(crate) fn start(context: &Context, search: Search) -> Result<Self> {
        // As good as random: the standard library seeds its hashers from the system.
        let search = search.with_id(random());
        let search = match redacted::query_exposure(context) {
            QueryExposure::None => search,
            QueryExposure::Outlets => search.with_open_query(random()),
            QueryExposure::Everybody => search.with_open_query_alone(random()),
        };
        let search = search.with_veto(redacted::veto(context));
        let network = Arc::clone(context.network());
        let mut links = Vec::new();
        let mut failure = None;
        for &family in &network.families {
            match Link::open(&network, family, &search) {
                Ok(link) => links.push(link),
                Err(error) => {
                    tracing::debug!(?family, %error, "cannot resolve over this family");
                    failure = Some(error);
                }
            }
        }
        if let (true, Some(error)) = (links.is_empty(), failure) {
            return Err(error);
        }
        let monitor = Arc::new(Monitor::new(SearchState {
            search,
            done: false,
        }));
        let mut tasks = Vec::new();
        let inbox = Inbox {
            monitor: Arc::clone(&monitor),
            received: Arc::default(),
            prober: Prober::new(context, &monitor),
        };
        for link in &links {
            let receiving = receive(Arc::clone(&link.socket), inbox.clone());
            tasks.push(AbortOnDrop(runtime::spawn(receiving)?));
        }
        let hosts = Arc::new(Hosts::literal(&network));
        let lookups = Arc::clone(&hosts).look_up(Arc::clone(&network));
        tasks.push(AbortOnDrop(runtime::spawn(lookups)?));
        let driver = Driver {
            context: context.clone(),
            network,
            links: links.into(),
            spreading: JoinSet::new(),
            hosts,
            monitor: Arc::clone(&monitor),
            inbox,
            probes: JoinSet::new(),
            probe_slots: Arc::new(Semaphore::new(MAX_PROBES)),
            probed_hosts: HashMap::new(),
        };
        tasks.push(AbortOnDrop(runtime::spawn(driver.run())?));
        Ok(Self {
            monitor,
            _tasks: tasks,
        })
    }
}

/// As good as random: the standard library seeds its hashers from the system.
fn random() -> u64 {
    RandomState::new().hash_one(local_clock().to_bits())
}

/// Where replies go.
#[derive(Debug, Clone)]
struct Inbox {
    monitor: Arc<Monitor<SearchState>>,
    /// Datagrams that came, whatever they were.
    received: Arc<AtomicUsize>,
    /// For outlets that hide what they are, if this context looks for them.
    prober: Option<Arc<Prober>>,
}

impl Inbox {
    fn take(&self, from: SocketAddr, datagram: &[u8]) {
        self.received.fetch_add(1, Ordering::Relaxed);
        let received = take_in(&self.monitor, |search, now| {
            search.on_reply(now, from, datagram)
        });
        if let (Received::Redacted, Some(prober)) = (received, &self.prober)
            && let Ok(reply) = ReplyDatagram::parse(datagram)
        {
            prober.on_redacted(from, reply.xml);
        }
    }

    fn take_over_tcp(&self, from: SocketAddr, xml: &[u8]) {
        if let Some(prober) = &self.prober
            && prober.on_redacted(from, xml)
        {
            return;
        }
        take_in(&self.monitor, |search, now| {
            search.on_tcp_reply(now, from, xml)
        });
    }

    /// Asks over TCP for whatever is at a data port, if it may hide what it is, or we what we look for.
    async fn look_for_hidden(&self, target: SocketAddr) {
        let Some(prober) = &self.prober else {
            return;
        };
        let asking = exchange(target, OPEN_REQUEST, MAX_DATAGRAM_BYTES, PROBE_LIMIT);
        if let Ok(xml) = asking.await
            && !prober.on_redacted(target, &xml)
        {
            take_in(&self.monitor, |search, now| {
                search.on_open_reply(now, target, &xml)
            });
        }
    }
}

/// The socket of one family and what it sends.
#[derive(Debug)]
struct Link {
    family: Family,
    socket: Arc<UdpSocket>,
    datagram: Option<Vec<u8>>,
    /// Asks everybody, because outlets that hide what they are do not answer the other.
    open_datagram: Option<Vec<u8>>,
}

impl Link {
    fn open(network: &NetworkConfig, family: Family, search: &Search) -> Result<Self> {
        let address = network.bind_address(family);
        let context = |source| Error::io(format!("cannot resolve from {address}"), source);
        let socket = sockets::udp_service(address, network.ports).map_err(context)?;
        if let Err(error) = sockets::prepare_multicast_sender(&socket, family, network.ttl) {
            tracing::debug!(?family, %error, "cannot send multicast");
        }
        let return_port = socket.local_addr().map_err(context)?.port();
        let socket = Arc::new(sockets::into_tokio_udp(socket)?);
        Ok(Self {
            family,
            socket,
            datagram: search.datagram(return_port),
            open_datagram: search.open_datagram(return_port),
        })
    }

    /// Errors are ignored: an unreachable target must not keep the query from the others.
    async fn send(&self, to: SocketAddr) {
        for datagram in [self.datagram.as_ref(), self.open_datagram.as_ref()]
            .into_iter()
            .flatten()
        {
            if let Err(error) = self.socket.send_to(datagram, to).await {
                tracing::trace!(%error, %to, "query not sent");
            }
        }
    }
}

struct Driver {
    context: Context,
    network: Arc<NetworkConfig>,
    links: Arc<[Link]>,
    /// The multicast queries of a wave on their way.
    spreading: JoinSet<()>,
    hosts: Arc<Hosts>,
    monitor: Arc<Monitor<SearchState>>,
    inbox: Inbox,
    probes: JoinSet<()>,
    probe_slots: Arc<Semaphore>,
    probed_hosts: HashMap<IpAddr, ProbedHost>,
}

impl Driver {
    async fn run(mut self) {
        loop {
            let now = local_clock();
            let step = self.monitor.lock().search.poll(now);
            match step {
                Step::SendMulticast => {
                    self.send_multicast();
                    if self.network.resolve_over_tcp {
                        self.probe_over_tcp();
                    }
                }
                Step::SendUnicast => self.send_unicast().await,
                Step::WaitUntil(time) => {
                    // Streams may have been forgotten, which is news to whoever waits.
                    self.monitor.wake();
                    let pause = (time - now).clamp(0.0, LONGEST_PAUSE_SECS);
                    tokio::time::sleep(Duration::from_secs_f64(pause)).await;
                }
                Step::Done => {
                    self.monitor.update(|state| state.done = true);
                    return;
                }
            }
        }
    }

    /// Starts to send the multicast queries of a wave, unless those of the last one are still under
    /// way, as on a host with very many interfaces.
    fn send_multicast(&mut self) {
        while self.spreading.try_join_next().is_some() {}
        if self.spreading.is_empty() {
            let (links, network) = (Arc::clone(&self.links), Arc::clone(&self.network));
            let received = Arc::clone(&self.inbox.received);
            self.spreading.spawn(spread(links, network, received));
        }
    }

    async fn send_unicast(&self) {
        let mut sent = 0_usize;
        for target in self.unicast_targets() {
            let Some(link) = self
                .links
                .iter()
                .find(|link| link.family == Family::of(target.ip()))
            else {
                continue;
            };
            link.send(target).await;
            sent += 1;
            if sent.is_multiple_of(UNICAST_BURST) {
                // Many peers times 32 ports in one go would overrun the queues of a network card.
                tokio::time::sleep(UNICAST_PAUSE).await;
            }
        }
    }

    /// The ports of this host and of the known peers, without repeats.
    fn unicast_targets(&self) -> Vec<SocketAddr> {
        let mut seen = HashSet::new();
        let own = self.context.service().service_ports();
        let own = [(Family::V4, own.v4), (Family::V6, own.v6)]
            .into_iter()
            .filter(|(_, port)| *port != 0)
            // The outlets of this process, also when they had to take a port outside the range.
            .map(|(family, port)| SocketAddr::new(family.loopback(), port));
        let mut targets: Vec<SocketAddr> = own.collect();
        for (host, port) in self.hosts.known() {
            match port {
                Some(port) => targets.push(with_port(host, port)),
                None => {
                    targets.extend(self.network.ports.ports().map(|port| with_port(host, port)));
                }
            }
        }
        targets.retain(|target| self.network.uses(Family::of(target.ip())) && seen.insert(*target));
        targets
    }

    /// Asks every data port for a short info (§3.6), unless it is still being asked. Each host has as many
    /// slots as any other, so that those behind a firewall, which take seconds, do not keep all.
    fn probe_over_tcp(&mut self) {
        while self.probes.try_join_next().is_some() {}
        let request: Option<Arc<[u8]>> = {
            let state = self.monitor.lock();
            let search = &state.search;
            search.is_query_sent().then(|| {
                [b"LSL:shortinfo\r\n", search.query(), b"\r\n"]
                    .concat()
                    .into()
            })
        };
        let targets = self.unicast_targets();
        let hosts: HashSet<IpAddr> = targets.iter().map(SocketAddr::ip).collect();
        let share = (MAX_PROBES / hosts.len().max(1)).max(LEAST_PROBES);
        for target in targets {
            let new = || ProbedHost::new(share);
            let host = self.probed_hosts.entry(target.ip()).or_insert_with(new);
            let Ok(port) = Arc::clone(host.port(target.port())).try_acquire_owned() else {
                continue;
            };
            let slots = [Arc::clone(&host.slots), Arc::clone(&self.probe_slots)];
            let (request, inbox) = (request.clone(), self.inbox.clone());
            self.probes.spawn(async move {
                let mut taken = Vec::new();
                for slots in slots {
                    taken.push(slots.acquire_owned().await);
                }
                if let Some(request) = request {
                    let asking = exchange(target, &request, MAX_DATAGRAM_BYTES, PROBE_LIMIT);
                    if let Ok(xml) = asking.await
                        && !xml.is_empty()
                    {
                        inbox.take_over_tcp(target, &xml);
                    }
                }
                inbox.look_for_hidden(target).await;
                drop((taken, port));
            });
        }
    }
}

/// A host that is asked over TCP.
#[derive(Debug)]
struct ProbedHost {
    /// For those of its ports that are asked at the same time.
    slots: Arc<Semaphore>,
    /// One for each port.
    ports: HashMap<u16, Arc<Semaphore>>,
}

impl ProbedHost {
    fn new(slots: usize) -> Self {
        Self {
            slots: Arc::new(Semaphore::new(slots)),
            ports: HashMap::new(),
        }
    }

    fn port(&mut self, port: u16) -> &Arc<Semaphore> {
        let new = || Arc::new(Semaphore::new(1));
        self.ports.entry(port).or_insert_with(new)
    }
}

/// Sends the multicast queries of one wave: each group on every interface, before the next group.
async fn spread(links: Arc<[Link]>, network: Arc<NetworkConfig>, received: Arc<AtomicUsize>) {
    // Looked up in every wave, because networks come and go while a resolver runs.
    let present = if network.loopback_only {
        Vec::new()
    } else {
        present_interfaces()
    };
    for link in &*links {
        let to = |address| SocketAddr::new(address, network.multicast_port);
        let (groups, others): (Vec<IpAddr>, Vec<IpAddr>) =
            network.targets(link.family).partition(IpAddr::is_multicast);
        if link.family == Family::V6 && links.len() > 1 && !groups.is_empty() {
            // The first answer gives a stream its address, and people expect an IPv4 one where
            // there is a choice, rather than a link-local one.
            tokio::time::sleep(V6_DELAY).await;
        }
        let interfaces = network.multicast_interfaces(link.family, &present);
        for group in groups {
            for interface in &interfaces {
                let socket = &*link.socket;
                let chosen =
                    sockets::select_multicast_interface(socket, interface.address, interface.index);
                if let Err(error) = chosen {
                    tracing::debug!(address = %interface.address, %error, "interface skipped");
                    continue;
                }
                link.send(to(group)).await;
                wait_for_lull(&received).await;
            }
        }
        for address in others {
            link.send(to(address)).await;
            wait_for_lull(&received).await;
        }
    }
}

/// Waits between two copies of a query until the answers to the first are in, as far as they come in
/// numbers. liblsl answers every copy, once for each of an outlet's sockets: the answers of 200 of its
/// outlets to all copies together would overrun any receive buffer.
async fn wait_for_lull(received: &AtomicUsize) {
    for _ in 0..MOST_TICKS {
        let before = received.load(Ordering::Relaxed);
        tokio::time::sleep(TICK).await;
        if received.load(Ordering::Relaxed).wrapping_sub(before) < FLOOD {
            return;
        }
    }
}

/// Reads one socket for ever.
async fn receive(socket: Arc<UdpSocket>, inbox: Inbox) {
    loop {
        let received = sockets::receive_from(&socket, |datagram, from| inbox.take(from, datagram));
        if let Err(error) = received.await {
            tracing::debug!(%error, "receiving failed");
            tokio::time::sleep(ERROR_PAUSE).await;
        }
    }
}

/// Hands a reply to the search and wakes those whom it concerns.
pub(crate) fn take_in(
    monitor: &Monitor<SearchState>,
    reply: impl FnOnce(&mut Search, f64) -> Received,
) -> Received {
    let now = local_clock();
    let mut state = monitor.lock();
    let received = reply(&mut state.search, now);
    if !state.done && state.search.is_done(now) {
        state.done = true;
    }
    let news = state.done || matches!(received, Received::New | Received::Changed);
    drop(state);
    if news {
        monitor.wake();
    }
    received
}

/// The hosts that are asked by unicast. Names are looked up once, while the search already runs.
#[derive(Debug)]
struct Hosts {
    known: Mutex<Vec<(SocketAddr, Option<u16>)>>,
}

impl Hosts {
    /// This host and the peers that are given as addresses.
    fn literal(network: &NetworkConfig) -> Self {
        let mut known = Vec::new();
        if !network.uses(Family::V4) {
            // The configuration names 127.0.0.1 for this host, which is out of reach then.
            known.push((SocketAddr::new(Family::V6.loopback(), 0), None));
        }
        for (host, port) in &network.peers {
            if let Ok(address) = host.parse::<IpAddr>() {
                known.push((SocketAddr::new(address, 0), *port));
            }
        }
        Self {
            known: Mutex::new(known),
        }
    }

    /// All names at once: one that a slow name server does not know must not hold up the others.
    async fn look_up(self: Arc<Self>, network: Arc<NetworkConfig>) {
        let mut lookups = JoinSet::new();
        for (host, port) in network.peers.clone() {
            if host.parse::<IpAddr>().is_ok() {
                continue;
            }
            let hosts = Arc::clone(&self);
            lookups.spawn(async move {
                match addresses_of(host.clone()).await {
                    Ok(addresses) => {
                        let found = addresses.into_iter().map(|address| (address, port));
                        lock_ignoring_poison(&hosts.known).extend(found);
                    }
                    Err(error) => tracing::warn!(host, %error, "known peer not found"),
                }
            });
        }
        while lookups.join_next().await.is_some() {}
    }

    fn known(&self) -> Vec<(SocketAddr, Option<u16>)> {
        lock_ignoring_poison(&self.known).clone()
    }
}

fn with_port(mut host: SocketAddr, port: u16) -> SocketAddr {
    host.set_port(port);
    host
}

/// Turns of looking names up. A dead name server keeps each of them in a thread of the runtime's pool
/// for many seconds, and handshakes need threads of that pool too.
struct Lookups(Arc<Semaphore>);

impl Default for Lookups {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(MAX_LOOKUPS)))
    }
}

/// What the system knows of a name, when it is its turn.
async fn addresses_of(host: String) -> io::Result<Vec<SocketAddr>> {
    let turns = Arc::clone(&LOOKUPS.get().0);
    let turn = turns.acquire_owned().await.map_err(io::Error::other)?;
    let look_up = move || {
        let addresses = (host.as_str(), 0).to_socket_addrs();
        // As long as the thread is busy, also if nobody waits for it any more.
        drop(turn);
        addresses.map(Iterator::collect)
    };
    tokio::task::spawn_blocking(look_up)
        .await
        .map_err(io::Error::other)?
}

static LOOKUPS: PerProcess<Lookups> = PerProcess::new();

/// Of the four threads of the pool.
const MAX_LOOKUPS: usize = 2;

/// PendingQuery every outlet, also one that shows little. Spec: LSS/1 §7.3.
const OPEN_REQUEST: &[u8] = b"LSL:shortinfo\r\n\r\n";

const MAX_DATAGRAM_BYTES: usize = 65_536;
const V6_DELAY: Duration = Duration::from_millis(2);
/// Between two copies of a multicast query. What the first finds it finds at once; the others are for
/// networks that carry only one of the groups, and for interfaces in turn.
const TICK: Duration = Duration::from_millis(1);
/// So many answers in a tick are a flood, whose end is waited for, at most for so many ticks.
const FLOOD: usize = 32;
const MOST_TICKS: usize = 25;
const UNICAST_BURST: usize = 64;
const UNICAST_PAUSE: Duration = Duration::from_millis(1);
const ERROR_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE_SECS: f64 = 3600.0;
const MAX_PROBES: usize = 128;
/// Of one host, however many hosts there are.
const LEAST_PROBES: usize = 8;

/// On a network where multicast works a host answers within milliseconds; a firewall that drops
/// packets must not hold a slot for minutes.
const PROBE_LIMIT: Duration = Duration::from_secs(3);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_take_long_leave_threads_for_others() {
        let turns = Arc::clone(&LOOKUPS.get().0);
        let (done, seen) = std::sync::mpsc::channel();
        runtime::spawn(async move {
            // As a dead name server keeps them.
            let busy = Arc::clone(&turns).acquire_many_owned(MAX_LOOKUPS.try_into().unwrap());
            let busy = busy.await.unwrap();
            let waits = tokio::spawn(addresses_of("localhost".to_owned()));
            let handshake = tokio::task::spawn_blocking(|| 1).await.unwrap();
            assert!(!waits.is_finished());
            drop(busy);
            done.send((handshake, waits.await.unwrap())).unwrap();
        })
        .unwrap();
        let (handshake, found) = seen.recv_timeout(Duration::from_secs(20)).unwrap();
        assert_eq!(handshake, 1);
        assert!(
            found
                .unwrap()
                .iter()
                .all(|address| address.ip().is_loopback())
        );
    }
}
