//! Cipher suites and the one AEAD wrapper of the crate. Spec: LSS/1 §5.4, §8.1, §13.
//!
//! Everything that is encrypted goes through [`AeadKey`]. Its backend is ring; the pure Rust one of
//! RustCrypto takes its place under miri and where ring is left out, and is the oracle of the tests.

use std::fmt;

use lsl_platform::locked::{InChild, Locked};
use zeroize::Zeroizing;

use crate::kdf::expand_label_into;
use crate::{Cause, Error, Result};

#[cfg(any(
    test,
    all(feature = "rustcrypto", not(all(feature = "ring", not(miri))))
))]
mod pure;
#[cfg(all(feature = "ring", not(miri)))]
mod ring;
#[cfg(test)]
mod tests;

#[cfg(not(any(all(feature = "ring", not(miri)), feature = "rustcrypto", test)))]
compile_error!("lsl-secure needs an AEAD: feature `ring`, or `rustcrypto` (always under miri)");

#[cfg(all(feature = "ring", not(miri)))]
type Active = ring::Ring;
#[cfg(not(all(feature = "ring", not(miri))))]
type Active = pure::Pure;

/// Length of an authentication tag in bytes, in both suites.
pub(crate) const TAG_LEN: usize = 16;

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

    /// Returns the name for people: `ChaCha20-Poly1305` or `AES-256-GCM`.
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
    /// AES-256-GCM preferred, ChaCha20-Poly1305 as second choice.
    Both,
}

impl Suites {
    /// Chooses by the features of this CPU: AES **and** carry-less multiplication. Software AES
    /// leaks its key through the cache, so without both instructions AES-GCM does not exist here.
    pub fn of_this_cpu() -> Self {
        if aes_is_accelerated() {
            Self::Both
        } else {
            Self::ChaCha20Only
        }
    }

    /// Lists the suites in order of preference.
    pub fn list(self) -> &'static [Suite] {
        match self {
            Self::ChaCha20Only => &[Suite::ChaCha20Poly1305],
            Self::Both => &[Suite::Aes256Gcm, Suite::ChaCha20Poly1305],
        }
    }
}

#[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
fn aes_is_accelerated() -> bool {
    std::arch::is_x86_feature_detected!("aes") && std::arch::is_x86_feature_detected!("pclmulqdq")
}

#[cfg(target_arch = "aarch64")]
fn aes_is_accelerated() -> bool {
    // The standard library's "aes" stands for AES and PMULL together.
    std::arch::is_aarch64_feature_detected!("aes")
        && std::arch::is_aarch64_feature_detected!("pmull")
}

#[cfg(not(any(target_arch = "x86", target_arch = "x86_64", target_arch = "aarch64")))]
fn aes_is_accelerated() -> bool {
    false
}

/// One AEAD key of a suite, with its nonce base. Seals and opens in place.
///
/// ring's keys do not erase themselves, so the key lies in one locked slot that never moves and is
/// written over in place, by `replace` with the next key and by drop with a dummy
/// key. That is best effort: copies that the compiler left on the stack are out of reach (§3.3).
pub struct AeadKey {
    suite: Suite,
    slot: Locked<Slot>,
}

/// A key by itself on whole cache lines: no record reads one more than it must.
#[repr(align(64))]
struct Slot {
    key: Active,
    iv: Zeroizing<[u8; 12]>,
}

impl Slot {
    fn of(suite: Suite, secret: &[u8; 32]) -> Self {
        let (key, iv) = key_and_iv(secret);
        let key = Active::new(suite, &key);
        Self { key, iv }
    }
}

impl AeadKey {
    /// Derives key and IV from a 32-byte secret of the key schedule: `key(s)` and `iv(s)` (§5.6).
    pub(crate) fn from_secret(suite: Suite, secret: &[u8; 32]) -> Self {
        Self {
            suite,
            slot: Locked::new(Slot::of(suite, secret), InChild::Gone),
        }
    }

