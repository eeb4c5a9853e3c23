//! Causes at other machines and on the way to them. Spec: doctor §3.2

use std::net::IpAddr;

use super::{Cause, filters, pair};
use crate::observe::peers::{PeerSeen, PortAsked, PortState, network};
use crate::observe::{Kind, Observations, Os, PortsInUse, WayKind};
use crate::remedy::{self, peers as remedies};

fn peers(seen: &Observations) -> impl Iterator<Item = &PeerSeen> {
    seen.peers.iter().flatten()
}

/// Returns whether anything there answered, by the route that programs take.
fn is_reached(it: &PeerSeen) -> bool {
    it.answers_udp() || it.answers_tcp()
}

/// Returns whether nothing there answered, though all was asked.
fn is_dark(it: &PeerSeen) -> bool {
    let is_asked = it.udp.is_some() && it.tcp.is_some();
    is_asked && !is_reached(it) && lacks_bound(it)
}

/// Returns whether no other way to it works: its route is that of its network, or that was tried, too.
fn lacks_bound(it: &PeerSeen) -> bool {
    let leaves = it.route.as_ref().and_then(|it| it.interface.as_ref());
    let is_led_away = it.on_link.is_some() && it.on_link.as_ref() != leaves;
    !has_bound(it) && (!is_led_away || it.bound.is_some())
}

/// Returns whether it answers by the interface of its network, and not by its route.
fn has_bound(it: &PeerSeen) -> bool {
    let open = [Some(PortState::Open), Some(PortState::Refused)];
    let bound = it.bound.as_ref();
    bound.is_some_and(|it| open.contains(&it.tcp) || it.udp == open[0])
}

/// Returns ports of streams that take no connection, without a word.
fn closed(it: &PeerSeen) -> Vec<u16> {
    let closed = it.silent_tcp().filter(|it| it.is_known);
    closed.map(|it| it.port).collect()
}

/// Returns the machines of which only a part can be reached.
pub(super) fn partial(seen: &Observations) -> impl Iterator<Item = String> {
    let is_partial = |it: &&PeerSeen| {
        is_reached(it)
            && (silent_ports(it).is_some()
                || lacks_udp(it).is_some()
                || lacks_tcp(it)
                || stalls(it)
                || it.bound.is_some() && has_bound(it) && !it.answers_tcp())
            || has_bound(it) && !is_reached(it)
    };
    peers(seen).filter(is_partial).map(|it| it.text.clone())
}

/// One finding for all machines to which it applies.
fn of_hosts<'a>(
    hosts: impl Iterator<Item = &'a PeerSeen>,
    cause: impl FnOnce(&str, &'a PeerSeen) -> Cause,
) -> Option<Cause> {
    let hosts: Vec<&PeerSeen> = hosts.collect();
    let first = *hosts.first()?;
    let names: Vec<String> = hosts.iter().map(|it| it.text.clone()).collect();
    Some(Cause {
        subject: first.text.clone(),
        hosts: names.clone(),
        ..cause(&names.join(", "), first)
    })
}

/// Ports without a word where others of the range answer or refuse: inside of the range, or only beyond.
///
/// Windows says nothing of ports that nobody has, and some filters open only those in use: silence counts at a port
/// of a stream, or where most of the others refuse.
fn silent_ports(it: &PeerSeen) -> Option<Vec<u16>> {
    let answers = it.answers_tcp() || it.refuses_tcp();
    let all = || it.tcp.iter().flatten();
    let refused = all().filter(|it| it.state == PortState::Refused).count();
    let refuses = refused > it.silent_tcp().filter(|it| !it.is_known).count();
    let silent = it.silent_tcp().filter(|it| it.is_known || refuses);
    let silent: Vec<u16> = silent.map(|it| it.port).collect();
    (answers && !silent.is_empty()).then_some(silent)
}

fn is_in_range(port: u16, ports: PortsInUse) -> bool {
    ports.has(port) || PortsInUse::default().has(port)
}

fn listed(ports: &[u16]) -> String {
    let few: Vec<String> = ports.iter().take(4).map(u16::to_string).collect();
    let more = ports.len().saturating_sub(few.len());
    let more = if more > 0 {
        format!(" and {more} more")
    } else {
        String::new()
    };
    format!("{}{more}", few.join(", "))
}

