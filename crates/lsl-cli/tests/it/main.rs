//! The binary as users run it, on the loopback interface alone: every test has its own session and
//! ports, so nothing on this machine or its network is touched.
//! What needs keys needs Unix: other systems keep none.
#![forbid(unsafe_code)]
#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot run is a failed test"
)]

mod audit;
#[cfg(unix)]
mod bench;
#[cfg(unix)]
mod bench_others;
mod commands;
mod configuration;
#[cfg(unix)]
mod encrypted;
#[cfg(unix)]
mod keys;
mod lab;
#[cfg(unix)]
mod machine;
mod pages;
mod streams;
mod usage;
