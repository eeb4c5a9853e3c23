//! The files of a device that encrypts: key, trust file and configuration, all of them or none.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use lsl_core::secure::{OsRandom, PublicKey, SecretKey, config, files, keyfile};
use lsl_platform::files::{Owner, Who, create_directory, create_new, give};
use lsl_platform::remedy;

use super::place::{CONFIG_NAME, KEY_NAME, NEXT_KEY_NAME, SETTINGS_NAME, TRUST_NAME};
use crate::failure::{Failure, Outcome};
use crate::ui::prompt::Passphrase;
use crate::ui::text::printable;

/// Device to be set up for encryption.
pub(crate) struct Device<'a> {
    pub(crate) name: &'a str,
    /// Target directory, checked with [`check_place`].
    pub(crate) directory: &'a Path,
    /// Readers of the directory, if it has to be made.
    pub(crate) who: Who,
    pub(crate) passphrase: Option<&'a Passphrase>,
    pub(crate) owner: Option<&'a Owner>,
    /// Content of a new `lsl_api.cfg` beside it.
    pub(crate) settings: Option<&'a str>,
}

impl Device<'_> {
    /// Makes all its files or none; returns its public key.
    pub(crate) fn make(&self) -> Outcome<PublicKey> {
        let key = SecretKey::generate(&mut OsRandom)?;
        let directory = self.directory;
        let mut made = Made::default();
        made.directory(directory, self.who)?;
        made.key(&directory.join(KEY_NAME), &key, self.passphrase, self.owner)?;
        made.text(&directory.join(TRUST_NAME), EMPTY_TRUST)?;
        if let Some(owner) = self.owner {
            made.state(&directory.join(KNOWN_NAME), owner)?;
        }
        if let Some(settings) = self.settings {
            made.text(&directory.join(SETTINGS_NAME), settings)?;
        }
        // Last, since it switches encryption on.
        made.text(&directory.join(CONFIG_NAME), &config::sample(self.name))?;
        made.keep();
        Ok(key.public())
    }
}

/// Returns the name for the device, checked: by default that of the host.
pub(crate) fn name_or_default(name: Option<&str>) -> Outcome<String> {
    let host = || String::from_utf8_lossy(&lsl_platform::process::hostname()).into_owned();
    let name = name.map_or_else(host, str::to_owned);
    check_name(&name)?;
    Ok(name)
}

/// Refuses a directory whose files would be refused later, or in which a device is set up.
pub(crate) fn check_place(directory: &Path) -> Outcome {
    files::check_directory(directory)?;
    refuse_existing(directory, &[CONFIG_NAME, KEY_NAME, TRUST_NAME])
}

/// Returns the command to run on another machine.
pub(crate) fn trust_add(name: &str, key: &PublicKey) -> String {
    format!("lsl trust add {} {key}", remedy::word(name))
}

/// Checks a name, which goes into files, messages and command lines of other machines.
pub(crate) fn check_name(name: &str) -> Outcome {
    let refuse = |reason: &str| {
        Err(Failure::Usage(format!(
            "the name '{}' {reason}; take a short one such as eeg-amp-1",
            printable(name)
        )))
    };
    match name {
        _ if name.trim().is_empty() => refuse("is empty"),
        _ if name.trim() != name => refuse("has blanks around it"),
        _ if name.len() > MAX_NAME_LEN => refuse("is longer than 100 bytes"),
        _ if name.starts_with('-') => refuse("looks like an option"),
        _ if printable(name) != name => refuse("contains control characters"),
        // `lsl trust remove` takes a name or a key, and must tell them apart.
        _ if name.starts_with("lsl-ed25519:") || name.starts_with("SHA256:") => {
            refuse("looks like a key")
        }
        _ => Ok(()),
    }
}

pub(crate) fn refuse_existing(directory: &Path, names: &[&str]) -> Outcome {
    let there: Vec<String> = names
        .iter()
        .map(|name| directory.join(name))
        // Also a link into nowhere: writing would follow it.
        .filter(|path| path.symlink_metadata().is_ok())
        .map(|path| path.display().to_string())
        .collect();
    if there.is_empty() {
        return Ok(());
    }
    let advice = if names.contains(&NEXT_KEY_NAME) {
        "Finish that change of keys first, or remove the file."
    } else {
        "`lsl key show` shows the key that is there, `lsl key init --next` makes another one to \
         change to.\nTo start over, move these files away; other machines must then `lsl trust \
         remove` the old key."
    };
    Err(Failure::Runtime(format!(
        "there is already {}; existing files are never overwritten.\n{advice}",
        there.join(", ")
    )))
}

