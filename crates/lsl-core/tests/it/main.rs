//! Integration tests of `lsl-core` over loopback. Nothing here multicasts or leaves the host: every
//! test makes a context of its own with `Config::loopback`.
#![forbid(unsafe_code)]
#![expect(
    clippy::unwrap_used,
    clippy::float_cmp,
    clippy::cast_possible_truncation,
    unreachable_pub,
    reason = "test code: a wrong value fails the test, stamps are compared exactly on purpose"
)]

mod anywhere;
mod discovery;
mod health;
mod hostile;
mod lab;
mod port;
mod public_api;
mod pulling;
mod relay;
mod resume;
mod secure;
mod stamping;
mod streaming;
