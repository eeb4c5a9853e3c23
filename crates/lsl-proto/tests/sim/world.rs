//! Hosts with outlets and searches, and the order in which things happen to them. The driver of the machines:
//! does what `lsl-core` does with sockets and timers, and checks their contract after every event.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use lsl_proto::discovery::answers::AnswerQueue;
use lsl_proto::discovery::evaluation::Evaluator;
use lsl_proto::discovery::registry::{AnnouncedStream, Registry, SourcePolicy};
use lsl_proto::discovery::search::Search;
use lsl_proto::{ChannelFormat, StreamInfo};
use lsl_secure::Policy;

use crate::dice::Dice;
use crate::network::{Datagram, Network};
use crate::programs::scripts::{Peer, Script};
use crate::programs::{CLOCK_PORT, Connection, InletId, OutletId, RunningInlet, RunningOutlet};
use crate::tcp::Side;

/// A host by its number.
pub(crate) type HostId = usize;

/// A search by the number of its host and its own.
pub(crate) type SearchId = (HostId, usize);

/// Everything there is. See the module's documentation.
pub(crate) struct World {
    pub(crate) dice: Dice,
    pub(crate) now: f64,
    pub(crate) network: Network,
    pub(crate) hosts: Vec<Host>,
    pub(crate) outlets: Vec<RunningOutlet>,
    pub(crate) inlets: Vec<RunningInlet>,
    pub(crate) peers: Vec<Peer>,
    /// Connections by their numbers.
    pub(crate) connections: BTreeMap<usize, Connection>,
    /// Whether inlets that are opened look for their streams when they lose them.
    pub(crate) recovers: bool,
    /// Addresses at which scripts answer.
    pub(crate) scripts: HashMap<SocketAddr, Script>,
    /// Connections that there ever were.
    pub(crate) connects: usize,
    events: BinaryHeap<Scheduled>,
    scheduled: u64,
}

/// A computer with one program.
pub(crate) struct Host {
    pub(crate) address: IpAddr,
    pub(crate) outlets: Outlets,
    pub(crate) searches: Vec<RunningSearch>,
    /// Hosts that its searches ask by unicast, besides itself.
    pub(crate) known_peers: Vec<IpAddr>,
    /// Datagrams that came to ports of nobody.
    pub(crate) strays: u64,
    /// What its outlets do about plaintext.
    pub(crate) policy: Policy,
    /// Seconds by which its clock is ahead of the world's, at the beginning of the world.
    pub(crate) ahead: f64,
    /// Seconds that its clock gains per second.
    pub(crate) drift: f64,
}

/// The announcing side of a program.
pub(crate) struct Outlets {
    pub(crate) registry: Registry,
    pub(crate) evaluator: Evaluator,
    pub(crate) answers: AnswerQueue<()>,
    /// Keys of the announced streams, by uid.
    pub(crate) streams: HashMap<String, u64>,
    pub(crate) wake_at: Option<f64>,
    /// Answers since the last pause of the queue.
    pub(crate) burst: usize,
}

/// A search and what came of it.
pub(crate) struct RunningSearch {
    pub(crate) search: Search,
    pub(crate) port: u16,
    pub(crate) wake_at: Option<f64>,
    pub(crate) ended_at: Option<f64>,
    /// Uids that appeared and were not lost.
    pub(crate) present: BTreeSet<String>,
    /// Events of each kind: appeared, changed, lost.
    pub(crate) events: [usize; 3],
    /// Waves of queries that it began.
    pub(crate) waves: usize,
}

pub(crate) enum Event {
    Arrives(HostId, Datagram),
    WakeAnswers(HostId),
    WakeSearch(SearchId),
    WakeOutlet(OutletId),
    WakeInlet(InletId),
    /// An inlet's connection reaches an address.
    Connects(InletId, SocketAddr),
    /// Bytes of a connection arrive at an end.
    Delivers(usize, Side),
    /// An end that found its connection full can write again.
    HasRoom(usize, Side),
}

struct Scheduled {
    at: f64,
    number: u64,
    event: Event,
}

impl Ord for Scheduled {
    /// The first one is the greatest, as heaps want it.
    fn cmp(&self, other: &Self) -> Ordering {
        let by_time = other.at.total_cmp(&self.at);
        by_time.then(other.number.cmp(&self.number))
    }
}

impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl Eq for Scheduled {}

impl Outlets {
    fn new() -> Self {
        Self {
            registry: Registry::new(SourcePolicy::default()),
            evaluator: Evaluator::new(100),
            answers: AnswerQueue::default(),
            streams: HashMap::new(),
            wake_at: None,
            burst: 0,
        }
    }
}

impl World {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            dice: Dice(seed),
            now: 1000.0,
            network: Network::default(),
            hosts: Vec::new(),
            outlets: Vec::new(),
            inlets: Vec::new(),
            peers: Vec::new(),
            connections: BTreeMap::new(),
            recovers: true,
            scripts: HashMap::new(),
            connects: 0,
            events: BinaryHeap::new(),
            scheduled: 0,
        }
    }

    /// Adds a host with an address of its own.
    pub(crate) fn add_host(&mut self) -> HostId {
        let number = u8::try_from(self.hosts.len() + 1).unwrap();
        self.hosts.push(Host {
            address: Ipv4Addr::new(192, 168, 1, number).into(),
            outlets: Outlets::new(),
            searches: Vec::new(),
            known_peers: Vec::new(),
            strays: 0,
            policy: Policy::Off,
            ahead: 0.0,
            drift: 0.0,
        });
        self.hosts.len() - 1
    }

    /// Announces a stream of this name.
    pub(crate) fn announce(&mut self, host: HostId, uid: &str, name: &str) {
        let format = ChannelFormat::Float32;
        let mut info = StreamInfo::new(name, "EEG", 2, 100.0, format, name).unwrap();
        info.reset_uid(uid);
        info.set_session_id("default");
        info.set_v4_ports(16_574, SERVICE_PORT);
        let outlets = &mut self.hosts[host].outlets;
        let key = outlets.registry.add(AnnouncedStream::open(&info));
        outlets.streams.insert(uid.to_owned(), key);
    }

    pub(crate) fn withdraw(&mut self, host: HostId, uid: &str) {
        let outlets = &mut self.hosts[host].outlets;
        let key = outlets.streams.remove(uid).unwrap();
        outlets.registry.remove(key);
    }

    /// Ends the program of a host and starts it again, without its streams.
    pub(crate) fn restart(&mut self, host: HostId) {
        self.hosts[host].outlets = Outlets::new();
    }

    /// Gives a host another address, as a new network does.
    pub(crate) fn move_host(&mut self, host: HostId) {
        let number = u8::try_from(host + 1).unwrap();
        self.hosts[host].address = Ipv4Addr::new(192, 168, 2, number).into();
    }

    pub(crate) fn start(&mut self, host: HostId, search: Search) -> SearchId {
        let id = self.dice.next();
        let searches = &mut self.hosts[host].searches;
        searches.push(RunningSearch {
            search: search.with_id(id),
            port: FIRST_SEARCH_PORT + u16::try_from(searches.len()).unwrap(),
            wake_at: None,
            ended_at: None,
            present: BTreeSet::new(),
            events: [0; 3],
            waves: 0,
        });
        let id = (host, searches.len() - 1);
        self.drive_search(id);
        id
    }

    pub(crate) fn search(&mut self, (host, number): SearchId) -> &mut RunningSearch {
        &mut self.hosts[host].searches[number]
    }

    /// Returns the uids that a search knows now.
    pub(crate) fn results(&mut self, id: SearchId) -> Vec<String> {
        let now = self.now;
        let infos = self.search(id).search.results(now);
        infos.iter().map(|info| info.uid().into_owned()).collect()
    }

    /// Lets things happen until `is_over`, at the longest until `deadline`. Returns whether it is over.
    pub(crate) fn run_until(
        &mut self,
        deadline: f64,
        mut is_over: impl FnMut(&mut Self) -> bool,
    ) -> bool {
        while !is_over(self) {
            match self.events.pop() {
                Some(next) if next.at <= deadline => {
                    assert!(next.at >= self.now, "time goes back");
                    self.now = next.at;
                    self.happen(next.event);
                    self.settle();
                }
                next => {
                    self.events.extend(next);
                    self.now = deadline;
                    return is_over(self);
                }
            }
        }
        true
    }

    /// Lets things happen for so long.
    pub(crate) fn run_for(&mut self, secs: f64) {
        self.run_until(self.now + secs, |_| false);
    }

    /// Lets a search come to its end. Returns how long it took since now.
    pub(crate) fn run_search(&mut self, id: SearchId) -> f64 {
        let begin = self.now;
        let ended = self.run_until(begin + 1000.0, |it| it.search(id).ended_at.is_some());
        assert!(ended, "the search never ends");
        self.now - begin
    }

    pub(crate) fn schedule(&mut self, at: f64, event: Event) {
        self.scheduled += 1;
        self.events.push(Scheduled {
            at,
            number: self.scheduled,
            event,
        });
    }

    /// Returns what the clock of a host shows.
    pub(crate) fn local(&self, host: HostId) -> f64 {
        let Host { ahead, drift, .. } = self.hosts[host];
        self.now * (1.0 + drift) + ahead
    }

    /// Returns when the clock of a host shows a time, in the future.
    pub(crate) fn when(&self, host: HostId, local: f64) -> f64 {
        let Host { ahead, drift, .. } = self.hosts[host];
        ((local - ahead) / (1.0 + drift)).max(self.now + 1e-9)
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Arrives(host, datagram) => self.receive(host, &datagram),
            Event::WakeAnswers(host) => {
                let wake = &mut self.hosts[host].outlets.wake_at;
                // One that was scheduled later counts alone.
                if wake.take_if(|at| *at <= self.now).is_some() {
                    self.drive_answers(host);
                }
            }
            Event::WakeSearch(id) => {
                let now = self.now;
                if self.search(id).wake_at.take_if(|at| *at <= now).is_some() {
                    self.drive_search(id);
                }
            }
            Event::WakeOutlet(id) => {
                if self.outlets[id]
                    .wake_at
                    .take_if(|at| *at <= self.now)
                    .is_some()
                {
                    self.drive_outlet(id);
                }
            }
            Event::WakeInlet(id) => {
                if self.inlets[id]
                    .wake_at
                    .take_if(|at| *at <= self.now)
                    .is_some()
                {
                    self.drive_inlet(id);
                }
            }
            Event::Connects(inlet, to) => self.connect(inlet, to),
            Event::Delivers(number, to) => self.deliver(number, to),
            Event::HasRoom(number, of) => self.drive_end(number, of),
        }
    }

    /// Hands a datagram of a host, or of somebody who forges `from`, to the network. A group is every host,
    /// and the sender too.
    pub(crate) fn send(
        &mut self,
        sender: Option<HostId>,
        from: SocketAddr,
        to: SocketAddr,
        bytes: &[u8],
    ) {
        for host in 0..self.hosts.len() {
            let address = self.hosts[host].address;
            let is_meant = match to.ip() {
                ip if ip.is_loopback() => sender == Some(host),
                ip if ip.is_multicast() => sender == Some(host) || self.network.has_multicast,
                ip => ip == address,
            };
            let delays = match sender {
                _ if !is_meant => continue,
                Some(sender) if sender == host => vec![LOOPBACK_SECS],
                _ => self.network.delays(from.ip(), address, &mut self.dice),
            };
            for delay in delays {
                let arrive = if to.port() >= CLOCK_PORT {
                    self.network.pass_time(bytes, &mut self.dice)
                } else {
                    vec![bytes.to_vec()]
                };
                for bytes in arrive {
                    let arrives = Event::Arrives(host, Datagram { from, to, bytes });
                    self.schedule(self.now + delay, arrives);
                }
            }
        }
    }

    /// Returns the endpoint of a host's port, as a peer at `to` sees it.
    pub(crate) fn endpoint(&self, host: HostId, port: u16, to: SocketAddr) -> SocketAddr {
        let address = if to.ip().is_loopback() {
            to.ip()
        } else {
            self.hosts[host].address
        };
        (address, port).into()
    }
}

pub(crate) const MULTICAST_PORT: u16 = 16_571;
pub(crate) const SERVICE_PORT: u16 = 16_572;
pub(crate) const UNICAST_PORTS: u16 = 4;
const FIRST_SEARCH_PORT: u16 = 20_000;
/// From one turn of the answers to the next: what others do with the thread.
pub(crate) const TURN_SECS: f64 = 30e-6;
/// Datagrams of a host to itself are neither lost nor late.
const LOOPBACK_SECS: f64 = 20e-6;
