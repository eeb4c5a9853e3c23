//! The programs of the world: outlets, inlets and peers that follow a script, and the connections between
//! them. What a program wants is done here, and it is driven whenever something happens to it.

pub(crate) mod scripts;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;

use lsl_proto::discovery::search::{Goal, Search, WaveTimes};
use lsl_proto::outlet::Pushthrough;
use lsl_proto::{ChannelFormat, StreamInfo};

use scripts::{Peer, PeerId};

use crate::dice::Dice;
use crate::inlet::{InletProgram, Wish};
use crate::outlet::OutletProgram;
use crate::peers::Identity;
use crate::tcp::{Fault, Link, Side, Socket};
use crate::world::{Event, HostId, SERVICE_PORT, SearchId, World};

pub(crate) type OutletId = usize;
pub(crate) type InletId = usize;

/// An outlet in the world.
pub(crate) struct RunningOutlet {
    pub(crate) host: HostId,
    pub(crate) port: u16,
    pub(crate) program: OutletProgram,
    pub(crate) wake_at: Option<f64>,
    /// Accepts nobody any more.
    pub(crate) is_closed: bool,
}

/// An inlet in the world.
pub(crate) struct RunningInlet {
    pub(crate) host: HostId,
    pub(crate) program: InletProgram,
    pub(crate) wake_at: Option<f64>,
    search: Option<SearchId>,
    /// Fault of its next connection.
    pub(crate) fault: Option<Fault>,
    /// Number of its last connection.
    pub(crate) connection: usize,
}

/// A connection and whose its ends are.
pub(crate) struct Connection {
    pub(crate) link: Rc<Link>,
    owners: [Owner; 2],
}

#[derive(Debug, Clone, Copy)]
enum Owner {
    Outlet(OutletId),
    Inlet(InletId),
    Peer(PeerId),
}

impl World {
    /// Opens an outlet that keeps so many samples for each reader, and announces it.
    pub(crate) fn open_outlet(
        &mut self,
        host: HostId,
        name: &str,
        identity: Identity,
        capacity: usize,
    ) -> OutletId {
        let id = self.outlets.len();
        let port = FIRST_DATA_PORT + u16::try_from(id).unwrap();
        let format = ChannelFormat::Int64;
        let mut info = StreamInfo::new(name, "Test", 2, 0.0, format, name).unwrap();
        info.reset_uid(&format!("uid-{id}"));
        info.set_session_id("default");
        info.set_v4_ports(port, SERVICE_PORT);
        info.desc_mut().set("made-by", "the simulation");
        self.hosts[host].policy = identity.policy;
        let dice = Dice(self.dice.next());
        let program = OutletProgram::new(info, identity, capacity, dice);
        let outlets = &mut self.hosts[host].outlets;
        let key = outlets
            .registry
            .add(std::sync::Arc::clone(&program.announced));
        outlets.streams.insert(format!("uid-{id}"), key);
        self.outlets.push(RunningOutlet {
            host,
            port,
            program,
            wake_at: None,
            is_closed: false,
        });
        id
    }

    /// Finds the stream of an outlet and opens an inlet for it.
    pub(crate) fn open_inlet(
        &mut self,
        host: HostId,
        outlet: OutletId,
        identity: Identity,
    ) -> InletId {
        let goal = Goal::Once {
            minimum: 1,
            not_before: self.now,
            deadline: self.now + 20.0,
        };
        let search = Search::new(
            format!("uid='uid-{outlet}'"),
            WaveTimes::default(),
            goal,
            self.now,
        );
        let search = self.start(host, search);
        self.run_search(search);
        let now = self.now;
        let found = self.search(search).search.results(now);
        self.open_inlet_for(host, &found[0].clone(), identity)
    }

    /// Opens an inlet for a stream that is described.
    pub(crate) fn open_inlet_for(
        &mut self,
        host: HostId,
        info: &StreamInfo,
        identity: Identity,
    ) -> InletId {
        let dice = Dice(self.dice.next());
        let mut program = InletProgram::new(info, identity, self.recovers, self.local(host), dice);
        program.set_pulls(Some(10_f64.powf(-4.0 + 3.0 * self.dice.share())));
        self.inlets.push(RunningInlet {
            host,
            program,
            wake_at: None,
            search: None,
            fault: None,
            connection: 0,
        });
        let id = self.inlets.len() - 1;
        self.schedule(self.now, Event::WakeInlet(id));
        self.inlets[id].wake_at = Some(self.now);
        id
    }

