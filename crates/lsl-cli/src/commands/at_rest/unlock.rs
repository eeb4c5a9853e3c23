//! `lsl unlock`: decrypts files in whole, or their intact beginning.

use std::path::PathBuf;

use clap::Args;
use lsl_platform::stream;
use lsl_xdf::at_rest::{self, Ending, Options, Source, Work, unlock_stream, unlocked_name};

use super::lock::{existing, tasks};
use super::report::{Deed, FileReporter, add_passphrase, cancel_on_interrupt, is_pipe};
use crate::failure::{Failure, Outcome};
use crate::files::at_rest_keys::IdentityArgs;
use crate::ui::notice::note;

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "switches of a command line, not states"
)]
pub(crate) struct Unlock {
    /// Files to decrypt, each FILE.age into FILE; - decrypts standard input to standard output
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,

    /// Write the one decrypted file here
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Also write what is whole of files that a crash cut off
    #[arg(long)]
    tolerant: bool,

    /// Remove each encrypted FILE once the decrypted one is on the disk
    #[arg(long)]
    remove: bool,

    /// Replace files that are there already
    #[arg(long)]
    force: bool,

    /// Print one JSON object for each file, a line each
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    identity: IdentityArgs,
}

const EXAMPLES: &str = "\
Examples:
  lsl unlock -i key.txt today.xdf.age
  lsl unlock -i ~/.ssh/id_ed25519 *.age
  lsl unlock today.xdf.age                     asks for a passphrase if it was locked with one
  lsl unlock -i key.txt --tolerant today.xdf.age
  lsl unlock -i key.txt - < study.tar.age | tar x

A file appears only when all of it is authentic. Reading a recording takes no unlocking: `lsl xdf`
and `lsl play` take --identity, too. In a pipe, what was authentic before a cut has been written when
the exit status 1 tells of it.";

impl Unlock {
    pub(crate) fn run(&self) -> Outcome {
        let mut identities = self.identity.identities()?;
        let ending = if self.tolerant {
            Ending::Tolerant
        } else {
            Ending::Strict
        };
        if is_pipe(&self.files)? {
            // A pipe leaves nothing behind, so Ctrl-C keeps its usual meaning.
            let work = Work::new();
            let (input, output) = (stream::input()?, stream::output()?);
            let passed = unlock_stream(input, output, &identities, ending, &work)?;
            if passed.end != at_rest::End::Whole {
                note("lsl: the encrypted data is cut off: what was whole of it is written");
            }
            return Ok(());
        }
        add_passphrase(&mut identities, &self.files)?;
        let tasks = tasks(&self.files, self.output.as_ref(), |file| {
            unlocked_name(file).ok_or_else(|| {
                Failure::Usage(format!(
                    "{}: its name does not end in .age; say where to with --output FILE",
                    file.display()
                ))
            })
        })?;
        let cancel = cancel_on_interrupt()?;
        let report = FileReporter::new(self.json, Deed::Unlock, &self.files, None);
        let options = Options {
            existing: existing(self.force),
            source: if self.remove {
                Source::Remove
            } else {
                Source::Keep
            },
            ending,
            cancel: Some(&cancel),
            watch: Some(&report),
            ..Options::default()
        };
        let outcomes = at_rest::unlock(&tasks, &identities, &options);
        report.end(&outcomes, &cancel)
    }
}
