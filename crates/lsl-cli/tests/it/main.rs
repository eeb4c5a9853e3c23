//! The binary as users run it, on the loopback interface alone: every test has its own session and
//! ports, so nothing on this machine or its network is touched.
//! Whole modules are left to Unix that need signals, links or a shell; `cargo xtask wine cli` ends recordings on
//! Windows, by Ctrl-C and without warning.
#![forbid(unsafe_code)]
#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot run is a failed test"
)]

mod at_rest;
#[cfg(target_os = "linux")]
mod attack_advert_flood;
#[cfg(unix)]
mod attack_remote_control;
#[cfg(unix)]
mod attack_symlinks;
mod audit;
mod audit_export;
#[cfg(unix)]
mod benchmarks;
mod commands;
mod configuration;
mod doctor;
mod encrypted;
#[cfg(unix)]
mod homes;
#[cfg(unix)]
mod injection;
mod keys;
mod lab;
#[cfg(unix)]
mod leaks;
mod machine;
mod migrate;
mod pages;
mod play;
#[cfg(unix)]
mod record;
#[cfg(unix)]
mod record_control;
#[cfg(unix)]
mod record_keys;
#[cfg(unix)]
mod record_resume;
#[cfg(unix)]
mod record_safety;
#[cfg(unix)]
mod record_signed;
#[cfg(target_os = "linux")]
mod record_trouble;
mod recordings;
mod relay;
mod streams;
mod usage;
#[cfg(unix)]
mod watch;
mod xdf;

/// What every command of a lab begins with.
pub(crate) const COMMAND: &[&str] = &[PROGRAM];
pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_lsl");
