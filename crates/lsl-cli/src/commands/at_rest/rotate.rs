//! `lsl rotate`: changes the recipients of encrypted files.

use std::path::PathBuf;

use clap::Args;
use lsl_xdf::at_rest::{self, Options, Rewrap};

use super::report::{Deed, FileReporter, add_passphrase, cancel_on_interrupt, is_pipe};
use crate::failure::{Failure, Outcome};
use crate::files::at_rest_keys::{IdentityArgs, RecipientArgs};

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Rotate {
    /// Encrypted files
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,

    /// Encrypt everything anew, under a new file key: for when somebody who could open the file must not
    /// be able to any more
    #[arg(long)]
    rekey: bool,

    /// Print one JSON object for each file, a line each
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    recipients: RecipientArgs,

    #[command(flatten)]
    identity: IdentityArgs,
}

const EXAMPLES: &str = "\
Examples:
  lsl rotate -i key.txt -R lab.txt *.xdf.age
  lsl rotate -i key.txt -R lab.txt --rekey today.xdf.age

The new recipients take the place of all old ones. Without --rekey only the head of a file changes,
at the speed of copying: whoever could open it before and kept its file key, or a copy, still can. A
file is replaced in one step, when the new one is on the disk.";

impl Rotate {
    pub(crate) fn run(&self) -> Outcome {
        if is_pipe(&self.files)? {
            return Err(Failure::Usage("rotate works on files in place".into()));
        }
        let mut identities = self.identity.identities()?;
        add_passphrase(&mut identities, &self.files)?;
        let recipients = self.recipients.required()?;
        let rewrap = if self.rekey {
            Rewrap::Everything
        } else {
            Rewrap::Header
        };
        let cancel = cancel_on_interrupt()?;
        let report = FileReporter::new(self.json, Deed::Rotate, &self.files, Some(&recipients));
        let options = Options {
            cancel: Some(&cancel),
            watch: Some(&report),
            ..Options::default()
        };
        let outcomes = at_rest::rotate(&self.files, &identities, &recipients, rewrap, &options);
        report.end(&outcomes, &cancel)
    }
}
