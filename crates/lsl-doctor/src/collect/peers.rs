//! `peer.*`, `gate`, `neigh`: other machines, asked one by one. Spec: doctor §3.1

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::thread;

use lsl_core::{StreamInfo, local_clock};
use lsl_platform::socket::bind_device;
use lsl_platform::{interfaces, neighbours, routes};
use lsl_proto::config::KnownPeer;

use super::ask::{self, Answers, Question};
use super::budget::Budget;
use super::dial::{Dial, Dialled, dial};
use super::path;
use super::plan::{DISCARD, Plan};
use super::socket::{open, why};
use super::{Wishes, own_addresses, stream_of, streams};
use crate::observe::peers::{
    Mtu, NeighbourSeen, PeerSeen, PortAsked, PortState, RouteSeen, WireSeen,
};
use crate::observe::{Interface, Observations, PortsInUse, StreamSeen};
use crate::table::filters::relevant;

/// `if.route`: by which interfaces this machine sends to groups, to everybody and to the world.
pub(super) fn routes() -> Option<Vec<RouteSeen>> {
    let all = interfaces::interfaces().ok()?;
    let to = [
        Ipv4Addr::new(239, 255, 172, 215),
        Ipv4Addr::BROADCAST,
        // Of documentation: nobody has it, so the default route leads there.
        Ipv4Addr::new(192, 0, 2, 1),
    ];
    Some(to.map(|to| route(to.into(), &all)).to_vec())
}

fn route(to: IpAddr, all: &[interfaces::Interface]) -> RouteSeen {
    let leaving = routes::leaving(SocketAddr::new(to, 0), all);
    RouteSeen {
        to: Some(to),
        error: leaving.as_ref().err().map(why),
        interface: leaving.ok().flatten().map(|it| it.name.clone()),
    }
}

/// Asks the machines that were named, else those that the configuration names and those whose streams were found.
pub(super) fn look(seen: &mut Observations, wishes: &Wishes<'_>, budget: &Budget) {
    let mut peers = choose(seen, wishes);
    let mut neighbours = link(seen, &peers);
    let infos = reach(seen, wishes, &mut peers, &mut neighbours, budget);
    if !(wishes.stop)() {
        let share = budget.left() / peers.len().max(1);
        thread::scope(|scope| {
            for peer in &mut peers {
                let infos = &infos;
                scope.spawn(move || measure(peer, infos, share, wishes, budget));
            }
        });
    }
    let dark = |it: &&mut PeerSeen| {
        it.is_named
            && it.on_link.is_none()
            && !it.answers_udp()
            && !it.answers_tcp()
            && !it.refuses_tcp()
    };
    for peer in peers.iter_mut().filter(dark) {
        peer.wire = wire(seen, peer, wishes.patience);
    }
    let complete = neighbours::neighbours().ok();
    for peer in peers.iter_mut().filter(|it| it.on_link.is_some()) {
        let is_it = |it: &&neighbours::Neighbour| Some(IpAddr::from(it.address)) == peer.address;
        peer.arp = complete
            .as_ref()
            .and_then(|all| all.iter().find(is_it))
            .map(|it| it.is_complete);
    }
    let own = own_addresses(seen.interfaces.as_deref().unwrap_or_default());
    let answered = infos
        .into_iter()
        .map(|(info, from)| stream_of(&info, Some(from), &own));
    for stream in answered {
        let streams = &mut seen.wave.get_or_insert_default().streams;
        if !streams.iter().any(|it| it.uid == stream.uid) {
            streams.push(stream);
        }
    }
    seen.neighbours = Some(neighbours);
    seen.peers = Some(peers);
}

/// The address at which a stream is reached, that of IPv4 if there is one.
pub(super) fn address_of(seen: &Observations, stream: &StreamSeen) -> Option<IpAddr> {
    let same = seen.found.iter().flatten().find(|it| it.uid == stream.uid);
    let found = same.and_then(|it| it.address);
    let best = found.filter(IpAddr::is_ipv4).or(stream.address);
    // Of these nobody knows which link they mean.
    best.filter(|it| !matches!(it, IpAddr::V6(it) if it.is_unicast_link_local()))
}