/// Files made so far; removed again unless everything succeeds.
#[derive(Debug, Default)]
pub(crate) struct Made {
    files: Vec<PathBuf>,
    directories: Vec<PathBuf>,
}

impl Made {
    /// Makes a directory, and those above it that are missing.
    fn directory(&mut self, path: &Path, who: Who) -> Outcome {
        if path.is_dir() {
            return Ok(());
        }
        if let Some(parent) = path.parent()
            && !parent.exists()
        {
            self.directory(parent, who)?;
        }
        create_directory(path, who).map_err(|error| cannot_write(path, &error))?;
        self.directories.push(path.to_owned());
        Ok(())
    }

    pub(crate) fn key(
        &mut self,
        path: &Path,
        key: &SecretKey,
        passphrase: Option<&Passphrase>,
        owner: Option<&Owner>,
    ) -> Outcome {
        keyfile::write_new_key(path, key, passphrase.map(|text| text.as_str()))?;
        self.files.push(path.to_owned());
        // Never through a link, which the owner of the directory may just have put there.
        give(path, owner).map_err(|error| {
            Failure::Runtime(format!(
                "{}: giving it to another user: {error} (run it as {})",
                path.display(),
                remedy::GIVER
            ))
        })
    }

    /// Makes the file in which programs of another user remember encrypted outlets under `migrate`:
    /// they may not make files in a directory of root.
    fn state(&mut self, path: &Path, owner: &Owner) -> Outcome {
        if path.symlink_metadata().is_ok() {
            return Ok(());
        }
        files::create(path, b"")?;
        self.files.push(path.to_owned());
        give(path, Some(owner)).map_err(|error| cannot_write(path, &error))
    }

    fn text(&mut self, path: &Path, content: &str) -> Outcome {
        let mut file =
            create_new(path, Who::Everybody).map_err(|error| cannot_write(path, &error))?;
        self.files.push(path.to_owned());
        file.write_all(content.as_bytes())
            .and_then(|()| file.sync_all())
            .map_err(|error| cannot_write(path, &error))
    }

    pub(crate) fn keep(mut self) {
        self.files.clear();
        self.directories.clear();
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        for file in self.files.iter().rev() {
            let _ = fs::remove_file(file);
        }
        for directory in self.directories.iter().rev() {
            let _ = fs::remove_dir(directory);
        }
    }
}

fn cannot_write(path: &Path, error: &io::Error) -> Failure {
    let advice = match error.kind() {
        io::ErrorKind::PermissionDenied => {
            format!(" (with --system, run it {})", remedy::WITH_RIGHTS)
        }
        _ => String::new(),
    };
    Failure::Runtime(format!("{}: {error}{advice}", path.display()))
}

/// Content of a new trust file.
pub(crate) const EMPTY_TRUST: &str = "\
# The devices that may exchange LSL streams with this one, one [[peer]] each; see `lsl trust --help`.
# This file is not secret: one file with all devices may be copied to every machine of the lab.
# Changes take effect within 5 seconds, also on running programs.
";

const MAX_NAME_LEN: usize = 100;

/// File that remembers outlets that were encrypted before (LSS/1 §4.3).
const KNOWN_NAME: &str = "known_secure";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_kept_disappears_and_nothing_else() {
        let base = std::env::temp_dir().join(format!("lsl-init-{}", std::process::id()));
        let inner = base.join("a").join("b");
        let other = base.join("other");
        for keep in [false, true] {
            let mut made = Made::default();
            made.directory(&inner, Who::Owner).unwrap();
            made.text(&inner.join("x"), "x").unwrap();
            assert!(made.text(&inner.join("x"), "y").is_err());
            fs::write(&other, "").unwrap();
            if keep {
                made.keep();
            } else {
                drop(made);
            }
            assert_eq!(inner.join("x").exists(), keep);
            // Not ours, so neither it nor its directory goes.
            assert!(other.exists());
        }
        assert_eq!(fs::read_to_string(inner.join("x")).unwrap(), "x");
        fs::remove_dir_all(&base).unwrap();
    }

    #[test]
    fn names() {
        for name in ["amp1", "EEG amp (left)", "Gerät", "a'b"] {
            assert!(check_name(name).is_ok(), "{name}");
        }
        let long = "x".repeat(101);
        for name in [
            "",
            " ",
            " a",
            "-a",
            "a\nb",
            "\u{202e}a",
            "SHA256:a",
            "lsl-ed25519:a",
            &long,
        ] {
            assert!(check_name(name).is_err(), "{name:?}");
        }
    }
}
