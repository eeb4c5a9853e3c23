//! The binary as users run it, on the loopback interface alone: every test has its own session and
//! ports, so nothing on this machine or its network is touched.
//! On Unix: most of them need keys, which no other system keeps yet, signals or modes of files.
#![cfg(unix)]
#![forbid(unsafe_code)]
#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot run is a failed test"
)]

mod at_rest;
#[cfg(target_os = "linux")]
mod attack_advert_flood;
mod attack_remote_control;
mod attack_symlinks;
mod audit;
mod benchmarks;
mod commands;
mod configuration;
mod encrypted;
mod homes;
mod injection;
mod keys;
mod lab;
mod machine;
mod migrate;
mod pages;
mod play;
mod record;
mod record_control;
mod record_keys;
mod record_resume;
mod record_safety;
mod record_signed;
#[cfg(target_os = "linux")]
mod record_trouble;
mod recordings;
mod streams;
mod usage;
mod xdf;

/// What every command of a lab begins with.
pub(crate) const COMMAND: &[&str] = &[PROGRAM];
pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_lsl");
