//! The driver of an inlet: the task of its data connection, the pulls that read the socket themselves,
//! and where to connect next.

pub(crate) mod attend;
pub(crate) mod connection;
pub(crate) mod echo;
pub(crate) mod feed_state;
pub(crate) mod full_info;
pub(crate) mod handshake;
pub(crate) mod health;
#[cfg(all(test, lsl_loom))]
mod loom;
pub(crate) mod lost;
pub(crate) mod peers;
pub(crate) mod pull;
mod race;
pub(crate) mod reach;
pub(crate) mod recover;
pub(crate) mod recovery;
pub(crate) mod session;
pub(crate) mod shared;
mod silence;
pub(crate) mod task;
pub(crate) mod turns;
