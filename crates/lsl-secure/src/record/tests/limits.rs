//! Counters and clocks at their ends, injected. Spec: LSS/1 §8.5.

use super::super::open::MOST_RECORDS as MOST_RECEIVED;
use super::*;

const SUITE: Suite = Suite::ChaCha20Poly1305;

#[test]
fn the_key_is_updated_before_its_records_run_out() {
    let check = |counter: u64, updates: u64| {
        let (mut sealer, mut opener) = direction(SUITE, Role::Inlet, 0);
        sealer.ratchet().set_counter(counter);
        opener.ratchet().set_counter(counter);
        let mut wire = Vec::new();
        sealer.seal_data(b"x", NOW, &mut wire).unwrap();
        assert_eq!(sealer.totals().key_updates, updates, "at {counter}");
        assert!(sealer.ratchet().counter() < MOST_RECORDS);
        let (events, received) = open(&mut opener, &wire);
        received.unwrap();
        assert_eq!(events, [Event::Data(b"x".to_vec())]);
    };
    check(0, 0);
    check(MOST_RECORDS - 2, 0);
    check(MOST_RECORDS - 1, 1);
    check(MOST_RECORDS, 1);
    check(MOST_RECEIVED - 1, 1);
}

#[test]
fn every_type_takes_part_in_the_limit() {
    type Seal = fn(&mut Sealer, &mut Vec<u8>) -> Result<()>;
    let seals: [Seal; 3] = [
        |sealer, out| sealer.seal_ping(NOW, out),
        |sealer, out| sealer.seal_close(out),
        |sealer, out| sealer.seal_alert(Cause::Busy, "", out),
    ];
    for seal in seals {
        let (mut sealer, _) = direction(SUITE, Role::Inlet, 0);
        sealer.ratchet().set_counter(MOST_RECORDS - 1);
        let mut wire = Vec::new();
        seal(&mut sealer, &mut wire).unwrap();
        assert_eq!(sealer.totals().key_updates, 1);
        assert_eq!(split_records(&wire).len(), 2);
    }
}

#[test]
fn the_key_is_updated_before_its_bytes_run_out() {
    let check = |key_bytes: u64, pad_to: u16, updates: u64| {
        let (mut sealer, _) = direction(SUITE, Role::Inlet, pad_to);
        sealer.set_key_bytes(key_bytes);
        let mut wire = Vec::new();
        sealer.seal_data(b"x", NOW, &mut wire).unwrap();
        assert_eq!(sealer.totals().key_updates, updates, "at {key_bytes}");
    };
    // One DATA of 20 and one KEY_UPDATE of 19 bytes.
    check(MOST_BYTES - 39, 0, 0);
    check(MOST_BYTES - 38, 0, 1);
    // Padded to 64 both.
    check(MOST_BYTES - 2 * 83, 64, 0);
    check(MOST_BYTES - 2 * 83 + 1, 64, 1);
}

/// Compares the short way of most records with the way that knows every limit. Later records only: the
/// first one under a key always takes the long way.
#[test]
fn a_routine_record_is_what_the_long_way_makes_of_it() {
    let later = |pad_to: u16, counter: u64, key_bytes: u64| {
        let (mut sealer, _) = direction(SUITE, Role::Inlet, pad_to);
        sealer.seal_data(b"x", NOW, &mut Vec::new()).unwrap();
        sealer.ratchet().set_counter(counter);
        sealer.set_key_bytes(key_bytes);
        sealer
    };
    let lens = [0, 1, 100, MAX_PAYLOAD - 2, MAX_PAYLOAD, MAX_PAYLOAD + 1];
    let room = |len: usize| u64::try_from(len + 2 * RECORD_OVERHEAD).unwrap();
    for pad_to in [0, 64] {
        for counter in [1, MOST_RECORDS - 2, MOST_RECORDS - 1, MOST_RECORDS] {
            for len in lens {
                for key_bytes in [0, MOST_BYTES - room(len), MOST_BYTES - room(len) + 1] {
                    for age in [0.0, 3599.0, 3600.0] {
                        let bytes = vec![7; len];
                        let [mut routine, mut any] =
                            [(); 2].map(|()| later(pad_to, counter, key_bytes));
                        let [mut wire, mut expected] = [Vec::new(), Vec::new()];
                        let got = routine.seal_data(&bytes, NOW + age, &mut wire);
                        let wanted = any.seal_any(&bytes, NOW + age, &mut expected);
                        let case = (pad_to, counter, len, key_bytes, age);
                        assert_eq!(cause_of(got), cause_of(wanted), "{case:?}");
                        assert!(wire == expected, "{case:?}");
                        assert_eq!(routine.totals(), any.totals(), "{case:?}");
                    }
                }
            }
        }
    }
}

#[test]
fn bytes_of_all_records_count() {
    let (mut sealer, _) = direction(SUITE, Role::Inlet, 0);
    sealer.set_key_bytes(MOST_BYTES - 3 * 16_403);
    let mut wire = Vec::new();
    sealer
        .seal_data(&vec![0; 5 * MAX_PAYLOAD], NOW, &mut wire)
        .unwrap();
    assert_eq!(sealer.totals().key_updates, 1);
    let lens: Vec<_> = split_records(&wire).iter().map(Vec::len).collect();
    assert_eq!(lens, [16_403, 16_403, 19, 16_403, 16_403, 16_403]);
}

