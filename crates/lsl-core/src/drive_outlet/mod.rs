//! Drives the sending side: accepts connections, pushes samples and serves the consumers that lag.

pub(crate) mod connection;
pub(crate) mod duplex;
mod feed;
mod flush;
pub(crate) mod handshake;
pub(crate) mod identity;
pub(crate) mod link;
pub(crate) mod listen;
#[cfg(all(test, lsl_loom))]
mod loom;
mod numbers;
pub(crate) mod origin;
pub(crate) mod past;
pub(crate) mod push;
pub(crate) mod refusal;
mod request;
pub(crate) mod retaining;
mod session;
pub(crate) mod shown;
pub(crate) mod tap;
