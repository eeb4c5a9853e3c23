//! Everything an attacker, or a peer that breaks the rules, can do with records.

use super::*;

const SUITE: Suite = Suite::ChaCha20Poly1305;

/// Opens authentic records with these plaintexts, as sent by `from`, and returns how it ends.
fn check(from: Role, texts: &[&[u8]], cause: Option<Cause>) {
    let seed = if from == Role::Inlet { 1 } else { 2 };
    let wire: Vec<u8> = texts
        .iter()
        .enumerate()
        .flat_map(|(counter, text)| forge(SUITE, seed, counter as u64, text))
        .collect();
    let whole = {
        let (_, mut opener) = direction(SUITE, from, 0);
        let (events, received) = open(&mut opener, &wire);
        assert_eq!(cause_of(received), cause, "{from:?} {texts:?}");
        if let Some(cause) = cause {
            // Final, and the key is gone.
            assert!(opener.ratchet().is_erased());
            assert_eq!(
                cause_of(opener.receive(&mut [0], NOW, |_| Ok(()))),
                Some(cause)
            );
            assert_eq!(
                cause_of(opener.receive(&mut [], NOW, |_| Ok(()))),
                Some(cause)
            );
            assert_eq!(cause_of(opener.end()), Some(cause));
        }
        events
    };
    let (_, mut opener) = direction(SUITE, from, 0);
    let (events, received) = open_in_pieces(&mut opener, &wire, NOW, &[1]);
    assert_eq!((events, cause_of(received)), (whole, cause), "byte by byte");
}

const DESC: &[u8] = &[2, 1];
const DATA: &[u8] = &[1, 42];
const UPDATE: &[u8] = &[3];
const CLOSE: &[u8] = &[4, 0];
const PING: &[u8] = &[5, 0, 0, 0, 0, 0, 0, 0, 0];
const PONG: &[u8] = &[
    6, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
];
const ALERT: &[u8] = &[7, 12];
const UNEXPECTED: Option<Cause> = Some(Cause::UnexpectedRecord);

#[test]
fn what_each_side_may_send() {
    use Role::{Inlet, Outlet};
    check(Inlet, &[DATA, PING, DATA], None);
    check(Outlet, &[DESC, DATA, PONG, DATA], None);
    check(Inlet, &[PONG], UNEXPECTED);
    check(Inlet, &[DESC], UNEXPECTED);
    check(Inlet, &[DATA, DESC], UNEXPECTED);
    check(Outlet, &[DESC, PING], UNEXPECTED);
    check(Outlet, &[DESC, DESC], UNEXPECTED);
    check(Outlet, &[DESC, DATA, DESC], UNEXPECTED);
}

#[test]
fn nothing_comes_before_the_descriptor() {
    for first in [DATA, UPDATE, CLOSE, PING, PONG, &[0x83], &[9]] {
        check(Role::Outlet, &[first], UNEXPECTED);
        check(Role::Outlet, &[first, DESC], UNEXPECTED);
    }
    check(Role::Outlet, &[ALERT], Some(Cause::Busy));
}

#[test]
fn nothing_comes_after_the_end() {
    for after in [DATA, UPDATE, CLOSE, PING, ALERT] {
        check(Role::Inlet, &[DATA, CLOSE, after], UNEXPECTED);
        check(Role::Inlet, &[DATA, ALERT, after], Some(Cause::Busy));
    }
    let (_, mut opener) = direction(SUITE, Role::Inlet, 0);
    open(&mut opener, &forge(SUITE, 1, 0, CLOSE)).1.unwrap();
    assert!(opener.ratchet().is_erased());
    opener.end().unwrap();
    // Not even one byte, whatever it belongs to.
    assert_eq!(cause_of(open(&mut opener, &[0]).1), UNEXPECTED);
    assert_eq!(cause_of(opener.end()), UNEXPECTED);
}

