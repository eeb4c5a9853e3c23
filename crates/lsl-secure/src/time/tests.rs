//! Probes, replays, reflections and limits. Spec: LSS/1 §9.3.

use super::*;
use crate::AeadKey;

const MAX_RTT: f64 = 0.128;

fn keys(session: u8) -> TimeKeys {
    let id = SessionId([session; 16]);
    // Other sessions have other keys, too.
    let secret = |side: u8| Secret::new([session ^ side; 32]);
    TimeKeys::new(id, secret(0x10), secret(0x20))
}

fn pair() -> (TimeProber, TimeResponder) {
    (keys(1).into_prober(), keys(1).into_responder())
}

fn answer(responder: &mut TimeResponder, packet: &[u8]) -> Option<[u8; TIME_PACKET_LEN]> {
    responder.answer(packet, 50.0, || 50.25)
}

/// A packet with any plaintext, sealed under the key of `side` (0x10 inlet, 0x20 outlet).
fn forge(side: u8, counter: u64, text: [u8; TEXT_LEN]) -> [u8; TIME_PACKET_LEN] {
    let keys = keys(1);
    let (ours, theirs) = if side == 0x10 {
        (keys.initiator, keys.responder)
    } else {
        (keys.responder, keys.initiator)
    };
    let mut end = TimeEnd::new(keys.prefix, ours, theirs, keys.generation);
    end.counter = counter;
    end.seal(text).unwrap().1
}

fn reply(request: u64, times: [f64; 3]) -> [u8; TEXT_LEN] {
    let mut text = [0; TEXT_LEN];
    text[..8].copy_from_slice(&request.to_be_bytes());
    for (to, time) in text[8..].chunks_exact_mut(8).zip(times) {
        to.copy_from_slice(&time.to_be_bytes());
    }
    text
}

#[test]
fn a_probe_and_its_reply() {
    let (mut prober, mut responder) = pair();
    for round in 0..1000_u32 {
        let t0 = 100.0 + f64::from(round);
        let probe = prober.probe(t0).unwrap();
        assert_eq!(session_prefix(&probe), Some(responder.prefix()));
        let packet = answer(&mut responder, &probe).unwrap();
        assert_eq!(session_prefix(&packet), Some(responder.prefix()));
        let reply = prober.receive(&packet, t0 + 0.3, MAX_RTT).unwrap();
        let (t1, t2) = (50.0, 50.25);
        assert_eq!(reply, TimeReply { t0, t1, t2 });
    }
}

#[test]
fn replies_may_come_in_any_order_but_once() {
    let (mut prober, mut responder) = pair();
    let packets: Vec<_> = (0..3)
        .map(|round| {
            let probe = prober.probe(f64::from(round)).unwrap();
            answer(&mut responder, &probe).unwrap()
        })
        .collect();
    for round in [2, 0, 1_u8] {
        let packet = &packets[usize::from(round)];
        let now = f64::from(round) + 0.25;
        let reply = prober.receive(packet, now, MAX_RTT).unwrap();
        assert_eq!(reply.t0.to_bits(), f64::from(round).to_bits());
        assert_eq!(prober.receive(packet, now, MAX_RTT), None);
    }
}

