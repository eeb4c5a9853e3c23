use std::fmt::Write as _;
use std::fs;

use base64ct::{Base64, Encoding};

use super::*;
use crate::at_rest::{ErrorKind, openssh};

fn never(_: &str) -> Option<Passphrase> {
    panic!("nothing to ask for")
}

fn identity(name: &str) -> Identities {
    let mut identities = Identities::new();
    identities.add_file(&key_file(name), &mut never).unwrap();
    identities
}

fn recipient(name: &str) -> Recipients {
    let mut recipients = Recipients::new();
    assert_eq!(recipients.add_file(&key_file(name)).unwrap(), 1);
    recipients
}

#[test]
fn ssh_keys_lock_and_open() {
    let file = encrypt(b"samples", &recipient("ssh_ed25519.pub"));
    let identities = identity("ssh_ed25519");
    assert_eq!(decrypt(&file, &identities).unwrap().0, b"samples");
    let stock = fs::read(key_file("ssh_ed25519.age")).unwrap();
    assert_eq!(decrypt(&stock, &identities).unwrap().0, b"samples");
    let error = decrypt(&file, &pair().1).unwrap_err();
    assert!(matches!(error, Error::NoMatchingIdentity { .. }));
    assert!(error.to_string().contains("1 ssh-ed25519 key"), "{error}");
}

#[test]
fn rsa_keys_are_refused_and_files_locked_to_them_named() {
    let mut recipients = Recipients::new();
    let error = recipients.add_file(&key_file("ssh_rsa.pub")).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("RSA keys are no longer accepted")
    );
    let mut identities = identity("ssh_ed25519");
    for name in ["ssh_rsa", "ssh_rsa_pem"] {
        let error = identities
            .add_file(&key_file(name), &mut never)
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Argument);
        assert!(
            error
                .to_string()
                .contains("RSA keys are no longer accepted")
        );
    }
    let stock = fs::read(key_file("ssh_rsa.age")).unwrap();
    let error = decrypt(&stock, &identities).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Key);
    assert_eq!(
        error.to_string(),
        "none of the identities given opens this file; it is locked to 1 ssh-rsa key (with that, stock age or \
         rage opens it): give the identity file or SSH private key that belongs to one of these"
    );
}

#[test]
fn locked_keys_ask_once() {
    let file = encrypt(b"samples", &recipient("ssh_ed25519_locked.pub"));
    let path = key_file("ssh_ed25519_locked");
    let mut identities = Identities::new();
    let mut asked = Vec::new();
    identities
        .add_file(&path, &mut |what| {
            asked.push(what.to_owned());
            Some(phrase("open sesame"))
        })
        .unwrap();
    assert_eq!(asked, [path.display().to_string()]);
    for _ in 0..2 {
        assert_eq!(decrypt(&file, &identities).unwrap().0, b"samples");
    }
    let mut none = Identities::new();
    let wrong = none.add_file(&path, &mut |_| Some(phrase("shut up")));
    assert!(matches!(wrong, Err(Error::WrongPassphrase)));
    let given_up = none.add_file(&path, &mut |_| None);
    assert!(matches!(given_up, Err(Error::PassphraseNeeded)));
}

#[test]
fn locked_keys_of_before_openssh_7_6_open() {
    let mut identities = Identities::new();
    let path = key_file("ssh_ed25519_cbc");
    let wrong = identities.add_file(&path, &mut |_| Some(phrase("shut up")));
    assert!(matches!(wrong, Err(Error::WrongPassphrase)));
    identities
        .add_file(&path, &mut |_| Some(phrase("open sesame")))
        .unwrap();
    let file = encrypt(b"samples", &recipient("ssh_ed25519_cbc.pub"));
    assert_eq!(decrypt(&file, &identities).unwrap().0, b"samples");
}

#[test]
fn identity_files_of_age_open_locked_or_not() {
    let text = fs::read_to_string(key_file("age_identity.txt")).unwrap();
    let public = text
        .split("public key: ")
        .nth(1)
        .unwrap()
        .lines()
        .next()
        .unwrap();
    let mut recipients = Recipients::new();
    recipients.add("test", public).unwrap();
    let file = encrypt(b"samples", &recipients);
    assert_eq!(
        decrypt(&file, &identity("age_identity.txt")).unwrap().0,
        b"samples"
    );

    let mut identities = Identities::new();
    let locked = key_file("age_identity_locked.txt");
    identities
        .add_file(&locked, &mut |_| Some(phrase("open sesame")))
        .unwrap();
    assert_eq!(decrypt(&file, &identities).unwrap().0, b"samples");

    // The same in binary, as we write it.
    let mut identities = Identities::new();
    let passphrase = Recipients::with_passphrase_and_work(&phrase("sesame"), 2);
    let binary = encrypt(text.as_bytes(), &passphrase);
    identities
        .add_content("binary", &binary, &mut |_| Some(phrase("sesame")))
        .unwrap();
    assert_eq!(decrypt(&file, &identities).unwrap().0, b"samples");
    let wrong = identities.add_content("binary", &binary, &mut |_| Some(phrase("simsim")));
    assert!(matches!(wrong, Err(Error::WrongPassphrase)));
}

