//! Who may talk with us: the trust file and the decision about one peer. Spec: LSS/1 §3.2.

use std::net::IpAddr;
use std::path::Path;

use crate::keys::Role;
use crate::{Cause, PublicKey, Result};

/// Which roles a peer may play.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TrustedRole {
    /// We may read its streams.
    Outlet,
    /// It may read our streams.
    Inlet,
    /// Both.
    #[default]
    Both,
}

/// One `[[peer]]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// A label; identity is the key.
    pub name: String,
    /// Its public key.
    pub key: PublicKey,
    /// What it may be.
    pub role: TrustedRole,
    /// Last day (UTC) on which it may connect.
    pub not_after: Option<Date>,
    /// Networks it must come from; empty: anywhere.
    pub from: Vec<Network>,
}

/// A day in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Date {
    _todo: (),
}

/// An address prefix such as `10.1.0.0/16`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    _todo: (),
}

/// All trusted peers. Immutable; a changed file is a new list.
#[derive(Debug, Clone, Default)]
pub struct TrustList {
    _todo: (),
}

impl TrustList {
    /// # Errors
    /// [`Error::File`](crate::Error::File) with line and remedy: syntax, unknown fields, weak or repeated keys.
    pub fn parse(_text: &str, _path: &Path) -> Result<Self> {
        unimplemented!()
    }

    /// A list made by a program.
    ///
    /// # Errors
    /// If a key is there twice.
    pub fn from_peers(_peers: Vec<Peer>) -> Result<Self> {
        unimplemented!()
    }

    /// In the order of the file.
    pub fn peers(&self) -> &[Peer] {
        unimplemented!()
    }

    /// The entry of a key.
    pub fn find(&self, _key: &PublicKey) -> Option<&Peer> {
        unimplemented!()
    }

    /// As a `trusted_peers.toml`.
    pub fn to_toml(&self) -> String {
        unimplemented!()
    }

    /// May the owner of `key`, coming from `remote`, be `role` today? IPv4-mapped addresses are IPv4.
    ///
    /// # Errors
    /// [`Cause::NotAuthorised`], [`Cause::RoleNotAllowed`], [`Cause::Expired`].
    pub fn decide(
        &self,
        _key: &PublicKey,
        _role: Role,
        _remote: IpAddr,
        _today: Date,
    ) -> Result<&Peer, Cause> {
        unimplemented!()
    }
}
