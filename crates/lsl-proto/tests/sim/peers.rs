//! Keys, policies and trust of the hosts, and the answers to the questions of handshakes.

use std::net::IpAddr;
use std::sync::Arc;

use lsl_proto::discovery::advert::OwnSecurity;
use lsl_proto::security::ExpectedIdentity;
use lsl_proto::{Error, StreamInfo};
use lsl_secure::connection::{Answer, Question};
use lsl_secure::policy::{Candidate, Discovery, Way, way_of_inlet};
use lsl_secure::trust::{BUILD_DATE, Peer, TrustList, TrustedRole};
use lsl_secure::{Cause, Local, Policy, PublicKey, Random, Role, SecretKey, Suites};

use crate::dice::Dice;

/// Security of one program.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    pub(crate) policy: Policy,
    pub(crate) local: Arc<Local>,
    pub(crate) trust: Arc<TrustList>,
}

/// Answer to a question, which may come later.
pub(crate) type Late = (f64, Answer);

impl Identity {
    /// Returns the identity of a program without encryption.
    pub(crate) fn off() -> Self {
        Self::new("nobody", Policy::Off, &[])
    }

    /// Returns the identity of `name`, which trusts these peers.
    pub(crate) fn new(name: &str, policy: Policy, trusted: &[&str]) -> Self {
        let peer = |name: &&str| Peer {
            name: (*name).to_owned(),
            key: key_of(name).public(),
            role: TrustedRole::Both,
            not_after: None,
            from: Vec::new(),
            streams: Vec::new(),
        };
        let local = Local {
            key: key_of(name),
            psk: None,
            suites: Suites::Both,
            pad_to: 0,
        };
        Self {
            policy,
            local: Arc::new(local),
            trust: Arc::new(TrustList::from_peers(trusted.iter().map(peer).collect()).unwrap()),
        }
    }

    /// Decides how an inlet connects.
    pub(crate) fn way(&self, info: &StreamInfo, address: &str) -> Way {
        let advert = info.security_advert().map(|advert| advert.policy);
        let candidate = Candidate {
            name: &info.name(),
            address,
            advert: advert.as_deref(),
            known_secure: None,
            plaintext_allowed: false,
        };
        way_of_inlet(self.policy, &candidate, "")
    }

    pub(crate) fn authorise(
        &self,
        key: &PublicKey,
        role: Role,
        remote: IpAddr,
    ) -> Result<String, Cause> {
        let peer = self.trust.decide(key, role, remote, BUILD_DATE)?;
        Ok(peer.name.clone())
    }

    /// Answers a question of a handshake with a peer of this role, now or a little later. `expected` is
    /// the stream that an inlet wants, and the one that was chosen.
    pub(crate) fn answer(
        &self,
        question: Question,
        (role, remote): (Role, IpAddr),
        expected: Option<(&StreamInfo, ExpectedIdentity<'_>)>,
        now: f64,
        dice: &mut Dice,
    ) -> Late {
        let answer = match question {
            Question::Turn => Answer::Turn(Ok(())),
            Question::Work(work) => Answer::Work(work.run(dice)),
            Question::PeerKey(key) => Answer::PeerKey(self.authorise(&key, role, remote)),
            Question::Descriptor(said) => {
                let mismatch = expected.and_then(|(info, chosen)| chosen.compare(info, &said));
                Answer::Descriptor(mismatch.map_or(Ok(()), |_| Err(Cause::DescriptorMismatch)))
            }
        };
        let delay = if dice.happens(0.5) {
            0.0
        } else {
            0.3 * dice.share()
        };
        (now + delay, answer)
    }
}

/// Returns the key of a name.
pub(crate) fn key_of(name: &str) -> SecretKey {
    let mut seed = [0; 32];
    seed[..name.len()].copy_from_slice(name.as_bytes());
    SecretKey::from_seed(&seed)
}

/// Returns what discovery shows of the security of an outlet with this identity.
pub(crate) fn own_security(identity: &Identity) -> OwnSecurity {
    let policy = identity.policy;
    let fingerprint = identity.local.key.public().fingerprint().to_string();
    let advert = vec![
        ("v", "1".to_owned()),
        ("policy", policy.name().to_owned()),
        ("fp", fingerprint),
    ];
    OwnSecurity {
        policy,
        discovery: Discovery::Open,
        advert: if policy == Policy::Off {
            Vec::new()
        } else {
            advert
        },
    }
}

impl Random for Dice {
    fn fill(&mut self, bytes: &mut [u8]) -> lsl_secure::Result<()> {
        for byte in bytes {
            *byte = self.next().to_le_bytes()[7];
        }
        Ok(())
    }
}

/// Puts the error of a session into one of LSL.
pub(crate) fn as_error(error: &lsl_secure::Error) -> Error {
    Error::Security(error.to_string())
}
