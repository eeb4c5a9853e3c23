//! `lsl audit`: reads, checks and sums up the security log that `audit_file` switches on.

mod cbor;
mod context;
mod export;
mod filter;
mod flame;
mod follower;
mod lines;
mod program;
mod pseudonyms;
mod query;
mod resume;
mod summary;
mod tail;
mod tree;

use std::collections::HashSet;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use lsl_core::secure::audit::{Break, Verifier, rotated};
use lsl_core::secure::config::{Found, search};

use self::lines::Lines;
use crate::failure::{Failure, Outcome};
use crate::ui::notice::note;

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Audit {
    #[command(subcommand)]
    action: AuditCommand,
}

#[derive(Debug, Subcommand)]
enum AuditCommand {
    /// Print the last events, and with --follow those that come
    #[command(after_help = tail::EXAMPLES)]
    Tail(tail::Tail),
    /// Print events as they are recorded, until Ctrl-C: `tail -n 0 --follow`
    #[command(after_help = tail::FOLLOW_EXAMPLES)]
    Follow(tail::Follow),
    /// Print connections and what became of them, picked by time and content
    #[command(after_help = query::EXAMPLES)]
    Query(query::Query),
    /// Write events as others read them: crypto-auditing's CBOR, JSON, stacks or a picture
    #[command(after_help = export::EXAMPLES)]
    Export(export::Export),
    /// Check that no line was changed, removed or added
    #[command(after_help = VERIFY_EXAMPLES)]
    Verify(Verify),
    /// Count events, peers and failures
    #[command(after_help = summary::EXAMPLES)]
    Summary(summary::Summary),
}

const EXAMPLES: &str = "\
Examples:
  lsl audit follow            what happens now?
  lsl audit query --since 2h  who was connected, how, and for how long?
  lsl audit verify            is the log as it was written?
  lsl audit summary           who connected, who was refused, and why?

The log is the audit_file of lsl-secure.toml; rotated files (FILE.1, FILE.2, ...) belong to it.";

#[derive(Debug, Args)]
struct Verify {
    /// Logs to check, each with its rotated files; by default the audit_file of the configuration
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,

    /// Accept chains whose first lines are missing, as after audit_keep_days deleted old files
    #[arg(long)]
    allow_missing_start: bool,
}

const VERIFY_EXAMPLES: &str = "\
Examples:
  lsl audit verify
  lsl audit verify copy/audit.jsonl && echo untouched
  lsl audit verify --allow-missing-start audit.jsonl

Every program that writes has a chain of its own in the file: each line holds the hash of the line
before it. Lines cut off at the very end of a chain leave no trace; a copy elsewhere shows them.
Exit status 1 when a chain is broken.";

/// Log as found on disk.
#[derive(Debug)]
struct Log {
    /// Rotated files first, in the order of writing.
    files: Vec<PathBuf>,
    /// Whether old files are deleted.
    expires: bool,
}

impl Audit {
    pub(crate) fn run(&self) -> Outcome {
        match &self.action {
            AuditCommand::Tail(tail) => tail.run(),
            AuditCommand::Follow(follow) => follow.run(),
            AuditCommand::Query(query) => query.run(),
            AuditCommand::Export(export) => export.run(),
            AuditCommand::Verify(verify) => verify.run(),
            AuditCommand::Summary(summary) => summary.run(),
        }
    }
}

impl Verify {
    fn run(&self) -> Outcome {
        let mut files = Vec::new();
        let mut may_start_late = self.allow_missing_start;
        if self.files.is_empty() {
            let (path, expires) = configured()?;
            files = Log::find(&path, expires)?.files;
            may_start_late |= expires;
        }
        for path in &self.files {
            files.extend(Log::find(path, false)?.files);
        }
        // `audit.jsonl*` names rotated files twice, and in the wrong order.
        let mut seen = HashSet::new();
        files.retain(|file| seen.insert(file.clone()));

        let mut out = io::stdout().lock();
        let mut verifier = Verifier::default();
        let (mut broken, mut late) = (0_u64, 0_u64);
        for file in &files {
            let mut lines = Lines::open(file)?;
            while let Some(line) = lines.next()? {
                match verifier.line(line) {
                    Ok(()) => {}
                    Err(Break::Headless { .. }) if may_start_late => late += 1,
                    Err(found) => {
                        broken += 1;
                        if broken <= MAX_SHOWN {
                            let number = lines.number();
                            writeln!(out, "{}:{number}: {found}", file.display())?;
                        }
                    }
                }
            }
        }
        writeln!(
            out,
            "{}, {}, {}",
            count(verifier.lines(), "line"),
            count(verifier.chains() as u64, "chain"),
            count(files.len() as u64, "file"),
        )?;
        out.flush()?;
        if late > 0 {
            note(format_args!(
                "The first lines of {} are missing, as audit_keep_days makes it.",
                count(late, "chain")
            ));
        }
        if verifier.dropped() > 0 {
            note(format_args!(
                "{} could not be written at the time (full disk or queue) and {} counted in the log.",
                count(verifier.dropped(), "line"),
                if verifier.dropped() == 1 { "is" } else { "are" },
            ));
        }
        if broken == 0 {
            Ok(())
        } else {
            Err(Failure::Runtime(format!(
                "the log is not as it was written: {}",
                count(broken, "break")
            )))
        }
    }
}

impl Log {
    /// Finds the log at `path` with its rotated files.
    fn find(path: &Path, expires: bool) -> Outcome<Self> {
        let named = |error: io::Error| Failure::from(error).context(&path.display().to_string());
        let mut files = rotated(path).map_err(named)?;
        // Just after a rotation there may be no current file.
        if path.try_exists().map_err(named)? {
            files.push(path.to_owned());
        } else if files.is_empty() {
            return Err(Failure::NotFound(format!(
                "{}: no such file; nothing was recorded yet, or somewhere else",
                path.display()
            )));
        }
        Ok(Self { files, expires })
    }

    /// Finds the log a command was given, or that of the configuration.
    fn of(file: Option<&Path>) -> Outcome<Self> {
        if let Some(path) = file {
            return Self::find(path, false);
        }
        let (path, expires) = configured()?;
        Self::find(&path, expires)
    }
}

/// Returns the audit file of the configuration in use, and whether its old lines are deleted.
fn configured() -> Outcome<(PathBuf, bool)> {
    let found = search().map_err(|error| Failure::Runtime(error.to_string()))?;
    let Found::Settings { settings, file } = found else {
        return Err(Failure::Usage(
            "there is no lsl-secure.toml (`lsl key init` makes one): name a FILE".into(),
        ));
    };
    match settings.audit_file {
        Some(path) => Ok((path, settings.audit_keep_days > 0)),
        None => Err(Failure::Usage(format!(
            "{} keeps no log: set audit_file there, or name a FILE",
            file.display()
        ))),
    }
}

/// Formats a number with its noun: `1 line`, `2 lines`.
fn count(number: u64, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{plural}")
}

/// Most breaks shown; further ones say nothing new.
const MAX_SHOWN: u64 = 20;
