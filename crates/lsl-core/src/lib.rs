//! Lab Streaming Layer for Rust: an outlet announces a stream on the local network, an inlet finds
//! it, pulls its samples and maps the sender's clock onto its own.
//!
//! ```no_run
//! use std::time::Duration;
//! use lsl_core::{ChannelFormat, Inlet, Outlet, Selector, StreamInfo, resolve_blocking};
//!
//! // One program offers a stream ...
//! let info = StreamInfo::new("MyAmp", "EEG", 8, 250.0, ChannelFormat::Float32, "my-amp-0041")?;
//! let outlet = Outlet::new(info)?;
//! outlet.push(&[0.0_f32; 8])?;
//!
//! // ... another one, on any computer of the network, reads it.
//! let eeg = Selector::property("type", "EEG")?;
//! let found = resolve_blocking(&eeg, 1, Duration::from_secs(5))?;
//! let inlet = Inlet::new(&found[0])?;
//! let mut sample = [0.0_f32; 8];
//! let timestamp = inlet.blocking().pull(&mut sample, Duration::from_secs(1))?;
//! # Ok::<(), lsl_core::Error>(())
//! ```
//!
//! [`Outlet`] and [`Inlet`] are the two roles, [`resolve`] and [`ContinuousResolver`] find streams, a
//! [`Context`] holds the configuration they share. Calls that wait have an async and a blocking form;
//! both work on any thread and inside any executor.
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
pub use net::echo::Echo;
#[cfg(feature = "net")]
pub use net::uid::random as random_uid;
#[cfg(feature = "net")]
pub use outlet::{BlockingOutlet, Outlet, OutletBuilder, Stamps};
#[cfg(feature = "net")]
pub use resolver::{ContinuousResolver, Selector, resolve, resolve_blocking};
#[cfg(feature = "net")]
pub use stats::{ConsumerStats, Encryption, InletStats, OutletStats};

pub use session::fanout::Pushthrough;
pub use session::resolve::ResolverEvent;
pub use time::TimeCorrection;
pub use value::{PullElement, PushElement};

#[cfg(feature = "secure")]
pub use lsl_secure as secure;
#[cfg(feature = "secure")]
pub use net::describe::{descriptor, stream_queries};
#[cfg(feature = "secure")]
pub use net::peers::{KeyChange, PeerHistory};

#[cfg(feature = "net")]
pub use lsl_platform::clock::local_clock;
