//! Private key, PSK and passphrase files: PKCS#8 PEM, permissions, passphrases. Spec: LSS/1 §3.3.
//!
//! Never prompts: a library cannot ask. Whatever held a secret is erased.

use std::path::Path;

use base64ct::{Base64, Encoding};
use ed25519_dalek::pkcs8::{KeypairBytes, PublicKeyBytes};
use pkcs8::pkcs5::pbes2::{EncryptionScheme, Kdf, Parameters, Salt, ScryptParams};
use pkcs8::{
    DecodePrivateKey, EncodePrivateKey, EncryptedPrivateKeyInfoRef, LineEnding, PrivateKeyInfoRef,
    SecretDocument,
};
use zeroize::{Zeroize, Zeroizing};

use crate::files::{self, Content};
use crate::{Error, OsRandom, Psk, Random, Result, SecretKey};

/// Reads a private key file, decrypting it with the passphrase if it is encrypted.
///
/// Decrypting takes about half a second and 128 MiB, as the file itself asks for.
///
/// # Errors
/// [`Error::File`]: permissions, owner, syntax, wrong passphrase, public key
/// mismatch, scrypt parameters beyond 2^21; an encrypted key without a passphrase.
pub fn read_key(path: &Path, passphrase: Option<&str>) -> Result<SecretKey> {
    let wrong = |reason: &str| Error::file(path, reason);
    let (form, document) = read_document(path)?;
    let mut pair = match form {
        Form::Plain => KeypairBytes::from_pkcs8_der(document.as_bytes())
            .map_err(|error| Error::file(path, format!("{error}; {NOT_A_KEY}")))?,
        Form::Encrypted => {
            let passphrase = passphrase.ok_or_else(|| {
                Error::file(
                    path,
                    format!(
                        "is encrypted, and a library cannot ask for the passphrase: name a file with it \
                         ({}) as passphrase_file in lsl-secure.toml, or store the key without: lsl key \
                         passwd --remove",
                        lsl_platform::remedy::SECRET
                    ),
                )
            })?;
            let encrypted =
                EncryptedPrivateKeyInfoRef::try_from(document.as_bytes()).map_err(|error| {
                    Error::file(path, format!("{error}; {NOT_A_KEY}, or {REENCRYPT}"))
                })?;
            check_scheme(&encrypted.encryption_algorithm).map_err(|reason| wrong(&reason))?;
            // CBC has no authenticator: garbage may look like padding, then it is no PKCS#8.
            encrypted
                .decrypt(passphrase)
                .and_then(|plain| KeypairBytes::from_pkcs8_der(plain.as_bytes()))
                .map_err(|_| {
                    wrong("the passphrase does not open this key; correct it in passphrase_file")
                })?
        }
    };
    let key = SecretKey::from_seed(&pair.secret_key);
    // The crate erases the key only with a feature that is off.
    pair.secret_key.zeroize();
    match &pair.public_key {
        Some(public) if public.0 != *key.public().as_bytes() => Err(wrong(
            "the public key in this file is not the one of its private key: the file is damaged or was \
             changed; restore a copy, or make a new key with: lsl key init",
        )),
        _ => Ok(key),
    }
}

/// Whether the key in this file needs a passphrase.
///
/// # Errors
/// As [`read_key`].
pub fn is_encrypted(path: &Path) -> Result<bool> {
    Ok(read_document(path)?.0 == Form::Encrypted)
}

/// Writes a new private key file that nobody else can read, encrypted if there is a passphrase.
///
/// # Errors
/// [`Error::File`]; never overwrites.
pub fn write_new_key(path: &Path, key: &SecretKey, passphrase: Option<&str>) -> Result<()> {
    files::create(path, pem_of(path, key, passphrase)?.as_bytes())
}

/// Rewrites a private key file in place of the old one (temporary file and rename), with another
/// passphrase or none.
///
/// # Errors
/// [`Error::File`].
pub fn replace_key(path: &Path, key: &SecretKey, passphrase: Option<&str>) -> Result<()> {
    files::replace(path, pem_of(path, key, passphrase)?.as_bytes())
}

/// Reads a passphrase file: its first line. Permissions as of a key.
///
/// # Errors
/// [`Error::File`]; also if it is empty or has more lines.
pub fn read_passphrase(path: &Path) -> Result<Zeroizing<String>> {
    let text = files::read_text(path, Content::Secret)?;
    let line = text.strip_suffix('\n').unwrap_or(&text);
    let line = line.strip_suffix('\r').unwrap_or(line);
    if line.is_empty() || line.contains('\n') {
        return Err(Error::file(
            path,
            "must hold one line, the passphrase; write it with an editor",
        ));
    }
    Ok(Zeroizing::new(line.to_owned()))
}

/// Reads a PSK file: base64 of 32 bytes.
///
/// # Errors
/// [`Error::File`].
pub fn read_psk(path: &Path) -> Result<Psk> {
    let wrong = |why: &str| {
        let remedy =
            "copy the file from another machine, or make a new one for all with: lsl key psk";
        Error::file(path, format!("{why}; {remedy}"))
    };
    let text = files::read_text(path, Content::Secret)?;
    let mut bytes = Zeroizing::new([0; 32]);
    match Base64::decode(text.trim(), &mut *bytes) {
        Ok(decoded) if decoded.len() == 32 => {}
        _ => return Err(wrong("is not base64 of 32 bytes")),
    }
    Psk::from_bytes(*bytes).map_err(|_| wrong("is all zero, which is no secret"))
}

