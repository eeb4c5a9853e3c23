//! Handshakes in memory between an inlet and an outlet that trust each other. Spec: LSS/1 §5.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use lsl_core::secure::audit::{Event, EventKind};
use lsl_core::secure::handshake::{Claim, Initiator, PREAMBLE, Responder, Unconfirmed, WaitM3};
use lsl_core::secure::{
    Audit, Cause, Descriptor, Error, Local, OsRandom, Policy, Random, Result, Role, SecretKey,
    Session, Suites,
};

/// An inlet, an outlet, and the stream between them.
#[derive(Debug)]
pub struct Peers {
    /// The initiator.
    pub inlet: Arc<Local>,
    /// The responder.
    pub outlet: Arc<Local>,
    /// What the responder describes at the end.
    pub stream: Descriptor,
}

impl Peers {
    /// Makes peers with the same keys each time.
    pub fn new(suites: Suites) -> Self {
        let local = |seed| Local {
            key: SecretKey::from_seed(&[seed; 32]),
            psk: None,
            suites,
            pad_to: 0,
        };
        Self {
            inlet: Arc::new(local(3)),
            outlet: Arc::new(local(4)),
            stream: Descriptor {
                uid: b"33333333-3333-4333-8333-333333333333".to_vec(),
                name: b"BioSemi".to_vec(),
                stream_type: b"EEG".to_vec(),
                source_id: b"src-42".to_vec(),
                hostname: b"lab-pc".to_vec(),
                session_id: b"default".to_vec(),
                channel_count: 64,
                nominal_srate: 1000.0,
                channel_format: 1,
                created_at: 12.5,
            },
        }
    }

    /// Shakes hands up to the third message, which the outlet has yet to receive.
    ///
    /// # Errors
    /// A step fails, or the inlet sees another outlet.
    pub fn claim(
        &self,
        inlet: &mut impl Random,
        outlet: &mut impl Random,
    ) -> Result<(WaitM3, Unconfirmed, Vec<u8>)> {
        let (initiator, flight) = Initiator::start(Arc::clone(&self.inlet), inlet)?;
        let first = flight.get(PREAMBLE.len()..).unwrap_or_default();
        let (wait, second) = Responder::new(Arc::clone(&self.outlet)).receive_m1(first, outlet)?;
        let verified = initiator.receive_m2(&second)?;
        if verified.peer() != self.outlet.key.public() {
            return Err(disagreement());
        }
        let (unconfirmed, third) = verified.accept()?;
        Ok((wait, unconfirmed, third))
    }

    /// Shakes hands from the hello to the stream's description: the inlet's and the outlet's end of a new
    /// session.
    ///
    /// # Errors
    /// A step fails, or the two do not agree on everything.
    pub fn shake_hands(
        &self,
        inlet: &mut impl Random,
        outlet: &mut impl Random,
    ) -> Result<(Session, Session)> {
        let (wait, unconfirmed, third) = self.claim(inlet, outlet)?;
        let Claim::Verified(verified) = wait.receive_m3(&third)? else {
            return Err(disagreement());
        };
        if verified.peer() != self.inlet.key.public() {
            return Err(disagreement());
        }
        let (at_outlet, mut record) = verified.accept(&self.stream)?;
        let (at_inlet, stream) = unconfirmed.receive_descriptor(&mut record)?;
        if at_inlet.id != at_outlet.id || stream != self.stream {
            return Err(disagreement());
        }
        Ok((at_inlet, at_outlet))
    }

    /// Shakes hands with randomness of the operating system.
    ///
    /// # Errors
    /// As [`shake_hands`](Self::shake_hands).
    pub fn session(&self) -> Result<(Session, Session)> {
        self.shake_hands(&mut OsRandom, &mut OsRandom)
    }

    /// Records a handshake on behalf of both sides, one event each.
    pub fn record(&self, audit: &Audit, session: &Session) {
        for (role, peer) in [(Role::Inlet, &self.outlet), (Role::Outlet, &self.inlet)] {
            audit.record_with(EventKind::HandshakeOk, |kind| {
                Event::new(kind)
                    .session(session.id)
                    .peer_addr(SocketAddr::from((Ipv4Addr::LOCALHOST, 16572)))
                    .peer(peer.key.public().fingerprint())
                    .peer_name("amplifier")
                    .role(role)
                    .suite(session.suite)
                    .policy(Policy::Required)
                    .stream_uid(String::from_utf8_lossy(&self.stream.uid))
            });
        }
    }
}

/// The error of a handshake whose sides did not come to what they should have.
pub fn disagreement() -> Error {
    Error::session(Cause::Internal, "the two sides disagree")
}

#[cfg(test)]
mod tests {
    use lsl_core::secure::Suite;

    use super::*;

    #[test]
    fn both_sides_agree_on_the_suite_that_was_asked_for() {
        for (suites, suite) in [
            (Suites::ChaCha20Only, Suite::ChaCha20Poly1305),
            (Suites::of_this_cpu(), Suites::of_this_cpu().list()[0]),
        ] {
            let peers = Peers::new(suites);
            let [first, second] = [peers.session().unwrap(), peers.session().unwrap()];
            assert_eq!(first.0.suite, suite);
            assert_ne!(first.0.id, second.0.id);
        }
    }
}
