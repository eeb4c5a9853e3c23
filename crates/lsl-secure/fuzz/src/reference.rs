//! The peer that breaks the rules: a second implementation of both handshakes, written from LSS/1 §5
//! with other libraries, which seals whatever it is told to.

use chacha20poly1305::ChaCha20Poly1305;
use chacha20poly1305::aead::{AeadInOut, KeyInit};
use ed25519_dalek::{Signer, SigningKey};
use hkdf::Hkdf;
use hmac::{Hmac, Mac};
use sha2::{Digest, Sha256};
use x25519_dalek::{PublicKey, StaticSecret};

pub(super) type Key = [u8; 32];

/// The traffic secrets of a session.
#[derive(Clone, Copy)]
pub(super) struct Traffic {
    pub(super) inlet: Key,
    pub(super) outlet: Key,
}

const PREAMBLE: &[u8] = b"LSL:secure/1\r\n";
const PROTOCOL: &[u8] = b"LSL-Secure-Session/1 SIGMA-I X25519 Ed25519 SHA-256";
const M2_HEAD: usize = 38;

/// An inlet with the key of `seed` against a real outlet.
pub(super) struct Inlet {
    secret: StaticSecret,
    seed: u8,
    hello: Vec<u8>,
}

impl Inlet {
    pub(super) fn new(seed: u8) -> Self {
        let secret = StaticSecret::from([seed; 32]);
        let share = PublicKey::from(&secret);
        let mut m1 = vec![0, 41, 1, 1, 1, 1, 1, 0, 1];
        m1.extend_from_slice(share.as_bytes());
        m1.extend_from_slice(&[0, 0]);
        let hello = [PREAMBLE, &m1].concat();
        Self {
            secret,
            seed,
            hello,
        }
    }

    /// M1 without the preamble.
    pub(super) fn m1(&self) -> &[u8] {
        &self.hello[PREAMBLE.len()..]
    }

    /// M3 for `m2`, whose plaintext `edit` has changed, and what the session's secrets would be.
    pub(super) fn m3(&self, m2: &[u8], edit: impl FnOnce(&mut Vec<u8>)) -> (Vec<u8>, Traffic) {
        let (head, sealed) = m2.split_at(M2_HEAD);
        let share: Key = head[6..].try_into().expect("32 bytes");
        let agreed = Agreed::new(&self.secret, share, &self.hello, head);
        let text = open(&agreed.hs_r, 0, &agreed.h2, sealed).expect("an honest M2");
        let h5 = sha(&[&agreed.h4(&text), &text[text.len() - 32..]]);
        let (mut text, _) = auth(
            b"LSS/1 initiator identity",
            self.seed,
            &m3_hash(&h5, 134),
            &agreed.hs_i,
        );
        edit(&mut text);
        let h6 = m3_hash(&h5, text.len());
        let m3 = [
            &m3_head(text.len()),
            seal(&agreed.hs_i, 0, &h6, &text).as_slice(),
        ]
        .concat();
        (m3, agreed.traffic(&h6, &text))
    }
}

/// An outlet with the key of `seed` against a real inlet.
pub(super) struct Outlet {
    agreed: Agreed,
    h5: Key,
}

impl Outlet {
    /// The answer to a hello, its head and its plaintext changed by the edits.
    pub(super) fn answer(
        seed: u8,
        hello: &[u8],
        edit_head: impl FnOnce(&mut Vec<u8>),
        edit: impl FnOnce(&mut Vec<u8>),
    ) -> (Self, Vec<u8>) {
        let secret = StaticSecret::from([seed; 32]);
        let share: Key = hello[hello.len() - 34..hello.len() - 2]
            .try_into()
            .expect("32 bytes");
        let mut head = vec![0, 0, 2, 1, 0, 1];
        head.extend_from_slice(PublicKey::from(&secret).as_bytes());
        edit_head(&mut head);
        let with_len = |head: &[u8], text: usize| {
            let mut head = head.to_vec();
            let len = u16::try_from(head.len() - 2 + text + 16).expect("a short message");
            head[..2].copy_from_slice(&len.to_be_bytes());
            head
        };
        head.resize(head.len().max(2), 0);
        let honest = with_len(&head, 134);
        let agreed = Agreed::new(&secret, share, hello, &honest);
        let (mut text, h5) = auth(b"LSS/1 responder identity", seed, &agreed.h2, &agreed.hs_r);
        edit(&mut text);
        let head = with_len(&head, text.len());
        let agreed = Agreed::new(&secret, share, hello, &head);
        let m2 = [head.as_slice(), &seal(&agreed.hs_r, 0, &agreed.h2, &text)].concat();
        (Self { agreed, h5 }, m2)
    }

    /// The secrets after an honest M2 and `m3`.
    pub(super) fn traffic(&self, m3: &[u8]) -> Traffic {
        let h6 = sha(&[&self.h5, &m3[..3]]);
        let text = open(&self.agreed.hs_i, 0, &h6, &m3[3..]).expect("an honest M3");
        self.agreed.traffic(&h6, &text)
    }
}

struct Agreed {
    prk: Key,
    h2: Key,
    hs_i: Key,
    hs_r: Key,
}

