//! `lsl/outlet.h`.

/// An outlet that C holds.
#[derive(Debug)]
pub(crate) struct OutletObject {}
