//! The inlet's side of the handshake.

use std::fmt;
use std::sync::Arc;

use super::auth::{ALERT_LEN, AUTH_LEN, Opened, open_auth, seal_alert, seal_auth};
use super::messages::{ParsedM2, m1, m3_head, malformed};
use super::schedule::{Agreed, Ephemeral};
use super::transcript::Transcript;
use super::{HandshakeError, Owner, PREAMBLE, Step, Trail, alert};
use crate::audit::printable;
use crate::kdf::Secret;
use crate::{
    Cause, Descriptor, Error, Local, PublicKey, Random, Record, Result, Role, Sealer, Session,
    Suite,
};

/// Has sent preamble and M1, waits for M2.
pub struct Initiator {
    local: Arc<Local>,
    ephemeral: Ephemeral,
    /// Stands at `h1`, over the preamble and M1.
    transcript: Transcript,
    owner: Owner,
}

impl Initiator {
    /// Starts a handshake. Returns the preamble and M1, to be sent in one write.
    ///
    /// # Errors
    /// If the random generator fails.
    pub fn start(local: Arc<Local>, random: &mut impl Random) -> Result<(Self, Vec<u8>)> {
        Self::start_on(Trail::untimed(Role::Inlet), local, random)
    }

    /// Works as [`start`](Self::start), and notes its steps on `trail`.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_on(
        trail: Arc<Trail>,
        local: Arc<Local>,
        random: &mut impl Random,
    ) -> Result<(Self, Vec<u8>)> {
        let (ephemeral, share) = Ephemeral::with_share(&trail, random)?;
        let mut flight = PREAMBLE.to_vec();
        flight.append(&mut m1(local.suites.list(), &share));
        let mut transcript = Transcript::new();
        transcript.add(&[&flight]);
        let initiator = Self {
            local,
            ephemeral,
            transcript,
            owner: Owner::new(trail),
        };
        Ok((initiator, flight))
    }

    /// Takes M2, whole, with its length field. Checks everything but trust.
    ///
    /// # Errors
    /// Any failure is answered by closing the connection, except an identity of a kind that we do
    /// not know: then there is an M3 to send before closing.
    pub fn receive_m2(self, m2: &[u8]) -> Result<VerifiedResponder, HandshakeError> {
        let (opened, pending) = self.open_m2(m2)?;
        match opened {
            Opened::Identity(peer) => Ok(VerifiedResponder { pending, peer }),
            Opened::UnknownIdentity(id_type) => {
                let cause = Cause::UnsupportedIdentity;
                let text = format!("the outlet's identity is of type {id_type:#04x}");
                let error = Error::session(cause, text);
                Err(HandshakeError::told(error, pending.refuse(cause)))
            }
            Opened::Alert(_) => Err(malformed("an alert in place of the identity").into()),
        }
    }

    fn open_m2(mut self, m2: &[u8]) -> Result<(Opened, Pending)> {
        self.owner.check()?;
        let answer = ParsedM2::parse(m2, self.local.suites.list())?;
        self.transcript.add(&[answer.head]);
        let (trail, ephemeral) = (&self.owner.trail, self.ephemeral);
        let psk = self.local.psk.as_ref();
        let agreed = trail.time(Step::Derive, || ephemeral.agree(answer.share, psk))?;
        let h2 = *self.transcript.hash();
        let secret = agreed.handshake_secret(Role::Outlet, &h2);
        let transcript = &mut self.transcript;
        let opened = trail.time(Step::Verify, || {
            open_auth(
                transcript,
                Role::Outlet,
                answer.suite,
                &secret,
                answer.sealed,
            )
        })?;
        let pending = Pending {
            secret: Box::new(agreed.handshake_secret(Role::Inlet, &h2)),
            local: self.local,
            agreed,
            transcript: self.transcript,
            suite: answer.suite,
            owner: self.owner,
        };
        Ok((opened, pending))
    }
}

/// The outlet has proved that it owns its key; whether that key is trusted is the caller's to say.
pub struct VerifiedResponder {
    pending: Pending,
    peer: PublicKey,
}

impl VerifiedResponder {
    /// Returns the key that the outlet proved; trust is not checked yet.
    pub fn peer(&self) -> PublicKey {
        self.peer
    }

