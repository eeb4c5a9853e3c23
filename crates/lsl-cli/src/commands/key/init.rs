//! `lsl key init`: key, trust file and configuration of a device, all of them or none.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use lsl_core::secure::audit::{Event, EventKind};
use lsl_core::secure::{OsRandom, PublicKey, SecretKey, config};
use lsl_platform::files::{Owner, Who};
use lsl_platform::remedy;

use crate::failure::{Failure, Outcome};
use crate::files::device::{
    Device, Made, check_name, check_place, name_or_default, refuse_existing, trust_add,
};
use crate::files::place::{self, CONFIG_NAME, NEXT_KEY_NAME, SecurityConfig};
use crate::files::security_log;
use crate::ui::notice::note;
use crate::ui::prompt::{self, Passphrase};
use crate::ui::text::printable;

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
        let owner = self.owner.as_deref().map(named_owner).transpose()?;
        let passphrase = self.new_passphrase("the new key")?;
        let device = Device {
            name: &name,
            directory: &directory,
            who: self.readers(),
            passphrase: passphrase.as_ref(),
            owner: owner.as_ref(),
            settings: None,
        };
        self.report(&name, &directory, &device.make()?)
    }

    /// Makes a second key beside the one in use.
    fn run_next(&self) -> Outcome {
        let place = match (&self.dir, self.system) {
            (None, false) => SecurityConfig::find(None)?,
            _ => SecurityConfig::find(Some(&self.directory()?))?,
        };
        let current = place.key_file()?;
        let path = current.with_file_name(NEXT_KEY_NAME);
        refuse_existing(
            path.parent().unwrap_or_else(|| Path::new("/")),
            &[NEXT_KEY_NAME],
        )?;
        let owner = match &self.owner {
            Some(user) => Some(named_owner(user)?),
            None => place::owner_to_keep(current)?,
        };
        let passphrase = self.new_passphrase("the next key")?;
        let key = SecretKey::generate(&mut OsRandom)?;
        let mut made = Made::default();
        made.key(&path, &key, passphrase.as_ref(), owner.as_ref())?;
        made.keep();

        let public = key.public();
        let event = Event::new(EventKind::KeyMade).peer(public.fingerprint());
        security_log::record(&place.settings, [event.with("action", "next")]);
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
             2. here, stop the LSL programs,  {}\n\
             3. on every other machine, run   lsl trust remove {}",
            trust_add(name, &public),
            remedy::rename(&path, current),
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
    fn readers(&self) -> Who {
        if self.system {
            Who::Everybody
        } else {
            Who::Owner
        }
    }

    fn new_passphrase(&self, what: &str) -> Outcome<Option<Passphrase>> {
        self.passphrase.then(|| prompt::ask_new(what)).transpose()
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
                "Programs use it if they start with {}",
                remedy::variable(place::VARIABLE, file)
            )),
            _ => {}
        }
        if self.system && self.owner.is_none() {
            let user = remedy::RIGHTFUL;
            note(format_args!(
                "The key belongs to {user}: only programs that run as {user} can use it. Others need \
                 --owner USER."
            ));
        } else if self.system {
            note(format_args!(
                "Other users of this machine need a key of their own: lsl key init, {}.",
                remedy::WITHOUT_RIGHTS
            ));
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

/// Looks up the user who is to own the key.
fn named_owner(user: &str) -> Outcome<Owner> {
    Owner::named(user).ok_or_else(|| {
        Failure::Usage(format!(
            "--owner {}: there is no such user on this machine",
            printable(user)
        ))
    })
}
