//! `lsl/streaminfo.h`.

/// A stream info that C holds.
#[derive(Debug)]
pub(crate) struct InfoObject {}
