//! Targets of queries and their reach, derived from the configured scope, lists and families.
//! Spec: lsl-protocol §3.3, §3.4.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{Bind, Config, HostPort, Ipv4Network, Ipv6Mode, KnownPeer, ResolveScope};

/// Port of a relay that is named without one. Spec: relay §1.
pub const RELAY_PORT: u16 = 16570;

/// Most relays that a program asks.
pub const MAX_RELAYS: usize = 16;

/// An address to which queries are sent and on which outlets listen, at `ports.MulticastPort`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Target {
    /// IP address; the port is `ports.MulticastPort`.
    pub addr: IpAddr,
    /// Kind of address, which decides the socket options.
    pub kind: TargetKind,
}

/// Kind of an address, by the socket options that it needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TargetKind {
    /// Group membership to receive, an outgoing interface and a TTL to send.
    Multicast,
    /// The option `SO_BROADCAST` to send.
    Broadcast,
    /// No options of its own.
    Unicast,
}

impl From<IpAddr> for Target {
    fn from(addr: IpAddr) -> Self {
        let kind = if addr.is_multicast() {
            TargetKind::Multicast
        } else if addr == IpAddr::V4(Ipv4Addr::BROADCAST) {
            TargetKind::Broadcast
        } else {
            TargetKind::Unicast
        };
        Self { addr, kind }
    }
}

impl Config {
    /// Returns whether sockets use IPv4.
    pub fn allows_ipv4(&self) -> bool {
        self.ports().ipv6 != Ipv6Mode::Force
    }

    /// Returns whether sockets use IPv6.
    pub fn allows_ipv6(&self) -> bool {
        self.ports().ipv6 != Ipv6Mode::Disable
    }

    /// Returns the addresses of the multicast port, in the order of liblsl: one responder for each,
    /// one query to each per wave. Empty with [`Bind::Loopback`]. Spec: lsl-protocol §3.3.
    pub fn multicast_targets(&self) -> Vec<Target> {
        if self.bind() == Bind::Loopback {
            return Vec::new();
        }
        let multicast = self.multicast();
        let group = |prefix| Some(IpAddr::V6(multicast.ipv6_group.with_prefix(prefix)));
        let steps = [
            (ResolveScope::Machine, &multicast.machine_addresses, None),
            (ResolveScope::Link, &multicast.link_addresses, group(0xff02)),
            (ResolveScope::Site, &multicast.site_addresses, group(0xff05)),
            (
                ResolveScope::Organization,
                &multicast.organization_addresses,
                group(0xff08),
            ),
            (
                ResolveScope::Global,
                &multicast.global_addresses,
                group(0xff0e),
            ),
        ];
        let mut addresses: Vec<IpAddr> = Vec::new();
        if multicast.addresses_override.is_empty() {
            for (scope, list, group) in steps {
                if scope <= multicast.resolve_scope {
                    addresses.extend(list.iter().copied().chain(group));
                }
            }
        } else {
            addresses.clone_from(&multicast.addresses_override);
        }
        addresses.retain(|address| self.allows_family_of(*address));
        addresses.into_iter().map(Target::from).collect()
    }

    /// Returns the TTL (IPv4) or hop limit (IPv6) of multicast queries. Spec: lsl-protocol §3.3.
    pub fn multicast_ttl(&self) -> u8 {
        let by_scope = match self.multicast().resolve_scope {
            ResolveScope::Machine => 0,
            ResolveScope::Link => 1,
            ResolveScope::Site => 24,
            ResolveScope::Organization => 32,
            ResolveScope::Global => 255,
        };
        u8::try_from(self.multicast().ttl_override).unwrap_or(by_scope)
    }

    /// Returns the relays to ask for streams, each with its port and without repeats, at most [`MAX_RELAYS`]; with
    /// [`Bind::Loopback`] those at loopback addresses alone. Names are not looked up here. Spec: relay §5.2.
    pub fn relays(&self) -> Vec<(String, u16)> {
        let mut relays: Vec<(String, u16)> = Vec::new();
        if let Bind::Address(_) = self.bind() {
            // What they tell of is not seen there.
            return relays;
        }
        for relay in &self.lab().relay {
            let address = relay.host.parse();
            let is_usable = address.map_or(true, |address| self.allows_family_of(address))
                && (self.bind() == Bind::All || is_loopback(&relay.host));
            let relay = (relay.host.clone(), relay.port.unwrap_or(RELAY_PORT));
            if is_usable && relays.len() < MAX_RELAYS && !relays.contains(&relay) {
                relays.push(relay);
            }
        }
        relays
    }

