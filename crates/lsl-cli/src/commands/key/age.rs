//! `lsl key age`: a key pair for encrypted recordings.

use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;

use clap::Args;
use lsl_platform::calendar::rfc3339;
use lsl_platform::clock::utc_now;
use lsl_platform::files::{Who, create_new};
use lsl_xdf::at_rest::KeyPair;
use zeroize::Zeroizing;

use crate::failure::{Failure, Outcome};
use crate::ui::notice::note;

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct MakeAge {
    /// File to make; it will hold the secret key
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

const EXAMPLES: &str = "\
Examples:
  lsl key age key.txt                        prints the public key, age1...
  lsl key age key.txt > lab.txt              and keeps it for --recipients-file lab.txt

Recordings are encrypted for the public key (`lsl record -r`, `lsl lock -r`) and opened with the file
(--identity). The machine that records needs the public key only: keep the file elsewhere, with a
copy in a safe place. Without it recordings are lost. `age-keygen` makes the same kind of file.";

impl MakeAge {
    pub(super) fn run(&self) -> Outcome {
        let named =
            |error: io::Error| Failure::from(error).context(&self.file.display().to_string());
        let pair = KeyPair::generate();
        let created = rfc3339(utc_now());
        let text = Zeroizing::new(format!(
            "# created: {created}\n# public key: {}\n{}\n",
            pair.recipient,
            pair.identity.as_str()
        ));
        let mut file = create_new(&self.file, Who::Owner).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => Failure::Usage(format!(
                "{} exists already; a key is never replaced",
                self.file.display()
            )),
            _ => named(error),
        })?;
        let written = file
            .write_all(text.as_bytes())
            .and_then(|()| file.sync_all());
        written.map_err(|error| {
            let _ = fs::remove_file(&self.file);
            named(error)
        })?;
        note(format_args!(
            "{} holds the secret key: keep it, and a copy in a safe place. The public key:",
            self.file.display()
        ));
        let mut out = io::stdout().lock();
        writeln!(out, "{}", pair.recipient)?;
        Ok(out.flush()?)
    }
}
