//! The SIGMA-I handshake as typestates: each step consumes the one before. Bytes in, bytes out; the
//! caller has the sockets, the clock and the trust list. Spec: LSS/1 §4.2, §5.
//!
//! Nothing here opens a second try: every error drops the state and with it the keys. A whole
//! handshake, both sides in one place:
//!
//! ```
//! use std::sync::Arc;
//!
//! use lsl_secure::handshake::{Claim, Initiator, PREAMBLE, Responder};
//! use lsl_secure::{Descriptor, Local, OsRandom, SecretKey, Suites};
//!
//! # fn main() -> lsl_secure::Result<()> {
//! let local = |key| Arc::new(Local { key, psk: None, suites: Suites::of_this_cpu(), pad_to: 0 });
//! let inlet = local(SecretKey::generate(&mut OsRandom)?);
//! let outlet = local(SecretKey::generate(&mut OsRandom)?);
//! let (inlet_key, outlet_key) = (inlet.key.public(), outlet.key.public());
//! # let descriptor = Descriptor {
//! #     uid: vec![1], name: vec![], stream_type: vec![], source_id: vec![], hostname: vec![],
//! #     session_id: vec![], channel_count: 1, nominal_srate: 0.0, channel_format: 1, created_at: 0.0,
//! # };
//!
//! let (initiator, flight) = Initiator::start(inlet, &mut OsRandom)?;
//! let (wait, m2) = Responder::new(outlet).receive_m1(&flight[PREAMBLE.len()..], &mut OsRandom)?;
//! let verified = initiator.receive_m2(&m2)?;
//! assert_eq!(verified.peer(), outlet_key); // the trust list decides here
//! let (unconfirmed, m3) = verified.accept()?;
//! let Claim::Verified(verified) = wait.receive_m3(&m3)? else { panic!("refused") };
//! assert_eq!(verified.peer(), inlet_key); // and here
//! let (outlet_session, mut record) = verified.accept(&descriptor)?;
//! let (inlet_session, seen) = unconfirmed.receive_descriptor(&mut record)?;
//! assert_eq!(seen, descriptor);
//! assert_eq!(inlet_session.id, outlet_session.id);
//! # Ok(())
//! # }
//! ```
//!
//! A state is used up by its step. One M2 gets one answer:
//!
//! ```compile_fail,E0382
//! # use lsl_secure::handshake::Initiator;
//! fn two_answers(initiator: Initiator, m2: &[u8]) {
//!     let _ = initiator.receive_m2(m2);
//!     let _ = initiator.receive_m2(m2);
//! }
//! ```
//!
//! M3 either accepts or refuses, since both would be sealed under one nonce:
//!
//! ```compile_fail,E0382
//! # use lsl_secure::{Cause, handshake::VerifiedResponder};
//! fn both_forms(verified: VerifiedResponder) {
//!     let _ = verified.accept();
//!     let _ = verified.refuse(Cause::NotAuthorised);
//! }
//! ```
//!
//! An inlet has nothing to read with before the outlet's DESCRIPTOR:
//!
//! ```compile_fail,E0616
//! # use lsl_secure::{Opener, handshake::Unconfirmed};
//! fn too_early(unconfirmed: Unconfirmed) -> Opener {
//!     unconfirmed.session.opener
//! }
//! ```
//!
//! And an outlet has no session before it saw M3:
//!
//! ```compile_fail,E0599
//! # use lsl_secure::{Descriptor, Session, handshake::WaitM3};
//! fn unauthenticated(wait: WaitM3, descriptor: &Descriptor) -> Session {
//!     wait.accept(descriptor).unwrap().0
//! }
//! ```
#![deny(clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod auth;
mod initiator;
mod messages;
mod responder;
mod schedule;
#[cfg(test)]
mod tests;
mod trail;
mod transcript;

pub use initiator::{Initiator, Unconfirmed, VerifiedResponder};
pub use responder::{Claim, Responder, VerifiedInitiator, WaitM3};
pub(crate) use trail::MAX_STEPS;
pub use trail::{Step, TimedStep, Trail};

use std::sync::Arc;

use lsl_platform::fork::Generation;

use crate::{Cause, Error, Result, Sealer};

/// Bytes that an initiator sends before M1. Spec: LSS/1 §4.2.
pub const PREAMBLE: &[u8; 14] = b"LSL:secure/1\r\n";

/// Longest value of the length field of M1.
pub const MAX_M1_LEN: usize = 512;

/// Longest value of the length field of M2 and M3.
pub const MAX_M2_M3_LEN: usize = 2048;

/// The one version there is.
const VERSION: u8 = 1;

/// Reason why a handshake ends, with the message or record that tells the peer.
#[derive(Debug)]
pub struct HandshakeError {
    /// Error for the log of this side.
    pub error: Error,
    /// To be sent before closing; empty if the peer may not know of the failure.
    pub last_words: Vec<u8>,
}

impl HandshakeError {
    pub(crate) fn told(error: Error, last_words: impl Into<Vec<u8>>) -> Self {
        let last_words = last_words.into();
        Self { error, last_words }
    }
}

impl From<Error> for HandshakeError {
    fn from(error: Error) -> Self {
        Self::told(error, [])
    }
}

impl From<HandshakeError> for Error {
    fn from(failure: HandshakeError) -> Self {
        failure.error
    }
}

/// Seals an ALERT. Returns nothing in a forked child, which must stay silent.
pub(crate) fn alert(sealer: &mut Sealer, cause: Cause, text: &str) -> Vec<u8> {
    let mut record = Vec::new();
    let _ = sealer.seal_alert(cause, text, &mut record);
    record
}

/// The process that began a handshake, and what it notes of it. A child of it must not go on (§8.6): two
/// processes would seal different messages under the same nonce.
#[derive(Debug)]
struct Owner {
    generation: Generation,
    trail: Arc<Trail>,
}

impl Owner {
    fn new(trail: Arc<Trail>) -> Self {
        let generation = Generation::current();
        Self { generation, trail }
    }

    fn is_current(&self) -> bool {
        self.generation.is_current()
    }

    fn check(&self) -> Result<()> {
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
