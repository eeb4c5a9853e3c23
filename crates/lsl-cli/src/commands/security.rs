//! `lsl security`: reports this machine's encryption, its trusted devices and the streams around it.
//! Says as much as it can also when the configuration is broken.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand};
use lsl_core::secure::config::{self, Found, Settings};
use lsl_core::secure::policy::Discovery;
use lsl_core::secure::{Policy, Security as Library, keyfile};
use lsl_core::{Context, Selector};
use serde::Serialize;

use crate::failure::{Failure, Outcome};
use crate::files::place::{self, PlaceArgs};
use crate::files::trust;
use crate::globals::Globals;
use crate::streams::describe::Described;
use crate::streams::select::seconds;
use crate::ui::text::{count, printable};

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Security {
    #[command(subcommand)]
    action: SecurityCommand,
}

#[derive(Debug, Subcommand)]
enum SecurityCommand {
    /// Show policy, key, trust and warnings, and which streams around us are encrypted
    Status(Status),
}

const EXAMPLES: &str = "\
Examples:
  lsl security status            how do things stand?
  lsl security status --json     for programs
  sudo -u lab lsl security status   as seen by a service that runs as user lab

`lsl key init` switches encryption on, `lsl trust add` names the other machines.";

#[derive(Debug, Args)]
#[command(after_help = STATUS_EXAMPLES)]
struct Status {
    /// Print one JSON object
    #[arg(long)]
    json: bool,

    /// Seconds to look for streams; 0 looks for none
    #[arg(long, value_name = "SECS", default_value = "1.5", value_parser = seconds)]
    timeout: f64,

    #[command(flatten)]
    place: PlaceArgs,
}

const STATUS_EXAMPLES: &str = "\
Examples:
  lsl security status
  lsl security status --json | jq -r .policy
  lsl security status --timeout 0      without looking at the network

The first of these that exists is used: the file named by LSL_SECURE_CONFIG,
~/lsl_api/lsl-secure.toml, /etc/lsl_api/lsl-secure.toml. Without any, nothing is encrypted. A file that
exists and has a mistake stops every stream: exit status 1.";

/// State of the encryption: the object of `--json`.
#[derive(Debug, Default, Serialize)]
struct SecurityReport {
    /// Policy in force today: `required`, `migrate`, `off`; null if nothing may stream.
    policy: Option<&'static str>,
    file: Option<PathBuf>,
    /// Places that were searched, if there is no file.
    searched: Vec<PathBuf>,
    name: Option<String>,
    fingerprint: Option<String>,
    public_key: Option<String>,
    key_file: Option<PathBuf>,
    key_encrypted: Option<bool>,
    trust_file: Option<PathBuf>,
    trusted: Option<Trusted>,
    psk: bool,
    discovery: Option<&'static str>,
    audit_file: Option<PathBuf>,
    /// Seconds for which outlets of programs with this configuration keep in memory what they sent.
    retain_secs: Option<f64>,
    warnings: Vec<String>,
    errors: Vec<String>,
    /// Streams that answered; null if there was no search.
    network: Option<Network>,
}

/// Numbers of devices in the trust file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
struct Trusted {
    devices: usize,
    /// Devices whose streams we may read.
    outlets: usize,
    /// Devices that may read our streams.
    inlets: usize,
}

/// Numbers of streams around us, by their announcements.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
struct Network {
    required: usize,
    migrate: usize,
    /// Streams that announce something else.
    other: usize,
    plaintext: usize,
}

impl Security {
    pub(crate) fn run(&self, globals: &Globals) -> Outcome {
        match &self.action {
            SecurityCommand::Status(status) => status.run(globals),
        }
    }
}

impl Status {
    fn run(&self, globals: &Globals) -> Outcome {
        let mut report = SecurityReport::default();
        match self.configuration(&mut report) {
            Ok(()) => {}
            Err(error) => report.errors.push(error.to_string()),
        }
        // Loads everything as any program does, so that it finds the same mistakes.
        let context = globals.context_in(self.place.directory());
        match context.as_ref().map(Context::security) {
            Ok(Ok(security)) => report.describe(security),
            Ok(Err(error)) => report.add_error(&error.to_string()),
            Err(error) => report.add_error(&error.to_string()),
        }
        if let Ok(context) = &context {
            report.retain_secs = Some(context.config().tuning().retain_secs);
            if self.timeout > 0.0 {
                self.look_around(context, &mut report)?;
            }
        }
        report.warn();

        let mut out = io::stdout().lock();
        if self.json {
            serde_json::to_writer_pretty(&mut out, &report)?;
            writeln!(out)?;
        } else {
            report.write(&mut out)?;
        }
        out.flush()?;
        drop(out);
        match report.errors.len() {
            0 => Ok(()),
            _ => Err(Failure::Runtime(
                "the configuration cannot be used: no LSL program streams until it is repaired"
                    .into(),
            )),
        }
    }

