//! OpenSSH's key files, as far as their keys can decrypt: Ed25519, private ones with or without passphrase.

use aes::Aes256;
use aes::cipher::{BlockModeDecrypt, KeyIvInit, StreamCipher, block_padding::NoPadding};
use base64ct::{Base64, Encoding};
use ed25519_dalek::{SigningKey, VerifyingKey};
use zeroize::Zeroizing;

use super::error::{Error, Result};
use super::keys::Passphrase;
use super::stanzas::{PublicKey, SSH_ED25519, SecretKey};

/// Reads a line of a public key file. An error names the remedy.
pub(super) fn public_key(line: &str) -> Result<PublicKey, &'static str> {
    let mut words = line.split_ascii_whitespace();
    match words.next() {
        Some(SSH_ED25519) => {}
        Some("ssh-rsa") => return Err(RSA),
        _ => {
            return Err("only ssh-ed25519 keys can encrypt; make one with `ssh-keygen -t ed25519`");
        }
    }
    let key = words.next().and_then(|text| {
        let blob = Base64::decode_vec(text).ok()?;
        let mut rest = &blob[..];
        let key = ed25519(&mut rest)?;
        PublicKey::of_ssh(&key).filter(|_| rest.is_empty())
    });
    key.ok_or("not a line of an OpenSSH public key file")
}

/// Reads a private key file; calls `ask` with `origin` if it has a passphrase.
pub(super) fn private_key(
    origin: &str,
    content: &[u8],
    ask: &mut dyn FnMut(&str) -> Option<Passphrase>,
) -> Result<SecretKey> {
    let bad = |reason: &str| Error::BadIdentity {
        origin: origin.to_owned(),
        reason: reason.to_owned(),
    };
    let unreadable = || bad("not a private key that OpenSSH writes (Ed25519)");
    if content.starts_with(b"-----BEGIN RSA ") {
        return Err(bad(RSA));
    }
    let file = pem(content, "OPENSSH PRIVATE KEY").ok_or_else(unreadable)?;
    let envelope = Envelope::read(&file).ok_or_else(unreadable)?;
    match string(&mut &*envelope.public) {
        Some(kind) if kind == SSH_ED25519.as_bytes() => {}
        Some(b"ssh-rsa") => return Err(bad(RSA)),
        Some(kind) if kind.starts_with(b"sk-") => {
            return Err(bad(
                "it is on a hardware token, which signs and cannot decrypt",
            ));
        }
        _ => {
            return Err(bad(
                "only Ed25519 keys can decrypt; make one with `ssh-keygen -t ed25519`",
            ));
        }
    }
    let mut section = Zeroizing::new(envelope.section.to_vec());
    let is_locked = (envelope.cipher, envelope.kdf) != (b"none", b"none");
    if is_locked {
        let lock = envelope.lock().ok_or_else(|| {
            bad("its encryption is not supported; rewrite it with `ssh-keygen -p -f FILE`")
        })?;
        let passphrase = ask(origin).ok_or(Error::PassphraseNeeded)?;
        lock.open(&passphrase, &mut section)
            .ok_or(Error::WrongPassphrase)?;
    }
    let mut rest = &section[..];
    // The same random number twice; after a wrong passphrase the two differ.
    let (first, second) = (number(&mut rest), number(&mut rest));
    if first != second && is_locked {
        return Err(Error::WrongPassphrase);
    }
    signing_key(rest)
        .filter(|_| first == second)
        .filter(|key| ed25519(&mut &*envelope.public) == Some(key.verifying_key()))
        .and_then(|key| SecretKey::of_ssh(&key))
        .ok_or_else(unreadable)
}

/// Decodes a PEM text if its first line has this `label`.
pub(super) fn pem(content: &[u8], label: &str) -> Option<Zeroizing<Vec<u8>>> {
    let mut decoder = pem_rfc7468::Decoder::new_detect_wrap(content.trim_ascii()).ok()?;
    let mut bytes = Zeroizing::new(Vec::new());
    decoder.decode_to_end(&mut bytes).ok()?;
    (decoder.type_label() == label).then_some(bytes)
}

