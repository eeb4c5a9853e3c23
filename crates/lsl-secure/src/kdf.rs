//! The one key derivation: `EL` of LSS/1 §5.6, over HKDF-SHA-256.

use hkdf::Hkdf;
use sha2::Sha256;
use zeroize::Zeroizing;

/// A 32-byte secret that is erased on drop.
pub(crate) type Secret = Zeroizing<[u8; 32]>;

/// `EL(secret, label, context, out.len())`.
///
/// `label` has at most 249 bytes, `context` at most 255, `out` at most 8160; longer ones are cut to
/// nothing sensible, so callers with foreign lengths check them first.
pub(crate) fn expand_label_into(secret: &[u8; 32], label: &[u8], context: &[u8], out: &mut [u8]) {
    let len = |bytes: usize| u8::try_from(bytes).unwrap_or(u8::MAX);
    let out_len = u16::try_from(out.len()).unwrap_or(u16::MAX).to_be_bytes();
    let label_len = [len(PREFIX.len() + label.len())];
    let context_len = [len(context.len())];
    let info: [&[u8]; 6] = [&out_len, &label_len, PREFIX, label, &context_len, context];
    let expanded = Hkdf::<Sha256>::from_prk(secret)
        .map(|hkdf| hkdf.expand_multi_info(&info, out).is_ok())
        .unwrap_or(false);
    debug_assert!(expanded, "a 32-byte key and a short output always fit");
}

/// `EL(secret, label, context, 32)`.
pub(crate) fn expand_label(secret: &[u8; 32], label: &[u8], context: &[u8]) -> Secret {
    let mut out = Zeroizing::new([0; 32]);
    expand_label_into(secret, label, context, &mut *out);
    out
}

const PREFIX: &[u8] = b"lss1 ";