#[test]
fn unknown_types_and_wrong_lengths() {
    for kind in [0, 8, 9, 0x7f, 0x80, 0x88, 0xff] {
        // Padding of 2 bytes, so that the padded ones fail for their type too.
        check(Role::Inlet, &[&[kind, 0, 2]], UNEXPECTED);
    }
    check(Role::Inlet, &[&[1]], UNEXPECTED);
    check(Role::Inlet, &[&[0x81, 0, 2]], UNEXPECTED);
    check(Role::Inlet, &[&[3, 0]], UNEXPECTED);
    check(Role::Inlet, &[&[4]], UNEXPECTED);
    check(Role::Inlet, &[&[4, 0, 0]], UNEXPECTED);
    check(Role::Inlet, &[&[4, 9]], None);
    check(Role::Inlet, &[&[7]], UNEXPECTED);
    for len in (0..=9).filter(|&len| len != 8) {
        check(
            Role::Inlet,
            &[&[&[5], vec![0; len].as_slice()].concat()],
            UNEXPECTED,
        );
    }
    for len in (0..=25).filter(|&len| len != 24) {
        let pong = [&[6], vec![0; len].as_slice()].concat();
        check(Role::Outlet, &[DESC, &pong], UNEXPECTED);
    }
    let alert = |len: usize| [&[7, 13], vec![b'a'; len].as_slice()].concat();
    check(Role::Inlet, &[&alert(255)], Some(Cause::Timeout));
    check(Role::Inlet, &[&alert(256)], UNEXPECTED);
    check(Role::Inlet, &[&[7, 0]], Some(Cause::Internal));
    check(Role::Inlet, &[&[7, 200]], Some(Cause::Internal));
}

#[test]
fn alert_text_of_any_bytes_is_text() {
    let (_, mut opener) = direction(SUITE, Role::Inlet, 0);
    let (events, received) = open(&mut opener, &forge(SUITE, 1, 0, b"\x07\x0c\xff\x1b[2J\xc3"));
    let text = "\u{fffd}\u{1b}[2J\u{fffd}".to_owned();
    assert_eq!(events, [Event::Alert(Cause::Busy, text)]);
    // The error goes to logs and terminals.
    let safe = "\u{fffd}\\u{1b}[2J\u{fffd}";
    assert!(matches!(received, Err(Error::Alert { text: shown, .. }) if shown == safe));
}

#[test]
fn lengths_outside_the_format() {
    for len in 0..=u16::MAX {
        let cause = match len {
            0..=16 => Some(Cause::RecordAuthFailed),
            17..=16_401 => continue,
            _ => Some(Cause::RecordOverflow),
        };
        let (_, mut opener) = direction(SUITE, Role::Inlet, 0);
        // Before any memory is taken for it.
        assert_eq!(
            cause_of(open(&mut opener, &len.to_be_bytes()).1),
            cause,
            "{len}"
        );
        assert_eq!(opener.buffered(), 0);
    }
}

#[test]
fn the_longest_record_opens() {
    let (_, mut opener) = direction(SUITE, Role::Inlet, 0);
    let text = [&[1], vec![5; MAX_PAYLOAD].as_slice()].concat();
    let wire = forge(SUITE, 1, 0, &text);
    assert_eq!(wire.len(), 2 + MAX_RECORD_LEN);
    let (events, received) = open(&mut opener, &wire);
    received.unwrap();
    assert_eq!(events, [Event::Data(vec![5; MAX_PAYLOAD])]);
}

#[test]
fn truncation_is_noticed_wherever_it_happens() {
    let (mut sealer, _) = direction(SUITE, Role::Inlet, 0);
    let mut wire = Vec::new();
    sealer.seal_data(b"one", NOW, &mut wire).unwrap();
    sealer.seal_data(b"two", NOW, &mut wire).unwrap();
    let whole = wire.len();
    sealer.seal_close(&mut wire).unwrap();
    for len in 0..wire.len() {
        let (_, mut opener) = direction(SUITE, Role::Inlet, 0);
        let (events, received) = open(&mut opener, &wire[..len]);
        received.unwrap();
        let delivered = match len {
            ..22 => 0,
            22..44 => 1,
            _ => 2,
        };
        assert_eq!(events.len(), delivered);
        assert_eq!(cause_of(opener.end()), Some(Cause::Truncated));
    }
    assert_eq!(whole, 44);
}

