//! Our outlet against scripted inlets.
#![expect(
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "samples are numbered, and numbers are small"
)]

mod backpressure;
mod demux;
mod flood;
mod queries;
pub mod reader;
mod refusals;
pub mod revocation;
mod time;
