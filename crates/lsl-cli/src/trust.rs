//! `lsl trust`: which devices may exchange streams with this one. Each action is one file of `trust/`.

mod add;
mod check;
mod edit;
mod export;
mod list;
mod remove;

use std::fs;
use std::path::Path;
use std::time::UNIX_EPOCH;

use clap::{Args, Subcommand};
use lsl_core::secure::files::{self, Content};
use lsl_core::secure::trust::{Date, TrustList, today};
use lsl_platform::append;

pub(crate) use self::list::expiry;
use crate::failure::{Failure, Outcome};
use crate::globals::Globals;

/// `lsl trust`
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Trust {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
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
            Action::Add(add) => add.run(),
            Action::List(list) => list.run(),
            Action::Remove(remove) => remove.run(),
            Action::Check(check) => check.run(globals),
            Action::Export(export) => export.run(),
        }
    }
}

/// Trust file as read: its text and its entries.
#[derive(Debug)]
struct TrustFile<'a> {
    path: &'a Path,
    text: String,
    list: TrustList,
}

impl<'a> TrustFile<'a> {
    fn read(path: &'a Path) -> Outcome<Self> {
        let text = files::read_text(path, Content::Shared)?;
        let list = TrustList::parse(&text, path)?;
        list.check_streams(path, &lsl_proto::describe::stream_queries())?;
        Ok(Self {
            path,
            text: text.to_string(),
            list,
        })
    }

    /// Replaces the file by `text`, which must say exactly `expected`.
    fn replace(&self, text: &str, expected: &TrustList) -> Outcome {
        let list = TrustList::parse(text, self.path)?;
        if list.peers() != expected.peers() {
            return Err(Failure::Runtime(format!(
                "{}: this file is written in a way that cannot be changed automatically; edit it by \
                 hand",
                self.path.display()
            )));
        }
        // Two commands at once must not undo each other. The lock is the directory's, since the file
        // is another one afterwards; where there are no locks, looking again must do.
        let directory = fs::canonicalize(self.path)
            .ok()
            .and_then(|path| fs::File::open(path.parent()?).ok());
        let _locked = directory
            .as_ref()
            .and_then(|directory| append::lock(directory).ok());
        let now = files::read_text(self.path, Content::Shared)?;
        if *now != self.text {
            return Err(Failure::Runtime(format!(
                "{}: somebody else changed it just now; run the command again",
                self.path.display()
            )));
        }
        files::replace(self.path, text.as_bytes()).map_err(|error| {
            let denied = error.to_string().contains("Permission denied");
            let advice = if denied {
                "; run it as its owner, or by sudo"
            } else {
                ""
            };
            Failure::Runtime(format!("{error}{advice}"))
        })
    }

    fn today(&self) -> Date {
        today_for(Some(self.path))
    }
}

/// Reads the list in a trust file.
pub(crate) fn read(path: &Path) -> Outcome<TrustList> {
    TrustFile::read(path).map(|file| file.list)
}

/// Returns the day by which the dates in a trust file are judged.
pub(crate) fn today_for(file: Option<&Path>) -> Date {
    let modified = file
        .and_then(|path| fs::metadata(path).ok()?.modified().ok())
        .and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    today(lsl_platform::clock::utc_now(), modified)
}
