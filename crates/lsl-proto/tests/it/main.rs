//! Tests of `lsl-proto` as other crates see it.
#![forbid(unsafe_code)]
#![expect(clippy::disallowed_methods, reason = "the corpus is files")]

mod corpus;
