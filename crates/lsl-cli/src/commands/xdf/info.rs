//! `lsl xdf info`: shows the contents of recordings.

use std::io::{self, Write};
use std::path::PathBuf;

use clap::Args;
use lsl_core::xml::ElementRef;
use serde::Serialize;
use serde_json::Value;

use crate::failure::{Failure, Outcome};
use crate::files::at_rest_keys::IdentityArgs;
use crate::files::recording::Opener;
use crate::files::summary::{StreamSummary, Summary};
use crate::interrupt::Stop;
use crate::streams::describe::element_json;
use crate::ui::notice::note;
use crate::ui::table::{Align, Table};
use crate::ui::text::{count, printable, rate};

#[derive(Debug, Args)]
pub(super) struct Info {
    /// Recordings
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,

    /// Print one JSON object for each file, a line each, with all metadata
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    identity: IdentityArgs,
}

pub(super) const EXAMPLES: &str = "\
Examples:
  lsl xdf info today.xdf
  lsl xdf info --identity key.txt today.xdf.age
  lsl xdf info --json today.xdf | jq -r '.streams[].name'

RATE is what the stream announced, REAL what its timestamps say. OFFSETS are measurements of its
clock, without which it cannot be aligned with others. Every file is read to its end. Exit status 1
when one cannot be read.";

/// Contents of one file: an object of `--json`.
#[derive(Debug, Serialize)]
struct Described<'a> {
    file: &'a PathBuf,
    bytes: u64,
    encrypted: bool,
    compressed: bool,
    datetime: Option<String>,
    /// Places that cannot be read.
    problems: u64,
    streams: Vec<DescribedStream>,
}

#[derive(Debug, Serialize)]
struct DescribedStream {
    id: u32,
    name: String,
    #[serde(rename = "type")]
    stream_type: String,
    channel_count: usize,
    channel_format: &'static str,
    nominal_srate: f64,
    effective_srate: Option<f64>,
    source_id: String,
    hostname: String,
    uid: String,
    samples: u64,
    first_timestamp: Option<f64>,
    last_timestamp: Option<f64>,
    duration_secs: f64,
    clock_offsets: usize,
    /// Number of times its clock was set or began anew.
    clock_steps: usize,
    gaps: u64,
    /// Samples that are missing in the gaps, as far as it is known.
    missing_samples: u64,
    /// Gaps of which that is not known.
    unknown_gaps: u64,
    has_footer: bool,
    desc: Value,
}

impl Info {
    pub(super) fn run(&self) -> Outcome {
        let mut opener = Opener::new(&self.identity, Stop::install()?)?;
        let mut failed = None;
        for (index, path) in self.files.iter().enumerate() {
            opener.check_stop(index, self.files.len())?;
            let shown = self.show(path, index > 0, &mut opener);
            match shown {
                Err(Failure::ReaderLeft) => return Err(Failure::ReaderLeft),
                Err(failure) if self.files.len() == 1 => return Err(failure),
                Err(failure) => {
                    note(format_args!("lsl: {failure}"));
                    failed = Some(failure);
                }
                Ok(()) => {}
            }
        }
        match failed {
            Some(_) => Err(Failure::Runtime("not every file could be read".into())),
            None => Ok(()),
        }
    }

    fn show(&self, path: &PathBuf, is_later: bool, opener: &mut Opener) -> Outcome {
        let name = path.display().to_string();
        let mut source = opener.open(path, "Reading")?;
        let summary = Summary::read(&mut source).map_err(|failure| failure.context(&name))?;
        source.end_progress();
        let mut out = io::stdout().lock();
        let datetime = summary.file_header.as_ref().and_then(|header| {
            let text = header.get("datetime")?.into_owned();
            (!text.is_empty()).then_some(text)
        });
        if self.json {
            let described = Described {
                file: path,
                bytes: summary.len,
                encrypted: source.is_encrypted,
                compressed: source.is_compressed,
                datetime,
                problems: summary.problems + u64::from(source.trouble().is_some()),
                streams: summary.streams.iter().map(describe).collect(),
            };
            serde_json::to_writer(&mut out, &described)?;
            writeln!(out)?;
            return Ok(out.flush()?);
        }
        if is_later {
            writeln!(out)?;
        }
        let mut facts = vec![count(summary.streams.len(), "stream"), size(summary.len)];
        facts.extend(datetime.map(|text| format!("recorded {}", printable(&text))));
        facts.extend(source.is_encrypted.then(|| "encrypted".to_owned()));
        facts.extend(source.is_compressed.then(|| "compressed".to_owned()));
        writeln!(out, "{}: {}", printable(&name), facts.join(", "))?;
        write_table(&summary, &mut out)?;
        out.flush()?;
        if let Some(trouble) = source.trouble() {
            note(format_args!(
                "{name}: {trouble}; what is shown is what is whole."
            ));
        } else if summary.problems > 0 || summary.streams.values().any(|s| !s.has_footer) {
            note(format_args!(
                "{name} is damaged or unfinished: lsl xdf check says how."
            ));
        }
        Ok(())
    }
}

