//! What the criterion benches, the instruction counts and `lsl bench` all measure of encryption: the ciphers
//! alone, and handshakes in memory.
#![forbid(unsafe_code)]

pub mod cipher;
pub mod handshake;
