//! Whole handshakes: what comes out of them, against the reference and on both sides.

use super::super::schedule::Ephemeral;
use super::*;
use crate::kdf::expand_label_into;
use crate::{AeadKey, Record, Role, Sealer, Suite};

#[test]
fn both_sides_end_with_the_session_of_the_reference() {
    for run in Run::all() {
        let (initiator, _) = run.start();
        let (wait, m2) = run.answer(&run.m1()).unwrap();
        let (unconfirmed, m3) = initiator.receive_m2(&m2).unwrap().accept().unwrap();
        assert_eq!(m3, run.bytes("M3"), "{}", run.name);
        let Claim::Verified(verified) = wait.receive_m3(&m3).unwrap() else {
            panic!("{}: refused", run.name);
        };
        let (outlet, mut record) = verified.accept(&descriptor()).unwrap();
        let (inlet, seen) = unconfirmed.receive_descriptor(&mut record).unwrap();
        assert_eq!(seen, descriptor());
        assert_eq!(outlet.peer.fingerprint().to_string(), run.fingerprint_i);
        assert_eq!(inlet.peer.fingerprint().to_string(), run.fingerprint_r);
        for session in [&inlet, &outlet] {
            assert_eq!(session.id.to_string(), run.values["session_id"]);
            assert_eq!(session.suite, run.suite());
            let (mut exported, mut expected) = ([0; 48], [0; 48]);
            session.exporter.export(b"test", b"context", &mut exported);
            let context = <sha2::Sha256 as sha2::Digest>::digest(b"context");
            expand_label_into(&run.secret("exporter"), b"test", &context, &mut expected);
            assert_eq!(exported, expected);
        }
    }
}

#[test]
fn the_inlets_records_are_the_reference() {
    for run in Run::all() {
        let (mut inlet, mut outlet) = run.sessions();
        let [request, .., close] = &run.records[..] else {
            panic!("records are missing");
        };
        let payload = unhex(&request.payload);
        let mut wire = Vec::new();
        inlet.sealer.seal_data(&payload, 0.0, &mut wire).unwrap();
        assert_eq!(wire, unhex(&request.wire), "{}", run.name);
        inlet.sealer.seal_close(&mut wire).unwrap();
        assert_eq!(wire[unhex(&request.wire).len()..], unhex(&close.wire));

        let mut seen = Vec::new();
        let received = outlet.opener.receive(&mut wire, 0.0, |record| {
            seen.push(match record {
                Record::Data(bytes) => bytes.to_vec(),
                Record::Close => b"close".to_vec(),
                other => panic!("{other:?}"),
            });
            Ok(())
        });
        received.unwrap();
        assert_eq!(seen, [payload, b"close".to_vec()]);
        outlet.opener.end().unwrap();
    }
}

#[test]
fn every_record_is_the_reference_under_its_secret() {
    for run in Run::all() {
        for vector in &run.records {
            let secret = match (vector.dir.as_str(), vector.after_update) {
                ("i", false) => "ap_i",
                ("r", false) => "ap_r",
                ("r", true) => "ap_r_after_update",
                other => panic!("{other:?}"),
            };
            let key = AeadKey::from_secret(run.suite(), &run.secret(secret));
            let wire = unhex(&vector.wire);
            let (head, sealed) = wire.split_at(2);
            let mut text = sealed.to_vec();
            let text = key.open(vector.ctr, head, &mut text).unwrap();
            let mut expected = vec![vector.record_type | if vector.pad > 0 { 0x80 } else { 0 }];
            expected.extend(unhex(&vector.payload));
            if let Some(zeros) = vector.pad.checked_sub(2) {
                expected.resize(expected.len() + usize::from(zeros), 0);
                expected.extend(vector.pad.to_be_bytes());
            }
            assert_eq!(text, expected, "{}", run.name);
            let tag = key.seal(vector.ctr, head, text);
            assert_eq!([&*text, &tag].concat(), sealed, "{}", run.name);
        }
    }
}