    /// Reports the files, as far as they can be read.
    fn configuration(&self, report: &mut SecurityReport) -> Outcome {
        let (settings, file) = match self.place.directory() {
            Some(_) => {
                let place = self.place.find()?;
                (place.settings, place.file)
            }
            None => match config::search()? {
                Found::Settings { settings, file } => (*settings, file),
                Found::Nothing { searched } => {
                    report.searched = searched;
                    return Ok(());
                }
                _ => return Ok(()),
            },
        };
        report.settings(&settings, &file);
        if let Some(key_file) = &settings.key_file
            && key_file.exists()
        {
            report.key_encrypted = Some(keyfile::is_encrypted(key_file)?);
        }
        Ok(())
    }

    fn look_around(&self, context: &Context, report: &mut SecurityReport) -> Outcome {
        let timeout = Duration::from_secs_f64(self.timeout);
        let mut network = Network::default();
        for info in context.resolve_blocking(&Selector::all(), 0, timeout)? {
            match Described::from(&info).encryption {
                None => network.plaintext += 1,
                Some(claimed) => match claimed.policy.as_str() {
                    "required" => network.required += 1,
                    "migrate" => network.migrate += 1,
                    _ => network.other += 1,
                },
            }
        }
        report.network = Some(network);
        Ok(())
    }
}

impl SecurityReport {
    fn settings(&mut self, settings: &Settings, file: &Path) {
        self.file = Some(file.to_owned());
        self.name = Some(settings.name.clone());
        self.key_file.clone_from(&settings.key_file);
        self.trust_file.clone_from(&settings.trusted_peers);
        self.psk = settings.psk_file.is_some();
        self.audit_file.clone_from(&settings.audit_file);
        self.discovery = Some(match settings.discovery {
            Discovery::Open => "open",
            Discovery::Minimal => "minimal",
        });
        if settings.allow_shared_key {
            self.warnings.push(
                "allow_shared_key: whoever gets at one machine's key is the whole lab, and the audit \
                 log cannot tell devices apart."
                    .into(),
            );
        }
        if !settings.plaintext_allow.is_empty() {
            self.warnings.push(format!(
                "plaintext_allow: {} without encryption may be read; anybody can feed that.",
                count(settings.plaintext_allow.len(), "legacy stream")
            ));
        }
    }

    /// Reports the encryption in force.
    fn describe(&mut self, security: &Library) {
        self.policy = Some(security.policy().name());
        if let Some(local) = security.local() {
            let key = local.key.public();
            self.fingerprint = Some(key.fingerprint().to_string());
            self.public_key = Some(key.to_string());
        }
        let list = security.trust();
        let peers = list.peers();
        let may = |role| peers.iter().filter(|peer| peer.role.allows(role)).count();
        self.trusted = security.settings().map(|_| Trusted {
            devices: peers.len(),
            outlets: may(lsl_core::secure::Role::Outlet),
            inlets: may(lsl_core::secure::Role::Inlet),
        });
        let today = trust::today_for(self.trust_file.as_deref());
        let expiries = peers.iter().filter_map(|peer| trust::expiry(peer, today));
        self.warnings.extend(expiries);
        match (security.policy(), security.settings()) {
            (Policy::Off, Some(_)) if security.local().is_some() || self.key_exists() => {
                self.warnings.push(format!(
                    "policy = \"off\" although there is a key: NOTHING is encrypted. Set policy = \
                     \"required\" in {}.",
                    self.file
                        .as_deref()
                        .unwrap_or_else(|| Path::new(""))
                        .display()
                ));
            }
            (Policy::Migrate, Some(settings)) => {
                let until = settings.migrate_until.map(|day| day.to_string());
                self.warnings.push(format!(
                    "policy = \"migrate\": plaintext is accepted until {} (UTC).",
                    until.unwrap_or_default()
                ));
            }
            (Policy::Required, Some(settings)) if settings.policy == Policy::Migrate => {
                let over = settings.migrate_until.is_none_or(|last| last < today);
                let why = if over {
                    "migrate_until is over"
                } else {
                    "the list of streams that were encrypted before (known_secure, beside the \
                     configuration) cannot be used"
                };
                self.warnings
                    .push(format!("{why}: \"migrate\" acts as \"required\" now."));
            }
            _ => {}
        }
        if security.local().is_some() && peers.is_empty() {
            self.warnings.push(
                "nobody is trusted yet: only programs on this machine can talk. Run `lsl key show` on \
                 the other machines, and here the line it prints."
                    .into(),
            );
        }
        if self.key_encrypted == Some(true)
            && security
                .settings()
                .is_some_and(|settings| settings.passphrase_file.is_none())
        {
            self.warnings.push(
                "the key has a passphrase and there is no passphrase_file: only the `lsl` command can \
                 use it, other programs cannot ask."
                    .into(),
            );
        }
    }

