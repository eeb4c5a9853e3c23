//! Chooses and draws the figures of a run.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use lsl_cli::failure::Outcome;
use serde::Serialize;
use serde_json::Value;

use super::analysis::{Analysis, Measure, SubjectResult};
use super::axis::{Axis, range};
use super::charts::{self, ChartRow, Curve, Style};
use super::encryption::{Overhead, OverheadSummary};
use super::format::{self, figure, file_name, signed, with_unit};
use crate::metrics::Better;
use crate::stats::{Histograms, Interval};

/// A picture, inline in HTML and a file beside Markdown.
#[derive(Debug, Serialize)]
pub(super) struct Figure {
    /// Heading of the page that it belongs under.
    section: String,
    /// File name without directory and `.svg`.
    pub(super) file: String,
    pub(super) title: String,
    pub(super) svg: String,
    caption: String,
}

/// Draws all figures of a report.
pub(super) fn draw(analysis: &Analysis<'_>) -> Outcome<Vec<Figure>> {
    let mut drawing = Drawing {
        analysis,
        styles: styles(analysis),
        rounds: format::rounds(analysis.rounds()),
        figures: Vec::new(),
    };
    let headline = || analysis.measures.iter().filter(|measure| measure.headline);
    for measure in headline() {
        drawing.ratios(measure)?;
    }
    drawing.overheads()?;
    let latency = ["latency_p50_us", "latency_p95_us"].map(|name| analysis.measure(name));
    let latency: Vec<&Measure> = latency.into_iter().flatten().collect();
    let axes = axes(analysis);
    for (place, parameter) in axes.iter().enumerate() {
        let title = format!("the same along: {}", format::axis(parameter));
        let section = if place == 0 { "Latency" } else { &title };
        for measure in &latency {
            drawing.lines(section, measure, parameter)?;
        }
    }
    for measure in latency.iter().filter(|_| axes.is_empty()) {
        drawing.bars("Latency", measure)?;
    }
    for measure in headline().filter(|measure| !measure.name.starts_with("latency")) {
        drawing.bars("Throughput and cost", measure)?;
    }
    drawing.distributions()?;
    Ok(drawing.figures)
}

/// State that all figures of a run share.
struct Drawing<'a> {
    analysis: &'a Analysis<'a>,
    /// Style of each subject, by its index.
    styles: Vec<Style>,
    rounds: String,
    figures: Vec<Figure>,
}

