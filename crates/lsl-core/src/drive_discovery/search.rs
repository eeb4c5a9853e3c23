//! Drives a [`Search`]: one socket per family for its whole life, which sends every query and
//! receives every reply, as liblsl 1.18 does. Spec: lsl-protocol §3.1, §3.3, §3.4, §3.6.

use std::collections::HashSet;
use std::future::{pending, poll_fn};
use std::hash::{BuildHasher, RandomState};
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use lsl_platform::clock::local_clock;
use lsl_platform::fork::PerProcess;
use lsl_platform::neighbours::neighbours;
use lsl_proto::config::globs::allows;
use lsl_proto::discovery::fallback::ProbeEnd;
use lsl_proto::discovery::queries::Transmit;
use lsl_proto::discovery::redacted::QueryExposure;
use lsl_proto::discovery::registry::Subnet;
use lsl_proto::discovery::search::{Received, Search, SearchAction};
use lsl_proto::wire::discovery::ReplyDatagram;
use tokio::net::UdpSocket;
use tokio::task::JoinSet;

use crate::context::Context;
use crate::drive_discovery::known_hosts::KnownHosts;
use crate::drive_discovery::network_config::{NetworkConfig, present_interfaces};
use crate::drive_discovery::redacted::{self, Prober};
use crate::drive_discovery::relays;
use crate::drive_discovery::replies::take_in;
use crate::drive_discovery::tcp_probe;
use crate::net::changes::Subscription;
use crate::net::monitor::{Monitor, lock_ignoring_poison};
use crate::net::overruns::Overruns;
use crate::net::runtime::{self, AbortOnDrop, BlockingWork};
use crate::net::sockets::{self, Family};
use crate::{Error, Result, StreamInfo};

/// A search that runs on the process runtime until dropped.
#[derive(Debug)]
pub(crate) struct RunningSearch {
    /// The search; waiters are woken when it ends and when there is an event to take.
    pub monitor: Arc<Monitor<Search>>,
    _tasks: Vec<AbortOnDrop<()>>,
}

impl RunningSearch {
    /// Opens the sockets and sends the first queries soon.
    ///
    /// # Errors
    /// [`Error::Io`] if no family can be opened or there is no runtime.
    pub(crate) fn start(context: &Context, search: Search) -> Result<Self> {
        let search = search.with_id(random()).with_sweeps(random());
        let search = match redacted::query_exposure(context) {
            QueryExposure::Open => search,
            QueryExposure::HiddenOutlets => search.with_open_query(random()),
            QueryExposure::Nobody => search.with_open_query_alone(random()),
        };
        let search = search.with_veto(redacted::veto(context));
        let lab = context.config().lab();
        // Else they are asked over TCP in every wave.
        let search = if lab.self_healing && !lab.resolve_over_tcp {
            search.with_fallback(context.known_hosts().asked.clone())
        } else {
            search
        };
        let network = Arc::clone(context.network());
        let search = if lab.self_healing && lab.ask_neighbours && !network.loopback_only {
            search.with_neighbours(context.known_hosts().neighbours.clone(), local_clock())
        } else {
            search
        };
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
        let revision = search.revision();
        let monitor = Arc::new(Monitor::new(search));
        let mut tasks = Vec::new();
        let inbox = Inbox {
            context: context.clone(),
            monitor: Arc::clone(&monitor),
            prober: Prober::new(context, &monitor),
            face: network.face.map(|_| Arc::default()),
        };
        for link in &links {
            let receiving = receive(Arc::clone(&link.socket), inbox.clone());
            tasks.push(AbortOnDrop(runtime::spawn(receiving)?));
        }
        for (relay, _) in (0..).zip(&network.relays) {
            let following = relays::follow(context.clone(), relay, Arc::clone(&monitor));
            tasks.push(AbortOnDrop(runtime::spawn(following)?));
        }
        let keeping = KnownHosts::keep(context.clone());
        tasks.push(AbortOnDrop(runtime::spawn(keeping)?));
        let driver = Driver {
            changes: network.changes(),
            network,
            links,
            revision,
            known: context.known_hosts().revision(),
            inbox,
            probes: JoinSet::new(),
            sweeping: None,
        };
        tasks.push(AbortOnDrop(runtime::spawn(driver.run())?));
        Ok(Self {
            monitor,
            _tasks: tasks,
        })
    }
}

