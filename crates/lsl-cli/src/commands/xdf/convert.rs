//! `lsl xdf convert`: the streams of recordings as tables, each format in a file of `convert/`.

mod csv;
mod parquet;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use lsl_core::xml::ElementRef;
use lsl_xdf::{Cursor, Event, Reader, StreamHeader, Values};

use crate::failure::{Failure, Outcome};
use crate::files::at_rest_keys::IdentityArgs;
use crate::files::recording::Opener;
use crate::files::summary::{StreamSummary, Summary};
use crate::interrupt::Stop;
use crate::ui::notice::note;
use crate::ui::text::{count, printable};

#[derive(Debug, Args)]
pub(super) struct Convert {
    /// Recordings
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,

    /// Format of the tables
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "csv")]
    to: Format,

    /// Folder for the tables [default: beside the recording]
    #[arg(long, short, value_name = "DIR")]
    output: Option<PathBuf>,

    /// Only the streams of these numbers, as `lsl xdf info` shows them
    #[arg(long, value_name = "ID", value_delimiter = ',')]
    streams: Vec<u32>,

    /// Replace tables that are there already
    #[arg(long)]
    force: bool,

    #[command(flatten)]
    identity: IdentityArgs,
}

/// Format in which tables are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Comma separated text
    Csv,
    /// Apache Parquet, compressed
    Parquet,
}

impl Format {
    fn ending(self) -> &'static str {
        match self {
            Self::Csv => "csv",
            Self::Parquet => "parquet",
        }
    }
}

/// Writer of a table in one format.
trait Sheet {
    /// Appends samples: their timestamps, those on the recorder's clock, their values.
    fn write(&mut self, stamps: &[f64], corrected: &[f64], values: &Values) -> Outcome;
    /// Brings everything into the file.
    fn finish(&mut self) -> Outcome;
}

pub(super) const EXAMPLES: &str = "\
Examples:
  lsl xdf convert today.xdf                      today_1_EEG.csv, today_2_Markers.csv, ...
  lsl xdf convert today.xdf -o tables --streams 1
  lsl xdf convert --to parquet today.xdf
  lsl xdf convert --identity key.txt today.xdf.age

One table for each stream: `timestamp` as the stream gave it, `timestamp_corrected` on the clock of
the recorder by the measured offsets, which is what aligns streams, then the channels by their
labels. Comma separated text (RFC 4180) has numbers that read back as the same; `--to parquet` is
smaller, and pandas, R and MATLAB read it with its types.
Tables of an encrypted recording are not encrypted.";

impl Convert {
    pub(super) fn run(&self) -> Outcome {
        let mut opener = Opener::new(&self.identity, Stop::install()?)?;
        let mut written = BTreeSet::new();
        for path in &self.files {
            self.convert(path, &mut opener, &mut written)?;
        }
        Ok(())
    }

    /// Converts a file; `written` are the tables of the files before this one.
    fn convert(
        &self,
        path: &Path,
        opener: &mut Opener,
        written: &mut BTreeSet<PathBuf>,
    ) -> Outcome {
        let named = |failure: Failure| failure.context(&path.display().to_string());
        let source = opener.open(path, "Reading")?;
        let summary = Summary::read(source).map_err(named)?;
        for id in &self.streams {
            if !summary.streams.contains_key(id) {
                return Err(named(Failure::NotFound(format!("there is no stream {id}"))));
            }
        }
        let is_wanted = |id: &u32| self.streams.is_empty() || self.streams.contains(id);
        let stem = self.stem(path)?;
        let mut tables = Tables::default();
        for (&id, stream) in summary.streams.iter().filter(|(id, _)| is_wanted(id)) {
            let channels = stream.header.channel_count();
            if stream.samples == 0 && channels > MAX_UNPROVEN_CHANNELS {
                note(format_args!(
                    "{}: stream {id} claims {channels} channels and has no samples: no table.",
                    path.display()
                ));
                continue;
            }
            let name = tame(&stream.header.name());
            let name = format!("{}_{id}_{name}.{}", stem.display(), self.to.ending());
            let table = PathBuf::from(name);
            if written.contains(&table) {
                return Err(named(Failure::Usage(format!(
                    "{} was just made from another recording of this name: convert one of them into \
                     another folder, --output DIR",
                    table.display()
                ))));
            }
            tables.add(id, &table, stream, self)?;
            written.insert(table);
        }
        let source = opener.open(path, "Converting")?;
        tables.fill(source).map_err(named)?;
        if summary.problems > 0 {
            note(format_args!(
                "{}: {} could not be read: lsl xdf check says where.",
                path.display(),
                count(
                    usize::try_from(summary.problems).unwrap_or(usize::MAX),
                    "place"
                )
            ));
        }
        let mut out = io::stdout().lock();
        for table in tables.finish()? {
            writeln!(out, "{table}")?;
        }
        Ok(out.flush()?)
    }

    /// Returns the common beginning of the tables' names. Makes the output folder.
    fn stem(&self, path: &Path) -> Outcome<PathBuf> {
        let name = path
            .file_name()
            .map(|name| name.to_string_lossy().into_owned());
        let mut name = name.unwrap_or_default();
        for ending in [".age", ".gz", ".xdfz", ".xdf"] {
            name.truncate(name.strip_suffix(ending).unwrap_or(&name).len());
        }
        match &self.output {
            Some(folder) => {
                fs::create_dir_all(folder)
                    .map_err(|error| Failure::from(error).context(&folder.display().to_string()))?;
                Ok(folder.join(name))
            }
            None => Ok(path.with_file_name(name)),
        }
    }
}

