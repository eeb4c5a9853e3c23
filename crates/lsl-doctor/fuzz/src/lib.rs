//! What must hold for every input. One module per target, each with a `check` that panics when
//! something does not hold.
//!
//! The fuzz binaries call these, and `cargo test` calls them on the corpus (`tests/corpus.rs` includes this
//! file), so only the public interface of `lsl_doctor` is used.
#![forbid(unsafe_code)]

pub mod code;
pub mod pair;

/// What a target does with one input.
pub type Check = fn(&[u8]);

/// Every target by name.
pub const TARGETS: [(&str, Check); 2] = [("code", code::check), ("pair", pair::check)];
