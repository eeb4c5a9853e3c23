//! Raw sockets with deadlines: what a hostile peer is made of.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use lsl_core::{Outlet, local_clock};

use crate::lab::SOON;

/// A connection to an outlet's data port.
pub(super) struct Peer {
    stream: TcpStream,
}

/// What an outlet sent before it ended the connection.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Ending {
    pub(super) bytes: Vec<u8>,
}

impl Peer {
    pub(super) fn connect(outlet: &Outlet) -> Self {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, outlet.info().v4_data_port()));
        let stream = TcpStream::connect_timeout(&address, SOON).expect("connects");
        stream.set_read_timeout(Some(SOON)).expect("socket option");
        stream.set_write_timeout(Some(SOON)).expect("socket option");
        Self { stream }
    }

    /// Sends; that the other side has closed meanwhile is its right.
    pub(super) fn send(&mut self, bytes: &[u8]) {
        if let Err(error) = self.stream.write_all(bytes) {
            assert!(is_close(error.kind()), "{error}");
        }
    }

    /// Sends nothing more, but still reads.
    pub(super) fn half_close(&mut self) {
        // Fails only if the other side is gone already.
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    /// Reads at least so many bytes.
    pub(super) fn receive(&mut self, bytes: usize) -> Vec<u8> {
        let mut received = vec![0; bytes];
        self.stream.read_exact(&mut received).expect("bytes");
        received
    }

    /// Waits until the outlet ends the connection.
    pub(super) fn ending(mut self) -> Ending {
        let mut bytes = Vec::new();
        if let Err(error) = self.stream.read_to_end(&mut bytes) {
            assert!(is_close(error.kind()), "not closed: {error}");
        }
        Ending { bytes }
    }
}

/// A reset is a close: the kernel sends it when bytes were left unread.
fn is_close(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::ConnectionAborted
    )
}

/// A socket that sends datagrams to an outlet's service port.
pub(super) struct Stranger {
    socket: UdpSocket,
}

impl Stranger {
    pub(super) fn of(outlet: &Outlet) -> Self {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("binds");
        let port = outlet.info().v4_service_port();
        socket
            .connect((Ipv4Addr::LOCALHOST, port))
            .expect("connects");
        Self { socket }
    }

    pub(super) fn port(&self) -> u16 {
        self.socket.local_addr().expect("bound").port()
    }

    /// A full socket or an ICMP answer is no failure of the test.
    pub(super) fn send(&self, datagram: &[u8]) {
        let _ = self.socket.send(datagram);
    }

    /// Sends until an answer comes for which `wanted` holds; gives the seconds it took.
    pub(super) fn ask(&self, datagram: &[u8], wanted: impl Fn(&[u8]) -> bool) -> f64 {
        let started = local_clock();
        let mut buffer = vec![0; 65_536];
        self.socket
            .set_read_timeout(Some(Duration::from_millis(500)))
            .expect("socket option");
        while local_clock() - started < SOON.as_secs_f64() {
            self.send(datagram);
            while let Ok(length) = self.socket.recv(&mut buffer) {
                if wanted(&buffer[..length]) {
                    return local_clock() - started;
                }
            }
        }
        panic!("no answer to {:?}", String::from_utf8_lossy(datagram));
    }
}
