//! `lsl bench report`: statistics, tables and charts from what the other benchmarks wrote.

mod charts;
mod compare;
mod content;
mod document;
mod evidence;
mod figures;
mod html;
mod load;
mod markdown;
mod percentiles;
mod pictures;
mod svg;

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use lsl_cli::failure::{Failure, Outcome};
use lsl_cli::note::note;
use lsl_cli::table::{Align, Table};
use serde::Serialize;

use self::compare::{Analysis, Overhead, Within};
use self::load::{Group, Run};
use crate::result::Results;
use crate::stats::Interval;

/// `lsl bench report`
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Report {
    /// Files that `lsl bench` wrote, or directories with such `results*.json`, at any depth to 4
    #[arg(required = true, value_name = "DIR|FILE")]
    paths: Vec<PathBuf>,

    /// Where to write report.md, report.html and charts/ [default: the first DIR, or beside FILE]
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,

    /// Print JSON: one array with an object for each benchmark
    #[arg(long)]
    json: bool,

    /// Take ratios to this subject, not to the one that the run named
    #[arg(long, value_name = "NAME")]
    baseline: Option<String>,
}

const EXAMPLES: &str = "\
Examples:
  lsl bench report results                     read results/, write results/report.html
  lsl bench report monday tuesday              both runs as more rounds
  lsl bench report results --baseline raw:tcp  how far from the limit?

Runs of the same benchmark on the same machine, with the same subjects and cells, count as more
rounds of one. What differs gets a report of its own, in a directory named after the benchmark.";

impl Report {
    /// Runs the command.
    pub(super) fn run(&self) -> Outcome {
        let files = load::find(&self.paths)?;
        let runs = files
            .iter()
            .map(|file| load::read(file))
            .collect::<Outcome<Vec<_>>>()?;
        let (mut groups, copies) = load::merge(runs);
        if copies > 0 {
            note(format_args!(
                "lsl: {} left out, the same as another",
                lsl_cli::table::count(copies, "file")
            ));
        }
        for group in &mut groups {
            if let Some(name) = &self.baseline {
                load::set_baseline(&mut group.results, name)?;
            }
        }
        let directories = directories(&groups, &self.directory());
        let mut summaries = Vec::new();
        let mut out = io::stdout().lock();
        for (Group { results, runs }, directory) in groups.iter().zip(&directories) {
            let rendered = render_runs(results, runs, directory)?;
            if self.json {
                summaries.push(rendered.summary);
                continue;
            }
            rendered.write_headline(&mut out)?;
            writeln!(out)?;
        }
        if self.json {
            serde_json::to_writer_pretty(&mut out, &summaries)?;
            writeln!(out)?;
        }
        out.flush()?;
        Ok(())
    }

    fn directory(&self) -> PathBuf {
        let beside = |path: &PathBuf| {
            if path.is_dir() {
                return path.clone();
            }
            match path.parent() {
                Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
                _ => PathBuf::from("."),
            }
        };
        match &self.output {
            Some(output) => output.clone(),
            None => self
                .paths
                .first()
                .map_or_else(|| PathBuf::from("."), beside),
        }
    }
}

/// One directory for each group: `root` itself if there is but one.
fn directories(groups: &[Group], root: &Path) -> Vec<PathBuf> {
    if groups.len() < 2 {
        return vec![root.to_owned()];
    }
    let mut taken: Vec<PathBuf> = Vec::new();
    for group in groups {
        let name = figures::file_name(&group.results.benchmark);
        let free = (1..).map(|number| match number {
            1 => root.join(format!("report-{name}")),
            _ => root.join(format!("report-{name}-{number}")),
        });
        taken.extend(free.into_iter().find(|path| !taken.contains(path)));
    }
    taken
}

/// What a report amounts to.
#[derive(Debug)]
pub(crate) struct Rendered {
    /// What was written: `report.html`, `report.md`, then the charts.
    pub(crate) files: Vec<PathBuf>,
    title: String,
    rows: Vec<[String; 6]>,
    summary: Summary,
}

impl Rendered {
    /// The headline table, for people.
    pub(crate) fn write_headline(&self, out: &mut impl Write) -> io::Result<()> {
        writeln!(out, "{}", self.title)?;
        let mut table = Table::new(&[
            ("", Align::Left),
            ("subject", Align::Left),
            ("median", Align::Right),
            ("ratio", Align::Right),
            ("95 % interval", Align::Right),
            ("", Align::Left),
        ]);
        let mut before = "";
        for row in &self.rows {
            // What stands above need not be read again.
            let [cell, rest @ ..] = row;
            let shown = if cell == before { "" } else { cell };
            table.push(std::iter::once(shown).chain(rest.iter().map(String::as_str)));
            before = cell;
        }
        table.write(out, "  ")?;
        for line in &self.summary.encryption {
            writeln!(out, "  {}", lsl_cli::table::printable(&line.sentence()))?;
        }
        if let Some(file) = self.files.first() {
            writeln!(out, "  report: {}", file.display())?;
        }
        Ok(())
    }
}

/// Writes the report of `results` to `directory`, which is made if need be.
pub(crate) fn render(results: &Results, directory: &Path) -> Outcome<Rendered> {
    render_runs(results, &[Run::of(results)], directory)
}

