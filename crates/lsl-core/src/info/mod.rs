//! Stub awaiting its author.
/// What a stream is.
#[derive(Debug, Clone)]
pub struct StreamInfo {}
