//! Clock, interfaces, ports and sockets of this machine.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;

use lsl_core::local_clock;
use lsl_platform::udp_sockets::udp_sockets;
use lsl_platform::{clock, interfaces};
use socket2::{Domain, Protocol, Socket, Type};

use super::files;
use super::programs::processes;
use crate::observe::{Interface, Kind, PortSeen, PortsInUse, Program, SocketDrops};

/// The LSL clock and the time of day, read at once.
#[derive(Debug, Clone, Copy)]
pub(super) struct ClockPair {
    lsl: f64,
    day: f64,
}

impl ClockPair {
    /// Reads both, as close together as this thread is let.
    pub(super) fn read() -> Self {
        let mut best = (f64::INFINITY, Self { lsl: 0.0, day: 0.0 });
        for _ in 0..8 {
            let before = local_clock();
            let day = clock::utc_now().as_secs_f64();
            let width = local_clock() - before;
            if width < best.0 {
                best = (
                    width,
                    Self {
                        lsl: before + width / 2.0,
                        day,
                    },
                );
            }
        }
        best.1
    }

    /// Returns by how much the LSL clock ran faster since, if that was long enough ago to tell.
    pub(super) fn ppm(self) -> Option<f64> {
        let now = Self::read();
        let lsl = now.lsl - self.lsl;
        (lsl > 0.3).then(|| (lsl - (now.day - self.day)) / lsl * 1e6)
    }
}

/// `if.list`
pub(super) fn interfaces() -> Option<Vec<Interface>> {
    let mut all: BTreeMap<String, Interface> = BTreeMap::new();
    let names = all_names();
    for entry in interfaces::interfaces().ok()? {
        let interface = all.entry(entry.name.clone()).or_insert_with(|| Interface {
            index: entry.index,
            kind: if entry.kind == interfaces::Kind::Loopback {
                Kind::Loopback
            } else {
                Kind::of_name(&entry.name)
            },
            is_up: entry.is_up,
            has_carrier: None,
            is_multicast: entry.is_multicast,
            name: entry.name.clone(),
            addresses: Vec::new(),
        });
        interface
            .addresses
            .push((entry.address, length(entry.address, entry.netmask)));
    }
    // A namespace may see the files of another one.
    let is_ours = |it: &Interface| index(&it.name) == Some(it.index);
    if all.values().all(is_ours) {
        for name in names {
            all.entry(name)
                .or_insert_with_key(|name| without_address(name));
        }
        for interface in all.values_mut() {
            interface.has_carrier = carrier(&interface.name);
        }
    }
    Some(all.into_values().collect())
}

/// An interface without an address is worth a word: it may lack its cable.
fn without_address(name: &str) -> Interface {
    let flags = file_of(name, "flags").unwrap_or_default();
    let flags = u32::from_str_radix(flags.trim_start_matches("0x"), 16).unwrap_or(0);
    Interface {
        kind: if flags & IFF_LOOPBACK != 0 {
            Kind::Loopback
        } else {
            Kind::of_name(name)
        },
        index: index(name).unwrap_or(0),
        is_up: flags & IFF_UP != 0,
        is_multicast: flags & IFF_MULTICAST != 0,
        name: name.to_owned(),
        ..Interface::default()
    }
}

/// Names of all interfaces, with an address or without.
fn all_names() -> Vec<String> {
    let text = files::text("/proc/net/dev").unwrap_or_default();
    let names = text.lines().filter_map(|line| line.split_once(':'));
    names.map(|(name, _)| name.trim().to_owned()).collect()
}

fn index(name: &str) -> Option<u32> {
    file_of(name, "ifindex")?.parse().ok()
}

fn carrier(name: &str) -> Option<bool> {
    Some(file_of(name, "carrier")? == "1")
}

