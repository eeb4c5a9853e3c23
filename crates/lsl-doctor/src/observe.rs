//! What was observed: plain data, of which every part may be unknown. Recorded as JSON by `--json`, replayed by tests.
//!
//! `None` means that nobody looked, or that time ran out. It is never evidence.
#![expect(
    missing_docs,
    reason = "names say what fields and variants are, comments what they do not"
)]

pub mod peers;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::PathBuf;

use lsl_platform::interfaces as named;
use serde::{Deserialize, Serialize};

mod streams;

use self::peers::{NeighbourSeen, PeerSeen, RelaySeen, RouteSeen};
pub use streams::*;

/// Operating system, as far as remedies differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Os {
    #[default]
    Linux,
    Windows,
    Macos,
}

/// The machine on which something is typed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Place {
    /// Where the doctor runs.
    Here,
    /// The other machine.
    There,
}

/// All that is known of a machine and its network.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Observations {
    pub os: Os,
    /// What the user looks for.
    pub asked: Asked,
    /// `cfg.file`
    pub config: Option<ConfigSeen>,
    /// `cfg.secure`: why nothing may stream here; empty if the configuration can be used.
    pub security_error: Option<String>,
    /// `host.clock`: how much faster the LSL clock runs than the wall clock, in parts per million.
    pub clock_ppm: Option<f64>,
    /// `if.list`
    pub interfaces: Option<Vec<Interface>>,
    /// `if.route`
    pub routes: Option<Vec<RouteSeen>>,
    /// Whether this is a container or a virtual machine behind its host's address, as its files say.
    pub container: Option<bool>,
    /// `port.bind`
    pub multicast_port: Option<PortSeen>,
    /// `fw.read`
    pub firewall: Option<Firewall>,
    /// `udp.drops`: sockets that lost datagrams while the doctor ran, or many before.
    pub drops: Option<Vec<SocketDrops>>,
    /// `loop`
    pub loopback: Option<Vec<LoopProbe>>,
    /// `loop.host`: streams of this machine.
    pub own_streams: Option<Vec<StreamSeen>>,
    /// `wave`
    pub wave: Option<Wave>,
    /// `gate`, `neigh`
    pub neighbours: Option<Vec<NeighbourSeen>>,
    /// `peer.*`
    pub peers: Option<Vec<PeerSeen>>,
    /// `relay`
    pub relays: Option<Vec<RelaySeen>>,
    /// What `lsl list` finds beside it: streams of the session in use, by the configuration in use.
    pub found: Option<Vec<StreamSeen>>,
    /// What the machine that was named tells of itself, by a pair or its code.
    pub other: Option<OtherSide>,
    /// `stream.open`, `stream.feed`
    pub probed: Option<Vec<StreamProbed>>,
    /// `host.fds`: programs that have sockets at ports of LSL.
    pub descriptors: Option<Vec<DescriptorsUsed>>,
    /// `lib.old`: programs of this machine that have loaded a liblsl, as far as its version shows.
    pub libraries: Option<Vec<LibraryUsed>>,
}

/// What the user looks for.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Asked {
    /// The session in use.
    pub session: String,
    /// A stream, in the user's words, and whether it was found.
    pub stream: Option<StreamAsked>,
    /// Hosts that were named.
    pub hosts: Vec<HostAsked>,
    /// Ports in use: that of multicast, the first of the range, and how many.
    pub ports: PortsInUse,
}

/// A host that the user named.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct HostAsked {
    /// As it was typed.
    pub text: String,
    /// What the name means.
    pub addresses: Vec<IpAddr>,
}

impl HostAsked {
    /// Returns whether it is a whole network: nobody says that each of its machines is there.
    pub fn is_network(&self) -> bool {
        self.text.contains('/')
    }
}

/// Splits a host from its port; 0 if it has none.
pub fn host_and_port(word: &str) -> (&str, u16) {
    let split = word.rsplit_once(':').and_then(|(host, port)| {
        let bare = host.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
        let host = bare.or_else(|| (!host.contains(':')).then_some(host))?;
        Some((host, port.parse().ok()?))
    });
    split.unwrap_or((word, 0))
}

/// The ports of the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortsInUse {
    pub multicast: u16,
    pub base: u16,
    pub count: u16,
}