fn describe((&id, stream): (&u32, &StreamSummary)) -> DescribedStream {
    let header = &stream.header;
    let text = |name: &str| header.get(name).unwrap_or_default().into_owned();
    let document = header.document();
    let desc = document
        .child(document.root(), "info")
        .and_then(|info| document.child(info, "desc"))
        .and_then(|desc| ElementRef::new(document, desc));
    DescribedStream {
        id,
        name: text("name"),
        stream_type: text("type"),
        channel_count: header.channel_count(),
        channel_format: header.channel_format().name(),
        nominal_srate: header.nominal_srate(),
        effective_srate: stream.effective_rate(),
        source_id: text("source_id"),
        hostname: text("hostname"),
        uid: text("uid"),
        samples: stream.samples,
        first_timestamp: stream.span.map(|(first, _)| first),
        last_timestamp: stream.span.map(|(_, last)| last),
        duration_secs: stream.duration(),
        clock_offsets: stream.offsets.len(),
        clock_steps: stream.correction().steps(),
        gaps: stream.gaps,
        missing_samples: stream.missing,
        unknown_gaps: stream.unknown_gaps,
        has_footer: stream.has_footer,
        desc: desc.map_or(Value::Null, element_json),
    }
}

fn write_table(summary: &Summary, out: &mut impl Write) -> io::Result<()> {
    let (left, right) = (Align::Left, Align::Right);
    let mut table = Table::new(&[
        ("ID", right),
        ("NAME", left),
        ("TYPE", left),
        ("CH", right),
        ("FORMAT", left),
        ("RATE", right),
        ("REAL", right),
        ("SAMPLES", right),
        ("SECONDS", right),
        ("OFFSETS", right),
        ("HOST", left),
        ("", left),
    ]);
    for (id, stream) in &summary.streams {
        let header = &stream.header;
        let mut remarks = Vec::new();
        if stream.gaps > 0 {
            let gaps = count(usize::try_from(stream.gaps).unwrap_or(usize::MAX), "gap");
            remarks.push(match (stream.missing, stream.unknown_gaps) {
                (0, _) => gaps,
                (missing, 0) => format!("{gaps} ({missing} lost)"),
                (missing, _) => format!("{gaps} ({missing}+ lost)"),
            });
        }
        if !stream.has_footer {
            remarks.push("no footer".into());
        }
        let real = match stream.effective_rate() {
            Some(real) if header.nominal_srate() > 0.0 => format!("{real:.3} Hz"),
            _ => "-".into(),
        };
        table.push([
            id.to_string().as_str(),
            &header.name(),
            &header.stream_type(),
            &header.channel_count().to_string(),
            header.channel_format().name(),
            &rate(header.nominal_srate()),
            &real,
            &stream.samples.to_string(),
            &format!("{:.3}", stream.duration()),
            &stream.offsets.len().to_string(),
            &header.get("hostname").unwrap_or_default(),
            &remarks.join(", "),
        ]);
    }
    table.write(out, "  ")
}

/// Formats bytes as people say them.
pub(super) fn size(bytes: u64) -> String {
    let units = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match units.iter().find(|(unit, _)| bytes >= *unit) {
        Some((unit, name)) => format!("{:.1} {name}", bytes as f64 / *unit as f64),
        None => format!("{bytes} bytes"),
    }
}
