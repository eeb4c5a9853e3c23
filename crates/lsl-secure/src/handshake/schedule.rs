//! Derives every key of a session from the two ephemerals. Spec: LSS/1 §5.6.

use x25519_dalek::{PublicKey as Share, SharedSecret, StaticSecret};
use zeroize::Zeroizing;

use super::{Step, Trail};
use crate::kdf::{Secret, expand_label, expand_label_into, extract};
use crate::{
    Cause, Error, Exporter, Local, Opener, Psk, PublicKey, Random, Result, Role, Sealer, Session,
    SessionId, Suite, TimeKeys,
};

// Secrets of a handshake are boxed: its states are moved about, and only the last copy of what lies in
// them would be erased.

/// One side's key share of one connection. Erased on drop.
pub(super) struct Ephemeral(Box<StaticSecret>);

impl Ephemeral {
    /// Generates a fresh key for one handshake.
    pub(super) fn generate(random: &mut impl Random) -> Result<Self> {
        let mut bytes = Zeroizing::new([0; 32]);
        random.fill(&mut *bytes)?;
        Ok(Self(Box::new(StaticSecret::from(*bytes))))
    }

    /// Returns the public share for the peer.
    pub(super) fn share(&self) -> [u8; 32] {
        Share::from(&*self.0).to_bytes()
    }

    /// Generates a key with its public share, as a step of a handshake.
    pub(super) fn with_share(trail: &Trail, random: &mut impl Random) -> Result<(Self, [u8; 32])> {
        trail.time(Step::Generate, || {
            let ephemeral = Self::generate(random)?;
            let share = ephemeral.share();
            Ok((ephemeral, share))
        })
    }

    /// The secret of both shares, consuming this one.
    pub(super) fn agree(self, peer: &[u8; 32], psk: Option<&Psk>) -> Result<Agreed> {
        let dh = self.shared(peer)?;
        let salt = psk.map_or(&[0; 32], Psk::as_bytes);
        let mut prk = Box::new(Secret::default());
        prk.copy_from_slice(&*extract(salt, dh.as_bytes()));
        Ok(Agreed(prk))
    }

    /// `dh`, which is never all zero.
    pub(super) fn shared(self, peer: &[u8; 32]) -> Result<SharedSecret> {
        let dh = self.0.diffie_hellman(&Share::from(*peer));
        // A share of small order makes the secret known to everybody; the test takes constant time.
        if dh.was_contributory() {
            return Ok(dh);
        }
        Err(Error::session(
            Cause::BadKeyShare,
            "the key exchange gave the all-zero secret",
        ))
    }
}

/// `prk`, from which all secrets of the session derive.
pub(super) struct Agreed(pub(super) Box<Secret>);

impl Agreed {
    /// Derives `hs_r` (outlet) or `hs_i` (inlet) with `h2`: the secret that seals the identity of
    /// that side.
    pub(super) fn handshake_secret(&self, sender: Role, h2: &[u8; 32]) -> Secret {
        let label: &[u8] = match sender {
            Role::Outlet => b"hs r",
            Role::Inlet => b"hs i",
        };
        expand_label(&self.0, label, h2)
    }

    /// Derives the whole session with `h9`. Consumes `prk`.
    pub(super) fn session(
        self,
        h9: &[u8; 32],
        suite: Suite,
        peer: PublicKey,
        local: &Local,
        role: Role,
    ) -> Session {
        let secrets = self.traffic(h9);
        let (own, theirs) = match role {
            Role::Inlet => (&secrets.ap_i, &secrets.ap_r),
            Role::Outlet => (&secrets.ap_r, &secrets.ap_i),
        };
        Session {
            id: secrets.id,
            peer,
            suite,
            sealer: Sealer::new(suite, own, role, local.pad_to),
            opener: Opener::new(suite, theirs, role),
            time: TimeKeys::new(secrets.id, secrets.time_i, secrets.time_r),
            exporter: Exporter::new(secrets.exporter),
        }
    }

    /// Derives the secrets below `master`, and the session's identifier.
    pub(super) fn traffic(self, h9: &[u8; 32]) -> Traffic {
        let master = expand_label(&self.0, b"master", h9);
        let mut id = SessionId([0; 16]);
        expand_label_into(&master, b"sid", h9, &mut id.0);
        Traffic {
            ap_i: expand_label(&master, b"ap i", h9),
            ap_r: expand_label(&master, b"ap r", h9),
            time_i: expand_label(&master, b"time i", h9),
            time_r: expand_label(&master, b"time r", h9),
            exporter: expand_label(&master, b"exp", h9),
            id,
        }
    }
}

/// Secrets and identifier that outlive the handshake.
pub(super) struct Traffic {
    pub(super) ap_i: Secret,
    pub(super) ap_r: Secret,
    pub(super) time_i: Secret,
    pub(super) time_r: Secret,
    pub(super) exporter: Secret,
    pub(super) id: SessionId,
}
