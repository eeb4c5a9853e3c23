//! Which charts a run gets, and what is in them.

use super::charts::{self, Frame, Group, Point, Row, Series};
use super::compare::{Analysis, Measure, Overhead, number};
use super::document::Chart;
use super::figures::{self, figure, signed, with_unit};
use super::percentiles::{Histogram, of_subject};
use super::svg::Look;
use crate::stats::Interval;

/// Colours of the subjects: the baseline neutral, an encrypted subject that of its plain twin.
pub(super) fn looks(analysis: &Analysis<'_>) -> Vec<Look> {
    let results = analysis.results;
    let mut next = 1;
    let own = |index: usize| {
        let twin = analysis.twins.iter().find(|(_, secure)| *secure == index);
        if twin.is_some_and(|(plain, _)| first_twin(analysis, *plain) == Some(index)) {
            return None;
        }
        if index == results.baseline {
            return Some(0);
        }
        next += 1;
        Some(next - 1)
    };
    let mut colours: Vec<Option<usize>> = (0..results.subjects.len()).map(own).collect();
    for (plain, secure) in &analysis.twins {
        if colours[*secure].is_none() {
            colours[*secure] = colours[*plain];
        }
    }
    let looks = colours.into_iter().zip(&results.subjects);
    looks
        .map(|(colour, subject)| Look {
            colour: colour.unwrap_or(0),
            hollow: subject.secure,
        })
        .collect()
}

fn first_twin(analysis: &Analysis<'_>, plain: usize) -> Option<usize> {
    analysis
        .twins
        .iter()
        .find(|(other, _)| *other == plain)
        .map(|(_, secure)| *secure)
}

/// Ratios to the baseline of one metric, all cells. `None` where there are none.
pub(super) fn ratios(analysis: &Analysis<'_>, looks: &[Look], measure: &Measure) -> Option<Chart> {
    let baseline = analysis.subject(analysis.results.baseline);
    let groups = groups(analysis, looks, measure, |entry| {
        let comparison = entry.against.as_ref()?;
        let ratio = comparison.ratio?;
        let interval = comparison.interval;
        let note = interval.map_or_else(
            || figures::ratio(ratio),
            |interval| {
                let [low, high] = [interval.low, interval.high].map(figures::ratio);
                format!("{} [{low}, {high}]", figures::ratio(ratio))
            },
        );
        Some((ratio, interval, note))
    })?;
    let title = format!("{}: ratio to {baseline}", measure.title);
    let frame = Frame {
        title: &title,
        remark: &format!(
            "median of paired ratios, 95 % interval; {}",
            rounds(analysis)
        ),
        unit: "ratio",
    };
    Some(Chart {
        file: format!("ratio-{}", figures::file_name(&measure.name)),
        svg: charts::intervals(frame, &groups, 1.0),
        caption: format!(
            "Dashed: 1, as {baseline}. {} An arrow means that an interval goes on.",
            better(measure, "Left of it is better.", "Right of it is better.")
        ),
        title,
    })
}

/// Medians of one metric as bars, all cells.
pub(super) fn bars(analysis: &Analysis<'_>, looks: &[Look], measure: &Measure) -> Option<Chart> {
    let groups = groups(analysis, looks, measure, |entry| {
        let median = entry.median()?;
        Some((median, entry.quartiles(), figure(median)))
    })?;
    let frame = Frame {
        title: &measure.title,
        remark: &format!("median of rounds, line: quartiles; {}", rounds(analysis)),
        unit: &measure.unit,
    };
    Some(Chart {
        file: format!("bars-{}", figures::file_name(&measure.name)),
        svg: charts::bars(frame, &groups),
        title: measure.title.clone(),
        caption: better(measure, "Shorter is better.", "Longer is better.").into(),
    })
}

/// Parameters along which there is something to see, the one with the most values first.
pub(super) fn axes<'a>(analysis: &'a Analysis<'_>) -> Vec<&'a str> {
    let steps = |parameter: &str| {
        along(analysis, parameter)
            .iter()
            .map(|(_, cells)| cells.len())
            .max()
    };
    let mut axes: Vec<(&str, usize)> = analysis
        .varying
        .iter()
        .filter_map(|parameter| Some((parameter.as_str(), steps(parameter)?)))
        .collect();
    axes.sort_by_key(|(_, steps)| std::cmp::Reverse(*steps));
    axes.into_iter().map(|(parameter, _)| parameter).collect()
}

/// One metric along a parameter: a chart for each setting of the other parameters.
pub(super) fn lines(
    analysis: &Analysis<'_>,
    looks: &[Look],
    measure: &Measure,
    parameter: &str,
) -> Vec<Chart> {
    let settings = along(analysis, parameter);
    let chart = |(others, cells): &(String, Vec<(f64, usize)>)| {
        line_chart(analysis, looks, measure, (parameter, others, cells))
    };
    settings.iter().filter_map(chart).collect()
}

fn line_chart(
    analysis: &Analysis<'_>,
    looks: &[Look],
    measure: &Measure,
    (parameter, others, cells): (&str, &str, &[(f64, usize)]),
) -> Option<Chart> {
    let series = |(subject, look): (usize, &Look)| {
        let points: Vec<Point> = cells
            .iter()
            .filter_map(|(x, cell)| {
                let entry = measure.entries.get(*cell)?.get(subject)?;
                Some(Point {
                    x: *x,
                    y: entry.median()?,
                    spread: entry.quartiles()?,
                })
            })
            .collect();
        (!points.is_empty()).then(|| Series {
            name: analysis.subject(subject).into(),
            look: *look,
            points,
        })
    };
    let series: Vec<Series> = looks.iter().enumerate().filter_map(series).collect();
    if series.is_empty() {
        return None;
    }
    let title = if others.is_empty() {
        measure.title.clone()
    } else {
        format!("{}: {others}", measure.title)
    };
    let frame = Frame {
        title: &title,
        remark: &format!("median of rounds, lines: quartiles; {}", rounds(analysis)),
        unit: &measure.unit,
    };
    let name = format!("{}-by-{parameter}-{others}", measure.name);
    Some(Chart {
        file: format!("line-{}", figures::file_name(&name)),
        svg: charts::lines(frame, &figures::axis(parameter), &series),
        title,
        caption: better(measure, "Lower is better.", "Higher is better.").into(),
    })
}