fn file_of(interface: &str, name: &str) -> Option<String> {
    let text = files::text(Path::new("/sys/class/net").join(interface).join(name))?;
    Some(text.trim().to_owned())
}
/// The length of a network, by its mask.
fn length(address: IpAddr, mask: Option<IpAddr>) -> u8 {
    let ones = match mask {
        Some(IpAddr::V4(mask)) => u32::from(mask).count_ones(),
        Some(IpAddr::V6(mask)) => u128::from(mask).count_ones(),
        None if address.is_ipv4() => 24,
        None => 64,
    };
    u8::try_from(ones).unwrap_or(128)
}

/// `port.bind`: whether outlets could hear questions here, and if not, who has the port.
pub(super) fn multicast_port(port: u16) -> Option<PortSeen> {
    let bind = || -> io::Result<()> {
        let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
        socket.set_reuse_address(true)?;
        socket.bind(&SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)).into())
    };
    let is_taken = match bind() {
        Ok(()) => false,
        Err(error) if lsl_platform::socket::is_taken(&error) => true,
        Err(_) => return None,
    };
    let holder = || {
        let sockets = udp_sockets().ok()?;
        let socket = sockets.iter().find(|it| it.port == port)?;
        programs(&[socket.inode]).remove(&socket.inode)
    };
    Some(PortSeen {
        port,
        is_taken,
        holder: is_taken.then(holder).flatten(),
    })
}

/// What sockets at ports of LSL had lost at a moment, by inode.
#[derive(Debug)]
pub(super) struct Drops {
    ports: PortsInUse,
    by_inode: BTreeMap<u64, u64>,
}

/// Reads what was lost until now.
pub(super) fn drops(ports: PortsInUse) -> Option<Drops> {
    let sockets = udp_sockets().ok()?;
    let by_inode = sockets.iter().map(|it| (it.inode, it.drops)).collect();
    Some(Drops { ports, by_inode })
}

/// `udp.drops`: what sockets at ports of LSL lost since then, and those that had lost many.
pub(super) fn lost_since(before: &Drops) -> Option<Vec<SocketDrops>> {
    let lost: Vec<_> = udp_sockets()
        .ok()?
        .into_iter()
        .filter(|it| it.port == before.ports.multicast || before.ports.has(it.port))
        .filter_map(|it| {
            // liblsl opens sockets for each wave of a search.
            let had_lost = before.by_inode.get(&it.inode).copied();
            let lost = it.drops.saturating_sub(had_lost.unwrap_or(0));
            (lost > 0 || it.drops > MANY_DROPS).then_some((it, lost))
        })
        .collect();
    let inodes: Vec<u64> = lost.iter().map(|(it, _)| it.inode).collect();
    let mut programs = if inodes.is_empty() {
        BTreeMap::new()
    } else {
        programs(&inodes)
    };
    let lost = lost.into_iter().map(|(it, lost)| SocketDrops {
        port: it.port,
        lost,
        total: it.drops,
        program: programs.remove(&it.inode),
    });
    Some(lost.collect())
}

/// The programs that have these sockets, as far as this user may see.
fn programs(inodes: &[u64]) -> BTreeMap<u64, Program> {
    let mut found = BTreeMap::new();
    for process in processes() {
        for inode in process.sockets.iter().filter(|it| inodes.contains(it)) {
            found.entry(*inode).or_insert_with(|| process.program());
        }
    }
    found
}

/// Whether files say that this is a container, or Linux within Windows.
pub(super) fn is_contained() -> Option<bool> {
    let version = files::text("/proc/version")?;
    let is_marked = ["/.dockerenv", "/run/.containerenv"]
        .iter()
        .any(|it| Path::new(it).exists());
    Some(is_marked || version.to_ascii_lowercase().contains("microsoft"))
}

/// Fewer are lost by a program that was busy once.
const MANY_DROPS: u64 = 100;

/// Flags of `/sys/class/net/*/flags`.
const IFF_UP: u32 = 0x1;
const IFF_LOOPBACK: u32 = 0x8;
const IFF_MULTICAST: u32 = 0x1000;
