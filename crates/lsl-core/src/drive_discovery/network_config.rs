//! What the configuration means for discovery: families, addresses, ports and periods, worked out
//! once per context. Spec: lsl-protocol §3.3, §12.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Mutex;

use lsl_platform::clock::local_clock;
use lsl_platform::fork::PerProcess;
use lsl_platform::interfaces::{Interface, Kind, interfaces};
use lsl_platform::routes;
use lsl_proto::config::globs::allows;
use lsl_proto::config::ports::PortSearch;
use lsl_proto::config::{Bind, Config, InterfaceAddress};
use lsl_proto::discovery::queries::Transmit;
use lsl_proto::discovery::registry::Subnet;

use crate::net::changes::Subscription;
use crate::net::monitor::lock_ignoring_poison;
use crate::net::sockets::Family;

/// Families, addresses, ports and interfaces of discovery.
#[derive(Debug, Clone)]
pub(crate) struct NetworkConfig {
    /// Bind everything to loopback and use no multicast.
    pub loopback_only: bool,
    /// Bind to this address, and hear its subnet alone.
    pub face: Option<IpAddr>,
    /// Families in use, v4 first.
    pub families: Vec<Family>,
    /// UDP port for multicast queries, from `ports.MulticastPort`.
    pub multicast_port: u16,
    /// The port range of services and resolvers.
    pub ports: PortSearch,
    /// Groups and other addresses that queries go to, in the order of the configuration.
    pub addresses: Vec<IpAddr>,
    /// Routers a query may cross plus one.
    pub ttl: u8,
    /// Address to which multicast responders bind, from `multicast.ListenAddress`.
    pub listen_address: Option<IpAddr>,
    /// `multicast.Interfaces`; empty means all that are up and can multicast.
    pub interfaces: Vec<InterfaceAddress>,
    /// `multicast.InterfaceNames`; an interface must be allowed by both.
    pub interface_names: Vec<String>,
    /// `lab.Relay`: host and port.
    pub relays: Vec<(String, u16)>,
    /// Resolve over TCP too, by `lab.ResolveOverTCP`.
    pub resolve_over_tcp: bool,
    /// Send and connect where 0.1 would not, by `lab.SelfHealing`. Spec: doctor §2.1.
    pub self_healing: bool,
}

impl NetworkConfig {
    /// Works out what this configuration means.
    pub(crate) fn new(config: &Config) -> Self {
        let families = [
            (Family::V4, config.allows_ipv4()),
            (Family::V6, config.allows_ipv6()),
        ];
        let ports = config.ports();
        let face = match config.bind() {
            Bind::Address(address) => Some(address),
            Bind::All | Bind::Loopback => None,
        };
        let is_of_face = |family| face.is_none_or(|face| Family::of(face) == family);
        Self {
            loopback_only: config.bind() == Bind::Loopback,
            face,
            families: families
                .into_iter()
                .filter(|(family, on)| *on && is_of_face(*family))
                .map(|(family, _)| family)
                .collect(),
            multicast_port: ports.multicast_port,
            ports: PortSearch {
                base: ports.base_port,
                count: ports.port_range,
                allow_random: ports.allow_random_ports,
            },
            addresses: config
                .multicast_targets()
                .iter()
                .map(|target| target.addr)
                .collect(),
            ttl: config.multicast_ttl(),
            listen_address: config.multicast().listen_address,
            interfaces: match face {
                Some(address) => vec![InterfaceAddress { address, index: 0 }],
                None => config.multicast().interfaces.clone(),
            },
            interface_names: match face {
                // The program chose.
                Some(_) => Vec::new(),
                None => config.multicast().interface_names.clone(),
            },
            relays: config.relays(),
            resolve_over_tcp: config.lab().resolve_over_tcp,
            self_healing: config.lab().self_healing,
        }
    }

