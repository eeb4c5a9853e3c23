//! Keys for files: recipients, to which a file is locked, and identities, which open it.
//!
//! The use of keys on a file key is in `stanzas`. Secret texts are erased when they are no longer needed,
//! and never appear in an error.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use bech32::primitives::decode::CheckedHrpstring;
use bech32::{Bech32, Hrp};
use zeroize::Zeroizing;

use super::decrypting::{Decrypting, Ending};
use super::error::{Error, Result};
use super::header::{Header, SCRYPT, Stanza};
use super::openssh;
use super::payload::FileKey;
use super::stanzas::{
    PublicKey, SSH_ED25519, SecretKey, X25519, random, unwrap_with_passphrase, wrap_with_passphrase,
};

/// A passphrase in memory, erased when dropped.
pub type Passphrase = Zeroizing<String>;

/// Recipients of locked files: any number of public keys, or one passphrase.
///
/// With a `Recipients` made of keys one can lock and never open: a recorder needs no secret.
pub struct Recipients {
    keys: Vec<PublicKey>,
    /// The keys as they were given, without comments.
    texts: Vec<String>,
    /// Passphrase, and the binary logarithm of the work to guess one.
    passphrase: Option<(Passphrase, u8)>,
}

impl Recipients {
    /// Creates an empty set; add keys with [`add`](Self::add) or [`add_file`](Self::add_file).
    pub fn new() -> Self {
        Self {
            keys: Vec::new(),
            texts: Vec::new(),
            passphrase: None,
        }
    }

    /// Creates recipients from a passphrase. It cannot be combined with keys.
    ///
    /// Locking a file then takes about a second and 256 MiB of memory, as with stock age. Even in parallel
    /// work only one file at a time does this.
    pub fn with_passphrase(passphrase: &Passphrase) -> Self {
        Self::with_passphrase_and_work(passphrase, PASSPHRASE_WORK)
    }

    /// Creates recipients with another amount of work: tests have no second to spend.
    pub(super) fn with_passphrase_and_work(passphrase: &Passphrase, log_n: u8) -> Self {
        Self {
            keys: Vec::new(),
            texts: Vec::new(),
            passphrase: Some((passphrase.clone(), log_n)),
        }
    }

    /// Adds a public key: `age1…`, or a line of an OpenSSH public key file, `ssh-ed25519 …`.
    /// `origin` names it in errors.
    ///
    /// # Errors
    /// [`Error::BadRecipient`], with the remedy.
    pub fn add(&mut self, origin: &str, text: &str) -> Result<()> {
        let bad = |reason: &str| Error::BadRecipient {
            origin: origin.to_owned(),
            reason: reason.to_owned(),
        };
        let text = text.trim();
        if text.starts_with("ssh-") || text.starts_with("ecdsa-") || text.starts_with("sk-") {
            self.keys.push(openssh::public_key(text).map_err(bad)?);
        } else if text.starts_with("age1") {
            let key = bech32_key(RECIPIENT, text).and_then(|point| PublicKey::of_age(*point));
            self.keys.push(key.ok_or_else(|| {
                bad(
                    "not an age1… key: a character is wrong or missing, or it is of a kind that is \
                     not supported (a plugin's, post-quantum)",
                )
            })?);
        } else if is_secret(text) {
            return Err(bad(
                "this is a SECRET key; files are locked to the public one that belongs to it",
            ));
        } else {
            return Err(bad(
                "neither an age public key (age1…) nor an OpenSSH one (ssh-ed25519 …)",
            ));
        }
        // People put their names behind keys of OpenSSH.
        let words: Vec<_> = text.split_whitespace().take(2).collect();
        self.texts.push(words.join(" "));
        Ok(())
    }