/// Cells by the number they have for `parameter`, apart for each setting of the other parameters. Only
/// where there are two or more, else nothing can be seen along it.
fn along(analysis: &Analysis<'_>, parameter: &str) -> Vec<(String, Vec<(f64, usize)>)> {
    let mut settings: Vec<(String, Vec<(f64, usize)>)> = Vec::new();
    for (index, cell) in analysis.results.cells.iter().enumerate() {
        let Some(x) = number(cell, parameter) else {
            continue;
        };
        let others: Vec<String> = cell
            .parameters
            .iter()
            .filter(|(name, _)| *name != parameter && analysis.varying.contains(name))
            .map(|(name, value)| figures::parameter(name, value))
            .collect();
        let others = others.join(", ");
        match settings.iter_mut().find(|(known, _)| *known == others) {
            Some((_, cells)) => cells.push((x, index)),
            None => settings.push((others, vec![(x, index)])),
        }
    }
    settings.retain(|(_, cells)| cells.len() > 1);
    settings
}

/// How latency is distributed, a chart for each cell that has histograms.
pub(super) fn distributions(analysis: &Analysis<'_>, looks: &[Look]) -> Vec<Chart> {
    let mut charts = Vec::new();
    for (index, cell) in analysis.results.cells.iter().enumerate() {
        let curve = |(subject, look): (usize, &Look)| {
            let points = Histogram::sum(&of_subject(cell, subject)).cumulative();
            (points.len() > 1).then(|| (analysis.subject(subject).to_owned(), *look, points))
        };
        let curves: Vec<_> = looks.iter().enumerate().filter_map(curve).collect();
        if curves.is_empty() {
            continue;
        }
        let label = analysis.labels.get(index).map_or("", String::as_str);
        let title = format!("{}: {label}", analysis.results.latency_title());
        let frame = Frame {
            title: &title,
            remark: &format!(
                "share of samples that came within a time; {}",
                rounds(analysis)
            ),
            unit: "µs",
        };
        charts.push(Chart {
            file: format!("distribution-{}-{}", index + 1, figures::file_name(label)),
            svg: charts::distribution(frame, &curves),
            title,
            caption: "All samples of all rounds together. Further left is better.".into(),
        });
    }
    charts
}

/// What encryption adds, all cells of one pair of twins.
pub(super) fn overhead(
    analysis: &Analysis<'_>,
    look: Look,
    secure: usize,
    overheads: &[Overhead],
) -> Chart {
    let group = |overhead: &Overhead| Group {
        label: analysis
            .labels
            .get(overhead.cell)
            .cloned()
            .unwrap_or_default(),
        rows: vec![Row {
            name: format!("{} plain", with_unit(overhead.plain, "µs")),
            look,
            value: overhead.added,
            spread: overhead.interval,
            note: format!(
                "{} µs, {} %",
                signed(overhead.added),
                signed(overhead.share * 100.0)
            ),
            limit: Some(overhead.limit),
        }],
    };
    let groups: Vec<Group> = overheads.iter().map(group).collect();
    let name = analysis.subject(secure);
    let title = format!("added by encryption: {name}");
    let frame = Frame {
        title: &title,
        remark: &format!(
            "secure less plain, median latency, 95 %; {}",
            rounds(analysis)
        ),
        unit: "added latency, µs",
    };
    Chart {
        file: format!("overhead-{}", figures::file_name(name)),
        svg: charts::intervals(frame, &groups, 0.0),
        title,
        caption:
            "Shaded: up to the limit of 5 % or 2 µs, whichever is more. Dashed: nothing added."
                .into(),
    }
}

fn groups(
    analysis: &Analysis<'_>,
    looks: &[Look],
    measure: &Measure,
    show: impl Fn(&super::compare::Entry) -> Option<(f64, Option<Interval>, String)>,
) -> Option<Vec<Group>> {
    let row = |subject: usize, entry: &super::compare::Entry| {
        let (value, spread, note) = show(entry)?;
        Some(Row {
            name: analysis.subject(subject).into(),
            look: *looks.get(subject)?,
            value,
            spread,
            note,
            limit: None,
        })
    };
    let cells = measure.entries.iter().zip(&analysis.labels);
    let groups: Vec<Group> = cells
        .map(|(entries, label)| Group {
            label: label.clone(),
            rows: entries
                .iter()
                .enumerate()
                .filter_map(|(index, entry)| row(index, entry))
                .collect(),
        })
        .filter(|group| !group.rows.is_empty())
        .collect();
    (!groups.is_empty()).then_some(groups)
}

/// How many rounds there were, in words.
pub(super) fn rounds(analysis: &Analysis<'_>) -> String {
    match analysis.rounds() {
        (1, 1) => "1 round".into(),
        (least, most) if least == most => format!("{most} rounds"),
        (least, most) => format!("{least} to {most} rounds"),
    }
}

fn better<'a>(measure: &Measure, lower: &'a str, higher: &'a str) -> &'a str {
    use crate::result::Better;
    match measure.better {
        Some(Better::Lower) => lower,
        Some(Better::Higher) => higher,
        None => "",
    }
}
