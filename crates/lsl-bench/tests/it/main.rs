//! `lsl bench` as users run it, on the loopback interface alone: `lsl` is in this program too, and starts it.
//! On Unix: most of them need keys, which no other system keeps yet, signals or modes of files.
#![cfg(unix)]
#![forbid(unsafe_code)]
#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot run is a failed test"
)]

mod bench;
mod bench_others;
mod bench_ways;
#[path = "../../../lsl-cli/tests/it/lab.rs"]
#[expect(dead_code, reason = "the tests of `lsl` need more of it")]
mod lab;
#[path = "../../../lsl-cli/tests/it/machine.rs"]
#[expect(dead_code, reason = "the tests of `lsl` need more of it")]
mod machine;
mod pages;

/// What every command of a lab begins with.
pub(crate) const COMMAND: &[&str] = &[env!("CARGO_BIN_EXE_lsl-bench"), "lsl"];
