//! The inlet's side of the handshake.

use std::sync::Arc;

use crate::{Cause, Descriptor, Local, PublicKey, Random, Result, Sealer, Session};

/// Has sent preamble and M1, waits for M2.
#[derive(Debug)]
pub struct Initiator {
    _todo: (),
}

impl Initiator {
    /// Starts a handshake. Returns the preamble and M1, to be sent in one write.
    ///
    /// # Errors
    /// If the random generator fails.
    pub fn start(_local: Arc<Local>, _random: &mut impl Random) -> Result<(Self, Vec<u8>)> {
        unimplemented!()
    }

    /// Takes M2, whole, with its length field. Checks everything but trust.
    ///
    /// # Errors
    /// Any failure is answered by closing the connection, nothing else.
    pub fn receive_m2(self, _m2: &[u8]) -> Result<VerifiedResponder> {
        unimplemented!()
    }
}

/// The outlet has proved that it owns its key; whether that key is trusted is the caller's to say.
#[derive(Debug)]
pub struct VerifiedResponder {
    _todo: (),
}

impl VerifiedResponder {
    /// The outlet's key.
    pub fn peer(&self) -> PublicKey {
        unimplemented!()
    }

    /// Goes on. Returns M3, to be sent together with the sealed request.
    pub fn accept(self) -> (Unconfirmed, Vec<u8>) {
        unimplemented!()
    }

    /// Ends it. Returns the ALERT form of M3, which hides our identity.
    pub fn refuse(self, _cause: Cause) -> Vec<u8> {
        unimplemented!()
    }
}

/// May send; must not deliver anything before the outlet's DESCRIPTOR.
#[derive(Debug)]
pub struct Unconfirmed {
    _todo: (),
}

impl Unconfirmed {
    /// For the request.
    pub fn sealer(&mut self) -> &mut Sealer {
        unimplemented!()
    }

    /// Takes the first record, whole, with its length field. It must be DESCRIPTOR; comparing it
    /// with what the user resolved is the caller's task (refusal: `session.sealer.seal_alert`).
    ///
    /// # Errors
    /// [`Error::Alert`](crate::Error::Alert) if the outlet refuses us, else the session's failure.
    pub fn receive_descriptor(self, _record: &mut [u8]) -> Result<(Session, Descriptor)> {
        unimplemented!()
    }
}
