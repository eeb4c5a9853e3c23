//! Finds the doctor at the other end, and talks with it. Spec: doctor §3.4

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::ops::RangeInclusive;
use std::thread;
use std::time::Duration;

use lsl_core::local_clock;
use lsl_platform::neighbours::neighbours;
use lsl_platform::routes::gateways;
use socket2::{Domain, Protocol, Socket, Type};

use super::Post;
use super::control::{Control, GREETING_SECS, greet};
use super::line::never;
use super::post::{directed, groups, small_segments};
use super::socket::{leave_by, open};
use crate::observe::{Class, Fact, Interface, Kind, Observations, OtherSide, PortsInUse};
use crate::pair::{
    Account, COPIES, Counts, Event, Hello, PAUSE_SECS, PREAMBLE, Pair, PairError, Path, Probe,
    nonce, tag,
};
use crate::table::filters::relevant;
use crate::table::pair::side;

/// What came of a pair.
#[derive(Debug)]
pub struct Talked {
    /// Who is at the other end.
    pub hello: Hello,
    /// What it concludes.
    pub theirs: Account,
    /// What it heard of us, and we of it; by class, none to all of what was sent.
    pub ways: Vec<(Class, bool, bool)>,
    /// Whether both ends have proved their keys, and nobody else hears what they say.
    pub is_sealed: bool,
}

/// Connects to a doctor at one of these addresses: at `port`, and where only LSL's own ports are open, at those.
pub fn find(addresses: &[IpAddr], port: u16, ports: PortsInUse) -> Option<(TcpStream, SocketAddr)> {
    dial(addresses, port..=port).or_else(|| dial(addresses, ports.base..=ports.last()))
}

/// Connects to a doctor at one of these addresses and ports. Outlets at these ports are troubled by it.
pub fn dial(addresses: &[IpAddr], ports: RangeInclusive<u16>) -> Option<(TcpStream, SocketAddr)> {
    let at = |port| addresses.iter().map(move |it| SocketAddr::new(*it, port));
    thread::scope(|scope| {
        let places = ports.flat_map(at).take(MOST_TRIES);
        let tries = places
            .map(|to| scope.spawn(move || Some((greet(to, GREETING_SECS, &never).ok()?, to))));
        let tries: Vec<_> = tries.collect();
        let found = tries.into_iter().map(|it| it.join().ok().flatten());
        // All are waited for.
        found.fold(None, Option::or)
    })
}

/// Connects to a doctor that is expected there.
///
/// # Errors
/// As the system says.
pub fn connect(to: SocketAddr, timeout: Duration) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(to), Type::STREAM, Some(Protocol::TCP))?;
    small_segments(&socket);
    socket.connect_timeout(&to.into(), timeout)?;
    Ok(socket.into())
}

/// What this end says of itself first.
pub fn hello(post: &Post, to: IpAddr) -> Hello {
    let host = lsl_platform::process::hostname();
    Hello {
        v: 1,
        nonce: post.nonce().to_owned(),
        host: String::from_utf8_lossy(&host).into_owned(),
        sees: Some(to),
        listens: post.listens().to_vec(),
    }
}

/// Talks over a connection until it is `stop`ped. `conclude` looks at this machine and at the network, once all
/// datagrams were sent.
///
/// # Errors
/// Why it ended early: what `conclude` found stands all the same.
pub fn talk(
    control: Control,
    pair: Pair,
    post: &Post,
    seen: &Observations,
    stop: &dyn Fn() -> bool,
    conclude: &mut dyn FnMut() -> Account,
) -> Result<Talked, PairError> {
    let talked = take_turns(control, pair, post, seen, stop, conclude);
    post.heard().pin(None);
    talked
}

