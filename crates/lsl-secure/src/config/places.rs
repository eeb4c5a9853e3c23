//! Finds the configuration and handles one that is missing, broken or overruled. Spec: LSS/1 §11.
//!
//! The environment comes in as values, so that the rules can be tested without changing a process.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Once;

use super::{Found, Settings};
use crate::files::{self, Content};
use crate::policy::Policy;
use crate::{Error, Result};

/// The environment of one process, as far as it decides where configurations are.
#[derive(Debug, Clone)]
pub(crate) struct Places {
    /// `LSL_SECURE_CONFIG`, which may be empty.
    pub(crate) variable: Option<OsString>,
    /// `HOME` if that is an absolute path, else the password database's; `%USERPROFILE%` on Windows.
    pub(crate) home: Option<PathBuf>,
    /// Whether this user may not enter `home`, as a service with the `HOME` of another user.
    pub(crate) home_is_closed: bool,
    /// Path of the file for the whole system.
    pub(crate) system: PathBuf,
    /// Whether the user who started the process has less rights than it (`AT_SECURE`).
    pub(crate) elevated: bool,
}

impl Places {
    pub(crate) fn of_this_process() -> Self {
        let home = lsl_platform::directories::home().filter(|home| home.is_absolute());
        let may_enter = lsl_platform::directories::may_enter;
        Self {
            variable: std::env::var_os(VARIABLE),
            home_is_closed: home.as_deref().is_some_and(|home| !may_enter(home)),
            home,
            system: lsl_platform::directories::system().join(FILE),
            elevated: lsl_platform::privilege::is_secure_execution(),
        }
    }

    /// The first place that exists decides.
    pub(crate) fn search(&self) -> Result<Found> {
        let mut searched = Vec::new();
        if !self.elevated {
            if let Some(file) = self.named_file()? {
                // Somebody wants encryption to be configured there: no file is a mistake.
                return self.found(file);
            }
            if let Some(file) = self.user_file() {
                if self.home_is_closed {
                    self.without_home(&file)?;
                } else if is_there(&file)? {
                    return self.found(file);
                }
                searched.push(file);
            }
        }
        if is_there(&self.system)? {
            return self.found(self.system.clone());
        }
        searched.push(self.system.clone());
        Ok(Found::Nothing { searched })
    }

    /// Reads one file and applies the system's floor.
    pub(crate) fn read(&self, file: &Path) -> Result<Settings> {
        let file = &std::path::absolute(file)
            .map_err(|error| Error::file(file, format!("is no path: {error}; name a file")))?;
        if self.elevated && *file != self.system {
            let system = self.system.display();
            return Err(Error::file(
                file,
                format!("not used, because this program runs with raised rights; write {system}"),
            ));
        }
        let text = files::read_text(file, Content::Shared)?;
        let settings = Settings::parse(&text, file)?;
        if *file == self.system {
            return Ok(settings);
        }
        self.with_floor(settings)
    }

    /// Raises a policy to the system's, if there is one, and takes away exceptions that the system does not
    /// make.
    pub(crate) fn with_floor(&self, mut settings: Settings) -> Result<Settings> {
        let Some(floor) = self.floor()? else {
            return Ok(settings);
        };
        let days = [settings.last_day_of_migrate(), floor.last_day_of_migrate()];
        if floor.policy > settings.policy {
            tracing::warn!(
                "policy {:?} is raised to {:?} by {}",
                settings.policy.name(),
                floor.policy.name(),
                self.system.display()
            );
            settings.policy = floor.policy;
        }
        if settings.policy == Policy::Migrate {
            settings.migrate_until = days.into_iter().flatten().min();
        }
        if floor.policy != Policy::Off {
            let is_allowed = |source: &String| floor.plaintext_allow.contains(source);
            let (allowed, refused) = settings.plaintext_allow.into_iter().partition(is_allowed);
            settings.plaintext_allow = allowed;
            let refused: Vec<String> = refused;
            if !refused.is_empty() {
                tracing::warn!(
                    "plaintext_allow of {refused:?} is ignored, because {} sets policy {:?}; it has to be \
                     allowed there too",
                    self.system.display(),
                    floor.policy.name()
                );
            }
        }
        Ok(settings)
    }

