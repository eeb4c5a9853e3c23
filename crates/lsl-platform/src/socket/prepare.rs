//! What Windows' sockets need and those of Unix do not.

use std::io;
use std::net::IpAddr;
use std::num::NonZeroU32;

use super::AsSocket;

/// Whether the groups of IPv4 are joined by the address of an interface, and not by its index.
pub const JOINS_BY_ADDRESS: bool = false;

/// Returns whether a thread that ends may take along what it asked of sockets for others.
pub fn requests_end_with_threads() -> bool {
    false
}

/// Returns whether an error of a receive is about one datagram alone, so that the next one can be received
/// at once. Unix has no such errors.
pub fn is_noise(_error: &io::Error) -> bool {
    false
}

/// Returns whether a port could not be bound because it belongs to others.
pub fn is_taken(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::AddrInUse
}

/// Prepares a UDP socket: what others answer to its datagrams is no error of a receive. On Unix it is none.
pub fn prepare_udp(_socket: impl AsSocket) {}

/// Prepares a socket that is to be bound: no other program can bind its port then. On Unix none can.
pub fn prepare_bind(_socket: impl AsSocket) {}

/// Prepares a socket that is to listen at a port that people know: connections of a program that ended do not keep
/// it taken, a program that listens there does.
pub fn prepare_known_port(socket: impl AsSocket) {
    // At worst the port is free a minute later.
    let _ = rustix::net::sockopt::set_socket_reuseaddr(socket, true);
}

/// Binds a socket to an interface, by its index: what it sends leaves there, whatever the routes say. A filter may
/// still forbid it. Before the socket is connected.
///
/// # Errors
/// Those of `setsockopt(2)`: `PermissionDenied` on Linux before 5.7 without CAP_NET_RAW.
pub fn bind_device(socket: impl AsSocket, index: u32, is_v4: bool) -> io::Result<()> {
    let socket = socket2::SockRef::from(&socket);
    let index = Some(NonZeroU32::new(index).ok_or(io::ErrorKind::InvalidInput)?);
    if is_v4 {
        socket.bind_device_by_index_v4(index)
    } else {
        socket.bind_device_by_index_v6(index)
    }
}

/// Prepares a socket that is to be connected: a closed port of this host refuses at once, as on Unix.
pub fn prepare_connect(_socket: impl AsSocket, _peer: IpAddr) {}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, UdpSocket};

    use super::*;
    use crate::interfaces::{Kind, interfaces};

    #[test]
    fn a_socket_of_loopback_reaches_nobody_else() {
        let all = interfaces().unwrap();
        let index = all
            .iter()
            .find(|it| it.kind == Kind::Loopback)
            .unwrap()
            .index;
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
        assert!(bind_device(&socket, 0, true).is_err());
        bind_device(&socket, index, true).unwrap();
        socket.connect((Ipv4Addr::LOCALHOST, 9)).unwrap();
        assert!(socket.local_addr().unwrap().ip().is_loopback());
    }
}
