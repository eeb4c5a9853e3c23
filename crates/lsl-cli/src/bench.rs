//! `lsl bench`: how fast this machine, this library and any other liblsl are. Each action is one file
//! of `bench/`. What they measure goes through `result`, the JSON form, which `report` reads.

mod aead;
mod atrest;
mod bulk;
mod carrier;
mod child;
mod contest;
mod discovery;
mod driver;
mod endpoint;
mod fanout;
mod handshake;
mod herd;
mod job;
mod keep;
mod latency;
mod machine;
mod max;
mod net;
mod number;
mod raw;
mod record;
mod report;
mod result;
mod room;
mod scale;
mod size;
mod stats;
mod subject;
mod summary;
mod tally;
mod trouble;
mod turns;
mod usage;
mod watch;

use clap::{Args, Subcommand};

use crate::failure::Outcome;
use crate::globals::Globals;

/// `lsl bench`
#[derive(Debug, Args)]
pub(crate) struct Bench {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// One-way latency by channels, rate and inlets
    Latency(latency::Latency),
    /// Latency of the slowest of many readers
    Fanout(fanout::Fanout),
    /// Fast streams in batches of all sizes
    Bulk(bulk::Bulk),
    /// As many samples as go through, and writing first and reading then
    Max(max::Max),
    /// How many secure sessions can be set up
    Handshake(handshake::Handshake),
    /// The ciphers alone, by message size
    Aead(aead::Aead),
    /// Encrypting files and pipes, and the memory it takes
    Atrest(atrest::Atrest),
    /// Recording many fast streams without a gap
    Record(record::Record),
    /// How soon all of many streams are found
    Discovery(discovery::Discovery),
    /// Threads, memory and descriptors of many streams
    Scale(scale::Scale),
    /// Between two machines
    Net(net::Net),
    /// Statistics, charts and tables from results
    Report(report::Report),
    /// The ends of a pipe
    #[command(hide = true)]
    AtrestEnd(atrest::AtrestEnd),
    /// The processes with many streams
    #[command(hide = true)]
    Herd(herd::Herd),
    /// The processes of a measurement
    #[command(hide = true)]
    Endpoint(endpoint::Endpoint),
}

impl Bench {
    /// Runs the command.
    pub(crate) fn run(&self, globals: &Globals) -> Outcome {
        match &self.action {
            Action::Latency(action) => action.run(),
            Action::Fanout(action) => action.run(),
            Action::Bulk(action) => action.run(),
            Action::Max(action) => action.run(),
            Action::Handshake(action) => action.run(),
            Action::Aead(action) => action.run(),
            Action::Atrest(action) => action.run(),
            Action::Record(action) => action.run(),
            Action::Discovery(action) => action.run(),
            Action::Scale(action) => action.run(),
            Action::Net(action) => action.run(globals),
            Action::Report(action) => action.run(),
            Action::AtrestEnd(action) => action.run(),
            Action::Herd(action) => action.run(),
            Action::Endpoint(action) => action.run(),
        }
    }
}
