//! Address prefixes such as `10.1.0.0/16`. Spec: LSS/1 §3.2.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// An address prefix such as `10.1.0.0/16` or `fd00::/8`. IPv4-mapped addresses are IPv4.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    base: IpAddr,
    prefix: u8,
}

impl Network {
    /// Whether an address lies in it.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.base, address.to_canonical()) {
            (IpAddr::V4(base), IpAddr::V4(address)) => mask4(address, self.prefix) == base,
            (IpAddr::V6(base), IpAddr::V6(address)) => mask6(address, self.prefix) == base,
            _ => false,
        }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.base, self.prefix)
    }
}

impl FromStr for Network {
    type Err = String;

    /// Reads `ADDRESS/BITS`, or an address alone. Bits behind the prefix are an error:
    /// `10.1.2.3/16` may be meant narrower.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |why: &str| format!("from {text:?}: {why}; write for example \"10.1.0.0/16\"");
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| wrong("not an address"))?;
        let width = if address.is_ipv4() { 32 } else { 128 };
        let prefix = match bits {
            None => width,
            Some(bits) if bits.bytes().all(|b| b.is_ascii_digit()) => {
                let bits = bits.parse().ok().filter(|bits| *bits <= width);
                bits.ok_or_else(|| wrong("too many bits, or none"))?
            }
            Some(_) => return Err(wrong("the bits are not a number")),
        };
        let base = match address {
            IpAddr::V4(address) => IpAddr::V4(mask4(address, prefix)),
            IpAddr::V6(address) => IpAddr::V6(mask6(address, prefix)),
        };
        if base != address {
            return Err(format!(
                "from {text:?}: bits are set behind the prefix; write \"{base}/{prefix}\" if you mean \
                 the whole network, \"{address}\" for one address"
            ));
        }
        match (base, base.to_canonical()) {
            (IpAddr::V6(_), IpAddr::V4(base)) => match prefix.checked_sub(96) {
                Some(prefix) => Ok(Self {
                    base: IpAddr::V4(base),
                    prefix,
                }),
                None => Err(wrong("IPv4-mapped, but shorter than 96 bits")),
            },
            _ => Ok(Self { base, prefix }),
        }
    }
}

fn mask4(address: Ipv4Addr, prefix: u8) -> Ipv4Addr {
    let mask = u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0);
    Ipv4Addr::from_bits(address.to_bits() & mask)
}

fn mask6(address: Ipv6Addr, prefix: u8) -> Ipv6Addr {
    let mask = u128::MAX.checked_shl(128 - u32::from(prefix)).unwrap_or(0);
    Ipv6Addr::from_bits(address.to_bits() & mask)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_in_or_out() {
        let check = |network: &str, address: &str, expected: bool| {
            let network: Network = network.parse().unwrap();
            let address: IpAddr = address.parse().unwrap();
            assert_eq!(network.contains(address), expected, "{network} {address}");
        };
        check("10.1.0.0/16", "10.1.255.255", true);
        check("10.1.0.0/16", "10.2.0.0", false);
        check("10.1.0.0/16", "::ffff:10.1.2.3", true);
        check("10.1.0.0/16", "::10.1.2.3", false);
        check("10.1.2.3", "10.1.2.3", true);
        check("10.1.2.3", "10.1.2.4", false);
        check("0.0.0.0/0", "255.1.2.3", true);
        check("0.0.0.0/0", "fe80::1", false);
        check("128.0.0.0/1", "127.255.255.255", false);
        check("::/0", "fe80::1", true);
        check("::/0", "10.0.0.1", false);
        check("::/0", "::ffff:10.0.0.1", false);
        check("fd00::/8", "fdff::1", true);
        check("fd00::/8", "fe80::1", false);
        check("2001:db8::1", "2001:db8::1", true);
        check("2001:db8::1", "2001:db8::2", false);
        check("::ffff:10.1.0.0/112", "10.1.2.3", true);
        check("::ffff:10.1.0.0/112", "10.2.2.3", false);
        check("::ffff:0:0/96", "8.8.8.8", true);
    }

    #[test]
    fn what_is_no_prefix_is_refused_with_an_example() {
        for text in [
            "",
            "/",
            "10.1.0.0/",
            "10.1.0.0/33",
            "10.1.0.0/+8",
            "10.1/16",
            "10.1.2.3/16",
            "::/129",
            "::1/64",
            "host/8",
            "10.1.0.0/16/16",
            "10.1.0.0 /16",
            "fe80::1%eth0",
            "10.1.0.0/256",
        ] {
            let error = text.parse::<Network>().expect_err(text);
            assert!(error.contains("write"), "{error}");
        }
    }

    #[test]
    fn prints_as_it_is_read() {
        for text in ["10.1.0.0/16", "fd00::/8", "0.0.0.0/0", "10.1.2.3/32"] {
            assert_eq!(text.parse::<Network>().unwrap().to_string(), text);
        }
    }
}