fn streams_at(seen: &Observations, host: &PeerSeen) -> usize {
    let wave = seen.wave.iter().flat_map(|it| &it.streams);
    wave.filter(|it| it.address == host.address && !it.is_here)
        .count()
}

pub(super) fn program(seen: &Observations) -> Option<Cause> {
    let ports = seen.asked.ports;
    let silent = move |it: &PeerSeen| {
        let mut silent = silent_ports(it)?;
        silent.retain(|it| is_in_range(*it, ports));
        // A range that is closed but for a few is the range's filter.
        let spoken = it.tcp.iter().flatten();
        let spoken =
            spoken.filter(|it| is_in_range(it.port, ports) && it.state != PortState::Silent);
        (!silent.is_empty() && spoken.count() > 0).then_some(silent)
    };
    of_hosts(
        peers(seen).filter(|it| silent(it).is_some()),
        |names, it| {
            let silent = silent(it).unwrap_or_default();
            Cause {
                text: format!(
                    "A rule at {names} blocks one program, not LSL: {} of its ports stay silent, while others answer.",
                    silent.len()
                ),
                streams: streams_at(seen, it),
                seen: vec![format!(
                    "TCP {}: neither taken nor refused",
                    listed(&silent)
                )],
                remedies: vec![remedies::unblock_program(seen)],
                ..Cause::default()
            }
        },
    )
}

pub(super) fn port_beyond(seen: &Observations) -> Option<Cause> {
    let ports = seen.asked.ports;
    let is_beyond = move |it: &&PeerSeen| {
        let closed = closed(it);
        let is_beyond = !closed.is_empty() && closed.iter().all(|it| !is_in_range(*it, ports));
        is_beyond && silent_ports(it).is_some()
    };
    of_hosts(peers(seen).filter(is_beyond), |names, it| {
        let closed = closed(it);
        Cause {
            text: format!(
                "{} streams at {names} have ports beyond {}-{}, which its filter does not let in: they are found \
                 and cannot be opened. Each stream of liblsl takes two of the range's ports.",
                closed.len(),
                ports.base,
                ports.last()
            ),
            streams: closed.len(),
            seen: vec![format!(
                "TCP {}: neither taken nor refused",
                listed(&closed)
            )],
            remedies: vec![remedies::wider_range(seen, it)],
            ..Cause::default()
        }
    })
}

/// Only the address of a host that hides it: a container or a virtual machine.
pub(super) fn behind_host(seen: &Observations) -> Option<Cause> {
    let wave = seen.wave.as_ref().filter(|it| it.waves >= 3)?;
    let mut groups = wave.ways.iter().filter(|it| it.kind != WayKind::Host);
    let [only] = filters::relevant(seen)[..] else {
        return None;
    };
    let is_v4 = |(address, _): &&(IpAddr, u8)| address.is_ipv4();
    let (own, length) = only.addresses.iter().find(is_v4)?;
    let IpAddr::V4(own) = own else { return None };
    let gateways = seen.neighbours.as_ref()?.iter().filter(|it| it.is_gateway);
    let IpAddr::V4(first) = network(IpAddr::V4(*own), *length) else {
        return None;
    };
    let host = IpAddr::from(std::net::Ipv4Addr::from(u32::from(first) + 1));
    let is_behind = gateways.into_iter().any(|it| it.address == host);
    let [a, b, ..] = own.octets();
    // Programs for containers and WSL give these away.
    let is_usual = a == 172 && (16..32).contains(&b);
    let is_contained = seen.container? || is_usual;
    if !(is_behind && is_contained) || groups.any(|it| it.answers > 0) {
        return None;
    }
    let reached: Vec<&PeerSeen> = peers(seen).filter(|it| is_reached(it)).collect();
    let known = reached.iter().map(|it| remedy::known_peer(seen, &it.text));
    let mut remedies: Vec<_> = known.collect();
    remedies.push(remedies::of_containers(seen));
    Some(Cause {
        is_guess: seen.container != Some(true),
        subject: only.name.clone(),
        text: format!(
            "This is a container or a virtual machine, behind {host}: groups and broadcasts of LSL do not leave it."
        ),
        streams: wave.streams.iter().filter(|it| !it.is_here).count(),
        seen: vec![format!(
            "own address {own}, gateway {host}, no answer to groups"
        )],
        remedies,
        ..Cause::default()
    })
}

