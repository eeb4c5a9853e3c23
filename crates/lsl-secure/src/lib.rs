//! LSL Secure Session (LSS/1): mutually authenticated, encrypted sessions around the TCP connections
//! of the Lab Streaming Layer.
//!
//! The core is sans-IO: handshake and record layer take bytes and return bytes; randomness, time and
//! trust decisions are passed in. [`Connection`] is both, for either role of one connection. Nothing
//! here knows what an LSL sample is. Not independently audited.
#![forbid(unsafe_code)]

pub mod admission;
pub mod audit;
pub mod config;
pub mod connection;
mod descriptor;
mod error;
pub mod files;
pub mod handshake;
mod kdf;
pub mod keyfile;
mod keys;
mod known;
mod limits;
pub mod policy;
pub mod record;
mod security;
mod session;
mod suite;
#[cfg(test)]
mod testing;
mod time;
pub mod trust;

pub use audit::Audit;
pub use connection::{Connection, SessionInfo};
pub use descriptor::Descriptor;
pub use error::{Cause, Error, Result};
pub use keys::{Fingerprint, Local, Psk, PublicKey, Role, SecretKey};
pub use limits::{Host, TokenBucket};
pub use policy::Policy;
pub use record::{Opener, Record, Sealer, Totals};
pub use security::{Security, SessionEntry, SessionGuard, trust_changes};
pub use session::{Exporter, Session, SessionId};
pub use suite::{AeadKey, OsRandom, Random, Suite, Suites};
pub use time::{
    TIME_PACKET_LEN, TIME_PREFIX, TimeKeys, TimeProber, TimeReply, TimeResponder, session_prefix,
};
