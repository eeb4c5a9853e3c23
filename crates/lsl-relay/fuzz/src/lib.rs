//! What must hold for every input. One module per target, each with a `check` that panics when
//! something does not hold.
//!
//! The fuzz binaries call these, and `cargo test` calls them on the corpus (`tests/it/corpus.rs`
//! includes this file), so only the public interface of `lsl_relay` is used. The first byte of an input
//! says how long the pieces are that it arrives in.
#![forbid(unsafe_code)]

pub mod config;
pub mod frames;
pub mod hello;
pub mod http;
pub mod replies;
pub mod river;
pub mod segment;

/// What a target does with one input.
pub type Check = fn(&[u8]);

/// Every target by name.
pub const TARGETS: [(&str, Check); 7] = [
    ("config", config::check),
    ("frames", frames::check),
    ("hello", hello::check),
    ("http", http::check),
    ("replies", replies::check),
    ("river", river::check),
    ("segment", segment::check),
];

/// Splits off the byte that says how long the pieces are: 0 for one piece.
fn split(input: &[u8]) -> (usize, &[u8]) {
    let (length, rest) = input.split_first().unwrap_or((&0, input));
    let whole = rest.len().max(1);
    let length = if *length == 0 {
        whole
    } else {
        usize::from(*length)
    };
    (length, rest)
}
