//! Stanzas of age v1: how a file key is wrapped for a key pair or a passphrase, and recovered.
//!
//! Texts of keys are in `keys` and `openssh`. Stanzas come from strangers: one of a known kind that
//! violates the format makes the whole header bad.

use std::io;

use base64ct::{Base64Unpadded, Encoding};
use ed25519_dalek::{SigningKey, VerifyingKey};
use sha2::{Digest, Sha256};
use x25519_dalek::{PublicKey as Point, SharedSecret, StaticSecret};
use zeroize::Zeroizing;

use super::error::{Error, Result};
use super::header::{SCRYPT, Stanza};
use super::payload::{ChunkPosition, FILE_KEY_LEN, FileKey, PayloadKey, TAG_LEN, derive};

/// Tag of the stanza for a key pair of age.
pub(super) const X25519: &str = "X25519";
/// Tag of the stanza for an Ed25519 key of OpenSSH.
pub(super) const SSH_ED25519: &str = "ssh-ed25519";

/// The public half of a key pair of age or OpenSSH.
pub(super) struct PublicKey {
    point: Point,
    /// Additional data of OpenSSH's keys; `None` for keys of age.
    ssh: Option<Ssh>,
}

struct Ssh {
    /// First 32 bits of the key's hash in base64, which stand in the file.
    hint: String,
    /// Number derived from the public key, by which shared secrets are multiplied.
    tweak: [u8; 32],
}

impl PublicKey {
    /// Creates a key of age. `None` for a point with which all shared secrets are zero: everybody would
    /// know them.
    pub(super) fn of_age(point: [u8; 32]) -> Option<Self> {
        let key = Self {
            point: Point::from(point),
            ssh: None,
        };
        let any = StaticSecret::from([0; 32]);
        key.shared(&any, &key.point)
            .was_contributory()
            .then_some(key)
    }

    /// Creates a key of OpenSSH. `None` for a weak one, as above.
    pub(super) fn of_ssh(key: &VerifyingKey) -> Option<Self> {
        if key.is_weak() {
            return None;
        }
        // As it stands in base64 in public key files: type and key, with their lengths in front.
        let blob = [b"\0\0\0\x0bssh-ed25519\0\0\0\x20", &key.as_bytes()[..]].concat();
        let hash = Sha256::digest(&blob);
        Some(Self {
            point: Point::from(key.to_montgomery().to_bytes()),
            ssh: Some(Ssh {
                hint: Base64Unpadded::encode_string(&hash[..4]),
                tweak: *derive(&blob, &[], SSH_INFO),
            }),
        })
    }

    /// Returns the point, as keys of age are written.
    pub(super) fn point(&self) -> &[u8; 32] {
        self.point.as_bytes()
    }

    /// Wraps `file_key` for the holder of the secret half.
    pub(super) fn wrap(&self, file_key: &FileKey) -> Result<Stanza> {
        let ephemeral = StaticSecret::from(*random::<32>()?);
        let share = Point::from(&ephemeral);
        let key = self.wrap_key(&self.shared(&ephemeral, &self.point), &share);
        let share = Base64Unpadded::encode_string(share.as_bytes());
        let (tag, args) = match &self.ssh {
            None => (X25519, vec![share]),
            Some(ssh) => (SSH_ED25519, vec![ssh.hint.clone(), share]),
        };
        Ok(Stanza {
            tag: tag.to_owned(),
            args,
            body: seal(&key, file_key),
        })
    }

    fn shared(&self, secret: &StaticSecret, point: &Point) -> SharedSecret {
        let shared = secret.diffie_hellman(point);
        match &self.ssh {
            None => shared,
            Some(ssh) => {
                StaticSecret::from(ssh.tweak).diffie_hellman(&Point::from(shared.to_bytes()))
            }
        }
    }

    fn wrap_key(&self, shared: &SharedSecret, share: &Point) -> PayloadKey {
        let salt = [*share.as_bytes(), *self.point()].concat();
        let info = if self.ssh.is_some() {
            SSH_INFO
        } else {
            X25519_INFO
        };
        PayloadKey::new(&derive(&salt, shared.as_bytes(), info))
    }
}

/// A key pair of age or OpenSSH.
pub(super) struct SecretKey {
    secret: StaticSecret,
    public: PublicKey,
}

impl SecretKey {
    /// Creates a key of age. Clamping, which is part of the curve's definition, makes any bytes a good key.
    pub(super) fn of_age(secret: &[u8; 32]) -> Self {
        let secret = StaticSecret::from(*secret);
        let public = PublicKey {
            point: Point::from(&secret),
            ssh: None,
        };
        Self { secret, public }
    }

    /// Creates a key of OpenSSH. `None` for a weak one, which no signing key is.
    pub(super) fn of_ssh(key: &SigningKey) -> Option<Self> {
        Some(Self {
            secret: StaticSecret::from(key.to_scalar_bytes()),
            public: PublicKey::of_ssh(&key.verifying_key())?,
        })
    }

    pub(super) fn public(&self) -> &PublicKey {
        &self.public
    }

