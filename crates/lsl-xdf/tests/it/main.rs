//! Integration tests of `lsl-xdf` through its public interface.
#![forbid(unsafe_code)]
#![expect(
    clippy::unwrap_used,
    clippy::float_cmp,
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_possible_wrap,
    reason = "test code: a wrong value fails the test, stamps are compared exactly on purpose"
)]

mod corpus;
mod damage;
mod faulty;
mod files;
mod hostile;
mod made;
mod roundtrip;
