//! Streams of the network as commands see them: found, described, connected and judged by their encryption.

pub(crate) mod describe;
pub(crate) mod encryption;
pub mod link;
pub(crate) mod not_found;
pub(crate) mod select;