/// Returns a query id, as good as random: the standard library seeds its hashers from the system.
fn random() -> u64 {
    RandomState::new().hash_one(local_clock().to_bits())
}

/// Takes the replies to one search, from sockets and probes.
#[derive(Debug, Clone)]
pub(super) struct Inbox {
    pub(super) context: Context,
    pub(super) monitor: Arc<Monitor<Search>>,
    /// For outlets that hide what they are, if this context looks for them.
    pub(super) prober: Option<Arc<Prober>>,
    /// Subnets of the face of a relay: what answers from elsewhere is not seen there.
    face: Option<Arc<Mutex<Vec<Subnet>>>>,
}

impl Inbox {
    fn hears(&self, from: SocketAddr) -> bool {
        self.face.as_ref().is_none_or(|subnets| {
            let subnets = lock_ignoring_poison(subnets);
            subnets.iter().any(|subnet| subnet.has(from))
        })
    }

    fn take(&self, from: SocketAddr, datagram: &[u8]) {
        if !self.hears(from) {
            return;
        }
        let received = self.hand_in(|search, now| search.handle_datagram(from, datagram, now));
        let hosts = self.context.known_hosts();
        if !matches!(received, Received::Foreign | Received::Invalid) {
            hosts.saw(from);
            self.context.discovery_counters().answers.add(1);
        }
        if received == Received::New
            && let Ok(reply) = ReplyDatagram::parse(datagram)
            && let Ok(info) = StreamInfo::from_xml(reply.xml)
        {
            let port = match Family::of(from.ip()) {
                Family::V4 => info.v4_data_port(),
                Family::V6 => info.v6_data_port(),
            };
            hosts.announced(with_port(from, port));
        }
        if let (Received::Redacted, Some(prober)) = (received, &self.prober)
            && let Ok(reply) = ReplyDatagram::parse(datagram)
        {
            prober.on_redacted(from, reply.xml);
        }
    }

    pub(super) fn take_over_tcp(&self, from: SocketAddr, xml: &[u8]) {
        if let Some(prober) = &self.prober
            && prober.on_redacted(from, xml)
        {
            return;
        }
        self.hand_in(|search, now| search.handle_reply(from, xml, now));
    }

    /// Hands a reply to the search, and keeps the way that it came by for those who will connect.
    pub(super) fn hand_in(&self, reply: impl FnOnce(&mut Search, f64) -> Received) -> Received {
        let mut ways = Vec::new();
        let received = take_in(&self.monitor, |search, now| {
            let received = reply(search, now);
            ways = search.take_ways();
            received
        });
        for (uid, way) in ways {
            self.context.known_hosts().answered(&uid, way);
        }
        received
    }
}

/// The socket of one family, with the datagrams that it sends.
#[derive(Debug)]
struct Link {
    family: Family,
    socket: Arc<UdpSocket>,
    return_port: u16,
    /// The query, and one that asks everybody, because outlets that hide what they are do not answer the other.
    datagrams: Vec<Vec<u8>>,
    sweep: Option<Vec<u8>>,
    overruns: Overruns,
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
            return_port,
            datagrams: search.datagrams(return_port),
            sweep: search.sweep_datagram(return_port),
            overruns: Overruns::default(),
        })
    }

    /// Sends a query, and returns how many datagrams that were. Errors are ignored: an unreachable target must not
    /// keep it from the others.
    async fn send(&self, query: Transmit) -> u64 {
        let Transmit { to, interface, .. } = query;
        if let Some(interface) = interface {
            let (address, index) = (interface.address, interface.index);
            let chosen = sockets::select_multicast_interface(&*self.socket, address, index);
            if let Err(error) = chosen {
                tracing::debug!(%address, %error, "interface skipped");
                return 0;
            }
        }
        let mut sent = 0;
        for datagram in &self.datagrams {
            match self.socket.send_to(datagram, to).await {
                Ok(_) => sent += 1,
                Err(error) => tracing::trace!(%error, %to, "query not sent"),
            }
        }
        sent
    }
}