pub(super) fn vpn(seen: &Observations) -> Option<Cause> {
    let tunnel = |name: &str| {
        let mut all = seen.interfaces.iter().flatten();
        all.any(|it| it.name == name && it.kind == Kind::Tunnel)
    };
    let by = |it: &PeerSeen| it.route.as_ref().and_then(|it| it.interface.clone());
    let is_led_away = |it: &&PeerSeen| {
        let leaves = by(it).is_some_and(|by| it.on_link.as_ref() != Some(&by) && tunnel(&by));
        leaves && has_bound(it) && !it.answers_tcp()
    };
    // Connections take the interface of the network then. Spec: doctor §2.3
    let is_healed = seen.os == Os::Linux
        && (seen.config.as_ref())
            .is_some_and(|it| it.changed.iter().all(|it| it.key != "lab.SelfHealing"));
    let effect = if is_healed {
        "programs with lsl-rs go around it, others find its streams and cannot open them"
    } else {
        "its streams are found and cannot be opened"
    };
    of_hosts(peers(seen).filter(is_led_away), |names, it| {
        let (by, link) = (
            by(it).unwrap_or_default(),
            it.on_link.clone().unwrap_or_default(),
        );
        Cause {
            is_healed,
            text: format!(
                "The way to {names} leads into the tunnel {by}, though it is in the network of {link}: {effect}."
            ),
            streams: streams_at(seen, it),
            seen: vec![format!(
                "connections by {by} come to nothing, by {link} they reach it"
            )],
            remedies: vec![remedies::route_around(seen, &link)],
            ..Cause::default()
        }
    })
}

pub(super) fn subnet(seen: &Observations) -> Option<Cause> {
    let is_other = |it: &&PeerSeen| it.wire.is_some() && is_dark(it);
    of_hosts(peers(seen).filter(is_other), |names, it| {
        let wire = it.wire.clone().unwrap_or_default();
        let mut all = seen
            .interfaces
            .iter()
            .flatten()
            .filter(|it| it.name == wire.interface);
        let own = all
            .next()
            .and_then(|it| it.addresses.iter().find(|(it, _)| it.is_ipv4()));
        let own = own
            .map(|(own, length)| format!("{own}/{length}"))
            .unwrap_or_default();
        Cause {
            text: format!(
                "{names} and {own} share the wire of {}, and are in two networks: neither answers the other.",
                wire.interface
            ),
            seen: vec![format!(
                "{names} answers for its address on {}",
                wire.interface
            )],
            remedies: vec![remedies::add_address(seen, &wire)],
            ..Cause::default()
        }
    })
}

/// Returns machines of the link that nobody answers for.
fn absent(seen: &Observations) -> impl Iterator<Item = &PeerSeen> {
    peers(seen).filter(|it| it.arp == Some(false) && is_dark(it))
}

/// Returns whether the gateway answers and no other machine does; `None` if that is not known.
fn is_alone(seen: &Observations) -> Option<bool> {
    let all = seen.neighbours.as_ref()?;
    let (gateways, others): (Vec<_>, Vec<_>) = all.iter().partition(|it| it.is_gateway);
    let answers = |all: &[&crate::observe::peers::NeighbourSeen]| all.iter().any(|it| it.answers);
    Some(answers(&gateways) && !answers(&others) && !peers(seen).any(is_reached))
}

pub(super) fn isolation(seen: &Observations) -> Option<Cause> {
    pair::isolation(seen).or_else(|| {
        let is_alone = is_alone(seen)?;
        of_hosts(absent(seen).filter(|_| is_alone), |names, _| Cause {
            is_guess: true,
            text: format!(
                "{names} is off, or this access point or switch keeps its clients apart."
            ),
            seen: vec!["the gateway answers, and no other machine of the network".into()],
            remedies: vec![remedies::no_isolation(seen)],
            ..Cause::default()
        })
    })
}