impl Default for PortsInUse {
    fn default() -> Self {
        Self {
            multicast: 16571,
            base: 16572,
            count: 32,
        }
    }
}

impl PortsInUse {
    /// Returns the last port of the range.
    pub fn last(self) -> u16 {
        self.base.saturating_add(self.count.saturating_sub(1))
    }

    /// Returns the ranges that UDP needs, first and last port of each: nothing between the multicast port and the
    /// range belongs to LSL.
    pub fn udp(self) -> Vec<(u16, u16)> {
        let range = (self.base, self.last());
        if self.multicast == 0 || self.has(self.multicast) {
            vec![range]
        } else if self.multicast.checked_add(1) == Some(self.base) {
            vec![(self.multicast, range.1)]
        } else {
            vec![(self.multicast, self.multicast), range]
        }
    }

    /// Returns whether a port is in the range.
    pub fn has(self, port: u16) -> bool {
        (self.base..=self.last()).contains(&port)
    }
}

/// A stream that the user named.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct StreamAsked {
    /// As it was typed.
    pub text: String,
    /// The field and its value, where it names one.
    pub field: Option<(String, String)>,
    /// Whether it was found.
    pub found: bool,
}

/// The configuration, and the files that were not used.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ConfigSeen {
    /// The file in use; none if the defaults are.
    pub in_use: Option<PathBuf>,
    /// Files that were tried and cannot be used, as liblsl would not either.
    pub rejected: Vec<FileSeen>,
    /// Files that nobody reads, because of their name or place.
    pub misnamed: Vec<FileSeen>,
    /// Files that would be read if the one in use were not there.
    pub hidden: Vec<FileSeen>,
    /// Keys that do not have their default.
    pub changed: Vec<Setting>,
}

/// A configuration file beside the one in use.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct FileSeen {
    pub path: PathBuf,
    /// What is wrong with it, or nothing.
    pub problem: String,
    /// The line of the problem.
    pub line: Option<usize>,
    /// Where it would be read; none if there is a file already.
    pub belongs: Option<PathBuf>,
    /// The settings in it that decide what is found, and differ from those in use.
    pub settings: Vec<(String, String)>,
}

/// A key that does not have its default.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Setting {
    pub key: String,
    pub value: String,
    pub default: String,
    /// File and line, or what else set it.
    pub origin: String,
}

/// An interface with its addresses.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Interface {
    pub name: String,
    pub index: u32,
    pub kind: Kind,
    pub is_up: bool,
    /// Whether there is a cable or an access point; none where the system does not say.
    pub has_carrier: Option<bool>,
    pub is_multicast: bool,
    /// Addresses, each with the length of its network.
    pub addresses: Vec<(IpAddr, u8)>,
}

/// What an interface leads to. Spec: doctor §2.2
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    Loopback,
    Tunnel,
    Container,
    Virtual,
    PeerToPeer,
    #[default]
    Other,
}

impl Kind {
    /// Tells from the name that systems and programs give interfaces.
    pub fn of_name(name: &str) -> Self {
        match named::Kind::of_name(name) {
            named::Kind::Loopback => Self::Loopback,
            named::Kind::Tunnel => Self::Tunnel,
            named::Kind::Container => Self::Container,
            named::Kind::Virtual => Self::Virtual,
            named::Kind::PeerToPeer => Self::PeerToPeer,
            _ => Self::Other,
        }
    }
}

/// Whether the multicast port can be bound.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PortSeen {
    pub port: u16,
    /// Whether another program holds it without sharing.
    pub is_taken: bool,
    /// That program, where it can be told.
    pub holder: Option<Program>,
}

/// A running program.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Program {
    pub pid: u32,
    pub name: String,
}

/// What manages the packet filter, and its chains that may drop.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Firewall {
    pub manager: Manager,
    /// Whether the rules could be read.
    pub is_readable: bool,
    /// Base chains that drop something.
    pub chains: Vec<Chain>,
    pub windows: Option<WindowsFirewall>,
}

/// What the registry of Windows says.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct WindowsFirewall {
    /// Of the networks that this machine was in; in which it is now is not known.
    pub networks: BTreeSet<Profile>,
    /// Where the firewall is on.
    pub filtered: BTreeSet<Profile>,
    /// Where answers to questions to groups are dropped.
    pub answers_refused: BTreeSet<Profile>,
    /// Programs with ports of LSL that a rule blocks.
    pub blocked: Vec<BlockedProgram>,
}

