//! The five runs of the reference script, byte for byte, in both roles. Spec: LSS/1 §14.

use super::super::auth::{AUTH_LEN, Opened, open_auth, seal_alert, seal_auth};
use super::super::messages::{m2_head, m3_head};
use super::super::schedule::{Agreed, Ephemeral};
use super::super::transcript::Transcript;
use super::*;
use crate::kdf::{expand_label, hmac};
use crate::{AeadKey, Role};

#[test]
fn m1_m2_and_the_refusing_m3_are_the_reference() {
    for run in Run::all() {
        let (initiator, flight) = run.start();
        assert_eq!(flight, run.bytes("M1"), "{}", run.name);
        let (wait, m2) = run.answer(&run.m1()).unwrap();
        assert_eq!(m2, run.bytes("M2"), "{}", run.name);
        let verified = initiator.receive_m2(&m2).unwrap();
        assert_eq!(
            verified.peer().fingerprint().to_string(),
            run.fingerprint_r,
            "{}",
            run.name
        );
        let m3 = verified.refuse(Cause::NotAuthorised);
        assert_eq!(m3, run.bytes("M3_alert_not_authorised"), "{}", run.name);
        match wait.receive_m3(&m3).unwrap() {
            Claim::Refused(cause) => assert_eq!(cause, Cause::NotAuthorised),
            Claim::Verified(_) => panic!("{}: a refusal verified", run.name),
        }
    }
}

#[test]
fn the_accepting_m3_names_the_inlet() {
    for run in Run::all() {
        let (wait, _) = run.answer(&run.m1()).unwrap();
        let Claim::Verified(verified) = wait.receive_m3(&run.bytes("M3")).unwrap() else {
            panic!("{}: M3 refused", run.name);
        };
        let fingerprint = verified.peer().fingerprint().to_string();
        assert_eq!(fingerprint, run.fingerprint_i, "{}", run.name);
    }
}

#[test]
fn every_hash_and_secret_is_the_reference() {
    for run in Run::all() {
        let name = &run.name;
        let (m2, m3) = (run.bytes("M2"), run.bytes("M3"));
        let (suite, m2_head_len, m3_head_len) = (run.suite(), 38, 3);
        let is = |transcript: &Transcript, hash: &str| {
            assert_eq!(transcript.hash()[..], run.bytes(hash), "{name} {hash}");
        };
        let mut transcript = Transcript::new();
        is(&transcript, "h0");
        transcript.add(&[&run.bytes("M1")]);
        is(&transcript, "h1");
        transcript.add(&[&m2[..m2_head_len]]);
        is(&transcript, "h2");

        let share = |secret: &str| {
            Ephemeral::generate(&mut Fixed::new(run.secret(secret)))
                .unwrap()
                .share()
        };
        let agree = |secret: &str, other: &str| {
            Ephemeral::generate(&mut Fixed::new(run.secret(secret)))
                .unwrap()
                .agree(&share(other), run.inlet().psk.as_ref())
                .unwrap()
        };
        let agreed = agree("e_i", "e_r");
        assert_eq!(agreed.0[..], run.bytes("prk"), "{name}");
        assert_eq!(agree("e_r", "e_i").0[..], run.bytes("prk"), "{name}");
        assert_eq!(m2[..m2_head_len], m2_head(suite, &share("e_r"), AUTH_LEN));
        assert_eq!(m3[..m3_head_len], m3_head(AUTH_LEN));
        let h2 = run.secret("h2");
        let hs_r = agreed.handshake_secret(Role::Outlet, &h2);
        let hs_i = agreed.handshake_secret(Role::Inlet, &h2);
        assert_eq!(hs_r[..], run.bytes("hs_r"), "{name}");
        assert_eq!(hs_i[..], run.bytes("hs_i"), "{name}");

        // The hashes inside AUTH, from its plaintext; then the same walk by the functions themselves.
        for (role, secret, sealed, hashes, sig, fin) in [
            (
                Role::Outlet,
                &hs_r,
                &m2[m2_head_len..],
                ["h3", "h4", "h5"],
                "sig_r",
                "fin_r",
            ),
            (
                Role::Inlet,
                &hs_i,
                &m3[m3_head_len..],
                ["h7", "h8", "h9"],
                "sig_i",
                "fin_i",
            ),
        ] {
            if role == Role::Inlet {
                transcript.add(&[&m3[..m3_head_len]]);
                is(&transcript, "h6");
            }
            let mut text = sealed.to_vec();
            let key = AeadKey::from_secret(suite, secret);
            let text = key.open(0, transcript.hash(), &mut text).unwrap();
            assert_eq!(text.len(), AUTH_LEN);
            let (identity, proofs) = text.split_at(AUTH_LEN - 96);
            let (signature, finished) = proofs.split_at(64);
            assert_eq!(signature, run.bytes(sig), "{name}");
            assert_eq!(finished, run.bytes(fin), "{name}");
            let mut by_hand = transcript.clone();
            by_hand.add(&[identity]);
            is(&by_hand, hashes[0]);
            by_hand.add(&[signature]);
            is(&by_hand, hashes[1]);
            let fin_key = expand_label(secret, b"fin", b"");
            assert_eq!(
                hmac(&*fin_key, by_hand.hash())[..],
                run.bytes(fin),
                "{name}"
            );
            by_hand.add(&[finished]);
            is(&by_hand, hashes[2]);

            let owner = match role {
                Role::Outlet => run.outlet(),
                Role::Inlet => run.inlet(),
            };
            let mut sender = transcript.clone();
            let again = seal_auth(&mut sender, role, &owner.key, suite, secret);
            assert_eq!(again, sealed, "{name}");
            is(&sender, hashes[2]);
            let opened = open_auth(&mut transcript, role, suite, secret, sealed).unwrap();
            assert!(matches!(opened, Opened::Identity(key) if key == owner.key.public()));
            is(&transcript, hashes[2]);
        }
        check_traffic(&run, agreed);
    }
}

fn check_traffic(run: &Run, agreed: Agreed) {
    let h9 = run.secret("h9");
    assert_eq!(
        expand_label(&agreed.0, b"master", &h9)[..],
        run.bytes("master")
    );
    let traffic = agreed.traffic(&h9);
    for (secret, expected) in [
        (&traffic.ap_i, "ap_i"),
        (&traffic.ap_r, "ap_r"),
        (&traffic.time_i, "time_i"),
        (&traffic.time_r, "time_r"),
        (&traffic.exporter, "exporter"),
    ] {
        assert_eq!(secret[..], run.bytes(expected), "{} {expected}", run.name);
    }
    assert_eq!(traffic.id.0[..], run.bytes("session_id"), "{}", run.name);
    assert_eq!(traffic.id.to_string(), run.values["session_id"]);
    let next = expand_label(&traffic.ap_r, b"upd", b"");
    assert_eq!(next[..], run.bytes("ap_r_after_update"));
}

#[test]
fn the_refusal_is_sealed_under_the_hash_of_its_own_head() {
    let run = Run::named("with-psk");
    let mut transcript = Transcript::new();
    transcript.0 = run.secret("h5");
    let m3 = run.bytes("M3_alert_not_authorised");
    transcript.add(&[&m3[..3]]);
    let secret = zeroize::Zeroizing::new(run.secret("hs_i"));
    let sealed = seal_alert(&transcript, Cause::NotAuthorised, run.suite(), &secret);
    assert_eq!(sealed, m3[3..]);
}
