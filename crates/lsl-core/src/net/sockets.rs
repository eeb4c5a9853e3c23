//! Every socket of the crate is made here; nobody else sets a socket option. Spec: lsl-protocol §12.1.
//!
//! IPv6 sockets are IPv6 only, unlike liblsl's dual-stack ones: so both families of an outlet can
//! have the same port number, and an IPv4 peer never shows up as `::ffff:a.b.c.d`.
//! Sockets come out non-blocking and as std types; `into_tokio_*` registers them with our reactor.

use std::cell::Cell;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket};
use std::time::Duration;

use lsl_platform::socket::{self, AsSocket, force_receive_buffer};
use lsl_platform::{arrival, descriptors};
use lsl_proto::config::Tuning;
use lsl_proto::config::ports::PortSearch;
use socket2::{Domain, InterfaceIndexOrAddress, Protocol, SockRef, Socket, TcpKeepalive, Type};
use tokio::io::Interest;
use tokio::net::TcpSocket;

use crate::byte_stream::ByteStream;
use crate::net::runtime;
use crate::{Error, Result};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Family {
    V4,
    V6,
}

impl Family {
    /// The family of an address.
    pub(crate) fn of(address: IpAddr) -> Self {
        if address.is_ipv4() {
            Self::V4
        } else {
            Self::V6
        }
    }

    /// Returns the loopback address, 127.0.0.1 or ::1.
    pub(crate) fn loopback(self) -> IpAddr {
        match self {
            Self::V4 => Ipv4Addr::LOCALHOST.into(),
            Self::V6 => Ipv6Addr::LOCALHOST.into(),
        }
    }

    /// Returns the unspecified address, 0.0.0.0 or ::.
    pub(crate) fn wildcard(self) -> IpAddr {
        match self {
            Self::V4 => Ipv4Addr::UNSPECIFIED.into(),
            Self::V6 => Ipv6Addr::UNSPECIFIED.into(),
        }
    }

    fn domain(self) -> Domain {
        match self {
            Self::V4 => Domain::IPV4,
            Self::V6 => Domain::IPV6,
        }
    }
}

/// A UDP socket for the clock and discovery service, or for the replies to a resolver.
///
/// # Errors
/// What `socket(2)` and `bind(2)` report; see [`PortSearch::bind`].
pub(crate) fn udp_service(address: IpAddr, search: PortSearch) -> io::Result<UdpSocket> {
    let socket = bind(address, search, Type::DGRAM, Protocol::UDP, |_| Ok(()))?;
    prepare_service(&socket);
    Ok(socket.into())
}

/// Makes room for bursts of queries, and lets the kernel stamp what arrives.
fn prepare_service(socket: &Socket) {
    enlarge_receive_buffer(socket);
    // Without stamps a clock probe counts from when it is read.
    let _ = arrival::stamp(socket);
}

/// An unconnected UDP socket on a port that the system chooses, for clock probes.
///
/// # Errors
/// As [`udp_service`].
pub(crate) fn udp_ephemeral(address: IpAddr) -> io::Result<UdpSocket> {
    udp_service(address, PortSearch::ANY)
}

/// Has what a socket sends leave by the interface with this index, if that is possible.
pub(crate) fn bind_device(socket: &UdpSocket, device: u32, family: Family) {
    if let Err(error) = socket::bind_device(socket, device, family == Family::V4) {
        tracing::debug!(device, %error, "cannot bind to an interface");
    }
}

/// The UDP socket that hears multicast queries. Join groups with [`join_multicast`].
///
/// `SO_REUSEADDR` lets every LSL program on the host have one; the system then delivers each
/// multicast datagram to all of them.
///
/// # Errors
/// What `socket(2)` and `bind(2)` report.
pub(crate) fn udp_responder(address: IpAddr, port: u16) -> io::Result<UdpSocket> {
    let socket = open(Family::of(address), Type::DGRAM, Protocol::UDP)?;
    socket.set_reuse_address(true)?;
    socket.bind(&SocketAddr::new(address, port).into())?;
    enlarge_receive_buffer(&socket);
    Ok(socket.into())
}

