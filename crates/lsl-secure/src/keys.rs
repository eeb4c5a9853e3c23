//! Device keys, fingerprints and the optional pre-shared key, in memory. Spec: LSS/1 §3.1, §6.3.

use std::fmt;
use std::str::FromStr;

use base64ct::{Base64, Base64Unpadded, Encoding};
use ed25519_dalek::{Signature, Signer, SigningKey, VerifyingKey};
use lsl_platform::locked::{InChild, Locked};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use crate::{Cause, Error, Random, Result, Suites};

/// Which side of LSL a peer is in one session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// Sends samples: TCP server, LSS responder.
    Outlet,
    /// Receives samples: TCP client, LSS initiator.
    Inlet,
}

/// An Ed25519 private key. Erased on drop; prints as its fingerprint.
pub struct SecretKey {
    // Not in the value itself, so that moving it leaves no copy behind. A child of this process may make
    // sessions of its own with it.
    key: Locked<SigningKey>,
}

impl SecretKey {
    /// A new key.
    ///
    /// # Errors
    /// If the random generator fails.
    pub fn generate(random: &mut impl Random) -> Result<Self> {
        let mut seed = Zeroizing::new([0; 32]);
        random.fill(&mut *seed)?;
        Ok(Self::from_seed(&seed))
    }

    /// Creates the key of a 32-byte seed.
    pub fn from_seed(seed: &[u8; 32]) -> Self {
        Self {
            key: Locked::new(SigningKey::from_bytes(seed), InChild::Kept),
        }
    }

    /// Returns the public key, which peers put into their trust files.
    pub fn public(&self) -> PublicKey {
        PublicKey(self.key.get().verifying_key().to_bytes())
    }

    /// The 32-byte seed, for the key file.
    pub(crate) fn seed(&self) -> Zeroizing<[u8; 32]> {
        Zeroizing::new(self.key.get().to_bytes())
    }

    /// Signs a link of a recording's chain (`lsl_xdf::integrity`). The signed text begins with a
    /// context that no message of a session begins with, so that neither passes for the other.
    pub fn sign_recording(&self, message: &[u8]) -> [u8; 64] {
        self.sign(&[RECORDING_CONTEXT, message].concat())
    }

    pub(crate) fn sign(&self, message: &[u8]) -> [u8; 64] {
        self.key.get().sign(message).to_bytes()
    }
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SecretKey({})", self.public().fingerprint())
    }
}

/// An Ed25519 public key that is not weak. Compared as bytes; prints as `lsl-ed25519:<base64>`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PublicKey([u8; 32]);

impl PublicKey {
    /// # Errors
    /// [`Cause::NotAuthorised`] for small-order points and bytes that are no point.
    pub fn from_bytes(bytes: [u8; 32]) -> Result<Self> {
        match VerifyingKey::from_bytes(&bytes) {
            Ok(key) if !key.is_weak() => Ok(Self(bytes)),
            Ok(_) => Err(Error::session(
                Cause::NotAuthorised,
                "weak Ed25519 public key",
            )),
            Err(_) => Err(Error::session(
                Cause::NotAuthorised,
                "not an Ed25519 public key",
            )),
        }
    }

    /// Returns the 32 bytes of the Ed25519 point.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Returns the fingerprint, which people compare in full, out of band.
    pub fn fingerprint(&self) -> Fingerprint {
        // The shape of OpenSSH's, with a type string that no SSH key has.
        let mut hash = Sha256::new();
        hash.update(11_u32.to_be_bytes());
        hash.update(b"lsl-ed25519");
        hash.update(32_u32.to_be_bytes());
        hash.update(self.0);
        Fingerprint(hash.finalize().into())
    }

    /// Whether [`SecretKey::sign_recording`] of this key made the signature.
    pub fn has_signed_recording(&self, message: &[u8], signature: &[u8; 64]) -> bool {
        self.verify_strict(&[RECORDING_CONTEXT, message].concat(), signature)
    }

    /// Verifies a signature without cofactor; weak keys are refused.
    pub(crate) fn verify_strict(&self, message: &[u8], signature: &[u8; 64]) -> bool {
        VerifyingKey::from_bytes(&self.0).is_ok_and(|key| {
            key.verify_strict(message, &Signature::from_bytes(signature))
                .is_ok()
        })
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{KEY_PREFIX}{}", Base64::encode_string(&self.0))
    }
}

/// Sessions sign what begins with `LSS/1`, see `handshake::transcript`.
const RECORDING_CONTEXT: &[u8] = b"lsl-rs recording\0";

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({})", self.fingerprint())
    }
}

impl FromStr for PublicKey {
    type Err = Error;

    /// Reads `lsl-ed25519:<base64>`, exactly.
    ///
    /// # Errors
    /// [`Cause::Malformed`] for another form, else as [`PublicKey::from_bytes`].
    fn from_str(text: &str) -> Result<Self> {
        let encoded = text.strip_prefix(KEY_PREFIX).ok_or_else(|| {
            Error::session(Cause::Malformed, "a public key starts with lsl-ed25519:")
        })?;
        let mut bytes = [0; 32];
        match Base64::decode(encoded, &mut bytes) {
            Ok(decoded) if decoded.len() == 32 => Self::from_bytes(bytes),
            _ => Err(Error::session(
                Cause::Malformed,
                "a public key is base64 of 32 bytes",
            )),
        }
    }
}

/// SHA-256 over an SSH-like encoding of a public key; prints as `SHA256:<unpadded base64>`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Fingerprint(pub(crate) [u8; 32]);

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SHA256:{}", Base64Unpadded::encode_string(&self.0))
    }
}

/// The lab's optional pre-shared key: 32 random bytes, erased on drop.
pub struct Psk(Locked<Zeroizing<[u8; 32]>>);

impl Psk {
    /// Wraps the 32 bytes of a pre-shared key.
    ///
    /// # Errors
    /// If all bytes are zero.
    pub fn from_bytes(bytes: [u8; 32]) -> Result<Self> {
        let bytes = Zeroizing::new(bytes);
        if bool::from(bytes.ct_eq(&[0; 32])) {
            return Err(Error::session(
                Cause::Internal,
                "an all-zero pre-shared key is no key",
            ));
        }
        Ok(Self(Locked::new(bytes, InChild::Kept)))
    }

    /// The bytes: HKDF salt of the handshake.
    pub(crate) fn as_bytes(&self) -> &[u8; 32] {
        self.0.get()
    }
}

impl fmt::Debug for Psk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Psk")
    }
}

/// Keys and options that this side brings into every handshake.
#[derive(Debug)]
pub struct Local {
    /// Identity key, which signs the transcript.
    pub key: SecretKey,
    /// Salt of the key schedule.
    pub psk: Option<Psk>,
    /// Suites that this side offers and accepts.
    pub suites: Suites,
    /// Padding of records this side sends: 0, or a power of two 16..=4096.
    pub pad_to: u16,
}

const KEY_PREFIX: &str = "lsl-ed25519:";

#[cfg(test)]
mod tests;
