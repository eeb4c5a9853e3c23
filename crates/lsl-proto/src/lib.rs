//! The protocol of the Lab Streaming Layer, without input and output: codecs and state machines that take
//! bytes and `now` and return bytes and events. Nothing here knows a socket, a thread or a clock.
//!
//! `lsl-core` drives it, and exports what programs need. Everything is public for the crates of this
//! workspace; nothing is promised to others.
#![forbid(unsafe_code)]
#![cfg_attr(
    test,
    allow(
        clippy::disallowed_methods,
        clippy::disallowed_types,
        reason = "tests read vectors and have threads"
    )
)]

mod error;
mod text;
mod types;

pub mod clock;
pub mod config;
pub mod describe;
pub mod discovery;
pub mod info;
pub mod inlet;
pub mod limits;
pub mod outlet;
pub mod query;
pub mod security;
pub mod transport;
pub mod value;
pub mod wire;
pub mod xml;

pub use error::{Error, ErrorKind, Result};
pub use info::StreamInfo;
pub use types::{
    BufferLength, ByteOrder, ChannelFormat, DEDUCED_TIMESTAMP, FOREVER_SECS, IRREGULAR_RATE,
    ProcessingOptions, Timeout,
};
