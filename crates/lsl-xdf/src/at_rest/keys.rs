//! Who may open a file: recipients, to whom it is locked, and identities, which open it.
//!
//! The keys and what they do to a file key come from the `age` crate. Secret texts are erased when they are
//! no longer needed, and never appear in an error.

use std::collections::HashSet;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use age::secrecy::{ExposeSecret, SecretString};
use age::{DecryptError, EncryptError};
use age_core::format::{FileKey, Stanza};
use zeroize::Zeroizing;

use super::decrypting::{Decrypting, Ending};
use super::error::{Error, Result};
use super::header::{Header, SCRYPT};

/// A passphrase in memory, erased when dropped.
pub type Passphrase = Zeroizing<String>;

/// To whom files are locked: any number of public keys, or one passphrase.
///
/// The holder of a `Recipients` made of keys can lock and never open: a recorder needs no secret.
pub struct Recipients {
    keys: Vec<Box<dyn age::Recipient + Send + Sync>>,
    passphrase: Option<age::scrypt::Recipient>,
}

impl Recipients {
    /// Nobody yet; add keys with [`add`](Self::add) or [`add_file`](Self::add_file).
    pub fn new() -> Self {
        Self {
            keys: Vec::new(),
            passphrase: None,
        }
    }

    /// Whoever knows the passphrase. It cannot be combined with keys.
    ///
    /// Locking a file then takes about a second and 256 MiB of memory, as with stock age; one file at
    /// a time, however many are locked in parallel.
    pub fn with_passphrase(passphrase: &Passphrase) -> Self {
        Self::with_passphrase_and_work(passphrase, PASSPHRASE_WORK)
    }

    /// With the work that guessing takes, as its binary logarithm. Tests have no second to spend.
    pub(super) fn with_passphrase_and_work(passphrase: &Passphrase, log_n: u8) -> Self {
        let mut recipient = age::scrypt::Recipient::new(secret(passphrase));
        recipient.set_work_factor(log_n);
        Self {
            keys: Vec::new(),
            passphrase: Some(recipient),
        }
    }

    /// Adds a public key: `age1…`, or a line of an OpenSSH public key file, `ssh-ed25519 …` or
    /// `ssh-rsa …` (2048 bits and more). `origin` names it in errors.
    ///
    /// # Errors
    /// [`Error::BadRecipient`], with what to use instead.
    pub fn add(&mut self, origin: &str, text: &str) -> Result<()> {
        let bad = |reason: &str| Error::BadRecipient {
            origin: origin.to_owned(),
            reason: reason.to_owned(),
        };
        let text = text.trim();
        if text.starts_with("ssh-") || text.starts_with("ecdsa-") || text.starts_with("sk-") {
            let key: age::ssh::Recipient = text.parse().map_err(|error| bad(ssh_reason(&error)))?;
            self.keys.push(Box::new(key));
        } else if text.starts_with("age1") {
            let key: age::x25519::Recipient = text.parse().map_err(|_| {
                bad("not an age1… key: a character is wrong or missing, or it is a plugin's")
            })?;
            self.keys.push(Box::new(key));
        } else if is_secret(text) {
            return Err(bad(
                "this is a SECRET key; files are locked to the public one that belongs to it",
            ));
        } else {
            return Err(bad(
                "neither an age public key (age1…) nor an OpenSSH one (ssh-ed25519 …, ssh-rsa …)",
            ));
        }
        Ok(())
    }

    /// Adds the keys in a file, one a line; blank lines and lines with `#` in front are skipped.
    /// `id_ed25519.pub`, `authorized_keys` without options and recipients files of age are such files.
    /// Returns how many there were.
    ///
    /// # Errors
    /// [`Error::BadRecipient`] with file and line, also where the file holds none; [`Error::Io`].
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

    /// Whether nobody could open a file locked to these.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.passphrase.is_none()
    }

    /// The stanzas by which these recover `file_key`.
    pub(super) fn wrap(&self, file_key: &FileKey) -> Result<Vec<Stanza>> {
        if let Some(passphrase) = &self.passphrase {
            if !self.keys.is_empty() {
                return Err(Error::MixedRecipients);
            }
            let _turn = SCRYPT_TURN.lock().unwrap_or_else(PoisonError::into_inner);
            let (stanzas, _) =
                age::Recipient::wrap_file_key(passphrase, file_key).map_err(|e| wrap_error(&e))?;
            return Ok(stanzas);
        }
        let mut stanzas = Vec::with_capacity(self.keys.len());
        let mut common: Option<HashSet<String>> = None;
        for key in &self.keys {
            let (mut more, labels) = key.wrap_file_key(file_key).map_err(|e| wrap_error(&e))?;
            // Kinds of keys say by labels with which others they may stand in one header.
            if *common.get_or_insert_with(|| labels.clone()) != labels {
                return Err(Error::MixedRecipients);
            }
            stanzas.append(&mut more);
        }
        if stanzas.is_empty() {
            return Err(Error::NoRecipients);
        }
        Ok(stanzas)
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
            .finish()
    }
}

