//! `lsl trust remove`: cuts an entry out of the trust file.

use clap::Args;
use lsl_core::secure::trust::{Peer, TrustList};
use lsl_core::secure::trust_changes;

use super::edit;
use crate::failure::{Failure, Outcome};
use crate::files::place::PlaceArgs;
use crate::files::security_log;
use crate::files::trust::TrustFile;
use crate::ui::notice::note;
use crate::ui::text::printable;

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Remove {
    /// Name, key (lsl-ed25519:...) or fingerprint (SHA256:..., in full) of the device
    #[arg(value_name = "DEVICE")]
    device: String,

    #[command(flatten)]
    place: PlaceArgs,
}

const EXAMPLES: &str = "\
Examples:
  lsl trust remove rec1
  lsl trust remove SHA256:...    when two entries have the same name

Programs that run notice it: sessions with that device end within 5 seconds. A stolen or lost device
must be removed on every machine that names it, or from the lab's common file.";

impl Remove {
    pub(super) fn run(&self) -> Outcome {
        let place = self.place.find()?;
        let file = TrustFile::read(place.trust_file()?)?;
        let index = find(&self.device, file.list.peers())?;
        let mut peers = file.list.peers().to_vec();
        let gone = peers.remove(index);
        let expected = TrustList::from_peers(peers)?;
        let text = edit::remove(&file.text, index).unwrap_or_default();
        file.replace(&text, &expected)?;
        security_log::record(&place.settings, trust_changes(&file.list, &expected));
        note(format_args!(
            "{} ({}) is no longer trusted; sessions with it end within 5 seconds.",
            printable(&gone.name),
            gone.key.fingerprint()
        ));
        Ok(())
    }
}

/// Returns the index of the one entry that `device` names.
fn find(device: &str, peers: &[Peer]) -> Outcome<usize> {
    let is_meant = |peer: &Peer| {
        peer.name == device
            || peer.key.to_string() == device
            || peer.key.fingerprint().to_string() == device
    };
    let list = |indices: &[usize]| -> String {
        let line = |index: &usize| {
            let peer = &peers[*index];
            format!("  {}  {}\n", peer.key.fingerprint(), printable(&peer.name))
        };
        indices.iter().map(line).collect()
    };
    let found: Vec<usize> = (0..peers.len()).filter(|i| is_meant(&peers[*i])).collect();
    match found.as_slice() {
        [index] => Ok(*index),
        [] => {
            let all: Vec<usize> = (0..peers.len()).collect();
            Err(Failure::NotFound(format!(
                "no entry has this name, key or fingerprint: {}\nThere are:\n{}",
                printable(device),
                if all.is_empty() {
                    "  none\n".into()
                } else {
                    list(&all)
                }
                .trim_end()
            )))
        }
        several => Err(Failure::Usage(format!(
            "{} entries are called {}; remove one by its fingerprint:\n{}",
            several.len(),
            printable(device),
            list(several).trim_end()
        ))),
    }
}
