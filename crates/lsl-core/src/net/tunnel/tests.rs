use std::sync::Arc;

use lsl_secure::handshake::{Claim, Initiator, Responder};
use lsl_secure::{Descriptor, Local, OsRandom, Record, SecretKey, Session, Suites};
use proptest::prelude::*;

use super::sending::MAX_UNSENT_BYTES;
use super::*;

/// Both ends of a session: the outlet's, the inlet's.
fn sessions(pad_to: u16) -> (Session, Session) {
    let local = |seed| {
        Arc::new(Local {
            key: SecretKey::from_seed(&[seed; 32]),
            psk: None,
            suites: Suites::ChaCha20Only,
            pad_to,
        })
    };
    let descriptor = Descriptor {
        uid: b"u".to_vec(),
        name: b"n".to_vec(),
        stream_type: Vec::new(),
        source_id: Vec::new(),
        hostname: Vec::new(),
        session_id: Vec::new(),
        channel_count: 1,
        nominal_srate: 1.0,
        channel_format: 1,
        created_at: 1.0,
    };
    let (initiator, hello) = Initiator::start(local(1), &mut OsRandom).unwrap();
    let m1 = &hello[lsl_secure::handshake::PREAMBLE.len()..];
    let (wait, m2) = Responder::new(local(2))
        .receive_m1(m1, &mut OsRandom)
        .unwrap();
    let (unconfirmed, m3) = initiator.receive_m2(&m2).unwrap().accept().unwrap();
    let Ok(Claim::Verified(verified)) = wait.receive_m3(&m3) else {
        panic!("M3 is refused");
    };
    let (outlet, mut record) = verified.accept(&descriptor).unwrap();
    let (inlet, _) = unconfirmed.receive_descriptor(&mut record).unwrap();
    (outlet, inlet)
}

/// A socket with room for so many bytes at a time.
#[derive(Default)]
struct Socket {
    room: usize,
    received: Vec<u8>,
}

impl Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(self.room);
        if taken == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.room -= taken;
        self.received.extend_from_slice(&bytes[..taken]);
        Ok(taken)
    }
}

/// What the peer makes of what it received.
#[derive(Debug, Default, PartialEq)]
struct Opened {
    data: Vec<u8>,
    pongs: Vec<f64>,
    /// How much DATA came before each PONG.
    pong_after: Vec<usize>,
    closed: bool,
}

fn open(inlet: &mut Session, received: &mut [u8]) -> Opened {
    let mut opened = Opened::default();
    inlet
        .opener
        .receive(received, 1.0, |record| {
            match record {
                Record::Data(data) => opened.data.extend_from_slice(data),
                Record::Pong([t0, ..]) => {
                    opened.pongs.push(t0);
                    opened.pong_after.push(opened.data.len());
                }
                Record::Close => opened.closed = true,
                other => panic!("{other:?}"),
            }
            Ok(())
        })
        .unwrap();
    opened
}

fn pong(t0: f64) -> Pong {
    Pong { t0, t1: t0 }
}

#[test]
fn a_full_socket_stalls_sealing_within_the_limit() {
    for pad_to in [0, 4096] {
        let (outlet, mut inlet) = sessions(pad_to);
        let mut sending = Sending::new(outlet.sealer);
        let mut socket = Socket {
            room: 1000,
            ..Socket::default()
        };
        let bytes: Vec<u8> = (0..=255).cycle().take(1 << 20).collect();
        let sealed = sending.send(&bytes, &mut |b| socket.write(b)).unwrap();
        assert!(sealed >= 32 * 1024 && sealed < bytes.len());
        assert!(sending.unsent() > sealed - 1000);
        // Nothing more is committed, whatever else has to be said.
        for _ in 0..100 {
            let refused = sending.send(&bytes[sealed..], &mut |b| socket.write(b));
            assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::WouldBlock);
            sending.pong = Some(pong(7.0));
            assert!(!sending.flush(&mut |b| socket.write(b)).unwrap());
        }
        sending.sealer.seal_close(&mut sending.out).unwrap();
        sending.last = true;
        assert!(sending.unsent() <= MAX_UNSENT_BYTES);
        socket.room = usize::MAX;
        assert!(sending.flush(&mut |b| socket.write(b)).unwrap());
        let opened = open(&mut inlet, &mut socket.received);
        assert_eq!(opened.data, bytes[..sealed]);
        assert!(
            opened.closed && opened.pongs.is_empty(),
            "CLOSE is the last"
        );
    }
}

#[test]
fn only_the_newest_ping_is_answered_and_before_more_data() {
    let (outlet, mut inlet) = sessions(0);
    let mut sending = Sending::new(outlet.sealer);
    let mut socket = Socket {
        room: 10,
        ..Socket::default()
    };
    assert_eq!(
        sending.send(&[1; 100], &mut |b| socket.write(b)).unwrap(),
        100
    );
    for n in 1..=50 {
        sending.pong = Some(pong(f64::from(n)));
        assert!(!sending.flush(&mut |b| socket.write(b)).unwrap());
    }
    socket.room = usize::MAX;
    assert_eq!(
        sending.send(&[2; 100], &mut |b| socket.write(b)).unwrap(),
        100
    );
    let opened = open(&mut inlet, &mut socket.received);
    assert_eq!(opened.pongs, [50.0]);
    assert_eq!(opened.pong_after, [100]);
    assert_eq!(opened.data.len(), 200);
}

#[test]
fn a_warm_session_allocates_nothing() {
    let (outlet, _) = sessions(0);
    let mut sending = Sending::new(outlet.sealer);
    let mut discard = |bytes: &[u8]| Ok(bytes.len());
    sending.send(&[0; 4096], &mut discard).unwrap();
    let (place, capacity) = (sending.out.as_ptr(), sending.out.capacity());
    for n in 0..1000 {
        sending.send(&[0; 4096][..n], &mut discard).unwrap();
    }
    assert_eq!(
        (sending.out.as_ptr(), sending.out.capacity()),
        (place, capacity)
    );
}