pub(super) fn streams(seen: &Observations) -> impl Iterator<Item = &StreamSeen> {
    let wave = seen.wave.iter().flat_map(|it| &it.streams);
    wave.chain(seen.found.iter().flatten())
        .filter(|it| !it.is_here)
}

fn choose(seen: &Observations, wishes: &Wishes<'_>) -> Vec<PeerSeen> {
    let mut chosen: Vec<(String, bool, IpAddr)> = Vec::new();
    for host in seen.asked.hosts.iter().filter(|it| !it.is_network()) {
        let all = &host.addresses;
        let best = all.iter().find(|it| it.is_ipv4()).or_else(|| all.first());
        chosen.extend(best.map(|it| (host.text.clone(), true, *it)));
    }
    if chosen.is_empty() {
        let known = &wishes.loaded.config.lab().known_peers;
        let known = known.iter().filter_map(|it| match it {
            KnownPeer::Host(it) => it.host.parse().ok(),
            KnownPeer::Network(_) => None,
        });
        let found = streams(seen).filter_map(|it| address_of(seen, it));
        chosen.extend(known.chain(found).map(|it| (it.to_string(), false, it)));
    }
    let own = own_addresses(seen.interfaces.as_deref().unwrap_or_default());
    let all = interfaces::interfaces().unwrap_or_default();
    let mut peers: Vec<PeerSeen> = Vec::new();
    for (text, is_named, address) in chosen {
        let is_own = address.is_loopback() || own.contains(&address);
        let is_twice = peers.iter().any(|it| it.address == Some(address));
        if is_own || is_twice || peers.len() >= MOST_PEERS {
            continue;
        }
        let mut reachable = relevant(seen).into_iter();
        let on_link = reachable.find(|it| it.has_in_network(address));
        peers.push(PeerSeen {
            text,
            is_named,
            address: Some(address),
            on_link: on_link.map(|it| it.name.clone()),
            route: Some(route(address, &all)),
            ..PeerSeen::default()
        });
    }
    peers
}

/// Gateways, and others of the link that the system knows.
fn link(seen: &Observations, peers: &[PeerSeen]) -> Vec<NeighbourSeen> {
    let mut all: Vec<NeighbourSeen> = Vec::new();
    let gateways = routes::gateways().unwrap_or_default().into_iter();
    let gateways = gateways.map(|it| (it.address, it.interface, true));
    let others = neighbours::neighbours().unwrap_or_default().into_iter();
    let others = others.map(|it| (IpAddr::from(it.address), it.interface, false));
    let relevant = relevant(seen);
    for (address, interface, is_gateway) in gateways.chain(others) {
        let is_peer = peers.iter().any(|it| it.address == Some(address));
        let is_known = is_peer || all.iter().any(|it| it.address == address);
        let is_relevant = address.is_ipv4() && relevant.iter().any(|it| it.name == interface);
        if is_relevant && !is_known && all.len() < MOST_NEIGHBOURS {
            all.push(NeighbourSeen {
                address,
                interface,
                is_gateway,
                answers: false,
            });
        }
    }
    all
}