#[test]
fn each_of_several_recipients_opens() {
    let pairs: Vec<KeyPair> = (0..3).map(|_| KeyPair::generate()).collect();
    let mut recipients = recipient("ssh_ed25519_locked.pub");
    for pair in &pairs {
        recipients.add("test", &pair.recipient).unwrap();
    }
    recipients.add_file(&key_file("ssh_ed25519.pub")).unwrap();
    let file = encrypt(b"samples", &recipients);
    for pair in &pairs {
        // Behind others that do not fit.
        let mut identities = identity("age_identity.txt");
        identities.add("test", &pair.identity).unwrap();
        assert_eq!(decrypt(&file, &identities).unwrap().0, b"samples");
    }
    let opened = decrypt(&file, &identity("ssh_ed25519")).unwrap();
    assert_eq!(opened.0, b"samples");
    let error = decrypt(&file, &identity("age_identity.txt")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Key);
    assert_eq!(
        error.to_string(),
        "none of the identities given opens this file; it is locked to 2 ssh-ed25519 key, 3 age key \
         (age1…): give the identity file or SSH private key that belongs to one of these"
    );
}

#[test]
fn a_passphrase_stands_alone() {
    let mut recipients = Recipients::with_passphrase_and_work(&phrase("sesame"), 2);
    let file = encrypt(b"samples", &recipients);
    let mut identities = identity("age_identity.txt");
    assert!(matches!(
        decrypt(&file, &identities),
        Err(Error::PassphraseNeeded)
    ));
    identities.add_passphrase(&phrase("simsim"));
    assert!(matches!(
        decrypt(&file, &identities),
        Err(Error::WrongPassphrase)
    ));
    identities.add_passphrase(&phrase("sesame"));
    assert_eq!(decrypt(&file, &identities).unwrap().0, b"samples");

    recipients
        .add("test", &KeyPair::generate().recipient)
        .unwrap();
    let error = Encrypting::new(Vec::new(), &recipients).unwrap_err();
    assert!(matches!(error, Error::MixedRecipients));
    let mut output = Vec::new();
    let error = Encrypting::new(&mut output, &Recipients::new()).unwrap_err();
    assert!(matches!(error, Error::NoRecipients));
    assert!(output.is_empty());
}

#[test]
fn recipients_that_cannot_be_used_say_why() {
    let mut recipients = Recipients::new();
    let mut check = |text: &str, hint: &str| {
        let error = recipients.add("-r", text).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Argument);
        let error = error.to_string();
        assert!(
            error.starts_with("-r: ") && error.contains(hint),
            "{text}: {error}"
        );
    };
    let good = KeyPair::generate();
    check(
        &good.recipient[..good.recipient.len() - 1],
        "wrong or missing",
    );
    check("me@example.org", "neither");
    check("", "neither");
    check(&good.identity, "SECRET");
    check(
        &fs::read_to_string(key_file("ssh_ecdsa.pub")).unwrap(),
        "ssh-keygen -t ed25519",
    );
    check("ssh-ed25519 AAAA", "OpenSSH");
    // Keys of low order: all shared secrets are zero, and the files open to everybody.
    let zero = bech32::encode::<bech32::Bech32>(bech32::Hrp::parse_unchecked("age"), &[0; 32]);
    check(&zero.unwrap(), "wrong or missing");
    let mut weak = b"\0\0\0\x0bssh-ed25519\0\0\0\x20\x01".to_vec();
    weak.resize(51, 0);
    check(
        &format!("ssh-ed25519 {}", Base64::encode_string(&weak)),
        "OpenSSH",
    );
    // As good by the other checksum of Bech32.
    let hrp = bech32::Hrp::parse_unchecked("age");
    let other = bech32::encode::<bech32::Bech32m>(hrp, &[9; 32]);
    check(&other.unwrap(), "wrong or missing");

    for name in ["ssh_ed25519", "age_identity.txt"] {
        let error = recipients
            .add_file(&key_file(name))
            .unwrap_err()
            .to_string();
        assert!(error.contains("SECRET"), "{error}");
    }
    assert!(recipients.is_empty(), "what failed added nothing");
}

