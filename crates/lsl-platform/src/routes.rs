//! Ways out of this host: the address and the interface that the system takes towards another one, and the routers
//! in between.
//!
//! Asked by connecting a UDP socket, which sends nothing: rules of routing, such as those of a VPN, decide as they do
//! for a connection.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use crate::interfaces::Interface;

/// Returns the address from which this host sends to `to`. A link-local one has the scope of its interface.
///
/// # Errors
/// `NetworkUnreachable` where no route leads there, else those of `socket(2)` and `connect(2)`.
pub fn source_towards(to: SocketAddr) -> io::Result<SocketAddr> {
    let any: IpAddr = if to.is_ipv4() {
        Ipv4Addr::UNSPECIFIED.into()
    } else {
        Ipv6Addr::UNSPECIFIED.into()
    };
    let socket = UdpSocket::bind((any, 0))?;
    let mut to = to;
    if to.port() == 0 {
        // Some systems connect to no such port.
        to.set_port(9);
    }
    socket.connect(to)?;
    socket.local_addr()
}

/// Returns the interface by which this host sends to `to`; `None` where the address of none says so.
///
/// # Errors
/// Those of [`source_towards`].
pub fn leaving(to: SocketAddr, interfaces: &[Interface]) -> io::Result<Option<&Interface>> {
    let source = source_towards(to)?;
    let scope = match source {
        SocketAddr::V6(source) => source.scope_id(),
        SocketAddr::V4(_) => 0,
    };
    let mut all = interfaces.iter();
    Ok(all.find(|it| it.address == source.ip() && (scope == 0 || scope == it.index)))
}

/// Returns how long packets to an address of IPv4 may be, as far as the system has been told.
///
/// # Errors
/// Those of [`source_towards`]; on other systems than Linux always `Unsupported`.
pub fn path_mtu(to: IpAddr) -> io::Result<u32> {
    #[cfg(target_os = "linux")]
    {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        socket.connect((to, 9))?;
        rustix::net::sockopt::ip_mtu(&socket).map_err(io::Error::from)
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = to;
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// A router to which this host sends what has no other route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gateway {
    /// Name of the interface that leads to it.
    pub interface: String,
    /// Its address there.
    pub address: IpAddr,
}

/// Lists the default gateways, those of IPv4 first.
///
/// # Errors
/// Those of reading `/proc/net/route`; on other systems than Linux always `Unsupported`.
pub fn gateways() -> io::Result<Vec<Gateway>> {
    if cfg!(not(target_os = "linux")) {
        return Err(io::ErrorKind::Unsupported.into());
    }
    let mut all = gateways_v4(&std::fs::read_to_string("/proc/net/route")?);
    let v6 = std::fs::read_to_string("/proc/net/ipv6_route").unwrap_or_default();
    all.extend(gateways_v6(&v6));
    Ok(all)
}

/// Reads `/proc/net/route`. Lines that are none are left out, here and below.
fn gateways_v4(text: &str) -> Vec<Gateway> {
    let read = |line: &str| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let (interface, to, gateway) = (fields.first()?, fields.get(1)?, fields.get(2)?);
        let mask = fields.get(7)?;
        // As the machine keeps them.
        let gateway = u32::from_str_radix(gateway, 16).ok()?.to_ne_bytes();
        let is_default = [to, mask].iter().all(|it| **it == "00000000");
        (is_default && gateway != [0; 4]).then(|| Gateway {
            interface: (*interface).to_owned(),
            address: Ipv4Addr::from(gateway).into(),
        })
    };
    text.lines().filter_map(read).collect()
}

fn gateways_v6(text: &str) -> Vec<Gateway> {
    let read = |line: &str| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let (to, length, gateway) = (fields.first()?, fields.get(1)?, fields.get(4)?);
        let gateway = u128::from_str_radix(gateway, 16).ok()?;
        let is_default = *length == "00" && u128::from_str_radix(to, 16).ok()? == 0;
        (is_default && gateway != 0).then(|| Gateway {
            interface: fields.get(9).copied().unwrap_or_default().to_owned(),
            address: Ipv6Addr::from(gateway).into(),
        })
    };
    text.lines().filter_map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interfaces::{Kind, interfaces};

    #[test]
    fn this_host_is_reached_by_loopback() {
        let to = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        assert_eq!(source_towards(to).unwrap().ip(), to.ip());
        let all = interfaces().unwrap();
        let kind = leaving(to, &all).unwrap().unwrap().kind;
        assert_eq!(kind, Kind::Loopback);
        if cfg!(target_os = "linux") {
            assert!(path_mtu(to.ip()).unwrap() > 1500);
        }
    }

    #[test]
    fn default_routes_name_routers() {
        let v4 = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n\
            tun0\t00000000\t00000000\t0001\t0\t0\t0\t00000000\t0\t0\t0\n\
            e0\t00000000\tFE00320A\t0003\t0\t0\t100\t00000000\t0\t0\t0\n\
            e0\t0000320A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\nbroken\n";
        let v6 = "00000000000000000000000000000000 00 00000000000000000000000000000000 00 fe800000000000000000000000000001 00000400 00000001 00000000 00000003       e1\n\
            00000000000000000000000000000000 00 00000000000000000000000000000000 00 00000000000000000000000000000000 ffffffff 00000001 00000000 00200200       lo\n";
        let gateway = |interface: &str, address: &str| Gateway {
            interface: interface.into(),
            address: address.parse().unwrap(),
        };
        if cfg!(target_endian = "little") {
            assert_eq!(gateways_v4(v4), [gateway("e0", "10.50.0.254")]);
        }
        assert_eq!(gateways_v6(v6), [gateway("e1", "fe80::1")]);
    }
}
