//! `lsl key psk`: the lab's optional pre-shared key. Spec: LSS/1 §6.3.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use clap::Args;
use lsl_core::secure::audit::{Event, EventKind};
use lsl_core::secure::keyfile;
use lsl_platform::files::give;
use lsl_platform::remedy;

use crate::failure::{Failure, Outcome};
use crate::files::place::{self, PSK_NAME, PlaceArgs};
use crate::files::security_log;

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct MakePsk {
    #[command(flatten)]
    place: PlaceArgs,
}

const EXAMPLES: &str = "\
Examples:
  lsl key psk                makes lab.psk beside lsl-secure.toml, once in a lab

All machines need the same file: with it, traffic that somebody records today stays secret even from
a future quantum computer, and a stolen device key alone opens nothing. It is secret: carry it on a
USB stick, not by mail. Machines with and without it cannot talk, so switch all of them at once.";

impl MakePsk {
    pub(super) fn run(&self) -> Outcome {
        let place = self.place.find()?;
        if let Some(file) = &place.settings.psk_file {
            return Err(Failure::Runtime(format!(
                "{} already names {} as psk_file; it changes on all machines at once or not at \
                 all.\nTo change it, move that file away, remove the line, and run this again.",
                place.file.display(),
                file.display()
            )));
        }
        let path = place.file.with_file_name(PSK_NAME);
        let owner = place::owner_to_keep(place.key_file()?)?;
        keyfile::write_new_psk(&path)?;
        // Never through a link, which the owner of the directory may just have put there.
        give(&path, owner.as_ref()).map_err(|error| {
            let _ = fs::remove_file(&path);
            Failure::Runtime(format!(
                "{}: giving it to the key's owner: {error}",
                path.display()
            ))
        })?;
        let event = Event::new(EventKind::KeyMade).with("action", "psk");
        security_log::record(&place.settings, [event]);
        let mut out = io::stdout().lock();
        writeln!(out, "{}", path.display())?;
        writeln!(
            out,
            "\nIt is secret and not in use yet:\n\
             1. copy it to every machine of the lab, by USB stick or scp, and there\n   \
                {}\n\
             2. on all of them, here too, set in {}\n   {}\n\
             3. restart the LSL programs.",
            remedy::make_private(Path::new(PSK_NAME)),
            remedy::path(&place.file),
            line_to_set(&fs::read_to_string(&place.file).unwrap_or_default())
        )?;
        Ok(out.flush()?)
    }
}

/// Returns the line to write in the configuration file, and its place.
fn line_to_set(configuration: &str) -> String {
    let setting = format!("psk_file = \"{PSK_NAME}\"");
    let present = configuration.lines().position(|line| {
        let line = line.trim_start_matches([' ', '\t', '#']);
        line.strip_prefix("psk_file")
            .is_some_and(|rest| rest.trim_start().starts_with('='))
    });
    match present {
        Some(index) => format!("line {}:  {setting}", index + 1),
        None => format!("below [security]:  {setting}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_is_named() {
        for (text, expected) in [
            ("", "below [security]:"),
            ("[security]\n# psk_file = \"\"\n", "line 2:"),
            ("[security]\n\npsk_file=''", "line 3:"),
            ("psk_file_2 = 1\n#psk_files = 2", "below"),
        ] {
            let line = line_to_set(text);
            assert!(line.starts_with(expected), "{line}");
            assert!(line.ends_with("psk_file = \"lab.psk\""), "{line}");
        }
    }
}
