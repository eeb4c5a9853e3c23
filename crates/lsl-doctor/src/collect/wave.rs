//! `wave`: who answers, and by which way. `loop.host`: the streams of this machine.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket};

use lsl_core::{StreamInfo, local_clock};
use lsl_platform::neighbours::neighbours;
use socket2::Socket;

use super::budget::Budget;
use super::post::{directed, groups};
use super::socket::{drain, leave_by, open_in_range, why};
use super::{Wishes, own_addresses, stream_of};
use crate::observe::{Interface, Kind, Observations, PortsInUse, StreamSeen, Wave, Way, WayKind};
use crate::table::filters::relevant;
use crate::waves::Ids;

/// Asks everybody three times, with what all programs have by default and with what this machine has configured:
/// what is left out here shows. `None` if there is no socket.
pub(super) fn ask(seen: &Observations, wishes: &Wishes<'_>, budget: &Budget) -> Option<Wave> {
    let mut asker = Asker::open(seen)?;
    let mut ways = ways(seen, wishes.hosts);
    let networks = seen.asked.hosts.iter().filter(|it| it.is_network());
    let once = ways.len();
    let each = networks.flat_map(|it| &it.addresses).take(MOST_OF_NETWORKS);
    ways.extend(each.map(|to| host(*to, seen.asked.ports.multicast)));
    asker.stride = ways.len().max(1);
    let start = local_clock();
    for wave in 0..WAVES {
        if (wishes.stop)() {
            break;
        }
        // Networks are asked once: most of their addresses are nobody's.
        let due = if wave == 0 { ways.len() } else { once };
        asker.send(ways.iter_mut().take(due), wave, seen, budget);
        let end = start + f64::from(wave + 1) * WAVE_SECS * wishes.patience;
        asker.hear(end, wishes.stop);
        asker.waves = wave + 1;
    }
    asker.hear(local_clock() + LATE_SECS * wishes.patience, wishes.stop);
    Some(asker.ends(ways))
}

/// Asks this machine alone.
pub(super) fn own(seen: &Observations, patience: f64) -> Option<Vec<StreamSeen>> {
    let mut asker = Asker::open(seen)?;
    let ports = std::iter::once(seen.asked.ports.multicast).chain(range(seen.asked.ports));
    let hosts: [IpAddr; 2] = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
    let mut ways: Vec<Way> = ports
        .filter(|port| *port != 0)
        .flat_map(|port| hosts.map(|to| host(to, port)))
        .collect();
    asker.stride = ways.len().max(1);
    // Stays on this machine.
    asker.send(ways.iter_mut(), 0, seen, &Budget::new());
    asker.hear(local_clock() + OWN_SECS * patience, &|| false);
    Some(asker.ends(ways).streams)
}

/// The places to ask. Spec: doctor §3.1
fn ways(seen: &Observations, hosts: &[SocketAddr]) -> Vec<Way> {
    let mut interfaces = relevant(seen);
    for tunnel in seen.interfaces.iter().flatten() {
        let is_open = tunnel.is_up && tunnel.kind == Kind::Tunnel && !tunnel.addresses.is_empty();
        if is_open && !interfaces.contains(&tunnel) {
            interfaces.push(tunnel);
        }
    }
    let defaults = PortsInUse::default();
    let ports: BTreeSet<u16> = [defaults.multicast, seen.asked.ports.multicast]
        .into_iter()
        .filter(|it| *it != 0)
        .collect();
    let mut ways = Vec::new();
    for &port in &ports {
        for to in groups() {
            for interface in interfaces
                .iter()
                .filter(|it| it.is_multicast)
                .take(MOST_INTERFACES)
            {
                if interface
                    .addresses
                    .iter()
                    .any(|(address, _)| address.is_ipv4() == to.is_ipv4())
                {
                    ways.push(Way {
                        interface: Some(interface.name.clone()),
                        kind: WayKind::Group,
                        ..host(to, port)
                    });
                }
            }
        }
        for to in broadcasts(&interfaces) {
            ways.push(Way {
                kind: WayKind::Broadcast,
                ..host(to.into(), port)
            });
        }
    }
    let known = neighbours().unwrap_or_default().into_iter();
    let known = known.filter(|it| it.is_complete);
    let known = known
        .map(|it| IpAddr::from(it.address))
        .take(MOST_NEIGHBOURS);
    for place in hosts.iter().take(MOST_HOSTS) {
        let own = Some(place.port()).filter(|port| *port != 0 && !ports.contains(port));
        let named = own.into_iter().chain(ports.iter().copied());
        ways.extend(named.map(|port| host(place.ip(), port)));
    }
    for to in known.filter(|it| !hosts.iter().any(|place| place.ip() == *it)) {
        ways.push(host(to, defaults.multicast));
    }
    ways
}

