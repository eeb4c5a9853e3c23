//! `lsl key show`: the public part of this device's key.

use std::io::{self, Write};
use std::path::PathBuf;

use clap::Args;
use lsl_core::secure::keyfile;
use serde::Serialize;

use crate::failure::Outcome;
use crate::files::device::trust_add;
use crate::files::place::{NEXT_KEY_NAME, PlaceArgs};
use crate::ui::text::printable;

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Show {
    #[command(flatten)]
    place: PlaceArgs,

    /// Print only the public key, `lsl-ed25519:...`
    #[arg(long, conflicts_with = "json")]
    public: bool,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  lsl key show               fingerprint, to compare with what another machine shows
  lsl key show --public      the text for `lsl trust add` on other machines
  lsl key show --dir /etc/lsl_api
  lsl key show --json | jq -r .fingerprint

Nothing of this is secret. Compare fingerprints in full: whoever calls himself amp1 can make keys
until the first letters agree. A key with a passphrase asks for it.";

/// Key as shown: the object of `--json`.
#[derive(Debug, Serialize)]
struct ShownKey {
    name: String,
    fingerprint: String,
    public_key: String,
    key_file: PathBuf,
    encrypted: bool,
    next_key_file: Option<PathBuf>,
    configuration: PathBuf,
}

impl Show {
    pub(super) fn run(&self) -> Outcome {
        let place = self.place.find()?;
        let path = place.key_file()?;
        let encrypted = keyfile::is_encrypted(path)?;
        let public = place.key()?.public();
        let next = path.with_file_name(NEXT_KEY_NAME);
        let shown = ShownKey {
            name: place.settings.name.clone(),
            fingerprint: public.fingerprint().to_string(),
            public_key: public.to_string(),
            key_file: path.to_owned(),
            encrypted,
            next_key_file: next.exists().then_some(next),
            configuration: place.file.clone(),
        };
        let mut out = io::stdout().lock();
        if self.public {
            writeln!(out, "{public}")?;
        } else if self.json {
            serde_json::to_writer_pretty(&mut out, &shown)?;
            writeln!(out)?;
        } else {
            writeln!(out, "name          {}", printable(&shown.name))?;
            writeln!(out, "fingerprint   {}", shown.fingerprint)?;
            writeln!(out, "public key    {}", shown.public_key)?;
            let protection = match (encrypted, &place.settings.passphrase_file) {
                (false, _) => "no passphrase".to_owned(),
                (true, None) => "passphrase protected, asked for by `lsl` only".to_owned(),
                (true, Some(file)) => format!("passphrase in {}", file.display()),
            };
            writeln!(out, "key file      {} ({protection})", path.display())?;
            if let Some(next) = &shown.next_key_file {
                writeln!(out, "next key      {} (not in use yet)", next.display())?;
            }
            writeln!(out, "configured in {}", place.file.display())?;
            writeln!(out, "\nelsewhere run {}", trust_add(&shown.name, &public))?;
        }
        Ok(out.flush()?)
    }
}
