//! Streams of float32 by our Rust library or by one with liblsl's functions, with the defaults that
//! most programs have.

use lsl_cli::failure::{Failure, Outcome};
use lsl_core::{ChannelFormat, Context, Selector, StreamInfo, Timeout};
use lsl_dl::{Format, Lsl};

use crate::backend::foreign;
use crate::job::Backend;

/// Library that makes the streams: ours or a foreign one.
pub(super) enum Api {
    Core(Context),
    Foreign(Lsl),
}

/// A stream that was found.
pub(super) enum FoundStream {
    Core(Box<StreamInfo>),
    Foreign(lsl_dl::Info),
}

/// An outlet of either library.
pub(super) enum Sender {
    Core(lsl_core::Outlet),
    Foreign(lsl_dl::Outlet),
}

/// An inlet of either library.
pub(super) enum SwarmInlet {
    Core(lsl_core::Inlet),
    Foreign(lsl_dl::Inlet),
}

impl Api {
    pub(super) fn load(backend: &Backend) -> Outcome<Self> {
        match backend {
            Backend::Core => Ok(Self::Core(Context::global())),
            Backend::Library(path) => Ok(Self::Foreign(Lsl::load(path).map_err(foreign)?)),
            Backend::Tcp | Backend::TcpAesGcm => Err(Failure::Usage(
                "TCP alone has no streams to be found".into(),
            )),
        }
    }

    /// Reads the clock of the library.
    pub(super) fn clock(&self) -> f64 {
        match self {
            Self::Core(_) => lsl_core::local_clock(),
            Self::Foreign(lsl) => lsl.local_clock(),
        }
    }

    pub(super) fn offer(
        &self,
        name: &str,
        kind: &str,
        channels: u32,
        rate: f64,
    ) -> Outcome<Sender> {
        match self {
            Self::Core(context) => {
                let format = ChannelFormat::Float32;
                let info = StreamInfo::new(name, kind, channels, rate, format, name)?;
                let outlet = lsl_core::Outlet::builder(info).context(context).open()?;
                Ok(Sender::Core(outlet))
            }
            Self::Foreign(lsl) => lsl
                .stream_info(name, kind, channels, rate, Format::Float32, name)
                .and_then(|info| lsl_dl::Outlet::open(&info, BUFFER_SECS))
                .map(Sender::Foreign)
                .map_err(foreign),
        }
    }

    /// Streams with this value of a property: as soon as there are `minimum`, or what there are then.
    pub(super) fn find(
        &self,
        property: &str,
        value: &str,
        minimum: u32,
        secs: f64,
    ) -> Outcome<Vec<FoundStream>> {
        match self {
            Self::Core(context) => {
                let selector = Selector::property(property, value)?;
                let timeout = Timeout::from_secs(secs);
                let found = context.resolve_blocking(&selector, minimum as usize, timeout)?;
                Ok(found
                    .into_iter()
                    .map(Box::new)
                    .map(FoundStream::Core)
                    .collect())
            }
            Self::Foreign(lsl) => lsl
                .resolve_by(property, value, minimum, MOST, secs)
                .map(|found| found.into_iter().map(FoundStream::Foreign).collect())
                .map_err(foreign),
        }
    }

    /// Returns the streams found after so many seconds.
    pub(super) fn sweep(&self, secs: f64) -> Outcome<Vec<FoundStream>> {
        match self {
            Self::Core(context) => {
                let timeout = Timeout::from_secs(secs);
                let found = context.resolve_blocking(&Selector::all(), usize::MAX, timeout)?;
                Ok(found
                    .into_iter()
                    .map(Box::new)
                    .map(FoundStream::Core)
                    .collect())
            }
            Self::Foreign(lsl) => lsl
                .resolve_all(MOST, secs)
                .map(|found| found.into_iter().map(FoundStream::Foreign).collect())
                .map_err(foreign),
        }
    }

    /// An inlet that is not connected yet.
    pub(super) fn inlet(&self, found: &FoundStream) -> Outcome<SwarmInlet> {
        match (self, found) {
            (Self::Core(context), FoundStream::Core(info)) => {
                let inlet = lsl_core::Inlet::builder(info).context(context).create()?;
                Ok(SwarmInlet::Core(inlet))
            }
            (_, FoundStream::Foreign(info)) => lsl_dl::Inlet::new(info, BUFFER_SECS)
                .map(SwarmInlet::Foreign)
                .map_err(foreign),
            (Self::Foreign(_), FoundStream::Core(_)) => {
                Err(Failure::Runtime("found by another library".into()))
            }
        }
    }
}

impl FoundStream {
    pub(super) fn channels(&self) -> u32 {
        match self {
            Self::Core(info) => info.channel_count(),
            Self::Foreign(info) => info.channels(),
        }
    }

    pub(super) fn name(&self) -> String {
        match self {
            Self::Core(info) => info.name().into_owned(),
            Self::Foreign(info) => info.name(),
        }
    }
}

impl Sender {
    /// Sends one sample, stamped now.
    pub(super) fn push(&self, values: &[f32]) -> Outcome {
        match self {
            Self::Core(outlet) => Ok(outlet.push(values)?),
            Self::Foreign(outlet) => outlet.push(values, 0.0).map_err(foreign),
        }
    }
}

impl SwarmInlet {
    pub(super) fn open(&self, secs: f64) -> Outcome {
        match self {
            Self::Core(inlet) => Ok(inlet.blocking().open(Timeout::from_secs(secs))?),
            Self::Foreign(inlet) => inlet.open_stream(secs).map_err(foreign),
        }
    }

    pub(super) fn is_encrypted(&self) -> bool {
        match self {
            Self::Core(inlet) => inlet.encryption().is_some(),
            Self::Foreign(inlet) => inlet.is_encrypted().unwrap_or(false),
        }
    }

    /// Receives one sample; false when none came in time.
    pub(super) fn pull(&self, values: &mut [f32], secs: f64) -> Outcome<bool> {
        match self {
            Self::Core(inlet) => {
                let pulled = inlet.blocking().pull(values, Timeout::from_secs(secs))?;
                Ok(pulled.is_some())
            }
            Self::Foreign(inlet) => {
                let pulled = inlet.pull(values, secs).map_err(foreign)?;
                Ok(pulled.is_some())
            }
        }
    }

    pub(super) fn time_correction(&self, secs: f64) -> Outcome<f64> {
        match self {
            Self::Core(inlet) => {
                let found = inlet.blocking().time_correction(Timeout::from_secs(secs))?;
                Ok(found.offset_secs)
            }
            Self::Foreign(inlet) => inlet.time_correction(secs).map_err(foreign),
        }
    }
}

/// Default buffer of either library, in seconds.
const BUFFER_SECS: i32 = 360;
/// Streams that one search can bring.
const MOST: u32 = 16_384;
