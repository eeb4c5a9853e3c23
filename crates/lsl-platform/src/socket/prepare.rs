//! What Windows' sockets need and those of Unix do not.

use std::io;
use std::net::IpAddr;

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

/// Prepares a socket that is to be connected: a closed port of this host refuses at once, as on Unix.
pub fn prepare_connect(_socket: impl AsSocket, _peer: IpAddr) {}
