//! Integration tests of `lsl-secure`: in memory, through the public interface.
#![forbid(unsafe_code)]

mod connection;
mod corpus;