/// The task that does what a search says.
struct Driver {
    changes: Subscription,
    network: Arc<NetworkConfig>,
    links: Vec<Link>,
    /// Revision of the known hosts that were asked.
    known: u64,
    /// Revision of the datagrams of `links`.
    revision: Option<u64>,
    inbox: Inbox,
    /// Each returns the port that it asked, and what came of it.
    probes: JoinSet<(SocketAddr, ProbeEnd)>,
    /// Asks the hosts of networks, if there are some.
    sweeping: Option<AbortOnDrop<()>>,
}

impl Driver {
    async fn run(mut self) {
        loop {
            let now = local_clock();
            let (action, has_forgotten, conflicts) = {
                let mut search = self.inbox.monitor.lock();
                if search.revision() != self.revision {
                    self.revision = search.revision();
                    for link in &mut self.links {
                        link.datagrams = search.datagrams(link.return_port);
                    }
                }
                let action = search.poll(now);
                (action, search.take_forgotten(), search.take_conflicts())
            };
            for (one, other) in conflicts {
                self.inbox.context.tell_conflict(&one, &other);
            }
            if has_forgotten {
                self.inbox.monitor.wake();
            }
            if matches!(
                action,
                SearchAction::SendMulticast | SearchAction::SendUnicast | SearchAction::Done
            ) {
                self.look_for_overruns(now);
            }
            match action {
                SearchAction::SendMulticast => self.send_multicast(now),
                SearchAction::SendUnicast => self.send_unicast(now),
                SearchAction::Send(query) => {
                    let family = Family::of(query.to.ip());
                    if let Some(link) = self.links.iter().find(|link| link.family == family) {
                        let sent = link.send(query).await;
                        self.inbox.context.discovery_counters().queries.add(sent);
                    }
                }
                SearchAction::AskNeighbours => self.ask_neighbours().await,
                SearchAction::ProbeTcp(target) => {
                    let probing = tcp_probe::ask(self.inbox.clone(), target);
                    self.probes.spawn(probing);
                }
                SearchAction::WaitUntil(time) => {
                    let pause = (time - now).clamp(0.0, LONGEST_PAUSE_SECS);
                    self.wait(Duration::from_secs_f64(pause)).await;
                }
                SearchAction::Done => {
                    self.inbox.monitor.wake();
                    return;
                }
            }
        }
    }

    /// Waits for the end of the pause or of a probe, for somebody new to ask, or until the network changes.
    async fn wait(&mut self, pause: Duration) {
        let hosts = self.inbox.context.known_hosts();
        let (known, revision) = (self.known, self.revision);
        let (probes, changes) = (&mut self.probes, &mut self.changes);
        let monitor = &self.inbox.monitor;
        let due = pin!(async {
            tokio::time::sleep(pause).await;
            Happened::Due
        });
        let probed = pin!(async {
            let (target, end) = next_probe(probes).await;
            Happened::ProbeEnded(target, end)
        });
        let hosts_changed = pin!(async {
            hosts.changed(known).await;
            Happened::HostsChanged
        });
        let revised = pin!(async {
            if revision.is_none() {
                pending::<()>().await;
            }
            let look = |search: &mut Search| (search.revision() != revision).then_some(());
            monitor.wait(f64::INFINITY, look).await;
            Happened::StreamsLost
        });
        let network_changed = pin!(async {
            changes.changed().await;
            Happened::NetworkChanged
        });
        let mut waits: [Pin<&mut (dyn Future<Output = Happened> + Send)>; 5] =
            [due, probed, hosts_changed, revised, network_changed];
        let happened = poll_fn(|cx| {
            let mut polled = waits.iter_mut().map(|wait| wait.as_mut().poll(cx));
            polled.find(Poll::is_ready).unwrap_or(Poll::Pending)
        });
        let happened = happened.await;
        let now = local_clock();
        let mut search = monitor.lock();
        match happened {
            Happened::Due | Happened::StreamsLost => {}
            Happened::ProbeEnded(target, end) => search.handle_probe_ended(target, end, now),
            Happened::HostsChanged => {
                // Now, as the round that asks them may have to wait.
                self.known = hosts.revision();
                search.ask_soon(now);
            }
            Happened::NetworkChanged => {
                search.handle_network_change(now);
                drop(search);
                hosts.network_changed();
            }
        }
    }

