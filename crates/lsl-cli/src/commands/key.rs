//! `lsl key`: this device's identity. Each action is one file of `key/`.

mod age;
mod init;
mod passwd;
mod psk;
mod show;

use clap::{Args, Subcommand};

use crate::failure::Outcome;

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Key {
    #[command(subcommand)]
    action: KeyCommand,
}

#[derive(Debug, Subcommand)]
enum KeyCommand {
    /// Make this device's key and switch encryption on
    Init(init::Init),
    /// Show the fingerprint and the public key, which others need
    Show(show::Show),
    /// Set, change or remove the passphrase of the key
    Passwd(passwd::Passwd),
    /// Make the lab's optional pre-shared key
    Psk(psk::MakePsk),
    /// Make a key pair for encrypted recordings
    Age(age::MakeAge),
}

const EXAMPLES: &str = "\
Examples:
  lsl key init --name amp1     make a key; prints what to run on the other machines
  lsl key show                 fingerprint and public key
  lsl key show --public        only the text that others need
  lsl key passwd               protect the key with a passphrase

A key makes the policy of this machine 'required': it sends and reads encrypted streams only, and
only with machines that `lsl trust add` named. `lsl security status` shows how things stand.";

impl Key {
    pub(crate) fn run(&self) -> Outcome {
        match &self.action {
            KeyCommand::Init(init) => init.run(),
            KeyCommand::Show(show) => show.run(),
            KeyCommand::Passwd(passwd) => passwd.run(),
            KeyCommand::Psk(psk) => psk.run(),
            KeyCommand::Age(age) => age.run(),
        }
    }
}