#[test]
fn identities_that_cannot_be_used_say_why_without_the_secret() {
    let good = KeyPair::generate();
    let mut identities = Identities::new();
    let mut check = |content: &str, hint: &str| {
        let content = content.as_bytes();
        let error = identities
            .add_content("key.txt", content, &mut never)
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Argument);
        let error = error.to_string();
        assert!(
            error.starts_with("key.txt") && error.contains(hint),
            "{error}"
        );
        assert!(!error.contains(&good.identity[20..40]), "{error}");
    };
    check(
        &format!("# mine\n\n{}Q\n", good.identity.as_str()),
        "line 3",
    );
    check(&good.recipient, "public");
    check("AGE-PLUGIN-YUBIKEY-1QQQQ", "plugin");
    check("", "no key");
    check("# nothing\n", "no key");
    check(
        &fs::read_to_string(key_file("ssh_ecdsa")).unwrap(),
        "ed25519",
    );
    check(
        "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
        "OpenSSH",
    );
    check("-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA", "OpenSSH");
}

#[test]
fn ssh_stanzas_that_are_not_as_the_format_wants_them_make_the_header_bad() {
    let file = encrypt(b"", &recipient("ssh_ed25519.pub"));
    let identities = identity("ssh_ed25519");
    let text = String::from_utf8_lossy(&file[..head_len(&file) - 16]).into_owned();
    let lines: Vec<&str> = text.lines().collect();
    let (hint, share) = lines[1]["-> ssh-ed25519 ".len()..].split_once(' ').unwrap();
    let body = lines[2];
    for (arguments, body) in [
        (hint.to_owned(), body),
        (format!("{hint} {share} {share}"), body),
        (format!("{hint} {}", &share[..42]), body),
        (format!("{hint} {share}AAAA"), body),
        // Not canonical: bits are left over.
        (format!("{hint} {}B", "A".repeat(42)), body),
        // Of low order.
        (format!("{hint} {}", "A".repeat(43)), body),
        (format!("{hint} {share}"), &body[..40]),
    ] {
        let changed = format!(
            "{}\n-> ssh-ed25519 {arguments}\n{body}\n{}\n",
            lines[0], lines[3]
        );
        let error = decrypt(changed.as_bytes(), &identities).unwrap_err();
        assert!(matches!(error, Error::BadHeader(_)), "{changed}: {error}");
    }
    // The stanza of another key, in any form.
    let changed = text.replace(hint, "AAAAAA");
    let error = decrypt(changed.as_bytes(), &identities).unwrap_err();
    assert!(matches!(error, Error::NoMatchingIdentity { .. }), "{error}");
}

#[test]
fn damaged_private_keys_are_refused() {
    let good = fs::read(key_file("ssh_ed25519")).unwrap();
    let file = openssh::pem(&good, "OPENSSH PRIVATE KEY").unwrap();
    let mut accepted = 0;
    let mut check = |bytes: &[u8]| {
        let text = format!(
            "-----BEGIN OPENSSH PRIVATE KEY-----\n{}\n-----END OPENSSH PRIVATE KEY-----\n",
            Base64::encode_string(bytes)
        );
        let mut ask = |_: &str| Some(phrase("open sesame"));
        accepted += u32::from(
            Identities::new()
                .add_content("key", text.as_bytes(), &mut ask)
                .is_ok(),
        );
    };
    check(&file);
    for index in 0..file.len() {
        check(&file[..index]);
    }
    // Behind the key, which ends with its public half, is a comment.
    let public = &file[62..94];
    let end = file.windows(32).rposition(|part| part == public).unwrap() + 32;
    for index in 0..end {
        let mut changed = file.to_vec();
        changed[index] ^= 1;
        check(&changed);
    }
    assert_eq!(accepted, 1);
}

#[test]
fn nothing_secret_is_shown_for_debugging() {
    let pair = KeyPair::generate();
    let mut identities = Identities::new();
    identities.add("test", &pair.identity).unwrap();
    identities.add_passphrase(&phrase("sesame"));
    let shown = format!("{pair:?} {identities:?} {:?}", super::pair().0);
    assert!(
        !shown.contains("SECRET") && !shown.contains("sesame"),
        "{shown}"
    );
}

#[test]
fn hostile_kinds_of_recipients_make_no_long_message() {
    let mut text = "age-encryption.org/v1\n".to_owned();
    for index in 0..1000 {
        writeln!(text, "-> {index}{}\nAA", "k".repeat(100)).unwrap();
    }
    writeln!(text, "--- {}", "A".repeat(43)).unwrap();
    let error = decrypt(text.as_bytes(), &pair().1).unwrap_err();
    assert!(matches!(error, Error::NoMatchingIdentity { .. }));
    assert!(error.to_string().len() < 500, "{error}");
}