/// What opens files: secret keys and passphrases, tried in the order added.
pub struct Identities {
    keys: Vec<Box<dyn age::Identity + Send + Sync>>,
    passphrases: Vec<age::scrypt::Identity>,
    work_limit: u8,
}

impl Identities {
    /// None yet.
    pub fn new() -> Self {
        Self {
            keys: Vec::new(),
            passphrases: Vec::new(),
            work_limit: DEFAULT_WORK_LIMIT,
        }
    }

    /// Accepts files locked with a passphrase whose work factor, a binary logarithm, is up to `log_n`.
    ///
    /// The factor stands in the file, so whoever made it decides what opening costs: 2^factor KiB of
    /// memory. Without this call the limit is 20: 1 GiB and some seconds. Stock age writes 18.
    pub fn set_work_limit(&mut self, log_n: u8) {
        self.work_limit = log_n;
        for passphrase in &mut self.passphrases {
            passphrase.set_max_work_factor(log_n);
        }
    }

    /// Adds a passphrase, for files that were locked with one.
    pub fn add_passphrase(&mut self, passphrase: &Passphrase) {
        let mut identity = age::scrypt::Identity::new(secret(passphrase));
        // The crate's own limit comes from timing this machine: under load it would refuse good files.
        identity.set_max_work_factor(self.work_limit);
        self.passphrases.push(identity);
    }

    /// Adds a secret key of age, `AGE-SECRET-KEY-1…`. `origin` names it in errors.
    ///
    /// # Errors
    /// [`Error::BadIdentity`], without the text.
    pub fn add(&mut self, origin: &str, text: &str) -> Result<()> {
        let text = text.trim();
        let key: age::x25519::Identity = text.parse().map_err(|_| Error::BadIdentity {
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
        self.keys.push(Box::new(key));
        Ok(())
    }

    /// Adds what is in a file: an identity file of age (one key a line), the same locked with a
    /// passphrase, or an OpenSSH private key (Ed25519 or RSA), with or without passphrase.
    ///
    /// `ask` is called with the file's name where a passphrase is needed; `None` gives up.
    ///
    /// # Errors
    /// [`Error::BadIdentity`] with file and line, also where the file holds none;
    /// [`Error::WrongPassphrase`]; [`Error::Io`].
    pub fn add_file(
        &mut self,
        path: &Path,
        ask: &mut dyn FnMut(&str) -> Option<Passphrase>,
    ) -> Result<()> {
        let content = read_keys(path)?;
        self.add_content(&path.display().to_string(), &content, ask)
    }

    /// As [`add_file`](Self::add_file), of content that was read already.
    ///
    /// # Errors
    /// As there.
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
        if content.starts_with(b"age-encryption.org/")
            || content.starts_with(b"-----BEGIN AGE ENCRYPTED FILE")
        {
            let passphrase = ask(origin).ok_or(Error::PassphraseNeeded)?;
            let mut opener = Self::new();
            opener.set_work_limit(self.work_limit);
            opener.add_passphrase(&passphrase);
            let content = decrypt_keys(content, &opener)?;
            return self.add_lines(origin, &content);
        }
        if content.trim_ascii_start().starts_with(b"-----BEGIN ") {
            let key = age::ssh::Identity::from_buffer(content.trim_ascii_start(), None)
                .map_err(|_| bad("not a private key that OpenSSH writes (Ed25519 or RSA)"))?;
            return self.add_ssh(origin, key, ask);
        }
        self.add_lines(origin, content)
    }

    fn add_ssh(
        &mut self,
        origin: &str,
        key: age::ssh::Identity,
        ask: &mut dyn FnMut(&str) -> Option<Passphrase>,
    ) -> Result<()> {
        let key = match key {
            age::ssh::Identity::Unencrypted(key) => key,
            // Decrypted here, once, and not for every file that it opens.
            age::ssh::Identity::Encrypted(key) => {
                let passphrase = ask(origin).ok_or(Error::PassphraseNeeded)?;
                key.decrypt(secret(&passphrase))
                    .map_err(|_| Error::WrongPassphrase)?
            }
            age::ssh::Identity::Unsupported(why) => {
                use age::ssh::UnsupportedKey;
                let reason = match why {
                    UnsupportedKey::EncryptedPem => {
                        "its old form of encryption is not supported; rewrite it with `ssh-keygen -p -f FILE`"
                    }
                    UnsupportedKey::EncryptedSsh(_) => {
                        "its cipher is not supported; rewrite it with `ssh-keygen -p -f FILE`"
                    }
                    UnsupportedKey::Hardware(_) => {
                        "it is on a hardware token, which signs and cannot decrypt"
                    }
                    UnsupportedKey::Type(_) => {
                        "only Ed25519 and RSA keys can decrypt; make one with `ssh-keygen -t ed25519`"
                    }
                };
                return Err(Error::BadIdentity {
                    origin: origin.to_owned(),
                    reason: reason.to_owned(),
                });
            }
        };
        self.keys.push(Box::new(age::ssh::Identity::from(key)));
        Ok(())
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

    /// The file key of a file with this header, which is authentic then.
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
            match age::Identity::unwrap_stanzas(passphrase, header.stanzas()) {
                Some(Ok(file_key)) => return Ok(file_key),
                Some(Err(DecryptError::DecryptionFailed)) => failure = Error::WrongPassphrase,
                Some(Err(DecryptError::ExcessiveWork { required, .. })) => {
                    return Err(Error::ExcessiveWork {
                        required,
                        limit: self.work_limit,
                    });
                }
                Some(Err(_)) => return Err(BAD_STANZA),
                None => {}
            }
        }
        Err(failure)
    }

