//! The network interfaces of this host, one entry per address.

mod kind;

#[cfg(unix)]
use std::collections::HashMap;
#[cfg(unix)]
use std::io;
use std::net::{IpAddr, Ipv4Addr};

#[cfg(unix)]
use getifaddrs::{Address, InterfaceFlags};

pub use self::kind::Kind;

/// One address of one interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// The system's name of the interface, such as `eth0`.
    pub name: String,
    /// The system's index of the interface, as `IPV6_MULTICAST_IF` and scope ids want it; 0 if unknown.
    pub index: u32,
    /// IPv4 or IPv6 address of the interface.
    pub address: IpAddr,
    /// Netmask of the address; `None` if the system does not tell it.
    pub netmask: Option<IpAddr>,
    /// Whether the interface is switched on.
    pub is_up: bool,
    /// Whether it has what it needs, such as a cable or an access point.
    pub is_running: bool,
    /// Whether it can carry multicast.
    pub is_multicast: bool,
    /// What it leads to.
    pub kind: Kind,
    /// Address that reaches all hosts of the network of `address`, if there is one.
    pub broadcast: Option<Ipv4Addr>,
}

/// Returns the broadcast address of a network in which there is room for one.
fn broadcast(address: IpAddr, netmask: Option<IpAddr>) -> Option<Ipv4Addr> {
    let (IpAddr::V4(address), Some(IpAddr::V4(netmask))) = (address, netmask) else {
        return None;
    };
    let hosts = !netmask.to_bits();
    (hosts > 1).then(|| Ipv4Addr::from_bits(address.to_bits() | hosts))
}

#[cfg(windows)]
#[path = "windows/interfaces.rs"]
mod system;
#[cfg(windows)]
pub use system::interfaces;

/// Lists every IPv4 and IPv6 address of this host. A few system calls per address; does not block.
///
/// # Errors
/// Those of `getifaddrs(3)`.
#[cfg(unix)]
pub fn interfaces() -> io::Result<Vec<Interface>> {
    let mut kinds = HashMap::new();
    let listed = getifaddrs::getifaddrs()?.filter_map(|entry| {
        let (address, netmask) = match entry.address {
            Address::V4(v4) => (v4.address.into(), v4.netmask.map(IpAddr::V4)),
            Address::V6(v6) => (v6.address.into(), v6.netmask.map(IpAddr::V6)),
            Address::Mac(_) => return None,
        };
        let index = entry.index.unwrap_or(0);
        let has = |flag| entry.flags.contains(flag);
        let kind = if has(InterfaceFlags::LOOPBACK) {
            Kind::Loopback
        } else {
            *kinds
                .entry(index)
                .or_insert_with(|| kind_of(&entry.name, index))
        };
        Some(Interface {
            index,
            address,
            netmask,
            is_up: has(InterfaceFlags::UP),
            is_running: has(InterfaceFlags::RUNNING),
            is_multicast: has(InterfaceFlags::MULTICAST),
            kind,
            broadcast: broadcast(address, netmask).filter(|_| has(InterfaceFlags::BROADCAST)),
            name: entry.name,
        })
    });
    Ok(listed.collect())
}

/// Asks the system what an interface is.
#[cfg(target_os = "linux")]
fn kind_of(name: &str, index: u32) -> Kind {
    let folder = std::path::Path::new("/sys/class/net").join(name);
    let facts = std::fs::read_to_string(folder.join("uevent")).unwrap_or_default();
    let fact = |key| facts.lines().find_map(|line| line.strip_prefix(key));
    // A program in a namespace may see the files of another one.
    if fact("IFINDEX=").and_then(|text| text.parse().ok()) != Some(index) {
        return Kind::of_name(name);
    }
    Kind::of_facts(name, fact("DEVTYPE="), |file| folder.join(file).exists())
}

/// Names tell all that there is to know.
#[cfg(all(unix, not(target_os = "linux")))]
fn kind_of(name: &str, _index: u32) -> Kind {
    Kind::of_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_loopback() {
        let all = interfaces().unwrap();
        assert!(
            all.iter()
                .any(|entry| entry.kind == Kind::Loopback && entry.address.is_loopback())
        );
    }

    #[test]
    fn networks_with_room_have_a_broadcast_address() {
        for (address, netmask, expected) in [
            ([10, 50, 0, 7], [255, 255, 255, 0], Some([10, 50, 0, 255])),
            ([10, 50, 0, 7], [255, 255, 252, 0], Some([10, 50, 3, 255])),
            ([10, 50, 0, 7], [255, 255, 255, 254], None),
            ([10, 50, 0, 7], [255, 255, 255, 255], None),
        ] {
            let expected = expected.map(Ipv4Addr::from);
            let netmask = Some(netmask.into());
            assert_eq!(broadcast(address.into(), netmask), expected, "{netmask:?}");
        }
        assert_eq!(broadcast([10, 50, 0, 7].into(), None), None);
    }
}