    /// Adds the keys in a file, one a line; blank lines and lines that begin with `#` are skipped. Such
    /// files are `id_ed25519.pub`, `authorized_keys` without options and recipients files of age. Returns
    /// the number of keys.
    ///
    /// # Errors
    /// [`Error::BadRecipient`] with file and line, also if the file holds no key; [`Error::Io`].
    pub fn add_file(&mut self, path: &Path) -> Result<usize> {
        let text = read_keys(path)?;
        let origin = path.display().to_string();
        let bad = |reason: &str| Error::BadRecipient {
            origin: origin.clone(),
            reason: reason.to_owned(),
        };
        let text = std::str::from_utf8(&text).map_err(|_| bad("not a text file"))?;
        if is_secret(text) {
            return Err(bad(
                "it holds a SECRET key; files are locked to the public one that belongs to it",
            ));
        }
        let before = self.keys.len();
        for (number, line) in key_lines(text) {
            self.add(&format!("{origin}, line {number}"), line)?;
        }
        match self.keys.len() - before {
            0 => Err(bad("no key in it")),
            added => Ok(added),
        }
    }

    /// Returns the public keys as texts, none for a passphrase.
    pub fn public_keys(&self) -> &[String] {
        &self.texts
    }

    /// Returns whether there is neither a key nor a passphrase.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.passphrase.is_none()
    }

    /// Wraps `file_key` in the stanzas by which these recipients recover it.
    pub(super) fn wrap(&self, file_key: &FileKey) -> Result<Vec<Stanza>> {
        match &self.passphrase {
            Some(_) if !self.keys.is_empty() => Err(Error::MixedRecipients),
            Some((passphrase, log_n)) => {
                let _turn = SCRYPT_TURN.lock().unwrap_or_else(PoisonError::into_inner);
                Ok(vec![wrap_with_passphrase(passphrase, *log_n, file_key)?])
            }
            None if self.keys.is_empty() => Err(Error::NoRecipients),
            None => self.keys.iter().map(|key| key.wrap(file_key)).collect(),
        }
    }
}

impl Default for Recipients {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for Recipients {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Recipients")
            .field("keys", &self.keys.len())
            .field("passphrase", &self.passphrase.is_some())
            .finish_non_exhaustive()
    }
}

/// Secret keys and passphrases that open files, tried in the order added.
pub struct Identities {
    keys: Vec<SecretKey>,
    passphrases: Vec<Passphrase>,
    work_limit: u8,
}

impl Identities {
    /// Creates an empty set of identities.
    pub fn new() -> Self {
        Self {
            keys: Vec::new(),
            passphrases: Vec::new(),
            work_limit: DEFAULT_WORK_LIMIT,
        }
    }

    /// Sets the largest work factor, a binary logarithm, that is accepted in files locked with a passphrase.
    ///
    /// The factor stands in the file, so the author of the file decides the cost of opening it: 2^factor
    /// KiB of memory. The default is 20: 1 GiB and some seconds. Stock age writes 18.
    pub fn set_work_limit(&mut self, log_n: u8) {
        self.work_limit = log_n;
    }

    /// Adds a passphrase, for files that were locked with one.
    pub fn add_passphrase(&mut self, passphrase: &Passphrase) {
        self.passphrases.push(passphrase.clone());
    }

    /// Adds a secret key of age, `AGE-SECRET-KEY-1…`. `origin` names it in errors.
    ///
    /// # Errors
    /// [`Error::BadIdentity`], without the text.
    pub fn add(&mut self, origin: &str, text: &str) -> Result<()> {
        let text = text.trim();
        let key = bech32_key(IDENTITY, text).ok_or_else(|| Error::BadIdentity {
            origin: origin.to_owned(),
            reason: if text.starts_with("AGE-PLUGIN-") {
                "it belongs to a plugin of age, which is not supported"
            } else if text.starts_with("age1") {
                "this is a public key; opening takes the secret one, AGE-SECRET-KEY-1…"
            } else {
                "not a secret key of age (AGE-SECRET-KEY-1…)"
            }
            .to_owned(),
        })?;
        self.keys.push(SecretKey::of_age(&key));
        Ok(())
    }

    /// Adds the keys of a file: an identity file of age (one key a line) or an OpenSSH private key
    /// (Ed25519). Both may be locked with a passphrase.
    ///
    /// `ask` is called with the file's name if a passphrase is needed; `None` gives up.
    ///
    /// # Errors
    /// [`Error::BadIdentity`] with file and line, also if the file holds no key;
    /// [`Error::WrongPassphrase`]; [`Error::Io`].
    pub fn add_file(
        &mut self,
        path: &Path,
        ask: &mut dyn FnMut(&str) -> Option<Passphrase>,
    ) -> Result<()> {
        let content = read_keys(path)?;
        self.add_content(&path.display().to_string(), &content, ask)
    }

