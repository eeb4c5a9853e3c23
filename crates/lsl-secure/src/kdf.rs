//! The one key derivation: `EL` of LSS/1 §5.6, over HKDF-SHA-256, and the HMAC under its keys.

use hkdf::Hkdf;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use zeroize::{Zeroize, Zeroizing};

/// A 32-byte secret that is erased on drop.
pub(crate) type Secret = Zeroizing<[u8; 32]>;

/// `EL(secret, label, context, out.len())`.
///
/// `label` has at most 249 bytes, `context` at most 255, `out` at most 8160 (§5.6: the lengths are
/// one byte each, and HKDF gives 255 blocks); callers with foreign lengths check them first.
///
/// # Panics
/// If one of the three is longer: a shortened or unwritten key must never be used.
pub(crate) fn expand_label_into(secret: &[u8; 32], label: &[u8], context: &[u8], out: &mut [u8]) {
    let len = |bytes: usize| u8::try_from(bytes).expect("label and context fit in a byte");
    let out_len = u16::try_from(out.len()).unwrap_or(u16::MAX).to_be_bytes();
    let label_len = [len(PREFIX.len() + label.len())];
    let context_len = [len(context.len())];
    let info: [&[u8]; 6] = [&out_len, &label_len, PREFIX, label, &context_len, context];
    assert!(expand(secret, &info, out), "at most 255 blocks of output");
}

/// Derives 32 bytes by `EL(secret, label, context, 32)`.
pub(crate) fn expand_label(secret: &[u8; 32], label: &[u8], context: &[u8]) -> Secret {
    let mut out = Zeroizing::new([0; 32]);
    expand_label_into(secret, label, context, &mut *out);
    out
}

/// HKDF-Expand; `false` and nothing written beyond 8160 bytes.
#[must_use]
fn expand(secret: &[u8; 32], info: &[&[u8]], out: &mut [u8]) -> bool {
    Hkdf::<Sha256>::from_prk(secret)
        .expect("32 bytes are the length of a pseudo-random key")
        .expand_multi_info(info, out)
        .is_ok()
}

/// Extracts a secret by HKDF-Extract with SHA-256.
pub(crate) fn extract(salt: &[u8], input: &[u8]) -> Secret {
    let (mut key, _) = Hkdf::<Sha256>::extract(Some(salt), input);
    let mut secret = Zeroizing::new([0; 32]);
    secret.copy_from_slice(&key);
    key.as_mut_slice().zeroize();
    secret
}

/// HMAC-SHA-256. Compare it in constant time only.
pub(crate) fn hmac(key: &[u8], data: &[u8]) -> [u8; 32] {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
    mac.update(data);
    mac.finalize().into_bytes().into()
}

const PREFIX: &[u8] = b"lss1 ";

#[cfg(test)]
mod tests;
