//! Device keys, fingerprints and the optional pre-shared key, in memory. Spec: LSS/1 §3.1, §6.3.

use std::fmt;
use std::str::FromStr;

use crate::{Random, Result};

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
    _todo: (),
}

impl SecretKey {
    /// A new key.
    ///
    /// # Errors
    /// If the random generator fails.
    pub fn generate(_random: &mut impl Random) -> Result<Self> {
        unimplemented!()
    }

    /// From its 32-byte seed.
    pub fn from_seed(_seed: &[u8; 32]) -> Self {
        unimplemented!()
    }

    /// What others may know.
    pub fn public(&self) -> PublicKey {
        unimplemented!()
    }

    /// Signs `message`.
    pub(crate) fn sign(&self, _message: &[u8]) -> [u8; 64] {
        unimplemented!()
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
    /// [`Cause::NotAuthorised`](crate::Cause::NotAuthorised) for small-order points and bytes that are no point.
    pub fn from_bytes(_bytes: [u8; 32]) -> Result<Self> {
        unimplemented!()
    }

    /// The 32 bytes.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// For people: compare it in full, out of band.
    pub fn fingerprint(&self) -> Fingerprint {
        unimplemented!()
    }

    /// Cofactorless strict verification.
    pub(crate) fn verify_strict(&self, _message: &[u8], _signature: &[u8; 64]) -> bool {
        unimplemented!()
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, _f: &mut fmt::Formatter<'_>) -> fmt::Result {
        unimplemented!()
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({})", self.fingerprint())
    }
}

impl FromStr for PublicKey {
    type Err = crate::Error;

    /// Reads `lsl-ed25519:<base64>`.
    fn from_str(_text: &str) -> Result<Self> {
        unimplemented!()
    }
}

/// SHA-256 over an SSH-like encoding of a public key; prints as `SHA256:<unpadded base64>`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Fingerprint([u8; 32]);

impl fmt::Display for Fingerprint {
    fn fmt(&self, _f: &mut fmt::Formatter<'_>) -> fmt::Result {
        unimplemented!()
    }
}

/// The lab's optional pre-shared key: 32 random bytes, erased on drop.
pub struct Psk {
    _todo: (),
}

impl Psk {
    /// # Errors
    /// All-zero bytes.
    pub fn from_bytes(_bytes: [u8; 32]) -> Result<Self> {
        unimplemented!()
    }

    /// The bytes: HKDF salt of the handshake.
    pub(crate) fn as_bytes(&self) -> &[u8; 32] {
        unimplemented!()
    }
}

impl fmt::Debug for Psk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Psk")
    }
}

/// What this side brings into every handshake.
#[derive(Debug)]
pub struct Local {
    /// Signs the transcript.
    pub key: SecretKey,
    /// Salt of the key schedule.
    pub psk: Option<Psk>,
    /// Offered and accepted.
    pub suites: Suites,
    /// Padding of records this side sends: 0, or a power of two 16..=4096.
    pub pad_to: u16,
}

use crate::Suites;