    /// Returns the address at which an outlet accepts connections.
    pub(crate) fn address_of(&self, id: OutletId) -> SocketAddr {
        let RunningOutlet { host, port, .. } = self.outlets[id];
        SocketAddr::new(self.hosts[host].address, port)
    }

    pub(crate) fn outlet(&mut self, id: OutletId) -> &mut OutletProgram {
        &mut self.outlets[id].program
    }

    pub(crate) fn inlet(&mut self, id: InletId) -> &mut InletProgram {
        &mut self.inlets[id].program
    }

    /// Pushes a chunk, and lets its outlet go on.
    pub(crate) fn push(&mut self, id: OutletId, samples: u32) {
        self.push_with(id, samples, Pushthrough::Flush);
    }

    pub(crate) fn push_with(&mut self, id: OutletId, samples: u32, pushthrough: Pushthrough) {
        let now = self.local(self.outlets[id].host);
        self.outlet(id).push(samples, pushthrough, now);
        self.drive_outlet(id);
        self.settle();
    }

    /// Closes an outlet as a program does; it stays as long as its readers take.
    pub(crate) fn close_outlet(&mut self, id: OutletId) {
        let RunningOutlet {
            host, is_closed, ..
        } = &mut self.outlets[id];
        *is_closed = true;
        let host = *host;
        self.withdraw(host, &format!("uid-{id}"));
        let now = self.local(host);
        self.outlet(id).close(now);
        self.drive_outlet(id);
        self.settle();
    }

    /// Ends an outlet without a word of its own: the system closes its sockets.
    pub(crate) fn kill_outlet(&mut self, id: OutletId) {
        self.outlets[id].is_closed = true;
        let host = self.outlets[id].host;
        self.withdraw(host, &format!("uid-{id}"));
        self.outlet(id).connections.clear();
        self.outlet(id).fanout = lsl_proto::outlet::fanout::Fanout::default();
        self.settle();
    }

    /// Waits until an inlet's stream flows.
    pub(crate) fn await_open(&mut self, id: InletId) {
        let deadline = self.now + 60.0;
        let is_open = self.run_until(deadline, |it| it.inlet(id).is_open());
        assert!(is_open, "{:?}", self.inlet(id).errors);
    }

    /// Waits until an inlet was given the newest sample of an outlet, or the samples before it.
    pub(crate) fn await_samples(&mut self, inlet: InletId, outlet: OutletId) {
        let (deadline, last) = (self.now + 60.0, self.outlet(outlet).pushed - 1);
        let has_all = |it: &mut Self| it.inlet(inlet).pulled.last() == Some(&last);
        let arrived = self.run_until(deadline, has_all);
        let InletProgram { pulled, errors, .. } = self.inlet(inlet);
        assert!(arrived, "{:?} of {last}, {errors:?}", pulled.last());
    }

    fn accept(&mut self, outlet: OutletId, number: usize, socket: Socket) {
        let now = self.local(self.outlets[outlet].host);
        self.outlet(outlet).accept(number, socket, now);
        self.drive_outlet(outlet);
    }

    fn link(&mut self, from: IpAddr, to: SocketAddr, fault: Option<Fault>) -> (usize, [Socket; 2]) {
        self.connects += 1;
        let number = self.connects;
        let port = 30_000 + u16::try_from(number % 30_000).unwrap();
        let from = SocketAddr::new(from, port);
        let (link, sockets) = Link::connect([from, to], self.network.window, fault);
        let owners = [Owner::Peer(usize::MAX); 2];
        self.connections.insert(number, Connection { link, owners });
        (number, sockets)
    }

    fn own(&mut self, number: usize, owners: [Owner; 2]) {
        if let Some(connection) = self.connections.get_mut(&number) {
            connection.owners = owners;
        }
    }

