//! The few facts lsl-core asks of the operating system: the shared clock, waiting on one descriptor,
//! which process this is and whether it was forked, how many descriptors it may have, which network
//! interfaces it has, and a line typed without being seen. Nothing here knows LSL's protocol.
//!
//! Unsafe code only in `fork`, for the one page that the kernel must clear, in `usage` and in `exit`.
#![deny(unsafe_code)]

pub mod append;
pub mod clock;
pub mod descriptors;
pub mod exit;
pub mod fork;
pub mod interfaces;
pub mod interrupt;
pub mod limits;
pub mod poll;
pub mod privilege;
pub mod process;
pub mod socket;
pub mod terminal;
pub mod usage;
