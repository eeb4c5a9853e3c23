//! The hosts that searches of a context ask by unicast: `lab.KnownPeers`, which is read again while somebody
//! searches, and the addresses of its names. Spec: doctor §2.1.

use std::collections::{HashMap, HashSet};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::time::{Duration, SystemTime};

use lsl_platform::clock::local_clock;
use lsl_platform::fork::PerProcess;
use lsl_proto::config::{Config, Files, HostPort, Ipv4Network};
use lsl_proto::discovery::asked::AskedHosts;
use lsl_proto::discovery::neighbours::NeighbourRounds;
use lsl_proto::discovery::registry::Subnet;
use lsl_proto::discovery::seen::SeenHosts;
use lsl_proto::discovery::sweep::Sweep;
use lsl_proto::discovery::ways::{ByUid, DirectWay, Medium};
use tokio::task::JoinSet;

use crate::config_files::SystemFiles;
use crate::context::Context;
use crate::net::monitor::Monitor;
use crate::net::runtime::BlockingWork;
use crate::net::select2::{Either, select2};
use crate::net::sockets::Family;

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct KnownHosts {
    /// Searches that run wait for changes.
    known: Monitor<Known>,
    /// Held by the one search that reads the file for all.
    reading: tokio::sync::Mutex<()>,
    /// Held by the one search that looks names up for all.
    looking_up: tokio::sync::Mutex<()>,
    /// Held by the one search that asks the hosts of networks for all.
    pub(super) sweeping: tokio::sync::Mutex<()>,
    /// When hosts were asked over TCP.
    pub(super) asked: AskedHosts,
    /// When neighbours were.
    pub(super) neighbours: NeighbourRounds,
}

#[derive(Debug)]
struct Known {
    peers: Vec<HostPort>,
    networks: Vec<Ipv4Network>,
    /// Those of them that the program added, whatever the file says.
    added: (Vec<HostPort>, Vec<Ipv4Network>),
    /// Hosts that are asked because the system knows them.
    neighbours: HashSet<Ipv4Addr>,
    /// Hosts of the networks, and neighbours, that answered.
    swept: SeenHosts,
    /// Hosts on networks of this host that answered, and those that accepted connections, with their data ports.
    seen: SeenHosts,
    /// Networks of this host.
    subnets: Vec<Subnet>,
    /// Where outlets answered.
    ways: ByUid<Vec<DirectWay>>,
    /// Grows with every change that gives somebody new to ask.
    revision: u64,
    names: HashMap<String, Name>,
    file: File,
    sweep: Sweep,
}

/// What is known of a name.
#[derive(Debug, Default)]
struct Name {
    addresses: Vec<SocketAddr>,
    /// When it is looked up again, in seconds of `local_clock`.
    due: f64,
    has_failed: bool,
}

impl Name {
    fn begin_again(&mut self) {
        if self.due.is_infinite() {
            self.due = 0.0;
        }
    }
}

/// Time of the last change of a file, and its length.
type Stamp = (SystemTime, u64);

/// The configuration file as it was when it was last looked at.
#[derive(Debug)]
struct File {
    looked_at: f64,
    stamp: Option<Stamp>,
}

impl KnownHosts {
    /// Starts with what the configuration says.
    pub(crate) fn new(config: &Config) -> Self {
        let known = Known {
            peers: config.unicast_peers(),
            networks: config.peer_networks(),
            added: (Vec::new(), Vec::new()),
            neighbours: HashSet::new(),
            swept: SeenHosts::new(MAX_SWEPT),
            seen: SeenHosts::new(MAX_SEEN),
            subnets: Vec::new(),
            ways: ByUid::new(MAX_WITH_WAYS),
            revision: 0,
            names: HashMap::new(),
            file: File {
                looked_at: f64::NEG_INFINITY,
                stamp: None,
            },
            sweep: Sweep::default(),
        };
        Self {
            known: Monitor::new(known),
            reading: tokio::sync::Mutex::default(),
            looking_up: tokio::sync::Mutex::default(),
            sweeping: tokio::sync::Mutex::default(),
            asked: AskedHosts::default(),
            neighbours: NeighbourRounds::default(),
        }
    }