    /// Returns the hosts asked directly, without repeats: 127.0.0.1 first, as in liblsl 1.18, then
    /// the known peers; with [`Bind::Loopback`] loopback addresses alone. Names are not looked up
    /// here, so a name may still lead to a family that is not used. Spec: lsl-protocol §3.4.
    pub fn unicast_peers(&self) -> Vec<HostPort> {
        let mut peers: Vec<HostPort> = Vec::new();
        let mut add = |peer: HostPort| {
            let usable = peer
                .host
                .parse()
                .map_or(true, |address| self.allows_family_of(address));
            if usable && !peers.contains(&peer) {
                peers.push(peer);
            }
        };
        let host = |address: IpAddr| HostPort {
            host: address.to_string(),
            port: None,
        };
        let known = self.lab().known_peers.iter().filter_map(|peer| match peer {
            KnownPeer::Host(host) => Some(host.clone()),
            KnownPeer::Network(_) => None,
        });
        if let Bind::Address(own) = self.bind() {
            add(host(own));
        } else {
            add(host(Ipv4Addr::LOCALHOST.into()));
        }
        match self.bind() {
            Bind::Loopback => {
                add(host(Ipv6Addr::LOCALHOST.into()));
                known.filter(|peer| is_loopback(&peer.host)).for_each(add);
            }
            Bind::All | Bind::Address(_) => known.for_each(add),
        }
        peers
    }

    /// Returns the networks of which every host is asked at `ports.MulticastPort`, without repeats; with
    /// [`Bind::Loopback`] those of loopback addresses alone. Spec: doctor §2.1.
    pub fn peer_networks(&self) -> Vec<Ipv4Network> {
        let mut networks: Vec<Ipv4Network> = Vec::new();
        for peer in &self.lab().known_peers {
            if let KnownPeer::Network(network) = *peer
                && self.allows_ipv4()
                && (self.bind() != Bind::Loopback || network.is_loopback())
                && !networks.contains(&network)
            {
                networks.push(network);
            }
        }
        networks
    }

    /// Iterates over the ports of the range. Outlets and resolvers try them in this order; known
    /// peers without a port of their own are asked on all of them. Port 0 stands for "any".
    pub fn port_range(&self) -> impl Iterator<Item = u16> + use<> {
        let base = self.ports().base_port;
        (0..self.ports().port_range).map_while(move |step| base.checked_add(step))
    }

    fn allows_family_of(&self, address: IpAddr) -> bool {
        if address.is_ipv4() {
            self.allows_ipv4()
        } else {
            self.allows_ipv6()
        }
    }
}