    fn look_for_overruns(&mut self, now: f64) {
        let counters = self.inbox.context.discovery_counters();
        let links = self.links.iter_mut();
        let lost = links.filter_map(|it| it.overruns.look(&*it.socket, counters).then_some(()));
        if lost.count() > 0 && self.inbox.context.config().lab().self_healing {
            self.inbox.monitor.lock().handle_overrun(now);
        }
    }

    /// Asks the hosts that the system knows as the hosts of a network are.
    async fn ask_neighbours(&self) {
        let link = self.links.iter().find(|link| link.family == Family::V4);
        let Some((link, datagram)) = link.and_then(|link| Some((link, link.sweep.as_ref()?)))
        else {
            return;
        };
        let names = &self.network.interface_names;
        let table = NEIGHBOURS.get().run(neighbours).await;
        // Other systems than Linux do not tell.
        let known = table.ok().and_then(Result::ok).unwrap_or_default();
        let known = known.into_iter().filter(|it| it.is_complete);
        let known = known.filter(|it| names.is_empty() || allows(names, &it.interface));
        let port = self.network.multicast_port;
        let at = |host: Ipv4Addr| SocketAddr::from((host, port));
        let usable = known.map(|it| it.address);
        let usable = usable.filter(|host| self.is_usable(&at(*host)));
        let hosts = self.inbox.context.known_hosts();
        let asked = hosts.neighbours.take_turn(usable.collect());
        hosts.asks_neighbours(&asked);
        let mut sent = 0;
        for host in asked {
            sent += u64::from(link.socket.send_to(datagram, at(host)).await.is_ok());
        }
        self.inbox.context.discovery_counters().queries.add(sent);
    }

    fn send_unicast(&mut self, now: f64) {
        self.known = self.inbox.context.known_hosts().revision();
        let targets = self.unicast_targets();
        let seen = self.inbox.context.known_hosts().seen_ports();
        let seen = seen.into_iter().filter(|target| self.is_usable(target));
        let mut search = self.inbox.monitor.lock();
        search.remember(seen.chain(targets.iter().copied()), now);
        search.send_unicast(targets, now);
        drop(search);
        // Not sooner, as a face of a relay knows its subnets with the first wave.
        if self.sweeping.is_none() && self.inbox.context.known_hosts().has_networks() {
            let link = self.links.iter().find(|link| link.family == Family::V4);
            let sweeping = link.and_then(|link| {
                let sweeping = sweep(
                    self.inbox.clone(),
                    Arc::clone(&link.socket),
                    link.sweep.clone()?,
                    self.network.multicast_port,
                );
                runtime::spawn(sweeping).ok()
            });
            self.sweeping = sweeping.map(AbortOnDrop);
        }
    }

