//! Clock probes under the keys of sessions.

use std::net::{Ipv4Addr, UdpSocket};
use std::time::Duration;

use lsl_core::secure::policy::Discovery;
use lsl_core::secure::trust::TrustedRole;
use lsl_core::secure::{Policy, TIME_PACKET_LEN, TimeProber};
use lsl_core::{Outlet, local_clock};

use super::reader::Reader;
use crate::lab::{self, SOON};
use crate::secure::people::{Place, info, trusted};

/// The clock of an outlet as one session sees it.
pub struct Clock {
    socket: UdpSocket,
    prober: TimeProber,
}

impl Clock {
    /// With the keys of this reader, whose session then has none.
    pub fn of(outlet: &Outlet, reader: &mut Reader) -> Self {
        Self {
            socket: socket_to(outlet),
            prober: reader.take_time_keys().into_prober(),
        }
    }

    fn probe(&mut self) -> [u8; TIME_PACKET_LEN] {
        self.prober.probe(local_clock()).unwrap()
    }
}

fn socket_to(outlet: &Outlet) -> UdpSocket {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = outlet.info().v4_service_port();
    socket.connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    socket.set_read_timeout(Some(SOON)).unwrap();
    socket
}

/// Whether a fresh probe is answered. For "no" it asks a few times, as datagrams may be lost.
pub fn answered(clock: &mut Clock) -> bool {
    let patience = Some(Duration::from_millis(200));
    clock.socket.set_read_timeout(patience).unwrap();
    (0..5).any(|_| {
        let probe = clock.probe();
        clock.socket.send(&probe).unwrap();
        let mut buffer = [0; 2048];
        clock.socket.recv(&mut buffer).is_ok_and(|length| {
            let reply = clock
                .prober
                .receive(&buffer[..length], local_clock(), SOON.as_secs_f64());
            reply.is_some_and(|reply| reply.t0 <= reply.t1 && reply.t1 <= reply.t2)
        })
    })
}

#[test]
fn probes_are_answered_as_long_as_their_session_lives() {
    let place = Place::new();
    let amp = place.side("amp", Policy::Required, &["rec"]);
    let outlet = lab::outlet(&amp.context, info("time"));
    for request in [&b"LSL:timekeys/1\r\n"[..], b"LSL:timekeys/1\r\nmore"] {
        let mut reader = Reader::open(&outlet, "rec", request);
        let mut clock = Clock::of(&outlet, &mut reader);
        assert!(answered(&mut clock));
        assert!(!outlet.have_consumers(), "it is no consumer");
        // It is kept alive by PINGs.
        reader.seal(|session, out| session.sealer.seal_ping(1.0, out));
        while reader.pongs.is_empty() {
            assert!(reader.step());
        }
        reader.close();
        assert_eq!(reader.rest(), b"");
        assert!(reader.closed);
        lab::until("the session is gone", || !amp.security.has_live_sessions());
        assert!(!answered(&mut clock), "the keys died with it");
    }
    // It ends with the outlet.
    let mut reader = Reader::open(&outlet, "rec", b"LSL:timekeys/1\r\n");
    drop(outlet);
    assert_eq!(reader.rest(), b"");
    assert!(reader.closed);
}

#[test]
fn everything_else_is_dropped() {
    let place = Place::new();
    let amp = place.side("amp", Policy::Required, &["rec"]);
    let outlet = lab::outlet(&amp.context, info("forged"));
    let mut reader = Reader::feed(&outlet, "rec", 10);
    let mut clock = Clock::of(&outlet, &mut reader);
    let mut buffer = [0; 2048];
    let replay = clock.probe();
    clock.socket.send(&replay).unwrap();
    let length = clock.socket.recv(&mut buffer).unwrap();
    let first = &buffer[..length];
    let reply = clock.prober.receive(first, local_clock(), 10.0).unwrap();
    assert!(reply.t0 <= reply.t1 && reply.t1 <= reply.t2);

    let mut forged = clock.probe();
    forged[78] ^= 1;
    let mut far_ahead = clock.probe();
    far_ahead[23] ^= 0x40;
    let mut of_nobody = clock.probe();
    of_nobody[15] ^= 1;
    let mut long = clock.probe().to_vec();
    long.push(0);
    for drop in [
        &replay[..],
        &forged,
        &far_ahead,
        &of_nobody,
        &long,
        &replay[..78],
        &replay[..15],
        // Anybody could answer these.
        b"LSL:timedata\r\n1 2.5\r\n",
        b" LSL:timedata \r\n1 2.5\r\n",
        b"LSL:timedata\n1 2.5",
        b"LSL:timedata\r\n",
        b"LSL:timedata 1 2.5\r\n",
    ] {
        clock.socket.send(drop).unwrap();
    }
    // One socket is served in order: if any had an answer, it would come first.
    let good = clock.probe();
    clock.socket.send(&good).unwrap();
    let length = clock.socket.recv(&mut buffer).unwrap();
    let answer = &buffer[..length];
    assert_eq!(answer.len(), TIME_PACKET_LEN, "{answer:?}");
    let reply = clock.prober.receive(answer, local_clock(), 10.0);
    assert!(reply.is_some());
    drop(reader);
}

#[test]
fn plaintext_probes_live_where_plaintext_does() {
    let place = Place::new();
    let trusts = vec![trusted("rec", TrustedRole::Both)];
    let amp = place.side_with("amp", Policy::Migrate, trusts, |settings| {
        settings.discovery = Discovery::Minimal;
    });
    for context in [&amp.context, &place.legacy()] {
        let outlet = lab::outlet(context, info("plain-time"));
        let socket = socket_to(&outlet);
        socket.send(b"LSL:timedata\r\n1 2.5\r\n").unwrap();
        let mut buffer = [0; 2048];
        let length = socket.recv(&mut buffer).unwrap();
        assert!(buffer[..length].starts_with(b" 1 2.5 "));
    }
}
