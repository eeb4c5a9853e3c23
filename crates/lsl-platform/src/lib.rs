//! The few facts lsl-core asks of the operating system: the shared clock, waiting on one descriptor,
//! which process this is, and which network interfaces it has. Nothing here knows LSL's protocol.
#![forbid(unsafe_code)]

pub mod append;
pub mod clock;
pub mod interfaces;
pub mod poll;
pub mod privilege;
pub mod process;
pub mod socket;