/// Makes a new PSK file that nobody else can read.
///
/// # Errors
/// [`Error::File`]; never overwrites.
pub fn write_new_psk(path: &Path) -> Result<()> {
    let mut bytes = Zeroizing::new([0; 32]);
    OsRandom.fill(&mut *bytes)?;
    let mut text = Zeroizing::new(String::with_capacity(45));
    let mut buffer = Zeroizing::new([0; 44]);
    let encoded = Base64::encode(&*bytes, &mut *buffer);
    text.push_str(encoded.map_err(|error| Error::file(path, error.to_string()))?);
    text.push('\n');
    files::create(path, text.as_bytes())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Plain,
    Encrypted,
}

/// The DER behind the PEM, and which of the two kinds it claims to be.
fn read_document(path: &Path) -> Result<(Form, SecretDocument)> {
    let text = files::read_text(path, Content::Secret)?;
    let wrong = |why: String| Error::file(path, format!("{why}; {NOT_A_KEY}"));
    let (label, document) =
        SecretDocument::from_pem(&text).map_err(|error| wrong(error.to_string()))?;
    match label {
        "PRIVATE KEY" => Ok((Form::Plain, document)),
        "ENCRYPTED PRIVATE KEY" => Ok((Form::Encrypted, document)),
        other => Err(wrong(format!("holds a {other:?}"))),
    }
}

/// Refuses work factors that only a saboteur chooses, before any work is done.
fn check_scheme(scheme: &pkcs8::pkcs5::EncryptionScheme) -> Result<(), String> {
    let Some(parameters) = scheme.pbes2() else {
        return Err(format!("is encrypted with PBES1; {REENCRYPT}"));
    };
    let Kdf::Scrypt(scrypt) = &parameters.kdf else {
        return Err(format!(
            "its passphrase is not stretched with scrypt; {REENCRYPT}"
        ));
    };
    // Zero would panic in `pkcs5`, which also accepts other N only to refuse them later.
    if scrypt.cost_parameter < 2 || !scrypt.cost_parameter.is_power_of_two() {
        return Err(format!("its scrypt parameters are impossible; {REENCRYPT}"));
    }
    let work = [scrypt.block_size, scrypt.parallelization]
        .iter()
        .try_fold(scrypt.cost_parameter, |work, factor| {
            work.checked_mul(u64::from(*factor))
        });
    if work.is_none_or(|work| work > MAX_WORK) {
        return Err(format!(
            "asks for more than 2^21 units of scrypt (N*r*p), which would stall this program; \
             {REENCRYPT}"
        ));
    }
    match parameters.encryption {
        EncryptionScheme::Aes256Cbc { .. } => Ok(()),
        _ => Err(format!("is not encrypted with AES-256-CBC; {REENCRYPT}")),
    }
}

fn pem_of(path: &Path, key: &SecretKey, passphrase: Option<&str>) -> Result<Zeroizing<String>> {
    let failed = |error: &dyn std::fmt::Display| {
        Error::file(path, format!("the key cannot be encoded: {error}"))
    };
    let mut pair = KeypairBytes {
        secret_key: *key.seed(),
        public_key: Some(PublicKeyBytes(*key.public().as_bytes())),
    };
    let plain = pair.to_pkcs8_der();
    pair.secret_key.zeroize();
    let plain = plain.map_err(|error| failed(&error))?;
    let Some(passphrase) = passphrase else {
        let pem = plain.to_pem("PRIVATE KEY", LineEnding::LF);
        return pem.map_err(|error| failed(&error));
    };
    let mut salt = [0; 16];
    let mut iv = [0; 16];
    OsRandom.fill(&mut salt)?;
    OsRandom.fill(&mut iv)?;
    let parameters = Parameters {
        kdf: Kdf::Scrypt(ScryptParams {
            salt: Salt::new(salt).map_err(|error| failed(&error))?,
            cost_parameter: 1 << 17,
            block_size: 8,
            parallelization: 1,
            key_length: None,
        }),
        encryption: EncryptionScheme::Aes256Cbc { iv },
    };
    PrivateKeyInfoRef::try_from(plain.as_bytes())
        .and_then(|info| info.encrypt_with_params(parameters, passphrase))
        .map_err(|error| failed(&error))?
        .to_pem("ENCRYPTED PRIVATE KEY", LineEnding::LF)
        .map_err(|error| failed(&error))
}

/// The largest N*r*p that scrypt may cost (§3.3).
const MAX_WORK: u64 = 1 << 21;

const NOT_A_KEY: &str =
    "this is no Ed25519 private key in PKCS#8 PEM; restore it, or make one with: lsl key init";

const REENCRYPT: &str = "encrypt it anew with: openssl pkcs8 -topk8 -scrypt";

#[cfg(test)]
mod tests;
