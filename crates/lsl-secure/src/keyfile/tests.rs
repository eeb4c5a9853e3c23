//! Key files of ours and of OpenSSL, and files that are refused.

use std::fs;
use std::path::PathBuf;

use pkcs8::EncryptedPrivateKeyInfoOwned;
use pkcs8::der::asn1::OctetString;
use pkcs8::pkcs5::pbes2::Pbkdf2Params;

use super::*;
use crate::files::scratch::{Scratch, says};

/// Public key of the files that OpenSSL made.
const OPENSSL_KEY: &str = "lsl-ed25519:5z9xWv65hPQAkBD2ViWUdJMIgpNYD1alHi43YihiOp0=";

const PASSPHRASE: &str = "correct-horse";

/// A committed file, with the permissions of a key.
fn vector(scratch: &Scratch, name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/vectors/keys")
        .join(name);
    scratch.write(name, &fs::read_to_string(path).unwrap(), 0o600)
}

fn seed_key() -> SecretKey {
    SecretKey::from_seed(&[1; 32])
}

fn refused(path: &Path, passphrase: Option<&str>, words: &[&str]) {
    let error = read_key(path, passphrase).expect_err("refused").to_string();
    assert!(error.starts_with(&path.display().to_string()), "{error}");
    for word in words {
        assert!(says(&error, word), "{error} lacks {word}");
    }
}

#[test]
fn keys_of_openssl_are_read() {
    let scratch = Scratch::new();
    let check = |name: &str, passphrase: Option<&str>, encrypted: bool| {
        let path = vector(&scratch, name);
        assert_eq!(is_encrypted(&path).unwrap(), encrypted, "{name}");
        let key = read_key(&path, passphrase).unwrap();
        assert_eq!(key.public().to_string(), OPENSSL_KEY, "{name}");
    };
    check("openssl.pem", None, false);
    check("openssl.pem", Some("not needed"), false);
    check("openssl-scrypt.pem", Some(PASSPHRASE), true);
}

#[test]
fn what_is_written_is_rfc_5958_with_the_public_key() {
    let scratch = Scratch::new();
    let golden = vector(&scratch, "lsl.pem");
    let path = scratch.path("new.pem");
    write_new_key(&path, &seed_key(), None).unwrap();
    assert_eq!(fs::read(&path).unwrap(), fs::read(golden).unwrap());
    assert_eq!(scratch.mode("new.pem"), 0o600);
    assert_eq!(read_key(&path, None).unwrap().public(), seed_key().public());
    let error = write_new_key(&path, &seed_key(), None).unwrap_err();
    assert!(error.to_string().contains("never overwritten"), "{error}");
}

#[test]
fn other_files_of_openssl_are_refused_with_a_remedy() {
    let scratch = Scratch::new();
    let check = |name: &str, words: &str| {
        refused(&vector(&scratch, name), Some(PASSPHRASE), &[words]);
    };
    check("openssl-pbkdf2.pem", "openssl pkcs8 -topk8 -scrypt");
    check("openssl-pbes1.pem", "openssl pkcs8 -topk8 -scrypt");
    check("openssl-x25519.pem", "lsl key init");
    check("openssl-rsa.pem", "lsl key init");
    check("openssl-public.pem", "\"PUBLIC KEY\"");
}

