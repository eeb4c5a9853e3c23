//! An established session: what the handshake leaves behind. Spec: LSS/1 §5.6.

use std::fmt;

use crate::kdf::Secret;
use crate::{Opener, PublicKey, Sealer, Suite, TimeKeys};

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
    /// Its public name.
    pub id: SessionId,
    /// The authenticated peer.
    pub peer: PublicKey,
    /// In use for records.
    pub suite: Suite,
    /// What this side sends.
    pub sealer: Sealer,
    /// What the peer sends.
    pub opener: Opener,
    /// For time probes over UDP.
    pub time: TimeKeys,
    /// For channel binding.
    pub exporter: Exporter,
}

/// Derives values that both ends of this session, and nobody else, know.
pub struct Exporter {
    _todo: (),
}

impl Exporter {
    pub(crate) fn new(_secret: Secret) -> Self {
        unimplemented!()
    }

    /// `EL(exp, label, SHA-256(context), L)`; `label` at most 249 bytes.
    pub fn export(&self, _label: &[u8], _context: &[u8], _out: &mut [u8]) {
        unimplemented!()
    }
}

impl fmt::Debug for Exporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Exporter")
    }
}