    /// Returns what tells of changes, if something is to be done about them.
    pub(crate) fn changes(&self) -> Subscription {
        if self.self_healing && !self.loopback_only {
            Subscription::new()
        } else {
            Subscription::none()
        }
    }

    /// Returns whether a family is in use.
    pub(crate) fn uses(&self, family: Family) -> bool {
        self.families.contains(&family)
    }

    /// Returns the address that services, acceptors and resolvers of a family bind to.
    pub(crate) fn bind_address(&self, family: Family) -> IpAddr {
        match self.face {
            _ if self.loopback_only => family.loopback(),
            Some(address) => address,
            None => family.wildcard(),
        }
    }

    /// Returns the address at which sockets of a family are reached from this host.
    pub(crate) fn own_address(&self, family: Family) -> IpAddr {
        self.face.unwrap_or_else(|| family.loopback())
    }

    /// Returns the subnets of this host, or of the face, given all `present` interfaces. Over IPv6 an interface is in
    /// several.
    pub(crate) fn subnets(&self, present: &[Interface]) -> Vec<Subnet> {
        let own = self.face.map(|face| {
            let own = present.iter().find(|interface| interface.address == face);
            (face, own.map(|own| own.index))
        });
        let is_ours = |interface: &&Interface| match own {
            None => true,
            Some((face, None)) => face == interface.address,
            Some((face, Some(index))) => {
                face == interface.address || face.is_ipv6() && index == interface.index
            }
        };
        let subnet = |interface: &Interface| Subnet {
            address: interface.address,
            netmask: interface.netmask,
            index: interface.index,
        };
        present.iter().filter(is_ours).map(subnet).collect()
    }

    /// Returns the index of the interface to which a socket has to be bound so that it reaches `to`: that of its
    /// network, if the route there leaves by another one. Spec: doctor §2.3.
    pub(crate) fn device_towards(&self, to: SocketAddr) -> Option<u32> {
        if self.loopback_only || to.ip().is_loopback() {
            return None;
        }
        let mut recent = lock_ignoring_poison(RECENT.get());
        let now = local_clock();
        recent.take_if(|recent| now - recent.since > RECENT_SECS);
        let recent = recent.get_or_insert_with(|| Recent {
            since: now,
            present: present_interfaces(),
            routes: HashMap::new(),
        });
        let present = &recent.present;
        let mut host = to;
        host.set_port(0);
        let by = *recent.routes.entry(host).or_insert_with(|| {
            let by = routes::leaving(to, present);
            // A rule that forbids all else is the strictest of tunnels.
            by.map_or(Some(0), |by| by.map(|by| by.index))
        });
        self.device_of_network(to, by?, present)
    }

    /// As [`device_towards`](Self::device_towards), given all `present` interfaces and the index of the one that the
    /// route leaves by.
    fn device_of_network(&self, to: SocketAddr, by: u32, present: &[Interface]) -> Option<u32> {
        let chosen = self.multicast_interfaces(Family::of(to.ip()), present);
        let leads_there = |own: &&Interface| {
            let subnet = Subnet {
                address: own.address,
                netmask: own.netmask,
                index: own.index,
            };
            own.index != 0 && subnet.has(to) && chosen.iter().any(|it| it.index == own.index)
        };
        let own: Vec<&Interface> = present.iter().filter(leads_there).collect();
        let is_well = own
            .iter()
            .any(|own| own.index == by || own.address == to.ip());
        let best = own.into_iter().min_by_key(|own| own.kind);
        best.filter(|_| !is_well).map(|own| own.index)
    }

    /// Returns the address that the responder of a family binds to; `None` if there is none.
    pub(crate) fn responder_address(&self, family: Family) -> Option<IpAddr> {
        match self.listen_address {
            _ if self.loopback_only => None,
            Some(address) => (Family::of(address) == family).then_some(address),
            None => Some(family.wildcard()),
        }
    }

