//! The typed values of each section of `lsl_api.cfg`. The table in `keys` explains each key and its
//! text. Spec: lsl-protocol §12.

use std::net::{IpAddr, Ipv6Addr};

use super::Ipv4Network;

#[cfg(doc)]
use super::Config;

/// Values of section `[ports]`: ports and address families.
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub struct Ports {
    /// UDP port of the multicast responders.
    pub multicast_port: u16,
    /// First port tried; 0 asks the system for a free one.
    pub base_port: u16,
    /// Number of ports tried from `base_port` on.
    pub port_range: u16,
    /// Whether to fall back to any free port.
    pub allow_random_ports: bool,
    /// Address families that sockets use.
    pub ipv6: Ipv6Mode,
}

/// Address families that sockets use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Ipv6Mode {
    /// IPv4 only; no IPv6 sockets.
    Disable,
    /// Both families, IPv4 and IPv6.
    #[default]
    Allow,
    /// IPv6 only; no IPv4 sockets.
    Force,
}

/// Values of section `[multicast]`; see [`Config::multicast_targets`] for the resulting targets.
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub struct Multicast {
    /// Reach of queries, which selects the lists.
    pub resolve_scope: ResolveScope,
    /// Address to which responders bind instead of the wildcard.
    pub listen_address: Option<IpAddr>,
    /// Group used under every IPv6 scope prefix.
    pub ipv6_group: MulticastGroup,
    /// Added from scope machine on.
    pub machine_addresses: Vec<IpAddr>,
    /// Added from scope link on.
    pub link_addresses: Vec<IpAddr>,
    /// Added from scope site on.
    pub site_addresses: Vec<IpAddr>,
    /// Added from scope organization on.
    pub organization_addresses: Vec<IpAddr>,
    /// Added in scope global alone.
    pub global_addresses: Vec<IpAddr>,
    /// Replaces the TTL when not negative.
    pub ttl_override: i32,
    /// Replaces all lists when not empty.
    pub addresses_override: Vec<IpAddr>,
    /// Interfaces to use; empty means all that can multicast.
    pub interfaces: Vec<InterfaceAddress>,
    /// Patterns of names of interfaces to use, see [`globs::allows`](super::globs::allows).
    pub interface_names: Vec<String>,
}

/// Reach of queries; each scope includes those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum ResolveScope {
    /// This host, with TTL 0.
    Machine,
    /// This network segment, with TTL 1.
    Link,
    /// This site, with TTL 24.
    #[default]
    Site,
    /// All sites of the organization, with TTL 32.
    Organization,
    /// The Internet, with TTL 255.
    Global,
}

impl ResolveScope {
    pub(super) const ALL: [Self; 5] = [
        Self::Machine,
        Self::Link,
        Self::Site,
        Self::Organization,
        Self::Global,
    ];

    /// Returns the word used in the file.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Machine => "machine",
            Self::Link => "link",
            Self::Site => "site",
            Self::Organization => "organization",
            Self::Global => "global",
        }
    }
}

/// The lower seven groups of an IPv6 multicast address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MulticastGroup(pub [u16; 7]);

impl MulticastGroup {
    /// Returns the address under a scope prefix such as `0xff02`.
    pub const fn with_prefix(self, prefix: u16) -> Ipv6Addr {
        let [g1, g2, g3, g4, g5, g6, g7] = self.0;
        Ipv6Addr::new(prefix, g1, g2, g3, g4, g5, g6, g7)
    }
}

impl Default for MulticastGroup {
    fn default() -> Self {
        Self([0x113d, 0x6fdd, 0x2c17, 0xa643, 0xffe2, 0x1bd1, 0x3cd2])
    }
}

/// A local interface, as the way out of this host for multicast.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InterfaceAddress {
    /// IPv4 or IPv6 address of the interface; unspecified lets the system choose.
    pub address: IpAddr,
    /// Index of the interface; 0 if not given, and lets the system choose.
    pub index: u32,
}

/// Values of section `[lab]`: session and known peers.
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub struct Lab {
    /// Hosts and networks asked directly; see [`Config::unicast_peers`] and [`Config::peer_networks`].
    pub known_peers: Vec<KnownPeer>,
    /// Only streams of the same session see each other.
    pub session_id: String,
    /// Resolve over TCP too. Spec: lsl-protocol §3.6.
    pub resolve_over_tcp: bool,
    /// Relays that are asked for the streams behind them; see [`Config::relays`].
    pub relay: Vec<HostPort>,
    /// Whether to send and connect where liblsl would not, to find and keep streams. Spec: doctor §2.1.
    pub self_healing: bool,
    /// Whether searches without a result ask the neighbours that the system knows.
    pub ask_neighbours: bool,
}

/// Who is asked directly. liblsl knows hosts without a port only.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum KnownPeer {
    /// A host.
    Host(HostPort),
    /// Every host of a network.
    Network(Ipv4Network),
}

/// A host, and perhaps a port of it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct HostPort {
    /// Name or address, without brackets.
    pub host: String,
    /// The one port to ask; `None` stands for all that are usual.
    pub port: Option<u16>,
}

/// Values of section `[tuning]`; times are in seconds.
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
#[expect(
    missing_docs,
    reason = "the table in `keys` explains each; the names are the same"
)]
pub struct Tuning {
    pub protocol_version: u32,
    pub watchdog_check_interval_secs: f64,
    pub watchdog_time_threshold_secs: f64,
    pub multicast_min_rtt_secs: f64,
    pub multicast_max_rtt_secs: f64,
    pub unicast_min_rtt_secs: f64,
    pub unicast_max_rtt_secs: f64,
    pub continuous_resolve_interval_secs: f64,
    pub timer_resolution_ms: u32,
    pub max_cached_queries: u32,
    pub time_update_interval_secs: f64,
    pub time_update_min_probes: u32,
    pub time_probe_count: u32,
    pub time_probe_interval_secs: f64,
    pub time_probe_max_rtt_secs: f64,
    pub outlet_buffer_reserve_ms: u32,
    pub outlet_buffer_reserve_samples: u32,
    pub inlet_buffer_reserve_ms: u32,
    pub inlet_buffer_reserve_samples: u32,
    pub send_socket_buffer_bytes: u32,
    pub receive_socket_buffer_bytes: u32,
    pub smoothing_halftime_secs: f32,
    pub force_default_timestamps: bool,
    pub max_consumers: u32,
    pub inlet_buffer_limit_mib: u32,
    pub sync_send_timeout_secs: f64,
    pub resume: bool,
    pub retain_secs: f64,
    pub retain_bytes: u64,
    pub retain_total_bytes: u64,
    pub retain_unread: bool,
}

/// Values of section `[log]`: level and file.
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub struct Log {
    /// -3 (fatal errors only) to 9 (everything).
    pub level: i32,
    /// File that replaces the standard error output; empty means none.
    pub file: String,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Values {
    pub(super) ports: Ports,
    pub(super) multicast: Multicast,
    pub(super) lab: Lab,
    pub(super) tuning: Tuning,
    pub(super) log: Log,
}
