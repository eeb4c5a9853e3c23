//! `lsl-bench`, the program that `lsl bench` runs: it measures this machine, this library and any
//! other liblsl. Each action is one file. Results go through `result`, the JSON form, which
//! `report` reads.
#![forbid(unsafe_code)]
#![expect(
    clippy::cast_precision_loss,
    reason = "sample counts stay far below 2^53"
)]

mod aead;
mod atrest;
mod backend;
mod bulk;
mod child;
mod discovery;
mod driver;
mod endpoint;
mod fanout;
mod gaps;
mod grid;
mod handshake;
mod job;
mod latency;
mod library;
mod machine;
mod max;
mod metrics;
mod net;
mod number;
mod output;
mod process_usage;
mod raw;
mod record;
mod relay;
mod report;
mod result;
mod rotation;
mod sandbox;
mod scale;
mod schedule;
mod scratch;
mod size;
mod stats;
mod store;
mod summary;
mod swarm;
mod turn_error;
mod usage;
mod via;
#[cfg(target_os = "linux")]
mod wire;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use lsl_cli::commands::completions::Completions;
use lsl_cli::commands::man::Manual;
use lsl_cli::failure::Outcome;
use lsl_cli::globals::{Events, Globals};

/// Measure latency and throughput, of this and of any other liblsl
#[derive(Debug, Parser)]
#[command(
    name = "lsl-bench",
    bin_name = "lsl bench",
    version,
    disable_help_subcommand = true
)]
#[command(max_term_width = 100)]
struct Cli {
    #[command(flatten)]
    globals: Globals,

    #[command(subcommand)]
    action: BenchCommand,
}

#[derive(Debug, Subcommand)]
enum BenchCommand {
    /// One-way latency by channels, rate and inlets
    Latency(latency::Latency),
    /// Latency of the slowest of many readers
    Fanout(fanout::Fanout),
    /// Fast streams in batches of all sizes
    Bulk(bulk::Bulk),
    /// As many samples as go through, and writing first and reading then
    Max(max::Max),
    /// What River's performance page measures, directly, through a relay, and through Redis
    Grid(grid::Grid),
    /// How many secure sessions can be set up
    Handshake(handshake::Handshake),
    /// The ciphers alone, by message size
    Aead(aead::Aead),
    /// Encrypting files and pipes, and the memory it takes
    Atrest(atrest::Atrest),
    /// Recording many fast streams without a gap
    Record(record::Record),
    /// What relays add to latency, take and keep up with
    Relay(relay::Relay),
    /// How soon all of many streams are found
    Discovery(discovery::Discovery),
    /// Threads, memory and descriptors of many streams
    Scale(scale::Scale),
    /// Between two machines
    Net(net::Net),
    /// Statistics, charts and tables from results
    Report(report::Report),
    /// Print what makes a shell complete `lsl`, benchmarks included
    #[command(hide = true)]
    Completions(Completions),
    /// Write the manual pages of `lsl`, benchmarks included
    #[command(hide = true)]
    Man(Manual),
    /// Pages with what others published beside ours
    #[command(hide = true)]
    Evidence(report::Evidence),
    /// A cable or Wi-Fi between two network namespaces
    #[cfg(target_os = "linux")]
    #[command(hide = true)]
    Wire(wire::Wire),
    /// The ends of a pipe
    #[command(hide = true)]
    AtrestEnd(atrest::AtrestEnd),
    /// The processes with many streams
    #[command(hide = true)]
    Swarm(swarm::Swarm),
    /// The processes of a measurement
    #[command(hide = true)]
    Endpoint(endpoint::Endpoint),
}

fn main() -> ExitCode {
    // `lsl` itself, where that is measured: of this very build, and wherever this program lies alone.
    if std::env::args_os().nth(1).is_some_and(|word| word == "lsl") {
        return lsl_cli::run(std::env::args_os().skip(1));
    }
    let cli = Cli::parse();
    cli.globals.start_log(Events::Told);
    lsl_cli::end(cli.run())
}

impl Cli {
    fn run(&self) -> Outcome {
        lsl_platform::power::stay_awake();
        match &self.action {
            BenchCommand::Latency(action) => action.run(),
            BenchCommand::Fanout(action) => action.run(),
            BenchCommand::Bulk(action) => action.run(),
            BenchCommand::Max(action) => action.run(),
            BenchCommand::Grid(action) => action.run(),
            BenchCommand::Handshake(action) => action.run(),
            BenchCommand::Aead(action) => action.run(),
            BenchCommand::Atrest(action) => action.run(),
            BenchCommand::Record(action) => action.run(),
            BenchCommand::Relay(action) => action.run(),
            BenchCommand::Discovery(action) => action.run(),
            BenchCommand::Scale(action) => action.run(),
            BenchCommand::Net(action) => action.run(&self.globals),
            BenchCommand::Report(action) => action.run(),
            BenchCommand::Completions(action) => action.run(whole()),
            BenchCommand::Man(action) => action.run(whole()),
            BenchCommand::Evidence(action) => action.run(),
            #[cfg(target_os = "linux")]
            BenchCommand::Wire(action) => action.run(),
            BenchCommand::AtrestEnd(action) => action.run(),
            BenchCommand::Swarm(action) => action.run(),
            BenchCommand::Endpoint(action) => action.run(),
        }
    }
}

/// The definition of `lsl` with all of `lsl bench`.
fn whole() -> clap::Command {
    lsl_cli::command().mut_subcommands(|command| match command.get_name() {
        "bench" => Cli::command().name("bench"),
        _ => command,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_consistent() {
        Cli::command().debug_assert();
        whole().debug_assert();
    }
}
