//! Streams as River keeps them in Redis: what we write its readers read, and what its writers write we read. Spec:
//! relay §12.2.
//!
//! [`Opening`] finds where a stream goes on, [`Writer`] says what is sent, [`Reader`] follows a stream from key to key.
//! They make commands and take replies; nothing here knows a connection or a clock.

mod entry;
mod metadata;
mod opening;
mod pattern;
mod reader;
mod samples;
mod schema;
#[cfg(test)]
mod tests;
mod writer;

pub use entry::{Entry, EntryId, Kind, entries};
pub use metadata::{
    Metadata, described_by, generation, generation_of_lsl, metadata_key, samples_key, stream_name,
    uid, user_json,
};
pub use opening::{Opening, Step, said_of};
pub use pattern::Pattern;
pub use reader::{End, Reader, Seek, Turn};
pub use samples::{MOST_TEXT_BYTES, Packing, USER_CLOCK, USER_UID, USER_XML};
pub use schema::{Field, FieldType, Schema};
pub use writer::{Fault, Writer};

/// Why something in Redis cannot be read, or nothing can be written there.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unreadable(pub String);