/// A socket that is never bound and never read: it only holds group memberships, of which Linux
/// allows one socket few (`igmp_max_memberships`, 20). With `IP_MULTICAST_ALL` at its default the
/// responder receives what any socket of the host joined.
///
/// # Errors
/// What `socket(2)` reports.
pub(crate) fn membership_holder(family: Family) -> io::Result<UdpSocket> {
    Ok(open(family, Type::DGRAM, Protocol::UDP)?.into())
}

/// Joins `group` on one interface, which has this address; index 0 lets the system choose.
///
/// # Errors
/// What the system reports: `AddrInUse` for a membership that exists, `ENOBUFS` for one too many.
pub(crate) fn join_multicast(
    socket: &UdpSocket,
    group: IpAddr,
    address: IpAddr,
    index: u32,
) -> io::Result<()> {
    let socket = SockRef::from(socket);
    match (group, address) {
        (IpAddr::V4(group), _) if index == 0 => {
            socket.join_multicast_v4(&group, &Ipv4Addr::UNSPECIFIED)
        }
        (IpAddr::V4(group), IpAddr::V4(address)) if socket::JOINS_BY_ADDRESS => {
            socket.join_multicast_v4(&group, &address)
        }
        (IpAddr::V4(group), _) => {
            socket.join_multicast_v4_n(&group, &InterfaceIndexOrAddress::Index(index))
        }
        (IpAddr::V6(group), _) => socket.join_multicast_v6(&group, index),
    }
}

/// Prepares a resolver's socket for sending to groups and to the broadcast address. `ttl` is the
/// number of routers a multicast query may cross plus one; 0 stays on this host.
///
/// # Errors
/// What `setsockopt(2)` reports. The socket still works for unicast then.
pub(crate) fn prepare_multicast_sender(
    socket: &impl AsSocket,
    family: Family,
    ttl: u8,
) -> io::Result<()> {
    let socket = SockRef::from(socket);
    match family {
        Family::V4 => {
            socket.set_broadcast(true)?;
            // Outlets on this host must hear the query as well.
            socket.set_multicast_loop_v4(true)?;
            socket.set_multicast_ttl_v4(ttl.into())
        }
        Family::V6 => {
            socket.set_multicast_loop_v6(true)?;
            socket.set_multicast_hops_v6(ttl.into())
        }
    }
}

/// Chooses the interface that the next multicast datagrams leave by.
///
/// # Errors
/// What `setsockopt(2)` reports, for example if the interface is gone.
pub(crate) fn select_multicast_interface(
    socket: &impl AsSocket,
    address: IpAddr,
    index: u32,
) -> io::Result<()> {
    match address {
        IpAddr::V4(address) => SockRef::from(socket).set_multicast_if_v4(&address),
        IpAddr::V6(_) => SockRef::from(socket).set_multicast_if_v6(index),
    }
}

/// An outlet's TCP acceptor. No `SO_REUSEADDR`: a port in TIME_WAIT is skipped, as in liblsl.
///
/// # Errors
/// What `socket(2)`, `bind(2)` and `listen(2)` report; see [`PortSearch::bind`].
pub(crate) fn tcp_acceptor(address: IpAddr, search: PortSearch) -> io::Result<TcpListener> {
    // Two sockets may bind one port as long as none listens, so this belongs to the search.
    let listen = |socket: &Socket| socket.listen(TCP_BACKLOG);
    Ok(bind(address, search, Type::STREAM, Protocol::TCP, listen)?.into())
}

/// The TCP acceptor of a port that people know. Connections of a program that ended keep no other from it, as
/// they would for a minute.
///
/// # Errors
/// What `socket(2)`, `bind(2)` and `listen(2)` report.
pub(crate) fn tcp_acceptor_at(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = open(Family::of(address.ip()), Type::STREAM, Protocol::TCP)?;
    socket::prepare_known_port(&socket);
    socket.bind(&address.into())?;
    socket.listen(TCP_BACKLOG)?;
    Ok(socket.into())
}

