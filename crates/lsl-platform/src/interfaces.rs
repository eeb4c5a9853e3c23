//! The network interfaces of this host, one entry per address.

#[cfg(unix)]
use std::io;
use std::net::IpAddr;

#[cfg(unix)]
use getifaddrs::{Address, InterfaceFlags};

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
    /// Whether it can carry multicast.
    pub is_multicast: bool,
    /// Whether it reaches this host alone.
    pub is_loopback: bool,
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
    let listed = getifaddrs::getifaddrs()?.filter_map(|entry| {
        let (address, netmask) = match entry.address {
            Address::V4(v4) => (v4.address.into(), v4.netmask.map(IpAddr::V4)),
            Address::V6(v6) => (v6.address.into(), v6.netmask.map(IpAddr::V6)),
            Address::Mac(_) => return None,
        };
        Some(Interface {
            name: entry.name,
            index: entry.index.unwrap_or(0),
            address,
            netmask,
            is_up: entry.flags.contains(InterfaceFlags::UP),
            is_multicast: entry.flags.contains(InterfaceFlags::MULTICAST),
            is_loopback: entry.flags.contains(InterfaceFlags::LOOPBACK),
        })
    });
    Ok(listed.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_loopback() {
        let all = interfaces().unwrap();
        assert!(
            all.iter()
                .any(|entry| entry.is_loopback && entry.address.is_loopback())
        );
    }
}
