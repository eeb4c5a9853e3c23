//! Identity of a relay. Spec: relay §2.

use std::fmt;
use std::str::FromStr;

use lsl_secure::PublicKey;
use sha2::{Digest, Sha256};

/// Identity of a relay; as text 16 lower-case hex digits, whose order is that of the numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RelayId(pub u64);

impl RelayId {
    /// Returns the identity of the relay with this device key. A relay without one takes random bits.
    pub fn of_key(key: &PublicKey) -> Self {
        let mut hash = Sha256::new();
        hash.update(b"lsl-relay id");
        hash.update(key.as_bytes());
        let hash: [u8; 32] = hash.finalize().into();
        let (head, _) = hash.split_first_chunk().unwrap_or((&[0; 8], &[]));
        Self(u64::from_be_bytes(*head))
    }
}

impl fmt::Display for RelayId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// Rejection of a text that is no relay id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a relay id is 16 hex digits")]
pub struct NoRelayId;

impl FromStr for RelayId {
    type Err = NoRelayId;

    fn from_str(text: &str) -> Result<Self, NoRelayId> {
        let is_hex = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let number = is_hex.then(|| u64::from_str_radix(text, 16).ok());
        number.flatten().map(Self).ok_or(NoRelayId)
    }
}
