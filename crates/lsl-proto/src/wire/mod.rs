//! Formats of the network, byte for byte. Nothing here knows a socket, a clock or a thread;
//! every parser returns a typed value or a typed error and never trusts a length it is told.
#![deny(clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

pub mod archive100;
pub mod directory;
pub mod discovery;
pub mod negotiate;
pub mod request;
pub mod response;
pub mod sample110;
pub mod sequence;
pub mod testpattern;
pub mod timedata;
