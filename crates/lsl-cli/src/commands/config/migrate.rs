//! `lsl config migrate`: from a file that asks for encryption in Secure LSL's way, which stops all streams here
//! (E7), to a key of this device. Nothing of the old encryption is taken over. Spec: audit §5.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use lsl_core::config::{Config, Overrides, Source, SystemFiles, load, load_text};
use lsl_core::secure::config::{Found, search};
use lsl_platform::files::Who;
use lsl_platform::remedy;
use lsl_proto::config::{
    EncryptionRequest, encryption_request_in_home, without_encryption_request,
};
use serde::Serialize;

use crate::failure::{Failure, Outcome};
use crate::files::device::{Device, check_place, name_or_default, trust_add};
use crate::files::place::{self, SETTINGS_NAME};
use crate::globals::Globals;
use crate::ui::text::printable;

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Migrate {
    /// File to move from, instead of the one that stops the streams
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,

    /// What people call this device; other machines may call it differently. Default: the host's name
    #[arg(long, value_name = "NAME")]
    name: Option<String>,

    /// Say what would be done, and do nothing
    #[arg(long)]
    dry_run: bool,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  lsl config migrate --dry-run          what would be done?
  lsl config migrate --name amp1        do it
  lsl config migrate --from old.cfg     from this file

Copies all settings but [security] to ~/lsl_api/lsl_api.cfg, unless there is such a file, and makes a new
key for this device, as `lsl key init` does (policy 'required'). No key is taken over, and the old file
stays. The two kinds of encryption do not talk to each other: move all devices in one go.";

/// Report of the migration: the object of `--json`.
#[derive(Debug, Default, Serialize)]
struct MigrationReport {
    /// The file that asks for encryption; null if there is nothing to migrate.
    file: Option<PathBuf>,
    /// Names of the keys in its `[security]`.
    keys: Vec<String>,
    dry_run: bool,
    settings: Option<Settings>,
    settings_file: Option<PathBuf>,
    differences: Vec<Difference>,
    name: Option<String>,
    directory: Option<PathBuf>,
    fingerprint: Option<String>,
    /// Command to run on the other machines.
    trust_add: Option<String>,
    /// Command that removes the old request, once all devices are moved.
    remove: Option<String>,
}

/// Fate of the other sections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Settings {
    /// The file has no other sections.
    None,
    Copied,
    /// The sections are in the right file already.
    InPlace,
    /// Such a file exists already, with equal sections.
    Equal,
    /// Such a file exists already, with other sections, and stays as it is.
    Differ,
}

/// A setting that is not the same in the old file and in the one that is there.
#[derive(Debug, Serialize)]
struct Difference {
    key: String,
    old: String,
    here: String,
}

impl Migrate {
    pub(super) fn run(&self, globals: &Globals) -> Outcome {
        let report = match self.request(globals)? {
            Some(request) => self.migrate(&request)?,
            None => MigrationReport {
                dry_run: self.dry_run,
                ..MigrationReport::default()
            },
        };
        let mut out = io::stdout().lock();
        if self.json {
            serde_json::to_writer_pretty(&mut out, &report)?;
            writeln!(out)?;
        } else {
            report.write(&mut out)?;
        }
        Ok(out.flush()?)
    }

    /// Returns the request that stops streams, or that of the named file; none once encryption is set up.
    fn request(&self, globals: &Globals) -> Outcome<Option<EncryptionRequest>> {
        if !matches!(search()?, Found::Nothing { .. }) {
            return Ok(None);
        }
        // A file of Secure LSL is there for encryption alone, unlike the settings of --config.
        if let Some(file) = &self.from {
            let file = std::path::absolute(file)?;
            let text = read(&file)?;
            return Ok(EncryptionRequest::of_secure_lsl(&text, &Source::Api(file)));
        }
        if let Some(file) = globals.config_file() {
            let file = std::path::absolute(file)?;
            let text = read(&file)?;
            return Ok(EncryptionRequest::of_settings(&text, &Source::Api(file)));
        }
        let config = load(&SystemFiles, &Overrides::default()).config;
        let in_force = config.encryption_request().cloned();
        Ok(in_force.or_else(|| encryption_request_in_home(&SystemFiles)))
    }

