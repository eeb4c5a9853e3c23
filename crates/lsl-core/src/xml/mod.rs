//! The XML document that describes a stream: an editable tree, a lenient capped parser and a writer
//! that produces liblsl's bytes. Text is bytes: LSL passes any content through unvalidated.
//! Spec: lsl-protocol §2.2, §2.3; c-abi §6.

mod parse;
mod tree;
mod write;

pub use parse::{ParseError, parse};
pub use tree::{Attribute, Document, NodeId, NodeKind};
