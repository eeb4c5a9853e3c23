//! `lsl xdf salvage`: writes the readable parts of a badly damaged recording anew.

use std::io::{self, Write};
use std::path::PathBuf;

use clap::Args;
use lsl_xdf::salvage::{Salvage as Plan, SalvageReport};
use serde_json::json;

use super::info::size;
use super::output;
use crate::failure::Outcome;
use crate::files::at_rest_keys::{IdentityArgs, RecipientArgs};
use crate::files::recording::Opener;
use crate::interrupt::Stop;
use crate::ui::notice::note;
use crate::ui::table::{Align, Table};
use crate::ui::text::printable;

#[derive(Debug, Args)]
pub(super) struct Salvage {
    /// Recording, however damaged
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// File to write
    #[arg(long, short, value_name = "FILE")]
    output: PathBuf,

    /// Only the streams of these numbers, as `lsl xdf info` shows them
    #[arg(long, value_name = "ID", value_delimiter = ',')]
    streams: Vec<u32>,

    /// Print a JSON object
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    recipients: RecipientArgs,

    #[command(flatten)]
    identity: IdentityArgs,
}

pub(super) const EXAMPLES: &str = "\
Examples:
  lsl xdf salvage broken.xdf -o saved.xdf
  lsl xdf salvage today.xdf --streams 1 -o eeg.xdf      one stream of many
  lsl xdf salvage -i key.txt -R lab.txt broken.xdf.age -o saved.xdf.age

For files that `lsl xdf repair` cannot help: every sample that can be read counts, and a stream whose
header is lost gets one that is made up, with a format that is a guess. The file is written anew, so
a signed one is no longer signed. Repair first: it keeps what is whole as it was.";

impl Salvage {
    pub(super) fn run(&self) -> Outcome {
        let recipients = self.recipients.recipients()?;
        let mut opener = Opener::new(&self.identity, Stop::install()?)?;
        let mut source = opener.open(&self.file, "Salvaging")?;
        output::check_recipients(
            &self.file,
            &self.output,
            source.is_encrypted,
            recipients.as_ref(),
        )?;
        let mut plan = Plan::new();
        if !self.streams.is_empty() {
            plan = plan.only(self.streams.iter().copied());
        }
        let report = output::write(&self.output, recipients.as_ref(), |out| {
            Ok(plan.run(&mut source, out)?)
        })?;
        source.end_progress();
        if let Some(trouble) = source.trouble() {
            note(format_args!("{}: {trouble}", self.file.display()));
        }
        self.report(&report)
    }

    fn report(&self, report: &SalvageReport) -> Outcome {
        let mut out = io::stdout().lock();
        if self.json {
            let streams: Vec<_> = report
                .streams
                .iter()
                .map(|(id, stream)| {
                    json!({
                        "id": id,
                        "from": stream.from,
                        "samples": stream.samples,
                        "clock_offsets": stream.offsets,
                        "guessed": stream.is_guessed,
                    })
                })
                .collect();
            let problems: Vec<String> = report.problems.iter().map(ToString::to_string).collect();
            let object = json!({
                "file": self.file,
                "output": self.output,
                "lost_bytes": report.lost_bytes,
                "unknown_chunks": report.unknown_chunks,
                "streams": streams,
                "problems": problems,
            });
            serde_json::to_writer(&mut out, &object)?;
            writeln!(out)?;
            return Ok(out.flush()?);
        }
        writeln!(
            out,
            "{}: {} could not be read",
            printable(&self.output.display().to_string()),
            size(report.lost_bytes)
        )?;
        let (left, right) = (Align::Left, Align::Right);
        let mut table = Table::new(&[
            ("ID", right),
            ("WAS", right),
            ("SAMPLES", right),
            ("OFFSETS", right),
            ("HEADER", left),
        ]);
        for (id, stream) in &report.streams {
            let header = if stream.is_guessed { "guessed" } else { "kept" };
            table.push([
                id.to_string().as_str(),
                &stream.from.to_string(),
                &stream.samples.to_string(),
                &stream.offsets.to_string(),
                header,
            ]);
        }
        table.write(&mut out, "  ")?;
        if report.unknown_chunks > 0 {
            writeln!(
                out,
                "  {} chunks of streams that nothing is known about were left out",
                report.unknown_chunks
            )?;
        }
        Ok(out.flush()?)
    }
}
