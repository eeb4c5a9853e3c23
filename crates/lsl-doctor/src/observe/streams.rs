//! What was observed of single streams, and of the programs that have them.

use serde::{Deserialize, Serialize};

use super::{Place, Program};

/// A stream that was opened, and perhaps read for some seconds.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct StreamProbed {
    pub uid: String,
    pub name: String,
    pub hostname: String,
    /// Where its samples come from.
    pub address: String,
    /// Samples a second that it announces; 0 if they come irregularly.
    pub rate: f64,
    /// How opening it ended; none if nobody tried.
    pub opened: Option<Opened>,
    /// What encryption says, where it forbids to read the stream.
    pub barred: Option<Barred>,
    /// What an inlet got.
    pub fed: Option<Fed>,
}

/// How asking for the test patterns of a stream ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Opened {
    /// All came.
    Yes,
    /// Nothing listens at its port.
    Closed,
    /// No connection came about in time, or there is no way to that machine.
    Unreachable,
    /// It connected; then what was asked for did not come, or not whole.
    Stalled,
    /// It was answered that there is no such stream.
    Refused,
    /// Encryption forbids it.
    Barred,
}

/// Verdict on a stream, by the side that refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// A session was opened.
    Ok,
    /// The outlet offers no encryption; not an error, but required policies do not read it.
    Plaintext,
    /// This machine refuses the outlet.
    RefusedHere,
    /// The outlet refuses this machine.
    RefusedThere,
    /// The handshake failed: no agreement, no answer, or an attack.
    Failed,
}

/// Why a stream cannot be read with the keys of this machine, or without.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Barred {
    pub by: Verdict,
    /// Whether this machine has a key.
    pub has_key: bool,
    /// As `lsl trust check` says it.
    pub text: String,
    /// What to type, and where.
    pub command: Option<(Place, String)>,
}

/// What an inlet got in some seconds.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Fed {
    /// How long it was connected.
    pub secs: f64,
    pub samples: u64,
    /// Time from the first to the last stamp.
    pub span_secs: f64,
    /// Steps between stamps of more than 1.5 of the announced interval.
    pub jumps: u64,
    /// Samples that are known to be lost, where they are numbered.
    pub lost: u64,
    /// Second by second, the smallest age of samples when they came, on the clock of this machine.
    pub lags: Vec<f64>,
    /// The last stamp, as it was sent.
    pub stamp: Option<f64>,
    /// The time of day when it came, in seconds since 1970.
    pub day: Option<f64>,
    pub clock: Option<ClockAnswer>,
}

/// Whether clock probes were answered.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClockAnswer {
    /// With this uncertainty.
    Seconds(f64),
    /// None was.
    Silent,
}

/// How many descriptors a program has, and may have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DescriptorsUsed {
    pub program: Program,
    pub used: u64,
    pub allowed: u64,
}

/// A program that has loaded a liblsl.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LibraryUsed {
    pub program: Program,
    /// `1.17.7`
    pub version: String,
    /// Streams of this machine that the program has.
    pub streams: usize,
}
