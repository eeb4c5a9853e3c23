//! `lsl key init`: key, trust file and configuration of a device, all of them or none.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;
use lsl_core::secure::{OsRandom, PublicKey, SecretKey, config, files, keyfile};
use lsl_platform::files::{create_directory, create_new, give};

use crate::failure::{Failure, Outcome};
use crate::note::note;
use crate::passphrase::{self, Passphrase};
use crate::place::{self, CONFIG_NAME, KEY_NAME, NEXT_KEY_NAME, Place, SETTINGS_NAME, TRUST_NAME};
use crate::shell;
use crate::table::printable;

/// `lsl key init`
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "switches of a command line, not states"
)]
pub(super) struct Init {
    /// What people call this device; other machines may call it differently. Default: the host's name
    #[arg(long, value_name = "NAME")]
    name: Option<String>,

    /// Directory to write to instead of ~/lsl_api
    #[arg(long, value_name = "DIR", conflicts_with = "system")]
    dir: Option<PathBuf>,

    /// Set up the whole machine, in /etc/lsl_api: for services and unattended devices
    #[arg(long)]
    system: bool,

    /// With --system: the user whose programs use the key. Default: root
    #[arg(long, value_name = "USER", requires = "system")]
    owner: Option<String>,

    /// Make a second key, to change to later, and leave everything else alone
    #[arg(long)]
    next: bool,

    /// Protect the key with a passphrase. Programs cannot ask for it: they need passphrase_file
    #[arg(long)]
    passphrase: bool,

    /// Do not protect the key with a passphrase (the default)
    #[arg(long, conflicts_with = "passphrase")]
    no_passphrase: bool,
}

const EXAMPLES: &str = "\
Examples:
  lsl key init --name amp1                             this user's programs, in ~/lsl_api
  sudo lsl key init --system --owner lab --name amp1   a service that runs as user lab
  lsl key init --dir ./test --name test                for programs with LSL_SECURE_CONFIG set
  lsl key init --next                                  a new key, to replace the old one later

Writes device_key.pem (secret: it never leaves this machine), trusted_peers.toml (empty: nobody is
trusted yet) and lsl-secure.toml (policy 'required'). Existing files are never touched. Without a
terminal, --passphrase reads the first line of standard input.";

impl Init {
    pub(super) fn run(&self) -> Outcome {
        self.name.as_deref().map_or(Ok(()), check_name)?;
        if self.next {
            return self.run_next();
        }
        let name = name_or_default(self.name.as_deref())?;
        let directory = self.directory()?;
        // All checks come before the first file.
        check_place(&directory)?;
        let owner = self.owner.as_deref().map(user_id).transpose()?;
        let passphrase = self.new_passphrase("the new key")?;
        let device = Device {
            name: &name,
            directory: &directory,
            mode: self.directory_mode(),
            passphrase: passphrase.as_ref(),
            owner,
            settings: None,
        };
        self.report(&name, &directory, &device.make()?)
    }

    /// Makes a second key beside the one in use.
    fn run_next(&self) -> Outcome {
        let place = match (&self.dir, self.system) {
            (None, false) => Place::find(None)?,
            _ => Place::find(Some(&self.directory()?))?,
        };
        let current = place.key_file()?;
        let path = current.with_file_name(NEXT_KEY_NAME);
        refuse_existing(
            path.parent().unwrap_or_else(|| Path::new("/")),
            &[NEXT_KEY_NAME],
        )?;
        let owner = match &self.owner {
            Some(user) => Some(user_id(user)?),
            None => place::owner_to_keep(current)?,
        };
        let passphrase = self.new_passphrase("the next key")?;
        let key = SecretKey::generate(&mut OsRandom)?;
        let mut made = Made::default();
        made.key(&path, &key, passphrase.as_ref(), owner)?;
        made.keep();

        let public = key.public();
        let name = self.name.as_deref().unwrap_or(&place.settings.name);
        let old = place.public_key_if_open();
        let mut out = io::stdout().lock();
        writeln!(out, "next key      {}", path.display())?;
        writeln!(out, "fingerprint   {}\n", public.fingerprint())?;
        writeln!(
            out,
            "Not in use yet. To change to it without interruption:\n\
             1. on every other machine, run   {}\n   (with the --role of the old \
             entry, or it may be both)\n\
             2. here, stop the LSL programs,  mv {} {}\n\
             3. on every other machine, run   lsl trust remove {}",
            trust_add(name, &public),
            shell::word(&path.display().to_string()),
            shell::word(&current.display().to_string()),
            old.map_or_else(
                || "OLD-FINGERPRINT".into(),
                |key| key.fingerprint().to_string()
            )
        )?;
        Ok(out.flush()?)
    }

    fn directory(&self) -> Outcome<PathBuf> {
        match &self.dir {
            // Messages and the environment of other programs need the whole path.
            Some(directory) => Ok(std::path::absolute(directory)?),
            None if self.system => Ok(config::system_directory().to_owned()),
            None => place::user_directory(),
        }
    }

    /// Users of the machine must get at /etc/lsl_api; the key in it protects itself.
    fn directory_mode(&self) -> u32 {
        if self.system { 0o755 } else { 0o700 }
    }

    fn new_passphrase(&self, what: &str) -> Outcome<Option<Passphrase>> {
        self.passphrase
            .then(|| passphrase::ask_new(what))
            .transpose()
    }