fn take_turns(
    mut control: Control,
    mut pair: Pair,
    post: &Post,
    seen: &Observations,
    stop: &dyn Fn() -> bool,
    conclude: &mut dyn FnMut() -> Account,
) -> Result<Talked, PairError> {
    let peer = control.peer().map_err(|_| PairError::Gone)?;
    let mut talked = Talked {
        hello: Hello::default(),
        theirs: Account::default(),
        ways: Vec::new(),
        is_sealed: control.is_sealed(),
    };
    let (mut paths, mut theirs) = (Vec::new(), 0);
    let outcome = loop {
        while let Some(event) = pair.poll_event() {
            match event {
                Event::Hello(it) => {
                    talked.hello = *it;
                    post.heard().pin(Some(&talked.hello.nonce));
                    paths = pair.plan(plan(seen, peer.ip(), &talked.hello));
                }
                Event::Begin(count) => {
                    theirs = count;
                    flush(&mut pair, &mut control)?;
                    send(post.nonce(), &paths, peer, seen);
                }
                Event::Count => {
                    let heard = post.heard().counts(&talked.hello.nonce, theirs);
                    pair.counted(Counts { heard });
                    flush(&mut pair, &mut control)?;
                    pair.report(conclude());
                }
                Event::Counts(counts) => talked.ways = ways(post, &paths, &counts, &talked.hello),
                Event::Account(account) => talked.theirs = *account,
                Event::Done => {}
            }
        }
        flush(&mut pair, &mut control)?;
        if pair.is_done() {
            break Ok(());
        }
        if stop() {
            pair.end(&PairError::Interrupted.to_string());
            break Err(PairError::Interrupted);
        }
        let now = local_clock();
        let wait = (pair.poll_timeout() - now).clamp(0.001, 1.0);
        let come = control.read(Duration::from_secs_f64(wait));
        let taken = come.and_then(|come| match come {
            Some(bytes) if bytes.is_empty() => Ok(()),
            come => pair.handle_input(&come.unwrap_or_default(), local_clock()),
        });
        if let Err(error) = taken.and_then(|()| pair.handle_timeout(local_clock())) {
            break Err(error);
        }
    };
    let _ = flush(&mut pair, &mut control);
    outcome.map(|()| talked)
}

/// Writes what is to be said; whoever [`greet`]ed has said the first line already.
fn flush(pair: &mut Pair, control: &mut Control) -> Result<(), PairError> {
    let output = pair.take_output();
    let is_greeting = !output.is_empty() && std::mem::take(&mut control.has_greeted);
    let rest = output.strip_prefix(PREAMBLE).filter(|_| is_greeting);
    control.write(rest.unwrap_or(&output))
}

/// The ways to try: groups by each interface, and the ports at which the other end hears. Only its address of this
/// connection is sent to, whatever it says.
pub fn plan(seen: &Observations, to: IpAddr, hello: &Hello) -> Vec<Path> {
    let path = |class, interface: &str, to, port, is_tcp| Path {
        class,
        interface: interface.to_owned(),
        to,
        port,
        is_tcp,
    };
    let multicast = PortsInUse::default().multicast;
    let mut paths = Vec::new();
    for interface in relevant(seen).into_iter().take(MOST_INTERFACES) {
        let name = &interface.name;
        let has = |is_v4| interface.addresses.iter().any(|it| it.0.is_ipv4() == is_v4);
        for (at, group) in groups().into_iter().enumerate() {
            let class = match (group.is_ipv4(), at) {
                (true, 0) => Class::SiteV4,
                (true, _) => Class::LinkV4,
                _ => Class::GroupsV6,
            };
            if interface.is_multicast && has(group.is_ipv4()) {
                paths.push(path(class, name, group, multicast, false));
            }
        }
        for directed in directed(interface) {
            paths.push(path(
                Class::Directed,
                name,
                directed.into(),
                multicast,
                false,
            ));
        }
    }
    let broadcast = Ipv4Addr::BROADCAST.into();
    // Who has no network sends nothing to it.
    let has_network = !paths.is_empty();
    paths.extend(has_network.then(|| path(Class::Broadcast, "", broadcast, multicast, false)));
    for (at, port) in hello.listens.iter().take(2).enumerate() {
        let class = if at == 0 { Class::Serve } else { Class::Range };
        paths.push(path(class, "", to, *port, false));
        paths.push(path(class, "", to, *port, true));
    }
    paths
}