    /// Recovers the file key if the stanza is for this key.
    pub(super) fn unwrap(&self, stanza: &Stanza) -> Result<Option<FileKey>> {
        let share = match (stanza.tag.as_str(), &stanza.args[..], &self.public.ssh) {
            (X25519, [share], None) => share,
            (SSH_ED25519, [hint, share], Some(ssh)) if *hint == ssh.hint => share,
            (X25519, _, None) => return Err(BAD_STANZA),
            (SSH_ED25519, args, Some(_)) if args.len() != 2 => return Err(BAD_STANZA),
            _ => return Ok(None),
        };
        let share = Point::from(decode(share)?);
        let shared = self.public.shared(&self.secret, &share);
        if !shared.was_contributory() {
            return Err(BAD_STANZA);
        }
        open(&stanza.body, || Ok(self.public.wrap_key(&shared, &share)))
    }
}

/// Wraps `file_key` for holders of the passphrase.
pub(super) fn wrap_with_passphrase(
    passphrase: &str,
    log_n: u8,
    file_key: &FileKey,
) -> Result<Stanza> {
    let salt = random::<16>()?;
    let key = stretch(passphrase, &salt, log_n)?;
    Ok(Stanza {
        tag: SCRYPT.to_owned(),
        args: vec![Base64Unpadded::encode_string(&salt[..]), log_n.to_string()],
        body: seal(&key, file_key),
    })
}

/// Recovers the file key if `passphrase` is right. The stanza may ask for work up to `limit`.
pub(super) fn unwrap_with_passphrase(
    passphrase: &str,
    limit: u8,
    stanza: &Stanza,
) -> Result<Option<FileKey>> {
    let [salt, work] = &stanza.args[..] else {
        return Err(BAD_STANZA);
    };
    let salt = decode::<16>(salt)?;
    // Parsing alone would accept signs and leading zeros.
    let digits = work.bytes().all(|byte| byte.is_ascii_digit()) && !work.starts_with('0');
    let required: u8 = match work.parse() {
        Ok(required) if digits => required,
        _ => return Err(BAD_STANZA),
    };
    if required > limit {
        return Err(Error::ExcessiveWork { required, limit });
    }
    open(&stanza.body, || stretch(passphrase, &salt, required))
}

fn stretch(passphrase: &str, salt: &[u8; 16], log_n: u8) -> Result<PayloadKey> {
    // Only more than the memory can address is refused.
    let params = scrypt::Params::new(log_n, 8, 1).map_err(|_| Error::ExcessiveWork {
        required: log_n,
        limit: log_n.saturating_sub(1),
    })?;
    let salt = [SCRYPT_INFO, salt].concat();
    let mut key = Zeroizing::new([0; 32]);
    scrypt::scrypt(passphrase.as_bytes(), &salt, &params, &mut key[..])
        .expect("32 bytes are within what scrypt gives");
    Ok(PayloadKey::new(&key))
}

/// Seals with a key that is used once, as if it were the first chunk: the nonce is all zeros.
fn seal(key: &PayloadKey, file_key: &FileKey) -> Vec<u8> {
    let mut body = file_key.to_vec();
    let tag = key.seal(0, ChunkPosition::Inner, &mut body);
    body.extend_from_slice(&tag);
    body
}

/// Opens a body of the one valid length. With others, a body could be made that many keys open.
fn open(body: &[u8], key: impl FnOnce() -> Result<PayloadKey>) -> Result<Option<FileKey>> {
    let body: [u8; FILE_KEY_LEN + TAG_LEN] = body.try_into().map_err(|_| BAD_STANZA)?;
    let mut body = Zeroizing::new(body);
    if key()?
        .open(0, ChunkPosition::Inner, &mut body[..])
        .is_none()
    {
        return Ok(None);
    }
    let mut file_key = FileKey::default();
    file_key.copy_from_slice(&body[..FILE_KEY_LEN]);
    Ok(Some(file_key))
}

/// Decodes an argument of exactly `N` bytes in canonical base64.
fn decode<const N: usize>(argument: &str) -> Result<[u8; N]> {
    let mut bytes = [0; N];
    match Base64Unpadded::decode(argument, &mut bytes) {
        Ok(decoded) if decoded.len() == N => Ok(bytes),
        _ => Err(BAD_STANZA),
    }
}

/// Returns random bytes from the operating system.
pub(super) fn random<const N: usize>() -> io::Result<Zeroizing<[u8; N]>> {
    let mut bytes = Zeroizing::new([0; N]);
    getrandom::fill(&mut bytes[..]).map_err(|error| {
        io::Error::other(format!("no randomness from the operating system: {error}"))
    })?;
    Ok(bytes)
}

const BAD_STANZA: Error = Error::BadHeader("a stanza is not as its kind wants it");

const X25519_INFO: &[u8] = b"age-encryption.org/v1/X25519";
const SSH_INFO: &[u8] = b"age-encryption.org/v1/ssh-ed25519";
const SCRYPT_INFO: &[u8] = b"age-encryption.org/v1/scrypt";
