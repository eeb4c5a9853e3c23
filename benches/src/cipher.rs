//! The ciphers of LSS/1 as two libraries have them, used as sessions use them: one key, a new nonce
//! each time, in place, the tag apart.

use aes_gcm::Aes256Gcm;
use chacha20poly1305::ChaCha20Poly1305;
use chacha20poly1305::aead::{AeadInOut, KeyInit};
use lsl_core::secure::Suite;
use ring::aead::{AES_256_GCM, Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, Tag, UnboundKey};

/// Who wrote a cipher.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Implementation {
    /// ring, which sessions use.
    Ring,
    /// RustCrypto, in pure Rust.
    RustCrypto,
}

impl Implementation {
    /// For people, and for `lsl bench aead --impl`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ring => "ring",
            Self::RustCrypto => "rustcrypto",
        }
    }

    /// Whether it computes AES with the processor's instructions, which both ask for when they run.
    /// How RustCrypto was built comes first.
    pub fn has_aes_instructions(self, cpu: bool) -> bool {
        match self {
            Self::Ring => cpu,
            Self::RustCrypto => cpu && !IS_SOFT_BUILD,
        }
    }
}

/// Whether this program was built to do AES and GHASH of RustCrypto without the processor's help.
pub const IS_SOFT_BUILD: bool = cfg!(all(aes_backend = "soft", polyval_backend = "soft"));

/// A key of a cipher.
#[derive(Debug)]
pub struct Cipher(Key);

enum Key {
    // The tables of these two make them an order of magnitude larger than the other.
    Ring(Box<LessSafeKey>),
    Aes(Box<Aes256Gcm>),
    ChaCha(ChaCha20Poly1305),
}

/// What keeps a sealed text from being changed.
pub type Seal = [u8; 16];

/// A cipher that did not do what it is for: nothing that can happen to a working library.
#[derive(Debug)]
pub struct Broken;

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("..")
    }
}

impl Cipher {
    /// Makes the same key each time.
    ///
    /// # Errors
    /// A library refuses a key of the right length.
    pub fn new(implementation: Implementation, suite: Suite) -> Result<Self, Broken> {
        let key = [7; 32];
        Ok(Self(match (implementation, suite) {
            (Implementation::Ring, suite) => {
                let algorithm = match suite {
                    Suite::ChaCha20Poly1305 => &CHACHA20_POLY1305,
                    Suite::Aes256Gcm => &AES_256_GCM,
                };
                let key = UnboundKey::new(algorithm, &key).map_err(|_| Broken)?;
                Key::Ring(Box::new(LessSafeKey::new(key)))
            }
            (Implementation::RustCrypto, Suite::ChaCha20Poly1305) => {
                Key::ChaCha(ChaCha20Poly1305::new(&key.into()))
            }
            (Implementation::RustCrypto, Suite::Aes256Gcm) => {
                Key::Aes(Box::new(Aes256Gcm::new(&key.into())))
            }
        }))
    }

    /// Encrypts `text` in place.
    ///
    /// # Errors
    /// The text is beyond what the cipher can do.
    pub fn seal(&self, count: u64, aad: &[u8], text: &mut [u8]) -> Result<Seal, Broken> {
        let nonce = nonce(count);
        match &self.0 {
            Key::Ring(key) => {
                let nonce = Nonce::assume_unique_for_key(nonce);
                let tag = key.seal_in_place_separate_tag(nonce, Aad::from(aad), text);
                let tag = tag.map_err(|_| Broken)?;
                tag.as_ref().try_into().map_err(|_| Broken)
            }
            Key::ChaCha(key) => key
                .encrypt_inout_detached(&nonce.into(), aad, text.into())
                .map(Into::into)
                .map_err(|_| Broken),
            Key::Aes(key) => key
                .encrypt_inout_detached(&nonce.into(), aad, text.into())
                .map(Into::into)
                .map_err(|_| Broken),
        }
    }

    /// Decrypts `text` in place.
    ///
    /// # Errors
    /// It is not what was sealed.
    pub fn open(&self, count: u64, aad: &[u8], text: &mut [u8], seal: &Seal) -> Result<(), Broken> {
        let nonce = nonce(count);
        match &self.0 {
            Key::Ring(key) => {
                let nonce = Nonce::assume_unique_for_key(nonce);
                let tag = Tag::from(*seal);
                key.open_in_place_separate_tag(nonce, Aad::from(aad), tag, text, 0..)
                    .map(drop)
                    .map_err(|_| Broken)
            }
            Key::ChaCha(key) => key
                .decrypt_inout_detached(&nonce.into(), aad, text.into(), seal.into())
                .map_err(|_| Broken),
            Key::Aes(key) => key
                .decrypt_inout_detached(&nonce.into(), aad, text.into(), seal.into())
                .map_err(|_| Broken),
        }
    }
}

fn nonce(count: u64) -> [u8; 12] {
    let mut nonce = [0; 12];
    nonce[4..].copy_from_slice(&count.to_be_bytes());
    nonce
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_libraries_make_the_same_of_a_text_and_open_it() {
        for suite in [Suite::ChaCha20Poly1305, Suite::Aes256Gcm] {
            let [ring, pure] = [Implementation::Ring, Implementation::RustCrypto]
                .map(|implementation| Cipher::new(implementation, suite).unwrap());
            let (mut by_ring, mut by_pure) = (*b"64 channels", *b"64 channels");
            let seal = ring.seal(3, b"head", &mut by_ring).unwrap();
            assert_eq!(pure.seal(3, b"head", &mut by_pure).unwrap(), seal);
            assert_eq!(by_ring, by_pure);
            for (cipher, text) in [(ring, &mut by_pure), (pure, &mut by_ring)] {
                assert!(cipher.open(4, b"head", &mut text.clone(), &seal).is_err());
                cipher.open(3, b"head", text, &seal).unwrap();
                assert_eq!(text, b"64 channels");
            }
        }
    }
}
