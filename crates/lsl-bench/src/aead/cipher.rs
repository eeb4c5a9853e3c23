//! The ciphers of LSS/1 as two libraries have them, used as sessions use them: one key, a new nonce
//! each time, in place, the tag apart.

use aes_gcm::Aes256Gcm;
use chacha20poly1305::ChaCha20Poly1305;
use chacha20poly1305::aead::{AeadInOut, KeyInit};
use clap::ValueEnum;
use lsl_core::secure::Suite;
use ring::aead::{AES_256_GCM, Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, Tag, UnboundKey};

/// Who wrote a cipher.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Implementation {
    /// What sessions use
    Ring,
    /// Pure Rust
    #[value(name = "rustcrypto")]
    RustCrypto,
}

impl Implementation {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Ring => "ring",
            Self::RustCrypto => "rustcrypto",
        }
    }

    /// Whether it computes AES with the processor's instructions, which both ask for when they run.
    /// How RustCrypto was built comes first.
    pub(super) fn has_aes_instructions(self, cpu: bool) -> bool {
        match self {
            Self::Ring => cpu,
            Self::RustCrypto => cpu && !IS_SOFT_BUILD,
        }
    }
}

/// Whether this program was built to do AES and GHASH of RustCrypto without the processor's help.
pub(super) const IS_SOFT_BUILD: bool = cfg!(all(aes_backend = "soft", polyval_backend = "soft"));

/// A key.
pub(super) enum Cipher {
    // The tables of these two make them an order of magnitude larger than the other.
    Ring(Box<LessSafeKey>),
    Aes(Box<Aes256Gcm>),
    ChaCha(ChaCha20Poly1305),
}

/// What keeps a sealed text from being changed.
pub(super) type Seal = [u8; 16];

/// A cipher that did not do what it is for: nothing that can happen to a working library.
#[derive(Debug)]
pub(super) struct Broken;

impl Cipher {
    pub(super) fn new(implementation: Implementation, suite: Suite) -> Result<Self, Broken> {
        let key = [7; 32];
        Ok(match (implementation, suite) {
            (Implementation::Ring, suite) => {
                let algorithm = match suite {
                    Suite::ChaCha20Poly1305 => &CHACHA20_POLY1305,
                    Suite::Aes256Gcm => &AES_256_GCM,
                };
                let key = UnboundKey::new(algorithm, &key).map_err(|_| Broken)?;
                Self::Ring(Box::new(LessSafeKey::new(key)))
            }
            (Implementation::RustCrypto, Suite::ChaCha20Poly1305) => {
                Self::ChaCha(ChaCha20Poly1305::new(&key.into()))
            }
            (Implementation::RustCrypto, Suite::Aes256Gcm) => {
                Self::Aes(Box::new(Aes256Gcm::new(&key.into())))
            }
        })
    }

    /// Encrypts `text` in place.
    pub(super) fn seal(&self, count: u64, aad: &[u8], text: &mut [u8]) -> Result<Seal, Broken> {
        let nonce = nonce(count);
        match self {
            Self::Ring(key) => {
                let nonce = Nonce::assume_unique_for_key(nonce);
                let tag = key.seal_in_place_separate_tag(nonce, Aad::from(aad), text);
                let tag = tag.map_err(|_| Broken)?;
                tag.as_ref().try_into().map_err(|_| Broken)
            }
            Self::ChaCha(key) => key
                .encrypt_inout_detached(&nonce.into(), aad, text.into())
                .map(Into::into)
                .map_err(|_| Broken),
            Self::Aes(key) => key
                .encrypt_inout_detached(&nonce.into(), aad, text.into())
                .map(Into::into)
                .map_err(|_| Broken),
        }
    }

    /// Decrypts `text` in place.
    pub(super) fn open(
        &self,
        count: u64,
        aad: &[u8],
        text: &mut [u8],
        seal: &Seal,
    ) -> Result<(), Broken> {
        let nonce = nonce(count);
        match self {
            Self::Ring(key) => {
                let nonce = Nonce::assume_unique_for_key(nonce);
                let tag = Tag::from(*seal);
                key.open_in_place_separate_tag(nonce, Aad::from(aad), tag, text, 0..)
                    .map(drop)
                    .map_err(|_| Broken)
            }
            Self::ChaCha(key) => key
                .decrypt_inout_detached(&nonce.into(), aad, text.into(), seal.into())
                .map_err(|_| Broken),
            Self::Aes(key) => key
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