#[test]
fn time_probes_are_the_reference() {
    for run in Run::all() {
        let (inlet, outlet) = run.sessions();
        let (mut prober, mut responder) = (inlet.time.into_prober(), outlet.time.into_responder());
        let request = prober.probe(1.5).unwrap();
        assert_eq!(request[..], run.bytes("time_request"), "{}", run.name);
        let reply = responder.answer(&request, 2.5, || 2.75).unwrap();
        assert_eq!(reply[..], run.bytes("time_reply"), "{}", run.name);
        let seen = prober.receive(&reply, 1.8, 0.128).unwrap();
        assert_eq!((seen.t0, seen.t1, seen.t2), (1.5, 2.5, 2.75));
    }
}

#[test]
fn the_outlet_forces_chacha_and_each_side_alone_can() {
    let check = |inlet: Suites, outlet: Suites, expected: Suite| {
        let local = |suites, seed: u8| {
            Arc::new(Local {
                key: SecretKey::from_seed(&[seed; 32]),
                psk: None,
                suites,
                pad_to: 0,
            })
        };
        let (initiator, flight) =
            Initiator::start(local(inlet, 1), &mut Fixed::new([3; 32])).unwrap();
        let (_, m2) = Responder::new(local(outlet, 2))
            .receive_m1(&flight[PREAMBLE.len()..], &mut Fixed::new([4; 32]))
            .unwrap();
        assert_eq!(m2[4..6], expected.id().to_be_bytes());
        initiator.receive_m2(&m2).unwrap();
    };
    check(Suites::Both, Suites::Both, Suite::Aes256Gcm);
    check(Suites::Both, Suites::ChaCha20Only, Suite::ChaCha20Poly1305);
    check(Suites::ChaCha20Only, Suites::Both, Suite::ChaCha20Poly1305);
    check(
        Suites::ChaCha20Only,
        Suites::ChaCha20Only,
        Suite::ChaCha20Poly1305,
    );
}

#[test]
fn sizes_are_those_of_the_specification() {
    let run = Run::named("aes-negotiated");
    let (_, flight) = run.start();
    let (_, m2) = run.answer(&run.m1()).unwrap();
    assert_eq!((flight.len(), m2.len()), (59, 188));
    assert_eq!(run.bytes("M3").len(), 153);
}

#[test]
fn a_failing_generator_fails_the_handshake() {
    let run = Run::named("chacha-only");
    let mut empty = Fixed(VecDeque::new());
    assert!(Initiator::start(run.inlet(), &mut empty).is_err());
    let answer = Responder::new(run.outlet()).receive_m1(&run.m1(), &mut empty);
    assert_eq!(answer.unwrap_err().cause(), Cause::Internal);
}

/// An inlet that waits for DESCRIPTOR, and what its outlet seals with.
fn waiting(run: &Run) -> (Unconfirmed, VerifiedInitiator) {
    let (initiator, _) = run.start();
    let (wait, m2) = run.answer(&run.m1()).unwrap();
    let (unconfirmed, m3) = initiator.receive_m2(&m2).unwrap().accept().unwrap();
    match wait.receive_m3(&m3).unwrap() {
        Claim::Verified(verified) => (unconfirmed, *verified),
        Claim::Refused(cause) => panic!("refused: {cause:?}"),
    }
}

#[test]
fn the_inlet_may_send_before_the_descriptor() {
    let run = Run::named("chacha-only");
    let (mut unconfirmed, verified) = waiting(&run);
    let mut request = Vec::new();
    let sealer = unconfirmed.sealer();
    sealer
        .seal_data(b"LSL:fullinfo\r\n", 0.0, &mut request)
        .unwrap();
    assert_eq!(request, unhex(&run.records[0].wire));
    let (_, mut record) = verified.accept(&descriptor()).unwrap();
    let (mut session, _) = unconfirmed.receive_descriptor(&mut record).unwrap();
    // The sealer goes on where it was.
    session.sealer.seal_close(&mut request).unwrap();
    let both = [unhex(&run.records[0].wire), unhex(&run.records[4].wire)].concat();
    assert_eq!(request, both);
}

