//! One way to push and one way to pull, whatever carries the samples: our Rust library, a library
//! with liblsl's ABI, or TCP alone. Every object has its defaults, as in most programs.

use std::time::Duration;

use lsl_cli::failure::{Failure, Outcome};
use lsl_core::{Context, Inlet, Outlet, Selector, StreamInfo};
use lsl_dl::Lsl;

use super::job::{Backend, Job};
use super::number::Number;
use super::raw;
use super::store::StoreReader;

/// The sending side of a measurement.
pub(super) enum Sender {
    Core(Outlet),
    Library(lsl_dl::Outlet),
    Raw(raw::RawSender),
}

impl Sender {
    pub(super) fn open<T: Number>(job: &Job) -> Outcome<Self> {
        let rate = job.nominal_rate();
        let name = job.stream.as_str();
        match &job.backend {
            Backend::Core => {
                let format = job.format.parse()?;
                let info = StreamInfo::new(name, TYPE, job.channels, rate, format, name)?;
                Ok(Self::Core(Outlet::new(info)?))
            }
            Backend::Library(path) => {
                let lsl = Lsl::load(path).map_err(foreign)?;
                let info = lsl.stream_info(name, TYPE, job.channels, rate, T::FORMAT, name);
                let outlet = info.and_then(|info| lsl_dl::Outlet::open(&info, BUFFER_SECS));
                outlet.map(Self::Library).map_err(|error| told(&lsl, error))
            }
            Backend::Tcp => raw::RawSender::open(false, rate).map(Self::Raw),
            Backend::TcpAesGcm => raw::RawSender::open(true, rate).map(Self::Raw),
        }
    }

    /// Returns the outlet's address, for inlets that cannot search.
    pub(super) fn address(&self) -> Outcome<Option<String>> {
        match self {
            Self::Core(_) | Self::Library(_) => Ok(None),
            Self::Raw(sender) => sender.address().map(Some),
        }
    }

