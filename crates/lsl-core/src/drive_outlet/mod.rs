//! Drives the sending side: accepts connections, pushes samples and serves the consumers that lag.

mod connection;
mod feed;
mod flush;
pub(crate) mod handshake;
mod link;
pub(crate) mod listen;
#[cfg(all(test, lsl_loom))]
mod loom;
mod numbers;
pub(crate) mod push;
mod refusal;
mod request;
pub(crate) mod retaining;
mod session;
