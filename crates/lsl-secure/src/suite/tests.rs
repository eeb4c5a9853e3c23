//! Known answers and differential tests of the AEADs.

use super::pure::Pure;
use super::*;

const BOTH: [Suite; 2] = [Suite::ChaCha20Poly1305, Suite::Aes256Gcm];

#[test]
fn a_sealed_text_opens_only_with_its_key_counter_and_aad() {
    for suite in BOTH {
        let mut key = AeadKey::from_secret(suite, &[1; 32]);
        let mut text = *b"five samples";
        let tag = key.seal(7, b"aad", &mut text);
        let sealed = [&text[..], &tag].concat();
        assert_eq!(
            key.open(7, b"aad", &mut sealed.clone()).unwrap(),
            b"five samples"
        );
        assert!(key.open(8, b"aad", &mut sealed.clone()).is_none());
        assert!(key.open(7, b"AAD", &mut sealed.clone()).is_none());
        assert!(key.open(7, b"aad", &mut sealed[..15].to_vec()).is_none());
        key.replace(&[2; 32]);
        assert!(key.open(7, b"aad", &mut sealed.clone()).is_none());
        key.replace(&[1; 32]);
        assert!(key.open(7, b"aad", &mut sealed.clone()).is_some());
        key.erase();
        assert!(key.open(7, b"aad", &mut sealed.clone()).is_none());
    }
}

#[test]
fn both_backends_agree() {
    for suite in BOTH {
        let (active, pure) = (Active::new(suite, &[3; 32]), Pure::new(suite, &[3; 32]));
        let (mut one, mut other) = ([9; 265], [9; 265]);
        let tag = active.seal(&[4; 12], b"aad", &mut one);
        assert_eq!(tag, pure.seal(&[4; 12], b"aad", &mut other));
        assert_eq!(one, other);
        assert!(pure.open(&[4; 12], b"aad", &mut one, &tag));
        assert_eq!(one, [9; 265]);
    }
}
