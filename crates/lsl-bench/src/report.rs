//! `lsl bench report`: statistics, tables and charts from the results of other benchmarks.

mod analysis;
mod axis;
mod charts;
mod encryption;
mod evidence;
mod figures;
mod format;
mod load;
mod page;
mod river;

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use lsl_cli::failure::{Failure, Outcome};
use lsl_cli::ui::notice::note;
use lsl_cli::ui::table::{Align, Table};
use lsl_cli::ui::text::{count, printable};
use serde::Serialize;

use self::analysis::{Analysis, Compared};
use self::encryption::EncryptionSummary;
pub(crate) use self::evidence::Evidence;
pub(crate) use self::load::read;
use self::load::{Group, Run};
use crate::result::Results;

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Report {
    /// Files that `lsl bench` wrote, or directories with such `results*.json`, at any depth to 4
    #[arg(required = true, value_name = "DIR|FILE")]
    paths: Vec<PathBuf>,

    /// Where to write report.md, report.html and charts/, or river.md and images/ of `lsl bench grid` [default: the
    /// first DIR, or beside FILE]
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
    /// Reads all results and writes one report for each group.
    pub(super) fn run(&self) -> Outcome {
        let files = load::find(&self.paths)?;
        let runs = files
            .iter()
            .map(|file| read(file))
            .collect::<Outcome<Vec<_>>>()?;
        let (mut groups, copies) = load::merge(runs);
        if copies > 0 {
            note(format_args!(
                "lsl: {} left out, the same as another",
                count(copies, "file")
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
        let here = || Path::new(".");
        let first = self.paths.first().map_or_else(here, PathBuf::as_path);
        match &self.output {
            Some(output) => output.clone(),
            None if first.is_dir() => first.to_owned(),
            None => match first.parent() {
                Some(parent) if parent != Path::new("") => parent.to_owned(),
                _ => here().to_owned(),
            },
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
        let name = format::file_name(&group.results.benchmark);
        let free = (1..).map(|number| match number {
            1 => root.join(format!("report-{name}")),
            _ => root.join(format!("report-{name}-{number}")),
        });
        taken.extend(free.into_iter().find(|path| !taken.contains(path)));
    }
    taken
}

/// A report that was written.
#[derive(Debug)]
pub(crate) struct Rendered {
    /// `report.html`, `report.md`, then the charts.
    pub(crate) files: Vec<PathBuf>,
    title: String,
    rows: Vec<[String; 6]>,
    summary: Summary,
}

impl Rendered {
    /// Writes the headline table, for people.
    pub(crate) fn write_headline(&self, out: &mut impl Write) -> io::Result<()> {
        writeln!(out, "{}", self.title)?;
        let [left, right] = [Align::Left, Align::Right];
        let titles = ["", "subject", "median", "ratio", "95 % interval", ""];
        let sides = [left, left, right, right, right, left];
        let columns: Vec<_> = titles.into_iter().zip(sides).collect();
        let mut table = Table::new(&columns);
        let mut before = "";
        for row in &self.rows {
            // A cell equal to the one above is left empty.
            let [cell, rest @ ..] = row;
            let shown = if cell == before { "" } else { cell };
            table.push(std::iter::once(shown).chain(rest.iter().map(String::as_str)));
            before = cell;
        }
        table.write(out, "  ")?;
        for line in &self.summary.encryption {
            writeln!(out, "  {}", printable(&sentence(line)))?;
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
    let files = if results.benchmark == GRID {
        write_beside_river(results, directory)?
    } else {
        write_pages(&analysis, runs, directory)?
    };
    let rounds = format::rounds(analysis.rounds());
    Ok(Rendered {
        title: printable(&format!("{}: {rounds}", page::title(&analysis))),
        rows: headline(&analysis),
        summary: Summary::of(analysis, &files),
        files,
    })
}

/// Writes the page of any benchmark, as HTML and Markdown, and its charts.
fn write_pages(analysis: &Analysis<'_>, runs: &[Run], directory: &Path) -> Outcome<Vec<PathBuf>> {
    let figures = figures::draw(analysis)?;
    let [html, markdown] = page::render(analysis, runs, &figures)?;
    let mut files = vec![
        ("report.html".to_owned(), html),
        ("report.md".to_owned(), markdown),
    ];
    let charts = figures.into_iter();
    files.extend(charts.map(|figure| (format!("charts/{}.svg", figure.file), figure.svg)));
    write_files(directory, files)
}

/// Writes the page with River's figures beside; what a page says already besides them stays.
fn write_beside_river(results: &Results, directory: &Path) -> Outcome<Vec<PathBuf>> {
    let section = river::section(results)?;
    let page = fs::read_to_string(directory.join(RIVER_PAGE)).ok();
    let page = river::put(&section.text, page.as_deref());
    let pictures = section.pictures.into_iter();
    let pictures = pictures.map(|(name, svg)| (format!("images/{name}"), svg));
    let files = std::iter::once((RIVER_PAGE.to_owned(), page)).chain(pictures);
    write_files(directory, files.collect())
}

/// Writes texts to files below a directory, which are made with their folders, and returns where they are.
fn write_files(directory: &Path, files: Vec<(String, String)>) -> Outcome<Vec<PathBuf>> {
    let mut written = Vec::new();
    for (name, text) in files {
        let path = directory.join(name);
        let write = || {
            fs::create_dir_all(path.parent().unwrap_or(directory))?;
            fs::write(&path, text)
        };
        let failed = |error| Failure::Runtime(format!("{}: {error}", path.display()));
        write().map_err(failed)?;
        written.push(path);
    }
    Ok(written)
}

/// The headline table: metric and cell, subject, median, ratio, interval, verdict.
fn headline(analysis: &Analysis<'_>) -> Vec<[String; 6]> {
    let mut rows = Vec::new();
    for measure in analysis.measures.iter().filter(|measure| measure.headline) {
        for (label, entries) in analysis.labels.iter().zip(&measure.entries) {
            for Compared {
                subject,
                median,
                against,
                ..
            } in entries.iter().map(|entry| &entry.compared)
            {
                let Some(median) = *median else {
                    continue;
                };
                let ratio = against
                    .ratio
                    .map(|ratio| format!("×{}", format::ratio(ratio)));
                let verdict = against.verdict.as_deref().unwrap_or("baseline");
                rows.push([
                    format!("{}: {label}", measure.title),
                    subject.clone(),
                    format::with_unit(median, &measure.unit),
                    ratio.unwrap_or_default(),
                    against
                        .ratio_interval
                        .map(format::ratios)
                        .unwrap_or_default(),
                    verdict.into(),
                ]);
            }
        }
    }
    rows
}

/// Describes the cost of encryption for one subject in one sentence.
fn sentence(pair: &EncryptionSummary) -> String {
    let EncryptionSummary {
        plain,
        secure,
        cells,
    } = pair;
    let within = cells
        .iter()
        .filter(|cell| cell.within_limit == Some(true))
        .count();
    let most = cells
        .iter()
        .map(|cell| cell.added_us)
        .fold(f64::NEG_INFINITY, f64::max);
    let (most, cells) = (format::signed(most), count(cells.len(), "cell"));
    format!(
        "{secure} against {plain}: at most {most} µs added to the median; within 5 % or 2 µs in {within} of {cells}"
    )
}

/// A whole report, as `--json` prints it.
#[derive(Debug, Serialize)]
struct Summary {
    benchmark: String,
    baseline: String,
    rounds: usize,
    comparisons: Vec<Compared>,
    encryption: Vec<EncryptionSummary>,
    files: Vec<String>,
}

impl Summary {
    fn of(analysis: Analysis<'_>, files: &[PathBuf]) -> Self {
        let (_, rounds) = analysis.rounds();
        let encryption = analysis.encryption.into_iter().map(|pair| pair.summary);
        let entries = analysis
            .measures
            .into_iter()
            .flat_map(|measure| measure.entries);
        Self {
            benchmark: analysis.results.benchmark.clone(),
            baseline: analysis.results.subjects[analysis.results.baseline]
                .name
                .clone(),
            rounds,
            comparisons: entries.flatten().map(|entry| entry.compared).collect(),
            encryption: encryption.filter(|found| !found.cells.is_empty()).collect(),
            files: files
                .iter()
                .map(|file| file.display().to_string())
                .collect(),
        }
    }
}

/// The benchmark that has a page of its own, and that page.
const GRID: &str = "grid";
const RIVER_PAGE: &str = "river.md";

#[cfg(test)]
mod tests;