    /// Goes on. Returns M3, to be sent together with the sealed request.
    ///
    /// # Errors
    /// In a forked child, which must stay silent.
    pub fn accept(self) -> Result<(Unconfirmed, Vec<u8>)> {
        let mut pending = self.pending;
        pending.owner.check()?;
        let mut m3 = m3_head(AUTH_LEN);
        pending.transcript.add(&[&m3]);
        let Pending {
            local,
            agreed,
            secret,
            mut transcript,
            suite,
            owner,
        } = pending;
        let mut sealed = owner.trail.time(Step::Sign, || {
            seal_auth(&mut transcript, Role::Inlet, &local.key, suite, &secret)
        });
        m3.append(&mut sealed);
        let session = owner.trail.time(Step::Schedule, || {
            agreed.session(transcript.hash(), suite, self.peer, &local, Role::Inlet)
        });
        Ok((Unconfirmed { session }, m3))
    }

    /// Ends it. Returns the ALERT form of M3, which hides our identity; nothing in a forked child,
    /// which must stay silent.
    pub fn refuse(self, cause: Cause) -> Vec<u8> {
        self.pending.refuse(cause)
    }
}

/// Has opened C2 and owes the outlet exactly one of the two forms of M3.
struct Pending {
    local: Arc<Local>,
    agreed: Agreed,
    /// `hs_i`, whose nonce 0 is for one message only.
    secret: Box<Secret>,
    /// Stands at `h5` until M3 is written.
    transcript: Transcript,
    suite: Suite,
    owner: Owner,
}

impl Pending {
    fn refuse(mut self, cause: Cause) -> Vec<u8> {
        if !self.owner.is_current() {
            return Vec::new();
        }
        let mut m3 = m3_head(ALERT_LEN);
        self.transcript.add(&[&m3]);
        let mut sealed = seal_alert(&self.transcript, cause, self.suite, &self.secret);
        m3.append(&mut sealed);
        m3
    }
}

/// Session that may send, but must not deliver anything before the outlet's DESCRIPTOR.
#[derive(Debug)]
pub struct Unconfirmed {
    session: Session,
}

impl Unconfirmed {
    /// Returns the sending half, to seal the request.
    pub fn sealer(&mut self) -> &mut Sealer {
        &mut self.session.sealer
    }

    /// Takes the first record, whole, with its length field. It must be DESCRIPTOR; comparing it
    /// with the resolved stream is the caller's task (refusal: `session.sealer.seal_alert`).
    ///
    /// # Errors
    /// [`Error::Alert`] if the outlet refuses us, else the session's failure, with an ALERT where
    /// §6.1 has one.
    pub fn receive_descriptor(
        mut self,
        record: &mut [u8],
    ) -> Result<(Session, Descriptor), HandshakeError> {
        match self.open_descriptor(record) {
            Ok(descriptor) => Ok((self.session, descriptor)),
            Err(error @ Error::Session { .. }) if error.cause().is_alerted() => {
                let told = alert(&mut self.session.sealer, error.cause(), "");
                Err(HandshakeError::told(error, told))
            }
            Err(error) => Err(error.into()),
        }
    }

    fn open_descriptor(&mut self, record: &mut [u8]) -> Result<Descriptor> {
        let mut descriptor = None;
        // The time only limits the rate of key updates, none of which may come here.
        self.session
            .opener
            .receive(record, 0.0, |record| match record {
                Record::Descriptor(payload) => {
                    descriptor = Some(Descriptor::parse(payload)?);
                    Ok(())
                }
                Record::Alert(cause, text) => Err(Error::Alert {
                    cause,
                    text: printable(text.as_bytes()),
                }),
                _ => Err(Error::session(
                    Cause::UnexpectedRecord,
                    "more than DESCRIPTOR in the first record",
                )),
            })?;
        descriptor.ok_or_else(|| malformed("not a whole record"))
    }
}

// Prints the state's name alone: its fields are secrets.
impl fmt::Debug for Initiator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Initiator")
    }
}

impl fmt::Debug for VerifiedResponder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VerifiedResponder({})", self.peer.fingerprint())
    }
}
