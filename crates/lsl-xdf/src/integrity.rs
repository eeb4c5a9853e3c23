//! Signed chain through a file: private chunks that other readers skip, each of which signs everything before
//! it. It is made while the file is written, so that a crash leaves a file signed up to the last link.
//!
//! A link holds the number of bytes before it, their SHA-256, a public key and a signature of these. Since
//! these bytes include the links before it, the last good link proves all of them. Nothing was changed,
//! left out, added or moved since the holder of the key wrote it. The link with which a recording was
//! closed says so; without it the end may be missing. Nothing here knows how keys are kept or made: see
//! [`Signer`]. Spec: recorder §5.
#![deny(clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

use std::fmt;
use std::io::{self, Read};

use sha2::{Digest, Sha256};

use crate::chunk::{INTEGRITY_TAG, MAGIC, Parsed, Tag, append_chunk, read_head};
use crate::{Error, Result};

/// Signer with an Ed25519 key (RFC 8032).
pub trait Signer: Send {
    /// Returns the public key of the signer.
    fn public_key(&self) -> [u8; 32];

    /// Signs a message, which begins with [`CONTEXT`].
    fn sign(&self, message: &[u8]) -> [u8; 64];
}

/// Prefix of every signed message: a signature of a recording is valid for nothing else.
pub const CONTEXT: &[u8] = b"lsl-xdf integrity v1\0";

/// A link is due after so many bytes, or so many seconds.
const LINK_BYTES: u64 = 1 << 20;
const LINK_SECS: f64 = 10.0;

/// Bytes of version, kind, bytes before, their digest, public key, signature.
const LINK_LEN: usize = 1 + 1 + 8 + 32 + 32 + 64;
/// Bytes of length of length, length, tag.
const HEAD_LEN: usize = 4;
const VERSION: u8 = 1;

/// Whether a recording goes on behind a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Inner = 0,
    Last = 1,
}

/// The chain of a file that is being written.
pub(crate) struct Chain {
    signer: Box<dyn Signer>,
    hash: Sha256,
    len: u64,
    linked_len: u64,
    linked_at: f64,
}

impl Chain {
    /// Creates the chain of a file that begins with these bytes.
    pub(crate) fn new(signer: Box<dyn Signer>, bytes: &[u8], now: f64) -> Self {
        let mut chain = Self {
            signer,
            hash: Sha256::new(),
            len: 0,
            linked_len: 0,
            linked_at: now,
        };
        chain.wrote(bytes);
        chain
    }

    /// Adds bytes that were written to the file.
    pub(crate) fn wrote(&mut self, bytes: &[u8]) {
        self.hash.update(bytes);
        self.len += bytes.len() as u64;
    }

    /// Returns the next link as a chunk, if it is due.
    pub(crate) fn due_link(&self, now: f64) -> Option<Vec<u8>> {
        let since = self.len - self.linked_len;
        let is_due = since >= LINK_BYTES || now - self.linked_at >= LINK_SECS;
        (since > CHUNK_LEN && is_due).then(|| self.link(Kind::Inner))
    }

    /// Returns the link that closes the file, as a chunk.
    pub(crate) fn last_link(&self) -> Vec<u8> {
        self.link(Kind::Last)
    }

    /// Notes that a link was written, at `now`.
    pub(crate) fn linked(&mut self, now: f64) {
        self.linked_len = self.len;
        self.linked_at = now;
    }

    fn link(&self, kind: Kind) -> Vec<u8> {
        let digest: [u8; 32] = self.hash.clone().finalize().into();
        let key = self.signer.public_key();
        let signature = self.signer.sign(&message(kind, self.len, &digest));
        let mut chunk = Vec::new();
        append_chunk(
            &mut chunk,
            Tag::Other(INTEGRITY_TAG),
            &[
                &[VERSION, kind as u8],
                &self.len.to_le_bytes(),
                &digest,
                &key,
                &signature,
            ],
        );
        chunk
    }
}

/// Bytes of a link and the head of its chunk.
pub(crate) const CHUNK_LEN: u64 = (HEAD_LEN + LINK_LEN) as u64;

impl fmt::Debug for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Chain")
            .field("len", &self.len)
            .field("linked_len", &self.linked_len)
            .finish_non_exhaustive()
    }
}