/// Replaces the characters of a stream's name that may not stand in the name of a file.
fn tame(name: &str) -> String {
    let keep = |c: char| {
        if c.is_alphanumeric() || "-+.".contains(c) {
            c
        } else {
            '_'
        }
    };
    name.chars().take(80).map(keep).collect()
}

/// The tables of one recording; those that are not finished are removed.
#[derive(Default)]
struct Tables {
    tables: BTreeMap<u32, StreamTable>,
    is_complete: bool,
}

struct StreamTable {
    path: PathBuf,
    /// Another name until it is finished, where it replaces one.
    written_to: PathBuf,
    sheet: Box<dyn Sheet>,
    clock: Cursor,
    rows: u64,
}

impl Tables {
    fn add(&mut self, id: u32, path: &Path, stream: &StreamSummary, wish: &Convert) -> Outcome {
        let mut written_to = path.to_owned();
        if wish.force {
            written_to.as_mut_os_string().push(".part");
            // Left behind by one that was killed, or laid in our way: a link is removed, not followed.
            match fs::remove_file(&written_to) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(Failure::from(error).context(&written_to.display().to_string()));
                }
                _ => {}
            }
        }
        let file = File::create_new(&written_to).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => Failure::Usage(format!(
                "{} exists already; --force replaces it",
                path.display()
            )),
            _ => Failure::from(error).context(&path.display().to_string()),
        })?;
        let made = sheet(file, &stream.header, wish.to);
        let table = StreamTable {
            path: path.to_owned(),
            written_to: written_to.clone(),
            sheet: made.inspect_err(|_| {
                // Ours, and empty.
                let _ = fs::remove_file(&written_to);
            })?,
            clock: stream.correction().cursor(),
            rows: 0,
        };
        self.tables.insert(id, table);
        Ok(())
    }

    fn fill(&mut self, input: impl Read) -> Outcome {
        let mut reader = Reader::new(input);
        while let Some(found) = reader.next()? {
            if let Event::ClockOffset { stream, .. } = found.event
                && let Some(table) = self.tables.get_mut(&stream)
            {
                table.clock.pass_offset();
            }
            if let Event::Samples(batch) = found.event
                && let Some(table) = self.tables.get_mut(&batch.stream)
            {
                let correct = |&stamp: &f64| table.clock.correct(stamp);
                let corrected: Vec<f64> = batch.stamps.iter().map(correct).collect();
                table.rows += batch.stamps.len() as u64;
                let written = table.sheet.write(&batch.stamps, &corrected, &batch.values);
                written.map_err(|failure| failure.context(&table.path.display().to_string()))?;
            }
        }
        Ok(())
    }

    /// Finishes all tables. Returns a line about each.
    fn finish(mut self) -> Outcome<Vec<String>> {
        for table in self.tables.values_mut() {
            let named = |failure: Failure| failure.context(&table.path.display().to_string());
            table.sheet.finish().map_err(named)?;
        }
        for table in self.tables.values() {
            if table.written_to != table.path {
                let moved = fs::rename(&table.written_to, &table.path);
                moved.map_err(|error| {
                    Failure::from(error).context(&table.path.display().to_string())
                })?;
            }
        }
        self.is_complete = true;
        Ok(self
            .tables
            .values()
            .map(|table| {
                let path = table.path.display().to_string();
                format!("{}: {} rows", printable(&path), table.rows)
            })
            .collect())
    }
}

impl Drop for Tables {
    fn drop(&mut self) {
        if !self.is_complete {
            for table in self.tables.values() {
                let _ = fs::remove_file(&table.written_to);
            }
        }
    }
}

fn sheet(file: File, header: &StreamHeader, format: Format) -> Outcome<Box<dyn Sheet>> {
    let labels = Labels::of(header);
    Ok(match format {
        Format::Csv => Box::new(csv::Csv::new(file, &labels)?),
        Format::Parquet => Box::new(parquet::Parquet::new(file, header, &labels)?),
    })
}

/// Names of the channels in tables.
struct Labels {
    /// Labels of the stream, if each channel has one of its own; else numbers, which take no memory.
    own: Option<Vec<String>>,
    channels: usize,
}

impl Labels {
    fn of(header: &StreamHeader) -> Self {
        let document = header.document();
        let info = document.child(document.root(), "info");
        let channels = info
            .and_then(|info| ElementRef::new(document, info))
            .and_then(|info| info.child("desc")?.child("channels"));
        let found: Vec<String> = channels
            .map(|channels| {
                channels
                    .children_named("channel")
                    .map(|channel| channel.get("label").unwrap_or_default().trim().to_owned())
                    .collect()
            })
            .unwrap_or_default();
        let mut distinct = found.clone();
        distinct.sort();
        distinct.dedup();
        let is_usable = found.len() == header.channel_count()
            && distinct.len() == found.len()
            && found
                .iter()
                .all(|label| !label.is_empty() && !label.starts_with("timestamp"));
        Self {
            own: is_usable.then_some(found),
            channels: header.channel_count(),
        }
    }

    fn iter(&self) -> impl Iterator<Item = Cow<'_, str>> {
        (0..self.channels).map(|at| {
            let own = self.own.as_ref().and_then(|own| own.get(at));
            own.map_or_else(
                || format!("channel_{}", at + 1).into(),
                |label| label.as_str().into(),
            )
        })
    }
}

/// Most channels of a stream without samples: a table of labels alone is as long as it claims.
const MAX_UNPROVEN_CHANNELS: usize = 65_536;