    /// Returns the configured addresses of a family.
    pub(crate) fn targets(&self, family: Family) -> impl Iterator<Item = IpAddr> + '_ {
        let addresses = if self.loopback_only {
            &[][..]
        } else {
            &self.addresses[..]
        };
        addresses
            .iter()
            .copied()
            .filter(move |address| Family::of(*address) == family)
    }

    /// Returns the multicast queries of one wave over these families, given all `present` interfaces: each
    /// group on every interface, before the next group.
    pub(crate) fn multicast_queries(
        &self,
        families: &[Family],
        present: &[Interface],
    ) -> Vec<Transmit> {
        let to = |address| SocketAddr::new(address, self.multicast_port);
        let mut queries = Vec::new();
        for &family in families {
            let begin = queries.len();
            let (groups, others): (Vec<IpAddr>, Vec<IpAddr>) =
                self.targets(family).partition(IpAddr::is_multicast);
            let interfaces = self.sending_interfaces(family, present);
            for group in groups {
                queries.extend(interfaces.iter().map(|&interface| Transmit {
                    interface: Some(interface),
                    ..to(group).into()
                }));
            }
            if let Some(first) = queries.get_mut(begin)
                && family == Family::V6
                && families.len() > 1
            {
                // The first answer gives a stream its address, and people expect an IPv4 one where
                // there is a choice, rather than a link-local one.
                first.pause_secs = V6_DELAY_SECS;
            }
            let mut hosts = Vec::new();
            for address in others {
                if address != Ipv4Addr::BROADCAST {
                    hosts.push(address);
                    continue;
                }
                if self.self_healing {
                    hosts.extend(directed_broadcasts(&interfaces, present));
                }
                // It leaves by the default route, whichever that is.
                if self.interface_names.is_empty() {
                    hosts.push(address);
                }
            }
            queries.extend(hosts.into_iter().map(|host| Transmit::from(to(host))));
        }
        queries
    }

    /// Returns the interfaces that queries to groups leave by, given all `present` ones: physical networks first,
    /// since the first answer gives a stream its address. Spec: doctor §2.2.
    fn sending_interfaces(&self, family: Family, present: &[Interface]) -> Vec<InterfaceAddress> {
        let all = self.multicast_interfaces(family, present);
        if !self.self_healing || !self.interfaces.is_empty() {
            return all;
        }
        let kind = |chosen: &InterfaceAddress| {
            let of = present.iter().find(|it| it.address == chosen.address);
            of.map_or(Kind::Other, |it| it.kind)
        };
        let is_silent = |kind| matches!(kind, Kind::BridgePort | Kind::PeerToPeer);
        let mut sending: Vec<_> = all.iter().map(|it| (kind(it), *it)).collect();
        sending.retain(|(kind, _)| !is_silent(*kind));
        sending.sort_by_key(|(kind, _)| *kind);
        sending.truncate(MOST_SENDING);
        if sending.is_empty() {
            return all;
        }
        sending.into_iter().map(|(_, it)| it).collect()
    }

    /// Returns the interfaces on which groups of a family are joined, given all `present` ones. Empty only if their
    /// names are not allowed: otherwise the system is asked to choose, so that a host with unusual flags still works.
    pub(crate) fn multicast_interfaces(
        &self,
        family: Family,
        present: &[Interface],
    ) -> Vec<InterfaceAddress> {
        let mut usable: Vec<InterfaceAddress> = if self.interfaces.is_empty() {
            present
                .iter()
                .filter(|interface| interface.is_up && interface.is_multicast)
                .map(|interface| InterfaceAddress {
                    address: interface.address,
                    index: interface.index,
                })
                .collect()
        } else {
            self.interfaces
                .iter()
                .map(|wanted| {
                    let known = present.iter().find(|other| other.address == wanted.address);
                    let index = match (wanted.index, known) {
                        (0, Some(interface)) => interface.index,
                        (index, _) => index,
                    };
                    InterfaceAddress { index, ..*wanted }
                })
                .collect()
        };
        usable.retain(|interface| Family::of(interface.address) == family);
        if !self.interface_names.is_empty() {
            let name = |usable: &InterfaceAddress| {
                let by_index = |it: &&Interface| it.index == usable.index && it.index != 0;
                let by_address = |it: &&Interface| it.address == usable.address;
                let known = present.iter().find(by_address);
                let known = known.or_else(|| present.iter().find(by_index))?;
                Some(known.name.as_str())
            };
            usable.retain(|it| name(it).is_some_and(|name| allows(&self.interface_names, name)));
        }
        if family == Family::V6 {
            // Only the index counts there, and an interface has several addresses as a rule.
            usable.sort_by_key(|interface| interface.index);
            usable.dedup_by_key(|interface| interface.index);
        }
        if usable.is_empty() && self.interface_names.is_empty() {
            usable.push(InterfaceAddress {
                address: family.wildcard(),
                index: 0,
            });
        }
        usable
    }
}

