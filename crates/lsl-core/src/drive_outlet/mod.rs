//! Drives the sending side: accepts connections, pushes samples and serves the consumers that lag.

pub(crate) mod connection;
mod feed;
mod flush;
mod handshake;
mod link;
pub(crate) mod listen;
mod places;
pub(crate) mod push;
mod refusal;
mod request;
mod session;