#[test]
fn the_receiver_has_a_limit_too() {
    let check = |counter: u64, kind: Kind, cause: Option<Cause>| {
        let (_, mut opener) = direction(SUITE, Role::Inlet, 0);
        opener.ratchet().set_counter(counter);
        let text = match kind {
            Kind::Data => vec![kind.byte(), 1],
            _ => vec![kind.byte()],
        };
        let (_, received) = open(&mut opener, &forge(SUITE, 1, counter, &text));
        assert_eq!(cause_of(received), cause, "at {counter}");
    };
    check(MOST_RECEIVED - 1, Kind::Data, None);
    check(MOST_RECEIVED - 1, Kind::KeyUpdate, None);
    check(MOST_RECEIVED, Kind::Data, Some(Cause::KeyLimit));
    check(MOST_RECEIVED, Kind::KeyUpdate, Some(Cause::KeyLimit));
    check(u64::MAX, Kind::Data, Some(Cause::KeyLimit));
}

#[test]
fn the_counter_never_wraps() {
    let (mut sealer, _) = direction(SUITE, Role::Inlet, 0);
    sealer.ratchet().set_counter(u64::MAX);
    let mut wire = b"before".to_vec();
    for _ in 0..2 {
        assert!(sealer.seal_data(b"x", NOW, &mut wire).is_err());
        assert_eq!(wire, b"before", "nothing in clear may be left");
    }
    assert!(sealer.ratchet().is_erased());
}

#[test]
fn the_key_is_updated_hourly_at_the_next_record() {
    let updates = |sealer: &Sealer| sealer.totals().key_updates;
    let (mut sealer, mut opener) = direction(SUITE, Role::Inlet, 0);
    let mut wire = Vec::new();
    sealer.seal_data(b"x", NOW, &mut wire).unwrap();
    sealer
        .seal_data(b"x", NOW + UPDATE_SECS - 0.001, &mut wire)
        .unwrap();
    assert_eq!(updates(&sealer), 0);
    // A silent inlet only ever sends PING.
    sealer.seal_ping(NOW + UPDATE_SECS, &mut wire).unwrap();
    assert_eq!(updates(&sealer), 1);
    sealer
        .seal_ping(NOW + 2.0 * UPDATE_SECS - 0.001, &mut wire)
        .unwrap();
    assert_eq!(updates(&sealer), 1);
    sealer
        .seal_data(b"x", NOW + 2.0 * UPDATE_SECS, &mut wire)
        .unwrap();
    assert_eq!(updates(&sealer), 2);
    // One made by hand starts a new hour, at the next record that knows the time.
    sealer.seal_key_update(&mut wire).unwrap();
    let by_hand = NOW + 2.5 * UPDATE_SECS;
    sealer.seal_data(b"x", by_hand, &mut wire).unwrap();
    sealer
        .seal_data(b"x", by_hand + UPDATE_SECS - 1.0, &mut wire)
        .unwrap();
    assert_eq!(updates(&sealer), 3);
    sealer
        .seal_data(b"x", by_hand + UPDATE_SECS, &mut wire)
        .unwrap();
    assert_eq!(updates(&sealer), 4);
    let (_, received) = open(&mut opener, &wire);
    received.unwrap();

    let (mut outlet, _) = introduced(SUITE, 0);
    outlet.seal_pong([0.0, NOW, NOW], &mut wire).unwrap();
    outlet
        .seal_pong([0.0, NOW, NOW + UPDATE_SECS], &mut wire)
        .unwrap();
    assert_eq!(updates(&outlet), 1);
}

#[test]
fn a_clock_that_makes_no_sense_does_not_flood_updates() {
    let (mut sealer, _) = direction(SUITE, Role::Inlet, 0);
    let mut wire = Vec::new();
    for now in [f64::NAN, NOW, f64::NEG_INFINITY, f64::NAN, 0.0, NOW] {
        sealer.seal_data(b"x", now, &mut wire).unwrap();
    }
    assert_eq!(sealer.totals().key_updates, 0);
}

#[test]
fn seventeen_updates_in_a_second_are_too_many() {
    let check = |times: &[f64], allowed: usize| {
        let (mut sealer, mut opener) = direction(SUITE, Role::Inlet, 0);
        for (at, &now) in times.iter().enumerate() {
            let mut wire = Vec::new();
            sealer.seal_key_update(&mut wire).unwrap();
            let (_, received) = open_in_pieces(&mut opener, &wire, now, &[]);
            let expected = (at >= allowed).then_some(Cause::UnexpectedRecord);
            assert_eq!(cause_of(received), expected, "update {at} at {now}");
        }
    };
    check(&[NOW; 17], 16);
    let slow: Vec<_> = (0..100).map(|at| NOW + f64::from(at) / 15.9).collect();
    check(&slow, 100);
    let fast: Vec<_> = (0..20).map(|at| NOW + f64::from(at) / 16.1).collect();
    check(&fast, 16);
    // A burst, a pause, and another burst.
    let bursts: Vec<_> = [[NOW; 16], [NOW + 1.0; 16]].concat();
    check(&bursts, 32);
    check(&[f64::NAN; 2], 0);
}
