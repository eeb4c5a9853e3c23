//! `lsl trust`: which devices may exchange streams with this one. Each action is one file of `trust/`.

mod add;
mod check;
mod edit;
mod export;
mod list;
mod remove;

use clap::{Args, Subcommand};

use crate::failure::Outcome;
use crate::globals::Globals;

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Trust {
    #[command(subcommand)]
    action: TrustCommand,
}

#[derive(Debug, Subcommand)]
enum TrustCommand {
    /// Trust a device
    Add(add::Add),
    /// Show the trusted devices
    List(list::List),
    /// Trust a device no longer
    Remove(remove::Remove),
    /// Open a session with every visible outlet and say who refuses whom, and why
    Check(check::Check),
    /// Print one trust file for all machines of the lab
    Export(export::Export),
}

const EXAMPLES: &str = "\
Examples:
  lsl trust add amp1 lsl-ed25519:... --role outlet   we may read amp1's streams
  lsl trust add rec1 lsl-ed25519:... --role inlet    rec1 may read ours
  lsl trust check                                    does everything work?
  lsl trust remove rec1                              also ends its sessions, within 5 seconds
  lsl trust export -o trusted_peers.toml             one file for all machines

Trust goes one way: both machines must name each other. `lsl key show` prints what to run elsewhere.
Entries are kept in trusted_peers.toml beside lsl-secure.toml.";

impl Trust {
    pub(crate) fn run(&self, globals: &Globals) -> Outcome {
        match &self.action {
            TrustCommand::Add(add) => add.run(),
            TrustCommand::List(list) => list.run(),
            TrustCommand::Remove(remove) => remove.run(),
            TrustCommand::Check(check) => check.run(globals),
            TrustCommand::Export(export) => export.run(),
        }
    }
}
