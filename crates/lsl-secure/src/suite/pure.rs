//! The AEADs of RustCrypto: for miri and targets without ring, and the oracle of the tests. Their
//! keys erase themselves.

use aes_gcm::Aes256Gcm;
use chacha20poly1305::ChaCha20Poly1305;
use chacha20poly1305::aead::{AeadInOut, KeyInit};

use super::{Backend, TAG_LEN};
use crate::Suite;

pub(super) enum Pure {
    ChaCha20Poly1305(ChaCha20Poly1305),
    // Boxed: its tables are an order of magnitude larger.
    Aes256Gcm(Box<Aes256Gcm>),
}

impl Backend for Pure {
    fn new(suite: Suite, key: &[u8; 32]) -> Self {
        match suite {
            Suite::ChaCha20Poly1305 => Self::ChaCha20Poly1305(ChaCha20Poly1305::new(key.into())),
            Suite::Aes256Gcm => Self::Aes256Gcm(Box::new(Aes256Gcm::new(key.into()))),
        }
    }

    fn seal(&self, nonce: &[u8; 12], aad: &[u8], text: &mut [u8]) -> [u8; TAG_LEN] {
        match self {
            Self::ChaCha20Poly1305(key) => {
                key.encrypt_inout_detached(nonce.into(), aad, text.into())
            }
            Self::Aes256Gcm(key) => key.encrypt_inout_detached(nonce.into(), aad, text.into()),
        }
        .expect("a record or handshake message is far below the 64 GiB of either AEAD")
        .into()
    }

    fn open(&self, nonce: &[u8; 12], aad: &[u8], text: &mut [u8], tag: &[u8; TAG_LEN]) -> bool {
        match self {
            Self::ChaCha20Poly1305(key) => {
                key.decrypt_inout_detached(nonce.into(), aad, text.into(), tag.into())
            }
            Self::Aes256Gcm(key) => {
                key.decrypt_inout_detached(nonce.into(), aad, text.into(), tag.into())
            }
        }
        .is_ok()
    }
}
