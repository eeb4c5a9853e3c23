//! AUTH and ALERT, what C2 and C3 hold: an identity, its signature over the transcript and the
//! proof of knowing the key exchange's secret. Spec: LSS/1 §5.2, §5.3, §5.5, §5.7.

use subtle::ConstantTimeEq;

use super::messages::{Reader, malformed};
use super::transcript::Transcript;
use crate::kdf::{Secret, expand_label, hmac};
use crate::suite::TAG_LEN;
use crate::{AeadKey, Cause, Error, PublicKey, Result, Role, SecretKey, Suite};

const KIND_AUTH: u8 = 0x01;
const KIND_ALERT: u8 = 0x02;
const ID_ED25519: u8 = 0x01;

/// Length of the AUTH that we send, whose identity is a bare key and which has no extension.
pub(super) const AUTH_LEN: usize = 1 + 1 + 2 + 32 + 2 + 64 + 32;

/// Length of the plaintext of ALERT.
pub(super) const ALERT_LEN: usize = 2;

/// The ciphertext of our AUTH. The transcript must stand at the hash over the message's head (`h2`,
/// `h6`) and moves on over the identity, the signature and the authenticator.
pub(super) fn seal_auth(
    transcript: &mut Transcript,
    role: Role,
    key: &SecretKey,
    suite: Suite,
    secret: &Secret,
) -> Vec<u8> {
    let aad = *transcript.hash();
    let mut text = vec![KIND_AUTH, ID_ED25519, 0, 32];
    text.extend_from_slice(key.public().as_bytes());
    text.extend_from_slice(&[0, 0]);
    transcript.add(&[&text]);
    let signature = key.sign(&transcript.to_be_signed(role));
    text.extend_from_slice(&signature);
    transcript.add(&[&signature]);
    let finished = finished(secret, transcript);
    text.extend_from_slice(&finished);
    transcript.add(&[&finished]);
    debug_assert_eq!(text.len(), AUTH_LEN, "heads are made for this length");
    seal(suite, secret, &aad, text)
}

/// The ciphertext of the ALERT form of M3, in place of AUTH.
pub(super) fn seal_alert(
    transcript: &Transcript,
    cause: Cause,
    suite: Suite,
    secret: &Secret,
) -> Vec<u8> {
    let text = vec![KIND_ALERT, cause.code()];
    seal(suite, secret, transcript.hash(), text)
}

/// Content of the peer's opened ciphertext.
pub(super) enum Opened {
    /// Public key whose possession the peer proved.
    Identity(PublicKey),
    /// An identity of a kind that we cannot check, with everything else in its place.
    UnknownIdentity(u8),
    /// A refusal, which only an inlet may send in place of its identity.
    Alert(Cause),
}

/// Opens C2 or C3 of the side of `role` and checks everything but trust. The transcript moves as in
/// [`seal_auth`], over the peer's bytes, also for an unknown identity; not for an alert.
pub(super) fn open_auth(
    transcript: &mut Transcript,
    role: Role,
    suite: Suite,
    secret: &Secret,
    sealed: &[u8],
) -> Result<Opened> {
    let mut text = sealed.to_vec();
    let text = AeadKey::from_secret(suite, secret)
        .open(0, transcript.hash(), &mut text)
        .ok_or_else(|| {
            Error::session(
                Cause::DecryptFailed,
                "the peer's identity does not open (changed on the way, or another psk_file)",
            )
        })?;
    let auth = match Auth::parse(text)? {
        Content::Auth(auth) => auth,
        Content::Alert(cause) => return Ok(Opened::Alert(cause)),
    };
    transcript.add(&[auth.identity]);
    let to_be_signed = transcript.to_be_signed(role);
    transcript.add(&[auth.signature]);
    let finished = finished(secret, transcript);
    transcript.add(&[auth.finished]);
    let key = match auth.id {
        Id::Key(key) => *key,
        Id::Unknown(id_type) => return Ok(Opened::UnknownIdentity(id_type)),
    };
    let key = PublicKey::from_bytes(key)
        .ok()
        .filter(|key| key.verify_strict(&to_be_signed, auth.signature))
        .ok_or_else(|| {
            Error::session(Cause::BadSignature, "the peer's signature does not verify")
        })?;
    if !bool::from(finished.ct_eq(auth.finished)) {
        return Err(Error::session(
            Cause::BadFinished,
            "the peer's authenticator does not verify",
        ));
    }
    Ok(Opened::Identity(key))
}

enum Content<'a> {
    Auth(Auth<'a>),
    Alert(Cause),
}

struct Auth<'a> {
    /// Bytes up to and including the extensions.
    identity: &'a [u8],
    id: Id<'a>,
    signature: &'a [u8; 64],
    finished: &'a [u8; 32],
}

enum Id<'a> {
    Key(&'a [u8; 32]),
    Unknown(u8),
}

impl<'a> Auth<'a> {
    fn parse(text: &'a [u8]) -> Result<Content<'a>> {
        let mut reader = Reader::new(text);
        match reader.u8()? {
            KIND_AUTH => {}
            KIND_ALERT => {
                let code = reader.u8()?;
                reader.end()?;
                return Ok(Content::Alert(Cause::from_code(code)));
            }
            _ => return Err(malformed("an identity was expected")),
        }
        let id_type = reader.u8()?;
        let id = reader.counted()?;
        let id = match id_type {
            ID_ED25519 => Id::Key(id.try_into().map_err(|_| malformed("a key has 32 bytes"))?),
            other => Id::Unknown(other),
        };
        reader.extensions()?;
        let signature = reader.array()?;
        let finished = reader.array()?;
        reader.end()?;
        let identity = text
            .len()
            .checked_sub(signature.len() + finished.len())
            .and_then(|len| text.get(..len))
            .ok_or_else(|| malformed("a message ends too early"))?;
        Ok(Content::Auth(Self {
            identity,
            id,
            signature,
            finished,
        }))
    }
}

fn seal(suite: Suite, secret: &Secret, aad: &[u8; 32], mut text: Vec<u8>) -> Vec<u8> {
    text.reserve_exact(TAG_LEN);
    let tag = AeadKey::from_secret(suite, secret).seal(0, aad, &mut text);
    text.extend_from_slice(&tag);
    text
}

/// `FIN`: binds the identity to the secret of this key exchange, the core of SIGMA.
fn finished(secret: &Secret, transcript: &Transcript) -> [u8; 32] {
    hmac(&*expand_label(secret, b"fin", b""), transcript.hash())
}