/// Sends to a machine that cannot be connected to, where the doctor may hear by one way or the other; returns the tag by
/// which its code names this machine.
pub fn knock(seen: &Observations, to: IpAddr, port: u16) -> u8 {
    let host = lsl_platform::process::hostname();
    let random = lsl_core::random_uid().unwrap_or_default();
    let nonce = nonce(&String::from_utf8_lossy(&host), &random);
    let hello = Hello {
        listens: vec![port, seen.asked.ports.base],
        ..Hello::default()
    };
    let mut paths = plan(seen, to, &hello);
    paths.retain(|it| !it.is_tcp);
    send(&nonce, &paths, SocketAddr::new(to, port), seen);
    tag(&nonce)
}

/// Sends to all of these, ten times; what cannot leave is not heard at the other end.
pub fn send(nonce: &str, paths: &[Path], peer: SocketAddr, seen: &Observations) {
    let interfaces = seen.interfaces.as_deref().unwrap_or_default();
    let sockets = [true, false].map(|is_v4| {
        let socket = open(is_v4, 0, false).ok()?;
        let _ = socket.set_broadcast(is_v4);
        Some(socket)
    });
    thread::scope(|scope| {
        for path in paths.iter().filter(|it| it.is_tcp) {
            let to = place(path, peer, None);
            scope.spawn(move || connect(to, CONNECT));
        }
        for copy in 0..COPIES {
            for (number, path) in paths.iter().enumerate().filter(|(_, it)| !it.is_tcp) {
                let interface = interfaces.iter().find(|it| it.name == path.interface);
                let [v4, v6] = &sockets;
                let Some(socket) = (if path.to.is_ipv4() { v4 } else { v6 }) else {
                    continue;
                };
                let probe = Probe {
                    nonce: nonce.to_owned(),
                    class: path.class,
                    path: number,
                    copy,
                };
                if let Some(interface) = interface
                    && leave_by(socket, path.to.is_ipv4(), interface, HOPS).is_err()
                {
                    continue;
                }
                let to = place(path, peer, interface);
                let _ = socket.send_to(&probe.to_bytes(), &to.into());
            }
            thread::sleep(Duration::from_secs_f64(PAUSE_SECS));
        }
    });
}

/// Where a path leads; link-local addresses have to name the interface.
fn place(path: &Path, peer: SocketAddr, interface: Option<&Interface>) -> SocketAddr {
    let mut to = if path.to == peer.ip() {
        peer
    } else {
        SocketAddr::new(path.to, path.port)
    };
    to.set_port(path.port);
    if let (SocketAddr::V6(to), Some(interface)) = (&mut to, interface) {
        to.set_scope_id(interface.index);
    }
    to
}

/// Returns of each class of ways whether the other heard us by any, and we it.
fn ways(post: &Post, paths: &[Path], counts: &Counts, hello: &Hello) -> Vec<(Class, bool, bool)> {
    let mut heard = OtherSide::default();
    post.heard().tell_of(&hello.nonce, &mut heard);
    let there = |class: Class| {
        let mut all = paths.iter().zip(&counts.heard);
        all.any(|(path, heard)| path.class == class && *heard > 0)
    };
    let is_tried = |class: &Class| paths.iter().any(|it| it.class == *class);
    let all = Class::ALL.into_iter().filter(is_tried);
    all.map(|class| (class, there(class), heard.heard.contains_key(&class)))
        .collect()
}