impl WindowsFirewall {
    /// Returns whether what is said of these profiles is so in every network of this machine.
    pub fn holds_everywhere(&self, profiles: &BTreeSet<Profile>) -> bool {
        let holds = |it: &Profile| profiles.contains(it) && self.filtered.contains(it);
        !self.networks.is_empty() && self.networks.iter().all(holds)
    }
}

/// A program that a rule of Windows' firewall blocks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockedProgram {
    pub program: Program,
    /// Its path, as the rule has it.
    pub app: String,
    /// Name of the rule.
    pub rule: String,
    pub profiles: BTreeSet<Profile>,
    /// Whether it is the program that looks.
    #[serde(default)]
    pub is_self: bool,
    /// Whether what comes over UDP is let in.
    #[serde(default)]
    pub is_tcp_alone: bool,
    /// Whether a policy has the rule, which no command of this machine changes.
    #[serde(default)]
    pub is_of_policy: bool,
}

/// Kind of a network, for Windows' firewall.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Profile {
    Domain,
    Private,
    Public,
}

impl Profile {
    pub const ALL: [Self; 3] = [Self::Domain, Self::Private, Self::Public];

    /// Returns the profile that rules call so.
    pub fn of_name(name: &str) -> Option<Self> {
        match name {
            "Domain" => Some(Self::Domain),
            "Private" => Some(Self::Private),
            "Public" => Some(Self::Public),
            _ => None,
        }
    }

    /// Returns the profile of a network's category.
    pub fn of_category(category: u32) -> Option<Self> {
        let of_category = [Self::Public, Self::Private, Self::Domain];
        of_category.get(category as usize).copied()
    }
}

/// What manages the packet filter.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Manager {
    #[default]
    Unknown,
    Nftables,
    Iptables,
    Ufw,
    /// With the zone in use.
    Firewalld(String),
    Windows,
    Macos,
}

/// A base chain that drops something.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chain {
    /// `inet`, `ip` or `ip6`.
    pub family: String,
    pub table: String,
    pub name: String,
    pub hook: Hook,
    /// Whether it drops what no rule accepts.
    pub drops_by_policy: bool,
}

/// Where a chain looks at packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Hook {
    Input,
    Output,
}

/// A UDP socket that lost datagrams for want of room.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SocketDrops {
    pub port: u16,
    /// While the doctor ran.
    pub lost: u64,
    /// Since the socket was opened.
    #[serde(default)]
    pub total: u64,
    pub program: Option<Program>,
}

/// Datagrams of ours to a group, which do not leave the machine and pass its own filter. Spec: doctor §1, F2
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoopProbe {
    pub interface: String,
    pub group: IpAddr,
    pub port: u16,
    pub sent: u32,
    pub heard: u32,
    /// Why sending failed.
    pub error: Option<SendError>,
}

impl LoopProbe {
    /// Returns whether what was sent was swallowed.
    pub fn is_silent(&self) -> bool {
        self.sent > 0 && self.heard == 0
    }

    /// Returns whether the system refused to send.
    pub fn is_refused(&self) -> bool {
        self.error == Some(SendError::Refused)
    }
}

/// Why a datagram was not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SendError {
    /// Not permitted: a filter of what goes out.
    Refused,
    /// There is no way there.
    Unreachable,
    /// Anything else; no evidence.
    Other,
}

/// Questions to everybody and what came back.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Wave {
    /// How many waves were sent.
    pub waves: u32,
    /// Each way that was asked, with what it brought.
    pub ways: Vec<Way>,
    /// Streams of all sessions that answered, those of this machine too.
    pub streams: Vec<StreamSeen>,
}

/// A place that was asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Way {
    /// The interface, where it matters.
    pub interface: Option<String>,
    /// A group, the broadcast address or a host.
    pub to: IpAddr,
    pub port: u16,
    pub kind: WayKind,
    pub sent: u32,
    /// Answers of other machines.
    pub answers: u32,
    pub error: Option<SendError>,
}

/// Kind of a place that was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WayKind {
    Group,
    Broadcast,
    Host,
}

