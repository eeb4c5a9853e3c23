//! `lsl key passwd`: the passphrase of the device key.

use clap::Args;
use lsl_core::secure::audit::{Event, EventKind};
use lsl_core::secure::keyfile;

use crate::failure::{Failure, Outcome};
use crate::files::place::PlaceArgs;
use crate::files::security_log;
use crate::ui::notice::note;
use crate::ui::prompt;

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Passwd {
    #[command(flatten)]
    place: PlaceArgs,

    /// Store the key without a passphrase
    #[arg(long)]
    remove: bool,
}

const EXAMPLES: &str = "\
Examples:
  lsl key passwd             set a passphrase, or change it
  lsl key passwd --remove    for unattended devices (encrypt their disk instead)

The old passphrase comes from passphrase_file if the configuration names one, else it is asked for,
as is the new one. Without a terminal, each is one line of standard input, the old one first. The
key itself stays the same: other machines notice nothing.";

impl Passwd {
    pub(super) fn run(&self) -> Outcome {
        let place = self.place.find()?;
        let path = place.key_file()?;
        let encrypted = keyfile::is_encrypted(path)?;
        if self.remove && !encrypted {
            return Err(Failure::Usage(format!(
                "{} has no passphrase",
                path.display()
            )));
        }
        let key = place.key()?;
        let new = if self.remove {
            None
        } else {
            Some(prompt::ask_new(&path.display().to_string())?)
        };
        keyfile::replace_key(path, &key, new.as_ref().map(|text| text.as_str()))?;
        let event = Event::new(EventKind::KeyMade).peer(key.public().fingerprint());
        let action = if self.remove {
            "passwd_removed"
        } else {
            "passwd"
        };
        security_log::record(&place.settings, [event.with("action", action)]);
        match (&new, &place.settings.passphrase_file) {
            (None, None) => note(format_args!("{}: no passphrase any more.", path.display())),
            (None, Some(file)) => note(format_args!(
                "{}: no passphrase any more. passphrase_file in {} is not needed: empty it, and \
                 delete {}.",
                path.display(),
                place.file.display(),
                file.display()
            )),
            (Some(_), Some(file)) => note(format_args!(
                "{}: new passphrase. Write it to {} too, or nothing will start.",
                path.display(),
                file.display()
            )),
            (Some(_), None) => note(format_args!(
                "{}: new passphrase. Only `lsl` can ask for it; other programs need a file with it \
                 (mode 0600),\nnamed by passphrase_file in {}.",
                path.display(),
                place.file.display()
            )),
        }
        Ok(())
    }
}
