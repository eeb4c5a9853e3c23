//! What a doctor keeps open for the one at the other end: ports that hear, and a real stream. Spec: doctor §3.4

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use lsl_core::config::Config;
use lsl_core::{ChannelFormat, Context, Outlet, StreamInfo, local_clock, random_uid};
use lsl_proto::config::MulticastGroup;
use socket2::{Domain, Protocol, Socket, Type};

use super::socket::{join, open, open_at};
use crate::observe::{Fact, Interface, Observations, OtherSide, PortsInUse};
use crate::pair::{self, Heard, Probe};
use crate::table::filters::relevant;
use crate::table::pair::TEST_SESSION;

/// Ports that hear, a stream of the session `lsl-doctor`, and what was heard.
#[derive(Debug)]
pub struct Post {
    /// Searches for the stream at the other end.
    pub context: Context,
    nonce: String,
    listeners: Vec<TcpListener>,
    /// 16569 or another, and one of the range.
    listens: Vec<u16>,
    heard: Arc<Mutex<Heard>>,
    /// Where connections came in.
    accepted: Mutex<BTreeSet<Fact>>,
    is_over: Arc<AtomicBool>,
}

impl Post {
    /// Opens what can be opened; of the ports, `port` must be free, unless it is 0.
    ///
    /// # Errors
    /// If `port` cannot be listened at, or no stream offered.
    pub fn open(config: &Config, seen: &Observations, port: u16) -> io::Result<Self> {
        let mut config = config.clone();
        config
            .set_session_id(TEST_SESSION)
            .map_err(io::Error::other)?;
        let context = Context::new(config);
        let host = String::from_utf8_lossy(&lsl_platform::process::hostname()).into_owned();
        let nonce = pair::nonce(&host, &random_uid().map_err(io::Error::other)?);
        let mut post = Self {
            context,
            nonce,
            listeners: Vec::new(),
            listens: Vec::new(),
            heard: Arc::default(),
            accepted: Mutex::default(),
            is_over: Arc::default(),
        };
        post.offer().map_err(io::Error::other)?;
        let port = post.listen(port)?;
        post.hear(open(true, port, false));
        post.hear(open(false, port, false));
        // First come those that programs take first.
        let ports = seen.asked.ports;
        for port in ports.base..=ports.last() {
            let Ok(socket) = open(true, port, false) else {
                continue;
            };
            if post.listen(port).is_ok() {
                post.hear(Ok(socket));
                post.hear(open(false, port, false));
                break;
            }
        }
        post.hear_groups(seen, PortsInUse::default().multicast);
        Ok(post)
    }

    /// Returns what stands in the datagrams of this end.
    pub fn nonce(&self) -> &str {
        &self.nonce
    }

    /// Returns the ports that hear.
    pub fn listens(&self) -> &[u16] {
        &self.listens
    }