    /// A connection of an inlet reaches an address.
    pub(crate) fn connect(&mut self, id: InletId, to: SocketAddr) {
        let host = self.inlets[id].host;
        let own = self.hosts[host].address;
        let address = if to.ip().is_loopback() { own } else { to.ip() };
        if self.network.is_cut(own) || self.network.is_cut(address) {
            // Nobody says no: the inlet's own limit ends it.
            return;
        }
        let now = self.local(host);
        let is_meant = |it: &RunningOutlet| {
            !it.is_closed && it.port == to.port() && self.hosts[it.host].address == address
        };
        let outlet = self.outlets.iter().position(is_meant);
        let script = self
            .scripts
            .get(&SocketAddr::new(address, to.port()))
            .cloned();
        if outlet.is_none() && script.is_none() {
            let refused = io::ErrorKind::ConnectionRefused.into();
            self.inlet(id).connected(Err(refused), now);
            return self.drive_inlet(id);
        }
        let fault = self.inlets[id].fault.take();
        let from = if to.ip().is_loopback() { to.ip() } else { own };
        let (number, [near, far]) = self.link(from, to, fault);
        self.inlets[id].connection = number;
        if let Some(script) = script {
            let mut peer = Peer::new(far);
            peer.unsent = script.answer;
            peer.half_closes = script.then_closes;
            self.peers.push(peer);
            self.own(
                number,
                [Owner::Inlet(id), Owner::Peer(self.peers.len() - 1)],
            );
        } else if let Some(outlet) = outlet {
            self.own(number, [Owner::Inlet(id), Owner::Outlet(outlet)]);
            self.accept(outlet, number, far);
        }
        self.inlet(id).connected(Ok(near), now);
        self.drive_inlet(id);
    }

    /// Bytes of a connection arrive at one of its ends.
    pub(crate) fn deliver(&mut self, number: usize, to: Side) {
        let Some(connection) = self.connections.get(&number) else {
            return;
        };
        if connection
            .link
            .addresses
            .iter()
            .any(|it| self.network.is_cut(it.ip()))
        {
            // The system sends them again.
            return self.schedule(self.now + RESEND_SECS, Event::Delivers(number, to));
        }
        if connection.link.deliver(to, self.now) {
            self.drive_end(number, to);
        }
    }

    /// Drives the program at one end of a connection.
    pub(crate) fn drive_end(&mut self, number: usize, side: Side) {
        let Some(connection) = self.connections.get(&number) else {
            return;
        };
        match connection.owners[side as usize] {
            Owner::Outlet(id) => self.drive_outlet(id),
            Owner::Inlet(id) => self.drive_inlet(id),
            Owner::Peer(id) => self.peers[id].drive(),
        }
    }

    pub(crate) fn drive_outlet(&mut self, id: OutletId) {
        let now = self.local(self.outlets[id].host);
        let next = self.outlet(id).drive(now);
        let next = next.map(|at| self.when(self.outlets[id].host, at));
        if let Some(at) = next
            && self.outlets[id].wake_at.is_none_or(|it| it > at)
        {
            self.outlets[id].wake_at = Some(at);
            self.schedule(at, Event::WakeOutlet(id));
        }
    }

    pub(crate) fn drive_inlet(&mut self, id: InletId) {
        let mut wishes = Vec::new();
        let now = self.local(self.inlets[id].host);
        let next = self.inlet(id).drive(&mut wishes, now);
        for wish in wishes {
            self.grant(id, wish);
        }
        let next = next.map(|at| self.when(self.inlets[id].host, at));
        if let Some(at) = next
            && self.inlets[id].wake_at.is_none_or(|it| it > at)
        {
            self.inlets[id].wake_at = Some(at);
            self.schedule(at, Event::WakeInlet(id));
        }
    }