    /// Returns the addresses to ask, each with the one port that is meant, if only one is.
    pub(crate) fn addresses(&self, context: &Context) -> Vec<(SocketAddr, Option<u16>)> {
        let mut addresses = Vec::new();
        if !context.network().uses(Family::V4) {
            // The configuration names 127.0.0.1 for this host, which is out of reach then.
            addresses.push((SocketAddr::new(Family::V6.loopback(), 0), None));
        }
        let known = self.known.lock();
        for HostPort { host, port } in &known.peers {
            if let Ok(address) = host.parse::<IpAddr>() {
                addresses.push((SocketAddr::new(address, 0), *port));
            } else if let Some(name) = known.names.get(host) {
                addresses.extend(name.addresses.iter().map(|address| (*address, *port)));
            }
        }
        let swept = known.swept.iter(local_clock()).map(|(host, _)| host);
        addresses.extend(
            swept
                .filter(|host| known.is_swept(*host))
                .map(|host| (host, None)),
        );
        addresses
    }

    /// Has searches ask a host or a network, too, from now on, and returns whether it is a new one.
    ///
    /// # Errors
    /// [`Error::Argument`](crate::Error::Argument) if the text names none, or there are too many.
    pub(crate) fn add(&self, config: &Config, peer: &str) -> crate::Result<bool> {
        let mut config = config.clone();
        config.set_known_peers(&[peer])?;
        self.known.update(|known| {
            let (mut peers, mut networks) = known.added.clone();
            extend(&mut peers, config.unicast_peers());
            extend(&mut networks, config.peer_networks());
            if peers.len() + networks.len() > MAX_ADDED {
                let text = format!("not more than {MAX_ADDED} known peers: add their networks");
                return Err(crate::Error::Argument(text));
            }
            known.added = (peers, networks);
            let (peers, networks) = (known.peers.clone(), known.networks.clone());
            Ok(known.set(peers, networks))
        })
    }

    /// Has the outlets of a context answer whoever is asked, also from beyond its networks.
    pub(crate) fn answer(&self, context: &Context) {
        let known = self.known.lock();
        let peers = known.peers.iter().filter_map(|peer| peer.host.parse().ok());
        let (peers, networks) = (peers.collect(), known.networks.clone());
        drop(known);
        context.service().know(peers, networks);
    }

    /// Returns the data ports of hosts that were seen, of each host newest first.
    pub(crate) fn seen_ports(&self) -> Vec<SocketAddr> {
        let known = self.known.lock();
        let ports = known.seen.iter(local_clock()).flat_map(|(host, ports)| {
            ports.iter().map(move |port| {
                let mut target = host;
                target.set_port(*port);
                target
            })
        });
        ports.collect()
    }

    /// Takes note of the networks of this host.
    pub(crate) fn set_subnets(&self, subnets: Vec<Subnet>) {
        self.known.lock().subnets = subnets;
    }

    /// Takes note of a data port that a stream has, by its own word. What comes from elsewhere than the networks of
    /// this host may be forged, and must not aim our connections.
    pub(crate) fn announced(&self, port: SocketAddr) {
        let mut known = self.known.lock();
        let is_own = known.subnets.iter().any(|it| it.address == port.ip());
        if port.port() != 0 && !is_own && known.subnets.iter().any(|it| it.has(port)) {
            known.seen.saw(port, local_clock());
        }
    }

    /// Takes note of a data port that accepted a connection.
    pub(crate) fn connected(&self, port: SocketAddr) {
        if !port.ip().is_loopback() {
            self.known.lock().seen.saw(port, local_clock());
        }
    }