    /// Adds keys as [`add_file`](Self::add_file) does, from content that was read already.
    ///
    /// # Errors
    /// As [`add_file`](Self::add_file).
    pub fn add_content(
        &mut self,
        origin: &str,
        content: &[u8],
        ask: &mut dyn FnMut(&str) -> Option<Passphrase>,
    ) -> Result<()> {
        let bad = |reason: &str| Error::BadIdentity {
            origin: origin.to_owned(),
            reason: reason.to_owned(),
        };
        let text = content.trim_ascii_start();
        let unarmored;
        let locked = if text.starts_with(b"-----BEGIN AGE ENCRYPTED FILE") {
            unarmored = openssh::pem(text, "AGE ENCRYPTED FILE")
                .ok_or_else(|| bad("the text form of an age file, and damaged"))?;
            Some(&unarmored[..])
        } else {
            content
                .starts_with(b"age-encryption.org/")
                .then_some(content)
        };
        if let Some(locked) = locked {
            let passphrase = ask(origin).ok_or(Error::PassphraseNeeded)?;
            let mut opener = Self::new();
            opener.set_work_limit(self.work_limit);
            opener.add_passphrase(&passphrase);
            let mut plain = Zeroizing::new(Vec::new());
            Decrypting::new(locked, &opener, Ending::Strict)?
                .read_to_end(&mut plain)
                .map_err(Error::from_io)?;
            return self.add_lines(origin, &plain);
        }
        if text.starts_with(b"-----BEGIN ") {
            // Decrypted once, here, and not for every file that it opens.
            self.keys.push(openssh::private_key(origin, text, ask)?);
            return Ok(());
        }
        self.add_lines(origin, content)
    }

    fn add_lines(&mut self, origin: &str, content: &[u8]) -> Result<()> {
        let bad = |reason: &str| Error::BadIdentity {
            origin: origin.to_owned(),
            reason: reason.to_owned(),
        };
        let text = std::str::from_utf8(content).map_err(|_| bad("not a text file"))?;
        let before = self.keys.len();
        for (number, line) in key_lines(text) {
            self.add(&format!("{origin}, line {number}"), line)?;
        }
        if self.keys.len() == before {
            return Err(bad("no key in it"));
        }
        Ok(())
    }

    /// Recovers the file key from a header, and checks that the header is authentic.
    pub(super) fn unwrap(&self, header: &Header) -> Result<FileKey> {
        let file_key = if header.wants_passphrase() {
            self.unwrap_with_passphrase(header)?
        } else {
            self.unwrap_with_key(header)?
        };
        header.verify(&file_key)?;
        Ok(file_key)
    }

    fn unwrap_with_passphrase(&self, header: &Header) -> Result<FileKey> {
        let mut failure = Error::PassphraseNeeded;
        let _turn = SCRYPT_TURN.lock().unwrap_or_else(PoisonError::into_inner);
        for passphrase in &self.passphrases {
            // A header with a passphrase has one stanza.
            for stanza in header.stanzas() {
                match unwrap_with_passphrase(passphrase, self.work_limit, stanza)? {
                    Some(file_key) => return Ok(file_key),
                    None => failure = Error::WrongPassphrase,
                }
            }
        }
        Err(failure)
    }

    fn unwrap_with_key(&self, header: &Header) -> Result<FileKey> {
        for key in &self.keys {
            for stanza in header.stanzas() {
                if let Some(file_key) = key.unwrap(stanza)? {
                    return Ok(file_key);
                }
            }
        }
        Err(Error::NoMatchingIdentity {
            locked_to: locked_to(header.stanzas()),
        })
    }
}

impl Default for Identities {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for Identities {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Identities")
            .field("keys", &self.keys.len())
            .field("passphrases", &self.passphrases.len())
            .finish_non_exhaustive()
    }
}

/// Key pair of age: the secret half for an identity file, the public half to lock files to.
pub struct KeyPair {
    /// Secret key as text, `AGE-SECRET-KEY-1…`.
    pub identity: Zeroizing<String>,
    /// Public key as text, `age1…`.
    pub recipient: String,
}