/// The broadcast addresses that programs ask: of all that the default route leads to, and of each network.
fn broadcasts(interfaces: &[&Interface]) -> BTreeSet<Ipv4Addr> {
    let networks = interfaces.iter().filter(|it| it.kind != Kind::Tunnel);
    networks
        .flat_map(|it| directed(it))
        .take(MOST_INTERFACES)
        .chain([Ipv4Addr::BROADCAST])
        .collect()
}

fn range(ports: PortsInUse) -> impl Iterator<Item = u16> {
    (ports.base..=ports.last())
        .filter(|port| *port != 0)
        .take(MOST_PORTS)
}

fn host(to: IpAddr, port: u16) -> Way {
    Way {
        interface: None,
        to,
        port,
        kind: WayKind::Host,
        sent: 0,
        answers: 0,
        error: None,
    }
}

/// Sockets at which answers arrive, and what arrived.
struct Asker {
    ids: Ids,
    /// IPv4 and IPv6, each with its port; one of them may be missing.
    sockets: Vec<(bool, Socket, UdpSocket, u16)>,
    own: Vec<IpAddr>,
    waves: u32,
    /// By copy, how often others answered.
    answers: BTreeMap<usize, u32>,
    /// By uid and host, with the copies that brought it.
    streams: BTreeMap<(String, String), (StreamSeen, BTreeSet<usize>)>,
    /// How many copies belong to one wave.
    stride: usize,
}

impl Asker {
    fn open(seen: &Observations) -> Option<Self> {
        let ids = Ids::new(random()?);
        let mut sockets = Vec::new();
        for is_v4 in [true, false] {
            let Ok(socket) = open_in_range(is_v4, seen.asked.ports) else {
                continue;
            };
            let _ = socket.set_broadcast(is_v4);
            let port = socket.local_addr().ok()?.as_socket()?.port();
            let reader = socket.try_clone().ok()?.into();
            sockets.push((is_v4, socket, reader, port));
        }
        let own = own_addresses(seen.interfaces.as_deref().unwrap_or_default());
        (!sockets.is_empty()).then(|| Self {
            ids,
            sockets,
            own,
            waves: 0,
            answers: BTreeMap::new(),
            streams: BTreeMap::new(),
            stride: 1,
        })
    }

