//! UDP sockets of the doctor: they block for a moment, and say why something was not sent.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use socket2::{Domain, InterfaceIndexOrAddress, Protocol, Socket, Type};

use crate::observe::{Interface, PortsInUse, SendError};

/// Opens a socket at a port of all addresses of a family.
pub(super) fn open(is_v4: bool, port: u16, is_shared: bool) -> io::Result<Socket> {
    let any: IpAddr = if is_v4 {
        Ipv4Addr::UNSPECIFIED.into()
    } else {
        Ipv6Addr::UNSPECIFIED.into()
    };
    open_at(SocketAddr::new(any, port), is_shared)
}

/// Opens a socket at an address, which may be a group's.
pub(super) fn open_at(address: SocketAddr, is_shared: bool) -> io::Result<Socket> {
    let domain = Domain::for_address(address);
    let socket = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP))?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    if is_shared {
        socket.set_reuse_address(true)?;
    }
    socket.bind(&address.into())?;
    // A wish: hundreds of streams answer at once.
    let _ = socket.set_recv_buffer_size(4 << 20);
    socket.set_read_timeout(Some(NAP))?;
    Ok(socket)
}

/// Opens a socket at the first free port of the range, as searches do, or at any.
pub(super) fn open_in_range(is_v4: bool, ports: PortsInUse) -> io::Result<Socket> {
    let range = ports.base..=ports.last();
    let first = range
        .into_iter()
        .find_map(|port| open(is_v4, port, false).ok());
    first.map_or_else(|| open(is_v4, 0, false), Ok)
}

/// Makes datagrams to groups leave by an interface, over at most `hops` routers; 0 stays on this machine.
pub(super) fn leave_by(
    socket: &Socket,
    is_v4: bool,
    interface: &Interface,
    hops: u32,
) -> io::Result<()> {
    if is_v4 {
        let address = interface
            .addresses
            .iter()
            .find_map(|(address, _)| match address {
                IpAddr::V4(address) => Some(*address),
                IpAddr::V6(_) => None,
            });
        let address = address.ok_or(io::ErrorKind::AddrNotAvailable)?;
        socket.set_multicast_if_v4(&address)?;
        socket.set_multicast_loop_v4(true)?;
        socket.set_multicast_ttl_v4(hops)
    } else {
        socket.set_multicast_if_v6(interface.index)?;
        socket.set_multicast_loop_v6(true)?;
        socket.set_multicast_hops_v6(hops)
    }
}

/// Joins a group on an interface.
pub(super) fn join(socket: &Socket, group: IpAddr, interface: &Interface) -> io::Result<()> {
    match group {
        IpAddr::V4(group) => {
            socket.join_multicast_v4_n(&group, &InterfaceIndexOrAddress::Index(interface.index))
        }
        IpAddr::V6(group) => socket.join_multicast_v6(&group, interface.index),
    }
}

/// Returns why a datagram was not sent.
pub(super) fn why(error: &io::Error) -> SendError {
    match error.kind() {
        io::ErrorKind::PermissionDenied => SendError::Refused,
        io::ErrorKind::NetworkUnreachable
        | io::ErrorKind::HostUnreachable
        | io::ErrorKind::AddrNotAvailable => SendError::Unreachable,
        _ => SendError::Other,
    }
}

/// Hands every datagram that is there to `take`, after waiting for one for a moment.
pub(super) fn drain(socket: &UdpSocket, mut take: impl FnMut(&[u8], SocketAddr)) {
    let mut buffer = vec![0; 65_536];
    let _ = socket.set_nonblocking(false);
    // Bounded: who sends without end does not keep us.
    for _ in 0..MOST_AT_ONCE {
        let Ok((length, from)) = socket.recv_from(&mut buffer) else {
            break;
        };
        take(buffer.get(..length).unwrap_or_default(), from);
        let _ = socket.set_nonblocking(true);
    }
    let _ = socket.set_nonblocking(false);
}

/// How long a socket without datagrams is waited for.
const NAP: Duration = Duration::from_millis(10);
const MOST_AT_ONCE: usize = 4096;
