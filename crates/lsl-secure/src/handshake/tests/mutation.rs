//! Every way to change, cut, repeat, reflect or splice the messages. All fail, with their cause, and
//! before authentication nobody is told why. Spec: LSS/1 §5.7; verification layer 2.

use super::*;

const RUNS: [&str; 3] = ["chacha-only", "aes-negotiated", "with-psk"];

/// Returns the outlet's answer to an M1: M2 or the cause.
fn outlet_on_m1(run: &Run, m1: &[u8]) -> Result<Vec<u8>, Cause> {
    run.answer(m1)
        .map(|(_, m2)| m2)
        .map_err(|error| error.cause())
}

fn inlet_on_m2(run: &Run, m2: &[u8]) -> Cause {
    let (initiator, _) = run.start();
    let failed = initiator.receive_m2(m2).unwrap_err();
    assert!(
        failed.last_words.is_empty(),
        "an unauthenticated peer got an answer"
    );
    failed.error.cause()
}

fn outlet_on_m3(run: &Run, m3: &[u8]) -> Cause {
    let (wait, _) = run.answer(&run.m1()).unwrap();
    let failed = wait.receive_m3(m3).unwrap_err();
    assert!(
        failed.last_words.is_empty(),
        "an unauthenticated peer got an answer"
    );
    failed.error.cause()
}

fn every_flip(message: &[u8], mut check: impl FnMut(usize, Vec<u8>)) {
    for at in 0..message.len() {
        for bit in 0..8 {
            let mut changed = message.to_vec();
            changed[at] ^= 1 << bit;
            check(at, changed);
        }
    }
}

/// `message` with a length field that fits it.
fn with_its_length(message: &[u8]) -> Vec<u8> {
    let len = u16::try_from(message.len() - 2).unwrap();
    [&len.to_be_bytes()[..], &message[2..]].concat()
}

#[test]
fn a_changed_m1_never_ends_in_a_session() {
    for run in RUNS.map(Run::named) {
        let m1 = run.m1();
        let share = 7 + 2 * run.offered.len();
        let (mut answered, mut refused) = (0, 0);
        every_flip(&m1, |at, changed| {
            let legal = match at {
                // The range still has our version, from 0 to 1 or from 1 up.
                3 => changed[3] == 0,
                4 => changed[4] > 1,
                // Another suite, unknown and skipped; the other one is still there.
                _ if (7..share).contains(&at) => run.offered.len() == 2,
                _ => (share..share + 32).contains(&at),
            };
            match outlet_on_m1(&run, &changed) {
                Ok(m2) => {
                    assert!(legal, "{} byte {at}", run.name);
                    answered += 1;
                    // The inlet sees it in the transcript, whatever the outlet chose.
                    assert_eq!(inlet_on_m2(&run, &m2), Cause::DecryptFailed);
                    // And the outlet does not take the M3 of the undisturbed run for this one.
                    let (wait, _) = run.answer(&changed).unwrap();
                    let failed = wait.receive_m3(&run.bytes("M3")).unwrap_err();
                    assert_eq!(failed.error.cause(), Cause::DecryptFailed);
                    assert!(failed.last_words.is_empty());
                }
                Err(cause) => {
                    let suites = 7..share;
                    let expected = if suites.contains(&at) && run.offered.len() == 1 {
                        Cause::NoCommonSuite
                    } else {
                        Cause::Malformed
                    };
                    assert!(!legal, "{} byte {at}: {cause:?}", run.name);
                    assert_eq!(cause, expected, "{} byte {at}", run.name);
                    refused += 1;
                }
            }
        });
        let suite_flips = if run.offered.len() == 2 { 32 } else { 0 };
        assert_eq!(answered, 1 + 7 + suite_flips + 256, "{}", run.name);
        assert_eq!(answered + refused, m1.len() * 8);
    }
}

#[test]
fn a_changed_m2_never_ends_in_a_session() {
    for run in RUNS.map(Run::named) {
        every_flip(&run.bytes("M2"), |at, changed| {
            let expected = match at {
                0..=2 => Cause::Malformed,
                3 => Cause::Version,
                4 | 5 => Cause::NoCommonSuite,
                _ => Cause::DecryptFailed,
            };
            assert_eq!(
                inlet_on_m2(&run, &changed),
                expected,
                "{} byte {at}",
                run.name
            );
        });
    }
}