/// Asks all ports of all machines, by UDP and TCP at once. Returns the streams that answered.
fn reach(
    seen: &Observations,
    wishes: &Wishes<'_>,
    peers: &mut [PeerSeen],
    neighbours: &mut [NeighbourSeen],
    budget: &Budget,
) -> Vec<(StreamInfo, IpAddr)> {
    let plan = Plan::new(seen, wishes, peers, neighbours);
    let to_dial: Vec<Dial> = plan.dials.iter().map(|it| it.2.clone()).collect();
    let (came, answers, by_link) = thread::scope(|scope| {
        let came = scope.spawn(|| dial(&to_dial, budget, wishes.patience, wishes.stop));
        let ask = |all: &[(usize, Question)], by| {
            let all: Vec<Question> = all.iter().map(|it| it.1.clone()).collect();
            let (ports, patience) = (seen.asked.ports, wishes.patience);
            ask::ask(&all, ports, by, budget, patience, wishes.stop)
        };
        let answers = ask(&plan.questions, None);
        let by_link = plan
            .bound
            .iter()
            .map(|(index, all)| (all, ask(all, Some(*index))));
        let by_link: Vec<_> = by_link.collect();
        (came.join(), answers, by_link)
    });
    let mut infos = Vec::new();
    if let Some(answers) = answers {
        note_udp(peers, &plan.questions, &answers);
        infos.extend(answers.streams);
    }
    for (all, answers) in by_link {
        for ((at, _), answered) in all.iter().zip(answers.iter().flat_map(|it| &it.answered)) {
            if let Some(bound) = peers.get_mut(*at).and_then(|it| it.bound.as_mut()) {
                bound.udp = [bound.udp, *answered].into_iter().flatten().min();
            }
        }
        infos.extend(answers.into_iter().flat_map(|it| it.streams));
    }
    let came = came.unwrap_or_default();
    for ((at, is_known, dial), came) in plan.dials.iter().zip(came) {
        let Some(came) = came else { continue };
        note_tcp(peers, neighbours, *at, *is_known, dial, &came);
        let info = StreamInfo::from_xml(&came.received).ok();
        infos.extend(
            info.filter(|_| came.state == PortState::Open)
                .map(|it| (it, dial.to.ip())),
        );
    }
    infos
}

fn note_udp(peers: &mut [PeerSeen], questions: &[(usize, Question)], answers: &Answers) {
    for ((at, question), answered) in questions.iter().zip(&answers.answered) {
        let (Some(peer), Some(answered)) = (peers.get_mut(*at), answered) else {
            continue;
        };
        peer.udp.get_or_insert_default().push(PortAsked {
            port: question.to.port(),
            state: *answered,
            is_known: question.is_known,
        });
    }
}

fn note_tcp(
    peers: &mut [PeerSeen],
    neighbours: &mut [NeighbourSeen],
    at: Option<usize>,
    is_known: bool,
    dial: &Dial,
    came: &Dialled,
) {
    let state = came.state;
    let Some(peer) = at.and_then(|at| peers.get_mut(at)) else {
        let it = neighbours.iter_mut().find(|it| it.address == dial.to.ip());
        if let Some(it) = it {
            it.answers = matches!(state, PortState::Open | PortState::Refused);
        }
        return;
    };
    match (&mut peer.bound, dial.bound) {
        (Some(bound), Some(_)) => {
            bound.tcp = [bound.tcp, Some(state)].into_iter().flatten().min();
        }
        _ => peer.tcp.get_or_insert_default().push(PortAsked {
            port: dial.to.port(),
            state,
            is_known,
        }),
    }
}

/// `peer.ping`, `peer.mtu`
fn measure(
    peer: &mut PeerSeen,
    infos: &[(StreamInfo, IpAddr)],
    share: usize,
    wishes: &Wishes<'_>,
    budget: &Budget,
) {
    let Some(address) = peer.address else { return };
    let here = infos.iter().filter(|(_, from)| *from == address);
    let here: Vec<&StreamInfo> = here.map(|(info, _)| info).collect();
    let clock_of = |it: &StreamInfo| match address {
        IpAddr::V4(_) => it.v4_service_port(),
        IpAddr::V6(_) => it.v6_service_port(),
    };
    let is_open = |port: u16| {
        let mut all = peer.udp.iter().flatten();
        all.any(|it| it.port == port && it.state == PortState::Open)
    };
    let with_clock = here.iter().find(|it| is_open(clock_of(it)));
    let port = with_clock.map_or_else(|| PortsInUse::default().multicast, |it| clock_of(it));
    let Some(one) = with_clock
        .or_else(|| here.first())
        .filter(|_| is_open(port))
    else {
        return;
    };
    let (to, query) = (
        SocketAddr::new(address, port),
        format!("uid='{}'", one.uid()),
    );
    let (patience, stop) = (wishes.patience, wishes.stop);
    // As many as are sent at most: nobody knows before how many get lost.
    let long = path::LENGTHS.len() * path::TIMES;
    let has_room = budget.datagrams(long.min(share)) == long;
    let probes = budget.datagrams(path::MANY.min(share.saturating_sub(long)));
    (peer.ping, peer.mtu) = thread::scope(|scope| {
        let ping = with_clock.map(|_| scope.spawn(|| path::ping(to, probes, patience, stop)));
        let lengths =
            has_room.then(|| scope.spawn(|| path::lengths(to, query.as_bytes(), patience, stop)));
        let stalls = stalls(address, &here, (patience, stop), budget);
        let mtu = lengths.and_then(|it| it.join().ok().flatten());
        let ping = ping.and_then(|it| it.join().ok().flatten());
        (ping, mtu.map(|it| Mtu { stalls, ..it }))
    });
}