/// An outlet's TCP acceptor and, where that can be had, a UDP socket on the same port: inlets of liblsl
/// 1.12 send their clock probes there. `shared` is the port at which the context answers anyway.
/// Spec: lsl-protocol §12.1.
///
/// A port of the range, which firewalls let through, is worth more than a UDP socket of its own. The
/// last quarter of the range is left to the shared sockets of other programs, or 24 outlets of one
/// would hide the others from searches by unicast.
///
/// # Errors
/// As [`tcp_acceptor`].
pub(crate) fn outlet_ports(
    address: IpAddr,
    search: PortSearch,
    shared: u16,
) -> io::Result<(TcpListener, Option<UdpSocket>)> {
    let tcp = Binder::new(address, Type::STREAM, Protocol::TCP);
    let udp = Binder::new(address, Type::DGRAM, Protocol::UDP);
    let reserved = search.count - search.count / 4;
    let reserved = search.ports().skip(reserved.into());
    let mut tcp_only: Option<Socket> = None;
    let mut tries = RANDOM_PAIRS;
    let found = search.bind(|port| {
        if port == 0 && tcp_only.is_some() {
            return Ok((tcp_only.take(), None));
        }
        loop {
            let acceptor = tcp.bind(port)?;
            acceptor.listen(TCP_BACKLOG)?;
            let bound = acceptor.local_addr()?.as_socket();
            let bound = bound.map_or(port, |bound| bound.port());
            if bound == shared {
                return Ok((Some(acceptor), None));
            }
            let is_reserved = port != 0 && reserved.clone().any(|reserved| reserved == port);
            if !is_reserved && let Ok(service) = udp.bind(bound) {
                return Ok((Some(acceptor), Some(service)));
            }
            if port != 0 {
                tcp_only.get_or_insert(acceptor);
                return Err(io::ErrorKind::AddrInUse.into());
            }
            tries -= 1;
            if tries == 0 {
                return Ok((Some(acceptor), None));
            }
        }
    });
    let (acceptor, service) = match found {
        Ok((Some(acceptor), service)) => (acceptor, service),
        Ok((None, _)) => return Err(io::ErrorKind::AddrInUse.into()),
        Err(error) => (tcp_only.ok_or(error)?, None),
    };
    if let Some(service) = &service {
        prepare_service(service);
    }
    Ok((acceptor.into(), service.map(Into::into)))
}

/// A socket on the first port at which it can be bound and `finish`ed.
fn bind(
    address: IpAddr,
    search: PortSearch,
    kind: Type,
    protocol: Protocol,
    finish: impl Fn(&Socket) -> io::Result<()>,
) -> io::Result<Socket> {
    let binder = Binder::new(address, kind, protocol);
    search.bind(|port| {
        let socket = binder.bind(port)?;
        finish(&socket).map(|()| socket)
    })
}

/// Binds sockets of one kind to one port after the other.
struct Binder {
    address: IpAddr,
    kind: Type,
    protocol: Protocol,
    /// One that could not be bound may be bound elsewhere: with thousands of outlets the whole range is
    /// taken, and a fresh socket for each of its ports would be most of the work of making one more.
    spare: Cell<Option<Socket>>,
}

impl Binder {
    fn new(address: IpAddr, kind: Type, protocol: Protocol) -> Self {
        Self {
            address,
            kind,
            protocol,
            spare: Cell::new(None),
        }
    }

    fn bind(&self, port: u16) -> io::Result<Socket> {
        let socket = match self.spare.take() {
            Some(socket) => socket,
            None => open(Family::of(self.address), self.kind, self.protocol)
                .inspect(|socket| socket::prepare_bind(socket))?,
        };
        if let Err(error) = socket.bind(&SocketAddr::new(self.address, port).into()) {
            self.spare.set(Some(socket));
            let has_usual_kind = error.kind() == io::ErrorKind::AddrInUse;
            // Windows has a second error for it.
            return Err(if socket::is_taken(&error) && !has_usual_kind {
                io::ErrorKind::AddrInUse.into()
            } else {
                error
            });
        }
        Ok(socket)
    }
}

/// Takes a connection that an outlet accepted, registered with the reactor.
///
/// # Errors
/// Those of the reactor. Options are a wish and never fail.
pub(crate) fn accepted(
    stream: tokio::net::TcpStream,
    peer: SocketAddr,
    tuning: &Tuning,
) -> io::Result<ByteStream> {
    if let Err(error) = prepare_accepted(&stream, tuning) {
        tracing::debug!(%peer, %error, "cannot set socket options");
    }
    let mut stream = ByteStream::tcp(stream)?;
    stream.register()?;
    Ok(stream)
}

