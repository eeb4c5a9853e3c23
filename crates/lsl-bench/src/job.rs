//! Messages between the driver and its two processes, the outlet's and the inlets': one line of
//! JSON each over the pipes of the child. The first line is the task; then orders go in, events
//! out.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::result::Gap;
use super::via::{Arrivals, Store, Via};

/// Task of a child process, its first line of input.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum Task {
    /// Load this library and describe it.
    Probe(PathBuf),
    /// Push samples on one outlet.
    Outlet(Job),
    /// Pull samples with one or several inlets.
    Inlet(Job),
    /// Keep a processor busy until the end.
    Hog,
}

/// Library or socket that carries the samples.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Backend {
    /// The Rust library this program is made of.
    Core,
    /// A library with liblsl's ABI.
    Library(PathBuf),
    /// A TCP connection without LSL: the caller's write, the caller's read.
    Tcp,
    /// A TCP connection with one AES-256-GCM frame per push.
    TcpAesGcm,
}

/// Rate at which samples are pushed.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) enum Speed {
    /// So many samples per second, on time.
    Paced(f64),
    /// As fast as pushes return; the stream still says a rate, which sizes its buffers.
    Free,
}

/// Way in which samples are pulled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
pub(super) enum Pull {
    /// One by one
    Sample,
    /// As many at once as were pushed at once
    Chunk,
}

/// Samples counted by `latency_*` and the histogram; `slowest_*` is always there, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Counted {
    /// Every sample of every reader.
    Each,
    /// Every sample once: as late as its slowest reader had it.
    Slowest,
}

/// When the outlet has pushed enough.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) enum Extent {
    /// After so many samples, besides those of the warm-up.
    Samples(u64),
    /// After so many seconds of measuring.
    Seconds(f64),
}

/// One measurement of one subject, for either side.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Job {
    pub(super) backend: Backend,
    /// Whether the connections must be encrypted; if they are not, or are and must not be, the run ends.
    pub(super) secure: bool,
    pub(super) via: Via,
    /// Time in ms for which a relay gathers samples before it writes them to a server.
    pub(super) flush_ms: u32,
    /// Name and source id of the stream.
    pub(super) stream: String,
    /// Name of the format, such as `float32`.
    pub(super) format: String,
    pub(super) channels: u32,
    pub(super) speed: Speed,
    /// Samples in each push, at least 1.
    pub(super) batch: u64,
    /// Samples that come first and are not counted; whole batches.
    pub(super) warm_up: u64,
    pub(super) extent: Extent,
    pub(super) readers: u32,
    pub(super) pull: Pull,
    pub(super) counted: Counted,
    /// Largest number of samples pushed and not yet pulled.
    pub(super) window: Option<u64>,
    /// Inlets pull only when everything is pushed.
    pub(super) read_last: bool,
    /// For inlets: address at which the outlet of a raw transport listens.
    pub(super) address: Option<String>,
    /// For inlets: address at which the outlet waits for progress.
    pub(super) control: Option<String>,
    /// For inlets: server that they ask in place of an outlet.
    pub(super) store: Option<Store>,
}

impl Job {
    /// A job of one reader that pulls as is pushed; the driver fills in who carries it and where.
    pub(super) fn new(format: &str, channels: u32, batch: u64) -> Self {
        Self {
            backend: Backend::Core,
            secure: false,
            via: Via::Direct,
            flush_ms: DEFAULT_FLUSH_MS,
            stream: String::new(),
            format: format.into(),
            channels,
            speed: Speed::Free,
            batch,
            warm_up: 0,
            extent: Extent::Samples(0),
            readers: 1,
            pull: if batch == 1 {
                Pull::Sample
            } else {
                Pull::Chunk
            },
            counted: Counted::Each,
            window: None,
            read_last: false,
            address: None,
            control: None,
            store: None,
        }
    }

    /// Returns the nominal rate of the stream in Hz. Unpaced streams get one too, because LSL sizes
    /// its buffers by it: 360 s of 1 kHz hold 360,000 samples, more than is ever under way.
    pub(super) fn nominal_rate(&self) -> f64 {
        match self.speed {
            Speed::Paced(rate) => rate,
            Speed::Free => 1000.0,
        }
    }

    /// Samples in all, where that is known before the end.
    pub(super) fn total(&self) -> Option<u64> {
        match self.extent {
            Extent::Samples(samples) => Some(self.warm_up + samples),
            Extent::Seconds(_) => None,
        }
    }
}

/// Orders of the driver to a child, after its task.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum Order {
    /// Outlet: all inlets are there, begin. What is written first is written when it has arrived there.
    Go(Option<Arrivals>),
    /// Inlets: so many samples were pushed.
    Pushed(u64),
    /// Outlet: all inlets are done, report.
    Finish,
}

/// Events that a child reports to the driver.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum ChildEvent {
    /// Description of the probed library.
    Library(LibraryInfo),
    /// Outlet: the stream can be found. Inlets: all are connected.
    Ready(Ready),
    /// Outlet: so many samples were pushed, warm-up included.
    Pushed(u64),
    /// Results, and the last event of a child.
    Report(Report),
    /// Reason of a failure, in place of a report.
    Failed(String),
}

/// Description of a library by itself.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct LibraryInfo {
    /// `major * 100 + minor`.
    pub(super) version: i32,
    pub(super) info: String,
    /// Whether it is ours: only ours can encrypt.
    pub(super) ours: bool,
}

/// Addresses that the other side needs.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Ready {
    pub(super) address: Option<String>,
    pub(super) control: Option<String>,
    /// Inlets: how many connections are encrypted.
    pub(super) encrypted: u32,
}

/// Values that one side measured.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Report {
    /// Values by name of the metric; both sides together name each once.
    pub(super) values: BTreeMap<String, f64>,
    /// `local_clock` when the measured part began and ended.
    pub(super) begin: f64,
    pub(super) end: f64,
    /// CPU of the measured part and what else is divided by samples.
    pub(super) cpu_secs: Option<f64>,
    pub(super) switches: Option<u64>,
    /// Measured samples that came, over all readers.
    pub(super) received: u64,
    /// Samples out of order or twice, and timestamps that go back.
    pub(super) disorder: u64,
    pub(super) gaps: Vec<Gap>,
    pub(super) histogram: Vec<(f64, u64)>,
}

/// Default of a relay.
const DEFAULT_FLUSH_MS: u32 = 8;
