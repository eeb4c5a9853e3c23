//! Integration tests of `lsl-core`: one binary, one module per subject.

#[cfg(test)]
mod corpus;