fn prepare_accepted(stream: &impl AsSocket, tuning: &Tuning) -> io::Result<()> {
    descriptors::make_room(stream);
    socket::prepare(stream)?;
    let socket = SockRef::from(stream);
    // Sizes are a wish, and 0 leaves the system's default.
    let (send_bytes, receive_bytes) = (
        tuning.send_socket_buffer_bytes as usize,
        tuning.receive_socket_buffer_bytes as usize,
    );
    if send_bytes > 0 {
        let _ = socket.set_send_buffer_size(send_bytes);
    }
    if receive_bytes > 0 {
        let _ = socket.set_recv_buffer_size(receive_bytes);
    }
    socket.set_tcp_keepalive(&KEEPALIVE)?;
    socket.set_tcp_nodelay(true)
}

/// Connects to an outlet within `limit`, by the interface with the index `device` if there is one, with `TCP_NODELAY`
/// set before the first byte. To be awaited on the process runtime only (see `runtime`).
///
/// # Errors
/// [`Error::Timeout`] after `limit`, [`Error::Io`] for a refused or failing connection.
pub(crate) async fn tcp_connect(
    peer: SocketAddr,
    device: Option<u32>,
    limit: Duration,
) -> Result<ByteStream> {
    let connecting = async {
        let socket = open(Family::of(peer.ip()), Type::STREAM, Protocol::TCP)?;
        if let Some(device) = device {
            socket::bind_device(&socket, device, peer.is_ipv4())?;
        }
        socket.set_tcp_nodelay(true)?;
        socket.set_tcp_keepalive(&KEEPALIVE)?;
        socket::prepare_connect(&socket, peer.ip());
        let socket = TcpSocket::from_std_stream(socket.into());
        ByteStream::tcp(socket.connect(peer).await?)
    };
    match tokio::time::timeout(limit, connecting).await {
        Ok(outcome) => {
            outcome.map_err(|source| Error::io(format!("cannot connect to {peer}"), source))
        }
        Err(_) => Err(Error::Timeout {
            operation: "connect",
        }),
    }
}

/// Waits for a datagram and hands it to `take`, with who sent it. The buffer belongs to the thread:
/// hundreds of sockets hold nothing while nothing comes.
///
/// # Errors
/// What `recvfrom(2)` reports.
pub(crate) async fn receive_from<R>(
    socket: &tokio::net::UdpSocket,
    mut take: impl FnMut(&[u8], SocketAddr) -> R,
) -> io::Result<R> {
    let mut read = |buffer: &mut [u8]| {
        let (length, from) = socket.try_recv_from(buffer)?;
        Ok(take(buffer.get(..length).unwrap_or_default(), from))
    };
    receive_by(socket, || with_read_buffer(&mut read)).await
}

/// Waits for a datagram on a connected socket, writes it into `buffer` and returns its length.
///
/// # Errors
/// As [`receive_from`]; after [`io::ErrorKind::ConnectionReset`] the socket may never tell of another datagram.
pub(crate) async fn receive(
    socket: &tokio::net::UdpSocket,
    buffer: &mut [u8],
) -> io::Result<usize> {
    receive_by(socket, || socket.try_recv(buffer)).await
}

/// Calls `read` whenever there may be something to read, until it reads something.
///
/// tokio's own functions would call it for ever where a socket counts as closed and has nothing to read, and keep
/// the thread of the runtime from everything else. Of a connected UDP socket Wine says so once its datagrams found
/// a closed port, and the next one that is sent takes the error away.
async fn receive_by<R>(
    socket: &tokio::net::UdpSocket,
    mut read: impl FnMut() -> io::Result<R>,
) -> io::Result<R> {
    let mut noise_left = MOST_NOISE;
    loop {
        let ready = socket.ready(Interest::READABLE).await?;
        match read() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if ready.is_read_closed() {
                    return Err(io::ErrorKind::ConnectionReset.into());
                }
            }
            Err(error) if socket::is_noise(&error) && noise_left > 0 => noise_left -= 1,
            other => return other,
        }
    }
}

/// Errors about one datagram alone that may follow each other before a pause.
const MOST_NOISE: u32 = 64;

/// Lends the thread's buffer of [`READ_BYTES`].
pub(crate) fn with_read_buffer<R>(read: impl FnOnce(&mut [u8]) -> R) -> R {
    // A thread that is about to end may have no place for it any more.
    let mut buffer = BUFFER.try_with(Cell::take).unwrap_or_default();
    buffer.resize(READ_BYTES, 0);
    let outcome = read(&mut buffer);
    let _ = BUFFER.try_with(|kept| kept.set(buffer));
    outcome
}

