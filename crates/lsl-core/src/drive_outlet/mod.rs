//! Drives the sending side: accepts connections, pushes samples and serves the consumers that lag.

pub(crate) mod entrance;
pub(crate) mod link;
pub(crate) mod listen;
mod places;
pub(crate) mod push;
pub(crate) mod refusal;
mod tunnel;
