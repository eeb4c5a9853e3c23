//! Our outlet against scripted inlets.

mod backpressure;
mod demux;
mod flood;
mod queries;
mod reader;
mod refusals;
mod revocation;
mod time;
