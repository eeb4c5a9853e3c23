//! `--report`: all that the doctor saw, in a file that can be sent to others. Spec: doctor §3.5

use std::path::PathBuf;

use clap::Args;
use lsl_core::Context;
use lsl_core::config::Loaded;
use lsl_core::secure::files;
use lsl_doctor::collect::surroundings;
use lsl_doctor::observe::Place;
use lsl_doctor::remedy::Remedy;
use lsl_doctor::report::Report;
use lsl_doctor::table::{Finding, diagnose};

use crate::failure::{Failure, Outcome};
use crate::ui::notice::{KeptLog, note};

#[derive(Debug, Args)]
pub(super) struct ReportArgs {
    /// Write all that was seen into a new file, to send it: configuration, system, sockets, log; no keys and no samples;
    /// names become host-1, stream-2 (those of up to three digits stay within sentences), and what the other end of a
    /// pair says becomes a word
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
    pub(super) fn is_wanted(&self) -> bool {
        self.report.is_some()
    }

    /// Writes the report, if one is wanted.
    pub(super) fn write(&self, report: &Report, loaded: &Loaded, context: &Context) -> Outcome {
        let Some(path) = &self.report else {
            return Ok(());
        };
        let mut all = if self.names {
            serde_json::to_value(report)?
        } else {
            serde_json::to_value(without_exchanged(report.clone()))?
        };
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
            members.insert("log".into(), KeptLog::lines().into());
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

/// Leaves of what the other end of a pair said what it is about: the names in it are not known here.
fn without_exchanged(mut report: Report) -> Report {
    let own = diagnose(&report.observations);
    let is_own = |it: &Finding| own.findings.contains(it) || own.notes.contains(it);
    let all = report.findings.iter_mut().chain(&mut report.notes);
    for finding in all.filter(|it| !is_own(it)) {
        "the other machine".clone_into(&mut finding.subject);
        "The other machine said more, and may have named others: it has a report of its own."
            .clone_into(&mut finding.text);
        finding.seen.clear();
        finding.remedies = vec![Remedy {
            place: Place::There,
            ..Remedy::advice(&report.observations, "`lsl doctor --report FILE` there")
        }];
    }
    report
}

#[cfg(test)]
mod tests {
    use lsl_doctor::observe::Observations;
    use lsl_doctor::table::{Diagnosis, Level};

    use super::*;

    #[test]
    fn nothing_is_left_of_what_the_other_end_says() {
        let finding = Finding {
            id: "cfg.rejected".into(),
            level: Level::Fault,
            certain: true,
            subject: "amp: /lab/meyer/lsl_api.cfg".into(),
            text: "/lab/meyer/lsl_api.cfg cannot be used".into(),
            streams: 0,
            seen: vec!["meyer".into()],
            remedies: vec![Remedy::advice(&Observations::default(), "ask meyer")],
        };
        let diagnosis = Diagnosis {
            findings: vec![finding],
            ..Diagnosis::default()
        };
        let report = Report::new(Observations::default(), diagnosis, Vec::new(), 0);
        let report = without_exchanged(report);
        let [told] = &report.findings[..] else {
            panic!("{report:?}")
        };
        let at = told.remedies.first().unwrap().place;
        assert_eq!(
            (&told.id[..], told.level, at),
            ("cfg.rejected", Level::Fault, Place::There)
        );
        let text = serde_json::to_string(&report).unwrap();
        assert!(!text.contains("meyer"), "{text}");
    }
}
