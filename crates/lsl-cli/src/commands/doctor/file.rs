//! `--report`: all that the doctor saw, in a file that can be sent to others. Spec: doctor §3.5

use std::path::PathBuf;

use clap::Args;
use lsl_core::Context;
use lsl_core::config::Loaded;
use lsl_core::secure::files;
use lsl_doctor::collect::surroundings;
use lsl_doctor::report::Report;

use crate::failure::{Failure, Outcome};
use crate::ui::notice::note;

#[derive(Debug, Args)]
pub(super) struct ReportArgs {
    /// Write all that was seen into a new file, to send it: configuration, system, sockets, no keys and no samples;
    /// names become host-1, stream-2
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,

    /// In the report, keep the names of hosts, streams, users and sources
    #[arg(long, requires = "report")]
    names: bool,

    /// Also the rules of the firewall (as root)
    #[arg(long, requires = "report")]
    with_firewall: bool,

    /// Also what `EXE -m lsl_rs doctor --json` says of the library that this Python uses
    #[arg(long, value_name = "EXE", requires = "report")]
    python: Option<PathBuf>,
}

impl ReportArgs {
    /// Writes the report, if one is wanted.
    pub(super) fn write(&self, report: &Report, loaded: &Loaded, context: &Context) -> Outcome {
        let Some(path) = &self.report else {
            return Ok(());
        };
        let mut all = serde_json::to_value(report)?;
        let mut surroundings = surroundings::look(loaded, context, self.with_firewall);
        if let Some(program) = &self.python {
            let said = surroundings::of_python(program).map_err(|why| {
                Failure::Runtime(format!(
                    "{} -m lsl_rs doctor --json: {why}",
                    program.display()
                ))
            })?;
            if let Some(members) = surroundings.as_object_mut() {
                members.insert("python".into(), said);
            }
        }
        if let Some(members) = all.as_object_mut() {
            members.insert("surroundings".into(), surroundings);
        }
        if !self.names {
            surroundings::names(&report.observations, loaded).redact(&mut all);
        }
        files::create(
            path,
            (serde_json::to_string_pretty(&all)? + "\n").as_bytes(),
        )?;
        note(format_args!(
            "Written: {}. {}",
            path.display(),
            if self.names {
                "It names hosts, streams and users."
            } else {
                "Names are left out, addresses are not: look through it before you send it."
            }
        ));
        Ok(())
    }
}