    fn report(&self, name: &str, directory: &Path, public: &PublicKey) -> Outcome {
        let file = directory.join(CONFIG_NAME);
        let mut out = io::stdout().lock();
        writeln!(out, "name          {}", printable(name))?;
        writeln!(out, "fingerprint   {}", public.fingerprint())?;
        writeln!(out, "directory     {}", directory.display())?;
        writeln!(
            out,
            "\nOn each machine that shall exchange streams with this one, run\n\n  {}\n",
            trust_add(name, public)
        )?;
        writeln!(
            out,
            "This line is not secret: chat, paper or USB will do. Then run here the line that `lsl key\n\
             init` prints there, and `lsl trust check`. LSL programs on this machine are encrypted from\n\
             their next start on: policy = \"required\" in\n{}",
            file.display()
        )?;
        out.flush()?;
        drop(out);
        self.warn(&file);
        Ok(())
    }

    fn warn(&self, file: &Path) {
        if self.passphrase {
            note(format_args!(
                "The key has a passphrase, and only `lsl` can ask for it: other programs will not \
                 start\nuntil passphrase_file in {} names a file with it.",
                file.display()
            ));
        }
        let in_use = std::env::var_os(place::VARIABLE);
        match &in_use {
            Some(path) if Path::new(path) != file => note(format_args!(
                "{} is set to {}: that file is used here, not the new one.",
                place::VARIABLE,
                Path::new(path).display()
            )),
            None if self.dir.is_some() => note(format_args!(
                "Programs use it if they start with {}={}",
                place::VARIABLE,
                shell::word(&file.display().to_string())
            )),
            _ => {}
        }
        if self.system && self.owner.is_none() {
            note(
                "The key belongs to root: only programs that run as root can use it. Others need \
                 --owner USER.",
            );
        } else if self.system {
            note(
                "Other users of this machine need a key of their own: lsl key init, without sudo.",
            );
        }
        if let Some(user) =
            std::env::var_os("SUDO_USER").filter(|_| !self.system && self.dir.is_none())
        {
            note(format_args!(
                "This key belongs to root, who runs this command by sudo: programs of {} do not see \
                 it.\nFor them run it without sudo, for services with --system --owner USER.",
                printable(&user.to_string_lossy())
            ));
        }
    }
}

/// Device to be set up for encryption.
pub(crate) struct Device<'a> {
    pub(crate) name: &'a str,
    /// Target directory, checked with [`check_place`].
    pub(crate) directory: &'a Path,
    /// Mode of the directory, if it has to be made.
    pub(crate) mode: u32,
    pub(crate) passphrase: Option<&'a Passphrase>,
    pub(crate) owner: Option<u32>,
    /// Content of a new `lsl_api.cfg` beside it.
    pub(crate) settings: Option<&'a str>,
}

impl Device<'_> {
    /// Makes all its files or none; returns its public key.
    pub(crate) fn make(&self) -> Outcome<PublicKey> {
        let key = SecretKey::generate(&mut OsRandom)?;
        let directory = self.directory;
        let mut made = Made::default();
        made.directory(directory, self.mode)?;
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
    format!("lsl trust add {} {key}", shell::word(name))
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

fn refuse_existing(directory: &Path, names: &[&str]) -> Outcome {
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

/// Returns the number of a user, from wherever this system keeps its users.
fn user_id(user: &str) -> Outcome<u32> {
    let output = Command::new("id").args(["-u", "--", user]).output();
    output
        .ok()
        .filter(|output| output.status.success())
        .and_then(|output| String::from_utf8(output.stdout).ok()?.trim().parse().ok())
        .ok_or_else(|| {
            Failure::Usage(format!(
                "--owner {}: there is no such user on this machine",
                printable(user)
            ))
        })
}

/// Files made so far; removed again unless everything succeeds.
#[derive(Debug, Default)]
struct Made {
    files: Vec<PathBuf>,
    directories: Vec<PathBuf>,
}

impl Made {
    /// Makes a directory, and those above it that are missing.
    fn directory(&mut self, path: &Path, mode: u32) -> Outcome {
        if path.is_dir() {
            return Ok(());
        }
        if let Some(parent) = path.parent()
            && !parent.exists()
        {
            self.directory(parent, mode)?;
        }
        create_directory(path, mode).map_err(|error| cannot_write(path, &error))?;
        self.directories.push(path.to_owned());
        Ok(())
    }

    fn key(
        &mut self,
        path: &Path,
        key: &SecretKey,
        passphrase: Option<&Passphrase>,
        owner: Option<u32>,
    ) -> Outcome {
        keyfile::write_new_key(path, key, passphrase.map(|text| text.as_str()))?;
        self.files.push(path.to_owned());
        // Never through a link, which the owner of the directory may just have put there.
        give(path, owner).map_err(|error| {
            Failure::Runtime(format!(
                "{}: giving it to another user: {error} (run it as root)",
                path.display()
            ))
        })
    }

    /// Makes the file in which programs of another user remember encrypted outlets under `migrate`:
    /// they may not make files in a directory of root.
    fn state(&mut self, path: &Path, owner: u32) -> Outcome {
        if path.symlink_metadata().is_ok() {
            return Ok(());
        }
        files::create(path, b"")?;
        self.files.push(path.to_owned());
        give(path, Some(owner)).map_err(|error| cannot_write(path, &error))
    }

    fn text(&mut self, path: &Path, content: &str) -> Outcome {
        let mut file = create_new(path, 0o644).map_err(|error| cannot_write(path, &error))?;
        self.files.push(path.to_owned());
        file.write_all(content.as_bytes())
            .and_then(|()| file.sync_all())
            .map_err(|error| cannot_write(path, &error))
    }

    fn keep(mut self) {
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
        io::ErrorKind::PermissionDenied => " (with --system, run it by sudo)",
        _ => "",
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
            made.directory(&inner, 0o700).unwrap();
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