thread_local! {
    static BUFFER: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Bytes read at a time, and the largest datagram.
pub(crate) const READ_BYTES: usize = 64 * 1024;

/// Registers a socket with the reactor of the process runtime.
///
/// # Errors
/// [`Error::Io`] if there is no runtime or the reactor refuses the descriptor.
pub(crate) fn into_tokio_udp(socket: UdpSocket) -> Result<tokio::net::UdpSocket> {
    runtime::register(|| tokio::net::UdpSocket::from_std(socket))?
        .map_err(|source| Error::io("UDP socket", source))
}

/// As [`into_tokio_udp`], for an acceptor.
///
/// # Errors
/// As [`into_tokio_udp`].
pub(crate) fn into_tokio_listener(socket: TcpListener) -> Result<tokio::net::TcpListener> {
    runtime::register(|| tokio::net::TcpListener::from_std(socket))?
        .map_err(|source| Error::io("TCP acceptor", source))
}

fn open(family: Family, kind: Type, protocol: Protocol) -> io::Result<Socket> {
    let new = || Socket::new(family.domain(), kind, Some(protocol));
    let again = |error| {
        if descriptors::made_room_after(&error) {
            new()
        } else {
            Err(error)
        }
    };
    let socket = new().or_else(again).map_err(descriptors::explained)?;
    descriptors::make_room(&socket);
    if family == Family::V6 {
        socket.set_only_v6(true)?;
    }
    if kind == Type::DGRAM {
        socket::prepare_udp(&socket);
    }
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Hundreds of outlets answer one query within a millisecond; at the default size their answers are
/// lost before the reader runs. The system clamps the wish to `net.core.rmem_max`, unless this process
/// may exceed that, or ignores it.
fn enlarge_receive_buffer(socket: &Socket) {
    if force_receive_buffer(socket, UDP_RECEIVE_BUFFER_BYTES).is_err() {
        let _ = socket.set_recv_buffer_size(UDP_RECEIVE_BUFFER_BYTES);
    }
}

const UDP_RECEIVE_BUFFER_BYTES: usize = 4 * 1024 * 1024;

/// How often the system is asked for a port that is free for TCP and UDP.
const RANDOM_PAIRS: u32 = 4;

/// liblsl queues 10 connections; a recorder that opens hundreds of inlets at once overruns that.
const TCP_BACKLOG: i32 = 128;

/// A peer that lost its power says nothing. Without this a reader that is gone counts as a consumer,
/// and an inlet waits, until somebody sends; which for a marker stream may be never.
pub(crate) const KEEPALIVE: TcpKeepalive = TcpKeepalive::new()
    .with_time(Duration::from_secs(30))
    .with_interval(Duration::from_secs(10));

/// A port where connections are neither accepted nor refused, for as long as these are held.
#[cfg(test)]
pub(crate) fn silent_listener(address: SocketAddr) -> Vec<Socket> {
    let new = || open(Family::of(address.ip()), Type::STREAM, Protocol::TCP).unwrap();
    let listener = new();
    listener.bind(&address.into()).unwrap();
    listener.listen(0).unwrap();
    let place = listener.local_addr().unwrap();
    let mut held = vec![listener];
    // One fills the queue, and the next says when it is full.
    for _ in 0..2 {
        let filler = new();
        let _ = filler.connect(&place);
        held.push(filler);
    }
    held
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_families_can_have_the_same_port() {
        let v4 = udp_ephemeral(Ipv4Addr::LOCALHOST.into()).unwrap();
        let port = v4.local_addr().unwrap().port();
        let same = PortSearch {
            base: port,
            count: 1,
            allow_random: false,
        };
        let v6 = udp_service(Ipv6Addr::UNSPECIFIED.into(), same);
        // A host without IPv6 is fine; one that calls the port taken is not.
        assert_ne!(
            v6.err().map(|error| error.kind()),
            Some(io::ErrorKind::AddrInUse)
        );
    }

    #[test]
    fn a_closed_port_does_not_stop_the_runtime() {
        let local: IpAddr = Ipv4Addr::LOCALHOST.into();
        let socket = into_tokio_udp(udp_ephemeral(local).unwrap()).unwrap();
        let closed = udp_ephemeral(local).unwrap().local_addr().unwrap();
        let (sender, stages) = std::sync::mpsc::channel();
        let task = async move {
            socket.connect(closed).await.unwrap();
            let mut buffer = [0; 8];
            for _ in 0..20 {
                // The first one is refused, and sending the second takes the error away.
                for _ in 0..2 {
                    let _ = socket.send(b"anybody?").await;
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
                let receiving = receive(&socket, &mut buffer);
                let limited = tokio::time::timeout(Duration::from_millis(10), receiving);
                assert!(!matches!(limited.await, Ok(Ok(_))));
                sender.send(()).unwrap();
            }
        };
        drop(runtime::spawn(task).unwrap());
        for _ in 0..20 {
            stages.recv_timeout(Duration::from_secs(10)).unwrap();
        }
    }

    #[test]
    fn the_port_search_skips_taken_tcp_ports() {
        let first = tcp_acceptor(Ipv4Addr::LOCALHOST.into(), PortSearch::ANY).unwrap();
        let taken = first.local_addr().unwrap().port();
        let only = PortSearch {
            base: taken,
            count: 1,
            allow_random: false,
        };
        let refused = tcp_acceptor(Ipv4Addr::LOCALHOST.into(), only).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::AddrInUse);
        let next = PortSearch {
            allow_random: true,
            ..only
        };
        let second = tcp_acceptor(Ipv4Addr::LOCALHOST.into(), next).unwrap();
        assert_ne!(second.local_addr().unwrap().port(), taken);
    }

    #[test]
    fn an_outlet_gets_udp_at_its_tcp_port_and_leaves_some_to_others() {
        let local: IpAddr = Ipv4Addr::LOCALHOST.into();
        // Below the ports that systems choose, or other tests' connections have them.
        let range = PortSearch {
            base: 21_460,
            count: 8,
            allow_random: true,
        };
        let port = |socket: &TcpListener| socket.local_addr().unwrap().port();
        let shared = udp_service(local, range).unwrap();
        assert_eq!(shared.local_addr().unwrap().port(), 21_460);
        let foreign = UdpSocket::bind((local, 21_462)).unwrap();
        let mut held = Vec::new();
        let mut next = |expected: u16, own: bool| {
            let (tcp, udp) = outlet_ports(local, range, 21_460).unwrap();
            let udp_port = udp.as_ref().map(|udp| udp.local_addr().unwrap().port());
            assert_eq!(udp_port, own.then(|| port(&tcp)));
            if expected != 0 {
                assert_eq!(port(&tcp), expected);
            }
            held.push((tcp, udp));
        };
        // The shared socket is there already; then pairs; then what is left for TCP alone.
        next(21_460, false);
        for pair in [21_461, 21_463, 21_464, 21_465] {
            next(pair, true);
        }
        for single in [21_462, 21_466, 21_467] {
            next(single, false);
        }
        // Beyond the range, at a port of the system's choice.
        next(0, true);
        let strict = PortSearch {
            allow_random: false,
            ..range
        };
        let full = outlet_ports(local, strict, 21_460).unwrap_err();
        assert_eq!(full.kind(), io::ErrorKind::AddrInUse);
        drop(foreign);
    }

    #[test]
    fn connections_have_no_delay() {
        let acceptor = tcp_acceptor(Ipv4Addr::LOCALHOST.into(), PortSearch::ANY).unwrap();
        let peer = acceptor.local_addr().unwrap();
        let (sender, receiver) = std::sync::mpsc::channel();
        runtime::spawn(async move {
            let stream = tcp_connect(peer, None, Duration::from_secs(10))
                .await
                .unwrap();
            sender.send(stream).unwrap();
        })
        .unwrap();
        let connected = receiver.recv().unwrap();
        assert!(connected.has_no_delay());
        acceptor.set_nonblocking(false).unwrap();
        let (stream, _) = acceptor.accept().unwrap();
        let mut config = lsl_proto::config::Config::loopback();
        config.set("tuning.SendSocketBufferSize", "65536").unwrap();
        prepare_accepted(&stream, config.tuning()).unwrap();
        assert!(stream.nodelay().unwrap());
    }
}