/// Whether the longest test patterns there are do not arrive: asked for as by an inlet that wants no samples.
fn stalls(
    address: IpAddr,
    streams: &[&StreamInfo],
    (patience, stop): (f64, &dyn Fn() -> bool),
    budget: &Budget,
) -> Option<bool> {
    let length = |it: &&&StreamInfo| it.channel_count() as usize * it.channel_format().value_size();
    let info = streams.iter().max_by_key(length)?;
    let port = if address.is_ipv4() {
        info.v4_data_port()
    } else {
        info.v6_data_port()
    };
    let dials = [Dial {
        to: SocketAddr::new(address, port),
        bound: None,
        request: streams::test_patterns(info).to_bytes(),
        enough: PATTERNS * length(&info).max(1),
    }];
    let came = dial(&dials, budget, patience, stop).into_iter().next()??;
    (came.state == PortState::Open).then_some(!came.is_complete)
}

/// Looks for a machine of another network on the wires of this one. Datagrams that have to leave by an interface for
/// which there is no route go to whoever answers there.
fn wire(seen: &Observations, peer: &PeerSeen, patience: f64) -> Option<WireSeen> {
    let Some(IpAddr::V4(address)) = peer.address else {
        return None;
    };
    let candidates = relevant(seen)
        .into_iter()
        .filter(|it| it.is_multicast)
        .take(MOST_WIRES);
    candidates.into_iter().find_map(|interface| {
        answers(&[address], interface, patience)?
            .contains(&address)
            .then(|| {
                let [a, b, c, _] = address.octets();
                let spare: Vec<Ipv4Addr> = SPARE.map(|last| Ipv4Addr::new(a, b, c, last)).to_vec();
                let taken = answers(&spare, interface, patience);
                let free = taken.and_then(|taken| spare.into_iter().find(|it| !taken.contains(it)));
                WireSeen {
                    interface: interface.name.clone(),
                    free: free.map(IpAddr::from),
                }
            })
    })
}

/// Returns which of these a machine on the wire of the interface answers for.
fn answers(to: &[Ipv4Addr], interface: &Interface, patience: f64) -> Option<BTreeSet<Ipv4Addr>> {
    let socket = open(true, 0, false).ok()?;
    bind_device(&socket, interface.index, true).ok()?;
    for address in to {
        let _ = socket.send_to(
            b"LSL:doctor/1\r\n",
            &SocketAddr::from((*address, DISCARD)).into(),
        );
    }
    let deadline = local_clock() + WIRE_SECS * patience;
    let mut found = BTreeSet::new();
    while found.len() < to.len() && local_clock() < deadline {
        thread::sleep(std::time::Duration::from_millis(20));
        let all = neighbours::neighbours().ok()?;
        let complete = all
            .iter()
            .filter(|it| it.is_complete && it.interface == interface.name);
        found = complete
            .map(|it| it.address)
            .filter(|it| to.contains(it))
            .collect();
    }
    Some(found)
}

const MOST_PEERS: usize = 16;
const MOST_NEIGHBOURS: usize = 16;
const MOST_WIRES: usize = 4;
/// Two samples come first.
const PATTERNS: usize = 2;
/// Last parts of addresses that few give away.
const SPARE: [u8; 4] = [249, 247, 243, 241];
const WIRE_SECS: f64 = 0.4;
