//! The outlet's side of the handshake.

use std::sync::Arc;

use crate::{Cause, Descriptor, Error, Local, PublicKey, Random, Result, Session};

/// Waits for M1 (the preamble is consumed).
#[derive(Debug)]
pub struct Responder {
    _todo: (),
}

impl Responder {
    /// A connection whose first 14 bytes were the preamble.
    pub fn new(_local: Arc<Local>) -> Self {
        unimplemented!()
    }

    /// Takes M1, whole, with its length field. Does the asymmetric work; returns M2.
    ///
    /// # Errors
    /// [`Cause::Version`] and [`Cause::NoCommonSuite`] deserve the textual refusal 505, all others
    /// just a close.
    pub fn receive_m1(self, _m1: &[u8], _random: &mut impl Random) -> Result<(WaitM3, Vec<u8>)> {
        unimplemented!()
    }
}

/// Has sent M2, waits for M3.
#[derive(Debug)]
pub struct WaitM3 {
    _todo: (),
}

impl WaitM3 {
    /// Takes M3, whole, with its length field. Checks everything but trust.
    ///
    /// # Errors
    /// With the record that must be sent before closing, if the peer deserves one.
    pub fn receive_m3(self, _m3: &[u8]) -> Result<Claim, FailedClaim> {
        unimplemented!()
    }
}

/// What M3 turned out to be.
#[derive(Debug)]
pub enum Claim {
    /// The inlet has proved that it owns its key.
    Verified(Box<VerifiedInitiator>),
    /// The inlet (anybody: `claimed`) refuses us.
    Refused(Cause),
}

/// A failure of M3, and the sealed ALERT to send for it if the peer may know why.
#[derive(Debug)]
pub struct FailedClaim {
    /// What went wrong.
    pub error: Error,
    /// To be sent before closing.
    pub alert: Option<Vec<u8>>,
}

/// An inlet that owns its key; whether that key is trusted is the caller's to say.
#[derive(Debug)]
pub struct VerifiedInitiator {
    _todo: (),
}

impl VerifiedInitiator {
    /// The inlet's key.
    pub fn peer(&self) -> PublicKey {
        unimplemented!()
    }

    /// Accepts the inlet. Returns the session and the sealed DESCRIPTOR, to be sent first.
    pub fn accept(self, _descriptor: &Descriptor) -> (Session, Vec<u8>) {
        unimplemented!()
    }

    /// Refuses the inlet. Returns the sealed ALERT to send before closing.
    pub fn refuse(self, _cause: Cause, _text: &str) -> Vec<u8> {
        unimplemented!()
    }
}