impl Drawing<'_> {
    fn add(&mut self, section: &str, file: String, [title, caption]: [&str; 2], svg: String) {
        self.figures.push(Figure {
            section: section.into(),
            file,
            title: title.into(),
            svg,
            caption: caption.into(),
        });
    }

    /// Ratios to the baseline of one metric, all cells.
    fn ratios(&mut self, measure: &Measure) -> Outcome {
        let groups = self.rows(measure, |entry| {
            let against = &entry.compared.against;
            let (ratio, interval) = (against.ratio?, against.ratio_interval);
            let bounds = interval.map(|bounds| format!(" {}", format::ratios(bounds)));
            let note = format::ratio(ratio) + &bounds.unwrap_or_default();
            Some((ratio, interval, note))
        });
        if groups.is_empty() {
            return Ok(());
        }
        let baseline = self.analysis.subject(self.analysis.results.baseline);
        let title = format!("{}: ratio to {baseline}", measure.title);
        let remark = format!("median of paired ratios, 95 % interval; {}", self.rounds);
        let better = better(measure, "Left of it is better.", "Right of it is better.");
        let caption =
            format!("Dashed: 1, as {baseline}. {better} An arrow means that an interval goes on.");
        let svg = charts::rows([&title, &remark], "ratio", &groups, Some(1.0))?;
        self.add(
            "Result",
            format!("ratio-{}", file_name(&measure.name)),
            [&title, &caption],
            svg,
        );
        Ok(())
    }

    /// Medians of one metric as bars, all cells.
    fn bars(&mut self, section: &str, measure: &Measure) -> Outcome {
        let groups = self.rows(measure, |entry| {
            let median = entry.compared.median?;
            Some((median, entry.quartiles, figure(median)))
        });
        if groups.is_empty() {
            return Ok(());
        }
        let remark = format!("median of rounds, line: quartiles; {}", self.rounds);
        let caption = better(measure, "Shorter is better.", "Longer is better.");
        let svg = charts::rows([&measure.title, &remark], &measure.unit, &groups, None)?;
        self.add(
            section,
            format!("bars-{}", file_name(&measure.name)),
            [&measure.title, caption],
            svg,
        );
        Ok(())
    }

    /// Draws the cost of encryption in all cells, for each pair of twins.
    fn overheads(&mut self) -> Outcome {
        let analysis = self.analysis;
        for ((_, secure), pair) in analysis.twins.iter().zip(&analysis.encryption) {
            let group = |(added, details): (&OverheadSummary, &Overhead)| {
                let [micros, percent] = [added.added_us, added.added_percent].map(signed);
                let row = ChartRow {
                    name: format!("{} plain", with_unit(added.plain_us, "µs")),
                    style: self.styles[*secure],
                    value: added.added_us,
                    interval: added.added_us_interval,
                    note: format!("{micros} µs, {percent} %"),
                    limit: Some(added.limit_us),
                };
                (analysis.labels[details.index].clone(), vec![row])
            };
            let cells = pair.summary.cells.iter().zip(&pair.details);
            let groups: Vec<_> = cells.map(group).collect();
            if groups.is_empty() {
                continue;
            }
            let name = &pair.summary.secure;
            let title = format!("added by encryption: {name}");
            let remark = format!("secure less plain, median latency, 95 %; {}", self.rounds);
            let caption =
                "Shaded: up to the limit of 5 % or 2 µs, whichever is more. Dashed: nothing added.";
            let svg = charts::rows([&title, &remark], "added latency, µs", &groups, Some(0.0))?;
            self.add(
                "Encryption",
                format!("overhead-{}", file_name(name)),
                [&title, caption],
                svg,
            );
        }
        Ok(())
    }

    /// One metric along a parameter: a figure for each setting of the other parameters.
    fn lines(&mut self, section: &str, measure: &Measure, parameter: &str) -> Outcome {
        for (others, cells) in along(self.analysis, parameter) {
            let curves = self.curves(|subject| {
                let entries = cells.iter().filter_map(|(x, cell)| {
                    let entry = measure.entries.get(*cell)?.get(subject)?;
                    Some(((*x, entry.compared.median?), entry.quartiles?))
                });
                entries.unzip()
            });
            if curves.is_empty() {
                continue;
            }
            let title = match &others[..] {
                "" => measure.title.clone(),
                others => format!("{}: {others}", measure.title),
            };
            let remark = format!("median of rounds, lines: quartiles; {}", self.rounds);
            let places: Vec<f64> = cells.iter().map(|(x, _)| *x).collect();
            let x = Axis::at(&format::axis(parameter), &places);
            let ends = curves.iter().flat_map(|curve| &curve.intervals);
            let y = Axis::of(&measure.unit, ends.copied().flatten());
            let caption = better(measure, "Lower is better.", "Higher is better.");
            let file = format!("{}-by-{parameter}-{others}", measure.name);
            let file = format!("line-{}", file_name(&file));
            let svg = charts::curves([&title, &remark], &x, &y, &curves)?;
            self.add(section, file, [&title, caption], svg);
        }
        Ok(())
    }

    /// Draws the distribution of latency, a figure for each cell that has histograms.
    fn distributions(&mut self) -> Outcome {
        let analysis = self.analysis;
        let cells = analysis.results.cells.iter().zip(&analysis.labels);
        for (number, (cell, label)) in (1..).zip(cells) {
            let mut curves = self.curves(|subject| {
                let turns = cell.measurements(subject);
                let histograms = Histograms::of(turns.map(|turn| &turn.histogram[..]));
                (histograms.distribution(), Vec::new())
            });
            curves.retain(|curve| curve.points.len() > 1);
            if curves.is_empty() {
                continue;
            }
            let title = format!("{}: {label}", analysis.results.latency_title());
            let remark = format!("share of samples that came within a time; {}", self.rounds);
            let times = curves.iter().flat_map(|curve| &curve.points);
            let x = Axis::logarithmic("µs", range(times.map(|(time, _)| *time)));
            let caption = "All samples of all rounds together. Further left is better.";
            let svg = charts::curves([&title, &remark], &x, &Axis::shares(), &curves)?;
            let file = format!("distribution-{number}-{}", file_name(label));
            self.add("Distribution of latency", file, [&title, caption], svg);
        }
        Ok(())
    }

    /// Curves of the subjects that have points.
    fn curves(&self, points: impl Fn(usize) -> (Vec<(f64, f64)>, Vec<Interval>)) -> Vec<Curve> {
        let curve = |(subject, style): (usize, &Style)| {
            let (points, intervals) = points(subject);
            let name = self.analysis.subject(subject).into();
            Curve {
                name,
                style: *style,
                points,
                intervals,
            }
        };
        let curves = self.styles.iter().enumerate().map(curve);
        curves.filter(|curve| !curve.points.is_empty()).collect()
    }

    /// Applies `show` to a metric by cell and subject; gives value, interval and note.
    fn rows(
        &self,
        measure: &Measure,
        show: impl Fn(&SubjectResult) -> Option<(f64, Option<Interval>, String)>,
    ) -> Vec<(String, Vec<ChartRow>)> {
        let row = |(entry, style): (&SubjectResult, &Style)| {
            let (value, interval, note) = show(entry)?;
            let (name, style) = (entry.compared.subject.clone(), *style);
            Some(ChartRow {
                name,
                style,
                value,
                interval,
                note,
                limit: None,
            })
        };
        let cells = self.analysis.labels.iter().zip(&measure.entries);
        let groups = cells.map(|(label, entries)| {
            let rows = entries.iter().zip(&self.styles).filter_map(row);
            (label.clone(), rows.collect::<Vec<ChartRow>>())
        });
        groups.filter(|(_, rows)| !rows.is_empty()).collect()
    }
}

