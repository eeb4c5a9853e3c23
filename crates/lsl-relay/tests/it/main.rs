//! Tests of `lsl-relay` as other crates see it.
#![forbid(unsafe_code)]

mod corpus;
