//! Names the one cause for which streams are not found, and what to type.
//!
//! [`collect`] asks the machine and the network, and fills [`observe::Observations`]; [`table::diagnose`] is a
//! pure function from these to findings, each with its [`remedy::Remedy`]; [`report`] prints them. Only `collect`
//! knows a socket, a file, a process or a clock. Spec: doctor §3.1, §3.2, §3.3, §3.5.
#![forbid(unsafe_code)]
#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

pub mod code;
pub mod collect;
pub mod firewall;
pub mod meter;
pub mod observe;
pub mod pair;
pub mod proc;
pub mod redact;
pub mod remedy;
pub mod report;
pub mod table;
pub mod waves;