/// Returns the broadcast addresses of the networks of these interfaces: each leaves by its own, whatever the default
/// route is. Spec: doctor F3.
fn directed_broadcasts(interfaces: &[InterfaceAddress], present: &[Interface]) -> Vec<IpAddr> {
    let mut addresses = Vec::new();
    for chosen in interfaces {
        let own = present.iter().find(|it| it.address == chosen.address);
        if let Some(address) = own.and_then(|own| own.broadcast).map(IpAddr::V4)
            && !addresses.contains(&address)
        {
            addresses.push(address);
        }
    }
    addresses
}

/// Returns all interfaces of this host; a failure to list them is logged and means "unknown".
pub(crate) fn present_interfaces() -> Vec<Interface> {
    interfaces().unwrap_or_else(|error: io::Error| {
        tracing::warn!(%error, "cannot list the network interfaces");
        Vec::new()
    })
}

/// Forgets which way packets leave this host, because its interfaces are changing. Nobody tells of routes alone.
pub(crate) fn forget_routes() {
    *lock_ignoring_poison(RECENT.get()) = None;
}

/// Interfaces of this host, and routes, as they were within the last second: thousands of inlets may connect at once.
#[derive(Debug)]
struct Recent {
    since: f64,
    present: Vec<Interface>,
    /// By host, the index of the interface that the route leaves by, 0 if it is forbidden; `None` if nobody knows
    /// whose address that is.
    routes: HashMap<SocketAddr, Option<u32>>,
}

static RECENT: PerProcess<Mutex<Option<Recent>>> = PerProcess::new();

const RECENT_SECS: f64 = 1.0;

const V6_DELAY_SECS: f64 = 0.002;