    /// Takes the key and the nonce base of the next secret; nothing of the old ones is left in the
    /// slot. The caller's counter starts again at 0.
    pub(crate) fn replace(&mut self, secret: &[u8; 32]) {
        *self.slot.get_mut() = Slot::of(self.suite, secret);
    }

    /// Overwrites the key with a dummy that everybody knows: never use it afterwards.
    pub(crate) fn erase(&mut self) {
        // A forked child has none.
        if self.slot.has_value() {
            let slot = self.slot.get_mut();
            slot.key = Active::new(self.suite, &[0; 32]);
            *slot.iv = [0; 12];
            // Without an observer the compiler may drop writes to memory that is freed next.
            std::hint::black_box(slot);
        }
    }

    /// Encrypts `text` in place under counter `counter`; returns the tag.
    #[inline]
    pub(crate) fn seal(&self, counter: u64, aad: &[u8], text: &mut [u8]) -> [u8; TAG_LEN] {
        let slot = self.slot.get();
        slot.key.seal(&nonce(&slot.iv, counter), aad, text)
    }

    /// Decrypts `text` (ciphertext and tag) in place; returns the plaintext, or `None` if it is not
    /// authentic. Then the content of `text` is undefined: do not read it.
    #[inline]
    pub(crate) fn open<'a>(
        &self,
        counter: u64,
        aad: &[u8],
        text: &'a mut [u8],
    ) -> Option<&'a mut [u8]> {
        let len = text.len().checked_sub(TAG_LEN)?;
        let (sealed, tag) = text.split_at_mut_checked(len)?;
        let tag: &[u8; TAG_LEN] = (&*tag).try_into().ok()?;
        let slot = self.slot.get();
        slot.key
            .open(&nonce(&slot.iv, counter), aad, sealed, tag)
            .then_some(sealed)
    }
}

/// `iv XOR (00000000 || u64 counter)`.
#[inline]
fn nonce(iv: &[u8; 12], counter: u64) -> [u8; 12] {
    let mut nonce = *iv;
    if let Some(last) = nonce.last_chunk_mut::<8>() {
        *last = (u64::from_be_bytes(*last) ^ counter).to_be_bytes();
    }
    nonce
}

impl Drop for AeadKey {
    fn drop(&mut self) {
        self.erase();
    }
}

impl fmt::Debug for AeadKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AeadKey({})", self.suite.name())
    }
}

/// Operations of an AEAD backend. Every length that a session can make is within its limits.
trait Backend {
    fn new(suite: Suite, key: &[u8; 32]) -> Self;

    /// Encrypts `text` in place and returns the tag.
    fn seal(&self, nonce: &[u8; 12], aad: &[u8], text: &mut [u8]) -> [u8; TAG_LEN];

    /// Decrypts `text` in place; `false` if it is not authentic.
    fn open(&self, nonce: &[u8; 12], aad: &[u8], text: &mut [u8], tag: &[u8; TAG_LEN]) -> bool;
}

fn key_and_iv(secret: &[u8; 32]) -> (Zeroizing<[u8; 32]>, Zeroizing<[u8; 12]>) {
    let mut key = Zeroizing::new([0; 32]);
    let mut iv = Zeroizing::new([0; 12]);
    expand_label_into(secret, b"key", b"", &mut *key);
    expand_label_into(secret, b"iv", b"", &mut *iv);
    (key, iv)
}

/// Source of random bytes; the operating system's in every real program.
pub trait Random {
    /// Fills `bytes`.
    ///
    /// # Errors
    /// If the generator fails; then so does what needed it.
    fn fill(&mut self, bytes: &mut [u8]) -> Result<()>;
}

/// Random bytes of the operating system's generator.
#[derive(Debug, Clone, Copy, Default)]
pub struct OsRandom;

impl Random for OsRandom {
    fn fill(&mut self, bytes: &mut [u8]) -> Result<()> {
        getrandom::fill(bytes)
            .map_err(|error| Error::session(Cause::Internal, format!("no random bytes: {error}")))
    }
}