pub(super) fn off(seen: &Observations) -> Option<Cause> {
    let is_alone = is_alone(seen)?;
    let unreachable = |it: &&PeerSeen| {
        let mut all = it.tcp.iter().flatten().peekable();
        let is_asked = is_dark(it) && all.peek().is_some();
        is_asked && all.all(|it| it.state == PortState::Unreachable)
    };
    let gone = absent(seen)
        .filter(|_| !is_alone)
        .chain(peers(seen).filter(unreachable));
    of_hosts(gone, |names, it| Cause {
        is_guess: true,
        text: format!("{names} is off, or has another address."),
        seen: vec![match it.on_link {
            Some(_) => "nobody on the network answers for the address".into(),
            None => "no way leads there".into(),
        }],
        remedies: vec![remedies::there(
            seen,
            "switch it on; `lsl list` there says what it offers",
        )],
        ..Cause::default()
    })
}

pub(super) fn idle(seen: &Observations) -> Option<Cause> {
    let refuses =
        |it: &&PeerSeen| is_dark(it) && it.refuses_tcp() && it.silent_tcp().next().is_none();
    of_hosts(peers(seen).filter(refuses), |names, _| Cause {
        text: format!("{names} is up, and nothing offers streams there (or with other ports)."),
        seen: vec![format!(
            "it refuses connections to {}-{}",
            seen.asked.ports.base,
            seen.asked.ports.last()
        )],
        remedies: vec![remedies::there(
            seen,
            "start the program that sends; `lsl list` there shows its streams",
        )],
        ..Cause::default()
    })
}

pub(super) fn filter(seen: &Observations) -> Option<Cause> {
    pair::peer_filter(seen).or_else(|| {
        let drops = |it: &&PeerSeen| {
            let is_up = it.arp == Some(true) || it.refuses_tcp();
            is_up && is_dark(it) && it.silent_tcp().next().is_some()
        };
        of_hosts(peers(seen).filter(drops), |names, it| Cause {
            is_guess: streams_at(seen, it) == 0,
            text: format!(
                "{names} is up, and drops what is asked of it (or is a Windows machine without an LSL program)."
            ),
            streams: streams_at(seen, it),
            seen: vec![format!(
                "UDP and TCP {}-{}: not a word",
                seen.asked.ports.multicast,
                seen.asked.ports.last()
            )],
            remedies: vec![remedies::open_there(seen, it, &["udp", "tcp"])],
            ..Cause::default()
        })
    })
}

/// Which questions by UDP stay silent, where TCP does not.
#[derive(PartialEq, Eq)]
enum Lacks {
    Discovery,
    Clock,
}

fn lacks_udp(it: &PeerSeen) -> Option<Lacks> {
    let udp = it.udp.as_ref()?;
    let known: Vec<&PortAsked> = udp.iter().filter(|it| it.is_known).collect();
    let is_group = |it: &PortAsked| it.port == PortsInUse::default().multicast;
    let clocks = || known.iter().filter(|it| !is_group(it));
    if !it.answers_udp() && it.answers_tcp() {
        Some(Lacks::Discovery)
    } else if it.answers_tcp()
        && clocks().count() > 0
        && clocks().all(|it| it.state == PortState::Silent)
    {
        Some(Lacks::Clock)
    } else {
        None
    }
}

pub(super) fn filter_udp(seen: &Observations) -> Option<Cause> {
    of_hosts(
        peers(seen).filter(|it| lacks_udp(it).is_some()),
        |names, it| {
            let ports = seen.asked.ports;
            let open = remedies::open_there(seen, it, &["udp"]);
            let (effect, what, remedies) = if lacks_udp(it) == Some(Lacks::Clock) {
                let what = format!("UDP {}-{}", ports.base, ports.last());
                (
                    "its streams are found and read, and their clocks are not",
                    what,
                    vec![open],
                )
            } else {
                let what = format!("UDP {}-{}", ports.multicast, ports.last());
                let known = remedies::known_peer_by_tcp(seen, &it.text);
                (
                    "its streams are not found by searching, though they can be read",
                    what,
                    vec![known, open],
                )
            };
            Cause {
                text: format!("{names} answers by TCP and not by UDP: {effect}."),
                streams: streams_at(seen, it),
                seen: vec![format!("{what}: not a word; TCP: taken")],
                remedies,
                ..Cause::default()
            }
        },
    )
}