/// Interfaces of a family that queries leave by: a host of containers has hundreds.
const MOST_SENDING: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    /// An interface that is up.
    fn named(name: &str, index: u32, address: impl Into<IpAddr>, kind: Kind) -> Interface {
        let address = address.into();
        let broadcast = |v4: Ipv4Addr| Ipv4Addr::from_bits(v4.to_bits() | 255);
        Interface {
            name: name.to_owned(),
            index,
            address,
            netmask: Some([255, 255, 255, 0].into()),
            is_up: true,
            is_running: true,
            is_multicast: true,
            kind,
            broadcast: match address {
                IpAddr::V4(v4) if kind != Kind::Tunnel => Some(broadcast(v4)),
                _ => None,
            },
        }
    }

    fn interface(index: u32, address: [u8; 4]) -> Interface {
        named(&format!("eth{index}"), index, address, Kind::Wired)
    }

    /// What a wave asks over one family, as `address` or `group by address`, with the lists of site alone.
    fn wave(lines: &[(&str, &str)], family: Family, present: &[Interface]) -> Vec<String> {
        let mut config = Config::default();
        config.set("multicast.MachineAddresses", "{}").unwrap();
        let link = "{255.255.255.255}";
        config.set("multicast.LinkAddresses", link).unwrap();
        for (key, value) in lines {
            config.set(key, value).unwrap();
        }
        let queries = NetworkConfig::new(&config).multicast_queries(&[family], present);
        let shown = |query: &Transmit| match query.interface {
            None => query.to.ip().to_string(),
            Some(by) if family == Family::V6 => format!("{:x} by {}", groups(query.to), by.index),
            Some(by) => format!("{} by {}", query.to.ip(), by.address),
        };
        queries.iter().map(shown).collect()
    }

    fn groups(to: SocketAddr) -> u16 {
        match to.ip() {
            IpAddr::V6(v6) => v6.segments()[0],
            IpAddr::V4(_) => 0,
        }
    }

    #[test]
    fn routes_are_looked_up_again_once_interfaces_change() {
        // An address for documentation, on a network that this host had.
        let to = SocketAddr::from(([192, 0, 2, 9], 0));
        let network = NetworkConfig::new(&Config::default());
        *lock_ignoring_poison(RECENT.get()) = Some(Recent {
            since: f64::INFINITY,
            present: vec![interface(7, [192, 0, 2, 1])],
            routes: HashMap::from([(to, Some(8))]),
        });
        assert_eq!(network.device_towards(to), Some(7));
        forget_routes();
        assert_eq!(network.device_towards(to), None);
    }

    #[test]
    fn queries_leave_by_physical_networks_first_and_by_eight_interfaces() {
        let v4 = |last| [10, last, 0, 1];
        let mut present = vec![
            named("tun0", 2, v4(2), Kind::Tunnel),
            named("docker0", 3, v4(3), Kind::Container),
            named("wlan0", 4, v4(4), Kind::Wifi),
            named("awdl0", 5, v4(5), Kind::PeerToPeer),
            named("eth0", 6, v4(6), Kind::Wired),
            named("eth1", 7, v4(7), Kind::BridgePort),
            // A second address in the network of another interface: asked once by broadcast.
            named("eth2", 8, [10, 6, 0, 9], Kind::Wired),
        ];
        let by = |interfaces: &[&str]| -> Vec<String> {
            let each = interfaces.iter();
            each.map(|it| format!("239.255.172.215 by {it}")).collect()
        };
        let healing = [
            by(&["10.6.0.1", "10.6.0.9", "10.4.0.1", "10.3.0.1", "10.2.0.1"]),
            ["10.6.0.255", "10.4.0.255", "10.3.0.255", "255.255.255.255"]
                .map(str::to_owned)
                .into(),
        ];
        assert_eq!(wave(&[], Family::V4, &present), healing.concat());
        // What 0.1 asked, in its order.
        let plain = by(&[
            "10.2.0.1", "10.3.0.1", "10.4.0.1", "10.5.0.1", "10.6.0.1", "10.7.0.1", "10.6.0.9",
        ]);
        let plain = [plain, vec!["255.255.255.255".to_owned()]].concat();
        let off = ("lab.SelfHealing", "0");
        assert_eq!(wave(&[off], Family::V4, &present), plain);
        // Names say which are used at all; where a broadcast without a network leaves, nobody knows.
        let names = ("multicast.InterfaceNames", "{!eth2, ETH*, tun?}");
        let chosen = wave(&[names], Family::V4, &present);
        let expected = [by(&["10.6.0.1", "10.2.0.1"]), vec!["10.6.0.255".to_owned()]];
        assert_eq!(chosen, expected.concat());
        let chosen = wave(&[names, off], Family::V4, &present);
        assert_eq!(chosen, by(&["10.2.0.1", "10.6.0.1", "10.7.0.1"]));
        let none = ("multicast.InterfaceNames", "{wwan0}");
        assert_eq!(wave(&[none], Family::V4, &present), [""; 0]);
        // Who names addresses gets them, all and in that order.
        let addresses = ("multicast.Interfaces", "{10.7.0.1, 10.2.0.1}");
        let chosen = wave(&[addresses], Family::V4, &present);
        let expected = [
            by(&["10.7.0.1", "10.2.0.1"]),
            vec!["10.7.0.255".to_owned(), "255.255.255.255".to_owned()],
        ];
        assert_eq!(chosen, expected.concat());
        // If there is nothing better, then by these.
        present.retain(|it| matches!(it.kind, Kind::BridgePort | Kind::PeerToPeer));
        assert!(wave(&[], Family::V4, &present).starts_with(&by(&["10.5.0.1", "10.7.0.1"])));
    }

    #[test]
    fn of_many_interfaces_eight_ask_and_all_listen() {
        let address = |last| IpAddr::from([0xfe80, 0, 0, 0, 0, 0, 0, last]);
        let mut present: Vec<_> = (1..=40)
            .map(|n| named(&format!("veth{n}"), n.into(), address(n), Kind::Container))
            .collect();
        present.push(named("eth0", 50, address(50), Kind::Wired));
        let site: Vec<_> = wave(&[], Family::V6, &present)
            .into_iter()
            .filter(|query| query.starts_with("ff05"))
            .collect();
        let expected = [50, 1, 2, 3, 4, 5, 6, 7].map(|by| format!("ff05 by {by}"));
        assert_eq!(site, expected);
        let network = NetworkConfig::new(&Config::default());
        assert_eq!(network.multicast_interfaces(Family::V6, &present).len(), 41);
    }

    #[test]
    fn who_is_on_a_network_of_ours_is_reached_by_it() {
        let present = [
            named("tun0", 2, [10, 8, 0, 2], Kind::Tunnel),
            named("wlan0", 3, [10, 50, 0, 3], Kind::Wifi),
            named("eth0", 4, [10, 50, 0, 2], Kind::Wired),
            named("eth1", 5, [10, 60, 0, 2], Kind::Wired),
        ];
        let check = |names: &str, to: [u8; 4], by: u32, expected: Option<u32>| {
            let mut config = Config::default();
            config.set("multicast.InterfaceNames", names).unwrap();
            let network = NetworkConfig::new(&config);
            let found = network.device_of_network((to, 16572).into(), by, &present);
            assert_eq!(found, expected, "{names} {to:?} by {by}");
        };
        let peer = [10, 50, 0, 1];
        check("{}", peer, 2, Some(4));
        check("{}", peer, 0, Some(4));
        check("{!eth0}", peer, 2, Some(3));
        check("{eth1}", peer, 2, None);
        // As it should be, by either of two; behind a router; this host.
        check("{}", peer, 4, None);
        check("{}", peer, 3, None);
        check("{}", [10, 9, 0, 1], 2, None);
        check("{}", [10, 50, 0, 2], 1, None);
    }

    #[test]
    fn a_face_is_one_address_with_its_subnet() {
        let mut config = Config::default();
        config.set("lab.Relay", "{10.1.0.5}").unwrap();
        config.set_bind(Bind::Address([10, 1, 0, 5].into()));
        let network = NetworkConfig::new(&config);
        // Two addresses of one interface are two faces.
        let present = [
            interface(1, [10, 2, 0, 5]),
            interface(1, [10, 1, 0, 5]),
            interface(2, [10, 3, 0, 5]),
        ];
        assert_eq!(network.families, [Family::V4]);
        assert_eq!(network.bind_address(Family::V4), present[1].address);
        let subnets = network.subnets(&present);
        let heard = |address: [u8; 4]| subnets.iter().any(|it| it.contains(address.into()));
        assert!(heard([10, 1, 0, 77]) && !heard([10, 2, 0, 77]) && !heard([10, 3, 0, 77]));
        let chosen = network.multicast_interfaces(Family::V4, &present);
        assert_eq!((chosen.len(), chosen[0].index), (1, 1));
        assert_eq!(network.relays, []);
        assert_eq!(
            network.responder_address(Family::V4),
            Some(Family::V4.wildcard())
        );
    }
}
