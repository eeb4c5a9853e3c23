//! Private key, PSK and passphrase files: PKCS#8 PEM, permissions, passphrases. Spec: LSS/1 §3.3.

use std::path::Path;

use crate::{Psk, Result, SecretKey};

/// Reads a private key file, decrypting it with the passphrase if it is encrypted.
///
/// # Errors
/// [`Error::File`](crate::Error::File): permissions, owner, syntax, wrong passphrase, public key
/// mismatch, scrypt parameters beyond 2^21; an encrypted key without a passphrase.
pub fn read_key(_path: &Path, _passphrase: Option<&str>) -> Result<SecretKey> {
    unimplemented!()
}

/// Whether the key in this file needs a passphrase.
///
/// # Errors
/// As [`read_key`].
pub fn is_encrypted(_path: &Path) -> Result<bool> {
    unimplemented!()
}

/// Writes a new private key file (`O_EXCL`, 0600), encrypted if there is a passphrase.
///
/// # Errors
/// [`Error::File`](crate::Error::File); never overwrites.
pub fn write_new_key(_path: &Path, _key: &SecretKey, _passphrase: Option<&str>) -> Result<()> {
    unimplemented!()
}

/// Rewrites a private key file in place of the old one (temporary file and rename), with another
/// passphrase or none.
///
/// # Errors
/// [`Error::File`](crate::Error::File).
pub fn replace_key(_path: &Path, _key: &SecretKey, _passphrase: Option<&str>) -> Result<()> {
    unimplemented!()
}

/// Reads a PSK file: base64 of 32 bytes.
///
/// # Errors
/// [`Error::File`](crate::Error::File).
pub fn read_psk(_path: &Path) -> Result<Psk> {
    unimplemented!()
}

/// Makes a new PSK file (`O_EXCL`, 0600).
///
/// # Errors
/// [`Error::File`](crate::Error::File); never overwrites.
pub fn write_new_psk(_path: &Path) -> Result<()> {
    unimplemented!()
}
