//! Stub awaiting its author.