fn render_runs(results: &Results, runs: &[Run], directory: &Path) -> Outcome<Rendered> {
    load::check(results)?;
    let analysis = Analysis::of(results);
    let document = content::document(&analysis, runs);
    let charts = directory.join("charts");
    let at =
        |path: &Path, error: io::Error| Failure::Runtime(format!("{}: {error}", path.display()));
    fs::create_dir_all(&charts).map_err(|error| at(&charts, error))?;
    let mut files = Vec::new();
    let mut write = |path: PathBuf, text: String| {
        fs::write(&path, text).map_err(|error| at(&path, error))?;
        files.push(path);
        Ok::<(), Failure>(())
    };
    write(directory.join("report.html"), html::render(&document))?;
    write(directory.join("report.md"), markdown::render(&document))?;
    for chart in document.charts() {
        write(
            charts.join(format!("{}.svg", chart.file)),
            svg::standalone(&chart.svg),
        )?;
    }
    let summary = Summary::of(&analysis, &files);
    Ok(Rendered {
        files,
        title: lsl_cli::table::printable(&format!(
            "{}: {}",
            document.title,
            pictures::rounds(&analysis)
        )),
        rows: content::headline_rows(&analysis),
        summary,
    })
}

/// `--json`
#[derive(Debug, Serialize)]
struct Summary {
    benchmark: String,
    baseline: String,
    rounds: usize,
    comparisons: Vec<Compared>,
    encryption: Vec<Encryption>,
    files: Vec<String>,
}

/// One metric of one subject in one cell. What cannot be worked out is absent.
#[derive(Debug, Serialize)]
struct Compared {
    metric: String,
    cell: serde_json::Value,
    subject: String,
    rounds: usize,
    median: Option<f64>,
    ratio: Option<f64>,
    ratio_best: Option<f64>,
    ratio_interval: Option<[f64; 2]>,
    t: Option<f64>,
    p: Option<f64>,
    d: Option<f64>,
    d_z: Option<f64>,
    tost_1_percent_p: Option<f64>,
    tost_5_percent_p: Option<f64>,
    verdict: Option<String>,
}

/// What encryption adds to one subject.
#[derive(Debug, Serialize)]
struct Encryption {
    plain: String,
    secure: String,
    cells: Vec<OfCell>,
}

#[derive(Debug, Serialize)]
struct OfCell {
    cell: serde_json::Value,
    plain_us: f64,
    secure_us: f64,
    added_us: f64,
    added_us_interval: Option<[f64; 2]>,
    added_percent: f64,
    limit_us: f64,
    /// Absent where it is not shown either way.
    within_limit: Option<bool>,
}

impl Encryption {
    fn sentence(&self) -> String {
        let within = self
            .cells
            .iter()
            .filter(|cell| cell.within_limit == Some(true))
            .count();
        let most = self
            .cells
            .iter()
            .map(|cell| cell.added_us)
            .fold(f64::NEG_INFINITY, f64::max);
        format!(
            "{} against {}: at most {} µs added to the median; within 5 % or 2 µs in {within} of {}",
            self.secure,
            self.plain,
            figures::signed(most),
            lsl_cli::table::count(self.cells.len(), "cell")
        )
    }
}

impl Summary {
    fn of(analysis: &Analysis<'_>, files: &[PathBuf]) -> Self {
        let results = analysis.results;
        let cell = |index: usize| {
            results
                .cells
                .get(index)
                .map_or(serde_json::Value::Null, |cell| {
                    cell.parameters.clone().into_iter().collect()
                })
        };
        let ends = |interval: Interval| [interval.low, interval.high];
        let mut comparisons = Vec::new();
        for measure in &analysis.measures {
            for (index, entries) in measure.entries.iter().enumerate() {
                for (subject, entry) in entries.iter().enumerate() {
                    let against = entry.against.as_ref();
                    let paired = against.and_then(|against| against.paired);
                    comparisons.push(Compared {
                        metric: measure.name.clone(),
                        cell: cell(index),
                        subject: analysis.subject(subject).into(),
                        rounds: entry.values.len(),
                        median: entry.median(),
                        ratio: against.and_then(|against| against.ratio),
                        ratio_best: against.and_then(|against| against.best),
                        ratio_interval: against.and_then(|against| against.interval).map(ends),
                        t: paired.map(|paired| paired.t),
                        p: paired.map(|paired| paired.p),
                        d: against.and_then(|against| against.d),
                        d_z: paired.map(|paired| paired.d_z),
                        tost_1_percent_p: against
                            .and_then(|against| against.equivalence.map(|p| p[0])),
                        tost_5_percent_p: against
                            .and_then(|against| against.equivalence.map(|p| p[1])),
                        verdict: against.map(|against| measure.words(against.verdict)),
                    });
                }
            }
        }
        let added = |overhead: Overhead| OfCell {
            cell: cell(overhead.cell),
            plain_us: overhead.plain,
            secure_us: overhead.secure,
            added_us: overhead.added,
            added_us_interval: overhead.interval.map(ends),
            added_percent: overhead.share * 100.0,
            limit_us: overhead.limit,
            within_limit: match overhead.within() {
                Within::Yes => Some(true),
                Within::No => Some(false),
                Within::Unsure => None,
            },
        };
        let encryption = analysis.twins.iter().map(|(plain, secure)| Encryption {
            plain: analysis.subject(*plain).into(),
            secure: analysis.subject(*secure).into(),
            cells: Overhead::of(results, *plain, *secure)
                .into_iter()
                .map(added)
                .collect(),
        });
        Self {
            benchmark: results.benchmark.clone(),
            baseline: analysis.subject(results.baseline).into(),
            rounds: analysis.rounds().1,
            comparisons,
            encryption: encryption.filter(|found| !found.cells.is_empty()).collect(),
            files: files
                .iter()
                .map(|file| file.display().to_string())
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests;
