//! Cipher suites and the one AEAD wrapper of the crate. Spec: LSS/1 §5.4, §13.

use crate::Result;

/// A cipher suite; all use X25519, Ed25519, SHA-256 and HKDF-SHA-256.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Suite {
    /// Suite 0x0001: fast everywhere, always offered.
    ChaCha20Poly1305,
    /// Suite 0x0002: only between two machines with AES instructions.
    Aes256Gcm,
}

impl Suite {
    /// The number on the wire.
    pub fn id(self) -> u16 {
        match self {
            Self::ChaCha20Poly1305 => 1,
            Self::Aes256Gcm => 2,
        }
    }

    /// The suite of a number, if known.
    pub fn from_id(id: u16) -> Option<Self> {
        match id {
            1 => Some(Self::ChaCha20Poly1305),
            2 => Some(Self::Aes256Gcm),
            _ => None,
        }
    }

    /// As shown to people: `ChaCha20-Poly1305`, `AES-256-GCM`.
    pub fn name(self) -> &'static str {
        match self {
            Self::ChaCha20Poly1305 => "ChaCha20-Poly1305",
            Self::Aes256Gcm => "AES-256-GCM",
        }
    }
}

/// Which suites this side offers and accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Suites {
    /// ChaCha20-Poly1305 alone: no AES instructions, or `force_chacha20`.
    ChaCha20Only,
    /// AES-256-GCM preferred, ChaCha20-Poly1305 also.
    Both,
}

impl Suites {
    /// By the features of this CPU: AES **and** carry-less multiplication.
    pub fn of_this_cpu() -> Self {
        unimplemented!()
    }

    /// In order of preference.
    pub fn list(self) -> &'static [Suite] {
        match self {
            Self::ChaCha20Only => &[Suite::ChaCha20Poly1305],
            Self::Both => &[Suite::Aes256Gcm, Suite::ChaCha20Poly1305],
        }
    }
}

/// One AEAD key of a suite, with its nonce base. Seals and opens in place.
pub struct AeadKey {
    _todo: (),
}

impl AeadKey {
    /// From a 32-byte secret of the key schedule: `key(s)` and `iv(s)` (§5.6).
    pub(crate) fn from_secret(_suite: Suite, _secret: &[u8; 32]) -> Self {
        unimplemented!()
    }

    /// Encrypts `text` in place under counter `counter`; returns the tag.
    pub(crate) fn seal(&self, _counter: u64, _aad: &[u8], _text: &mut [u8]) -> [u8; 16] {
        unimplemented!()
    }

    /// Decrypts `text` (ciphertext and tag) in place; returns the plaintext, or `None` if it is not
    /// authentic.
    pub(crate) fn open<'a>(
        &self,
        _counter: u64,
        _aad: &[u8],
        _text: &'a mut [u8],
    ) -> Option<&'a mut [u8]> {
        unimplemented!()
    }
}

impl std::fmt::Debug for AeadKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AeadKey")
    }
}

/// Where random bytes come from; the operating system's in every real program.
pub trait Random {
    /// Fills `bytes`.
    ///
    /// # Errors
    /// If the generator fails; then so does what needed it.
    fn fill(&mut self, bytes: &mut [u8]) -> Result<()>;
}

/// The operating system's generator.
#[derive(Debug, Clone, Copy, Default)]
pub struct OsRandom;

impl Random for OsRandom {
    fn fill(&mut self, bytes: &mut [u8]) -> Result<()> {
        getrandom::fill(bytes).map_err(|error| {
            crate::Error::session(crate::Cause::Internal, format!("no random bytes: {error}"))
        })
    }
}