fn lacks_tcp(it: &PeerSeen) -> bool {
    let is_asked = it.tcp.as_ref().is_some_and(|all| !all.is_empty());
    is_asked
        && it.answers_udp()
        && it
            .tcp
            .iter()
            .flatten()
            .all(|it| it.state == PortState::Silent)
}

pub(super) fn filter_tcp(seen: &Observations) -> Option<Cause> {
    let is_filtered = |it: &&PeerSeen| lacks_tcp(it) && lacks_bound(it);
    of_hosts(peers(seen).filter(is_filtered), |names, it| Cause {
        text: format!(
            "{names} answers by UDP and not by TCP: its streams are found and cannot be read."
        ),
        streams: streams_at(seen, it),
        seen: vec![format!(
            "TCP {}-{}: not a word; UDP: answered",
            seen.asked.ports.base,
            seen.asked.ports.last()
        )],
        remedies: vec![remedies::open_there(seen, it, &["tcp"])],
        ..Cause::default()
    })
}

fn stalls(it: &PeerSeen) -> bool {
    it.mtu
        .is_some_and(|it| it.stalls == Some(true) && it.vanishes.is_some() && !it.is_told)
}

pub(super) fn mtu(seen: &Observations) -> Option<Cause> {
    of_hosts(peers(seen).filter(|it| stalls(it)), |names, it| {
        let mtu = it.mtu.unwrap_or_default();
        let (passes, vanishes) = (mtu.passes.unwrap_or(576), mtu.vanishes.unwrap_or(1500));
        let leaves = it.route.as_ref().and_then(|it| it.interface.as_deref());
        Cause {
            text: format!(
                "Packets to or from {names} over {passes} bytes vanish: streams are listed and never open."
            ),
            streams: streams_at(seen, it),
            seen: vec![format!(
                "{passes} bytes are answered, {vanishes} are not, and nobody says why; a connection begins and stalls"
            )],
            remedies: vec![remedies::shorter_packets(seen, leaves, passes)],
            ..Cause::default()
        }
    })
}

/// More than chance takes from a network that loses one in a hundred, each way.
fn loses(it: &PeerSeen) -> bool {
    it.ping
        .is_some_and(|it| it.sent >= 30 && it.lost * 100 > it.sent * 6)
}

pub(super) fn loss(seen: &Observations) -> Option<Cause> {
    of_hosts(peers(seen).filter(|it| loses(it)), |names, it| {
        let ping = it.ping.unwrap_or_default();
        Cause {
            text: format!(
                "The way to {names} loses {} of {} datagrams: searches and clocks become slow, streams may stall.",
                ping.lost, ping.sent
            ),
            streams: streams_at(seen, it),
            remedies: vec![remedies::better_network(seen)],
            ..Cause::default()
        }
    })
}

fn is_slow(it: &PeerSeen) -> bool {
    it.ping.is_some_and(|it| it.p75_ms > 50.0)
}

/// Returns whether the way to an address loses or delays what gets through.
pub(super) fn is_poor(seen: &Observations, address: Option<IpAddr>) -> bool {
    let mut there = peers(seen).filter(|it| it.address == address);
    there.any(|it| loses(it) || is_slow(it))
}

pub(super) fn slow(seen: &Observations) -> Option<Cause> {
    of_hosts(peers(seen).filter(|it| is_slow(it)), |names, it| {
        let ping = it.ping.unwrap_or_default();
        Cause {
            text: format!(
                "A datagram to {names} and back takes {:.0} ms, and up to {:.0} ms: the network is full, or far.",
                ping.p50_ms, ping.p95_ms
            ),
            streams: streams_at(seen, it),
            remedies: vec![remedies::better_network(seen)],
            ..Cause::default()
        }
    })
}