impl Agreed {
    fn new(secret: &StaticSecret, share: Key, hello: &[u8], m2_head: &[u8]) -> Self {
        let dh = secret.diffie_hellman(&PublicKey::from(share));
        let prk: Key = Hkdf::<Sha256>::extract(Some(&[0; 32]), dh.as_bytes())
            .0
            .into();
        let h1 = sha(&[&sha(&[PROTOCOL]), hello]);
        let h2 = sha(&[&h1, m2_head]);
        Self {
            hs_i: label(&prk, b"hs i", &h2),
            hs_r: label(&prk, b"hs r", &h2),
            prk,
            h2,
        }
    }

    /// The hash up to SIG of M2's plaintext.
    fn h4(&self, text: &[u8]) -> Key {
        let (identity, proofs) = text.split_at(text.len() - 96);
        sha(&[&sha(&[&self.h2, identity]), &proofs[..64]])
    }

    fn traffic(&self, h6: &Key, text: &[u8]) -> Traffic {
        let (identity, proofs) = text.split_at(text.len().saturating_sub(96));
        let (signature, fin) = proofs.split_at(proofs.len().min(64));
        let h9 = sha(&[&sha(&[&sha(&[h6, identity]), signature]), fin]);
        let master = label(&self.prk, b"master", &h9);
        Traffic {
            inlet: label(&master, b"ap i", &h9),
            outlet: label(&master, b"ap r", &h9),
        }
    }
}

/// AUTH, and the hash after it.
fn auth(context: &[u8], seed: u8, hash: &Key, secret: &Key) -> (Vec<u8>, Key) {
    let key = SigningKey::from_bytes(&[seed; 32]);
    let mut text = vec![1, 1, 0, 32];
    text.extend_from_slice(key.verifying_key().as_bytes());
    text.extend_from_slice(&[0, 0]);
    let hash = sha(&[hash, &text]);
    let signature = key
        .sign(&[&[0x20; 64], context, &[0], &hash].concat())
        .to_bytes();
    let hash = sha(&[&hash, &signature]);
    let mut mac = Hmac::<Sha256>::new_from_slice(&label(secret, b"fin", b"")).expect("any length");
    mac.update(&hash);
    let fin: Key = mac.finalize().into_bytes().into();
    text.extend_from_slice(&signature);
    text.extend_from_slice(&fin);
    (text, sha(&[&hash, &fin]))
}

fn m3_head(text: usize) -> [u8; 3] {
    let [high, low] = u16::try_from(1 + text + 16)
        .expect("a short message")
        .to_be_bytes();
    [high, low, 3]
}

fn m3_hash(h5: &Key, text: usize) -> Key {
    sha(&[h5, &m3_head(text)])
}

/// A record with any plaintext.
pub(super) fn record(secret: &Key, counter: u64, text: &[u8]) -> Vec<u8> {
    let len = u16::try_from(text.len() + 16)
        .expect("a short record")
        .to_be_bytes();
    [&len, seal(secret, counter, &len, text).as_slice()].concat()
}

/// The secret after KEY_UPDATE.
pub(super) fn next(secret: &Key) -> Key {
    label(secret, b"upd", b"")
}

fn sha(parts: &[&[u8]]) -> Key {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part);
    }
    hash.finalize().into()
}

fn label(secret: &Key, label: &[u8], context: &[u8]) -> Key {
    let mut out = [0; 32];
    expand(secret, label, context, &mut out);
    out
}

fn expand(secret: &Key, label: &[u8], context: &[u8], out: &mut [u8]) {
    let byte = |len: usize| u8::try_from(len).expect("short");
    let mut info = vec![0, byte(out.len()), byte(5 + label.len())];
    info.extend_from_slice(b"lss1 ");
    info.extend_from_slice(label);
    info.push(byte(context.len()));
    info.extend_from_slice(context);
    let prk = Hkdf::<Sha256>::from_prk(secret).expect("32 bytes");
    prk.expand(&info, out).expect("a short output");
}

fn key_and_nonce(secret: &Key, counter: u64) -> (ChaCha20Poly1305, [u8; 12]) {
    let mut nonce = [0; 12];
    expand(secret, b"iv", b"", &mut nonce);
    for (byte, count) in nonce[4..].iter_mut().zip(counter.to_be_bytes()) {
        *byte ^= count;
    }
    let key = label(secret, b"key", b"");
    (ChaCha20Poly1305::new((&key).into()), nonce)
}

fn seal(secret: &Key, counter: u64, aad: &[u8], text: &[u8]) -> Vec<u8> {
    let (key, nonce) = key_and_nonce(secret, counter);
    let mut sealed = text.to_vec();
    key.encrypt_in_place((&nonce).into(), aad, &mut sealed)
        .expect("short");
    sealed
}

fn open(secret: &Key, counter: u64, aad: &[u8], sealed: &[u8]) -> Option<Vec<u8>> {
    let (key, nonce) = key_and_nonce(secret, counter);
    let mut text = sealed.to_vec();
    key.decrypt_in_place((&nonce).into(), aad, &mut text).ok()?;
    Some(text)
}