#[test]
fn a_changed_m3_never_ends_in_a_session() {
    for run in RUNS.map(Run::named) {
        for form in ["M3", "M3_alert_not_authorised"] {
            every_flip(&run.bytes(form), |at, changed| {
                let expected = match at {
                    0..=2 => Cause::Malformed,
                    _ => Cause::DecryptFailed,
                };
                assert_eq!(outlet_on_m3(&run, &changed), expected, "{form} byte {at}");
            });
        }
    }
}

#[test]
fn other_lengths_never_end_in_a_session() {
    let run = Run::named("aes-negotiated");
    let check = |message: &[u8], sealed_from: usize, receive: &dyn Fn(&[u8]) -> Cause| {
        for len in 0..message.len() {
            assert_eq!(receive(&message[..len]), Cause::Malformed, "cut to {len}");
            if len >= 2 {
                // Malformed unless what is left can be a ciphertext.
                let expected = if len < sealed_from + 16 {
                    Cause::Malformed
                } else {
                    Cause::DecryptFailed
                };
                let cut = with_its_length(&message[..len]);
                assert_eq!(receive(&cut), expected, "cut to {len} with its length");
            }
        }
        for extra in [&[0][..], &[0xff], &message[..1], message] {
            let longer = [message, extra].concat();
            assert_eq!(receive(&longer), Cause::Malformed);
            let expected = if sealed_from > message.len() {
                Cause::Malformed
            } else {
                Cause::DecryptFailed
            };
            assert_eq!(receive(&with_its_length(&longer)), expected);
        }
    };
    check(&run.m1(), usize::MAX / 2, &|m1| {
        outlet_on_m1(&run, m1).unwrap_err()
    });
    check(&run.bytes("M2"), 38, &|m2| inlet_on_m2(&run, m2));
    check(&run.bytes("M3"), 3, &|m3| outlet_on_m3(&run, m3));
    check(&run.bytes("M3_alert_not_authorised"), 3, &|m3| {
        outlet_on_m3(&run, m3)
    });
}

#[test]
fn a_message_in_the_place_of_another_is_malformed() {
    let run = Run::named("aes-negotiated");
    let (m1, m2, m3) = (run.m1(), run.bytes("M2"), run.bytes("M3"));
    let flight = run.bytes("M1");
    for wrong in [&m2, &m3, &flight] {
        assert_eq!(outlet_on_m1(&run, wrong), Err(Cause::Malformed));
    }
    for wrong in [&m1, &m3, &flight] {
        assert_eq!(inlet_on_m2(&run, wrong), Cause::Malformed);
    }
    for wrong in [&m1, &m2, &flight] {
        assert_eq!(outlet_on_m3(&run, wrong), Cause::Malformed);
    }
}

#[test]
fn a_reflected_ciphertext_does_not_open() {
    let run = Run::named("shared-lab-key");
    let (m2, m3) = (run.bytes("M2"), run.bytes("M3"));
    // The outlet's own identity back to it, as the inlet's: even where both have one key.
    assert_eq!(
        outlet_on_m3(&run, &with_its_length(&[&m3[..3], &m2[38..]].concat())),
        Cause::DecryptFailed
    );
    assert_eq!(
        inlet_on_m2(&run, &with_its_length(&[&m2[..38], &m3[3..]].concat())),
        Cause::DecryptFailed
    );
}

#[test]
fn an_inlet_does_not_talk_with_itself() {
    // Its own share back under an outlet's head: the secret of that exchange is not known to whoever
    // reflects it.
    let run = Run::named("chacha-only");
    let mut m2 = run.bytes("M2");
    m2[6..38].copy_from_slice(&run.m1()[9..41]);
    assert_eq!(inlet_on_m2(&run, &m2), Cause::DecryptFailed);
}

