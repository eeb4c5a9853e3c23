//! Sending and receiving without blocking and without SIGPIPE, on any thread; receive buffers beyond
//! the system's limit.
//!
//! `write` and `writev` raise SIGPIPE in a host whose C runtime left it at its default; `send` can be
//! told not to.

#[cfg_attr(windows, path = "windows/prepare.rs")]
mod prepare;

use std::io;
#[cfg(unix)]
pub use std::os::fd::AsFd as AsSocket;
#[cfg(windows)]
pub use std::os::windows::io::AsSocket;

pub use self::prepare::{
    JOINS_BY_ADDRESS, bind_device, is_noise, is_taken, prepare_bind, prepare_connect,
    prepare_known_port, prepare_udp, requests_end_with_threads,
};
use rustix::net::{RecvFlags, SendFlags, recv, send};

/// Flags of a send that neither waits nor raises a signal.
#[cfg(all(unix, not(target_vendor = "apple")))]
const SEND: SendFlags = SendFlags::DONTWAIT.union(SendFlags::NOSIGNAL);
/// SIGPIPE is switched off at the socket: see [`prepare`].
#[cfg(target_vendor = "apple")]
const SEND: SendFlags = SendFlags::DONTWAIT;
/// There is no SIGPIPE, and non-blocking is a property of the socket.
#[cfg(windows)]
const SEND: SendFlags = SendFlags::empty();

#[cfg(unix)]
const RECEIVE: RecvFlags = RecvFlags::DONTWAIT;
#[cfg(windows)]
const RECEIVE: RecvFlags = RecvFlags::empty();

/// Prepares a stream socket for the functions here, where flags of a call do not suffice. On Apple's systems
/// it switches SIGPIPE off. On Windows the socket must be non-blocking already, as those of a runtime are.
///
/// # Errors
/// Those of `setsockopt(2)`.
pub fn prepare(socket: impl AsSocket) -> io::Result<()> {
    #[cfg(target_vendor = "apple")]
    rustix::net::sockopt::set_socket_nosigpipe(&socket, true)?;
    let _ = socket;
    Ok(())
}

/// Sends the bytes that fit into the socket's buffer now. Returns their number.
///
/// # Errors
/// `WouldBlock` if nothing fits, else those of `send(2)`. A closed peer is an error, never a signal. An
/// interrupting signal is not an error: the call is repeated.
pub fn send_nonblocking(socket: impl AsSocket, bytes: &[u8]) -> io::Result<usize> {
    rustix::io::retry_on_intr(|| send(&socket, bytes, SEND)).map_err(io::Error::from)
}

/// Gives the socket a receive buffer of this size, also beyond `net.core.rmem_max`.
///
/// # Errors
/// `PermissionDenied` without CAP_NET_ADMIN, else those of `setsockopt(2)`.
#[cfg(target_os = "linux")]
pub fn force_receive_buffer(socket: impl AsSocket, bytes: usize) -> io::Result<()> {
    rustix::net::sockopt::set_socket_recv_buffer_size_force(socket, bytes).map_err(io::Error::from)
}

/// Fails: no way beyond the system's limit is known here.
///
/// # Errors
/// Always `Unsupported`.
#[cfg(not(target_os = "linux"))]
pub fn force_receive_buffer(_socket: impl AsSocket, _bytes: usize) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Returns how many datagrams the socket lost since it was opened because it had no room for them.
///
/// # Errors
/// Those of `getsockopt(2)`; on other systems than Linux always `Unsupported`.
#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "rustix does not know the option")]
pub fn drops(socket: impl AsSocket) -> io::Result<u64> {
    use std::os::fd::AsRawFd;

    let mut numbers = [0_u32; libc::SK_MEMINFO_DROPS as usize + 1];
    let mut length = libc::socklen_t::try_from(size_of_val(&numbers)).unwrap_or(0);
    let descriptor = socket.as_fd().as_raw_fd();
    let place = numbers.as_mut_ptr().cast();
    // SAFETY: an open descriptor, and as much room as the length says.
    let failed = unsafe {
        libc::getsockopt(
            descriptor,
            libc::SOL_SOCKET,
            libc::SO_MEMINFO,
            place,
            &raw mut length,
        )
    };
    if failed != 0 {
        return Err(io::Error::last_os_error());
    }
    let drops = numbers.get(libc::SK_MEMINFO_DROPS as usize);
    Ok(drops.copied().unwrap_or(0).into())
}

/// Fails: no other system tells.
///
/// # Errors
/// Always `Unsupported`.
#[cfg(not(target_os = "linux"))]
pub fn drops(_socket: impl AsSocket) -> io::Result<u64> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Lets datagrams over IPv4 leave whole or not at all, whatever is known of the path: for measuring it.
///
/// # Errors
/// Those of `setsockopt(2)`; on other systems than Linux always `Unsupported`.
pub fn forbid_fragments(socket: impl AsSocket) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    {
        use rustix::net::sockopt::{Ipv4PathMtuDiscovery, set_ip_mtu_discover};
        set_ip_mtu_discover(socket, Ipv4PathMtuDiscovery::PROBE).map_err(io::Error::from)
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = socket;
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// Receives the bytes that are there, up to the length of `buffer`. Returns their number; 0 is the end of
/// the stream.
///
/// # Errors
/// `WouldBlock` if nothing is there, else those of `recv(2)`. An interrupting signal is not an error: the
/// call is repeated.
pub fn receive_nonblocking(socket: impl AsSocket, buffer: &mut [u8]) -> io::Result<usize> {
    let receive = || recv(&socket, &mut *buffer, RECEIVE);
    let (received, _) = rustix::io::retry_on_intr(receive)?;
    Ok(received)
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn sends_until_full_and_reports_a_closed_peer() {
        let (near, mut far) = UnixStream::pair().unwrap();
        assert_eq!(send_nonblocking(&near, b"abc").unwrap(), 3);
        let mut received = [0; 3];
        far.read_exact(&mut received).unwrap();
        assert_eq!(&received, b"abc");
        let full = loop {
            if let Err(error) = send_nonblocking(&near, &[0; 4096]) {
                break error;
            }
        };
        assert_eq!(full.kind(), io::ErrorKind::WouldBlock);
        drop(far);
        let closed = send_nonblocking(&near, b"x").unwrap_err();
        assert_eq!(closed.kind(), io::ErrorKind::BrokenPipe);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_socket_knows_what_it_lost() {
        let receiver = std::net::UdpSocket::bind(("127.0.0.1", 0)).unwrap();
        rustix::net::sockopt::set_socket_recv_buffer_size(&receiver, 4096).unwrap();
        assert_eq!(drops(&receiver).unwrap(), 0);
        let to = receiver.local_addr().unwrap();
        for _ in 0..1000 {
            receiver.send_to(&[0; 100], to).unwrap();
        }
        assert!((900..1000).contains(&drops(&receiver).unwrap()));
    }

    #[test]
    fn receives_what_is_there() {
        let (near, far) = UnixStream::pair().unwrap();
        let mut buffer = [0; 4];
        let empty = receive_nonblocking(&far, &mut buffer).unwrap_err();
        assert_eq!(empty.kind(), io::ErrorKind::WouldBlock);
        send_nonblocking(&near, b"abcde").unwrap();
        assert_eq!(receive_nonblocking(&far, &mut buffer).unwrap(), 4);
        assert_eq!(&buffer, b"abcd");
        drop(near);
        assert_eq!(receive_nonblocking(&far, &mut buffer).unwrap(), 1);
        assert_eq!(receive_nonblocking(&far, &mut buffer).unwrap(), 0);
    }
}
