//! Text forms, fingerprints and refusals of keys.

use super::*;

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
    let order_8 = hex("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05");
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

fn hex(text: &str) -> [u8; 32] {
    let mut bytes = [0; 32];
    for (byte, digits) in bytes.iter_mut().zip(text.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(digits).unwrap(), 16).unwrap();
    }
    bytes
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