    /// Takes note of where an outlet answered. As [`announced`](Self::announced), unless that address was asked.
    pub(crate) fn answered(&self, uid: &[u8], way: DirectWay) {
        let mut known = self.known.lock();
        let is_near = known.subnets.iter().any(|it| it.has(way.host));
        if is_near || way.by != Medium::Group {
            known.ways.update(uid, |ways| way.add_to(ways));
        }
    }

    /// Forgets ways to an outlet that led nowhere when it was looked for. It answers by those that do not.
    pub(crate) fn forget(&self, uid: &[u8], is_dead: impl Fn(&DirectWay) -> bool) {
        if let Some(ways) = self.known.lock().ways.get_mut(uid) {
            ways.retain(|way| !is_dead(way));
        }
    }

    /// Returns where the outlet with this uid answered, the fastest first.
    pub(crate) fn ways_to(&self, uid: &[u8]) -> Vec<DirectWay> {
        let mut known = self.known.lock();
        known
            .ways
            .get_mut(uid)
            .map(|ways| ways.clone())
            .unwrap_or_default()
    }

    /// Takes note of who answered a search.
    pub(crate) fn saw(&self, from: SocketAddr) {
        let mut known = self.known.lock();
        if known.is_swept(from) && known.swept.saw(from, local_clock()) {
            known.revision += 1;
            drop(known);
            self.known.wake();
        }
    }

    /// Takes note of neighbours that are asked, and from then on as known peers if they answer.
    pub(crate) fn asks_neighbours(&self, hosts: &[Ipv4Addr]) {
        let known = &mut *self.known.lock();
        if known.neighbours.len() + hosts.len() > MAX_SWEPT {
            let answered = known.swept.iter(local_clock()).map(|(host, _)| host.ip());
            let answered: HashSet<IpAddr> = answered.collect();
            (known.neighbours).retain(|host| answered.contains(&IpAddr::V4(*host)));
        }
        let room = MAX_SWEPT.saturating_sub(known.neighbours.len());
        known.neighbours.extend(hosts.iter().take(room));
    }

    /// Returns whether there are networks whose hosts are asked.
    pub(crate) fn has_networks(&self) -> bool {
        !self.known.lock().networks.is_empty()
    }

    /// Waits until it is the turn of a host of the networks. Of the searches that run one asks for all.
    pub(crate) async fn next_swept(&self) -> Ipv4Addr {
        loop {
            let (at, revision) = {
                let known = &mut *self.known.lock();
                if let Some(host) = known.sweep.poll(&known.networks, local_clock()) {
                    return host;
                }
                (known.sweep.poll_timeout(), known.revision)
            };
            let is_other = |known: &mut Known| (known.revision != revision).then_some(());
            self.known.wait(at, is_other).await;
        }
    }

    /// Returns a number that grows when there is somebody new to ask.
    pub(crate) fn revision(&self) -> u64 {
        self.known.lock().revision
    }

    /// Waits until it is another one.
    pub(crate) async fn changed(&self, since: u64) {
        let is_other = |known: &mut Known| (known.revision != since).then_some(());
        self.known.wait(f64::INFINITY, is_other).await;
    }

    /// Keeps the hosts as the file and the name servers say, for as long as a search runs.
    pub(crate) async fn keep(context: Context) {
        let hosts = context.known_hosts();
        select2(hosts.keep_file(&context), hosts.keep_names()).await;
    }

