//! The AEADs of ring: the data path.

use ring::aead::{AES_256_GCM, Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, Tag, UnboundKey};

use super::{Backend, TAG_LEN};
use crate::Suite;

pub(super) struct Ring(LessSafeKey);

impl Backend for Ring {
    fn new(suite: Suite, key: &[u8; 32]) -> Self {
        let algorithm = match suite {
            Suite::ChaCha20Poly1305 => &CHACHA20_POLY1305,
            Suite::Aes256Gcm => &AES_256_GCM,
        };
        let key = UnboundKey::new(algorithm, key).expect("both algorithms have keys of 32 bytes");
        Self(LessSafeKey::new(key))
    }

    #[inline]
    fn seal(&self, nonce: &[u8; 12], aad: &[u8], text: &mut [u8]) -> [u8; TAG_LEN] {
        let tag = self
            .0
            .seal_in_place_separate_tag(nonce_of(nonce), Aad::from(aad), text)
            .expect("a record or handshake message is far below the 64 GiB of either AEAD");
        let mut bytes = [0; TAG_LEN];
        bytes.copy_from_slice(tag.as_ref());
        bytes
    }

    #[inline]
    fn open(&self, nonce: &[u8; 12], aad: &[u8], text: &mut [u8], tag: &[u8; TAG_LEN]) -> bool {
        self.0
            .open_in_place_separate_tag(nonce_of(nonce), Aad::from(aad), Tag::from(*tag), text, 0..)
            .is_ok()
    }
}

fn nonce_of(bytes: &[u8; 12]) -> Nonce {
    Nonce::assume_unique_for_key(*bytes)
}
