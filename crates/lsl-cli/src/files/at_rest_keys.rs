//! Keys that may open recordings: the options that name recipients and identities.
//! `lsl_xdf::at_rest` reads the keys.

use std::path::PathBuf;

use clap::Args;
use lsl_xdf::at_rest::{self, ErrorKind, Identities, Recipients};

use crate::failure::{Failure, Outcome};
use crate::ui::prompt;

/// Options that name the recipients of encrypted files.
#[derive(Debug, Args)]
#[command(next_help_heading = "Who can open what is written")]
pub(crate) struct RecipientArgs {
    /// Lock for this key: age1... or a line of an SSH public key file (ssh-ed25519); may be repeated
    #[arg(long = "recipient", short = 'r', value_name = "KEY")]
    recipients: Vec<String>,

    /// Lock for all keys in this file, one a line (id_ed25519.pub is such a file); may be repeated
    #[arg(long, short = 'R', value_name = "FILE")]
    recipients_file: Vec<PathBuf>,

    /// Lock with a passphrase, which is asked for
    #[arg(long, conflicts_with_all = ["recipients", "recipients_file"])]
    passphrase: bool,
}

impl RecipientArgs {
    /// Returns the keys that can open the files; `None` if none is named. May ask for a passphrase.
    pub(crate) fn recipients(&self) -> Outcome<Option<Recipients>> {
        if self.passphrase {
            let passphrase = prompt::ask_new("the recording")?;
            return Ok(Some(Recipients::with_passphrase(&passphrase)));
        }
        let mut recipients = Recipients::new();
        for text in &self.recipients {
            recipients.add("--recipient", text)?;
        }
        for path in &self.recipients_file {
            let added = recipients.add_file(path);
            added.map_err(|error| named(error, &path.display().to_string()))?;
        }
        Ok((!recipients.is_empty()).then_some(recipients))
    }

    /// Returns whether a passphrase will be asked for.
    pub(crate) fn asks(&self) -> bool {
        self.passphrase
    }

    /// Returns the [`recipients`](Self::recipients), or an error if none is named.
    pub(crate) fn required(&self) -> Outcome<Recipients> {
        self.recipients()?.ok_or_else(|| {
            Failure::Usage(
                "nobody could open the file: name who can with --recipient KEY or \
                 --recipients-file FILE, or lock it with --passphrase (`lsl key age` makes a key)"
                    .into(),
            )
        })
    }
}

/// Options that name the keys to open files.
#[derive(Debug, Args)]
#[command(next_help_heading = "Opening encrypted recordings")]
pub(crate) struct IdentityArgs {
    /// File with the secret key that opens the recording: of age, or an SSH private key (Ed25519);
    /// may be repeated. A recording locked with a passphrase asks for it
    #[arg(long, short = 'i', value_name = "FILE")]
    identity: Vec<PathBuf>,
}

impl IdentityArgs {
    /// Reads the keys in the files; asks for the passphrases of those that have one.
    pub(crate) fn identities(&self) -> Outcome<Identities> {
        let mut identities = Identities::new();
        let mut trouble = None;
        for path in &self.identity {
            let mut ask = |name: &str| match prompt::ask(&format!("Passphrase for {name}: ")) {
                Ok(typed) => Some(typed),
                Err(failure) => {
                    trouble = Some(failure);
                    None
                }
            };
            let added = identities.add_file(path, &mut ask);
            if let Some(failure) = trouble.take() {
                return Err(failure);
            }
            added.map_err(|error| named(error, &path.display().to_string()))?;
        }
        Ok(identities)
    }
}

/// Adds the name of a key file to its error, unless it is named already.
fn named(error: at_rest::Error, name: &str) -> Failure {
    let has_name = error.to_string().contains(name);
    let failure = Failure::from(error);
    if has_name {
        failure
    } else {
        failure.context(name)
    }
}

impl From<at_rest::Error> for Failure {
    fn from(error: at_rest::Error) -> Self {
        match error {
            at_rest::Error::Io(error) => error.into(),
            error if error.kind() == ErrorKind::Argument => Self::Usage(error.to_string()),
            error => Self::Runtime(error.to_string()),
        }
    }
}

impl From<lsl_xdf::Error> for Failure {
    fn from(error: lsl_xdf::Error) -> Self {
        match error {
            lsl_xdf::Error::Argument(text) => Self::Usage(text),
            lsl_xdf::Error::Io { doing, source } => match at_rest::Error::from_io(source) {
                // A pipe whose reader has gone is no error.
                at_rest::Error::Io(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {
                    Self::ReaderLeft
                }
                error @ at_rest::Error::Cancelled => error.into(),
                error => Self::Runtime(format!("cannot {doing}: {error}")),
            },
            error => Self::Runtime(error.to_string()),
        }
    }
}