fn message(kind: Kind, len: u64, digest: &[u8; 32]) -> Vec<u8> {
    [CONTEXT, &[kind as u8], &len.to_le_bytes(), digest].concat()
}

/// Proof that the chain of a file gives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proof {
    /// Key of the first link, which signed; `None` if there is no link.
    pub key: Option<[u8; 32]>,
    /// Number of links that are good.
    pub links: u64,
    /// Bytes from the beginning of the file that the key's holder wrote in this order.
    pub proven_bytes: u64,
    /// Length of the file in bytes.
    pub len: u64,
    /// Whether the recording was closed, so that nothing is missing at its end.
    pub is_closed: bool,
    /// First link that is wrong; nothing from there on is proven.
    pub broken: Option<Broken>,
}

impl Proof {
    /// Returns whether the whole file is as it was written.
    pub fn is_complete(&self) -> bool {
        self.is_closed && self.broken.is_none() && self.proven_bytes == self.len
    }
}

/// Place and reason of a break in the chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Broken {
    /// Position of the wrong link, in bytes from the beginning.
    pub at: u64,
    /// Reason why the link is wrong.
    pub reason: BrokenReason,
}

/// Reason why a link is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum BrokenReason {
    /// Bytes before the link were changed, left out, added or moved.
    Content,
    /// The signature does not belong to the key.
    Signature,
    /// The key differs from that of the links before.
    Key,
    /// The link has a form that this program does not know.
    Form,
}

impl fmt::Display for BrokenReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Content => "bytes before it were changed, left out, added or moved",
            Self::Signature => "its signature is false",
            Self::Key => "another key signed it",
            Self::Form => "it is of an unknown kind",
        })
    }
}

/// Verifies the chain of a file, in one pass and constant memory. `is_signed(key, message, signature)`
/// checks a signature; a key without trust proves nothing.
///
/// Of other chunks only the frames are interpreted; a file that is damaged in its middle is followed up to
/// there.
///
/// # Errors
/// [`Error::NotXdf`], [`Error::Io`] of the input.
pub fn verify(
    mut input: impl Read,
    is_signed: impl Fn(&[u8; 32], &[u8], &[u8; 64]) -> bool,
) -> Result<Proof> {
    let mut pass = Pass {
        hash: Sha256::new(),
        proof: Proof {
            key: None,
            links: 0,
            proven_bytes: 0,
            len: 0,
            is_closed: false,
            broken: None,
        },
        good: None,
    };
    let mut magic = [0; MAGIC.len()];
    if fill(&mut input, &mut magic)? < magic.len() || magic != MAGIC {
        return Err(Error::NotXdf("it does not begin with XDF:"));
    }
    pass.wrote(&magic);
    let mut piece = vec![0; PIECE];
    while let Some((head, content_len)) = pass.head(&mut input)? {
        let is_link = head.tag == Tag::Other(INTEGRITY_TAG) && pass.proof.broken.is_none();
        if is_link && content_len == LINK_LEN as u64 {
            let mut content = [0; LINK_LEN];
            let got = fill(&mut input, &mut content)?;
            if got == LINK_LEN {
                pass.link(&content, &is_signed);
            }
            pass.wrote(&head.bytes);
            pass.wrote(content.get(..got).unwrap_or_default());
            if got == LINK_LEN {
                pass.linked();
            }
            continue;
        }
        if is_link {
            pass.break_at(pass.proof.len, BrokenReason::Form);
        }
        pass.wrote(&head.bytes);
        let mut left = content_len;
        while left > 0 {
            let room = usize::try_from(left).unwrap_or(PIECE).min(PIECE);
            let space = piece.get_mut(..room).unwrap_or_default();
            let got = fill(&mut input, space)?;
            pass.wrote(space.get(..got).unwrap_or_default());
            left -= got as u64;
            if got < room {
                break;
            }
        }
    }
    // The rest without frames still counts.
    loop {
        let got = fill(&mut input, &mut piece)?;
        pass.proof.len += got as u64;
        if got == 0 {
            return Ok(pass.proof);
        }
    }
}

struct Pass {
    hash: Sha256,
    proof: Proof,
    /// Kind of the current link, if it is good; `None` again once it is hashed.
    good: Option<Kind>,
}