/// The same device keys in another connection.
fn other_connection(run: &Run) -> (Vec<u8>, Vec<u8>, Vec<u8>) {
    let (initiator, flight) = Initiator::start(run.inlet(), &mut Fixed::new([7; 32])).unwrap();
    let m1 = flight[PREAMBLE.len()..].to_vec();
    let (_, m2) = Responder::new(run.outlet())
        .receive_m1(&m1, &mut Fixed::new([8; 32]))
        .unwrap();
    let (_, m3) = initiator.receive_m2(&m2).unwrap().accept().unwrap();
    (m1, m2, m3)
}

#[test]
fn messages_of_another_session_do_not_fit() {
    for run in RUNS.map(Run::named) {
        let (m1, m2, m3) = other_connection(&run);
        assert_eq!(inlet_on_m2(&run, &m2), Cause::DecryptFailed);
        assert_eq!(outlet_on_m3(&run, &m3), Cause::DecryptFailed);
        // A replayed M1 gets an answer, and nothing of the recording fits what follows.
        let (wait, fresh) = Responder::new(run.outlet())
            .receive_m1(&m1, &mut Fixed::new([9; 32]))
            .unwrap();
        assert_ne!(fresh, m2);
        let replayed = wait.receive_m3(&m3).unwrap_err();
        assert_eq!(replayed.error.cause(), Cause::DecryptFailed);
        // Heads of one session with the ciphertexts of another.
        let (own_m2, own_m3) = (run.bytes("M2"), run.bytes("M3"));
        for spliced in [
            [&own_m2[..38], &m2[38..]].concat(),
            [&m2[..38], &own_m2[38..]].concat(),
        ] {
            assert_eq!(inlet_on_m2(&run, &spliced), Cause::DecryptFailed);
        }
        let spliced = [&own_m3[..3], &m3[3..]].concat();
        assert_eq!(outlet_on_m3(&run, &spliced), Cause::DecryptFailed);
    }
}

#[test]
fn another_psk_or_none_does_not_open() {
    let with = |psk: Option<u8>| {
        Arc::new(Local {
            key: SecretKey::from_seed(&[1; 32]),
            psk: psk.map(|byte| Psk::from_bytes([byte; 32]).unwrap()),
            suites: Suites::Both,
            pad_to: 0,
        })
    };
    for (inlet, outlet) in [(Some(1), Some(2)), (Some(1), None), (None, Some(1))] {
        let (initiator, flight) = Initiator::start(with(inlet), &mut Fixed::new([3; 32])).unwrap();
        let (wait, m2) = Responder::new(with(outlet))
            .receive_m1(&flight[PREAMBLE.len()..], &mut Fixed::new([4; 32]))
            .unwrap();
        let failed = initiator.receive_m2(&m2).unwrap_err();
        assert_eq!(failed.error.cause(), Cause::DecryptFailed);
        assert!(failed.last_words.is_empty());
        // An inlet that has the outlet's PSK made this M3.
        let (other, flight) = Initiator::start(with(inlet), &mut Fixed::new([3; 32])).unwrap();
        let (_, fitting) = Responder::new(with(inlet))
            .receive_m1(&flight[PREAMBLE.len()..], &mut Fixed::new([4; 32]))
            .unwrap();
        let (_, m3) = other.receive_m2(&fitting).unwrap().accept().unwrap();
        let failed = wait.receive_m3(&m3).unwrap_err();
        assert_eq!(failed.error.cause(), Cause::DecryptFailed);
    }
}

#[test]
fn a_share_of_small_order_ends_the_handshake_on_both_sides() {
    let order_8 = unhex("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800");
    let mut one = vec![0; 32];
    one[0] = 1;
    for share in [vec![0; 32], one, order_8] {
        for run in RUNS.map(Run::named) {
            let (mut m1, mut m2) = (run.m1(), run.bytes("M2"));
            let at = 7 + 2 * run.offered.len();
            m1[at..at + 32].copy_from_slice(&share);
            assert_eq!(outlet_on_m1(&run, &m1), Err(Cause::BadKeyShare));
            m2[6..38].copy_from_slice(&share);
            assert_eq!(inlet_on_m2(&run, &m2), Cause::BadKeyShare);
        }
    }
}
