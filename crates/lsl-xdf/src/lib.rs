//! Recordings of the Lab Streaming Layer in XDF 1.0 files. A crash while writing costs no more than the last
//! moments. Reading tolerates the files of other programs; files can be repaired, and encrypted at rest.
//!
//! Nothing here opens a network connection or reads a clock: callers pass the time.
//!
//! ```
//! # use lsl_proto as lsl_core;
//! use lsl_core::ChannelFormat;
//! use lsl_xdf::{FileHeader, PipeSink, Recording, StreamHeader, load};
//!
//! # fn main() -> lsl_xdf::Result<()> {
//! // `Recording::create` takes a path and keeps a journal; this one goes into memory.
//! let head = FileHeader::new("2026-11-22T08:31:56+0100");
//! let mut recording = Recording::new(PipeSink(Vec::new()), &head, 0.0)?;
//! let eeg = StreamHeader::new("Amp", "EEG", 2, 250.0, ChannelFormat::Float32)?;
//! let id = recording.add_stream(&eeg, 0.0)?;
//! recording.clock_offset(id, 99.0, 0.5, 0.0)?;
//! recording.samples(id, &[100.0, 100.004], &vec![1.0_f32, 2.0, 3.0, 4.0].into(), 0.5)?;
//! recording.sync()?; // what was appended before is on the disk now
//! recording.finish(1.0)?; // footers
//!
//! let file = recording.into_sink().0;
//! let loaded = load(file.as_slice())?;
//! assert!(loaded.problems.is_empty());
//! assert_eq!(loaded.streams[0].stamps, [100.0, 100.004]);
//!
//! // A crash leaves a file without its end: what is whole is read all the same.
//! let cut = load(&file[..file.len() / 2])?;
//! assert!(cut.streams.iter().all(|stream| stream.footer.is_none()));
//! # Ok(())
//! # }
//! ```
//!
//! * [`Reader`] gives a file of any size event by event; [`Decoder`] does so for bytes in memory.
//! * [`repair`] and [`salvage`] restore files that are unfinished or damaged.
//! * [`integrity`] proves the author of a file, and that it is as it was written.
//! * `at_rest` (feature `age`) encrypts files, recordings or not.
#![forbid(unsafe_code)]

mod clock;
mod error;
mod file_lock;
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
pub use decode::{Batch, DecodeStep, Decoder, Event, Located, Problem, ProblemKind};
pub use error::{Error, ErrorKind, Result};
pub use journal::{JournalState, JournalStream, crc32};
pub use markup::{MAX_XML_BYTES, MAX_XML_DEPTH};
pub use place::{Claimed, claim, is_being_written, journal_path};
pub use reader::{Loaded, LoadedStream, Reader, load};
pub use sink::{FileSink, PipeSink, Sink, SyncJob};
pub use stream::{FileHeader, Gap, MAX_LISTED, StreamFooter, StreamHeader, Tally};
pub use values::{Strings, Values};
pub use writer::{PendingSync, Recording, Synced};