#[test]
fn a_passphrase_protects_and_is_changed_in_place() {
    let scratch = Scratch::new();
    let path = scratch.path("key.pem");
    write_new_key(&path, &seed_key(), Some(PASSPHRASE)).unwrap();
    assert!(is_encrypted(&path).unwrap());
    let text = fs::read_to_string(&path).unwrap();
    assert!(
        text.starts_with("-----BEGIN ENCRYPTED PRIVATE KEY-----\n"),
        "{text}"
    );
    // The work factor of the specification: N = 2^17, r = 8, p = 1.
    let (_, document) = SecretDocument::from_pem(&text).unwrap();
    let info = EncryptedPrivateKeyInfoRef::try_from(document.as_bytes()).unwrap();
    let Kdf::Scrypt(scrypt) = &info.encryption_algorithm.pbes2().unwrap().kdf else {
        panic!("not scrypt");
    };
    let factors = (
        scrypt.cost_parameter,
        scrypt.block_size,
        scrypt.parallelization,
    );
    assert_eq!(factors, (1 << 17, 8, 1));
    assert_eq!(
        read_key(&path, Some(PASSPHRASE)).unwrap().public(),
        seed_key().public()
    );
    refused(&path, None, &["passphrase_file", "lsl key passwd --remove"]);
    refused(&path, Some("wrong"), &["does not open", "passphrase_file"]);
    replace_key(&path, &seed_key(), None).unwrap();
    assert_eq!(read_key(&path, None).unwrap().public(), seed_key().public());
    assert_eq!(
        (scratch.mode("key.pem"), scratch.names()),
        (0o600, vec!["key.pem".to_owned()])
    );
    assert!(replace_key(&scratch.path("none.pem"), &seed_key(), None).is_err());
}

#[test]
fn a_key_that_others_may_read_is_refused() {
    let scratch = Scratch::new();
    let path = vector(&scratch, "openssl.pem");
    for mode in [0o644, 0o640, 0o660, 0o666, 0o604] {
        scratch.chmod("openssl.pem", mode);
        refused(
            &path,
            None,
            &[&format!("mode {mode:04o}"), "chmod 600", "0400"],
        );
        assert!(is_encrypted(&path).is_err());
    }
    scratch.chmod("openssl.pem", 0o400);
    read_key(&path, None).unwrap();
}

#[test]
fn a_public_key_that_is_not_the_private_ones_is_fatal() {
    let scratch = Scratch::new();
    let other = SecretKey::from_seed(&[2; 32]).public();
    let pair = KeypairBytes {
        secret_key: [1; 32],
        public_key: Some(PublicKeyBytes(*other.as_bytes())),
    };
    let pem = pair
        .to_pkcs8_der()
        .unwrap()
        .to_pem("PRIVATE KEY", LineEnding::LF)
        .unwrap();
    refused(
        &scratch.write("key.pem", &pem, 0o600),
        None,
        &["not the one of its private key"],
    );
}

#[test]
fn damage_is_refused() {
    let scratch = Scratch::new();
    let good = fs::read_to_string(vector(&scratch, "lsl.pem")).unwrap();
    let check = |text: &str| {
        refused(
            &scratch.write("bad.pem", text, 0o600),
            None,
            &["lsl key init"],
        );
    };
    check("");
    check("garbage");
    check(&good.replace("PRIVATE KEY", "OPENSSH PRIVATE KEY"));
    check(&good.replace("BEGIN PRIVATE", "BEGIN ENCRYPTED PRIVATE"));
    check(&good[..good.len() / 2]);
    check(&good.replace("MFE", "MFF"));
    let body = good.lines().nth(1).unwrap();
    check(&good.replace(body, &body[..body.len() - 8]));
}

/// An encrypted file with any parameters, whose content was never encrypted.
fn with_kdf(kdf: Kdf, encryption: EncryptionScheme) -> Zeroizing<String> {
    let info = EncryptedPrivateKeyInfoOwned {
        encryption_algorithm: Parameters { kdf, encryption }.into(),
        encrypted_data: OctetString::new(vec![0; 96]).unwrap(),
    };
    let document = SecretDocument::try_from(info).unwrap();
    document
        .to_pem("ENCRYPTED PRIVATE KEY", LineEnding::LF)
        .unwrap()
}

