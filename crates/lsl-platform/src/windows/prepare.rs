//! What Windows' sockets need and those of Unix do not.

use std::ffi::c_void;
use std::io;
use std::net::{IpAddr, UdpSocket};
use std::os::windows::io::AsRawSocket;
use std::ptr::null_mut;
use std::sync::LazyLock;

use windows_sys::Win32::Networking::WinSock::{
    IP_UNICAST_IF, IPPROTO_IP, IPPROTO_IPV6, IPV6_UNICAST_IF, SIO_TCP_INITIAL_RTO,
    SIO_UDP_CONNRESET, SIO_UDP_NETRESET, SO_EXCLUSIVEADDRUSE, SOL_SOCKET,
    TCP_INITIAL_RTO_PARAMETERS, WSAEACCES, WSAEADDRINUSE, WSAECONNRESET, WSAEHOSTUNREACH,
    WSAEMSGSIZE, WSAENETRESET, WSAENETUNREACH, WSAIoctl, setsockopt,
};

use windows_sys::Win32::System::LibraryLoader::{GetModuleHandleA, GetProcAddress};

use super::AsSocket;

/// Whether the groups of IPv4 are joined by the address of an interface, and not by its index.
pub const JOINS_BY_ADDRESS: bool = true;

/// Returns whether a thread that ends may take along what it asked of sockets for others. Windows keeps that for
/// a completion port; Wine 8.0 forgets it when the answer comes while the thread ends: every seventh outlet of
/// such threads accepted nobody.
#[expect(unsafe_code, reason = "std looks into no module")]
pub fn requests_end_with_threads() -> bool {
    static IS_WINE: LazyLock<bool> = LazyLock::new(|| {
        // SAFETY: the name ends with a zero.
        let system = unsafe { GetModuleHandleA(c"ntdll.dll".as_ptr().cast()) };
        // SAFETY: this module is in every process and stays there; the name ends with a zero.
        unsafe { GetProcAddress(system, c"wine_get_version".as_ptr().cast()) }.is_some()
    });
    *IS_WINE
}

/// Returns whether an error of a receive is about one datagram alone, so that the next one can be received
/// at once: it was longer than the buffer, or one that was sent found nobody.
pub fn is_noise(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(WSAEMSGSIZE | WSAECONNRESET | WSAENETRESET | WSAENETUNREACH | WSAEHOSTUNREACH)
    )
}

/// Returns whether a port could not be bound because it belongs to others. "Permission denied" is said of
/// ports that the system reserves, and of those that another program has for itself.
pub fn is_taken(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(WSAEADDRINUSE | WSAEACCES))
        || error.kind() == io::ErrorKind::AddrInUse
}

/// Prepares a UDP socket: that its datagrams found nobody is no error of a receive, as far as the system
/// can be told.
pub fn prepare_udp(socket: impl AsSocket) {
    control(&socket, SIO_UDP_CONNRESET, &0_i32);
    control(&socket, SIO_UDP_NETRESET, &0_i32);
}

/// Prepares a socket that is to be bound: no other program can bind its port then.
#[expect(unsafe_code, reason = "neither std nor rustix knows the option")]
pub fn prepare_bind(socket: impl AsSocket) {
    let on = 1_i32;
    let (socket, at) = (number(&socket), (&raw const on).cast());
    // SAFETY: the socket is open, and the system reads one number. It fails for bound sockets only.
    unsafe { setsockopt(socket, SOL_SOCKET, SO_EXCLUSIVEADDRUSE, at, 4) };
}

/// Prepares a socket that is to listen at a port that people know, as [`prepare_bind`] does: connections of a program
/// that ended keep no port taken.
pub fn prepare_known_port(socket: impl AsSocket) {
    prepare_bind(socket);
}

/// Binds a socket to an interface, by its index: what it sends leaves there, whatever the routes say. Before the
/// socket is connected.
///
/// # Errors
/// Those of `setsockopt`.
#[expect(unsafe_code, reason = "neither std nor rustix knows the option")]
pub fn bind_device(socket: impl AsSocket, index: u32, is_v4: bool) -> io::Result<()> {
    let (level, option, index) = if is_v4 {
        (IPPROTO_IP, IP_UNICAST_IF, index.to_be())
    } else {
        (IPPROTO_IPV6, IPV6_UNICAST_IF, index)
    };
    let (socket, at) = (number(&socket), (&raw const index).cast());
    // SAFETY: the socket is open, and the system reads one number.
    match unsafe { setsockopt(socket, level, option, at, 4) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Prepares a socket that is to be connected: a closed port of this host refuses at once. Windows would try
/// for two seconds.
pub fn prepare_connect(socket: impl AsSocket, peer: IpAddr) {
    // Only addresses of this host can be bound.
    if peer.is_loopback() || UdpSocket::bind((peer, 0)).is_ok() {
        let once = TCP_INITIAL_RTO_PARAMETERS {
            Rtt: u16::MAX,
            MaxSynRetransmissions: 0xFE,
        };
        control(&socket, SIO_TCP_INITIAL_RTO, &once);
    }
}

/// Sets what no option of sockets sets. Older systems, and Wine, know less of it.
#[expect(unsafe_code, reason = "neither std nor rustix controls sockets")]
fn control<T>(socket: &impl AsSocket, code: u32, value: &T) {
    let bytes = u32::try_from(size_of::<T>()).unwrap_or(0);
    let value: *const c_void = (&raw const *value).cast();
    let mut returned = 0;
    // SAFETY: the socket is open, the system reads one value of this size, has nothing to write, and is done
    // when it returns.
    unsafe {
        WSAIoctl(
            number(socket),
            code,
            value,
            bytes,
            null_mut(),
            0,
            &raw mut returned,
            null_mut(),
            None,
        )
    };
}

#[expect(clippy::cast_possible_truncation, reason = "both are a pointer wide")]
fn number(socket: &impl AsSocket) -> usize {
    socket.as_socket().as_raw_socket() as usize
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn a_datagram_that_is_too_long_is_noise_and_the_next_one_arrives() {
        let (one, other) = (
            UdpSocket::bind("127.0.0.1:0"),
            UdpSocket::bind("127.0.0.1:0"),
        );
        let (one, other) = (one.unwrap(), other.unwrap());
        prepare_udp(&other);
        let to = other.local_addr().unwrap();
        one.send_to(&[1; 300], to).unwrap();
        one.send_to(&[2; 3], to).unwrap();
        let mut buffer = [0; 256];
        assert!(is_noise(&other.recv(&mut buffer).unwrap_err()));
        assert_eq!(other.recv(&mut buffer).unwrap(), 3);
        assert!(!is_noise(&io::ErrorKind::WouldBlock.into()));
    }

    #[test]
    fn a_port_of_another_is_taken() {
        let first = TcpListener::bind("127.0.0.1:0").unwrap();
        let taken = TcpListener::bind(first.local_addr().unwrap()).unwrap_err();
        assert!(is_taken(&taken), "{taken}");
        for (code, expected) in [(10048, true), (10013, true), (10049, false)] {
            assert_eq!(is_taken(&io::Error::from_raw_os_error(code)), expected);
        }
        let stream = TcpStream::connect(first.local_addr().unwrap()).unwrap();
        prepare_connect(&stream, first.local_addr().unwrap().ip());
        prepare_bind(&stream);
    }
}