    fn send_multicast(&self, now: f64) {
        if !self.inbox.monitor.lock().is_spreading() {
            self.inbox.context.discovery_counters().waves.add(1);
            // Looked up in every wave, because networks come and go while a resolver runs.
            let present = if self.network.loopback_only {
                Vec::new()
            } else {
                present_interfaces()
            };
            let subnets = self.network.subnets(&present);
            if let Some(face) = &self.inbox.face {
                lock_ignoring_poison(face).clone_from(&subnets);
            }
            self.inbox.context.known_hosts().set_subnets(subnets);
            let families = self
                .links
                .iter()
                .map(|link| link.family)
                .collect::<Vec<_>>();
            let queries = self.network.multicast_queries(&families, &present);
            self.inbox.monitor.lock().send_multicast(queries, now);
        }
        if self.network.resolve_over_tcp {
            let targets = self.unicast_targets();
            self.inbox.monitor.lock().probe_tcp(&targets);
        }
    }

    /// Returns the ports of this host and of the known peers, without repeats.
    fn unicast_targets(&self) -> Vec<SocketAddr> {
        let mut seen = HashSet::new();
        let own = self.inbox.context.service().service_ports();
        let own = [(Family::V4, own.v4), (Family::V6, own.v6)]
            .into_iter()
            .filter(|(_, port)| *port != 0)
            // The outlets of this process, also when they had to take a port outside the range.
            .map(|(family, port)| SocketAddr::new(self.network.own_address(family), port));
        let mut targets: Vec<SocketAddr> = own.collect();
        for (host, port) in self
            .inbox
            .context
            .known_hosts()
            .addresses(&self.inbox.context)
        {
            match port {
                Some(port) => targets.push(with_port(host, port)),
                None => {
                    targets.extend(self.network.ports.ports().map(|port| with_port(host, port)));
                }
            }
        }
        targets.retain(|target| self.is_usable(target) && seen.insert(*target));
        targets
    }

    fn is_usable(&self, target: &SocketAddr) -> bool {
        self.network.uses(Family::of(target.ip())) && self.inbox.hears(*target)
    }
}

/// Why a driver that waited goes on.
enum Happened {
    Due,
    ProbeEnded(SocketAddr, ProbeEnd),
    /// There is somebody new to ask.
    HostsChanged,
    StreamsLost,
    NetworkChanged,
}

/// Waits for the end of a probe; for ever, if none is under way.
async fn next_probe(probes: &mut JoinSet<(SocketAddr, ProbeEnd)>) -> (SocketAddr, ProbeEnd) {
    loop {
        match probes.join_next().await {
            Some(Ok(ended)) => return ended,
            // Nobody aborts them, so it panicked.
            Some(Err(_)) => {}
            None => pending().await,
        }
    }
}

fn with_port(mut host: SocketAddr, port: u16) -> SocketAddr {
    host.set_port(port);
    host
}

/// Asks every host of the networks whether it is there, when it is the turn of this search.
async fn sweep(inbox: Inbox, socket: Arc<UdpSocket>, datagram: Vec<u8>, port: u16) {
    let hosts = inbox.context.known_hosts();
    let _turn = hosts.sweeping.lock().await;
    loop {
        let to = SocketAddr::from((hosts.next_swept().await, port));
        if !inbox.hears(to) {
            continue;
        }
        match socket.send_to(&datagram, to).await {
            Ok(_) => inbox.context.discovery_counters().queries.add(1),
            Err(error) => tracing::trace!(%error, %to, "host of a network not asked"),
        }
    }
}

/// Reads one socket of a search for ever.
async fn receive(socket: Arc<UdpSocket>, inbox: Inbox) {
    loop {
        let received = sockets::receive_from(&socket, |datagram, from| inbox.take(from, datagram));
        if let Err(error) = received.await {
            tracing::debug!(%error, "receiving failed");
            tokio::time::sleep(ERROR_PAUSE).await;
        }
    }
}

const ERROR_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE_SECS: f64 = 3600.0;

/// Reads of the system's table of neighbours, which may be a long one. Nothing holds them up for long.
static NEIGHBOURS: PerProcess<BlockingWork<1>> = PerProcess::new();

#[cfg(test)]
mod tests;
