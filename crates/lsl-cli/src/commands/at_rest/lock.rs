//! `lsl lock`: encrypts files for age recipients or with a passphrase.

use std::path::PathBuf;

use clap::Args;
use lsl_platform::stream;
use lsl_xdf::at_rest::{self, Existing, Options, Source, Task, Work, lock_stream, locked_name};

use super::report::{Deed, FileReporter, cancel_on_interrupt, is_pipe};
use crate::failure::{Failure, Outcome};
use crate::files::at_rest_keys::RecipientArgs;

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Lock {
    /// Files to encrypt, each into FILE.age; - encrypts standard input to standard output
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,

    /// Write the one encrypted file here
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Remove each FILE once its encrypted copy is on the disk. This is no erasure: disks may keep what
    /// was removed for long
    #[arg(long)]
    remove: bool,

    /// Replace encrypted files that are there already
    #[arg(long)]
    force: bool,

    /// Print one JSON object for each file, a line each
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    recipients: RecipientArgs,
}

const EXAMPLES: &str = "\
Examples:
  lsl lock -R lab.txt --remove *.xdf           what is there, for everybody in lab.txt
  lsl lock -r age1... today.xdf
  lsl lock -R ~/.ssh/id_ed25519.pub today.xdf  for whoever has that SSH key
  lsl lock --passphrase today.xdf
  tar c study | lsl lock -r age1... - > study.tar.age

The format is age v1: `age -d -i KEY` opens the files, too. `lsl record -r` encrypts from the start,
so that no plaintext ever lies on a disk. Any file can be locked. Files are worked on in parallel; one
that cannot be locked leaves nothing behind, and the exit status is 1 (2 for wrong usage).";

impl Lock {
    pub(crate) fn run(&self) -> Outcome {
        let is_pipe = is_pipe(&self.files)?;
        if is_pipe && self.recipients.asks() {
            return Err(Failure::Usage(
                "with - standard input is the data, and no passphrase can be asked for: lock to a \
                 key with --recipient"
                    .into(),
            ));
        }
        let recipients = self.recipients.required()?;
        if is_pipe {
            // A pipe leaves nothing behind, so Ctrl-C keeps its usual meaning.
            let work = Work::new();
            let (input, output) = (stream::input()?, stream::output()?);
            lock_stream(input, output, &recipients, &work)?;
            return Ok(());
        }
        let cancel = cancel_on_interrupt()?;
        let report = FileReporter::new(self.json, Deed::Lock, &self.files, Some(&recipients));
        let options = Options {
            existing: existing(self.force),
            source: if self.remove {
                Source::Remove
            } else {
                Source::Keep
            },
            cancel: Some(&cancel),
            watch: Some(&report),
            ..Options::default()
        };
        let tasks = tasks(&self.files, self.output.as_ref(), |file| {
            Ok(locked_name(file))
        })?;
        let outcomes = at_rest::lock(&tasks, &recipients, &options);
        report.end(&outcomes, &cancel)
    }
}

pub(super) fn existing(force: bool) -> Existing {
    if force {
        Existing::Replace
    } else {
        Existing::Refuse
    }
}

/// Pairs each file with the name of its result: `output`, or one made by `name`.
pub(super) fn tasks(
    files: &[PathBuf],
    output: Option<&PathBuf>,
    name: impl Fn(&PathBuf) -> Outcome<PathBuf>,
) -> Outcome<Vec<Task>> {
    if output.is_some() && files.len() > 1 {
        return Err(Failure::Usage("--output is for one FILE".into()));
    }
    let task = |file: &PathBuf| {
        Ok(Task {
            from: file.clone(),
            to: output.map_or_else(|| name(file), |output| Ok(output.clone()))?,
        })
    };
    files.iter().map(task).collect()
}