#[test]
fn a_failed_session_says_not_a_byte_more() {
    let (outlet, _) = sessions(0);
    let mut sending = Sending::new(outlet.sealer);
    let mut socket = Socket {
        room: 10,
        ..Socket::default()
    };
    sending.send(&[1; 100], &mut |b| socket.write(b)).unwrap();
    sending.pong = Some(pong(1.0));
    sending.fail(Cause::RecordAuthFailed);
    sending.fail(Cause::Truncated);
    socket.room = usize::MAX;
    assert!(sending.flush(&mut |b| socket.write(b)).unwrap());
    assert!(sending.send(&[1; 100], &mut |b| socket.write(b)).is_err());
    assert_eq!(socket.received.len(), 10);
    assert_eq!(sending.failure, Some(Cause::RecordAuthFailed), "the first");
}

#[test]
fn key_updates_are_reported_once() {
    let (outlet, mut inlet) = sessions(0);
    let mut sending = Sending::new(outlet.sealer);
    sending.sealer.seal_key_update(&mut sending.out).unwrap();
    assert!(sending.has_news());
    assert_eq!(sending.take_news(), 1);
    assert!(!sending.has_news());
    assert_eq!(sending.take_news(), 0);
    let mut receiving = Receiving::new(outlet.opener);
    let mut update = Vec::new();
    inlet.sealer.seal_key_update(&mut update).unwrap();
    let news = receiving.take(&mut update, 1.0).unwrap();
    assert_eq!(news.heard, Heard::Records, "it shows that the peer lives");
    assert_eq!(receiving.take_news(), 1);
}

#[test]
fn the_inbox_is_taken_in_pieces_and_in_order() {
    let (outlet, mut inlet) = sessions(0);
    let mut receiving = Receiving::new(outlet.opener);
    let mut wire = Vec::new();
    for part in [&b"LSL:"[..], b"fullinfo", b"\r\n"] {
        inlet.sealer.seal_data(part, 1.0, &mut wire).unwrap();
    }
    inlet.sealer.seal_ping(3.0, &mut wire).unwrap();
    inlet.sealer.seal_ping(4.0, &mut wire).unwrap();
    let mut taken = Vec::new();
    let mut pings = Vec::new();
    let mut buffer = [0; 3];
    for piece in wire.chunks_mut(7) {
        let news = receiving.take(piece, 1.0).unwrap();
        pings.extend(news.ping);
        loop {
            match receiving.take_inbox(&mut buffer) {
                0 => break,
                length => taken.extend_from_slice(&buffer[..length]),
            }
        }
    }
    assert_eq!(taken, b"LSL:fullinfo\r\n");
    assert_eq!(pings, [3.0, 4.0]);
    assert!(matches!(receiving.end_of_stream(), Err(End::Stream(_))));
    let mut close = Vec::new();
    inlet.sealer.seal_close(&mut close).unwrap();
    let news = receiving.take(&mut close, 1.0).unwrap();
    assert_eq!(news.heard, Heard::Close);
    assert!(receiving.end_of_stream().is_ok());
}

#[test]
fn the_peers_alert_and_its_mistakes_are_told_apart() {
    let (outlet, mut inlet) = sessions(0);
    let mut receiving = Receiving::new(outlet.opener);
    let mut alert = Vec::new();
    let (cause, text) = (Cause::DescriptorMismatch, "other stream");
    inlet.sealer.seal_alert(cause, text, &mut alert).unwrap();
    match receiving.take(&mut alert, 1.0) {
        Err(End::Peer { cause: told, text }) => {
            assert_eq!((told, text.as_str()), (cause, "other stream"));
        }
        other => panic!("{other:?}"),
    }
    let (outlet, mut inlet) = sessions(0);
    let mut receiving = Receiving::new(outlet.opener);
    let mut forged = Vec::new();
    inlet.sealer.seal_ping(1.0, &mut forged).unwrap();
    forged[5] ^= 1;
    match receiving.take(&mut forged, 1.0) {
        Err(End::Here(error)) => assert_eq!(error.cause(), Cause::RecordAuthFailed),
        other => panic!("{other:?}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// However the socket cuts and stalls, and whoever speaks in between: what was accepted arrives,
    /// whole, in order and once.
    #[test]
    fn what_was_accepted_arrives(
        steps in proptest::collection::vec((0..70_000_usize, 0..40_000_usize, any::<bool>()), 1..60),
        padded in any::<bool>(),
    ) {
        let (outlet, mut inlet) = sessions(if padded { 256 } else { 0 });
        let mut sending = Sending::new(outlet.sealer);
        let mut socket = Socket::default();
        let mut accepted = Vec::new();
        for (n, (length, room, ping)) in steps.into_iter().enumerate() {
            socket.room = room;
            if ping {
                sending.pong = Some(pong(1.0));
            }
            let byte = u8::try_from(n).unwrap();
            match sending.send(&vec![byte; length], &mut |b| socket.write(b)) {
                Ok(sealed) => accepted.extend(std::iter::repeat_n(byte, sealed)),
                Err(error) => prop_assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
            }
            prop_assert!(sending.unsent() <= MAX_UNSENT_BYTES);
        }
        socket.room = usize::MAX;
        prop_assert!(sending.flush(&mut |b| socket.write(b)).unwrap());
        prop_assert_eq!(sending.unsent(), 0);
        prop_assert!(open(&mut inlet, &mut socket.received).data == accepted);
    }
}
