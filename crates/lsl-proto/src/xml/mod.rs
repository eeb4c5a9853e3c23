//! The XML document that describes a stream: an editable tree, a lenient capped parser and a writer
//! that produces liblsl's bytes. Text is bytes: LSL passes any content through unvalidated.
//! Nothing here knows stream infos. Spec: lsl-protocol §2.2, §2.3; c-abi §6.
#![deny(clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod element;
mod parse;
mod tree;
mod write;

#[cfg(test)]
mod tests;

pub use element::{ElementMut, ElementRef};
pub use parse::{Fault, Limits, ParseError, Parsed, parse, parse_with};
pub use tree::{Attribute, Document, NodeId, NodeKind};
