//! Synthetic signals: their samples, their pace, and how a receiver judges them.

pub(crate) mod latency;
pub mod pace;
pub(crate) mod pattern;
pub(crate) mod sequence;
