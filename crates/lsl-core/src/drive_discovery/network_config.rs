//! What the configuration means for discovery: families, addresses, ports and periods, worked out
//! once per context. Spec: lsl-protocol §3.3, §12.

use std::io;
use std::net::{IpAddr, SocketAddr};

use lsl_platform::interfaces::{Interface, interfaces};
use lsl_proto::config::ports::PortSearch;
use lsl_proto::config::{Bind, Config, InterfaceAddress};
use lsl_proto::discovery::queries::Transmit;
use lsl_proto::discovery::registry::Subnet;

use crate::net::changes::Subscription;
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
            let interfaces = self.multicast_interfaces(family, present);
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
            queries.extend(
                others
                    .into_iter()
                    .map(|address| Transmit::from(to(address))),
            );
        }
        queries
    }

    /// Returns the interfaces that multicast of a family uses, given all `present` ones. Never empty: without
    /// any the system is asked to choose, so that a host with unusual flags still works.
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
        if family == Family::V6 {
            // Only the index counts there, and an interface has several addresses as a rule.
            usable.sort_by_key(|interface| interface.index);
            usable.dedup_by_key(|interface| interface.index);
        }
        if usable.is_empty() {
            usable.push(InterfaceAddress {
                address: family.wildcard(),
                index: 0,
            });
        }
        usable
    }
}

/// Returns all interfaces of this host; a failure to list them is logged and means "unknown".
pub(crate) fn present_interfaces() -> Vec<Interface> {
    interfaces().unwrap_or_else(|error: io::Error| {
        tracing::warn!(%error, "cannot list the network interfaces");
        Vec::new()
    })
}

const V6_DELAY_SECS: f64 = 0.002;

#[cfg(test)]
mod tests {
    use lsl_platform::interfaces::Kind;

    use super::*;

    #[test]
    fn a_face_is_one_address_with_its_subnet() {
        let mut config = Config::default();
        config.set("lab.Relay", "{10.1.0.5}").unwrap();
        config.set_bind(Bind::Address([10, 1, 0, 5].into()));
        let network = NetworkConfig::new(&config);
        let interface = |index, address: [u8; 4]| Interface {
            name: format!("eth{index}"),
            index,
            address: address.into(),
            netmask: Some([255, 255, 255, 0].into()),
            is_up: true,
            is_running: true,
            is_multicast: true,
            kind: Kind::Wired,
            broadcast: None,
        };
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