    /// Returns what was heard.
    pub fn heard(&self) -> MutexGuard<'_, Heard> {
        locked(&self.heard)
    }

    /// Returns what this end tells: what was observed, and what was heard until now.
    pub fn side(&self, mut side: OtherSide) -> OtherSide {
        self.heard().tell(&mut side);
        side.facts.extend(locked(&self.accepted).iter());
        side
    }

    /// Returns a connection that came in since.
    pub fn accept(&self) -> Option<(TcpStream, SocketAddr)> {
        let (at, come) = self.listeners.iter().find_map(|it| {
            let port = it.local_addr().ok()?.port();
            Some((port, it.accept().ok()?))
        })?;
        let fact = if self.listens.first() == Some(&at) {
            Fact::AcceptedServe
        } else {
            Fact::AcceptedRange
        };
        locked(&self.accepted).insert(fact);
        Some(come)
    }

    /// Listens at a TCP port, in the families that there are.
    fn listen(&mut self, port: u16) -> io::Result<u16> {
        let v4 = listener(Ipv4Addr::UNSPECIFIED.into(), port)?;
        let port = v4.local_addr()?.port();
        self.listeners.push(v4);
        self.listeners
            .extend(listener(Ipv6Addr::UNSPECIFIED.into(), port));
        self.listens.push(port);
        Ok(port)
    }

    /// Hears groups and broadcasts at sockets of their own: one for all would take questions to this machine away
    /// from its outlets.
    fn hear_groups(&self, seen: &Observations, port: u16) {
        let interfaces: Vec<&Interface> =
            relevant(seen).into_iter().take(MOST_INTERFACES).collect();
        for group in groups() {
            let to = |scope| match group {
                IpAddr::V6(group) => SocketAddrV6::new(group, port, 0, scope).into(),
                IpAddr::V4(_) => SocketAddr::new(group, port),
            };
            let is_link_local = matches!(group, IpAddr::V6(it) if it.segments()[0] == 0xff02);
            let separate = if is_link_local { interfaces.len() } else { 1 };
            for of in interfaces.chunks((interfaces.len() / separate.max(1)).max(1)) {
                let scope = of
                    .first()
                    .filter(|_| is_link_local)
                    .map_or(0, |it| it.index);
                let socket = open_at(to(scope), true);
                for interface in of {
                    let _ = socket.as_ref().map(|it| join(it, group, interface));
                }
                self.hear(socket);
            }
        }
        let directed = interfaces.iter().flat_map(|it| directed(it));
        for to in directed.chain([Ipv4Addr::BROADCAST]) {
            self.hear(open_at(SocketAddr::new(to.into(), port), true));
        }
    }

    /// Hears at a socket until this is dropped; what cannot be opened is not heard.
    fn hear(&self, socket: io::Result<Socket>) {
        let Ok(socket) = socket else {
            return;
        };
        let _ = socket.set_read_timeout(Some(NAP));
        let socket = std::net::UdpSocket::from(socket);
        let (heard, is_over) = (Arc::clone(&self.heard), Arc::clone(&self.is_over));
        let nonce = self.nonce.clone();
        thread::spawn(move || {
            let mut buffer = vec![0; 2048];
            while !is_over.load(Ordering::Relaxed) {
                let Ok((length, _)) = socket.recv_from(&mut buffer) else {
                    continue;
                };
                let probe = Probe::parse(buffer.get(..length).unwrap_or_default());
                if let Some(probe) = probe.filter(|it| it.nonce != nonce) {
                    locked(&heard).note(&probe);
                }
            }
        });
    }

    /// Offers the stream, which flows while somebody reads.
    fn offer(&self) -> lsl_core::Result<()> {
        let (channels, format) = (CHANNELS, ChannelFormat::Float32);
        let info = StreamInfo::new(
            TEST_SESSION,
            "Doctor",
            channels,
            RATE,
            format,
            random_uid()?,
        )?;
        let outlet = Outlet::builder(info).context(&self.context).open()?;
        let is_over = Arc::clone(&self.is_over);
        thread::spawn(move || {
            let chunk = [0.0_f32; CHANNELS as usize * SAMPLES];
            // The stamp of the last sample: they lie on a grid, as those of a device.
            let mut stamp = local_clock();
            while !is_over.load(Ordering::Relaxed) {
                if outlet.have_consumers() {
                    stamp += CHUNK.as_secs_f64();
                    thread::sleep(Duration::from_secs_f64((stamp - local_clock()).max(0.0)));
                    let _ = outlet.push_chunk_at(&chunk, stamp);
                } else if outlet.blocking().wait_for_consumers(NAP) {
                    stamp = local_clock();
                }
            }
        });
        Ok(())
    }
}

impl Drop for Post {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

fn locked<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The groups that programs ask by default.
pub(super) fn groups() -> [IpAddr; 5] {
    let group = MulticastGroup::default();
    [
        Ipv4Addr::new(239, 255, 172, 215).into(),
        Ipv4Addr::new(224, 0, 0, 1).into(),
        Ipv4Addr::new(224, 0, 0, 183).into(),
        group.with_prefix(0xff02).into(),
        group.with_prefix(0xff05).into(),
    ]
}

/// The broadcast addresses of an interface's networks.
pub(super) fn directed(interface: &Interface) -> impl Iterator<Item = Ipv4Addr> {
    interface.addresses.iter().filter_map(|(it, length)| {
        let IpAddr::V4(it) = it else {
            return None;
        };
        let host_bits = u32::MAX.checked_shr((*length).into())?;
        (*length < 31).then(|| Ipv4Addr::from_bits(it.to_bits() | host_bits))
    })
}

fn listener(any: IpAddr, port: u16) -> io::Result<TcpListener> {
    let domain = if any.is_ipv4() {
        Domain::IPV4
    } else {
        Domain::IPV6
    };
    let socket = Socket::new(domain, Type::STREAM, Some(Protocol::TCP))?;
    if any.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    if cfg!(unix) {
        socket.set_reuse_address(true)?;
    }
    small_segments(&socket);
    socket.bind(&SocketAddr::new(any, port).into())?;
    socket.listen(16)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

/// Makes what is said fit through wherever anything does: the pair shall tell that large packets vanish.
pub(super) fn small_segments(socket: &Socket) {
    #[cfg(unix)]
    let _ = socket.set_tcp_mss(536);
    #[cfg(not(unix))]
    let _ = socket;
}

/// Where `serve` listens: below LSL's ports.
pub const PORT: u16 = 16569;
const CHANNELS: u32 = 8;
const RATE: f64 = 250.0;
/// In one chunk.
const SAMPLES: usize = 10;
const CHUNK: Duration = Duration::from_millis(40);
const NAP: Duration = Duration::from_millis(500);
const MOST_INTERFACES: usize = 4;
