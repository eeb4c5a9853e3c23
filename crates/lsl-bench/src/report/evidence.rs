//! The second half of a report: what was delivered and what failed, all numbers, and where they come
//! from.

use lsl_cli::shell;

use super::compare::{Analysis, Measure, Tone};
use super::content::{bounds, equivalence, missing, ratio_bounds};
use super::document::{Block, Field, Grid, Side};
use super::figures::{chance, delivered, figure, ratio as ratio_figure};
use super::load::Run;
use super::percentiles::{Rounds, of_subject};
use crate::result::Gap;

pub(super) fn delivery(analysis: &Analysis<'_>, blocks: &mut Vec<Block>) {
    let mut grid = Grid::new([
        ("", Side::Left),
        ("subject", Side::Left),
        ("delivered", Side::Right),
        ("received", Side::Right),
        ("expected", Side::Right),
    ]);
    let mut gaps = Vec::new();
    let (mut all_received, mut all_expected, mut failed) = (0_u64, 0_u64, 0_usize);
    for (cell, label) in analysis.results.cells.iter().zip(&analysis.labels) {
        for (subject, _) in analysis.results.subjects.iter().enumerate() {
            let name = analysis.subject(subject);
            let (mut received, mut expected) = (0_u64, 0_u64);
            for (round, measurement) in cell.rounds.iter().enumerate() {
                let Some(measurement) = measurement.measurements.get(subject) else {
                    continue;
                };
                failed += usize::from(measurement.failure.is_some());
                received = received.saturating_add(measurement.received);
                expected = expected.saturating_add(measurement.expected);
                let describe = |gap: &Gap| {
                    format!(
                        "{label}, {name}, round {}, reader {}: {} missing from number {} on",
                        round + 1,
                        gap.reader,
                        lsl_cli::table::count(
                            usize::try_from(gap.count).unwrap_or(usize::MAX),
                            "sample"
                        ),
                        gap.first
                    )
                };
                gaps.extend(measurement.gaps.iter().map(describe));
            }
            all_received = all_received.saturating_add(received);
            all_expected = all_expected.saturating_add(expected);
            if received != expected {
                grid.push([
                    Field::from(label.as_str()),
                    name.into(),
                    Field::toned(delivered(received, expected), Tone::Bad),
                    received.to_string().into(),
                    expected.to_string().into(),
                ]);
            }
        }
    }
    if all_expected == 0 {
        return;
    }
    blocks.push(Block::Heading("Delivery".into()));
    if grid.rows.is_empty() && gaps.is_empty() && failed > 0 {
        // A turn that failed says nothing about how much it would have lost.
        let text = format!(
            "All of {all_expected} samples arrived in the turns that did not fail; {} did, below.",
            lsl_cli::table::count(failed, "turn")
        );
        blocks.push(Block::Notice(Tone::Plain, text));
        return;
    }
    if grid.rows.is_empty() && gaps.is_empty() {
        let text =
            format!("100.000 %: all of {all_expected} samples arrived, no gaps, in every cell.");
        blocks.push(Block::Notice(Tone::Good, text));
        return;
    }
    let text = format!(
        "{} altogether: {all_received} of {all_expected} samples.",
        delivered(all_received, all_expected)
    );
    blocks.push(Block::Notice(Tone::Bad, text));
    if !grid.rows.is_empty() {
        blocks.push(Block::Table(grid));
    }
    blocks.push(shortened(gaps));
}

pub(super) fn failures(analysis: &Analysis<'_>, blocks: &mut Vec<Block>) {
    let mut failures = Vec::new();
    for (cell, label) in analysis.results.cells.iter().zip(&analysis.labels) {
        for (round, turns) in cell.rounds.iter().enumerate() {
            for (subject, measurement) in turns.measurements.iter().enumerate() {
                if let Some(failure) = &measurement.failure {
                    let name = analysis.subject(subject);
                    failures.push(format!("{label}, {name}, round {}: {failure}", round + 1));
                }
            }
        }
    }
    if !failures.is_empty() {
        blocks.push(Block::Heading("Failures".into()));
        blocks.push(shortened(failures));
    }
}

fn shortened(mut items: Vec<String>) -> Block {
    if items.len() > MOST_ITEMS {
        let more = items.len() - MOST_ITEMS;
        items.truncate(MOST_ITEMS);
        items.push(format!("and {more} more, see results.json"));
    }
    Block::List(items)
}

pub(super) fn details(analysis: &Analysis<'_>, blocks: &mut Vec<Block>) {
    blocks.push(Block::Heading("Details".into()));
    for measure in &analysis.measures {
        let unit = if measure.unit.is_empty() {
            String::new()
        } else {
            format!(", {}", measure.unit)
        };
        let title = format!("{}{unit} ({})", measure.title, measure.name);
        let title = title.replace(&format!("{0} ({0})", measure.name), &measure.name);
        blocks.push(Block::Details(
            title,
            vec![Block::Table(long_table(analysis, measure))],
        ));
    }
    let percentiles = percentile_table(analysis);
    if !percentiles.rows.is_empty() {
        let text = "Over all samples of all rounds together, from histograms (upper ends of their bins). \
                    In brackets the 95 % interval from resampling whole rounds.";
        let inner = vec![Block::Text(text.into()), Block::Table(percentiles)];
        blocks.push(Block::Details(
            format!(
                "{}, percentiles over all rounds, µs",
                analysis.results.latency_title()
            ),
            inner,
        ));
    }
}

