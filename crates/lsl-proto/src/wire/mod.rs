//! Formats of the network, byte for byte. Nothing here knows a socket, a clock or a thread;
//! every parser returns a typed value or a typed error and never trusts a length it is told.
#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing
    )
)]

pub mod archive100;
pub mod discovery;
pub mod negotiate;
pub mod request;
pub mod response;
pub mod sample110;
pub mod testpattern;
pub mod timedata;
