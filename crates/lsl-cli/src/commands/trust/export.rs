//! `lsl trust export`: the common trust file of a lab.

use std::io::{self, Write};
use std::path::PathBuf;

use clap::Args;
use lsl_core::secure::trust::{Peer, TrustList, TrustedRole};
use lsl_platform::files::{Who, create_new};

use crate::failure::{Failure, Outcome};
use crate::files::place::PlaceArgs;
use crate::files::trust::TrustFile;
use crate::ui::notice::note;
use crate::ui::text;

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Export {
    /// Write to a new file instead of standard output
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,

    #[command(flatten)]
    place: PlaceArgs,
}

const EXAMPLES: &str = "\
Examples:
  lsl trust export -o trusted_peers.toml
  lsl trust export -o lab.toml && scp lab.toml rec1:lsl_api/trusted_peers.toml

All devices that this one trusts, and this one itself. Every machine may use the same file in place
of its own: N devices need one file, not N times N entries. It is not secret, but who can change it
decides who is trusted.";

impl Export {
    pub(super) fn run(&self) -> Outcome {
        let place = self.place.find()?;
        let file = TrustFile::read(place.trust_file()?)?;
        let own = place.key()?.public();
        let mut peers = file.list.peers().to_vec();
        if file.list.find(&own).is_none() {
            peers.push(Peer {
                name: place.settings.name.clone(),
                key: own,
                role: TrustedRole::Both,
                not_after: None,
                from: Vec::new(),
                streams: Vec::new(),
            });
        }
        let count = peers.len();
        let list = TrustList::from_peers(peers)?;
        let text = format!("{HEAD}\n{}", list.to_toml());
        let Some(path) = &self.output else {
            let mut out = io::stdout().lock();
            out.write_all(text.as_bytes())?;
            return Ok(out.flush()?);
        };
        let refuse = |error: io::Error| {
            let advice = match error.kind() {
                io::ErrorKind::AlreadyExists => "; nothing is overwritten, move it away first",
                _ => "",
            };
            Failure::Runtime(format!("{}: {error}{advice}", path.display()))
        };
        // With a umask that lets the group write, the copies would be refused.
        let mut out = create_new(path, Who::Everybody).map_err(refuse)?;
        out.write_all(text.as_bytes()).map_err(refuse)?;
        note(format_args!(
            "{}: {}. Copy it to every machine as trusted_peers.toml beside its \
             lsl-secure.toml.",
            path.display(),
            text::count(count, "device")
        ));
        Ok(())
    }
}

const HEAD: &str = "\
# The devices of the lab, made by `lsl trust export`; the same file on every machine.
# Not secret. Changes take effect within 5 seconds, also on running programs.
";
