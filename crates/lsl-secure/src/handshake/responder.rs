//! The outlet's side of the handshake.

use std::fmt;
use std::sync::Arc;

use super::auth::{AUTH_LEN, Opened, open_auth, seal_auth};
use super::messages::{Hello, m2_head, parse_m3};
use super::schedule::{Agreed, Ephemeral};
use super::transcript::Transcript;
use super::{HandshakeError, Owner, PREAMBLE, Step, Trail, alert};
use crate::kdf::Secret;
use crate::{
    Cause, Descriptor, Error, Local, PublicKey, Random, Result, Role, Sealer, Session, Suite,
};

/// Waits for M1 (the preamble is consumed).
#[derive(Debug)]
pub struct Responder {
    local: Arc<Local>,
    owner: Owner,
}

impl Responder {
    /// A connection whose first 14 bytes were the preamble.
    pub fn new(local: Arc<Local>) -> Self {
        Self::on(Trail::untimed(Role::Outlet), local)
    }

    /// Works as [`new`](Self::new), and notes its steps on `trail`.
    pub fn on(trail: Arc<Trail>, local: Arc<Local>) -> Self {
        let owner = Owner::new(trail);
        Self { local, owner }
    }

    /// Takes M1, whole, with its length field. Does the asymmetric work; returns M2.
    ///
    /// # Errors
    /// [`Cause::Version`] and [`Cause::NoCommonSuite`] deserve the textual refusal 505, all others
    /// just a close.
    pub fn receive_m1(self, m1: &[u8], random: &mut impl Random) -> Result<(WaitM3, Vec<u8>)> {
        let (hello, suite) = self.parse_m1(m1)?;
        let trail = &self.owner.trail;
        let (ephemeral, share) = Ephemeral::with_share(trail, random)?;
        let mut m2 = m2_head(suite, &share, AUTH_LEN);
        let psk = self.local.psk.as_ref();
        let agreed = trail.time(Step::Derive, || ephemeral.agree(&hello.share, psk))?;
        let mut transcript = Transcript::new();
        transcript.add(&[PREAMBLE, m1]);
        transcript.add(&[&m2]);
        let h2 = *transcript.hash();
        let secret = agreed.handshake_secret(Role::Outlet, &h2);
        let mut sealed = trail.time(Step::Sign, || {
            seal_auth(
                &mut transcript,
                Role::Outlet,
                &self.local.key,
                suite,
                &secret,
            )
        });
        m2.append(&mut sealed);
        let wait = WaitM3 {
            local: self.local,
            secret: Box::new(agreed.handshake_secret(Role::Inlet, &h2)),
            agreed,
            transcript,
            suite,
            owner: self.owner,
        };
        Ok((wait, m2))
    }

    /// Checks all of M1 that takes no asymmetric work.
    ///
    /// # Errors
    /// As [`receive_m1`](Self::receive_m1).
    pub(crate) fn check_m1(&self, m1: &[u8]) -> Result<()> {
        self.parse_m1(m1).map(drop)
    }

    fn parse_m1(&self, m1: &[u8]) -> Result<(Hello, Suite)> {
        self.owner.check()?;
        let hello = Hello::parse(m1)?;
        hello.check_version()?;
        let suite = hello.choose_suite(self.local.suites.list())?;
        Ok((hello, suite))
    }
}

/// Has sent M2, waits for M3.
pub struct WaitM3 {
    local: Arc<Local>,
    agreed: Agreed,
    /// `hs_i`, under which the inlet seals M3.
    secret: Box<Secret>,
    /// Stands at `h5`, over the whole M2.
    transcript: Transcript,
    suite: Suite,
    owner: Owner,
}

impl WaitM3 {
    /// Takes M3, whole, with its length field. Checks everything but trust.
    ///
    /// # Errors
    /// With the record that must be sent before closing, if the peer deserves one.
    pub fn receive_m3(mut self, m3: &[u8]) -> Result<Claim, HandshakeError> {
        match self.open(m3)? {
            Opened::Alert(cause) => Ok(Claim::Refused(cause)),
            Opened::Identity(peer) => Ok(Claim::Verified(Box::new(VerifiedInitiator {
                h9: *self.transcript.hash(),
                local: self.local,
                agreed: self.agreed,
                suite: self.suite,
                peer,
                owner: self.owner,
            }))),
            Opened::UnknownIdentity(id_type) => {
                // Its signature cannot be checked, but C3 opened: only the other end of this key
                // exchange can read the alert.
                let traffic = self.agreed.traffic(self.transcript.hash());
                let mut sealer =
                    Sealer::new(self.suite, &traffic.ap_r, Role::Outlet, self.local.pad_to);
                let cause = Cause::UnsupportedIdentity;
                let text = format!("the inlet's identity is of type {id_type:#04x}");
                let error = Error::session(cause, text);
                Err(HandshakeError::told(error, alert(&mut sealer, cause, "")))
            }
        }
    }

    fn open(&mut self, m3: &[u8]) -> Result<Opened> {
        self.owner.check()?;
        let (head, sealed) = parse_m3(m3)?;
        self.transcript.add(&[head]);
        let (transcript, suite, secret) = (&mut self.transcript, self.suite, &self.secret);
        self.owner.trail.time(Step::Verify, || {
            open_auth(transcript, Role::Inlet, suite, secret, sealed)
        })
    }
}

/// Outcome of M3: a proved identity or a refusal.
#[derive(Debug)]
pub enum Claim {
    /// The inlet has proved that it owns its key.
    Verified(Box<VerifiedInitiator>),
    /// The inlet (anybody: `claimed`) refuses us.
    Refused(Cause),
}

/// An inlet that owns its key; whether that key is trusted is the caller's to say.
pub struct VerifiedInitiator {
    local: Arc<Local>,
    agreed: Agreed,
    h9: [u8; 32],
    suite: Suite,
    peer: PublicKey,
    owner: Owner,
}

impl VerifiedInitiator {
    /// Returns the key that the inlet proved; trust is not checked yet.
    pub fn peer(&self) -> PublicKey {
        self.peer
    }

    /// Accepts the inlet. Returns the session and the sealed DESCRIPTOR, to be sent first.
    ///
    /// # Errors
    /// In a forked child, which must stay silent.
    pub fn accept(self, descriptor: &Descriptor) -> Result<(Session, Vec<u8>)> {
        self.owner.check()?;
        let mut session = self.session();
        let mut record = Vec::new();
        session
            .sealer
            .seal_descriptor(&descriptor.to_bytes(), &mut record)?;
        Ok((session, record))
    }

    /// Refuses the inlet. Returns the sealed ALERT to send before closing; nothing in a forked
    /// child, which must stay silent.
    pub fn refuse(self, cause: Cause, text: &str) -> Vec<u8> {
        if !self.owner.is_current() {
            return Vec::new();
        }
        alert(&mut self.session().sealer, cause, text)
    }

    fn session(self) -> Session {
        let trail = Arc::clone(&self.owner.trail);
        trail.time(Step::Schedule, || {
            let (h9, local) = (&self.h9, &self.local);
            self.agreed
                .session(h9, self.suite, self.peer, local, Role::Outlet)
        })
    }
}

// Prints the state's name alone: its fields are secrets.
impl fmt::Debug for WaitM3 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WaitM3")
    }
}

impl fmt::Debug for VerifiedInitiator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VerifiedInitiator({})", self.peer.fingerprint())
    }
}