impl KeyPair {
    /// Generates a pair from the randomness of the operating system.
    ///
    /// # Panics
    /// If the operating system has none.
    pub fn generate() -> Self {
        let secret = random().expect("the operating system has randomness");
        Self {
            identity: Zeroizing::new(
                bech32::encode_upper::<Bech32>(IDENTITY, &secret[..]).expect(BECH32_FITS),
            ),
            recipient: bech32::encode_lower::<Bech32>(
                RECIPIENT,
                SecretKey::of_age(&secret).public().point(),
            )
            .expect(BECH32_FITS),
        }
    }
}

impl std::fmt::Debug for KeyPair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeyPair")
            .field("recipient", &self.recipient)
            .finish_non_exhaustive()
    }
}

/// Describes the kinds of recipients in a header; age keys are anonymous, so no more can be told.
fn locked_to(stanzas: &[Stanza]) -> String {
    let mut kinds: Vec<(String, usize)> = Vec::new();
    for stanza in stanzas {
        // Implementations add these so that programs accept unknown kinds.
        if stanza.tag.ends_with("-grease") {
            continue;
        }
        let kind = match stanza.tag.as_str() {
            X25519 => "age key (age1…)".to_owned(),
            SSH_ED25519 => "ssh-ed25519 key".to_owned(),
            "ssh-rsa" => "ssh-rsa key (with that, stock age or rage opens it)".to_owned(),
            SCRYPT => "passphrase".to_owned(),
            // The text comes from the file: visible ASCII by the grammar, of any length.
            other => format!("unsupported \"{}\"", other.get(..32).unwrap_or(other)),
        };
        if let Some((_, count)) = kinds.iter_mut().find(|(known, _)| *known == kind) {
            *count += 1;
        } else if kinds.len() < MAX_KINDS_SHOWN {
            kinds.push((kind, 1));
        }
    }
    if kinds.is_empty() {
        return "nobody".to_owned();
    }
    let texts: Vec<String> = kinds
        .into_iter()
        .map(|(kind, count)| format!("{count} {kind}"))
        .collect();
    texts.join(", ")
}

/// Decodes the 32 bytes of an age key whose text begins with `kind`.
fn bech32_key(kind: Hrp, text: &str) -> Option<Zeroizing<[u8; 32]>> {
    let decoded = CheckedHrpstring::new::<Bech32>(text).ok()?;
    // Padding as in segwit: fewer than 5 bits, and zeros.
    let good = decoded.hrp() == kind && decoded.validate_segwit_padding().is_ok();
    let mut bytes = decoded.byte_iter();
    let mut key = Zeroizing::new([0; 32]);
    for byte in key.iter_mut() {
        *byte = bytes.next()?;
    }
    (good && bytes.next().is_none()).then_some(key)
}

fn is_secret(text: &str) -> bool {
    text.contains("AGE-SECRET-KEY-") || text.contains("PRIVATE KEY-----")
}

/// Lists the lines that are neither blank nor comments, with their numbers from 1.
fn key_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines()
        .enumerate()
        .map(|(index, line)| (index + 1, line.trim()))
        .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
}

fn read_keys(path: &Path) -> Result<Zeroizing<Vec<u8>>> {
    let mut content = Zeroizing::new(Vec::new());
    File::open(path)?
        .take(MAX_KEY_FILE_LEN)
        .read_to_end(&mut content)?;
    Ok(content)
}

/// Prefixes of age's keys, in upper case where they are secret.
const RECIPIENT: Hrp = Hrp::parse_unchecked("age");
const IDENTITY: Hrp = Hrp::parse_unchecked("age-secret-key-");

const BECH32_FITS: &str = "a key is far below the 1023 characters of Bech32";

/// Work factor of stock age: 256 MiB and about a second.
const PASSPHRASE_WORK: u8 = 18;

/// Work factor of 1 GiB: four times any default that is known.
const DEFAULT_WORK_LIMIT: u8 = 20;

/// Serialises the work on passphrases: each takes hundreds of MiB, and files are worked on in parallel.
static SCRYPT_TURN: Mutex<()> = Mutex::new(());

const MAX_KINDS_SHOWN: usize = 4;

/// Upper limit for a list of keys; files given by mistake are often longer.
const MAX_KEY_FILE_LEN: u64 = 16 * 1024 * 1024;
