//! `lsl/inlet.h`.

/// An inlet that C holds.
#[derive(Debug)]
pub(crate) struct InletObject {}