/// Returns what this machine tells of itself: what was observed, and what only the system knows.
pub fn told(seen: &Observations, policy: u8) -> OtherSide {
    let mut told = side(seen);
    told.policy = policy;
    let gateways = gateways().unwrap_or_default();
    let is_tunnel = |name: &str| Kind::of_name(name) == Kind::Tunnel;
    let default = gateways.first();
    // Neighbours were asked by the waves, and the gateway answers who looks for it.
    if let Ok(socket) = open(true, 0, false) {
        for gateway in &gateways {
            let _ = socket.send_to(b"", &SocketAddr::new(gateway.address, 9).into());
        }
        thread::sleep(ARP);
    }
    let asked = neighbours().ok().filter(|_| seen.wave.is_some());
    let is_gateway = |it: Ipv4Addr| gateways.iter().any(|gateway| gateway.address == it);
    let answered = |wants_gateway: bool| {
        let mut all = asked.iter().flatten().filter(|it| it.is_complete);
        all.any(|it| is_gateway(it.address) == wants_gateway)
    };
    for (fact, holds) in [
        (Fact::NeighboursAsked, asked.is_some()),
        (Fact::GatewayAnswers, answered(true)),
        (Fact::OthersAnswer, answered(false)),
        (
            Fact::DefaultByTunnel,
            default.is_some_and(|it| is_tunnel(&it.interface)),
        ),
        (
            Fact::Container,
            std::path::Path::new("/.dockerenv").exists(),
        ),
    ] {
        if holds {
            told.facts.insert(fact);
        }
    }
    told
}

