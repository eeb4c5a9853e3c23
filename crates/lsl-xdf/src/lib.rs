//! Recordings of the Lab Streaming Layer: XDF 1.0 files, written so that a crash costs no more than the
//! last moments, read with tolerance for what other programs write, repaired, and encrypted at rest.
//!
//! Nothing here opens a network connection.
#![forbid(unsafe_code)]

#[cfg(feature = "age")]
pub mod at_rest;
