//! Networks whose hosts are asked one by one. Spec: doctor §2.1.

use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;

/// An IPv4 network of at most 1,024 addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ipv4Network {
    first: Ipv4Addr,
    bits: u8,
}

impl Ipv4Network {
    /// Iterates over the addresses that hosts can have.
    pub fn hosts(self) -> impl Iterator<Item = Ipv4Addr> + Clone {
        let (first, last) = (self.first.to_bits(), self.last());
        // The first and the last address of a network with more than two are no host's.
        let ends = u32::from(self.bits < 31);
        (first + ends..=last - ends).map(Ipv4Addr::from_bits)
    }

    /// Returns whether an address lies in it.
    pub fn contains(self, address: Ipv4Addr) -> bool {
        (self.first.to_bits()..=self.last()).contains(&address.to_bits())
    }

    /// Returns whether it leads no further than this host.
    pub(super) fn is_loopback(self) -> bool {
        self.first.is_loopback()
    }

    fn last(self) -> u32 {
        self.first.to_bits() | u32::MAX.checked_shr(self.bits.into()).unwrap_or(0)
    }
}

impl FromStr for Ipv4Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let fail = || format!("'{text}' is not a network such as 10.1.2.0/24");
        let (address, bits) = text.split_once('/').ok_or_else(fail)?;
        let address: Ipv4Addr = address.parse().map_err(|_| fail())?;
        let bits: u8 = bits.parse().map_err(|_| fail())?;
        match bits {
            LEAST_BITS..=32 => {
                let mask = u32::MAX << (32 - bits);
                let first = Ipv4Addr::from_bits(address.to_bits() & mask);
                Ok(Self { first, bits })
            }
            0..LEAST_BITS => Err(format!(
                "'{text}' has too many hosts to ask each: networks may have up to 1,024 (/22)"
            )),
            33.. => Err(fail()),
        }
    }
}

impl fmt::Display for Ipv4Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.first, self.bits)
    }
}

const LEAST_BITS: u8 = 22;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks() {
        for (text, shown, count, inside, outside) in [
            (
                "10.1.2.3/24",
                "10.1.2.0/24",
                254,
                [10, 1, 2, 255],
                [10, 1, 3, 0],
            ),
            (
                "10.1.2.3/22",
                "10.1.0.0/22",
                1022,
                [10, 1, 3, 255],
                [10, 1, 4, 0],
            ),
            (
                "255.255.255.255/22",
                "255.255.252.0/22",
                1022,
                [255; 4],
                [0; 4],
            ),
            (
                "10.1.2.3/31",
                "10.1.2.2/31",
                2,
                [10, 1, 2, 2],
                [10, 1, 2, 4],
            ),
            (
                "10.1.2.3/32",
                "10.1.2.3/32",
                1,
                [10, 1, 2, 3],
                [10, 1, 2, 2],
            ),
        ] {
            let network: Ipv4Network = text.parse().unwrap();
            assert_eq!(network.to_string(), shown);
            assert_eq!(network.hosts().count(), count, "{text}");
            assert!(network.hosts().all(|host| network.contains(host)));
            assert!(network.contains(inside.into()) && !network.contains(outside.into()));
        }
        for text in [
            "10.1.2.0/21",
            "10.1.2.0/33",
            "10.1.2.0/",
            "fd00::/64",
            "lab/24",
            "10.0.0.0",
        ] {
            assert!(text.parse::<Ipv4Network>().is_err(), "{text}");
        }
    }
}
