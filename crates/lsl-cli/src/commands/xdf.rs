//! `lsl xdf`: looks into recordings, checks, repairs, salvages and converts them. Each action is
//! one file of `xdf/`; `lsl_xdf` knows the format.

mod check;
mod convert;
mod info;
mod output;
mod repair;
mod salvage;

use clap::{Args, Subcommand};

use crate::failure::Outcome;

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Xdf {
    #[command(subcommand)]
    action: XdfCommand,
}

#[derive(Debug, Subcommand)]
enum XdfCommand {
    /// Show what recordings contain
    #[command(after_help = info::EXAMPLES)]
    Info(info::Info),
    /// Say whether recordings are whole
    #[command(after_help = check::EXAMPLES)]
    Check(check::Check),
    /// Make recordings whole again, as after a crash
    #[command(after_help = repair::EXAMPLES)]
    Repair(repair::Repair),
    /// Save what can be read of a recording that is badly damaged
    #[command(after_help = salvage::EXAMPLES)]
    Salvage(salvage::Salvage),
    /// Write the streams of recordings as tables
    #[command(after_help = convert::EXAMPLES)]
    Convert(convert::Convert),
}

const EXAMPLES: &str = "\
Examples:
  lsl xdf info today.xdf        which streams, how long?
  lsl xdf check today.xdf       is it whole?
  lsl xdf repair today.xdf      make it whole after a crash
  lsl xdf convert today.xdf     a table for each stream

FILE may be an XDF file, one compressed with gzip (.xdfz), or one encrypted by `lsl record -r` or
`lsl lock` (.xdf.age) given --identity. Files of LabRecorder and other programs are read as well.";

impl Xdf {
    pub(crate) fn run(&self) -> Outcome {
        match &self.action {
            XdfCommand::Info(info) => info.run(),
            XdfCommand::Check(check) => check.run(),
            XdfCommand::Repair(repair) => repair.run(),
            XdfCommand::Salvage(salvage) => salvage.run(),
            XdfCommand::Convert(convert) => convert.run(),
        }
    }
}
