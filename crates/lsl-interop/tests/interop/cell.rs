//! What a test is here: one cell of the compatibility matrix, written once for all its variants.
//!
//! A cell knows two ends and pushes known values from one to the other. It does not know whether an
//! end is ours or foreign: `OutletEnd` and `InletEnd` hide that.

use std::time::Duration;

use crate::lab::{Lab, Need, Protocol};
use crate::values::{Format, Values, pattern};

/// What a cell answers with: the text says what was expected and what came.
pub(crate) type Outcome<T = ()> = Result<T, String>;

/// Long enough for a loaded machine; nothing waits that long when all is well.
pub(crate) const PATIENCE: Duration = Duration::from_secs(15);

pub(crate) const CHANNELS: usize = 3;
pub(crate) const RATE: f64 = 100.0;

/// One named test.
pub(crate) struct Cell {
    /// Unique; also the stream's source id, so that parallel cells never meet.
    pub(crate) name: String,
    /// Where it is counted in the matrix.
    pub(crate) place: Place,
    /// Without these the cell cannot run.
    pub(crate) needs: Vec<Need>,
    pub(crate) run: Run,
}

/// A field of the matrix.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    /// From whom to whom, how.
    pub(crate) row: String,
    pub(crate) topic: Topic,
}

/// What a cell proves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Topic {
    /// Values pushed and pulled one by one arrive bit by bit.
    Sample,
    /// The same in chunks.
    Chunk,
    /// The same from a synchronous outlet.
    Sync,
    Metadata,
    /// Time correction.
    Clock,
    Recovery,
    /// Many streams found at once.
    Crowd,
    /// Foreign programs run to a good end.
    Program,
    /// What must not be seen on the wire is not seen.
    Secrecy,
    /// Who is refused by whom, and with which words.
    Policy,
}

impl Topic {
    pub(crate) const ALL: [Self; 10] = [
        Self::Sample,
        Self::Chunk,
        Self::Sync,
        Self::Metadata,
        Self::Clock,
        Self::Recovery,
        Self::Crowd,
        Self::Program,
        Self::Secrecy,
        Self::Policy,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Sample => "sample",
            Self::Chunk => "chunk",
            Self::Sync => "sync",
            Self::Metadata => "metadata",
            Self::Clock => "clock",
            Self::Recovery => "recovery",
            Self::Crowd => "crowd",
            Self::Program => "program",
            Self::Secrecy => "secrecy",
            Self::Policy => "policy",
        }
    }
}

/// A cell's body: gets the lab and the cell's name. Repeated if a liblsl died of itself meanwhile.
pub(crate) type Run = Box<dyn Fn(&Lab, &str) -> Outcome + Send>;

/// How samples are handed over on both ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transfer {
    Sample,
    Chunk,
}

impl Transfer {
    pub(crate) const ALL: [Self; 2] = [Self::Sample, Self::Chunk];

    pub(crate) fn topic(self) -> Topic {
        match self {
            Self::Sample => Topic::Sample,
            Self::Chunk => Topic::Chunk,
        }
    }
}

/// When the samples of a chunk were taken.
#[derive(Clone, Debug)]
pub(crate) enum Stamps {
    /// The stamp of the last sample; the others follow from the rate.
    Last(f64),
    /// One for each sample.
    Each(Vec<f64>),
}

/// A stream as an outlet announces it.
#[derive(Clone, Debug)]
pub(crate) struct Announcement {
    pub(crate) name: String,
    pub(crate) source_id: String,
    pub(crate) format: Format,
    pub(crate) channels: usize,
    pub(crate) rate: f64,
    /// Whether pushes write to the sockets themselves.
    pub(crate) synchronous: bool,
    pub(crate) stream_type: String,
    /// `(name, text)` children of the description.
    pub(crate) desc: Vec<(String, String)>,
}

impl Announcement {
    pub(crate) fn new(source_id: &str, format: Format) -> Self {
        Self {
            name: format!("stream {source_id}"),
            source_id: source_id.to_owned(),
            format,
            channels: CHANNELS,
            rate: RATE,
            synchronous: false,
            stream_type: "interop".to_owned(),
            desc: Vec::new(),
        }
    }
}

/// The sending end; closes when dropped.
pub(crate) trait OutletEnd {
    fn wait_for_consumers(&mut self) -> Outcome;
    fn push(&mut self, sample: &Values, stamp: f64) -> Outcome;
    fn push_chunk(&mut self, samples: &Values, stamps: &Stamps) -> Outcome;
    /// Vanish without a farewell.
    fn crash(&mut self);
}

/// The receiving end, already found by its source id and opened; closes when dropped.
pub(crate) trait InletEnd {
    fn pull(&mut self) -> Outcome<(f64, Values)>;
    /// Exactly `samples` samples, or an error when they do not come in time.
    fn pull_chunk(&mut self, samples: usize) -> Outcome<(Vec<f64>, Values)>;
    /// The full information as XML.
    fn full_xml(&mut self) -> Outcome<Vec<u8>>;
    fn time_correction(&mut self) -> Outcome<Correction>;
    /// With whom it speaks, and how; `None` in plaintext. Only our libraries know.
    fn encryption(&mut self) -> Outcome<Option<Encryption>>;
}

