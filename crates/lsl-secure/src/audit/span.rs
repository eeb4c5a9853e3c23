//! Names of trees of events: all lines of one connection have one. Spec: audit §1.1.

use std::sync::atomic::{AtomicU64, Ordering};

use lsl_platform::fork::PerProcess;
use sha2::{Digest, Sha256};

/// A connection from its first byte to its end, as its events name it. Begun once and copied into each of
/// them. In a line it tells neither process nor address nor order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span(u64);

impl Span {
    /// Begins one that no other is equal to. Costs next to nothing.
    pub fn begin() -> Self {
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }

    /// Returns its number among those of this process, from 1 on.
    pub(super) fn number(self) -> u64 {
        self.0
    }

    /// Returns the name in lines: a keyed hash, whose key nobody learns and no forked child shares.
    pub(super) fn name(self) -> Option<[u8; 16]> {
        let key = KEY.get_or_try_init(|| {
            let mut key = [0; 32];
            getrandom::fill(&mut key).map(|()| key)
        });
        let hash = Sha256::new()
            .chain_update(key.ok()?)
            .chain_update(b"lsl span")
            .chain_update(self.0.to_be_bytes());
        hash.finalize().first_chunk().copied()
    }
}

static NEXT: AtomicU64 = AtomicU64::new(1);
static KEY: PerProcess<[u8; 32]> = PerProcess::new();

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_keep_and_differ() {
        let [one, two] = [Span::begin(), Span::begin()];
        assert!(one.name().is_some());
        assert_eq!(one.name(), one.name());
        assert_ne!(one.name(), two.name());
    }
}
