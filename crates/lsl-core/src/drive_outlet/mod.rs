//! Drives the sending side: accepts connections, pushes samples and serves the consumers that lag.

mod entrance;
mod feed;
mod flush;
mod link;
pub(crate) mod listen;
mod places;
pub(crate) mod push;
mod refusal;
mod session;
