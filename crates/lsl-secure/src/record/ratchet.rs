//! The key of one direction: its counter, and the hash ratchet that replaces it. Spec: LSS/1 §8.5.
//!
//! Old keys are erased: each overwrites the one before in its slot, a dummy the last one.

use std::fmt;

use lsl_platform::locked::{InChild, Locked};
use zeroize::Zeroize;

use crate::kdf::{Secret, expand_label};
use crate::{AeadKey, Suite};

/// The keys of one direction, one after the other.
pub(super) struct Ratchet {
    key: AeadKey,
    secret: Locked<Secret>,
    counter: u64,
    ended: bool,
}

impl Ratchet {
    pub(super) fn new(suite: Suite, secret: &Secret) -> Self {
        Self {
            key: AeadKey::from_secret(suite, secret),
            secret: Locked::new(secret.clone(), InChild::Gone),
            counter: 0,
            ended: false,
        }
    }

    /// Records under the present key so far, which is the counter of the next one.
    #[inline]
    pub(super) fn counter(&self) -> u64 {
        self.counter
    }

    /// Seals the next record; `None` if there is no counter left for it, or no key.
    #[inline]
    pub(super) fn seal(&mut self, aad: &[u8], text: &mut [u8]) -> Option<[u8; 16]> {
        let counter = self.take_counter()?;
        Some(self.key.seal(counter, aad, text))
    }

    /// Opens the next record; `None` if it is not the authentic next one.
    #[inline]
    pub(super) fn open<'a>(&mut self, aad: &[u8], text: &'a mut [u8]) -> Option<&'a mut [u8]> {
        let counter = self.take_counter()?;
        self.key.open(counter, aad, text)
    }

    /// Goes on to the next key: `s' = EL(s, "upd", "", 32)`, counter 0.
    pub(super) fn update(&mut self) {
        if self.ended {
            return;
        }
        // `Zeroizing` erases the value that the assignment replaces.
        *self.secret.get_mut() = expand_label(self.secret.get(), b"upd", b"");
        self.key.replace(self.secret.get());
        self.counter = 0;
    }

    /// Erases the key: nothing is sealed or opened any more.
    pub(super) fn end(&mut self) {
        if !self.ended {
            self.ended = true;
            // A forked child has none.
            if self.secret.has_value() {
                self.secret.get_mut().zeroize();
            }
            self.key.erase();
        }
    }

    /// Each value once; the last one is never used, so that the counter cannot wrap.
    #[inline]
    fn take_counter(&mut self) -> Option<u64> {
        let counter = self.counter;
        if self.ended {
            return None;
        }
        self.counter = counter.checked_add(1)?;
        Some(counter)
    }

    #[cfg(test)]
    pub(super) fn set_counter(&mut self, counter: u64) {
        self.counter = counter;
    }

    #[cfg(test)]
    pub(super) fn is_erased(&self) -> bool {
        self.ended && **self.secret.get() == [0; 32]
    }
}

impl fmt::Debug for Ratchet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ratchet({} records)", self.counter)
    }
}
