//! Recordings of the Lab Streaming Layer: XDF 1.0 files, written so that a crash costs no more than the
//! last moments, read with tolerance for what other programs write, repaired, and encrypted at rest.
//!
//! Nothing here opens a network connection.
#![forbid(unsafe_code)]

mod clock;
mod error;
mod hold;
mod journal;
mod markup;
mod place;
mod reader;
mod sink;
mod stream;
mod values;
mod writer;

#[cfg(feature = "age")]
pub mod at_rest;
pub mod chunk;
pub mod decode;
pub mod encode;
pub mod integrity;
pub mod repair;
pub mod salvage;

pub use clock::{Correction, Cursor};
pub use decode::{Batch, Decoder, Event, Located, Problem, ProblemKind};
pub use error::{Error, ErrorKind, Result};
pub use journal::{JournalState, JournalStream};
pub use markup::{MAX_XML_BYTES, MAX_XML_DEPTH};
pub use place::{Claimed, claim, journal_path};
pub use reader::{Loaded, LoadedStream, Reader, load};
pub use sink::{FileSink, PipeSink, Sink, SyncJob};
pub use stream::{FileHeader, Gap, MAX_LISTED, StreamFooter, StreamHeader, Tally};
pub use values::{Strings, Values};
pub use writer::{PendingSync, Recording, Synced};
