//! The SIGMA-I handshake as typestates: each step consumes the one before. Bytes in, bytes out; the
//! caller has the sockets, the clock and the trust list. Spec: LSS/1 §4.2, §5.

mod initiator;
mod messages;
mod responder;
mod schedule;
mod transcript;

pub use initiator::{Initiator, Unconfirmed, VerifiedResponder};
pub use responder::{Claim, FailedClaim, Responder, VerifiedInitiator, WaitM3};

/// What an initiator sends before M1. Spec: LSS/1 §4.2.
pub const PREAMBLE: &[u8; 14] = b"LSL:secure/1\r\n";

/// Longest value of the length field of M1.
pub const MAX_M1_LEN: usize = 512;

/// Longest value of the length field of M2 and M3.
pub const MAX_M2_M3_LEN: usize = 2048;