/// Head of a chunk, with its bytes in the file.
struct RawHead {
    tag: Tag,
    bytes: Vec<u8>,
}

impl Pass {
    fn wrote(&mut self, bytes: &[u8]) {
        self.hash.update(bytes);
        self.proof.len += bytes.len() as u64;
    }

    /// Reads the head of the next chunk, which is not hashed yet, and the length of its content. `None` if
    /// no chunk follows.
    fn head(&mut self, input: &mut impl Read) -> Result<Option<(RawHead, u64)>> {
        let mut bytes = Vec::new();
        loop {
            match read_head(&bytes) {
                Parsed::Need(need) => {
                    let had = bytes.len();
                    bytes.resize(need.min(MAX_HEAD_LEN), 0);
                    let space = bytes.get_mut(had..).unwrap_or_default();
                    let (room, got) = (space.len(), fill(input, space)?);
                    if got < room || room == 0 {
                        self.proof.len += (had + got) as u64;
                        return Ok(None);
                    }
                }
                Parsed::Bad(_) => {
                    self.proof.len += bytes.len() as u64;
                    return Ok(None);
                }
                Parsed::Done(head, _) => {
                    let tag = head.tag;
                    return Ok(Some((RawHead { tag, bytes }, head.content_len)));
                }
            }
        }
    }

    /// Checks a link of which neither head nor content is hashed yet.
    fn link(
        &mut self,
        content: &[u8; LINK_LEN],
        is_signed: &impl Fn(&[u8; 32], &[u8], &[u8; 64]) -> bool,
    ) {
        let at = self.proof.len;
        let Some(link) = ChainLink::read(content) else {
            return self.break_at(at, BrokenReason::Form);
        };
        if *self.proof.key.get_or_insert(link.key) != link.key {
            return self.break_at(at, BrokenReason::Key);
        }
        let digest: [u8; 32] = self.hash.clone().finalize().into();
        if (link.len, link.digest) != (at, digest) {
            return self.break_at(at, BrokenReason::Content);
        }
        let message = message(link.kind, link.len, &link.digest);
        if !is_signed(&link.key, &message, &link.signature) {
            return self.break_at(at, BrokenReason::Signature);
        }
        self.good = Some(link.kind);
    }

    /// Counts the current link, which is hashed now: a good one is proven with all that it signs.
    fn linked(&mut self) {
        if let Some(kind) = self.good.take() {
            self.proof.links += 1;
            self.proof.proven_bytes = self.proof.len;
            self.proof.is_closed = kind == Kind::Last;
        }
    }

    fn break_at(&mut self, at: u64, reason: BrokenReason) {
        self.proof.broken.get_or_insert(Broken { at, reason });
    }
}

struct ChainLink {
    kind: Kind,
    len: u64,
    digest: [u8; 32],
    key: [u8; 32],
    signature: [u8; 64],
}

impl ChainLink {
    fn read(content: &[u8; LINK_LEN]) -> Option<Self> {
        let (&[version, kind], rest) = content.split_first_chunk::<2>()?;
        let (len, rest) = rest.split_first_chunk::<8>()?;
        let (&digest, rest) = rest.split_first_chunk::<32>()?;
        let (&key, rest) = rest.split_first_chunk::<32>()?;
        let (&signature, _) = rest.split_first_chunk::<64>()?;
        let kind = match (version, kind) {
            (VERSION, 0) => Kind::Inner,
            (VERSION, 1) => Kind::Last,
            _ => return None,
        };
        Some(Self {
            kind,
            len: u64::from_le_bytes(*len),
            digest,
            key,
            signature,
        })
    }
}

/// Reads until the space is full or the input ends.
fn fill(input: &mut impl Read, space: &mut [u8]) -> Result<usize> {
    let mut filled = 0;
    while let Some(rest) = space.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match input.read(rest) {
            Ok(0) => break,
            Ok(got) => filled += got,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(Error::io("read the recording")(error)),
        }
    }
    Ok(filled)
}

const PIECE: usize = 64 << 10;
/// Bytes: one for the width, eight of length, two of tag.
const MAX_HEAD_LEN: usize = 11;

#[cfg(test)]
mod tests;