    fn migrate(&self, request: &EncryptionRequest) -> Outcome<MigrationReport> {
        let file = request.source.path().ok_or_else(|| {
            Failure::Runtime(format!("{}: name a file with --from", request.source))
        })?;
        let text = read(file)?;
        let config = settings_of(&text, file)?;
        let text = without_encryption_request(&text);
        let name = name_or_default(self.name.as_deref())?;
        let directory = place::user_directory()?;
        check_place(&directory)?;
        let target = directory.join(SETTINGS_NAME);
        let mut report = MigrationReport {
            file: Some(file.to_owned()),
            keys: request.keys.clone(),
            dry_run: self.dry_run,
            ..MigrationReport::default()
        };
        let is_target = is_same(file, &target);
        report.settings = Some(if is_target {
            Settings::InPlace
        } else if differences(&config, &Config::default()).is_empty() {
            Settings::None
        } else if target.symlink_metadata().is_ok() {
            report.differences = differences(&config, &settings_of(&read(&target)?, &target)?);
            if report.differences.is_empty() {
                Settings::Equal
            } else {
                Settings::Differ
            }
        } else {
            Settings::Copied
        });
        report.remove = Some(if is_target {
            format!("sed -i '{WITHOUT_SECURITY}' {}", remedy::path(file))
        } else {
            remedy::remove(file)
        });
        report.settings_file = Some(target);
        if !self.dry_run {
            let device = Device {
                name: &name,
                directory: &directory,
                who: Who::Owner,
                passphrase: None,
                owner: None,
                settings: (report.settings == Some(Settings::Copied)).then_some(&text),
            };
            let key = device.make()?;
            report.fingerprint = Some(key.fingerprint().to_string());
            report.trust_add = Some(trust_add(&name, &key));
        }
        report.name = Some(name);
        report.directory = Some(directory);
        Ok(report)
    }
}

impl MigrationReport {
    fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let Some(file) = &self.file else {
            return writeln!(out, "nothing to migrate");
        };
        let shown = |path: &Option<PathBuf>| {
            let path = path.as_deref().unwrap_or_else(|| Path::new(""));
            printable(&path.display().to_string())
        };
        let old = printable(&file.display().to_string());
        let keys = match &self.keys[..] {
            [] => "without [security]".to_owned(),
            keys => format!("[security] with {}", printable(&keys.join(", "))),
        };
        writeln!(out, "found         {old}, {keys}")?;
        let target = shown(&self.settings_file);
        let will_be = if self.dry_run { "would be " } else { "" };
        match self.settings {
            Some(Settings::Copied) => {
                writeln!(out, "settings      {will_be}copied to {target}")?;
            }
            Some(Settings::InPlace) => writeln!(out, "settings      stay where they are")?,
            Some(Settings::Equal) => writeln!(out, "settings      are in {target} too")?,
            Some(Settings::Differ) => {
                writeln!(
                    out,
                    "settings      differ from {target}, which stays as it is:"
                )?;
                for Difference { key, old, here } in &self.differences {
                    let line = format!("{key} = {old}, not {here}");
                    writeln!(out, "              {}", printable(&line))?;
                }
            }
            Some(Settings::None) | None => writeln!(out, "settings      none to copy")?,
        }
        let name = printable(self.name.as_deref().unwrap_or(""));
        let directory = shown(&self.directory);
        let (Some(fingerprint), Some(trust_add)) = (&self.fingerprint, &self.trust_add) else {
            writeln!(
                out,
                "new key       would be made in {directory}, for {name}"
            )?;
            return writeln!(out, "\nNothing was changed. To do it, leave out --dry-run.");
        };
        writeln!(out, "name          {name}")?;
        writeln!(out, "fingerprint   {fingerprint}")?;
        writeln!(out, "directory     {directory}")?;
        writeln!(
            out,
            "\nOn each machine that shall exchange streams with this one, run\n\n  {trust_add}\n\n\
             The two kinds of encryption do not talk to each other: move all devices in one go. Instead of\n\
             one key for the lab each device has its own; no key was taken from the old file. It stays; once\n\
             no device needs it,\n\n  {}",
            self.remove.as_deref().unwrap_or("")
        )
    }
}

fn read(file: &Path) -> Outcome<String> {
    let bytes = fs::read(file).map_err(|error| {
        Failure::Runtime(format!(
            "{}: {error}; allow this user to read it, or remove it",
            file.display()
        ))
    })?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Parses the settings of a text. One with a mistake is not copied: its copy would be unusable.
fn settings_of(text: &str, file: &Path) -> Outcome<Config> {
    match load_text(text, &Source::Api(file.to_owned())) {
        Ok((config, _)) => Ok(config),
        Err(wrong) => Err(Failure::Runtime(format!(
            "{wrong}; correct this line, then run it again"
        ))),
    }
}

fn differences(old: &Config, here: &Config) -> Vec<Difference> {
    let pairs = old.entries().into_iter().zip(here.entries());
    let differ = pairs.filter(|(old, here)| old.value != here.value);
    differ
        .map(|(old, here)| Difference {
            key: old.key,
            old: old.value,
            here: here.value,
        })
        .collect()
}

fn is_same(one: &Path, other: &Path) -> bool {
    let real = |path: &Path| fs::canonicalize(path).ok();
    real(one).is_some_and(|one| Some(one) == real(other))
}

/// Script for `sed`: deletes keys that name the section themselves, and from the header of the
/// section to the line before the next one.
const WITHOUT_SECURITY: &str = r"/^ *security\./d;/^\[security\]/,/^\[/{/^\[security\]/d;/^\[/!d}";
