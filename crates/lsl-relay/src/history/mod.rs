//! What is kept of the past on disk: segments, which are recordings in XDF, with an index beside each. Nothing here
//! opens a file. Spec: relay §9.

mod catalog;
mod index;
mod numbers;
mod plan;
mod scan;
mod segment;

use std::fmt;
use std::sync::Arc;

use lsl_proto::wire::sequence::Generation;
use sha2::{Digest, Sha256};

use crate::book::Uid;

pub use catalog::{Catalog, Found, Part, Range, Segment, first_behind, last_arrived};
pub use index::{ENTRY_BYTES, Entry, parse_index};
pub use numbers::{GenerationId, NUMBERS_BYTES, Numbers};
pub use plan::{Limits, Plan, Stored, plan};
pub use scan::{read_chunk, scan};
pub use segment::SegmentName;

/// One numbering of a stream. In a segment it is a stream of its own.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Numbering {
    /// Uid of the stream's origin.
    pub uid: Uid,
    /// Name of the numbering.
    pub generation: Arc<str>,
}

impl Numbering {
    /// Creates the name of a numbering.
    pub fn new(uid: Uid, generation: &Generation) -> Self {
        let generation = generation.as_str().into();
        Self { uid, generation }
    }

    /// Returns a number that only this one has, as good as surely: by it the plain index of an encrypted segment tells
    /// who knows the name. A float has it, too.
    pub fn mark(&self) -> u64 {
        let hash: [u8; 32] = Sha256::digest(format!("{self:?}")).into();
        let hash = hash.first_chunk().copied().unwrap_or_default();
        u64::from_be_bytes(hash) >> 12
    }

    /// Returns the name of the numbering as peers write it.
    pub fn generation(&self) -> Option<Generation> {
        Generation::parse(self.generation.as_bytes())
    }
}

impl fmt::Debug for Numbering {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.uid, self.generation)
    }
}

/// Element of a stream's header in a segment that has the name of its numbering.
pub const GENERATION_ELEMENT: &str = "lsl_generation";

/// Element with the document of the stream, in hexadecimal digits, if the header does not say the same; empty if it
/// cannot be had from there.
pub const DOCUMENT_ELEMENT: &str = "lsl_document";