/// A stream that answered.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct StreamSeen {
    pub uid: String,
    pub name: String,
    #[serde(rename = "type")]
    pub stream_type: String,
    pub source_id: String,
    pub hostname: String,
    pub session: String,
    /// Of the protocol: 110 is 1.10.
    pub version: u32,
    /// Where the answer came from.
    pub address: Option<IpAddr>,
    /// Whether that is this machine.
    pub is_here: bool,
    /// The port of its data, over IPv4 or else IPv6.
    pub port: u16,
    /// The port of its clock, likewise; 0 if it is not told.
    pub service_port: u16,
    /// In how many waves it answered.
    pub waves: u32,
    /// Whether a question to a group or the broadcast address brought it, not one to a host alone.
    pub by_group: bool,
}

/// What the other machine of a pair tells of itself: all that its code can say. Spec: doctor §3.4
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct OtherSide {
    /// The nonce that it heard, hashed; 0 if it heard nobody.
    pub tag: u8,
    /// How much it heard of what that nonce sent. What is missing was not heard.
    pub heard: BTreeMap<Class, Share>,
    pub facts: BTreeSet<Fact>,
    /// Of its networks: the lowest of those that lead to others, hashed.
    pub network: u8,
    /// Its session, hashed.
    pub session: u8,
    /// 0 plaintext, 1 encryption if both can, 2 encryption only.
    pub policy: u8,
}

/// Ways of datagrams to a machine that listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// 239.255.172.215
    SiteV4,
    /// 224.0.0.1 and 224.0.0.183
    LinkV4,
    Broadcast,
    /// The broadcast address of a network.
    Directed,
    GroupsV6,
    /// Its address, port 16571.
    Multicast,
    /// Its address, a port of the range.
    Range,
    /// Its address, port 16569.
    Serve,
}

impl Class {
    pub const ALL: [Self; 8] = [
        Self::SiteV4,
        Self::LinkV4,
        Self::Broadcast,
        Self::Directed,
        Self::GroupsV6,
        Self::Multicast,
        Self::Range,
        Self::Serve,
    ];

    /// Whether it reaches whoever listens, not one machine.
    pub fn is_group(self) -> bool {
        !matches!(self, Self::Multicast | Self::Range | Self::Serve)
    }
}

/// How much arrived.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Share {
    #[default]
    None,
    /// Less than half.
    Few,
    More,
    All,
}

impl Share {
    pub const ALL: [Self; 4] = [Self::None, Self::Few, Self::More, Self::All];

    pub fn of(heard: usize, sent: usize) -> Self {
        match heard {
            0 => Self::None,
            _ if heard >= sent => Self::All,
            _ if heard * 2 >= sent => Self::More,
            _ => Self::Few,
        }
    }
}

/// What holds at the other machine. Nothing follows from what is missing, but beside `LoopAsked` and
/// `NeighboursAsked`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fact {
    /// It accepted a connection at TCP 16569, or in the range.
    AcceptedServe,
    AcceptedRange,
    /// It asked its own filter, which swallowed what comes to these ports.
    LoopAsked,
    MulticastSilentV4,
    MulticastSilentV6,
    RangeSilentV4,
    RangeSilentV6,
    /// It may not send to groups, or to hosts.
    GroupsRefused,
    UnicastRefused,
    /// It asked its gateway and its neighbours, and these answered.
    NeighboursAsked,
    GatewayAnswers,
    OthersAnswer,
    TunnelUp,
    DefaultByTunnel,
    Container,
    /// Its ports are not those that all programs have by default.
    OtherPorts,
    HasOutlets,
}

impl Fact {
    pub const ALL: [Self; 17] = [
        Self::AcceptedServe,
        Self::AcceptedRange,
        Self::LoopAsked,
        Self::MulticastSilentV4,
        Self::MulticastSilentV6,
        Self::RangeSilentV4,
        Self::RangeSilentV6,
        Self::GroupsRefused,
        Self::UnicastRefused,
        Self::NeighboursAsked,
        Self::GatewayAnswers,
        Self::OthersAnswer,
        Self::TunnelUp,
        Self::DefaultByTunnel,
        Self::Container,
        Self::OtherPorts,
        Self::HasOutlets,
    ];
}