#[test]
fn every_changed_bit_is_dropped() {
    let (mut prober, mut responder) = pair();
    let probe = prober.probe(1.0).unwrap();
    for bit in 0..TIME_PACKET_LEN * 8 {
        let mut changed = probe;
        changed[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(answer(&mut responder, &changed), None, "bit {bit}");
    }
    // None of them has moved the window or used up the probe.
    let packet = answer(&mut responder, &probe).unwrap();
    for bit in 0..TIME_PACKET_LEN * 8 {
        let mut changed = packet;
        changed[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(prober.receive(&changed, 1.25, MAX_RTT), None, "bit {bit}");
    }
    assert!(prober.receive(&packet, 1.25, MAX_RTT).is_some());
}

#[test]
fn other_lengths_and_prefixes_are_dropped() {
    let (mut prober, mut responder) = pair();
    let probe = prober.probe(1.0).unwrap();
    for len in (0..100).filter(|&len| len != TIME_PACKET_LEN) {
        let mut packet = probe.to_vec();
        packet.resize(len, 0);
        assert_eq!(session_prefix(&packet), None);
        assert_eq!(answer(&mut responder, &packet), None);
        assert_eq!(prober.receive(&packet, 1.0, MAX_RTT), None);
    }
    let mut other = probe;
    other[..15].copy_from_slice(b"LSL:timedata\r\n\0");
    assert_eq!(session_prefix(&other), None);
    assert!(answer(&mut responder, &probe).is_some());
}

#[test]
fn other_sessions_and_the_own_side_are_no_peers() {
    let (mut prober, mut responder) = pair();
    let probe = prober.probe(1.0).unwrap();
    assert_eq!(answer(&mut keys(2).into_responder(), &probe), None);
    // Another session under the same name.
    let mut other = keys(2).into_prober().probe(1.0).unwrap();
    other[15..23].copy_from_slice(&[1; 8]);
    assert_eq!(answer(&mut responder, &other), None);
    // Reflected, both ways.
    assert_eq!(prober.receive(&probe, 1.0, MAX_RTT), None);
    let packet = answer(&mut responder, &probe).unwrap();
    assert_eq!(answer(&mut responder, &packet), None);
}

#[test]
fn a_forged_high_counter_does_not_move_the_window() {
    let (mut prober, mut responder) = pair();
    let mut forged = prober.probe(1.0).unwrap();
    forged[23..31].copy_from_slice(&1_000_000_u64.to_be_bytes());
    assert_eq!(answer(&mut responder, &forged), None);
    for round in 0..100 {
        let probe = prober.probe(f64::from(round)).unwrap();
        assert!(answer(&mut responder, &probe).is_some());
    }
}

#[test]
fn the_window_takes_each_counter_once_and_none_too_old() {
    let (mut prober, mut responder) = pair();
    let probes: Vec<_> = (0..200).map(|_| prober.probe(1.0).unwrap()).collect();
    let mut check = |counter: usize, new: bool| {
        let answered = answer(&mut responder, &probes[counter]).is_some();
        assert_eq!(answered, new, "counter {counter}");
    };
    check(10, true);
    check(10, false);
    check(0, true);
    check(0, false);
    check(73, true);
    // 73 - 63 = 10 is the last place of the window, 9 is out of it.
    check(10, false);
    check(9, false);
    check(11, true);
    check(11, false);
    check(74, true);
    check(72, true);
    check(73, false);
    // Jumps by exactly the width and by more.
    check(138, true);
    check(74, false);
    check(75, true);
    check(199, true);
    check(135, false);
    check(136, true);
}

/// Against the plain definition: a set of all counters seen, and the highest.
#[test]
fn the_window_follows_its_definition() {
    let mut window = ReplayWindow::default();
    let (mut seen, mut highest) = (std::collections::HashSet::new(), None);
    let mut state = 12345_u64;
    for _ in 0..20_000 {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let step = (state >> 33) % 140;
        let counter = (highest.unwrap_or(0) + step).saturating_sub(100);
        let old = highest.is_some_and(|highest| counter + 64 <= highest) || seen.contains(&counter);
        assert_eq!(window.has_seen(counter), old, "{counter} after {highest:?}");
        if !old {
            window.note(counter);
            seen.insert(counter);
            highest = highest.max(Some(counter));
        }
    }
    let mut window = ReplayWindow::default();
    for counter in [0, MOST_PACKETS - 1, u64::MAX - 1] {
        assert!(!window.has_seen(counter));
        window.note(counter);
        assert!(window.has_seen(counter));
    }
}

#[test]
fn what_a_reply_must_say() {
    let check = |times: [f64; 3], now: f64, accepted: bool| {
        let (mut prober, _) = pair();
        prober.probe(10.0).unwrap();
        let packet = forge(0x20, 0, reply(0, times));
        let received = prober.receive(&packet, now, MAX_RTT);
        assert_eq!(received.is_some(), accepted, "{times:?} at {now}");
        // Whatever it said, it was the one reply.
        let again = forge(0x20, 1, reply(0, [10.0, 5.0, 5.0]));
        assert_eq!(prober.receive(&again, 10.0, MAX_RTT), None);
    };
    check([10.0, 5.0, 5.0], 10.0, true);
    check([10.0, 5.0, 5.0], 10.1, true);
    check([10.0, -7.0, -6.0], 11.1, true);
    check([10.0, 5.0, 5.0], 10.2, false);
    check([10.0, 5.0, 5.0], 9.9, false);
    check([10.0, 5.0, 6.0], 10.5, false);
    // Of another clock, perhaps: that is for the caller to judge.
    check([10.0, 5.1, 5.0], 10.0, true);
    check([10.000_000_1, 5.0, 5.0], 10.1, false);
    check([10.0, f64::NAN, 5.0], 10.1, false);
    check([10.0, 5.0, f64::INFINITY], 10.1, false);
    check([10.0, f64::NEG_INFINITY, 5.0], 10.1, false);
    check([10.0, 5.0, 5.0], f64::NAN, false);
    check([10.0, 5.0, 5.0], f64::INFINITY, false);
}

#[test]
fn t0_is_compared_by_its_bits() {
    let check = |sent: f64, echoed: f64, accepted: bool| {
        let (mut prober, _) = pair();
        prober.probe(sent).unwrap();
        let packet = forge(0x20, 0, reply(0, [echoed, 1.0, 1.0]));
        assert_eq!(prober.receive(&packet, 0.1, MAX_RTT).is_some(), accepted);
    };
    check(0.0, 0.0, true);
    check(0.0, -0.0, false);
    check(-0.0, 0.0, false);
    check(f64::NAN, f64::NAN, false);
}

#[test]
fn replies_to_nothing_are_dropped() {
    let (mut prober, _) = pair();
    let packet = forge(0x20, 0, reply(0, [10.0, 5.0, 5.0]));
    assert_eq!(prober.receive(&packet, 10.0, MAX_RTT), None);
    prober.probe(10.0).unwrap();
    let packet = forge(0x20, 1, reply(1, [10.0, 5.0, 5.0]));
    assert_eq!(prober.receive(&packet, 10.0, MAX_RTT), None);
    let packet = forge(0x20, 2, reply(0, [10.0, 5.0, 5.0]));
    assert!(prober.receive(&packet, 10.0, MAX_RTT).is_some());
}

#[test]
fn unanswered_probes_are_forgotten() {
    let (mut prober, mut responder) = pair();
    let probes: Vec<_> = (0..100).map(|_| prober.probe(1.0).unwrap()).collect();
    assert_eq!(prober.outstanding.len(), MOST_OUTSTANDING);
    for (counter, probe) in probes.iter().enumerate() {
        let packet = answer(&mut responder, probe).unwrap();
        let received = prober.receive(&packet, 1.25, MAX_RTT);
        assert_eq!(received.is_some(), counter >= 36, "{counter}");
    }
}

#[test]
fn requests_that_say_something_else_are_dropped() {
    let check = |text: [u8; TEXT_LEN], answered: bool| {
        let (_, mut responder) = pair();
        let packet = forge(0x10, 0, text);
        assert_eq!(
            answer(&mut responder, &packet).is_some(),
            answered,
            "{text:?}"
        );
    };
    let mut text = [0; TEXT_LEN];
    check(text, true);
    text[31] = 1;
    check(text, false);
    let mut text = [0; TEXT_LEN];
    text[..8].copy_from_slice(&f64::NAN.to_be_bytes());
    check(text, false);
}

#[test]
fn counters_end() {
    let (mut prober, mut responder) = pair();
    prober.end.counter = MOST_PACKETS - 1;
    let last = prober.probe(1.0).unwrap();
    for _ in 0..2 {
        assert_eq!(prober.probe(1.0).unwrap_err().cause(), Cause::KeyLimit);
    }
    assert!(answer(&mut responder, &last).is_some());

    // A prober that goes on is not heard.
    let key = AeadKey::from_secret(Suite::ChaCha20Poly1305, &[0x11; 32]);
    let mut packet = last;
    packet[23..31].copy_from_slice(&MOST_PACKETS.to_be_bytes());
    let mut text = [0; TEXT_LEN];
    let tag = key.seal(MOST_PACKETS, &packet[..HEAD_LEN], &mut text);
    packet[HEAD_LEN..63].copy_from_slice(&text);
    packet[63..].copy_from_slice(&tag);
    let (_, mut responder) = pair();
    assert!(
        responder
            .end
            .open(&packet, PacketHeader::parse(&packet).unwrap())
            .is_some(),
        "it is authentic"
    );
    assert_eq!(answer(&mut responder, &packet), None);

    let (mut prober, mut responder) = pair();
    responder.end.counter = MOST_PACKETS;
    assert_eq!(answer(&mut responder, &prober.probe(1.0).unwrap()), None);
}
