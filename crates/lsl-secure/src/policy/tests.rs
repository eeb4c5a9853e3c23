//! The table of §4.4, cell by cell, with its exact texts.

use super::*;

const E1: &str = "stream \"eeg\" at 10.0.0.1:16572 does not offer encryption and security.policy is \
                  \"required\"";
const E3: &str = "stream \"eeg\" was encrypted before (SHA256:abc) but offers only plaintext now: \
                  possible downgrade; refused";
const E4: &str = "stream \"eeg\" is encrypted and this program has no key; searched /a, /b; run: lsl \
                  key init";

#[test]
fn every_combination_of_policy_and_outlet() {
    let check =
        |policy: Policy, advert: Option<&str>, known: bool, allowed: bool, expected: &str| {
            let candidate = Candidate {
                name: "eeg",
                address: "10.0.0.1:16572",
                advert,
                known_secure: known.then_some("SHA256:abc"),
                plaintext_allowed: allowed,
            };
            let way = way_of_inlet(policy, &candidate, "/a, /b");
            let case = format!("{policy:?} {advert:?} {known} {allowed}");
            match (&way, expected) {
                (Way::Plaintext, "plaintext") | (Way::Secure, "secure") => {}
                (Way::Refuse { cause, text }, _) => {
                    assert_eq!(text, expected, "{case}");
                    assert_eq!(cause.code(), 18, "{case}");
                }
                _ => panic!("{case}: {way:?}"),
            }
        };
    // What an advert says but `off` decides about handshakes by being there; its text is not trusted.
    for known in [false, true] {
        for allowed in [false, true] {
            check(Policy::Off, None, known, allowed, "plaintext");
            check(Policy::Off, Some("required"), known, allowed, E4);
            check(Policy::Off, Some("migrate"), known, allowed, "plaintext");
            check(Policy::Off, Some("nonsense"), known, allowed, "plaintext");
            for advert in ["required", "migrate", "off", "nonsense", ""] {
                check(Policy::Required, Some(advert), known, allowed, "secure");
                check(Policy::Migrate, Some(advert), known, allowed, "secure");
            }
        }
        check(Policy::Required, None, known, false, E1);
        check(Policy::Required, None, known, true, "plaintext");
        check(Policy::Migrate, None, known, true, "plaintext");
    }
    check(Policy::Migrate, None, false, false, "plaintext");
    check(Policy::Migrate, None, true, false, E3);
}

#[test]
fn refusals_are_lines_of_at_most_256_bytes() {
    for refusal in [REFUSAL_403, REFUSAL_501, REFUSAL_503, REFUSAL_505] {
        let text = std::str::from_utf8(refusal).unwrap();
        assert!(
            text.starts_with("LSL/110 ") && text.ends_with("\r\n\r\n"),
            "{text}"
        );
        assert!(text.len() <= 256 && text.lines().count() == 2, "{text}");
    }
}

#[test]
fn texts_name_peer_and_remedy() {
    assert_eq!(
        not_secure_text("10.0.0.1:16572"),
        "10.0.0.1:16572 is not an lsl-secure outlet (closed during hello); refusing plaintext because \
         security.policy is \"required\""
    );
    assert_eq!(
        not_trusted_text("amp", "SHA256:abc", "rec 1; reboot", "lsl-ed25519:AAAA="),
        "\"amp\" (SHA256:abc) does not trust this device; there run: lsl trust add 'rec 1; reboot' \
         lsl-ed25519:AAAA="
    );
}

#[test]
fn policies_are_ordered_by_strictness() {
    assert!(Policy::Off < Policy::Migrate && Policy::Migrate < Policy::Required);
}
