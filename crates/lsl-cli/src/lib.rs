//! The `lsl` command: find, describe, generate, receive, time and protect Lab Streaming Layer streams.
//!
//! Subcommands are in `commands`; shared code is in the modules before it. Results go to stdout,
//! notices and summaries to stderr (`ui::notice`), and every way to fail has its exit status
//! (`failure`). Nothing here knows the protocol.
//!
//! Public items are for `lsl` and `lsl-bench`, and may change with any version.
#![forbid(unsafe_code)]
#![expect(
    clippy::cast_precision_loss,
    reason = "sample counts stay far below 2^53"
)]
#![expect(
    clippy::missing_errors_doc,
    reason = "a failure says why, and is told to the user as it is"
)]

pub mod commands;
pub mod failure;
pub mod files;
pub mod globals;
pub mod interrupt;
pub mod signal;
pub mod streams;
pub mod ui;

use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::LazyLock;

use clap::{CommandFactory, Parser, Subcommand};
use lsl_platform::power::stay_awake;

use self::commands::{
    at_rest, audit, benchmarks, completions, config, demo, deploy, doctor, generate, info, key,
    list, man, play, record, recv, relay, security, time, trust, watch, xdf,
};
use self::failure::{Failure, Outcome};
use self::globals::{Events, Globals};
use self::ui::notice::note;

/// Find, describe, generate, receive, time and protect Lab Streaming Layer streams
#[derive(Debug, Parser)]
#[command(name = "lsl", version, long_version = LONG_VERSION.as_str(), after_help = HELP)]
#[command(disable_help_subcommand = true, max_term_width = 100)]
struct Cli {
    #[command(flatten)]
    globals: Globals,

    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// See everything at work: EEG and markers over loopback, received live
    Demo(demo::Demo),
    /// Show which streams there are
    List(list::List),
    /// Show everything a stream says about itself
    Info(info::Info),
    /// Offer a stream of made-up data
    Gen(generate::Generate),
    /// Print the samples of a stream
    Recv(recv::Recv),
    /// Record streams into an XDF file that survives crashes
    Record(Box<record::Record>),
    /// Offer the streams of a recording as if they were live
    Play(play::Play),
    /// Look into recordings, check, repair and convert them
    Xdf(xdf::Xdf),
    /// Encrypt recordings and other files
    Lock(at_rest::Lock),
    /// Decrypt files
    Unlock(at_rest::Unlock),
    /// Change who can open encrypted files
    Rotate(at_rest::Rotate),
    /// Say whether encrypted files can be opened and are whole
    Verify(at_rest::Verify),
    /// Say why streams are not found, and what to type
    Doctor(doctor::Doctor),
    /// Say at once when a stream that has to be there is not as it should be
    Watch(watch::Watch),
    /// Measure how far a stream's clock is from ours
    Time(time::Time),
    /// Show, check and write the configuration
    Config(config::Config),
    /// Make and show this device's key, which switches encryption on
    Key(key::Key),
    /// Say which devices may exchange streams with this one
    Trust(trust::Trust),
    /// Show whether and with whom this machine encrypts
    Security(security::Security),
    /// Read, check and sum up the security log
    Audit(audit::Audit),
    /// Measure latency and throughput, of this and of any other liblsl
    Bench(benchmarks::Bench),
    /// Serve the streams of this network to others through one port
    Relay(Box<relay::Relay>),
    /// Put this command on another machine, as a service
    Deploy(deploy::Deploy),
    /// Print what makes a shell complete this command
    Completions(completions::Completions),
    /// Write the manual pages
    #[command(hide = true)]
    Man(man::Manual),
}

/// Answer to `--version`; the second line says how far this system is proved, in the words of the table in
/// `xtask/src/systems.rs`.
static LONG_VERSION: LazyLock<String> = LazyLock::new(|| {
    let proved = match std::env::consts::OS {
        "linux" => "Linux: tested",
        "windows" => "Windows: tested under Wine 8.0, not on Windows",
        "macos" => "macOS: linked, never run",
        _ => "this system: never tried",
    };
    format!("{}\n{proved}", env!("CARGO_PKG_VERSION"))
});