    async fn keep_file(&self, context: &Context) {
        let mut config = context.config().clone();
        let Some(path) = config.peers_file().map(ToOwned::to_owned) else {
            return std::future::pending().await;
        };
        let mut least_secs = STARTED_SECS;
        loop {
            let turn = self.reading.lock().await;
            let (looked_at, stamp) = {
                let file = &self.known.lock().file;
                (file.looked_at, file.stamp)
            };
            if local_clock() - looked_at >= least_secs {
                let path = path.clone();
                let reading = READINGS.get().run(move || {
                    let metadata = std::fs::metadata(&path).ok()?;
                    let present = (metadata.modified().ok()?, metadata.len());
                    (stamp != Some(present)).then(|| (present, SystemFiles.read(&path)))
                });
                let read = reading.await.ok().flatten();
                self.known.lock().file.looked_at = local_clock();
                // A file that is not there is about to be, or was never needed.
                if let Some((stamp, Ok(content))) = read {
                    self.take_file(&mut config, stamp, &content);
                    self.answer(context);
                }
            }
            drop(turn);
            least_secs = FILE_SECS;
            let due = self.known.lock().file.looked_at + FILE_SECS;
            tokio::time::sleep(Duration::from_secs_f64((due - local_clock()).max(0.001))).await;
        }
    }

    fn take_file(&self, config: &mut Config, stamp: Stamp, content: &[u8]) {
        self.known.lock().file.stamp = Some(stamp);
        if let Err(mistake) = config.reread_peers(&String::from_utf8_lossy(content)) {
            return tracing::warn!("{mistake}; the known peers are those from before");
        }
        let (peers, networks) = (config.unicast_peers(), config.peer_networks());
        if self.known.update(|known| known.set(peers, networks)) {
            tracing::info!(peers = ?config.lab().known_peers, "known peers changed");
        }
    }

    /// Has names looked up again, as other name servers may answer now. Every search that runs says so.
    pub(crate) fn network_changed(&self) {
        let mut known = self.known.lock();
        let least = local_clock() + NAME_SECS - STARTED_SECS;
        let old = known.names.values_mut().filter(|name| name.due < least);
        let again = old.map(|name| name.due = 0.0).count();
        if again > 0 {
            known.revision += 1;
            drop(known);
            self.known.wake();
        }
    }

    /// Looks all names up at once: one that a slow name server does not know must not hold up the others.
    async fn keep_names(&self) {
        let _turn = self.looking_up.lock().await;
        // Those that a search was at when it ended.
        let names = |known: &mut Known| known.names.values_mut().for_each(Name::begin_again);
        self.known.update(names);
        let mut lookups = JoinSet::new();
        loop {
            let (names, due, revision) = {
                let mut known = self.known.lock();
                let (names, due) = known.take_due(local_clock());
                (names, due, known.revision)
            };
            for name in names {
                lookups.spawn(async move {
                    let found = addresses_of(name.clone()).await;
                    (name, found)
                });
            }
            let is_other = |known: &mut Known| (known.revision != revision).then_some(());
            let idle = self.known.wait(due, is_other);
            if lookups.is_empty() {
                idle.await;
            } else if let Either::First(Some(Ok((name, found)))) =
                select2(lookups.join_next(), idle).await
            {
                self.looked_up(&name, found);
            }
        }
    }

    fn looked_up(&self, name: &str, found: io::Result<Vec<SocketAddr>>) {
        let mut known = self.known.lock();
        let before = known.names.entry(name.to_owned()).or_default();
        match found {
            Ok(addresses) => {
                before.due = local_clock() + NAME_SECS;
                before.has_failed = false;
                let is_new = addresses.iter().any(|it| !before.addresses.contains(it));
                before.addresses = addresses;
                known.revision += u64::from(is_new);
            }
            // What was known of it may still be right.
            Err(error) => {
                before.due = local_clock() + FAILED_NAME_SECS;
                if !std::mem::replace(&mut before.has_failed, true) {
                    tracing::warn!(host = name, %error, "known peer not found");
                }
            }
        }
        drop(known);
        self.known.wake();
    }
}

impl Known {
    fn is_swept(&self, host: SocketAddr) -> bool {
        let IpAddr::V4(address) = host.ip() else {
            return false;
        };
        let mut networks = self.networks.iter();
        self.neighbours.contains(&address) || networks.any(|it| it.contains(address))
    }

