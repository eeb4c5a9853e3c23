//! Sending and receiving without blocking and without SIGPIPE, on any thread; receive buffers beyond
//! the system's limit.
//!
//! `write` and `writev` raise SIGPIPE in a host whose C runtime left it at its default; `send` can be
//! told not to.

use std::io;
use std::os::fd::AsFd;

use rustix::net::sockopt::set_socket_recv_buffer_size_force;
use rustix::net::{RecvFlags, SendFlags, recv, send};

/// Sends what fits into the socket's buffer now; the number of bytes sent.
///
/// # Errors
/// `WouldBlock` if nothing fits, else what `send(2)` reports. A closed peer is an error, never a
/// signal. An interrupting signal is not an error: the call is repeated.
pub fn send_nonblocking(socket: impl AsFd, bytes: &[u8]) -> io::Result<usize> {
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    rustix::io::retry_on_intr(|| send(&socket, bytes, flags)).map_err(io::Error::from)
}

/// Gives the socket a receive buffer of this size, also beyond `net.core.rmem_max`.
///
/// # Errors
/// `PermissionDenied` without CAP_NET_ADMIN, else what `setsockopt(2)` reports.
pub fn force_receive_buffer(socket: impl AsFd, bytes: usize) -> io::Result<()> {
    set_socket_recv_buffer_size_force(socket, bytes).map_err(io::Error::from)
}

/// Takes what is there, up to the length of `buffer`; 0 is the end of the stream.
///
/// # Errors
/// `WouldBlock` if nothing is there, else what `recv(2)` reports. An interrupting signal is not an
/// error: the call is repeated.
pub fn receive_nonblocking(socket: impl AsFd, buffer: &mut [u8]) -> io::Result<usize> {
    let receive = || recv(&socket, &mut *buffer, RecvFlags::DONTWAIT);
    let (received, _) = rustix::io::retry_on_intr(receive)?;
    Ok(received)
}

#[cfg(test)]
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
