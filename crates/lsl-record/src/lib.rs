//! Recorder of the Lab Streaming Layer: streams into an XDF file that survives crashes.
//!
//! One task for each stream takes samples and measures the clock (`stream`), a bounded queue leads to the
//! one thread that writes (`writer`), which keeps the file whole; `selection` decides which streams those
//! are, and a [`Recorder`] is one recording with its beginning and its end. Nothing here prints: what
//! happens is an [`Event`], how it is going a [`Status`], how it went a [`Report`]. Spec: recorder §3.
//!
//! ```no_run
//! use std::time::Duration;
//! use lsl_core::{Context, Selector, local_clock};
//! use lsl_record::{Cancel, Output, Recorder, Stop};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let (context, never) = (Context::global(), Cancel::default());
//! let output = Output::new("today.xdf");
//! let recorder = Recorder::builder(&context, output)
//!     .require("EEG", Selector::property("type", "EEG")?)
//!     .start(5.0, &never)?;
//! let end = local_clock() + 60.0;
//! while !recorder.is_over() && local_clock() < end {
//!     if let Some(event) = recorder.next_event(Duration::from_secs(1)) {
//!         eprintln!("{event:?}");
//!     }
//! }
//! let report = recorder.stop(Stop::Drain { until: local_clock(), grace_secs: 2.0 }, &never);
//! println!("{} samples, {} missing", report.samples, report.status.missing());
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]
#![expect(
    clippy::cast_precision_loss,
    reason = "bytes and sample counts stay far below 2^53"
)]

mod drain;
mod error;
mod event;
mod halt;
mod live;
mod locked;
mod losses;
mod marks;
mod output;
mod pending;
mod place;
mod queue;
pub mod rcs;
mod recorder;
mod resume;
mod selection;
mod shared;
mod signing;
mod space;
mod strangers;
mod stream;
pub mod template;
mod writer;

pub use lsl_xdf::at_rest::Cancel;

pub use error::StartError;
pub use event::{Complaint, Event, Events};
pub use live::{Stamps, StreamState, StreamStatus};
pub use locked::PADDING_SECS;
pub use marks::MarkError;
pub use output::Output;
pub use recorder::{Recorder, RecorderBuilder, Report, Status, Stop};
pub use resume::unfinished_beside;
pub use shared::OtherKeys;
pub use signing::DeviceSigner;
pub use space::Alarm;