#[test]
fn a_refused_inlet_learns_the_cause_in_private() {
    let run = Run::named("with-psk");
    for cause in [
        Cause::NotAuthorised,
        Cause::RoleNotAllowed,
        Cause::Expired,
        Cause::SelfKey,
        Cause::Busy,
    ] {
        let (unconfirmed, verified) = waiting(&run);
        let mut record = verified.refuse(cause, "ask\u{7}the lab");
        let refused = unconfirmed.receive_descriptor(&mut record);
        match refused.map_err(Error::from) {
            Err(Error::Alert { cause: seen, text }) => {
                assert_eq!(seen, cause);
                assert!(
                    text.contains("the lab") && !text.contains('\u{7}'),
                    "{text}"
                );
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn every_changed_bit_of_the_first_record_ends_the_session() {
    let run = Run::named("aes-negotiated");
    let (_, verified) = waiting(&run);
    let (_, record) = verified.accept(&descriptor()).unwrap();
    for bit in 0..record.len() * 8 {
        let mut changed = record.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        let (unconfirmed, _) = waiting(&run);
        let cause = unconfirmed
            .receive_descriptor(&mut changed)
            .unwrap_err()
            .error
            .cause();
        let expected: &[Cause] = if bit < 16 {
            // Another length: too long for a record, or not as long as what came.
            &[
                Cause::RecordOverflow,
                Cause::RecordAuthFailed,
                Cause::Malformed,
            ]
        } else {
            &[Cause::RecordAuthFailed]
        };
        assert!(expected.contains(&cause), "bit {bit}: {cause:?}");
    }
}

#[test]
fn the_first_record_is_a_whole_descriptor_and_nothing_more() {
    let run = Run::named("chacha-only");
    let check = |expected: Cause, change: &dyn Fn(Vec<u8>) -> Vec<u8>| {
        let (unconfirmed, verified) = waiting(&run);
        let (_, record) = verified.accept(&descriptor()).unwrap();
        let cause = unconfirmed
            .receive_descriptor(&mut change(record))
            .unwrap_err()
            .error
            .cause();
        assert_eq!(cause, expected);
    };
    check(Cause::Malformed, &|_| Vec::new());
    check(Cause::Malformed, &|record| record[..1].to_vec());
    check(Cause::Malformed, &|record| {
        record[..record.len() - 1].to_vec()
    });
    check(Cause::RecordAuthFailed, &|record| {
        [&record[..], &record].concat()
    });
    // Our own first record, sent back.
    check(Cause::RecordAuthFailed, &|_| unhex(&run.records[0].wire));
    // What the outlet would send next, too early, or together with it.
    check(Cause::UnexpectedRecord, &|_| unhex(&run.records[1].wire));
    check(Cause::UnexpectedRecord, &|record| {
        let (_, verified) = waiting(&run);
        let (mut session, mut both) = verified.accept(&descriptor()).unwrap();
        assert_eq!(both, record);
        session.sealer.seal_data(b"sample", 0.0, &mut both).unwrap();
        both
    });
}

#[test]
fn a_descriptor_that_does_not_parse_ends_the_session() {
    let run = Run::named("chacha-only");
    let (unconfirmed, _) = waiting(&run);
    let secret = zeroize::Zeroizing::new(run.secret("ap_r"));
    let mut sealer = Sealer::new(run.suite(), &secret, Role::Outlet, 0);
    let mut record = Vec::new();
    sealer.seal_descriptor(b"\0\x01", &mut record).unwrap();
    let failed = unconfirmed.receive_descriptor(&mut record);
    assert_eq!(failed.unwrap_err().error.cause(), Cause::Malformed);
}

#[test]
fn sessions_of_the_operating_systems_generator_differ() {
    let run = Run::named("chacha-only");
    let shares: Vec<_> = (0..2)
        .map(|_| Ephemeral::generate(&mut crate::OsRandom).unwrap().share())
        .collect();
    assert_ne!(shares[0], shares[1]);
    let (_, one) = Initiator::start(run.inlet(), &mut crate::OsRandom).unwrap();
    let (_, other) = Initiator::start(run.inlet(), &mut crate::OsRandom).unwrap();
    assert_ne!(one, other);
}