/// Returns whether a host is given as an address of this host's loopback interface.
fn is_loopback(host: &str) -> bool {
    host.parse()
        .is_ok_and(|address: IpAddr| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::TargetKind::{Broadcast, Multicast, Unicast};
    use super::*;

    const G: &str = "113d:6fdd:2c17:a643:ffe2:1bd1:3cd2";

    fn addresses(config: &Config) -> Vec<String> {
        config
            .multicast_targets()
            .iter()
            .map(|target| target.addr.to_string())
            .collect()
    }

    #[test]
    fn scopes_are_cumulative() {
        let mut config = Config::default();
        config
            .set("multicast.OrganizationAddresses", "{239.192.0.1}")
            .unwrap();
        config
            .set("multicast.GlobalAddresses", "{239.192.0.2}")
            .unwrap();
        let mut expected: Vec<String> = Vec::new();
        for (scope, ttl, added) in [
            (ResolveScope::Machine, 0, vec!["127.0.0.1".to_owned()]),
            (
                ResolveScope::Link,
                1,
                ["255.255.255.255", "224.0.0.1", "224.0.0.183"]
                    .map(str::to_owned)
                    .into_iter()
                    .chain([format!("ff02:{G}")])
                    .collect(),
            ),
            (
                ResolveScope::Site,
                24,
                vec!["239.255.172.215".to_owned(), format!("ff05:{G}")],
            ),
            (
                ResolveScope::Organization,
                32,
                vec!["239.192.0.1".to_owned(), format!("ff08:{G}")],
            ),
            (
                ResolveScope::Global,
                255,
                vec!["239.192.0.2".to_owned(), format!("ff0e:{G}")],
            ),
        ] {
            expected.extend(added);
            config.set_resolve_scope(scope);
            assert_eq!(addresses(&config), expected, "{scope:?}");
            assert_eq!(config.multicast_ttl(), ttl, "{scope:?}");
        }
        config.set("multicast.TTLOverride", "7").unwrap();
        assert_eq!(config.multicast_ttl(), 7);
        config.set("multicast.TTLOverride", "0").unwrap();
        assert_eq!(config.multicast_ttl(), 0);
        config
            .set("multicast.AddressesOverride", "{10.0.0.1, ff02::1}")
            .unwrap();
        assert_eq!(addresses(&config), ["10.0.0.1", "ff02::1"]);
    }

    #[test]
    fn families_and_kinds() {
        let mut config = Config::default();
        let kinds: Vec<TargetKind> = config.multicast_targets().iter().map(|t| t.kind).collect();
        assert_eq!(
            kinds,
            [
                Unicast, Broadcast, Multicast, Multicast, Multicast, Multicast, Multicast
            ]
        );
        config.set_ipv6(Ipv6Mode::Disable);
        assert!(
            config
                .multicast_targets()
                .iter()
                .all(|target| target.addr.is_ipv4())
        );
        assert_eq!(config.multicast_targets().len(), 5);
        config.set_ipv6(Ipv6Mode::Force);
        assert_eq!(
            addresses(&config),
            [format!("ff02:{G}"), format!("ff05:{G}")]
        );
    }

    #[test]
    fn peers() {
        let check = |config: &Config, expected: &[&str]| {
            let peers: Vec<String> = config
                .unicast_peers()
                .iter()
                .map(ToString::to_string)
                .collect();
            assert_eq!(peers, expected);
        };
        let mut config = Config::default();
        check(&config, &["127.0.0.1"]);
        config
            .set_known_peers(&["lab1", "127.0.0.1", "lab1", "lab1:80", "::1", "10.0.0.1"])
            .unwrap();
        check(
            &config,
            &["127.0.0.1", "lab1", "lab1:80", "::1", "10.0.0.1"],
        );
        let networks = |config: &Config| {
            let networks = config.peer_networks();
            networks.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        let mixed = ["10.1.2.3/24", "lab1", "127.0.0.0/30", "10.1.2.0/24"];
        let mut other = config.clone();
        other.set_known_peers(&mixed).unwrap();
        check(&other, &["127.0.0.1", "lab1"]);
        assert_eq!(networks(&other), ["10.1.2.0/24", "127.0.0.0/30"]);
        other.set_bind(Bind::Loopback);
        assert_eq!(networks(&other), ["127.0.0.0/30"]);
        config.set_ipv6(Ipv6Mode::Force);
        check(&config, &["lab1", "lab1:80", "::1"]);
        config.set_bind(Bind::Loopback);
        check(&config, &["::1"]);
        config.set_ipv6(Ipv6Mode::Allow);
        check(&config, &["127.0.0.1", "::1"]);
        assert_eq!(config.multicast_targets(), []);
        check(&Config::loopback(), &["127.0.0.1", "::1"]);
        config.set_bind(Bind::Address(Ipv4Addr::new(10, 1, 0, 5).into()));
        check(
            &config,
            &[
                "10.1.0.5",
                "lab1",
                "127.0.0.1",
                "lab1:80",
                "::1",
                "10.0.0.1",
            ],
        );
    }

    #[test]
    fn relays_have_a_port_and_stay_on_this_host_if_all_does() {
        let mut config = Config::default();
        assert_eq!(config.relays(), []);
        let text = "{lab2, [::1]:7, lab2:16570, 127.0.0.1}";
        config.set("lab.Relay", text).unwrap();
        let relay = |host: &str, port| (host.to_owned(), port);
        let here = [relay("::1", 7), relay("127.0.0.1", 16570)];
        let all = [relay("lab2", 16570), here[0].clone(), here[1].clone()];
        assert_eq!(config.relays(), all);
        config.set_bind(Bind::Loopback);
        assert_eq!(config.relays(), here);
        config.set_ipv6(Ipv6Mode::Disable);
        assert_eq!(config.relays(), here[1..]);
        let many: Vec<_> = (0..20).map(|number| format!("127.0.0.{number}")).collect();
        let many = format!("{{{}}}", many.join(", "));
        config.set("lab.Relay", &many).unwrap();
        assert_eq!(config.relays().len(), MAX_RELAYS);
    }

    #[test]
    fn the_port_range_ends_with_the_ports() {
        let mut config = Config::default();
        assert_eq!(
            config.port_range().collect::<Vec<_>>(),
            (16572..16604).collect::<Vec<_>>()
        );
        config.set_ports(65534, 32);
        assert_eq!(config.port_range().collect::<Vec<_>>(), [65534, 65535]);
        config.set_ports(0, 2);
        assert_eq!(config.port_range().collect::<Vec<_>>(), [0, 1]);
        config.set_ports(5, 0);
        assert_eq!(config.port_range().count(), 0);
    }
}
