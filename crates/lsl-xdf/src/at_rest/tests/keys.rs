use std::fmt::Write as _;
use std::fs;

use super::*;
use crate::at_rest::ErrorKind;

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
    for name in ["ssh_ed25519", "ssh_rsa"] {
        let file = encrypt(b"samples", &recipient(&format!("{name}.pub")));
        assert_eq!(decrypt(&file, &identity(name)).unwrap().0, b"samples");
        let error = decrypt(&file, &pair().1).unwrap_err();
        assert!(matches!(error, Error::NoMatchingIdentity { .. }));
        let kind = name.replace('_', "-");
        assert!(error.to_string().contains(&kind), "{error}");
    }
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
    let mut recipients = recipient("ssh_rsa.pub");
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
    for name in ["ssh_rsa", "ssh_ed25519"] {
        assert_eq!(decrypt(&file, &identity(name)).unwrap().0, b"samples");
    }
    let error = decrypt(&file, &identity("age_identity.txt")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Key);
    assert_eq!(
        error.to_string(),
        "none of the identities given opens this file; it is locked to 1 ssh-rsa key, 3 age key (age1…), \
         1 ssh-ed25519 key: give the identity file or SSH private key that belongs to one of these"
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
    check(
        &fs::read_to_string(key_file("ssh_rsa_weak.pub")).unwrap(),
        "2048",
    );
    check("ssh-ed25519 AAAA", "OpenSSH");

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
    assert!(
        identity("ssh_rsa_pem")
            .unwrap(&header_for("ssh_rsa.pub"))
            .is_err()
    );
}

/// A header that is locked to a key.
fn header_for(name: &str) -> crate::at_rest::header::Header {
    let file = encrypt(b"", &recipient(name));
    crate::at_rest::header::Header::read(&mut &file[..]).unwrap()
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
