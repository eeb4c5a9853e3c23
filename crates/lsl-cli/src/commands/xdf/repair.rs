//! `lsl xdf repair`: makes recordings whole again.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use lsl_xdf::repair::{self, Survey, repair_in_place};
use serde::Serialize;

use super::check::samples;
use super::info::size;
use super::output;
use crate::failure::{Failure, Outcome};
use crate::files::at_rest_keys::{IdentityArgs, RecipientArgs};
use crate::files::recording::Opener;
use crate::interrupt::Stop;
use crate::ui::notice::note;
use crate::ui::table::{Align, Table};
use crate::ui::text::{count, printable};

#[derive(Debug, Args)]
pub(super) struct Repair {
    /// Recordings; several are repaired where they are
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,

    /// Write the repaired recording here and leave FILE as it is
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Print one JSON object for each file, a line each
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    recipients: RecipientArgs,

    #[command(flatten)]
    identity: IdentityArgs,
}

pub(super) const EXAMPLES: &str = "\
Examples:
  lsl xdf repair today.xdf                     after a crash or a power cut
  lsl xdf repair today.xdf -o repaired.xdf     leave the file as it is
  lsl xdf repair -i key.txt -R lab.txt today.xdf.age -o repaired.xdf.age

What is whole stays byte for byte; what is cut off or damaged goes, and is told; footers that are
missing are computed from the samples. No journal is needed. A file that is damaged in its middle, a
compressed and an encrypted one are repaired into another file, --output. Of an encrypted recording
nothing touches the disk in plain, and who can open the new one has to be said again.";

/// Report of one file: an object of `--json`.
#[derive(Debug, Serialize)]
struct Repaired<'a> {
    file: &'a Path,
    output: &'a Path,
    /// Whether there was something to do.
    changed: bool,
    samples: u64,
    dropped_bytes: u64,
    streams: Vec<RepairedStream<'a>>,
}

#[derive(Debug, Serialize)]
struct RepairedStream<'a> {
    id: u32,
    name: &'a str,
    samples: u64,
    lost_samples: u64,
    footer_made: bool,
    first_timestamp: Option<f64>,
    last_timestamp: Option<f64>,
}

impl Repair {
    pub(super) fn run(&self) -> Outcome {
        if self.output.is_some() && self.files.len() > 1 {
            return Err(Failure::Usage("--output is for one FILE".into()));
        }
        let recipients = self.recipients.recipients()?;
        if recipients.is_some() && self.output.is_none() {
            return Err(Failure::Usage(
                "recipients are for a new file: add --output FILE".into(),
            ));
        }
        let mut opener = Opener::new(&self.identity, Stop::install()?)?;
        let mut failures = 0;
        for (index, path) in self.files.iter().enumerate() {
            opener.check_stop(index, self.files.len())?;
            let done = self.repair(path, recipients.as_ref(), &mut opener);
            match done {
                Ok(()) => {}
                Err(Failure::ReaderLeft) => return Err(Failure::ReaderLeft),
                Err(failure) if self.files.len() == 1 => return Err(failure),
                Err(failure) => {
                    note(format_args!("lsl: {failure}"));
                    failures += 1;
                }
            }
        }
        match failures {
            0 => Ok(()),
            failures => Err(Failure::Runtime(format!(
                "{failures} of {} could not be repaired",
                count(self.files.len(), "file")
            ))),
        }
    }

    fn repair(
        &self,
        path: &Path,
        recipients: Option<&lsl_xdf::at_rest::Recipients>,
        opener: &mut Opener,
    ) -> Outcome {
        let named = |failure: Failure| failure.context(&path.display().to_string());
        let mut source = opener.open(path, "Looking for damage")?;
        let Some(output) = &self.output else {
            if !source.is_plain() {
                let kind = if source.is_encrypted {
                    "an encrypted"
                } else {
                    "a compressed"
                };
                return Err(named(Failure::Usage(format!(
                    "{kind} recording is repaired into another file: add --output FILE"
                ))));
            }
            drop(source);
            let survey = repair_in_place(path).map_err(|error| match error {
                lsl_xdf::Error::Argument(text) => {
                    named(Failure::Usage(format!("{text}, --output FILE")))
                }
                error => named(error.into()),
            })?;
            return self.report(path, path, None, &survey);
        };
        output::check_recipients(path, output, source.is_encrypted, recipients)?;
        let survey = if source.is_plain() {
            repair::check(path)
        } else {
            repair::survey(&mut source)
        };
        let survey = survey.map_err(|error| named(error.into()))?;
        let trouble = source.trouble();
        drop(source);
        // Opened before the output is made: the two may have the same name.
        let again = opener.open(path, "Writing")?;
        output::write(output, recipients, |out| {
            Ok(survey.write_repaired(again, out)?)
        })?;
        self.report(path, output, trouble, &survey)
    }

    fn report(
        &self,
        path: &Path,
        output: &Path,
        trouble: Option<&str>,
        survey: &Survey,
    ) -> Outcome {
        let mut out = io::stdout().lock();
        let changed = !survey.is_whole() || trouble.is_some();
        if self.json {
            let streams = survey.streams.iter().map(|(&id, stream)| RepairedStream {
                id,
                name: &stream.name,
                samples: stream.tally.samples,
                lost_samples: stream.lost_samples,
                footer_made: !stream.has_footer,
                first_timestamp: stream.tally.first,
                last_timestamp: stream.tally.last,
            });
            let repaired = Repaired {
                file: path,
                output,
                changed,
                samples: samples(survey),
                dropped_bytes: survey.dropped_bytes,
                streams: streams.collect(),
            };
            serde_json::to_writer(&mut out, &repaired)?;
            writeln!(out)?;
            return Ok(out.flush()?);
        }
        let name = printable(&output.display().to_string());
        if changed {
            let dropped = size(survey.dropped_bytes);
            writeln!(out, "{name}: repaired; {dropped} could not be kept")?;
        } else {
            writeln!(out, "{name}: was whole already")?;
        }
        if let Some(trouble) = trouble {
            writeln!(out, "  {trouble}: what was whole of it is kept")?;
        }
        let (left, right) = (Align::Left, Align::Right);
        let mut table = Table::new(&[
            ("ID", right),
            ("NAME", left),
            ("SAMPLES", right),
            ("LOST", right),
            ("FOOTER", left),
        ]);
        for (id, stream) in &survey.streams {
            table.push([
                id.to_string().as_str(),
                &stream.name,
                &stream.tally.samples.to_string(),
                &stream.lost_samples.to_string(),
                if stream.has_footer { "kept" } else { "made" },
            ]);
        }
        table.write(&mut out, "  ")?;
        Ok(out.flush()?)
    }
}