const CONNECT: Duration = Duration::from_secs(1);
/// For the answer of a gateway.
const ARP: Duration = Duration::from_millis(200);
const HOPS: u32 = 24;
const MOST_INTERFACES: usize = 4;
const MOST_TRIES: usize = 64;

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::sync::atomic::{AtomicBool, Ordering};

    use lsl_core::config::Config;
    use lsl_core::secure::config::Settings;
    use lsl_core::secure::trust::{Peer, TrustList, TrustedRole};
    use lsl_core::secure::{Policy, SecretKey, Security};

    use super::*;
    use crate::pair::Side;

    const NAP: Duration = Duration::from_millis(5);

    fn post() -> Post {
        Post::open(&Config::loopback(), &Observations::default(), 0).unwrap()
    }

    /// Waits for the connection that comes in.
    fn accept(post: &Post) -> TcpStream {
        loop {
            match post.accept() {
                Some((stream, _)) => return stream,
                None => thread::sleep(NAP),
            }
        }
    }

    type Outcome = Result<Talked, PairError>;

    /// Has one dial the other, each with this security, until they have talked or may not.
    fn both(dials: Option<&Security>, accepts: Option<&Security>) -> (Outcome, Outcome) {
        let (here, there) = (post(), post());
        let seen = Observations::default();
        let address: IpAddr = Ipv4Addr::LOCALHOST.into();
        let talk = |control: Result<Control, PairError>, side, post: &Post, told: u8| {
            let pair = Pair::new(side, hello(post, address), local_clock());
            let mut conclude = || Account {
                side: post.side(OtherSide {
                    session: told,
                    ..OtherSide::default()
                }),
                ..Account::default()
            };
            talk(control?, pair, post, &seen, &never, &mut conclude)
        };
        let is_over = AtomicBool::new(false);
        let (asked, served) = thread::scope(|scope| {
            let served = scope.spawn(|| {
                let mut served = Err(PairError::Gone);
                // Who gets no session may dial again.
                while served.is_err() && !is_over.load(Ordering::Relaxed) {
                    let Some((stream, _)) = there.accept() else {
                        thread::sleep(NAP);
                        continue;
                    };
                    let control = Control::accepted(stream, accepts, &never);
                    served = talk(control, Side::Accepts, &there, 2);
                }
                served
            });
            let port = there.listens()[0];
            let stream = greet((address, port).into(), 60.0, &never).unwrap();
            let control = Control::dialled(stream, dials, &never);
            let asked = talk(control, Side::Dials, &here, 1);
            is_over.store(true, Ordering::Relaxed);
            (asked, served.join().unwrap())
        });
        if let (Ok(asked), Ok(served)) = (&asked, &served) {
            assert_eq!(asked.hello.nonce, there.nonce());
            assert_eq!(served.hello.sees, Some(address));
        }
        (asked, served)
    }

    #[test]
    fn two_doctors_tell_each_other_what_they_hear() {
        let (asked, served) = both(None, None);
        let (asked, served) = (asked.unwrap(), served.unwrap());
        assert_eq!(
            (asked.theirs.side.session, served.theirs.side.session),
            (2, 1)
        );
        for talked in [&asked, &served] {
            let by = |class| talked.ways.iter().find(|it| it.0 == class).copied();
            for class in [Class::Serve, Class::Range] {
                assert_eq!(by(class), Some((class, true, true)), "{:?}", talked.ways);
            }
            assert_ne!(talked.theirs.side.tag, 0);
        }
    }

    /// A machine with a key that trusts these.
    fn machine(policy: Policy, key: u8, trusted: &[(u8, TrustedRole)]) -> Security {
        let of = |key: u8| SecretKey::from_seed(&[key; 32]);
        let peers = trusted.iter().map(|(key, role)| Peer {
            name: format!("machine {key}"),
            key: of(*key).public(),
            role: *role,
            not_after: None,
            from: Vec::new(),
            streams: Vec::new(),
        });
        let mut settings = Settings::new(policy);
        settings.migrate_until = "2099-12-31".parse().ok();
        let trust = TrustList::from_peers(peers.collect()).unwrap();
        Security::from_parts(settings, of(key), trust).unwrap()
    }

    /// Connects a doctor with another, up to where both talk in encrypted records.
    fn sealed() -> (Control, Control) {
        let rec = machine(Policy::Required, 1, &[(2, TrustedRole::Outlet)]);
        let amp = machine(Policy::Required, 2, &[(1, TrustedRole::Inlet)]);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let to = listener.local_addr().unwrap();
        thread::scope(|scope| {
            let there = scope.spawn(|| {
                let (stream, _) = listener.accept().unwrap();
                Control::accepted(stream, Some(&amp), &never).unwrap()
            });
            let here =
                Control::dialled(greet(to, 60.0, &never).unwrap(), Some(&rec), &never).unwrap();
            (here, there.join().unwrap())
        })
    }

    #[test]
    fn a_forged_record_is_told_from_an_end() {
        let read = |forge: fn(&Control)| {
            let (here, mut there) = sealed();
            forge(&here);
            drop(here);
            loop {
                match there.read(CONNECT) {
                    // The request of the session.
                    Ok(Some(bytes)) => assert!(PREAMBLE.starts_with(&bytes), "{bytes:?}"),
                    ended => return ended,
                }
            }
        };
        let record = |here: &Control| {
            let bytes = [&[0, 64][..], &[7; 64]].concat();
            here.stream().write_all(&bytes).unwrap();
        };
        assert_eq!(read(record), Err(PairError::Forged));
        assert_eq!(read(|_| ()), Ok(None));
    }

    #[test]
    fn who_leaves_or_is_silent_holds_nobody_up() {
        let amp = machine(Policy::Required, 2, &[]);
        let accepted = |said: &[u8], stop: &dyn Fn() -> bool, closes: bool| {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            let mut dialled = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            dialled.write_all(said).unwrap();
            let dialled = (!closes).then_some(dialled);
            let (stream, _) = listener.accept().unwrap();
            let ended = Control::accepted(stream, Some(&amp), stop).unwrap_err();
            drop(dialled);
            ended
        };
        let (half, wrong) = (&PREAMBLE[..4], [PREAMBLE, b"LSL:wrong/1\r\n\r\n"].concat());
        for said in [&b""[..], half, PREAMBLE] {
            assert_eq!(accepted(said, &never, true), PairError::Gone, "{said:?}");
        }
        assert_eq!(accepted(half, &|| true, false), PairError::Interrupted);
        assert_eq!(accepted(half, &never, false), PairError::Slow);
        assert_eq!(accepted(&wrong, &never, false), PairError::Foreign);
    }

    /// Who dials whom; whether what they say is encrypted, or what each is told.
    type Case<'a> = (
        Option<&'a Security>,
        Option<&'a Security>,
        Result<bool, [&'a str; 2]>,
    );

    #[test]
    fn what_they_say_is_encrypted_where_keys_and_trust_allow() {
        use Policy::{Migrate, Off, Required};
        use TrustedRole::{Inlet, Outlet};
        let rec = &machine(Required, 1, &[(2, Outlet)]);
        let amp = &machine(Required, 2, &[(1, Inlet)]);
        let (stranger, off) = (&machine(Required, 2, &[]), &machine(Off, 2, &[(1, Inlet)]));
        let guest = &machine(Migrate, 2, &[]);
        let add = "run here: lsl trust add NAME lsl-ed25519:";
        let cases: &[Case<'_>] = &[
            (Some(rec), Some(amp), Ok(true)),
            // Either may dial, whatever streams may flow between them.
            (Some(amp), Some(rec), Ok(true)),
            (
                Some(rec),
                Some(stranger),
                Err(["there run: lsl trust add", add]),
            ),
            (Some(stranger), Some(rec), Err([add, "ended the session"])),
            (Some(rec), None, Err(["Run there: lsl key init", ""])),
            (Some(rec), Some(off), Err(["Run there: lsl key init", ""])),
            (None, Some(rec), Err(["`lsl key show`", "plain text"])),
            (
                Some(guest),
                Some(rec),
                Err(["`lsl key show`", "plain text"]),
            ),
            (Some(guest), None, Ok(false)),
        ];
        thread::scope(|scope| {
            for (dials, accepts, expected) in cases {
                scope.spawn(move || match (both(*dials, *accepts), expected) {
                    ((Ok(asked), Ok(served)), Ok(is_sealed)) => {
                        assert_eq!([asked.is_sealed, served.is_sealed], [*is_sealed; 2]);
                    }
                    ((Err(asked), Err(served)), Err(texts)) => {
                        for (error, text) in [asked, served].iter().zip(texts) {
                            assert!(error.to_string().contains(text), "{text} in {error}");
                        }
                    }
                    (ended, _) => panic!("{ended:?}, not {expected:?}"),
                });
            }
        });
    }

    #[test]
    fn what_is_no_doctor_is_left() {
        let address: IpAddr = Ipv4Addr::LOCALHOST.into();
        // An outlet closes; somebody else says something, or nothing.
        let listener = TcpListener::bind((address, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let none = PortsInUse {
            base: port,
            count: 1,
            ..PortsInUse::default()
        };
        thread::scope(|scope| {
            scope.spawn(|| {
                for answer in [&b""[..], b"HTTP/1.1 400 No\r\n\r\n"] {
                    let (mut stream, _) = listener.accept().unwrap();
                    stream.write_all(answer).unwrap();
                }
                // What follows is read before it closes, so that it ends in order.
                let (mut stream, _) = listener.accept().unwrap();
                stream.read_exact(&mut [0; PREAMBLE.len()]).unwrap();
            });
            // The port itself, then the range, which is the same here.
            assert!(find(&[address], port, none).is_none());
            let closed = greet((address, port).into(), GREETING_SECS, &never).unwrap_err();
            assert_eq!(closed.kind(), io::ErrorKind::UnexpectedEof);
        });
        let post = post();
        let seen = Observations::default();
        let mut foreign = TcpStream::connect((address, post.listens()[0])).unwrap();
        foreign.write_all(b"LSL:shortinfo\r\n").unwrap();
        let mut conclude = || unreachable!("nobody is there");
        let mut talk = |side, stop| {
            let pair = Pair::new(side, hello(&post, address), local_clock());
            let control = Control::accepted(accept(&post), None, &never).unwrap();
            talk(control, pair, &post, &seen, &|| stop, &mut conclude).unwrap_err()
        };
        assert_eq!(talk(Side::Accepts, false), PairError::Foreign);
        // Somebody is silent, and the user has enough.
        for (side, is_told) in [(Side::Accepts, false), (Side::Dials, true)] {
            let mut silent = TcpStream::connect((address, post.listens()[0])).unwrap();
            assert_eq!(talk(side, true), PairError::Interrupted);
            let mut told = String::new();
            silent.read_to_string(&mut told).unwrap();
            let is_bye = told.ends_with("{\"bye\":\"interrupted\"}\n");
            assert_eq!((is_bye, told.is_empty()), (is_told, !is_told), "{told}");
        }
    }
}
