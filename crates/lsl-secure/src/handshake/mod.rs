//! The SIGMA-I handshake as typestates: each step consumes the one before. Bytes in, bytes out; the
//! caller has the sockets, the clock and the trust list. Spec: LSS/1 §4.2, §5.
//!
//! Nothing here opens a second try: every error drops the state and with it the keys.
#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing
    )
)]

mod auth;
mod initiator;
mod messages;
mod responder;
mod schedule;
#[cfg(test)]
mod tests;
mod transcript;

pub use initiator::{FailedOffer, Initiator, Unconfirmed, VerifiedResponder};
pub use responder::{Claim, FailedClaim, Responder, VerifiedInitiator, WaitM3};

use lsl_platform::fork::Generation;

use crate::{Cause, Error, Result};

/// What an initiator sends before M1. Spec: LSS/1 §4.2.
pub const PREAMBLE: &[u8; 14] = b"LSL:secure/1\r\n";

/// Longest value of the length field of M1.
pub const MAX_M1_LEN: usize = 512;

/// Longest value of the length field of M2 and M3.
pub const MAX_M2_M3_LEN: usize = 2048;

/// The one version there is.
const VERSION: u8 = 1;

/// The process that began a handshake. A child of it must not go on (§8.6): two processes would seal
/// different messages under the same nonce.
#[derive(Debug, Clone, Copy)]
struct Owner(Generation);

impl Owner {
    fn new() -> Self {
        Self(Generation::current())
    }

    fn is_current(self) -> bool {
        self.0.is_current()
    }

    fn check(self) -> Result<()> {
        if self.is_current() {
            Ok(())
        } else {
            Err(Error::session(
                Cause::Internal,
                "a handshake does not outlive a fork",
            ))
        }
    }
}