    /// Sends one question to each of these places; hosts are not asked in the second wave.
    fn send<'a>(
        &self,
        ways: impl Iterator<Item = &'a mut Way>,
        wave: u32,
        seen: &Observations,
        budget: &Budget,
    ) {
        let interfaces = seen.interfaces.as_deref().unwrap_or_default();
        for (index, way) in ways.enumerate() {
            if way.kind == WayKind::Host && wave == 1 || budget.datagrams(1) == 0 {
                continue;
            }
            let Some((is_v4, socket, _, port)) =
                self.sockets.iter().find(|it| it.0 == way.to.is_ipv4())
            else {
                continue;
            };
            let interface = interfaces
                .iter()
                .find(|it| Some(&it.name) == way.interface.as_ref());
            let copy = wave as usize * self.stride + index;
            let sending = || {
                if let Some(interface) = interface {
                    leave_by(socket, *is_v4, interface, HOPS)?;
                }
                let to = address(way, interface);
                socket.send_to(&self.ids.question(copy, *port), &to.into())
            };
            match sending() {
                Ok(_) => way.sent += 1,
                Err(error) => way.error = Some(why(&error)),
            }
        }
    }

    /// Listens until then, or until the user wants to end.
    fn hear(&mut self, deadline: f64, stop: &dyn Fn() -> bool) {
        let copies = self.stride * WAVES as usize;
        let Self {
            ids,
            sockets,
            own,
            answers,
            streams,
            ..
        } = self;
        while local_clock() < deadline && !stop() {
            for (_, _, reader, _) in &*sockets {
                drain(reader, |datagram, from| {
                    let Some((copy, xml)) = ids.answer(datagram).filter(|(copy, _)| *copy < copies)
                    else {
                        return;
                    };
                    let Ok(info) = StreamInfo::from_xml(xml) else {
                        return;
                    };
                    let stream = stream_of(&info, Some(from.ip()), own);
                    if !stream.is_here {
                        *answers.entry(copy).or_default() += 1;
                    }
                    let key = (stream.uid.clone(), stream.hostname.clone());
                    if streams.len() < MOST_STREAMS || streams.contains_key(&key) {
                        let entry = streams
                            .entry(key)
                            .or_insert_with(|| (stream, BTreeSet::new()));
                        entry.1.insert(copy);
                    }
                });
            }
        }
    }

    fn ends(self, mut ways: Vec<Way>) -> Wave {
        for (copy, answers) in &self.answers {
            if let Some(way) = ways.get_mut(copy % self.stride) {
                way.answers += answers;
            }
        }
        let is_group = |copy: &usize| {
            ways.get(copy % self.stride)
                .is_some_and(|way| way.kind != WayKind::Host)
        };
        let streams = self.streams.into_values().map(|(mut stream, copies)| {
            let waves: BTreeSet<usize> = copies.iter().map(|copy| copy / self.stride).collect();
            stream.waves = u32::try_from(waves.len()).unwrap_or(u32::MAX);
            stream.by_group = copies.iter().any(is_group);
            stream
        });
        let mut streams: Vec<StreamSeen> = streams.collect();
        streams.sort_by(|a, b| (&a.name, &a.uid).cmp(&(&b.name, &b.uid)));
        Wave {
            waves: self.waves,
            streams,
            ways,
        }
    }
}

/// Where a question goes; link-local addresses have to name the interface.
fn address(way: &Way, interface: Option<&Interface>) -> SocketAddr {
    match way.to {
        IpAddr::V6(to) => {
            SocketAddrV6::new(to, way.port, 0, interface.map_or(0, |it| it.index)).into()
        }
        to @ IpAddr::V4(_) => SocketAddr::new(to, way.port),
    }
}

/// Digits that nobody else has.
pub(super) fn random() -> Option<u64> {
    let uid = lsl_core::random_uid().ok()?;
    Some(uid.bytes().fold(0, |hash: u64, byte| {
        hash.wrapping_mul(0x0100_0000_01b3) ^ u64::from(byte)
    }))
}

const WAVES: u32 = 3;
const WAVE_SECS: f64 = 0.6;
/// For the last answers.
const LATE_SECS: f64 = 0.4;
const OWN_SECS: f64 = 0.2;
/// As far as queries of programs go by default.
const HOPS: u32 = 24;
const MOST_INTERFACES: usize = 8;
const MOST_NEIGHBOURS: usize = 64;
const MOST_HOSTS: usize = 16;
/// A network of /22.
const MOST_OF_NETWORKS: usize = 1022;
const MOST_PORTS: usize = 64;
const MOST_STREAMS: usize = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_port_that_was_named_is_asked() {
        let asked = |place: &str| {
            let place: SocketAddr = place.parse().unwrap();
            let ways = ways(&Observations::default(), &[place]);
            let ports = ways.into_iter().filter(|it| it.to == place.ip());
            ports.map(|it| it.port).collect::<Vec<u16>>()
        };
        assert_eq!(asked("192.0.2.7:0"), [16571]);
        assert_eq!(asked("192.0.2.7:16571"), [16571]);
        assert_eq!(asked("192.0.2.7:17000"), [17000, 16571]);
    }
}
