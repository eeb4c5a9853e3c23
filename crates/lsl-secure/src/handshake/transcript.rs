//! The running hash over everything said so far. Spec: LSS/1 §5.5.

use sha2::{Digest, Sha256};

use crate::Role;

/// `h0` … `h9`, one after the other.
#[derive(Debug, Clone)]
pub(super) struct Transcript(pub(super) [u8; 32]);

impl Transcript {
    /// Starts at `h0`, the hash of the protocol's name.
    pub(super) fn new() -> Self {
        Self(Sha256::digest(PROTOCOL).into())
    }

    /// The next hash: SHA-256 over the present one and `parts`.
    pub(super) fn add(&mut self, parts: &[&[u8]]) {
        let mut hash = Sha256::new_with_prefix(self.0);
        for part in parts {
            hash.update(part);
        }
        self.0 = hash.finalize().into();
    }

    pub(super) fn hash(&self) -> &[u8; 32] {
        &self.0
    }

    /// Returns the text that the side of `role` signs now. The 64 blanks keep a signature from
    /// being valid in a protocol whose signed texts start with something an attacker chooses.
    pub(super) fn to_be_signed(&self, role: Role) -> [u8; SIGNED_LEN] {
        let context = match role {
            Role::Outlet => b"LSS/1 responder identity",
            Role::Inlet => b"LSS/1 initiator identity",
        };
        let mut text = [b' '; SIGNED_LEN];
        let parts = context.iter().chain(&[0]).chain(&self.0);
        for (byte, part) in text.iter_mut().skip(64).zip(parts) {
            *byte = *part;
        }
        text
    }
}

/// Blanks, context, zero byte, hash.
const SIGNED_LEN: usize = 64 + 24 + 1 + 32;

const PROTOCOL: &[u8] = b"LSL-Secure-Session/1 SIGMA-I X25519 Ed25519 SHA-256";
