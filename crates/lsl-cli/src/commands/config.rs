//! `lsl config`: shows the settings in force and where they come from, and checks them.

mod edit;
mod migrate;

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use lsl_core::config::{
    Diagnostic, Entry, Overrides, Severity, Source, SystemFiles, load, load_text,
};
use lsl_core::secure::config::{Found, search};
use lsl_proto::config::{EncryptionRequest, sample_file};
use serde::Serialize;

use crate::failure::{Failure, Outcome};
use crate::globals::Globals;
use crate::ui::table::{Align, Table};

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Config {
    #[command(subcommand)]
    action: ConfigCommand,
}

#[derive(Debug, Subcommand)]
enum ConfigCommand {
    /// Print every setting that is in force
    #[command(after_help = "\
Examples:
  lsl config show --origin        where does each value come from?
  lsl config show --session lab2  what the command line changes shows too
  lsl config show --json | jq '.[] | select(.value != .default)'")]
    Show(Show),
    /// Look for mistakes in a configuration file, by default the one in use
    #[command(after_help = "\
Examples:
  lsl config check
  lsl config check ./lsl_api.cfg || echo \"look at it\"

Exit status 1 when there is something to repair.")]
    Check(Check),
    /// Print a file in which every key is explained, ready to edit
    #[command(after_help = "\
Examples:
  lsl config sample > ~/lsl_api/lsl_api.cfg")]
    Sample,
    /// Set a key of the file in use
    Set(edit::Set),
    /// Add to a set of values, such as the hosts that are asked directly
    Add(edit::Add),
    /// Take a key back to its default, or one value out of a set
    Remove(edit::Remove),
    /// Move from Secure LSL's settings to this library's encryption
    Migrate(migrate::Migrate),
}

const EXAMPLES: &str = "\
Examples:
  lsl config show --origin       values and where they come from
  lsl config check lsl_api.cfg   mistakes, with line numbers
  lsl config sample              a commented lsl_api.cfg
  lsl config add lab.KnownPeers 192.168.1.20
  lsl config migrate --dry-run   is there anything of Secure LSL to move?

The first of these files that can be read and parsed is used, alone: --config FILE, the file named
by the environment variable LSLAPICFG, ./lsl_api.cfg, ~/lsl_api/lsl_api.cfg,
/etc/lsl_api/lsl_api.cfg.";

#[derive(Debug, Args)]
struct Show {
    /// Say for each value whether it is a default or which line of which file set it
    #[arg(long)]
    origin: bool,

    /// Print a JSON array
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct Check {
    /// File to check
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
}

/// One element of `show --json`.
#[derive(Debug, Serialize)]
struct SettingRow<'a> {
    key: &'a str,
    value: &'a str,
    default: &'static str,
    origin: String,
    doc: &'static str,
}

impl Config {
    pub(crate) fn run(&self, globals: &Globals) -> Outcome {
        match &self.action {
            ConfigCommand::Show(show) => show.run(globals),
            ConfigCommand::Check(check) => check.run(globals),
            ConfigCommand::Set(set) => set.run(globals),
            ConfigCommand::Add(add) => add.run(globals),
            ConfigCommand::Remove(remove) => remove.run(globals),
            ConfigCommand::Migrate(migrate) => migrate.run(globals),
            ConfigCommand::Sample => {
                let mut out = io::stdout().lock();
                out.write_all(sample_file().as_bytes())?;
                Ok(out.flush()?)
            }
        }
    }
}

impl Show {
    fn run(&self, globals: &Globals) -> Outcome {
        let loaded = globals.load()?;
        let entries = loaded.config.entries();
        let mut out = io::stdout().lock();
        if self.json {
            let rows: Vec<SettingRow<'_>> = entries.iter().map(row).collect();
            serde_json::to_writer_pretty(&mut out, &rows)?;
            writeln!(out)?;
        } else {
            let mut columns = vec![("KEY", Align::Left), ("VALUE", Align::Left)];
            if self.origin {
                columns.push(("ORIGIN", Align::Left));
                writeln!(out, "in use: {}\n", loaded.source)?;
            }
            let mut table = Table::new(&columns);
            for entry in &entries {
                table.push([entry.key.clone(), entry.value.clone(), origin(entry)]);
            }
            table.write(&mut out, "")?;
        }
        Ok(out.flush()?)
    }
}

fn row(entry: &Entry) -> SettingRow<'_> {
    SettingRow {
        key: &entry.key,
        value: &entry.value,
        default: entry.default,
        origin: origin(entry),
        doc: entry.doc,
    }
}

fn origin(entry: &Entry) -> String {
    match entry.origin {
        // Here the program that sets values is this one, and it does so when it is told to.
        lsl_core::config::Origin::Api => "command line".into(),
        ref origin => origin.to_string(),
    }
}

impl Check {
    fn run(&self, globals: &Globals) -> Outcome {
        let file = self.file.as_deref().or_else(|| globals.config_file());
        let (subject, diagnostics, request) = if let Some(path) = file {
            let (diagnostics, request) = check_file(path)?;
            (path.display().to_string(), diagnostics, request)
        } else {
            let loaded = load(&SystemFiles, &Overrides::default());
            let request = globals.encryption_request();
            (loaded.source.to_string(), loaded.diagnostics, request)
        };
        let mut out = io::stdout().lock();
        for diagnostic in &diagnostics {
            let severity = match diagnostic.severity {
                Severity::Note => "note",
                Severity::Warning => "warning",
                Severity::Error => "error",
            };
            writeln!(out, "{severity}: {diagnostic}")?;
        }
        if let Some(request) = &request {
            writeln!(out, "error: {request}")?;
        }
        let problems = diagnostics
            .iter()
            .filter(|found| found.severity >= Severity::Warning)
            .count()
            + usize::from(request.is_some());
        if problems == 0 {
            writeln!(out, "{subject}: no problems")?;
        }
        out.flush()?;
        match problems {
            0 => Ok(()),
            1 => Err(Failure::Runtime(
                "1 problem; `lsl config sample` shows every key".into(),
            )),
            _ => Err(Failure::Runtime(format!(
                "{problems} problems; `lsl config sample` shows every key"
            ))),
        }
    }
}

/// Checks a file. Returns its diagnostics, and the request that stops streams.
fn check_file(path: &Path) -> Outcome<(Vec<Diagnostic>, Option<EncryptionRequest>)> {
    let bytes = std::fs::read(path)
        .map_err(|error| Failure::Runtime(format!("{}: {error}", path.display())))?;
    let text = String::from_utf8_lossy(&bytes);
    let source = Source::Api(path.to_owned());
    let request = EncryptionRequest::of_settings(&text, &source)
        .filter(|_| matches!(search(), Ok(Found::Nothing { .. })));
    let diagnostics = match load_text(&text, &source) {
        Ok((_, diagnostics)) => diagnostics,
        Err(diagnostic) => vec![diagnostic],
    };
    Ok((diagnostics, request))
}
