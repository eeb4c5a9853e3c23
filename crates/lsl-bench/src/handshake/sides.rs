//! An inlet and an outlet that trust each other, and handshakes between them. Spec: LSS/1 §5.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use lsl_core::secure::audit::{Event, EventKind};
use lsl_core::secure::handshake::{Claim, Initiator, PREAMBLE, Responder};
use lsl_core::secure::{
    Cause, Descriptor, Error, Local, OsRandom, Policy, Result, Role, SecretKey, SessionId, Suite,
    Suites,
};

/// The two sides.
#[derive(Debug)]
pub(super) struct Sides {
    inlet: Arc<Local>,
    outlet: Arc<Local>,
    stream: Descriptor,
}

/// What both agreed on.
#[derive(Debug)]
pub(super) struct Shaken {
    session: SessionId,
    suite: Suite,
}

impl Sides {
    /// With new keys; all handshakes will end with `suite`.
    pub(super) fn new(suite: Suite) -> Result<Self> {
        let local = || -> Result<_> {
            Ok(Arc::new(Local {
                key: SecretKey::generate(&mut OsRandom)?,
                psk: None,
                suites: match suite {
                    Suite::ChaCha20Poly1305 => Suites::ChaCha20Only,
                    Suite::Aes256Gcm => Suites::Both,
                },
                pad_to: 0,
            }))
        };
        Ok(Self {
            inlet: local()?,
            outlet: local()?,
            stream: Descriptor {
                uid: b"0f0f0f0f-1e1e-4d4d-8c8c-b7b7b7b7b7b7".to_vec(),
                name: b"BioSemi".to_vec(),
                stream_type: b"EEG".to_vec(),
                source_id: b"bench".to_vec(),
                hostname: b"amplifier".to_vec(),
                session_id: b"default".to_vec(),
                channel_count: 64,
                nominal_srate: 1000.0,
                channel_format: 1,
                created_at: 1.0,
            },
        })
    }

    /// One handshake from the hello to the stream's description.
    pub(super) fn shake(&self) -> Result<Shaken> {
        let (initiator, hello) = Initiator::start(Arc::clone(&self.inlet), &mut OsRandom)?;
        let m1 = hello.get(PREAMBLE.len()..).unwrap_or_default();
        let responder = Responder::new(Arc::clone(&self.outlet));
        let (wait, m2) = responder.receive_m1(m1, &mut OsRandom)?;
        let verified = initiator.receive_m2(&m2)?;
        if verified.peer() != self.outlet.key.public() {
            return Err(lost());
        }
        let (unconfirmed, m3) = verified.accept()?;
        let Claim::Verified(verified) = wait.receive_m3(&m3)? else {
            return Err(lost());
        };
        if verified.peer() != self.inlet.key.public() {
            return Err(lost());
        }
        let (at_outlet, mut record) = verified.accept(&self.stream)?;
        let (at_inlet, stream) = unconfirmed.receive_descriptor(&mut record)?;
        if at_inlet.id != at_outlet.id || stream != self.stream {
            return Err(lost());
        }
        Ok(Shaken {
            session: at_inlet.id,
            suite: at_inlet.suite,
        })
    }

    /// What inlets and outlets record of a handshake, one event each.
    pub(super) fn events(&self, shaken: &Shaken) -> [Event; EVENTS] {
        let peers = [(Role::Inlet, &self.outlet), (Role::Outlet, &self.inlet)];
        peers.map(|(role, peer)| {
            Event::new(EventKind::HandshakeOk)
                .session(shaken.session)
                .peer_addr(SocketAddr::from((Ipv4Addr::LOCALHOST, 16572)))
                .peer(peer.key.public().fingerprint())
                .peer_name("amplifier")
                .role(role)
                .suite(shaken.suite)
                .policy(Policy::Required)
                .stream_uid(String::from_utf8_lossy(&self.stream.uid))
        })
    }
}

/// The two sides did not come to what they should have.
pub(super) fn lost() -> Error {
    Error::session(Cause::Internal, "the two sides disagree")
}

/// Of each handshake.
pub(super) const EVENTS: usize = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_agree_on_the_suite_that_was_asked_for() {
        for suite in [Suite::ChaCha20Poly1305, Suite::Aes256Gcm] {
            let sides = Sides::new(suite).unwrap();
            let [first, second] = [sides.shake().unwrap(), sides.shake().unwrap()];
            assert_eq!(first.suite, suite);
            assert_ne!(first.session, second.session);
        }
    }
}