    fn unwrap_with_key(&self, header: &Header) -> Result<FileKey> {
        for key in &self.keys {
            match key.unwrap_stanzas(header.stanzas()) {
                Some(Ok(file_key)) => return Ok(file_key),
                Some(Err(DecryptError::InvalidHeader)) => return Err(BAD_STANZA),
                // A stanza that looked like this key's and is not: 32 bits of an SSH key stand in it.
                Some(Err(_)) | None => {}
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

/// A key pair of age: the secret half for an identity file, the public half to lock files to.
pub struct KeyPair {
    /// `AGE-SECRET-KEY-1…`.
    pub identity: Zeroizing<String>,
    /// `age1…`.
    pub recipient: String,
}

impl KeyPair {
    /// A new one, from the randomness of the operating system.
    pub fn generate() -> Self {
        let key = age::x25519::Identity::generate();
        Self {
            identity: Zeroizing::new(key.to_string().expose_secret().to_owned()),
            recipient: key.to_public().to_string(),
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

/// The kinds of recipients in a header, in words; age keys are anonymous, so no more can be told.
fn locked_to(stanzas: &[Stanza]) -> String {
    let mut kinds: Vec<(String, usize)> = Vec::new();
    for stanza in stanzas {
        // What implementations put in so that nobody relies on knowing every kind.
        if stanza.tag.ends_with("-grease") {
            continue;
        }
        let kind = match stanza.tag.as_str() {
            "X25519" => "age key (age1…)".to_owned(),
            "ssh-ed25519" => "ssh-ed25519 key".to_owned(),
            "ssh-rsa" => "ssh-rsa key".to_owned(),
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

fn wrap_error(error: &EncryptError) -> Error {
    match error {
        EncryptError::MissingRecipients => Error::NoRecipients,
        // The kinds of keys that are accepted fail in no other way.
        _ => Error::MixedRecipients,
    }
}

fn ssh_reason(error: &age::ssh::ParseRecipientKeyError) -> &'static str {
    use age::ssh::ParseRecipientKeyError as Parse;
    match error {
        Parse::RsaModulusTooSmall => "an RSA key of less than 2048 bits is too weak",
        Parse::RsaModulusTooLarge => "an RSA key of more than 4096 bits is not supported",
        Parse::Unsupported(_) => {
            "only ssh-ed25519 and ssh-rsa keys can encrypt; make one with `ssh-keygen -t ed25519`"
        }
        _ => "not a line of an OpenSSH public key file",
    }
}

fn is_secret(text: &str) -> bool {
    text.contains("AGE-SECRET-KEY-") || text.contains("PRIVATE KEY-----")
}

/// Lines that hold something, with their numbers from 1.
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

/// An identity file that is itself an age file, binary or text.
fn decrypt_keys(content: &[u8], opener: &Identities) -> Result<Zeroizing<Vec<u8>>> {
    let mut plain = Zeroizing::new(Vec::new());
    let content = age::armor::ArmoredReader::new(content);
    let mut reader = Decrypting::new(content, opener, Ending::Strict)?;
    reader.read_to_end(&mut plain).map_err(Error::from_io)?;
    Ok(plain)
}

fn secret(passphrase: &Passphrase) -> SecretString {
    SecretString::from(passphrase.as_str())
}

/// As stock age: 256 MiB and about a second.
const PASSPHRASE_WORK: u8 = 18;

/// 1 GiB: four times what anybody is known to write by default.
const DEFAULT_WORK_LIMIT: u8 = 20;

/// Files are worked on in parallel, but not their passphrases: each takes hundreds of MiB.
static SCRYPT_TURN: Mutex<()> = Mutex::new(());

const BAD_STANZA: Error = Error::BadHeader("a stanza is not as its kind wants it");

const MAX_KINDS_SHOWN: usize = 4;

/// No list of keys is longer; what is given by mistake often is.
const MAX_KEY_FILE_LEN: u64 = 16 * 1024 * 1024;