/// Colours of the subjects: the baseline neutral, an encrypted subject that of its plain twin.
fn styles(analysis: &Analysis<'_>) -> Vec<Style> {
    let results = analysis.results;
    // A second encrypted twin needs a colour of its own to be told from the first.
    let mut twins = analysis.twins.clone();
    let mut seen = BTreeSet::new();
    twins.retain(|(plain, _)| seen.insert(*plain));
    let twin = |index| twins.iter().find(|(_, secure)| *secure == index);
    let owns = |index: &usize| *index != results.baseline && twin(*index).is_none();
    let own: Vec<usize> = (0..results.subjects.len()).filter(owns).collect();
    let style = |(index, subject): (usize, &crate::result::Subject)| {
        let owner = twin(index).map_or(index, |(plain, _)| *plain);
        let place = own.iter().position(|other| *other == owner);
        Style::new(place.map_or(0, |place| place + 1), subject.secure)
    };
    results.subjects.iter().enumerate().map(style).collect()
}

/// Parameters along which there is something to see, the one with the most values first.
fn axes<'a>(analysis: &'a Analysis<'_>) -> Vec<&'a str> {
    let steps = |parameter: &&str| {
        let settings = along(analysis, parameter);
        settings.iter().map(|(_, cells)| cells.len()).max()
    };
    let varying = analysis.varying.iter().map(String::as_str);
    let mut axes: Vec<&str> = varying
        .filter(|parameter| steps(parameter).is_some())
        .collect();
    axes.sort_by_key(|parameter| Reverse(steps(parameter)));
    axes
}

/// Cells by the number they have for `parameter`, apart for each setting of the other parameters. Only
/// where there are two or more, else nothing can be seen along it.
fn along(analysis: &Analysis<'_>, parameter: &str) -> Vec<(String, Vec<(f64, usize)>)> {
    let mut settings: Vec<(String, Vec<(f64, usize)>)> = Vec::new();
    for (index, cell) in analysis.results.cells.iter().enumerate() {
        let Some(x) = cell.parameters.get(parameter).and_then(Value::as_f64) else {
            continue;
        };
        let others = cell.parameters.iter();
        let others: Vec<String> = others
            .filter(|(name, _)| *name != parameter && analysis.varying.contains(name))
            .map(|(name, value)| format::parameter(name, value))
            .collect();
        let others = others.join(", ");
        match settings.iter_mut().find(|(known, _)| *known == others) {
            Some((_, cells)) => cells.push((x, index)),
            None => settings.push((others, vec![(x, index)])),
        }
    }
    settings.retain(|(_, cells)| cells.len() > 1);
    for (_, cells) in &mut settings {
        cells.sort_by(|one, other| one.0.total_cmp(&other.0));
    }
    settings
}

fn better<'a>(measure: &Measure, lower: &'a str, higher: &'a str) -> &'a str {
    match measure.better {
        Some(Better::Lower) => lower,
        Some(Better::Higher) => higher,
        None => "",
    }
}