    fn key_exists(&self) -> bool {
        self.key_file.as_ref().is_some_and(|path| path.exists())
    }

    /// Adds an error, unless reading the files failed with it already.
    fn add_error(&mut self, text: &str) {
        if !self.errors.iter().any(|known| known == text) {
            self.errors.push(text.to_owned());
        }
    }

    /// Adds the warnings that only the network gives.
    fn warn(&mut self) {
        let Some(network) = self.network else { return };
        let encrypted = network.required + network.other;
        if self.policy == Some("off") && encrypted > 0 {
            self.warnings.push(format!(
                "this machine cannot read {} around us: encryption needs a key.",
                count(encrypted, "encrypted stream")
            ));
        }
        if self.policy == Some("required") && network.plaintext > 0 {
            self.warnings.push(format!(
                "this machine does not read {} around us: its policy is 'required'.",
                count(network.plaintext, "plaintext stream")
            ));
        }
    }

    fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let path = |path: &Option<PathBuf>| {
            path.as_ref()
                .map_or_else(|| "-".to_owned(), |path| path.display().to_string())
        };
        match self.policy {
            Some("off") => writeln!(out, "policy        off: nothing is encrypted")?,
            Some(policy) => writeln!(out, "policy        {policy}")?,
            None => writeln!(out, "policy        none: nothing streams, see below")?,
        }
        if self.file.is_none() && self.errors.is_empty() {
            let places = place::places(&self.searched);
            writeln!(out, "file          none; searched {places}")?;
            writeln!(out, "to encrypt    lsl key init --name NAME")?;
        }
        if self.file.is_some() {
            writeln!(out, "file          {}", path(&self.file))?;
            writeln!(
                out,
                "name          {}",
                printable(self.name.as_deref().unwrap_or(""))
            )?;
            let lock = match self.key_encrypted {
                Some(true) => " (with passphrase)",
                _ => "",
            };
            writeln!(out, "key file      {}{lock}", path(&self.key_file))?;
            let absent = || "-".to_owned();
            let fingerprint = self.fingerprint.clone().unwrap_or_else(absent);
            writeln!(out, "fingerprint   {fingerprint}")?;
            writeln!(out, "trust file    {}", path(&self.trust_file))?;
            if let Some(Trusted {
                devices,
                outlets,
                inlets,
            }) = self.trusted
            {
                writeln!(
                    out,
                    "trusted       {}: outlets {outlets}, inlets {inlets}",
                    count(devices, "device")
                )?;
            }
            writeln!(
                out,
                "shared key    {}",
                if self.psk { "yes (psk_file)" } else { "-" }
            )?;
            writeln!(out, "discovery     {}", self.discovery.unwrap_or("-"))?;
            writeln!(out, "audit file    {}", path(&self.audit_file))?;
        }
        match self.retain_secs {
            Some(secs) if secs > 0.0 => writeln!(
                out,
                "retained      samples stay in memory for {secs} s after they were sent (RetainSeconds)"
            )?,
            Some(_) => writeln!(
                out,
                "retained      no samples after they were sent (RetainSeconds = 0)"
            )?,
            None => {}
        }
        if let Some(network) = &self.network {
            writeln!(
                out,
                "network       {}, {} in migration, {} in plaintext",
                count(network.required + network.other, "encrypted stream"),
                network.migrate,
                network.plaintext
            )?;
        }
        for warning in &self.warnings {
            writeln!(out, "\nWARNING: {}", printable(warning))?;
        }
        for error in &self.errors {
            writeln!(out, "\nERROR: {}", printable(error))?;
        }
        Ok(())
    }
}