const HELP: &str = "\
Examples:
  lsl demo                     start here
  lsl list                     what is on the network?
  lsl gen --name Amp           offer a stream
  lsl recv Amp -o csv          receive it
  lsl record -o today.xdf      record everything
  lsl security status          is it encrypted?
  lsl doctor                   why is a stream not found?

STREAM is a name (BioSemi), KEY=VALUE (type=EEG, source_id=..., uid=..., hostname=...) or an XPath
predicate (\"type='EEG' and channel_count>8\"). Write name=VALUE for names with = < > or quotes.

Exit status: 0 done, also after Ctrl-C; 1 failure; 2 wrong usage, also when STREAM is ambiguous;
3 not found or no answer in time; 4 stream or samples lost. Where --json exists, stdout carries
nothing but JSON.";

/// Runs the command line `arguments`, of which the first is the program. Ends the process for `--help` and
/// for wrong usage.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let cli = Cli::parse_from(arguments);
    let events = cli.command.events();
    match &cli.command {
        Command::Doctor(doctor) if doctor.writes_report() => {
            cli.globals.start_log_for_report(events);
        }
        _ => cli.globals.start_log(events),
    }
    end(cli.run())
}

/// Tells the user of a failure. Returns the exit status of the process.
pub fn end(outcome: Outcome) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if !matches!(failure, Failure::ReaderLeft | Failure::Told(_)) {
                note(format_args!("lsl: {failure}"));
            }
            ExitCode::from(&failure)
        }
    }
}

/// Returns the definition of the command line, of which help, pages and completions are made. Of `lsl bench`
/// it knows no more than that there is one.
pub fn command() -> clap::Command {
    Cli::command()
}

impl Command {
    /// Returns how refusals are told: logged by commands that offer streams, reported by others.
    fn events(&self) -> Events {
        match self {
            Self::Gen(_) | Self::Demo(_) | Self::Play(_) => Events::Logged,
            Self::Relay(relay) if relay.serves() => Events::Logged,
            _ => Events::Told,
        }
    }

    /// Returns whether it never streams, so that nothing else tells why streams would be refused.
    fn works_on_files(&self) -> bool {
        matches!(
            self,
            Self::Xdf(_)
                | Self::Lock(_)
                | Self::Unlock(_)
                | Self::Rotate(_)
                | Self::Verify(_)
                | Self::Audit(_)
        )
    }
}

impl Cli {
    fn run(&self) -> Outcome {
        let context = || self.globals.context();
        if matches!(
            self.command,
            Command::Gen(_) | Command::Record(_) | Command::Play(_) | Command::Relay(_)
        ) {
            stay_awake();
        }
        if self.command.works_on_files() {
            self.globals.warn_of_encryption_request();
        }
        match &self.command {
            Command::Demo(demo) => demo.run(),
            Command::List(list) => list.run(&self.globals.context_for_looking()?),
            Command::Info(info) => info.run(&context()?),
            Command::Gen(generate) => generate.run(&context()?),
            Command::Recv(recv) => recv.run(&context()?),
            Command::Record(record) => record.run(&context()?),
            Command::Play(play) => play.run(&context()?),
            Command::Xdf(xdf) => xdf.run(),
            Command::Lock(lock) => lock.run(),
            Command::Unlock(unlock) => unlock.run(),
            Command::Rotate(rotate) => rotate.run(),
            Command::Verify(verify) => verify.run(),
            Command::Doctor(doctor) => doctor.run(&self.globals),
            Command::Watch(watch) => watch.run(&self.globals),
            Command::Time(time) => time.run(&context()?),
            Command::Config(config) => config.run(&self.globals),
            Command::Key(key) => key.run(),
            Command::Trust(trust) => trust.run(&self.globals),
            Command::Security(security) => security.run(&self.globals),
            Command::Audit(audit) => audit.run(),
            Command::Bench(bench) => bench.run(&self.globals),
            Command::Relay(relay) => relay.run(&self.globals),
            Command::Deploy(deploy) => deploy.run(&self.globals),
            Command::Completions(completions) => completions.run(command()),
            Command::Man(manual) => manual.run(command()),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn arguments_are_consistent() {
        Cli::command().debug_assert();
    }
}