fn long_table(analysis: &Analysis<'_>, measure: &Measure) -> Grid {
    let titles = [
        "",
        "subject",
        "median",
        "quartiles",
        "best",
        "n",
        "ratio a / b",
        "95 % interval",
        "verdict",
        "t",
        "p",
        "d",
        "d_z",
        "p of TOST 1 % / 5 %",
    ];
    let mut grid = Grid::new(titles.map(|title| {
        let left = ["", "subject", "verdict"].contains(&title);
        (title, if left { Side::Left } else { Side::Right })
    }));
    for (label, entries) in analysis.labels.iter().zip(&measure.entries) {
        for (subject, entry) in entries.iter().enumerate() {
            if entry.values.is_empty() {
                continue;
            }
            let number = |value: Option<f64>| value.map_or_else(missing, figure);
            let mut row: Vec<Field> = vec![
                label.as_str().into(),
                analysis.subject(subject).into(),
                number(entry.median()).into(),
                entry.quartiles().map_or_else(missing, bounds).into(),
                number(entry.best(measure.better)).into(),
                entry.values.len().to_string().into(),
            ];
            if let Some(comparison) = &entry.against {
                let share = |value: Option<f64>| value.map_or_else(missing, ratio_figure);
                let ratio = format!("{} / {}", share(comparison.ratio), share(comparison.best));
                let paired = comparison.paired;
                let verdict = measure.words(comparison.verdict);
                row.extend([
                    Field::from(ratio),
                    comparison
                        .interval
                        .map_or_else(missing, ratio_bounds)
                        .into(),
                    Field::toned(verdict, measure.tone(comparison.verdict)),
                    number(paired.map(|paired| paired.t)).into(),
                    paired
                        .map_or_else(missing, |paired| chance(paired.p))
                        .into(),
                    number(comparison.d).into(),
                    number(paired.map(|paired| paired.d_z)).into(),
                    equivalence(comparison.equivalence).into(),
                ]);
            } else {
                row.extend(
                    ["baseline", "", "", "", "", "", "", ""]
                        .map(|text| Field::toned(text, Tone::Muted)),
                );
            }
            grid.push(row);
        }
    }
    grid
}

fn percentile_table(analysis: &Analysis<'_>) -> Grid {
    const SHARES: [(&str, f64); 4] = [("p50", 0.5), ("p95", 0.95), ("p99", 0.99), ("p99.9", 0.999)];
    let columns = [("", Side::Left), ("subject", Side::Left)];
    let mut grid = Grid::new(
        columns
            .into_iter()
            .chain(SHARES.map(|(name, _)| (name, Side::Right))),
    );
    for (cell, label) in analysis.results.cells.iter().zip(&analysis.labels) {
        for subject in 0..analysis.results.subjects.len() {
            let rounds = of_subject(cell, subject);
            if rounds.is_empty() {
                continue;
            }
            let shown = SHARES.map(|(_, share)| match Rounds::of(&rounds).percentile(share) {
                Some((value, Some(interval))) => format!("{} {}", figure(value), bounds(interval)),
                Some((value, None)) => figure(value),
                None => "–".into(),
            });
            let start = [
                Field::from(label.as_str()),
                analysis.subject(subject).into(),
            ];
            grid.push(start.into_iter().chain(shown.map(Field::from)));
        }
    }
    grid
}

/// Where the numbers come from.
pub(super) fn origin(analysis: &Analysis<'_>, runs: &[Run], blocks: &mut Vec<Block>) {
    let machine = &analysis.results.machine;
    blocks.push(Block::Heading("Where this comes from".into()));
    let mut facts = vec![
        format!(
            "Machine: {}, {}, {}, {}",
            machine.host,
            machine.cpu,
            lsl_cli::table::count(machine.cores, "core"),
            machine.kernel
        ),
        format!("Version: lsl {}", machine.version),
    ];
    for (index, subject) in analysis.results.subjects.iter().enumerate() {
        let secure = if subject.secure { ", encrypted" } else { "" };
        let baseline = if index == analysis.results.baseline {
            ", the baseline"
        } else {
            ""
        };
        facts.push(format!(
            "{}{baseline}{secure}: {}",
            subject.name, subject.detail
        ));
    }
    blocks.push(Block::List(facts));
    for run in runs {
        let [one, five, fifteen] = run.load.map(figure);
        let governor = run.governor.as_deref().unwrap_or("unknown");
        blocks.push(Block::Text(format!(
            "Started {}, load {one} {five} {fifteen}, governor {governor}:",
            run.started
        )));
        let words: Vec<String> = run.args.iter().map(|word| shell::word(word)).collect();
        blocks.push(Block::Command(words.join(" ")));
    }
}

/// Longer lists are cut.
const MOST_ITEMS: usize = 30;