/// Private key file of one key, as far as it is readable without the passphrase.
struct Envelope<'a> {
    cipher: &'a [u8],
    kdf: &'a [u8],
    options: &'a [u8],
    public: &'a [u8],
    section: &'a [u8],
}

impl<'a> Envelope<'a> {
    fn read(file: &'a [u8]) -> Option<Self> {
        let rest = &mut file.strip_prefix(b"openssh-key-v1\0")?;
        let (cipher, kdf, options) = (string(rest)?, string(rest)?, string(rest)?);
        let count = number(rest)?;
        let (public, section) = (string(rest)?, string(rest)?);
        (count == 1).then_some(Self {
            cipher,
            kdf,
            options,
            public,
            section,
        })
    }

    /// Returns the encryption of the private half; `None` unless it is OpenSSH's default, or was up to 7.5.
    fn lock(&self) -> Option<Lock<'a>> {
        let rest = &mut &*self.options;
        let lock = Lock {
            chained: self.cipher == b"aes256-cbc",
            salt: string(rest)?,
            rounds: number(rest)?,
        };
        let known = lock.chained || self.cipher == b"aes256-ctr";
        (known && self.kdf == b"bcrypt" && lock.rounds <= MAX_ROUNDS).then_some(lock)
    }
}

/// Encryption of a private key.
struct Lock<'a> {
    /// Whether the mode is CBC rather than CTR.
    chained: bool,
    salt: &'a [u8],
    rounds: u32,
}

impl Lock<'_> {
    /// Decrypts in place. Only the result shows whether the passphrase was right.
    fn open(&self, passphrase: &str, section: &mut [u8]) -> Option<()> {
        let mut bytes = Zeroizing::new([0; 48]);
        let passphrase = passphrase.as_bytes();
        bcrypt_pbkdf::bcrypt_pbkdf(passphrase, self.salt, self.rounds, &mut bytes[..]).ok()?;
        let (key, iv) = bytes.split_at(32);
        if self.chained {
            let cipher = cbc::Decryptor::<Aes256>::new_from_slices(key, iv).ok()?;
            cipher.decrypt_padded::<NoPadding>(section).ok()?;
        } else {
            let mut cipher = ctr::Ctr128BE::<Aes256>::new_from_slices(key, iv).ok()?;
            cipher.try_apply_keystream(section).ok()?;
        }
        Some(())
    }
}

/// Parses a private key behind the check numbers: its public half, then both in a row.
fn signing_key(mut rest: &[u8]) -> Option<SigningKey> {
    let public = ed25519(&mut rest)?;
    let pair = string(&mut rest)?.try_into().ok()?;
    let key = SigningKey::from_keypair_bytes(pair).ok()?;
    (key.verifying_key() == public).then_some(key)
}

/// Parses a public key behind its type, which must be Ed25519.
fn ed25519(rest: &mut &[u8]) -> Option<VerifyingKey> {
    if string(rest)? != SSH_ED25519.as_bytes() {
        return None;
    }
    VerifyingKey::from_bytes(string(rest)?.try_into().ok()?).ok()
}

/// Splits off bytes that stand behind their length.
fn string<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let len = usize::try_from(number(rest)?).ok()?;
    let (bytes, more) = rest.split_at_checked(len)?;
    *rest = more;
    Some(bytes)
}

fn number(rest: &mut &[u8]) -> Option<u32> {
    let (bytes, more) = rest.split_first_chunk()?;
    *rest = more;
    Some(u32::from_be_bytes(*bytes))
}

const RSA: &str = "RSA keys are no longer accepted; make a key with `ssh-keygen -t ed25519` or `lsl key age`. \
                   What is locked to ssh-rsa opens with stock age or rage";

/// Upper limit for the rounds of bcrypt: half a minute. OpenSSH writes 16 or 24.
const MAX_ROUNDS: u32 = 4096;