#[test]
fn work_factors_of_saboteurs_are_refused_before_the_work() {
    let scratch = Scratch::new();
    let salt = Salt::new([7; 16]).unwrap();
    let aes = EncryptionScheme::Aes256Cbc { iv: [0; 16] };
    let check = |n: u64, r: u16, p: u16, words: &str| {
        let kdf = Kdf::Scrypt(ScryptParams {
            salt,
            cost_parameter: n,
            block_size: r,
            parallelization: p,
            key_length: None,
        });
        let path = scratch.write("key.pem", &with_kdf(kdf, aes), 0o600);
        refused(&path, Some(PASSPHRASE), &[words]);
    };
    check(1 << 22, 1, 1, "2^21");
    check(1 << 18, 16, 1, "2^21");
    check(1 << 18, 8, 2, "2^21");
    check(1 << 63, 8, 1, "2^21");
    check(1 << 63, u16::MAX, u16::MAX, "2^21");
    check(2, u16::MAX, u16::MAX, "2^21");
    // 2^21 itself is work, and here in vain: shown small, because it is the product that counts.
    check(1 << 4, 8, 1, "does not open");
    // These would panic inside the library that decrypts.
    check(0, 8, 1, "impossible");
    check(1, 8, 1, "impossible");
    check(3, 8, 1, "impossible");
    check(1 << 4, 0, 1, "does not open");
    check(1 << 4, 8, 0, "does not open");
    let scrypt = Kdf::Scrypt(ScryptParams {
        salt,
        cost_parameter: 16,
        block_size: 8,
        parallelization: 1,
        key_length: None,
    });
    let aes128 = EncryptionScheme::Aes128Cbc { iv: [0; 16] };
    let path = scratch.write("key.pem", &with_kdf(scrypt, aes128), 0o600);
    refused(&path, Some(PASSPHRASE), &["AES-256-CBC"]);
    let pbkdf2 = Kdf::Pbkdf2(Pbkdf2Params::hmac_sha256(1, &[7; 16]).unwrap());
    let path = scratch.write("key.pem", &with_kdf(pbkdf2, aes), 0o600);
    refused(&path, Some(PASSPHRASE), &["scrypt"]);
}

#[test]
fn passphrase_files_hold_one_line() {
    let scratch = Scratch::new();
    let read = |text: &str, mode| read_passphrase(&scratch.write("p", text, mode));
    for text in ["correct horse", "correct horse\n", "correct horse\r\n"] {
        assert_eq!(**read(text, 0o600).unwrap(), *"correct horse");
    }
    assert_eq!(**read(" x ", 0o400).unwrap(), *" x ");
    for text in ["", "\n", "\r\n", "a\nb", "a\n\n"] {
        let error = read(text, 0o600).expect_err(text).to_string();
        assert!(error.contains("one line"), "{error}");
    }
    let error = read("x", 0o644).unwrap_err().to_string();
    assert!(says(&error, "chmod 600"), "{error}");
}

#[test]
fn pre_shared_keys_are_made_and_read() {
    let scratch = Scratch::new();
    let path = scratch.path("lab.psk");
    write_new_psk(&path).unwrap();
    assert_eq!(scratch.mode("lab.psk"), 0o600);
    let text = fs::read_to_string(&path).unwrap();
    assert_eq!(text.len(), 45);
    assert_eq!(
        Base64::encode_string(read_psk(&path).unwrap().as_bytes()),
        text.trim_end()
    );
    assert!(write_new_psk(&path).is_err());
    write_new_psk(&scratch.path("other.psk")).unwrap();
    assert_ne!(fs::read_to_string(scratch.path("other.psk")).unwrap(), text);
    let check = |text: &str, words: &str| {
        let error = read_psk(&scratch.write("bad", text, 0o600))
            .expect_err(text)
            .to_string();
        assert!(
            error.contains(words) && error.contains("lsl key psk"),
            "{error}"
        );
    };
    check("", "base64");
    check("correct horse battery staple", "base64");
    check(&Base64::encode_string(&[1; 31]), "base64");
    check(&Base64::encode_string(&[1; 33]), "base64");
    check(&Base64::encode_string(&[0; 32]), "all zero");
    scratch.chmod("lab.psk", 0o644);
    let error = read_psk(&path).unwrap_err().to_string();
    assert!(says(&error, "chmod 600"), "{error}");
}
