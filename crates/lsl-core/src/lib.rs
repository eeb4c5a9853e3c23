//! Lab Streaming Layer for Rust: an outlet announces a stream on the local network, an inlet finds
//! it, pulls its samples and maps the sender's clock onto its own.
//!
//! The protocol lives in modules that take bytes and `now` and return bytes and events (`xml`,
//! `query`, `info`, `config`, `wire`, `buffer`, `time`, `session`). The feature `net` adds the shell
//! that owns sockets, threads and the public handles.
#![forbid(unsafe_code)]

mod error;
mod text;
mod types;

pub mod buffer;
pub mod config;
pub mod info;
pub mod query;
pub mod session;
pub mod time;
pub mod value;
pub mod wire;
pub mod xml;

#[cfg(feature = "net")]
mod context;
#[cfg(feature = "net")]
mod inlet;
#[cfg(feature = "net")]
mod net;
#[cfg(feature = "net")]
mod outlet;
#[cfg(feature = "net")]
mod resolver;
#[cfg(feature = "net")]
mod stats;

pub use error::{Error, ErrorKind, Result};
pub use info::StreamInfo;
pub use types::{
    BufferLength, ByteOrder, ChannelFormat, DEDUCED_TIMESTAMP, FOREVER_SECS, IRREGULAR_RATE,
    ProcessingOptions, Timeout,
};

#[cfg(feature = "net")]
pub use context::Context;
#[cfg(feature = "net")]
pub use inlet::{BlockingInlet, Inlet, InletBuilder};
#[cfg(feature = "net")]
pub use outlet::{BlockingOutlet, Outlet, OutletBuilder, Stamps};
#[cfg(feature = "net")]
pub use resolver::{ContinuousResolver, Selector, resolve, resolve_blocking};
#[cfg(feature = "net")]
pub use stats::{ConsumerStats, InletStats, OutletStats};

pub use session::fanout::Pushthrough;
pub use session::resolve::ResolverEvent;
pub use time::TimeCorrection;
pub use value::{PullElement, PushElement};

#[cfg(feature = "net")]
pub use lsl_platform::clock::local_clock;