    /// Waits until all readers, which have opened their streams, are being sent samples.
    pub(super) fn wait(&mut self, readers: u32) -> Outcome {
        let none = || Failure::NotFound("no inlet connected".into());
        match self {
            Self::Core(outlet) => {
                let deadline = lsl_core::local_clock() + PATIENCE.as_secs_f64();
                while outlet.consumers().len() < readers as usize {
                    if lsl_core::local_clock() > deadline {
                        return Err(none());
                    }
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
            Self::Library(outlet) => {
                if !outlet.wait_for_consumers(PATIENCE.as_secs_f64()) {
                    return Err(none());
                }
                // It does not say how many there are. Inlets that have opened are registered within
                // milliseconds; were one late, the warm-up would miss and not the measurement.
                std::thread::sleep(Duration::from_millis(100));
            }
            Self::Raw(sender) => sender.accept(readers)?,
        }
        Ok(())
    }

    /// Sends samples, the last of which was taken at `stamp`.
    pub(super) fn push<T: Number>(&mut self, values: &[T], channels: usize, stamp: f64) -> Outcome {
        let is_one = values.len() == channels;
        match self {
            Self::Core(outlet) if is_one => Ok(outlet.push_at(values, stamp)?),
            Self::Core(outlet) => Ok(outlet.push_chunk_at(values, stamp)?),
            Self::Library(outlet) if is_one => outlet.push(values, stamp).map_err(foreign),
            Self::Library(outlet) => outlet.push_chunk(values, stamp).map_err(foreign),
            Self::Raw(sender) => sender.push(values, channels, stamp),
        }
    }
}

/// One reader of a measurement.
pub(super) enum Receiver {
    Core(Inlet),
    Library(lsl_dl::Inlet),
    Raw(Box<raw::RawReceiver>),
    Store(Box<StoreReader>),
}

impl Receiver {
    /// All readers of a job, connected, and how many of the connections are encrypted: whether those
    /// are as many as should be is for the driver to say.
    pub(super) fn open_all(job: &Job) -> Outcome<(Vec<Self>, u32)> {
        let readers = 0..job.readers;
        let missing = || {
            Failure::NotFound(format!(
                "the stream was not found within {} s, though it is on this host",
                PATIENCE.as_secs()
            ))
        };
        if let Some(store) = job.store {
            let open = |_| StoreReader::open(store, job.nominal_rate());
            let open = |index| open(index).map(|reader| Self::Store(Box::new(reader)));
            return Ok((readers.map(open).collect::<Outcome<_>>()?, 0));
        }
        match &job.backend {
            Backend::Core => {
                let selector = Selector::property("source_id", &job.stream)?;
                let found = Context::global().resolve_blocking(&selector, 1, PATIENCE)?;
                let info = found.first().ok_or_else(missing)?;
                let mut encrypted = 0;
                let mut open = |_| -> Outcome<Self> {
                    let inlet = Inlet::new(info)?;
                    inlet.blocking().open(PATIENCE)?;
                    encrypted += u32::from(inlet.encryption().is_some());
                    Ok(Self::Core(inlet))
                };
                let receivers = readers.map(&mut open).collect::<Outcome<_>>()?;
                Ok((receivers, encrypted))
            }
            Backend::Library(path) => {
                let lsl = Lsl::load(path).map_err(foreign)?;
                let patience = PATIENCE.as_secs_f64();
                let found = lsl.resolve_one("source_id", &job.stream, patience);
                let info = found.map_err(|error| told(&lsl, error))?;
                let info = info.ok_or_else(missing)?;
                let mut encrypted = 0;
                let mut open = |_| -> Outcome<Self> {
                    let inlet = lsl_dl::Inlet::new(&info, BUFFER_SECS).map_err(foreign)?;
                    inlet.open_stream(patience).map_err(|error| {
                        let told = told(&lsl, error);
                        match inlet.last_security_error() {
                            Some(reason) => told.context(&reason),
                            None => told,
                        }
                    })?;
                    encrypted += u32::from(inlet.is_encrypted().unwrap_or(false));
                    Ok(Self::Library(inlet))
                };
                let receivers = readers.map(&mut open).collect::<Outcome<_>>()?;
                Ok((receivers, encrypted))
            }
            Backend::Tcp | Backend::TcpAesGcm => {
                let is_sealed = job.backend == Backend::TcpAesGcm;
                let address = job.address.as_deref().unwrap_or_default();
                let open = |_| {
                    let receiver = raw::RawReceiver::open(address, is_sealed, job.nominal_rate())?;
                    Ok(Self::Raw(Box::new(receiver)))
                };
                let receivers = readers.map(open).collect::<Outcome<_>>()?;
                Ok((receivers, if is_sealed { job.readers } else { 0 }))
            }
        }
    }

    /// Call it before the first pull; may wait for the outlet to begin.
    pub(super) fn begin(&mut self) -> Outcome {
        match self {
            Self::Core(_) | Self::Library(_) | Self::Store(_) => Ok(()),
            Self::Raw(receiver) => receiver.begin(PULL_TIMEOUT),
        }
    }

    /// Receives one sample; `None` when none came for a while.
    pub(super) fn pull<T: Number>(&mut self, values: &mut [T]) -> Outcome<Option<f64>> {
        match self {
            Self::Core(inlet) => Ok(inlet.blocking().pull(values, PULL_TIMEOUT)?),
            Self::Library(inlet) => inlet
                .pull(values, PULL_TIMEOUT.as_secs_f64())
                .map_err(foreign),
            Self::Raw(receiver) => receiver.pull(values),
            Self::Store(reader) => {
                let mut stamp = [0.0];
                let pulled = reader.pull(values, &mut stamp)?;
                Ok((pulled > 0).then_some(stamp[0]))
            }
        }
    }

    /// Receives as many samples as there are timestamps, or fewer when no more came for a while.
    pub(super) fn pull_chunk<T: Number>(
        &mut self,
        values: &mut [T],
        timestamps: &mut [f64],
    ) -> Outcome<usize> {
        match self {
            Self::Core(inlet) => {
                let stamps = Some(timestamps);
                Ok(inlet.blocking().pull_chunk(values, stamps, PULL_TIMEOUT)?)
            }
            Self::Library(inlet) => inlet
                .pull_chunk(values, timestamps, PULL_TIMEOUT.as_secs_f64())
                .map_err(foreign),
            Self::Raw(receiver) => {
                let channels = values.len() / timestamps.len().max(1);
                let samples = values.chunks_exact_mut(channels.max(1));
                for (pulled, (sample, stamp)) in samples.zip(timestamps).enumerate() {
                    match receiver.pull(sample)? {
                        Some(found) => *stamp = found,
                        None => return Ok(pulled),
                    }
                }
                Ok(values.len() / channels.max(1))
            }
            Self::Store(reader) => reader.pull(values, timestamps),
        }
    }
}

/// The error of a foreign library as a failure.
#[expect(clippy::needless_pass_by_value, reason = "for `map_err`")]
pub(super) fn foreign(error: lsl_dl::Error) -> Failure {
    Failure::Runtime(error.to_string())
}

/// Adds the library's own description to one of its errors.
fn told(lsl: &Lsl, error: lsl_dl::Error) -> Failure {
    let text = lsl.last_error();
    if text.is_empty() {
        foreign(error)
    } else {
        Failure::Runtime(format!("{error}: {text}"))
    }
}

const TYPE: &str = "Benchmark";

/// Default buffer of liblsl's headers for either side, in seconds.
const BUFFER_SECS: i32 = 360;

/// Time for finding and connecting.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

/// Time that a pull waits before it checks for the end.
pub(super) const PULL_TIMEOUT: Duration = Duration::from_millis(500);