    /// Reads the settings of the system's file, if there is one.
    fn floor(&self) -> Result<Option<Settings>> {
        if !is_there(&self.system)? {
            return Ok(None);
        }
        let text = files::read_text(&self.system, Content::Shared)?;
        Settings::parse(&text, &self.system).map(Some)
    }

    /// A home directory that this user may not enter counts as absent, unless the system's file asks for
    /// encryption: then what may lie there must not be passed over.
    fn without_home(&self, file: &Path) -> Result<()> {
        static TOLD: Once = Once::new();
        let home = self.home.as_deref().unwrap_or(file).display();
        let remedy = "set HOME to a directory of this user, or unset it";
        match self.floor()? {
            Some(floor) if floor.policy != Policy::Off => Err(Error::file(
                file,
                format!(
                    "cannot be looked up, because this user may not enter {home}, and {} sets policy \
                     {:?}; {remedy}",
                    self.system.display(),
                    floor.policy.name()
                ),
            )),
            _ => {
                TOLD.call_once(|| {
                    tracing::warn!(
                        "this user may not enter the home directory {home}: no configuration is looked for \
                         there; {remedy}"
                    );
                });
                Ok(())
            }
        }
    }

    /// `lsl_api/lsl-secure.toml` in the home directory, if this user has one.
    pub(crate) fn user_file(&self) -> Option<PathBuf> {
        Some(self.home.as_ref()?.join(DIRECTORY).join(FILE))
    }

    /// The file of `LSL_SECURE_CONFIG`, if that is set.
    fn named_file(&self) -> Result<Option<PathBuf>> {
        match &self.variable {
            None => Ok(None),
            Some(value) if !Path::new(value).is_absolute() => Err(Error::file(
                VARIABLE,
                format!(
                    "the variable is \"{}\"; set it to the absolute path of a lsl-secure.toml, or \
                     unset it",
                    value.display()
                ),
            )),
            Some(value) => Ok(Some(PathBuf::from(value))),
        }
    }

    fn found(&self, file: PathBuf) -> Result<Found> {
        Ok(Found::Settings {
            settings: Box::new(self.read(&file)?),
            file,
        })
    }
}

/// Whether there is a configuration. No file where others can remove it is an error.
fn is_there(file: &Path) -> Result<bool> {
    let exists = exists(file)?;
    if !exists {
        files::check_absence(file)?;
    }
    Ok(exists)
}

/// Whether something is there, be it only a dangling link. Not being allowed to know is an error.
fn exists(file: &Path) -> Result<bool> {
    let failed = |path: &Path, error: io::Error| {
        let remedy = "allow this user to read it, or remove it";
        Error::file(path, format!("cannot be looked up: {error}; {remedy}"))
    };
    match fs::symlink_metadata(file) {
        Ok(_) => return Ok(true),
        Err(error) if files::is_gone(&error) => {}
        Err(error) => return Err(failed(file, error)),
    }
    // A directory that is a link to a disk which is not there holds a configuration that is not there.
    let Some(directory) = file.parent() else {
        return Ok(false);
    };
    let is_link = fs::symlink_metadata(directory).is_ok_and(|link| link.is_symlink());
    match fs::metadata(directory) {
        Err(error) if is_link => Err(failed(directory, error)),
        _ => Ok(false),
    }
}

/// Names a file; wins over all other places.
const VARIABLE: &str = "LSL_SECURE_CONFIG";

/// Directory of the configuration under the home directory.
const DIRECTORY: &str = "lsl_api";

const FILE: &str = "lsl-secure.toml";
