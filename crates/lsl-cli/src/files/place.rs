//! Configuration of the encryption of this machine, or of a directory the user names, for the
//! commands that change it. `lsl_secure` reads and checks it.

use std::path::{Path, PathBuf};

use clap::Args;
use lsl_core::secure::config::{self, Found, Settings};
use lsl_core::secure::{Error, PublicKey, SecretKey, Security, keyfile};
use lsl_platform::files::Owner;

use crate::failure::{Failure, Outcome};
use crate::ui::prompt::{self, Passphrase};

/// `--dir` of commands that change or show the configuration.
#[derive(Debug, Args)]
pub(crate) struct PlaceArgs {
    /// Directory with lsl-secure.toml, instead of the place that LSL programs use
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

impl PlaceArgs {
    pub(crate) fn find(&self) -> Outcome<SecurityConfig> {
        SecurityConfig::find(self.dir.as_deref())
    }

    pub(crate) fn directory(&self) -> Option<&Path> {
        self.dir.as_deref()
    }
}

/// Valid configuration of encryption, with its file.
#[derive(Debug)]
pub(crate) struct SecurityConfig {
    pub(crate) file: PathBuf,
    pub(crate) settings: Settings,
}

impl SecurityConfig {
    /// Finds the configuration in `directory`, else the one that LSL programs use.
    pub(crate) fn find(directory: Option<&Path>) -> Outcome<Self> {
        if let Some(directory) = directory {
            let file = std::path::absolute(directory)?.join(CONFIG_NAME);
            let settings = config::read(&file)?;
            return Ok(Self { file, settings });
        }
        match config::search()? {
            Found::Settings { settings, file } => Ok(Self {
                file,
                settings: *settings,
            }),
            Found::Nothing { searched } => Err(nothing(&searched)),
            _ => Err(Failure::Runtime("an unknown kind of configuration".into())),
        }
    }

    pub(crate) fn key_file(&self) -> Outcome<&Path> {
        self.named(self.settings.key_file.as_deref(), "key_file", KEY_NAME)
    }

    pub(crate) fn trust_file(&self) -> Outcome<&Path> {
        let file = self.settings.trusted_peers.as_deref();
        self.named(file, "trusted_peers", TRUST_NAME)
    }

    fn named<'a>(&self, file: Option<&'a Path>, field: &str, usual: &str) -> Outcome<&'a Path> {
        file.ok_or_else(|| {
            Failure::Runtime(format!(
                "{}: names no {field}; add the line  {field} = \"{usual}\"  below [security]",
                self.file.display()
            ))
        })
    }

    /// Reads the device key. Asks for its passphrase if there is one and no file has it.
    pub(crate) fn key(&self) -> Outcome<SecretKey> {
        let path = self.key_file()?;
        let passphrase = self.passphrase()?;
        let passphrase = passphrase.as_ref().map(|text| text.as_str());
        keyfile::read_key(path, passphrase).map_err(|error| self.wrong(&error))
    }

    /// Returns the passphrase of the device key: from its file, else asked for; `None` if it needs none.
    pub(crate) fn passphrase(&self) -> Outcome<Option<Passphrase>> {
        let path = self.key_file()?;
        if !keyfile::is_encrypted(path)? {
            return Ok(None);
        }
        if let Some(file) = &self.settings.passphrase_file {
            return Ok(Some(keyfile::read_passphrase(file)?));
        }
        prompt::ask(&format!("Passphrase for {}: ", path.display())).map(Some)
    }

    /// Adapts the library's error to a passphrase that was typed.
    fn wrong(&self, error: &Error) -> Failure {
        let text = error.to_string();
        Failure::Runtime(if self.settings.passphrase_file.is_none() {
            text.replace("; correct it in passphrase_file", "; try again")
        } else {
            text
        })
    }

    /// Returns whether the key has a passphrase that is in no file.
    pub(crate) fn needs_asking(&self) -> bool {
        let encrypted = |path: &PathBuf| keyfile::is_encrypted(path).unwrap_or(false);
        self.settings.passphrase_file.is_none()
            && self.settings.key_file.as_ref().is_some_and(encrypted)
    }

    /// Returns the public key, if it can be had without a question.
    pub(crate) fn public_key_if_open(&self) -> Option<PublicKey> {
        let path = self.settings.key_file.as_deref()?;
        let passphrase = match &self.settings.passphrase_file {
            Some(file) if keyfile::is_encrypted(path).ok()? => {
                Some(keyfile::read_passphrase(file).ok()?)
            }
            _ => None,
        };
        let key = keyfile::read_key(path, passphrase.as_ref().map(|text| text.as_str())).ok()?;
        Some(key.public())
    }
}

/// Loads the security of a program that names a directory, or that can ask for the passphrase of
/// its key; `None` if the usual way will do.
pub(crate) fn unlock(directory: Option<&Path>) -> Outcome<Option<Security>> {
    let place = match SecurityConfig::find(directory) {
        Ok(place) => place,
        Err(failure) if directory.is_some() => return Err(failure),
        // A later use meets the same reason again.
        Err(_) => return Ok(None),
    };
    if place.needs_asking() && prompt::can_ask() {
        let passphrase = place.passphrase()?;
        let passphrase = passphrase.as_ref().map(|text| text.as_str());
        return Security::from_file_with_passphrase(&place.file, passphrase)
            .map(Some)
            .map_err(|error| place.wrong(&error));
    }
    Ok(directory
        .map(|_| Security::from_file(&place.file))
        .transpose()?)
}

/// Returns the directory for a user's files.
pub(crate) fn user_directory() -> Outcome<PathBuf> {
    config::user_directory().ok_or_else(|| {
        Failure::Runtime(
            "this user has no home directory: use --dir DIR, or --system for the whole machine"
                .into(),
        )
    })
}

/// Builds the error for a machine on which encryption is not set up.
pub(crate) fn nothing(searched: &[PathBuf]) -> Failure {
    Failure::Runtime(format!(
        "encryption is not set up here: there is no {}.\nRun: lsl key init --name NAME",
        places(searched)
    ))
}

/// Joins paths for use in a sentence.
pub(crate) fn places(paths: &[PathBuf]) -> String {
    let texts: Vec<String> = paths
        .iter()
        .map(|path| path.display().to_string())
        .collect();
    match texts.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} or {last}", others.join(", ")),
        None => "place to look at".into(),
    }
}

/// Returns the owner that files made beside `file` need: root writes for others without taking theirs.
pub(crate) fn owner_to_keep(file: &Path) -> Outcome<Option<Owner>> {
    Owner::if_other(file).map_err(|error| Failure::Runtime(format!("{}: {error}", file.display())))
}

/// The name of the configuration file in its directory.
pub(crate) const CONFIG_NAME: &str = "lsl-secure.toml";
pub(crate) const KEY_NAME: &str = "device_key.pem";
pub(crate) const NEXT_KEY_NAME: &str = "device_key_next.pem";
pub(crate) const TRUST_NAME: &str = "trusted_peers.toml";
/// The settings of everything but encryption, beside it.
pub(crate) const SETTINGS_NAME: &str = "lsl_api.cfg";
pub(crate) const PSK_NAME: &str = "lab.psk";
/// Environment variable that names a configuration file, ahead of the usual places.
pub(crate) const VARIABLE: &str = "LSL_SECURE_CONFIG";
