//! The network interfaces of this host, one entry per address.

use std::io;
use std::net::IpAddr;

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

impl Interface {
    /// Returns whether `peer` is in the subnet of this address, so that it is reached without a router.
    pub fn contains(&self, peer: IpAddr) -> bool {
        match (self.address, self.netmask, peer) {
            (IpAddr::V4(own), Some(IpAddr::V4(mask)), IpAddr::V4(peer)) => {
                let mask = u32::from(mask);
                mask != 0 && u32::from(own) & mask == u32::from(peer) & mask
            }
            (IpAddr::V6(own), Some(IpAddr::V6(mask)), IpAddr::V6(peer)) => {
                let mask = u128::from(mask);
                mask != 0 && u128::from(own) & mask == u128::from(peer) & mask
            }
            _ => false,
        }
    }
}

/// Lists every IPv4 and IPv6 address of this host. A few system calls per address; does not block.
///
/// # Errors
/// Those of `getifaddrs(3)`.
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

    fn subnet(address: &str, netmask: &str) -> Interface {
        Interface {
            name: "test0".into(),
            index: 2,
            address: address.parse().unwrap(),
            netmask: Some(netmask.parse().unwrap()),
            is_up: true,
            is_multicast: true,
            is_loopback: false,
        }
    }

    #[test]
    fn lists_loopback() {
        let all = interfaces().unwrap();
        assert!(
            all.iter()
                .any(|entry| entry.is_loopback && entry.address.is_loopback())
        );
    }

    #[test]
    fn subnet_membership() {
        let check = |address, netmask, peer: &str, expected| {
            assert_eq!(
                subnet(address, netmask).contains(peer.parse().unwrap()),
                expected,
                "{peer}"
            );
        };
        check("198.51.100.7", "255.255.255.0", "198.51.100.200", true);
        check("198.51.100.7", "255.255.255.0", "198.51.101.7", false);
        check("198.51.100.7", "255.255.255.0", "2001:db8::1", false);
        check("2001:db8::1", "ffff:ffff:ffff:ffff::", "2001:db8::2", true);
        check(
            "2001:db8::1",
            "ffff:ffff:ffff:ffff::",
            "2001:db8:1::2",
            false,
        );
        // A tunnel that claims the whole internet proves nothing about a peer.
        check("198.51.100.7", "0.0.0.0", "203.0.113.1", false);
    }
}