    /// Takes another list. Returns whether it is another one.
    fn set(&mut self, mut peers: Vec<HostPort>, mut networks: Vec<Ipv4Network>) -> bool {
        extend(&mut peers, self.added.0.iter().cloned());
        extend(&mut networks, self.added.1.iter().copied());
        if (&self.peers, &self.networks) == (&peers, &networks) {
            return false;
        }
        let hosts: HashSet<&String> = peers.iter().map(|peer| &peer.host).collect();
        self.names.retain(|name, _| hosts.contains(name));
        if self.networks != networks {
            self.sweep = Sweep::default();
        }
        (self.peers, self.networks) = (peers, networks);
        self.revision += 1;
        true
    }

    /// Returns the names to look up now, and when the next ones are due.
    fn take_due(&mut self, now: f64) -> (Vec<String>, f64) {
        let (mut due, mut next) = (Vec::new(), f64::INFINITY);
        for HostPort { host, .. } in &self.peers {
            if host.parse::<IpAddr>().is_ok() {
                continue;
            }
            let name = self.names.entry(host.clone()).or_default();
            if name.due <= now {
                name.due = f64::INFINITY;
                due.push(host.clone());
            }
            next = next.min(name.due);
        }
        (due, next)
    }
}

/// Adds what is not there yet.
fn extend<T: PartialEq>(list: &mut Vec<T>, more: impl IntoIterator<Item = T>) {
    for item in more {
        if !list.contains(&item) {
            list.push(item);
        }
    }
}

/// Returns what the system knows of a name, when it is its turn.
pub(crate) async fn addresses_of(host: String) -> io::Result<Vec<SocketAddr>> {
    let look_up = move || Ok((host.as_str(), 0).to_socket_addrs()?.collect());
    LOOKUPS.get().run(look_up).await.map_err(io::Error::other)?
}

/// Look-ups of names. A dead name server keeps each of them in a thread of the runtime's pool for many seconds, and
/// handshakes need threads of that pool too.
static LOOKUPS: PerProcess<BlockingWork<MAX_LOOKUPS>> = PerProcess::new();

/// Of the four threads of the pool.
const MAX_LOOKUPS: usize = 2;

/// Reads of configuration files, which may lie on a network share that is gone.
static READINGS: PerProcess<BlockingWork<1>> = PerProcess::new();

/// A program that searches again and again does not look into the file each time.
const STARTED_SECS: f64 = 1.0;

/// How often the file is looked at while a search runs.
const FILE_SECS: f64 = 10.0;

/// How often names are looked up again, and those that nobody knows.
const NAME_SECS: f64 = 60.0;
const FAILED_NAME_SECS: f64 = 10.0;

/// Known peers that a program may add: each of them is asked in every wave.
const MAX_ADDED: usize = 1024;

/// Hosts of networks that are asked as if they were known peers.
const MAX_SWEPT: usize = 256;

/// Other hosts that are remembered.
const MAX_SEEN: usize = 64;

