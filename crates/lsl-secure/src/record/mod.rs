//! The record layer: two independent halves, in place, no allocation per record. Bytes come and go
//! through the caller; nothing here knows a socket, and the clock is passed in. Spec: LSS/1 §8.
#![deny(clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod kind;
mod open;
mod ratchet;
mod seal;
#[cfg(test)]
mod tests;

pub use open::{Opener, Record};
pub use seal::{Sealer, Totals};

/// Largest value of a record's length field.
pub const MAX_RECORD_LEN: usize = 16_401;

/// Most payload (with padding) of a record.
pub const MAX_PAYLOAD: usize = 16_384;

/// Bytes a record adds to its payload, without padding.
pub const RECORD_OVERHEAD: usize = 19;
