//! Limits of what peers, and many streams of one process, may ask for.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

pub use lsl_secure::TokenBucket;

/// A host as limits count it: an IPv4 address, or the /64 of which an IPv6 host may use every address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Host(IpAddr);

impl From<IpAddr> for Host {
    fn from(address: IpAddr) -> Self {
        Self(network(address, (32, 64)))
    }
}

impl Host {
    /// Returns the network of the host, for these lengths of the prefix (IPv4, IPv6).
    pub fn network(self, prefix: (u32, u32)) -> IpAddr {
        network(self.0, prefix)
    }
}

/// Returns the network of an address. There is only one of length zero.
fn network(address: IpAddr, (v4, v6): (u32, u32)) -> IpAddr {
    match address {
        IpAddr::V4(address) if v4 > 0 => {
            let mask = u32::MAX << (32 - v4);
            Ipv4Addr::from_bits(address.to_bits() & mask).into()
        }
        IpAddr::V6(address) if v6 > 0 => {
            let mask = u128::MAX << (128 - v6);
            Ipv6Addr::from_bits(address.to_bits() & mask).into()
        }
        _ => Ipv4Addr::UNSPECIFIED.into(),
    }
}
