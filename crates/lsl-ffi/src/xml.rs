//! `lsl/xml.h`.

/// A node of an info's document that C holds.
#[derive(Debug)]
pub(crate) struct NodeObject {}
