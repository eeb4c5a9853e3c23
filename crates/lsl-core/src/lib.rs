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
//! The protocol lives in `lsl-proto`, which takes bytes and `now` and returns bytes and events. Here
//! are sockets, threads and the handles.
#![forbid(unsafe_code)]

mod byte_stream;
mod config_files;
mod context;
mod drive_clock;
mod drive_discovery;
mod drive_inlet;
mod drive_outlet;
mod inlet;
mod net;
mod outlet;
mod port;
mod resolver;
mod stats;

pub use lsl_platform::clock::local_clock;
pub use lsl_proto::clock::{ClockSuspect, TimeCorrection};
pub use lsl_proto::discovery::search::ResolverEvent;
pub use lsl_proto::inlet::LostSamples;
pub use lsl_proto::inlet::recovery::InletState;
pub use lsl_proto::outlet::retention::Retain;
pub use lsl_proto::outlet::{Pushthrough, Stamps};
pub use lsl_proto::value::{PullElement, PushElement};
pub use lsl_proto::wire::sequence::{GapReason, Generation, Position};
pub use lsl_proto::{
    BufferLength, ChannelFormat, DEDUCED_TIMESTAMP, Error, ErrorKind, FOREVER_SECS, IRREGULAR_RATE,
    ProcessingOptions, Result, StreamInfo, Timeout,
};
pub use lsl_secure as secure;

pub use context::Context;
pub use drive_inlet::echo::Echo;
pub use drive_inlet::health::Health;
pub use drive_inlet::peers::{KeyChange, PeerHistory};
pub use inlet::history::{History, Retained};
pub use inlet::{BlockingInlet, Inlet, InletBuilder};
pub use net::uid::random as random_uid;
pub use outlet::{BlockingOutlet, Outlet, OutletBuilder};
pub use resolver::{ContinuousResolver, Resolving, Selector, resolve, resolve_blocking};
pub use stats::{ConsumerStats, DiscoveryStats, Encryption, InletStats, OutletStats};

/// What `lsl-relay` needs, and `lsl-doctor` of relays. Unstable: for these crates alone, and it may change with any
/// version.
///
/// A stream that passes through a relay is an [`Outlet`] made by `OutletBuilder::relayed`: it has uid, numbering and
/// host name of its origin, is not announced and has no port of its own. It is fed by `Outlet::push_run` and
/// `Outlet::lose`. A `Port` serves many of them, and hands what is no feed to a `Handler`; an `Offer` is found as an
/// outlet of its own, and is read through one. A `Tap` reads such a stream in this process; what is kept of it
/// elsewhere, its `Past`, goes out before it. Spec: relay §2, §3, §6, §9.
#[doc(hidden)]
pub mod relay {
    pub use lsl_proto::clock::SourceClock;
    pub use lsl_proto::inlet::Run;
    pub use lsl_proto::outlet::frames::{FrameCodec, Frames};
    pub use lsl_proto::wire::request::PortRequest;
    pub use lsl_proto::wire::sequence::ReplayFrom;

    pub use crate::byte_stream::substream::{OpenSubstream, Substream};
    pub use crate::drive_discovery::relays::ask_all;
    pub use crate::drive_outlet::duplex::Duplex;
    pub use crate::drive_outlet::origin::{Origin, StreamClock};
    pub use crate::drive_outlet::past::{Past, ReadPast, ReadingPast, Served};
    pub use crate::drive_outlet::tap::Tap;
    pub use crate::net::runtime::with_workers as runtime;
    pub use crate::net::select2::{Either, select2};
    pub use crate::port::dial::dial;
    pub use crate::port::handler::{Handler, Peer, Refused};
    pub use crate::port::offer::Offer;
    pub use crate::port::{DEFAULT_PORT, Port, PortOptions};
}

/// The configuration: what `lsl_api.cfg` and programs can say, and where it comes from.
pub mod config {
    pub use lsl_proto::config::{
        Bind, Config, Diagnostic, Entry, Ipv6Mode, Loaded, Log, Origin, Overrides, ResolveScope,
        Severity, Source, load, load_text,
    };

    pub use crate::config_files::SystemFiles;
}

/// The XML document that describes a stream.
pub mod xml {
    pub use lsl_proto::xml::{Attribute, Document, ElementRef, NodeId, NodeKind};
}
