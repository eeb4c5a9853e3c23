//! Other machines, and the ways to them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};

use super::{Interface, SendError};

/// By which interface something leaves.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RouteSeen {
    pub to: Option<IpAddr>,
    pub interface: Option<String>,
    /// Why there is no way there.
    pub error: Option<SendError>,
}

/// A machine on the same link, other than those that are looked at as peers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NeighbourSeen {
    pub address: IpAddr,
    pub interface: String,
    pub is_gateway: bool,
    /// Whether it answered a connection, were it by refusing.
    pub answers: bool,
}

/// Another machine. What was not looked at is `None`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PeerSeen {
    /// As it was named, else its address.
    pub text: String,
    /// Whether the user named it.
    pub is_named: bool,
    pub address: Option<IpAddr>,
    /// The interface in whose network it is.
    pub on_link: Option<String>,
    /// `peer.route`
    pub route: Option<RouteSeen>,
    /// `peer.arp`: whether a machine of the link answers for its address.
    pub arp: Option<bool>,
    /// `peer.udp`: what questions to its ports brought. Silence of a port that nobody is known to have is no evidence:
    /// systems tell of few closed ones.
    pub udp: Option<Vec<PortAsked>>,
    /// `peer.tcp`
    pub tcp: Option<Vec<PortAsked>>,
    /// `peer.bound`: the same by the interface of its network, where the route leaves by another one.
    pub bound: Option<BoundSeen>,
    /// `peer.ping`
    pub ping: Option<Ping>,
    /// `peer.mtu`
    pub mtu: Option<Mtu>,
    /// The interface on whose wire it answers, though its network is another one.
    pub wire: Option<WireSeen>,
}

/// A port that was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortAsked {
    pub port: u16,
    pub state: PortState,
    /// Whether something is known to have it: a stream there says so.
    pub is_known: bool,
}

/// What came of asking a port, best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PortState {
    /// It answered, or took the connection.
    Open,
    /// The machine says that nobody is there.
    Refused,
    /// A router, or this system, says that there is no way.
    Unreachable,
    Silent,
}

/// What came of asking by an interface.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct BoundSeen {
    pub interface: String,
    pub udp: Option<PortState>,
    pub tcp: Option<PortState>,
}

/// Round trips.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Ping {
    pub sent: u32,
    pub lost: u32,
    pub p50_ms: f64,
    pub p75_ms: f64,
    pub p95_ms: f64,
}

/// How long packets may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Mtu {
    /// The longest packet that was answered.
    pub passes: Option<u16>,
    /// The shortest that was not, and is longer.
    pub vanishes: Option<u16>,
    /// Whether somebody said so: then programs know.
    pub is_told: bool,
    /// Whether a connection began and what was asked for did not come.
    pub stalls: Option<bool>,
}

/// A relay that is asked for streams.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RelaySeen {
    /// Host and port.
    pub relay: String,
    /// How many it tells of.
    pub streams: Option<usize>,
    /// Why it tells of none.
    pub trouble: Option<(RelayTrouble, String)>,
}

/// Kind of why a relay tells of no streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RelayTrouble {
    /// No connection with it comes about.
    Unreachable,
    /// Something else answers there.
    Foreign,
    /// Encryption does not allow it.
    Barred,
}

/// A wire that two networks share.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct WireSeen {
    pub interface: String,
    /// An address of the other network that nobody has.
    pub free: Option<IpAddr>,
}

impl PeerSeen {
    /// Returns whether a question by UDP was answered.
    pub fn answers_udp(&self) -> bool {
        has(self.udp.as_ref(), PortState::Open)
    }

    /// Returns whether it took a connection.
    pub fn answers_tcp(&self) -> bool {
        has(self.tcp.as_ref(), PortState::Open)
    }

    /// Returns whether it refused a connection: it is up, and its filter lets the question in.
    pub fn refuses_tcp(&self) -> bool {
        has(self.tcp.as_ref(), PortState::Refused)
    }

    /// Returns the ports whose connections came to nothing, without a word.
    pub fn silent_tcp(&self) -> impl Iterator<Item = PortAsked> {
        let all = self.tcp.iter().flatten().copied();
        all.filter(|it| it.state == PortState::Silent)
    }
}

fn has(all: Option<&Vec<PortAsked>>, state: PortState) -> bool {
    all.is_some_and(|all| all.iter().any(|it| it.state == state))
}

impl Interface {
    /// Returns whether an address is in one of its networks, so that no router is between.
    pub fn has_in_network(&self, to: IpAddr) -> bool {
        let mut all = self.addresses.iter();
        all.any(|(own, length)| network(*own, *length) == network(to, *length))
    }
}

/// Returns the first address of the network of an address.
pub fn network(address: IpAddr, length: u8) -> IpAddr {
    match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32_u32.saturating_sub(length.into()));
            Ipv4Addr::from(u32::from(address) & mask.unwrap_or(0)).into()
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128_u32.saturating_sub(length.into()));
            Ipv6Addr::from(u128::from(address) & mask.unwrap_or(0)).into()
        }
    }
}
