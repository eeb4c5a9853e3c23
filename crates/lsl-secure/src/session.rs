//! An established session, the result of a handshake. Spec: LSS/1 §5.6.

use std::fmt;

use lsl_platform::fork::Generation;
use lsl_platform::locked::{InChild, Locked};
use sha2::{Digest, Sha256};

use crate::kdf::{Secret, expand_label_into};
use crate::{Cause, Error, Opener, PublicKey, Result, Sealer, Suite, TimeKeys};

/// The public name of a session, 16 bytes; prints as hex.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SessionId(pub [u8; 16]);

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// An established session. The halves may go to different threads.
#[derive(Debug)]
pub struct Session {
    /// Identifier of the session, public and equal on both sides.
    pub id: SessionId,
    /// Public key that the peer proved.
    pub peer: PublicKey,
    /// Suite that seals the records.
    pub suite: Suite,
    /// Sending half: seals records in counter order.
    pub sealer: Sealer,
    /// Receiving half: opens the peer's records.
    pub opener: Opener,
    /// Keys of time probes over UDP.
    pub time: TimeKeys,
    /// Derives values for channel binding.
    pub exporter: Exporter,
}

/// Derives values that only both ends of this session know.
pub struct Exporter {
    secret: Locked<Secret>,
}

impl Exporter {
    pub(crate) fn new(secret: Secret) -> Self {
        let secret = Locked::new(secret, InChild::Gone);
        Self { secret }
    }

    /// `EL(exp, label, SHA-256(context), L)`; `label` at most 249 bytes, `out` at most 8160.
    ///
    /// # Panics
    /// In a forked child, which has no keys of its parent's sessions.
    pub fn export(&self, label: &[u8], context: &[u8], out: &mut [u8]) {
        expand_label_into(self.secret.get(), label, &Sha256::digest(context), out);
    }
}

impl fmt::Debug for Exporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Exporter")
    }
}

/// Keys and counters may only be used in the process that made them: a forked child would seal other
/// data under the same nonces. Spec: LSS/1 §8.6.
///
/// # Errors
/// [`Cause::Internal`] in a child of that process.
#[inline]
pub(crate) fn require_own(generation: Generation) -> Result<()> {
    if generation.is_current() {
        Ok(())
    } else {
        Err(not_own())
    }
}

#[cold]
#[inline(never)]
fn not_own() -> Error {
    Error::session(
        Cause::Internal,
        "this session belongs to the parent process",
    )
}
