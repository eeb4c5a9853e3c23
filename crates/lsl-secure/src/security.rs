//! Everything a program needs to decide about sessions, in one place: own key, trust list, policy,
//! audit, live sessions. Read once per process; only the trust file is watched. Spec: LSS/1 §3.2, §11.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use crate::admission::Admission;
use crate::audit::Audit;
use crate::config::Settings;
use crate::policy::{Advert, Discovery, Policy, Way};
use crate::trust::TrustList;
use crate::{Cause, Descriptor, Local, PublicKey, Result, Role, SecretKey};

/// The security of one process (or of one test). Safe to use from any thread.
#[derive(Debug)]
pub struct Security {
    _todo: (),
}

impl Security {
    /// No configuration: plaintext, exactly as before. `searched` are the places looked at.
    pub fn off(_searched: Vec<PathBuf>) -> Self {
        unimplemented!()
    }

    /// From the usual places (LSS/1 §11).
    ///
    /// # Errors
    /// [`Error::File`](crate::Error::File): nothing may stream then.
    pub fn search() -> Result<Self> {
        unimplemented!()
    }

    /// From a file that the program names.
    ///
    /// # Errors
    /// As [`search`](Self::search).
    pub fn from_file(_file: &Path) -> Result<Self> {
        unimplemented!()
    }

    /// From what a program made itself, without files: for tests and programs with their own key
    /// store. Files named by `settings` are not read, except `audit_file`.
    ///
    /// # Errors
    /// If the audit file cannot be opened.
    pub fn from_parts(_settings: Settings, _key: SecretKey, _trust: TrustList) -> Result<Self> {
        unimplemented!()
    }

    /// The policy that holds today: `migrate` becomes `required` after its last day.
    pub fn policy(&self) -> Policy {
        unimplemented!()
    }

    /// What this side brings into handshakes; `None` with [`Security::off`] and policy `off` without a key.
    pub fn local(&self) -> Option<&Arc<Local>> {
        unimplemented!()
    }

    /// The settings; `None` with [`Security::off`].
    pub fn settings(&self) -> Option<&Settings> {
        unimplemented!()
    }

    /// The file in use.
    pub fn file(&self) -> Option<&Path> {
        unimplemented!()
    }

    /// How much discovery shows.
    pub fn discovery(&self) -> Discovery {
        unimplemented!()
    }

    /// May the owner of `key` be `role` in a connection between these addresses? Returns its name.
    /// Includes the rules for our own key. IPv4-mapped addresses are IPv4.
    ///
    /// # Errors
    /// [`Cause::NotAuthorised`], [`Cause::RoleNotAllowed`], [`Cause::Expired`], [`Cause::SelfKey`].
    pub fn authorise(
        &self,
        _key: &PublicKey,
        _role: Role,
        _remote: IpAddr,
        _local: IpAddr,
    ) -> Result<String, Cause> {
        unimplemented!()
    }

    /// How an inlet connects with an outlet. All byte fields as resolved.
    pub fn way_of_inlet(
        &self,
        _name: &[u8],
        _stream_type: &[u8],
        _source_id: &[u8],
        _address: &str,
        _advert: Option<&Advert>,
    ) -> Way {
        unimplemented!()
    }

    /// A DESCRIPTOR of `peer` was accepted by an inlet: remembers it in `known_secure` under `migrate`.
    pub fn note_secure(&self, _descriptor: &Descriptor, _peer: &PublicKey) {
        unimplemented!()
    }

    /// The attributes of our outlets' advert in order (`v policy fp fp_next mode`), or `None` if they
    /// announce none. Spec: LSS/1 §7.1, §7.3.
    pub fn advert(&self) -> Option<Vec<(&'static str, String)>> {
        unimplemented!()
    }

    /// E5 of §4.4: what to do when the outlet of `peer` does not trust this device.
    pub fn not_trusted_text(&self, _peer: &PublicKey) -> String {
        unimplemented!()
    }

    /// Where events go.
    pub fn audit(&self) -> &Audit {
        unimplemented!()
    }

    /// The limits on handshakes.
    pub fn admission(&self) -> &Mutex<Admission> {
        unimplemented!()
    }

    /// The trust list as it is now.
    pub fn trust(&self) -> Arc<TrustList> {
        unimplemented!()
    }

    /// Registers a live session: `end` is called (from [`refresh`](Self::refresh), without any lock held)
    /// when its peer is no longer trusted. At the limit per peer key and stream: `Cause::Busy`.
    ///
    /// # Errors
    /// [`Cause::Busy`]; [`Cause::NotAuthorised`] if trust went away since the handshake's check.
    pub fn enrol(
        self: &Arc<Self>,
        _session: Live,
        _end: impl Fn(Cause) + Send + Sync + 'static,
    ) -> Result<Enrolled, Cause> {
        unimplemented!()
    }

    /// Looks at the trust file and, if it changed, reloads it and ends the sessions that no longer
    /// fit. To be called every 2 s while there are sessions ([`has_live_sessions`](Self::has_live_sessions))
    /// and before each handshake. Returns true when the list changed. Blocks for a `stat`.
    pub fn refresh(&self) -> bool {
        unimplemented!()
    }

    /// Whether somebody is enrolled.
    pub fn has_live_sessions(&self) -> bool {
        unimplemented!()
    }
}

/// A session to be watched.
#[derive(Debug, Clone)]
pub struct Live {
    /// Whose.
    pub peer: PublicKey,
    /// What the **peer** is.
    pub role: Role,
    /// Where it is.
    pub remote: IpAddr,
    /// Our end.
    pub local: IpAddr,
    /// Which stream.
    pub stream_uid: Vec<u8>,
}

/// Keeps a session enrolled until dropped.
#[derive(Debug)]
pub struct Enrolled {
    _todo: (),
}
