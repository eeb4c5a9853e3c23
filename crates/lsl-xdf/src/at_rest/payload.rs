//! The payload of age v1: chunks of 64 KiB, each sealed with ChaCha20-Poly1305 under its number and a mark
//! for the last one (STREAM). Pure: bytes in place, no file.
//!
//! Chunks can be sealed on several threads, and opened where the file is cut.

use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, Tag, UnboundKey};
use ring::hkdf::{HKDF_SHA256, Salt};
use zeroize::Zeroizing;

/// Bytes of plaintext in every chunk but the last.
pub(super) const CHUNK_LEN: usize = 64 * 1024;
pub(super) const TAG_LEN: usize = 16;
/// Bytes of a whole chunk in the file.
pub(super) const SEALED_LEN: usize = CHUNK_LEN + TAG_LEN;
/// Random bytes between header and first chunk, from which the payload key is derived.
pub(super) const NONCE_LEN: usize = 16;
/// Secret of a file, which its recipients recover.
pub(super) type FileKey = Zeroizing<[u8; FILE_KEY_LEN]>;
pub(super) const FILE_KEY_LEN: usize = 16;

/// Position of a chunk in its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ChunkPosition {
    /// Another chunk follows in the file.
    Inner,
    /// The end of the file.
    Last,
}

/// Result of opening a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Opened {
    /// Authentic, and the file goes on.
    Inner,
    /// Authentic, and the end of the file, with the bytes of plaintext.
    Last(usize),
    /// Authentic and whole, but the chunks that should follow are missing.
    InnerAtEnd,
    /// Less than a chunk, and not authentic: the rest of a file that was cut.
    Stump,
    /// A whole chunk that is not authentic.
    Damaged,
}

/// Key of one payload, independent of the recipients, so that they can be exchanged. Also the key of one
/// stanza, where it seals once.
pub(super) struct PayloadKey {
    // Boxed, so that the key lies in one place and can be written over.
    slot: Box<LessSafeKey>,
}

impl PayloadKey {
    pub(super) fn new(key: &[u8; 32]) -> Self {
        Self {
            slot: Box::new(chunk_key(key)),
        }
    }

    pub(super) fn derive(file_key: &FileKey, nonce: &[u8; NONCE_LEN]) -> Self {
        Self::new(&derive(nonce, &file_key[..], b"payload"))
    }

    /// Encrypts `text` in place. Returns the tag that belongs behind it.
    pub(super) fn seal(&self, number: u64, place: ChunkPosition, text: &mut [u8]) -> [u8; TAG_LEN] {
        let tag = self
            .slot
            .seal_in_place_separate_tag(nonce(number, place), Aad::empty(), text)
            .expect("a chunk is far below the 256 GiB of the AEAD");
        let mut bytes = [0; TAG_LEN];
        bytes.copy_from_slice(tag.as_ref());
        bytes
    }

    /// Decrypts a chunk with its tag in place and returns the length of the plaintext. `None` if it is not
    /// authentic, and `sealed` is useless then.
    pub(super) fn open(
        &self,
        number: u64,
        place: ChunkPosition,
        sealed: &mut [u8],
    ) -> Option<usize> {
        let len = sealed.len().checked_sub(TAG_LEN)?;
        let (text, tag) = sealed.split_at_mut_checked(len)?;
        let tag: [u8; TAG_LEN] = (&*tag).try_into().ok()?;
        self.slot
            .open_in_place_separate_tag(
                nonce(number, place),
                Aad::empty(),
                Tag::from(tag),
                text,
                0..,
            )
            .ok()
            .map(|_| len)
    }

    /// Decrypts a whole chunk that is followed by more of the file.
    pub(super) fn open_inner(&self, number: u64, sealed: &mut [u8]) -> Opened {
        match self.open(number, ChunkPosition::Inner, sealed) {
            Some(_) => Opened::Inner,
            None => Opened::Damaged,
        }
    }

    /// Decrypts the end of the file, `sealed`, at most a whole chunk.
    pub(super) fn open_at_end(&self, number: u64, sealed: &mut [u8]) -> Opened {
        // Opening destroys bytes that are not authentic, and at the end there may be two ways to read them.
        let copy = (sealed.len() == SEALED_LEN).then(|| sealed.to_vec());
        match (self.open(number, ChunkPosition::Last, sealed), copy) {
            // An empty chunk is valid only as the whole of an empty file.
            (Some(0), _) if number > 0 => Opened::Damaged,
            (Some(len), _) => Opened::Last(len),
            (None, None) => Opened::Stump,
            (None, Some(copy)) => {
                sealed.copy_from_slice(&copy);
                match self.open(number, ChunkPosition::Inner, sealed) {
                    Some(_) => Opened::InnerAtEnd,
                    None => Opened::Damaged,
                }
            }
        }
    }
}

impl Drop for PayloadKey {
    fn drop(&mut self) {
        // ring's keys do not erase themselves. Best effort, as in lsl-secure: without an observer the
        // compiler may drop writes to memory that is freed next.
        *self.slot = chunk_key(&[0; 32]);
        std::hint::black_box(&mut self.slot);
    }
}

impl std::fmt::Debug for PayloadKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PayloadKey(..)")
    }
}

/// Derives 32 bytes by HKDF-SHA-256, as the format does everywhere.
pub(super) fn derive(salt: &[u8], secret: &[u8], info: &[u8]) -> Zeroizing<[u8; 32]> {
    let mut key = Zeroizing::new([0; 32]);
    Salt::new(HKDF_SHA256, salt)
        .extract(secret)
        .expand(&[info], HKDF_SHA256)
        .and_then(|okm| okm.fill(key.as_mut_slice()))
        .expect("32 bytes are the length of one hash");
    key
}

fn chunk_key(key: &[u8; 32]) -> LessSafeKey {
    let key = UnboundKey::new(&CHACHA20_POLY1305, key).expect("the algorithm has keys of 32 bytes");
    LessSafeKey::new(key)
}

/// Builds a nonce: 11 bytes of counter, big endian, and one that marks the last chunk.
fn nonce(number: u64, place: ChunkPosition) -> Nonce {
    let mut bytes = [0; 12];
    bytes[3..11].copy_from_slice(&number.to_be_bytes());
    bytes[11] = u8::from(place == ChunkPosition::Last);
    Nonce::assume_unique_for_key(bytes)
}
