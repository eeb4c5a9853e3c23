//! `lsl xdf check`: tells whether recordings are whole.

use std::io::{self, Write};
use std::path::PathBuf;

use clap::Args;
use lsl_xdf::ProblemKind;
use lsl_xdf::repair::{self, Finding, Survey};
use serde::Serialize;

use crate::failure::{Failure, Outcome};
use crate::files::at_rest_keys::IdentityArgs;
use crate::files::recording::Opener;
use crate::interrupt::Stop;
use crate::ui::notice::note;
use crate::ui::text::{count, printable};

#[derive(Debug, Args)]
pub(super) struct Check {
    /// Recordings
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,

    /// Print one JSON object for each file, a line each
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    identity: IdentityArgs,
}

pub(super) const EXAMPLES: &str = "\
Examples:
  lsl xdf check today.xdf
  lsl xdf check *.xdf && echo all whole
  lsl xdf check --identity key.txt today.xdf.age

Whole means: every chunk can be read, every stream was closed and has as many samples as its footer
says, and nothing is missing that had reached the disk. Remarks, such as timestamps that go backwards
or a stream whose clock was never measured, do not count. Exit status 1 when a file is not whole.";

/// Report of one file: an object of `--json`.
#[derive(Debug, Serialize)]
struct Checked<'a> {
    file: &'a PathBuf,
    whole: bool,
    bytes: u64,
    streams: usize,
    samples: u64,
    /// Findings that make the file not whole.
    errors: Vec<String>,
    /// Findings that do not count, for information.
    remarks: Vec<String>,
    /// Whether `lsl xdf repair` would change the file.
    repairable: bool,
}

impl Check {
    pub(super) fn run(&self) -> Outcome {
        let mut opener = Opener::new(&self.identity, Stop::install()?)?;
        let (mut bad, mut unread) = (0, 0);
        let mut repairable = false;
        for (index, path) in self.files.iter().enumerate() {
            opener.check_stop(index, self.files.len())?;
            match self.check(path, &mut opener) {
                Ok((whole, can_be_repaired)) => {
                    bad += usize::from(!whole);
                    repairable |= can_be_repaired;
                }
                Err(Failure::ReaderLeft) => return Err(Failure::ReaderLeft),
                Err(failure) if self.files.len() == 1 => return Err(failure),
                Err(failure) => {
                    note(format_args!("lsl: {failure}"));
                    unread += 1;
                }
            }
        }
        match (bad, unread) {
            (0, 0) => Ok(()),
            (bad, 0) => Err(Failure::Runtime(format!(
                "{} not whole{}",
                if self.files.len() == 1 {
                    "it is".to_owned()
                } else {
                    format!("{bad} of {} are", count(self.files.len(), "file"))
                },
                if repairable {
                    ": lsl xdf repair FILE"
                } else {
                    ""
                },
            ))),
            (bad, unread) => Err(Failure::Runtime(format!(
                "of {}, {bad} not whole, {unread} not readable",
                count(self.files.len(), "file")
            ))),
        }
    }

    /// Checks a file. Returns whether it is whole, and whether a repair would change it.
    fn check(&self, path: &PathBuf, opener: &mut Opener) -> Outcome<(bool, bool)> {
        let name = path.display().to_string();
        let mut source = opener.open(path, "Checking")?;
        let survey = if source.is_plain() {
            // Reads the file once more by itself: only it knows the journal.
            repair::check(path)
        } else {
            repair::survey(&mut source)
        };
        let survey = survey.map_err(|error| Failure::from(error).context(&name))?;
        source.end_progress();
        let trouble = source.trouble().map(str::to_owned);
        let (errors, remarks): (Vec<&Finding>, Vec<&Finding>) = survey
            .findings
            .iter()
            .partition(|finding| is_error(finding));
        let texts = |findings: &[&Finding]| findings.iter().map(ToString::to_string).collect();
        let mut errors: Vec<String> = texts(&errors);
        errors.splice(0..0, trouble);
        let checked = Checked {
            file: path,
            whole: errors.is_empty(),
            bytes: survey.len,
            streams: survey.streams.len(),
            samples: samples(&survey),
            errors,
            remarks: texts(&remarks),
            repairable: !survey.is_whole(),
        };
        let mut out = io::stdout().lock();
        if self.json {
            serde_json::to_writer(&mut out, &checked)?;
            writeln!(out)?;
        } else {
            write_text(&checked, &printable(&name), &mut out)?;
        }
        out.flush()?;
        Ok((checked.whole, checked.repairable))
    }
}

fn write_text(checked: &Checked<'_>, name: &str, out: &mut impl Write) -> io::Result<()> {
    let verdict = if checked.whole { "whole" } else { "NOT WHOLE" };
    let streams = count(checked.streams, "stream");
    writeln!(
        out,
        "{name}: {verdict}, {streams}, {} samples",
        checked.samples
    )?;
    for (list, mark) in [(&checked.errors, "-"), (&checked.remarks, "remark:")] {
        for text in list.iter().take(MAX_SHOWN) {
            writeln!(out, "  {mark} {}", printable(text))?;
        }
        if list.len() > MAX_SHOWN {
            writeln!(
                out,
                "  {mark} and {} more; --json lists them",
                list.len() - MAX_SHOWN
            )?;
        }
    }
    Ok(())
}

/// Returns the number of samples that can be read, of all streams.
pub(super) fn samples(survey: &Survey) -> u64 {
    survey
        .streams
        .values()
        .map(|stream| stream.tally.samples)
        .sum()
}

/// Returns whether a file with this finding is not whole.
fn is_error(finding: &Finding) -> bool {
    match finding {
        Finding::Problem(problem) => !matches!(problem.kind, ProblemKind::StampsGuessed),
        Finding::Backwards { .. } | Finding::NoOffsets { .. } | Finding::SecondHeader { .. } => {
            false
        }
        _ => true,
    }
}

/// Most findings of one file that are shown.
const MAX_SHOWN: usize = 20;
