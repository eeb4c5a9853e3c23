//! `lsl verify`: whether encrypted files can be opened and are whole.

use std::path::PathBuf;

use clap::Args;
use lsl_xdf::at_rest::{self, Options};

use super::report::{Report, add_passphrase, cancel_on_interrupt, is_pipe};
use crate::at_rest_keys::IdentityArgs;
use crate::failure::{Failure, Outcome};

/// `lsl verify`
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Verify {
    /// Encrypted files
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,

    /// Print one JSON object for each file, a line each
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    identity: IdentityArgs,
}

const EXAMPLES: &str = "\
Examples:
  lsl verify -i key.txt *.xdf.age
  lsl verify -i key.txt --json *.xdf.age | jq -r 'select(.error) | .file'

Opens every byte and writes nothing. What it proves: the key fits, nothing is missing at the end, and
nothing was changed by anybody who could not have made the whole file anew. Everybody a file is locked
to could have. Exit status 1 when a file is cut off, changed, or locked to others.";

impl Verify {
    /// Runs the command.
    pub(crate) fn run(&self) -> Outcome {
        if is_pipe(&self.files)? {
            return Err(Failure::Usage("verify works on files".into()));
        }
        let mut identities = self.identity.identities()?;
        add_passphrase(&mut identities, &self.files)?;
        let cancel = cancel_on_interrupt()?;
        let report = Report::new(self.json, "Verifying", "verified", &self.files);
        let options = Options {
            cancel: Some(&cancel),
            watch: Some(&report),
            ..Options::default()
        };
        let outcomes = at_rest::verify(&self.files, &identities, &options);
        report.end(&outcomes, &cancel)
    }
}