#[test]
fn an_error_of_the_consumer_is_final_too() {
    let (mut sealer, mut opener) = direction(SUITE, Role::Inlet, 0);
    let mut wire = Vec::new();
    sealer.seal_data(b"one", NOW, &mut wire).unwrap();
    sealer.seal_data(b"two", NOW, &mut wire).unwrap();
    let mut calls = 0;
    let received = opener.receive(&mut wire, NOW, |_| {
        calls += 1;
        Err(Error::session(Cause::DescriptorMismatch, "mine"))
    });
    assert_eq!(cause_of(received), Some(Cause::DescriptorMismatch));
    assert_eq!(calls, 1);
    let again = opener.receive(&mut wire, NOW, |_| Ok(()));
    assert!(matches!(
        again,
        Err(Error::Session { cause: Cause::DescriptorMismatch, detail }) if detail == "mine"
    ));
}

#[test]
fn nothing_is_sealed_that_the_peer_would_refuse() {
    let mut out = Vec::new();
    let internal = Some(Cause::Internal);
    let (mut outlet, _) = direction(SUITE, Role::Outlet, 0);
    assert_eq!(cause_of(outlet.seal_data(b"x", NOW, &mut out)), internal);
    assert_eq!(cause_of(outlet.seal_key_update(&mut out)), internal);
    assert_eq!(cause_of(outlet.seal_pong([0.0; 3], &mut out)), internal);
    assert_eq!(cause_of(outlet.seal_close(&mut out)), internal);
    assert_eq!(cause_of(outlet.seal_ping(0.0, &mut out)), internal);
    assert_eq!(
        cause_of(outlet.seal_descriptor(&vec![0; 16_385], &mut out)),
        internal
    );
    outlet.seal_descriptor(&[0; 16_384], &mut out).unwrap();
    let sealed = out.len();
    assert_eq!(
        cause_of(outlet.seal_descriptor(b"again", &mut out)),
        internal
    );
    let (mut inlet, _) = direction(SUITE, Role::Inlet, 0);
    assert_eq!(cause_of(inlet.seal_descriptor(b"x", &mut out)), internal);
    assert_eq!(cause_of(inlet.seal_pong([0.0; 3], &mut out)), internal);
    assert_eq!(out.len(), sealed);

    // An outlet may refuse instead of introducing itself, and that is all.
    let (mut refusing, mut opener) = direction(SUITE, Role::Outlet, 0);
    let mut wire = Vec::new();
    refusing.seal_alert(Cause::Expired, "", &mut wire).unwrap();
    assert_eq!(
        cause_of(refusing.seal_descriptor(b"x", &mut wire)),
        internal
    );
    assert_eq!(cause_of(open(&mut opener, &wire).1), Some(Cause::Expired));
}

#[test]
fn nothing_is_sealed_after_the_end() {
    for alert in [false, true] {
        let (mut sealer, _) = direction(SUITE, Role::Inlet, 0);
        let mut out = Vec::new();
        if alert {
            sealer.seal_alert(Cause::Busy, "", &mut out).unwrap();
        } else {
            sealer.seal_close(&mut out).unwrap();
        }
        let sealed = out.len();
        let internal = Some(Cause::Internal);
        assert!(sealer.ratchet().is_erased());
        assert_eq!(cause_of(sealer.seal_data(b"x", NOW, &mut out)), internal);
        assert_eq!(cause_of(sealer.seal_data(b"", NOW, &mut out)), internal);
        assert_eq!(cause_of(sealer.seal_ping(NOW, &mut out)), internal);
        assert_eq!(cause_of(sealer.seal_key_update(&mut out)), internal);
        assert_eq!(cause_of(sealer.seal_close(&mut out)), internal);
        assert_eq!(
            cause_of(sealer.seal_alert(Cause::Busy, "", &mut out)),
            internal
        );
        assert_eq!(out.len(), sealed);
    }
}