/// Streams whose ways are remembered.
const MAX_WITH_WAYS: usize = 1024;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::net::runtime;

    #[test]
    fn names_are_due_at_once_and_then_after_a_while() {
        let mut config = Config::loopback();
        config.set_bind(lsl_proto::config::Bind::All);
        config
            .set_known_peers(&["a", "b:1", "b:2", "10.0.0.1"])
            .unwrap();
        let hosts = KnownHosts::new(&config);
        let due = |now| hosts.known.lock().take_due(now);
        assert_eq!(due(1.0).0, ["a", "b"]);
        assert_eq!(due(2.0), (vec![], f64::INFINITY));
        let addresses = vec!["10.0.0.2:0".parse().unwrap()];
        let before = hosts.revision();
        hosts.looked_up("a", Ok(addresses.clone()));
        assert_ne!(hosts.revision(), before);
        hosts.looked_up("a", Ok(addresses.clone()));
        hosts.looked_up("b", Err(io::ErrorKind::NotFound.into()));
        assert_eq!(hosts.revision(), before + 1);
        let now = local_clock();
        assert_eq!(due(now + FAILED_NAME_SECS).0, ["b"]);
        assert_eq!(due(now + NAME_SECS).0, ["a"]);
        hosts.looked_up("a", Ok(addresses));
        hosts.network_changed();
        assert_eq!(hosts.revision(), before + 1);
        hosts.known.lock().names.get_mut("a").unwrap().due -= 2.0;
        hosts.network_changed();
        assert_eq!(
            (hosts.revision(), due(local_clock()).0),
            (before + 2, vec!["a".into()])
        );
        let context = Context::new(config);
        let with_port = |text: &str, port| (text.parse().unwrap(), port);
        let known = ["127.0.0.1:0", "10.0.0.2:0", "10.0.0.1:0"].map(|it| with_port(it, None));
        assert_eq!(hosts.addresses(&context), known);
        // One that is no peer any more is forgotten, unless the program added it.
        assert_eq!(hosts.add(context.config(), "10.0.0.1").ok(), Some(false));
        assert_eq!(hosts.add(context.config(), "10.0.0.3:7").ok(), Some(true));
        assert!(hosts.add(context.config(), "10.0.0.0/99").is_err());
        hosts.known.lock().set(vec![], vec![]);
        assert_eq!(due(f64::MAX), (vec![], f64::INFINITY));
        let known = [
            ("127.0.0.1:0", None),
            ("10.0.0.1:0", None),
            ("10.0.0.3:0", Some(7)),
        ];
        let known = known.map(|(text, port)| with_port(text, port));
        assert_eq!(hosts.addresses(&context), known);
    }

    #[test]
    fn a_program_adds_no_more_than_so_many_peers() {
        let config = Config::default();
        let hosts = KnownHosts::new(&config);
        let peer = |number| HostPort {
            host: format!("amp-{number}"),
            port: None,
        };
        // This host is one of them.
        let added = (2..MAX_ADDED).map(peer);
        hosts.known.lock().added.0.extend(added);
        assert!(hosts.add(&config, "amp-1").unwrap());
        assert!(!hosts.add(&config, "amp-1").unwrap());
        for more in ["amp", "10.1.2.0/24"] {
            let refused = hosts.add(&config, more).unwrap_err();
            assert!(refused.to_string().contains("1024"), "{refused}");
        }
        assert_eq!(hosts.known.lock().peers.len(), MAX_ADDED);
    }

    #[test]
    fn neighbours_that_are_asked_take_the_place_of_silent_ones() {
        let hosts = KnownHosts::new(&Config::default());
        let at = |turn: u8, number| Ipv4Addr::new(10, 0, turn, number);
        for turn in 0..5 {
            let asked: Vec<_> = (0..64).map(|number| at(turn, number)).collect();
            hosts.asks_neighbours(&asked);
            hosts.saw((at(turn, 0), 16571).into());
        }
        let known = hosts.known.lock();
        assert!((0..5).all(|turn| known.is_swept((at(turn, 0), 0).into())));
        assert_eq!(known.neighbours.len(), 4 + 64);
    }

    #[test]
    fn a_search_goes_on_with_the_sweep_of_the_one_before() {
        let mut config = Config::default();
        config.set_known_peers(&["10.2.0.0/29"]).unwrap();
        let hosts = KnownHosts::new(&config);
        let (done, seen) = std::sync::mpsc::channel();
        runtime::spawn(async move {
            let mut asked = Vec::new();
            for _ in 0..3 {
                let _turn = hosts.sweeping.lock().await;
                asked.extend([hosts.next_swept().await, hosts.next_swept().await]);
            }
            done.send(asked).unwrap();
        })
        .unwrap();
        let asked = seen.recv_timeout(Duration::from_mins(1)).unwrap();
        let all: Vec<Ipv4Addr> = (1..=6).map(|host| [10, 2, 0, host].into()).collect();
        assert_eq!(asked, all);
    }

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