/// What an inlet says of its encrypted connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Encryption {
    pub(crate) peer_name: String,
    pub(crate) fingerprint: String,
    pub(crate) cipher: String,
}

/// What to add to the sender's time stamps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Correction {
    pub(crate) offset_secs: f64,
    /// The round trip of the best probe, unless the library hides it.
    pub(crate) uncertainty_secs: Option<f64>,
}

/// Push the pattern of the format through and compare every bit of values and stamps. `spoken` is
/// the protocol the two ends agree on.
pub(crate) fn transfer(
    outlet: &mut dyn OutletEnd,
    inlet: &mut dyn InletEnd,
    format: Format,
    spoken: Protocol,
    how: Transfer,
) -> Outcome {
    outlet.wait_for_consumers()?;
    let arrives = |values: &Values| match spoken {
        Protocol::V110 => values.clone(),
        Protocol::V100 => values.clone().over_100(format),
    };
    match how {
        Transfer::Sample => transfer_samples(outlet, inlet, format, arrives),
        Transfer::Chunk => transfer_chunks(outlet, inlet, format, arrives),
    }
}

/// One sample, once the inlet is connected.
pub(crate) fn stamped_sample(
    outlet: &mut dyn OutletEnd,
    inlet: &mut dyn InletEnd,
    format: Format,
    stamp: f64,
) -> Outcome {
    outlet.wait_for_consumers()?;
    let sample = pattern(format, CHANNELS, 0);
    outlet.push(&sample, stamp)?;
    let (got_stamp, got) = inlet.pull()?;
    same("one sample", &[stamp], &sample, &[got_stamp], &got)
}

fn transfer_samples(
    outlet: &mut dyn OutletEnd,
    inlet: &mut dyn InletEnd,
    format: Format,
    arrives: impl Fn(&Values) -> Values,
) -> Outcome {
    let samples: Vec<Values> = (0..ROUNDS)
        .map(|round| pattern(format, CHANNELS, round))
        .collect();
    // Uneven, so that a stamp computed from the rate would be noticed; the last one is deduced.
    let mut expected: Vec<f64> = (1..ROUNDS)
        .map(|round| 12_345.678_9 + f64::from(round).powi(2) / 7.0)
        .collect();
    for (sample, stamp) in samples.iter().zip(&expected) {
        outlet.push(sample, *stamp)?;
    }
    let last = expected.last().copied().unwrap_or_default();
    outlet.push(&samples[samples.len() - 1], DEDUCED)?;
    expected.push(last + 1.0 / RATE);

    for (index, (sample, stamp)) in samples.iter().zip(&expected).enumerate() {
        let (got_stamp, got) = inlet.pull()?;
        same(
            &format!("sample {index}"),
            &[*stamp],
            &arrives(sample),
            &[got_stamp],
            &got,
        )?;
    }
    Ok(())
}

fn transfer_chunks(
    outlet: &mut dyn OutletEnd,
    inlet: &mut dyn InletEnd,
    format: Format,
    arrives: impl Fn(&Values) -> Values,
) -> Outcome {
    let count: u16 = 8;
    let samples = pattern(format, CHANNELS * usize::from(count), 0);
    let last = 23_456.75;
    outlet.push_chunk(&samples, &Stamps::Last(last))?;
    // As liblsl computes it: the first from the last, then step by step.
    let mut stamp = last - f64::from(count - 1) / RATE;
    let mut stamps = vec![stamp];
    for _ in 1..count {
        stamp += 1.0 / RATE;
        stamps.push(stamp);
    }
    let (got_stamps, got) = inlet.pull_chunk(usize::from(count))?;
    same(
        "chunk stamped at its end",
        &stamps,
        &arrives(&samples),
        &got_stamps,
        &got,
    )?;

    let samples = pattern(format, CHANNELS * usize::from(count), 1);
    let stamps: Vec<f64> = (0..count)
        .map(|index| 34_567.125 + f64::from(index).sqrt())
        .collect();
    outlet.push_chunk(&samples, &Stamps::Each(stamps.clone()))?;
    let (got_stamps, got) = inlet.pull_chunk(usize::from(count))?;
    same(
        "chunk stamped sample by sample",
        &stamps,
        &arrives(&samples),
        &got_stamps,
        &got,
    )
}

pub(crate) fn same(
    what: &str,
    stamps: &[f64],
    values: &Values,
    got_stamps: &[f64],
    got: &Values,
) -> Outcome {
    let bits = |stamps: &[f64]| {
        stamps
            .iter()
            .map(|stamp| stamp.to_bits())
            .collect::<Vec<_>>()
    };
    if bits(stamps) != bits(got_stamps) {
        return Err(format!(
            "{what}: stamps {got_stamps:?} instead of {stamps:?}"
        ));
    }
    if values != got {
        return Err(format!("{what}: {got:?} instead of {values:?}"));
    }
    Ok(())
}

/// Samples per cell and transfer.
const ROUNDS: u16 = 6;

/// The stamp that means "one period after the one before".
const DEDUCED: f64 = -1.0;
