//! Engines keep samples outside the relay, for many readers. What every engine does is the trait [`Engine`]; when it
//! is asked for what says a [`spool::Lane`]. Spec: relay §12.

mod address;
mod error;
pub mod jetstream;
pub mod packed;
pub mod resp;
pub mod river;
pub mod spool;
pub mod trim;

use std::future::Future;
use std::sync::Arc;

use lsl_proto::StreamInfo;
use lsl_proto::outlet::frames::Frames;
use lsl_proto::wire::sequence::Generation;

pub use address::{Address, Scheme};
pub use error::{EngineError, ErrorKind, Result};

/// A stream as an engine knows it.
#[derive(Debug, Clone)]
pub struct Meta {
    /// Numbering of its samples, which names it.
    pub generation: Generation,
    /// Description of its origin.
    pub info: Arc<StreamInfo>,
}

/// What an engine says of a stream that is to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opened {
    /// This relay writes it, from this sequence number on; what comes before is stored, or can be no more. `None`: it
    /// has nothing of the stream, which may begin anywhere.
    Ours(Option<u64>),
    /// Another relay writes it.
    Theirs,
}

/// Keeps samples. Nothing of a stream is asked for at a time but one thing; after an error, [`open`](Self::open) comes
/// first. Spec: relay §12.
pub trait Engine: Send + Sync + 'static {
    /// Begins or goes on to write a stream, unless another relay does.
    ///
    /// # Errors
    /// [`EngineError`]
    fn open(&self, meta: &Meta) -> impl Future<Output = Result<Opened>> + Send;

    /// Appends batches, each of which begins where the one before ends: all or none of them. Repeated, it stores nothing
    /// twice. Returns how many samples it has no place for.
    ///
    /// # Errors
    /// [`EngineError`]: they may be stored all the same, as [`open`](Self::open) says.
    fn append(
        &self,
        meta: &Meta,
        batches: &[Arc<Frames>],
    ) -> impl Future<Output = Result<u64>> + Send;

    /// Whether what [`open`](Self::open) said of a stream still holds, as far as is known without asking.
    fn holds(&self, meta: &Meta) -> bool;

    /// Whether [`read`](Self::read) and [`list`](Self::list) find what is written.
    const READS: bool = true;

    /// Returns batches from a sequence number on, the first of which may begin before it: about `most` bytes, at least
    /// one batch, or none if there is none.
    ///
    /// # Errors
    /// [`EngineError`]
    fn read(
        &self,
        meta: &Meta,
        from: u64,
        most: usize,
    ) -> impl Future<Output = Result<Vec<Frames>>> + Send;

    /// Returns the streams that it has, those included that have ended.
    ///
    /// # Errors
    /// [`EngineError`]
    fn list(&self) -> impl Future<Output = Result<Vec<Stored>>> + Send;

    /// Notes that this relay writes a stream no more, and before which sequence number it ended, if it did.
    ///
    /// # Errors
    /// [`EngineError`]
    fn finish(&self, meta: &Meta, end: Option<u64>) -> impl Future<Output = Result<()>> + Send;

    /// Keeps what is written by this relay its own, and removes what is too old or too much. To be called every
    /// [`TEND_SECS`]; `now` in seconds.
    ///
    /// # Errors
    /// [`EngineError`]
    fn tend(&self, now: f64) -> impl Future<Output = Result<()>> + Send;
}

/// A stream that an engine has.
#[derive(Debug, Clone)]
pub struct Stored {
    /// What is known of it.
    pub meta: Meta,
    /// Sequence number after its last sample, once it has ended.
    pub end: Option<u64>,
    /// When it was last written, about, in seconds since 1970.
    pub written: Option<f64>,
}

/// Time in seconds between calls of [`Engine::tend`].
pub const TEND_SECS: f64 = 3.0;