    fn grant(&mut self, id: InletId, wish: Wish) {
        let host = self.inlets[id].host;
        match wish {
            Wish::Connect(to) => {
                let delay = self.network.tcp_delay(Side::Outlet, &mut self.dice);
                self.schedule(self.now + delay, Event::Connects(id, to));
            }
            Wish::Search {
                query,
                minimum_secs,
            } => {
                let goal = Goal::Once {
                    minimum: 1,
                    not_before: self.now + minimum_secs,
                    deadline: f64::INFINITY,
                };
                let search = Search::new(query, WaveTimes::default(), goal, self.now);
                self.inlets[id].search = Some(self.start(host, search));
            }
            Wish::AskInPlace(at, info) => {
                let uid = info.uid().into_owned();
                let own = self.hosts[host].address;
                let address = if at.ip().is_loopback() { own } else { at.ip() };
                let is_cut = self.network.is_cut(own) || self.network.is_cut(address);
                let is_there = !is_cut
                    && self.outlets.iter().any(|it| {
                        let is_it = !it.is_closed && it.program.info.uid() == uid;
                        is_it && it.port == at.port() && self.hosts[it.host].address == address
                    });
                let now = self.local(host);
                self.inlet(id).asked_in_place(is_there, now);
                self.inlets[id].wake_at = Some(self.now);
                self.schedule(self.now, Event::WakeInlet(id));
            }
            Wish::Probe(to, bytes) => {
                let port = CLOCK_PORT + u16::try_from(id).unwrap();
                let from = self.endpoint(host, port, to);
                self.send(Some(host), from, to, &bytes);
            }
        }
    }

    /// Does what follows from an event at once: connections carry what was written, tasks that were woken
    /// run, and searches that ended are told. Then checks what must always hold.
    pub(crate) fn settle(&mut self) {
        for id in 0..self.outlets.len() {
            if self.outlet(id).take_is_woken() {
                self.drive_outlet(id);
            }
        }
        for id in 0..self.inlets.len() {
            let Some(search) = self.inlets[id].search else {
                continue;
            };
            if self.search(search).ended_at.is_some() {
                self.inlets[id].search = None;
                let now = self.now;
                let answers = self.search(search).search.results(now).clone();
                let now = self.local(self.inlets[id].host);
                self.inlet(id).found(answers, now);
                self.drive_inlet(id);
            }
        }
        let mut events = Vec::new();
        for (number, Connection { link, .. }) in &self.connections {
            let is_local = link.addresses.iter().any(|it| it.ip().is_loopback());
            for to in [Side::Inlet, Side::Outlet] {
                let delay = || {
                    if is_local {
                        10e-6
                    } else {
                        self.network.tcp_delay(to, &mut self.dice)
                    }
                };
                let arrivals = link.dispatch(to, self.now, delay);
                events.extend(
                    arrivals
                        .into_iter()
                        .map(|at| (at, Event::Delivers(*number, to))),
                );
                if link.take_has_room(to) {
                    events.push((self.now, Event::HasRoom(*number, to.other())));
                }
            }
            link.check_secrecy();
        }
        self.connections
            .retain(|_, connection| !connection.link.is_over());
        for (at, event) in events {
            self.schedule(at, event);
        }
    }

    /// Takes a datagram that came to the port of an inlet's clock.
    pub(crate) fn answer_clock(&mut self, port: u16, bytes: &[u8]) {
        let id = usize::from(port - CLOCK_PORT);
        let now = self.local(self.inlets[id].host);
        self.inlet(id).handle_datagram(bytes, now);
        self.drive_inlet(id);
    }

    /// Answers a sealed probe of somebody who has a session with an outlet of this host.
    pub(crate) fn answer_sealed(&mut self, host: HostId, bytes: &[u8]) -> Option<Vec<u8>> {
        let now = self.local(host);
        let outlets = self.outlets.iter_mut().filter(|it| it.host == host);
        let mut responders = outlets.flat_map(|it| &mut it.program.responders);
        let answer = responders.find_map(|it| it.answer(bytes, now, || now));
        answer.map(|packet| packet.to_vec())
    }

    /// Sends a datagram from the service port of a host.
    pub(crate) fn send_service(&mut self, host: HostId, to: SocketAddr, bytes: &[u8]) {
        let from = self.endpoint(host, SERVICE_PORT, to);
        self.send(Some(host), from, to, bytes);
    }
}

const FIRST_DATA_PORT: u16 = 16_600;
/// The ports of the inlets' clocks.
pub(crate) const CLOCK_PORT: u16 = 50_000;
/// From one try of TCP to the next.
const RESEND_SECS: f64 = 1.0;
