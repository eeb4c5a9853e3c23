//! What a report says, in which order: the answer first, what could be wrong with it next, then
//! everything else.

use super::compare::{
    Analysis, Comparison, Entry, JUDGED, Measure, Overhead, Tone, Verdict, Within, pairs,
};
use super::document::{Block, Chart, Document, Field, Grid, Side};
use super::evidence;
use super::figures::{self, chance, figure, ratio as ratio_figure, signed, with_unit};
use super::load::Run;
use super::pictures;
use super::svg::Look;
use crate::stats::{self, Interval};

/// Writes the report of `analysis`, made from `runs`.
pub(super) fn document(analysis: &Analysis<'_>, runs: &[Run]) -> Document {
    let looks = pictures::looks(analysis);
    let mut blocks = Vec::new();
    opening(analysis, runs, &mut blocks);
    warnings(analysis, runs, &mut blocks);
    headline(analysis, &looks, &mut blocks);
    encryption(analysis, &looks, &mut blocks);
    series(analysis, &looks, &mut blocks);
    evidence::delivery(analysis, &mut blocks);
    evidence::failures(analysis, &mut blocks);
    blocks.push(Block::Heading("How to read this".into()));
    blocks.push(Block::List(HOW_TO_READ.map(Into::into).into()));
    evidence::details(analysis, &mut blocks);
    evidence::origin(analysis, runs, &mut blocks);
    Document {
        title: format!("lsl bench {}", analysis.results.benchmark),
        blocks,
    }
}

fn opening(analysis: &Analysis<'_>, runs: &[Run], blocks: &mut Vec<Block>) {
    let results = analysis.results;
    let others: Vec<&str> = (0..results.subjects.len())
        .filter(|index| *index != results.baseline)
        .map(|index| analysis.subject(index))
        .collect();
    let baseline = analysis.subject(results.baseline);
    let who = if others.is_empty() {
        format!("{baseline} alone")
    } else {
        format!("{} against {baseline}", others.join(", "))
    };
    let rounds = pictures::rounds(analysis);
    let cells = lsl_cli::table::count(results.cells.len(), "cell");
    let origin = match runs.len() {
        0 | 1 => String::new(),
        more => format!(", from {more} runs"),
    };
    // With a single cell its label says it all.
    let common = if analysis.common.is_empty() || analysis.varying.is_empty() {
        String::new()
    } else {
        format!(". Everywhere: {}", analysis.common.join(", "))
    };
    blocks.push(Block::Text(format!(
        "{who}: {rounds} in {cells}{origin}{common}."
    )));
}

/// What makes the numbers doubtful.
fn warnings(analysis: &Analysis<'_>, runs: &[Run], blocks: &mut Vec<Block>) {
    let mut warn = |text: String| blocks.push(Block::Notice(Tone::Bad, text));
    let measurements = || {
        let rounds = analysis.results.cells.iter().flat_map(|cell| &cell.rounds);
        rounds.flat_map(|round| &round.measurements)
    };
    let failures = measurements()
        .filter(|measurement| measurement.failure.is_some())
        .count();
    if failures > 0 {
        warn(format!(
            "{} failed, see below.",
            lsl_cli::table::count(failures, "turn")
        ));
    }
    let lost: u64 = measurements()
        .map(|measurement| measurement.expected.saturating_sub(measurement.received))
        .fold(0, u64::saturating_add);
    if lost > 0 {
        warn(format!("{lost} samples did not arrive, see below."));
    }
    let (least, _) = analysis.rounds();
    if least < 5 {
        let text =
            "Few rounds: an interval this wide hides all but large differences. Use 7 or more.";
        warn(text.into());
    }
    let busiest = runs.iter().map(|run| run.load[0]).fold(0.0, f64::max);
    let cores = analysis.results.machine.cores.max(1);
    if busiest > 0.5 * cores as f64 {
        warn(format!(
            "The machine was busy (load {} on {}): trust ratios, not absolute numbers.",
            figure(busiest),
            lsl_cli::table::count(cores, "core")
        ));
    }
    let slow = |run: &&Run| {
        run.governor
            .as_deref()
            .is_some_and(|governor| governor != "performance")
    };
    if let Some(governor) = runs.iter().find(slow).and_then(|run| run.governor.as_ref()) {
        warn(format!(
            "The CPU governor was {governor}: the clock moved with the load."
        ));
    }
}

fn headline(analysis: &Analysis<'_>, looks: &[Look], blocks: &mut Vec<Block>) {
    blocks.push(Block::Heading("Result".into()));
    let measures: Vec<&Measure> = headline_measures(analysis);
    if measures.is_empty() {
        blocks.push(Block::Text("Nothing was measured.".into()));
        return;
    }
    blocks.push(Block::Charts(
        measures
            .iter()
            .filter_map(|measure| pictures::ratios(analysis, looks, measure))
            .collect(),
    ));
    for measure in measures {
        let unit = if measure.unit.is_empty() {
            String::new()
        } else {
            format!(", {}", measure.unit)
        };
        blocks.push(Block::Text(format!("{}{unit}", measure.title)));
        blocks.push(Block::Table(matrix(analysis, measure)));
    }
}

/// The metrics to show first: those marked so, or all if none is.
pub(super) fn headline_measures<'a>(analysis: &'a Analysis<'_>) -> Vec<&'a Measure> {
    let marked: Vec<&Measure> = analysis
        .measures
        .iter()
        .filter(|measure| measure.headline)
        .collect();
    if marked.is_empty() {
        analysis.measures.iter().collect()
    } else {
        marked
    }
}

/// Cells down, subjects across.
fn matrix(analysis: &Analysis<'_>, measure: &Measure) -> Grid {
    let results = analysis.results;
    let subjects = 0..results.subjects.len();
    let heads: Vec<String> = subjects
        .map(|index| {
            let mark = if index == results.baseline {
                " (baseline)"
            } else {
                ""
            };
            format!("{}{mark}", analysis.subject(index))
        })
        .collect();
    let columns = std::iter::once("").chain(heads.iter().map(String::as_str));
    let mut grid = Grid::new(columns.map(|title| (title, Side::Left)));
    for (label, entries) in analysis.labels.iter().zip(&measure.entries) {
        let fields = entries.iter().map(|entry| matrix_field(measure, entry));
        grid.push(std::iter::once(Field::from(label.as_str())).chain(fields));
    }
    grid
}

fn matrix_field(measure: &Measure, entry: &Entry) -> Field {
    let Some(median) = entry.median() else {
        return match entry.failures {
            0 => Field::toned("–", Tone::Muted),
            _ => Field::toned("fails", Tone::Bad),
        };
    };
    // A subject that drops samples is not faster for it.
    let doubt = match (entry.lossy, entry.failures) {
        (true, _) => ", loses samples",
        (false, 0) => "",
        (false, _) => ", fails at times",
    };
    let tone = |tone| if doubt.is_empty() { tone } else { Tone::Bad };
    let Some(comparison) = &entry.against else {
        let best = entry.best(measure.better).map_or(String::new(), figure);
        let n = entry.values.len();
        let text = format!("{} (best {best}, n={n}){doubt}", figure(median));
        return Field::toned(text, tone(Tone::Plain));
    };
    let ratio = comparison.ratio.map_or(String::new(), |ratio| {
        let interval = comparison
            .interval
            .map_or(String::new(), |it| format!(" {}", ratio_bounds(it)));
        format!(" · ×{}{interval}", ratio_figure(ratio))
    });
    let words = measure.words(comparison.verdict);
    Field::toned(
        format!("{}{ratio} {words}{doubt}", figure(median)),
        tone(measure.tone(comparison.verdict)),
    )
}

pub(super) fn bounds(interval: Interval) -> String {
    format!("[{}, {}]", figure(interval.low), figure(interval.high))
}

fn encryption(analysis: &Analysis<'_>, looks: &[Look], blocks: &mut Vec<Block>) {
    let found = analysis.twins.iter().map(|(plain, secure)| {
        let overheads = Overhead::of(analysis.results, *plain, *secure);
        (*plain, *secure, overheads)
    });
    let found: Vec<(usize, usize, Vec<Overhead>)> = found.collect();
    if found.is_empty() {
        return;
    }
    blocks.push(Block::Heading("What encryption adds".into()));
    let chart = |(_, secure, overheads): &(usize, usize, Vec<Overhead>)| {
        let look = looks.get(*secure).copied()?;
        (!overheads.is_empty()).then(|| pictures::overhead(analysis, look, *secure, overheads))
    };
    let charts: Vec<Chart> = found.iter().filter_map(chart).collect();
    if !charts.is_empty() {
        blocks.push(Block::Charts(charts));
    }
    for (plain, secure, overheads) in &found {
        let names = format!(
            "{} against {}",
            analysis.subject(*secure),
            analysis.subject(*plain)
        );
        if !overheads.is_empty() {
            overhead_table(analysis, &names, overheads, blocks);
        }
        let costs = costs(analysis, *plain, *secure);
        if !costs.rows.is_empty() {
            let title = format!("{names}: everything else");
            let table = vec![Block::Table(costs)];
            blocks.push(Block::Details(title, table));
        }
    }
}

fn overhead_table(
    analysis: &Analysis<'_>,
    names: &str,
    overheads: &[Overhead],
    blocks: &mut Vec<Block>,
) {
    let within = overheads
        .iter()
        .filter(|overhead| overhead.within() == Within::Yes)
        .count();
    let tone = if within == overheads.len() {
        Tone::Good
    } else {
        Tone::Muted
    };
    let cells = lsl_cli::table::count(overheads.len(), "cell");
    let text = format!("{names}: shown to be within 5 % or 2 µs in {within} of {cells}.");
    blocks.push(Block::Notice(tone, text));
    let mut grid = Grid::new(OVERHEAD_COLUMNS.map(|title| {
        let left = title.is_empty() || title == "within the limit?";
        (title, if left { Side::Left } else { Side::Right })
    }));
    for overhead in overheads {
        grid.push(overhead_row(analysis, overhead));
    }
    blocks.push(Block::Table(grid));
}

/// All metrics of an encrypted subject against its plain twin, but for the one it is judged by.
fn costs(analysis: &Analysis<'_>, plain: usize, secure: usize) -> Grid {
    let titles = [
        "",
        "metric",
        "plain",
        "secure",
        "ratio",
        "95 % interval",
        "verdict",
    ];
    let mut grid = Grid::new(titles.map(|title| {
        let left = ["", "metric", "verdict"].contains(&title);
        (title, if left { Side::Left } else { Side::Right })
    }));
    for measure in analysis
        .measures
        .iter()
        .filter(|measure| measure.name != JUDGED)
    {
        for (cell, label) in analysis.results.cells.iter().zip(&analysis.labels) {
            let pairs = pairs(cell, &measure.name, plain, secure);
            let Some(comparison) = Comparison::of(&pairs, measure.better) else {
                continue;
            };
            let (plain, secure): (Vec<f64>, Vec<f64>) = pairs.into_iter().unzip();
            let median = |values: &[f64]| {
                stats::median(values).map_or_else(missing, |value| with_unit(value, &measure.unit))
            };
            grid.push([
                Field::from(label.as_str()),
                measure.title.as_str().into(),
                median(&plain).into(),
                median(&secure).into(),
                comparison.ratio.map_or_else(missing, ratio_figure).into(),
                comparison
                    .interval
                    .map_or_else(missing, ratio_bounds)
                    .into(),
                Field::toned(
                    measure.words(comparison.verdict),
                    measure.tone(comparison.verdict),
                ),
            ]);
        }
    }
    grid
}

const OVERHEAD_COLUMNS: [&str; 13] = [
    "",
    "plain, µs",
    "secure, µs",
    "added, µs",
    "95 % interval",
    "added, %",
    "within the limit?",
    "t",
    "p",
    "d",
    "d_z",
    "p of TOST 1 % / 5 %",
    "rounds (for ±1 %)",
];

fn overhead_row(analysis: &Analysis<'_>, overhead: &Overhead) -> Vec<Field> {
    let limit = with_unit(overhead.limit, "µs");
    let within = match overhead.within() {
        Within::Yes => Field::toned(format!("yes (≤ {limit})"), Tone::Good),
        Within::No => Field::toned(format!("no (> {limit})"), Tone::Bad),
        Within::Unsure if overhead.added <= overhead.limit => {
            Field::toned(format!("the median is, not shown (≤ {limit})"), Tone::Muted)
        }
        Within::Unsure => Field::toned(
            format!("the median is not, not shown (> {limit})"),
            Tone::Muted,
        ),
    };
    let paired =
        |show: fn(&stats::Paired) -> String| overhead.paired.as_ref().map_or_else(missing, show);
    let needed = overhead
        .pairs_for_percent
        .map_or(String::new(), |n| format!(" ({n})"));
    vec![
        analysis
            .labels
            .get(overhead.cell)
            .map_or("", String::as_str)
            .into(),
        figure(overhead.plain).into(),
        figure(overhead.secure).into(),
        signed(overhead.added).into(),
        overhead.interval.map_or_else(missing, bounds).into(),
        format!("{} %", signed(overhead.share * 100.0)).into(),
        within,
        paired(|paired| figure(paired.t)).into(),
        paired(|paired| chance(paired.p)).into(),
        overhead.d.map_or_else(missing, figure).into(),
        paired(|paired| figure(paired.d_z)).into(),
        equivalence(overhead.equivalence).into(),
        format!("{}{needed}", overhead.rounds).into(),
    ]
}

pub(super) fn equivalence(chances: Option<[f64; 2]>) -> String {
    chances.map_or_else(missing, |[one, five]| {
        format!("{} / {}", chance(one), chance(five))
    })
}

/// The charts of values: lines where something varies, else bars, and distributions.
fn series(analysis: &Analysis<'_>, looks: &[Look], blocks: &mut Vec<Block>) {
    let latency = ["latency_p50_us", "latency_p95_us"].map(|name| analysis.measure(name));
    let latency: Vec<&Measure> = latency.into_iter().flatten().collect();
    let axes = pictures::axes(analysis);
    let along = |parameter: &&str| -> Vec<Chart> {
        let lines = |measure: &&Measure| pictures::lines(analysis, looks, measure, parameter);
        latency.iter().flat_map(lines).collect()
    };
    if let Some((first, others)) = axes.split_first() {
        add_charts(blocks, "Latency", along(first));
        for parameter in others {
            let charts = along(parameter);
            if !charts.is_empty() {
                let title = format!("the same along: {}", figures::axis(parameter));
                blocks.push(Block::Details(title, vec![Block::Charts(charts)]));
            }
        }
    } else {
        let bars = latency
            .iter()
            .filter_map(|measure| pictures::bars(analysis, looks, measure));
        add_charts(blocks, "Latency", bars.collect());
    }
    let is_other = |measure: &&Measure| !measure.name.starts_with("latency");
    let others = headline_measures(analysis).into_iter().filter(is_other);
    let bars = others.filter_map(|measure| pictures::bars(analysis, looks, measure));
    add_charts(blocks, "Throughput and cost", bars.collect());
    add_charts(
        blocks,
        "Distribution of latency",
        pictures::distributions(analysis, looks),
    );
}

/// Charts under a heading; where they are many, all but the first folded away.
fn add_charts(blocks: &mut Vec<Block>, title: &str, mut charts: Vec<Chart>) {
    if charts.is_empty() {
        return;
    }
    let more = charts.split_off(charts.len().min(CHARTS_AT_ONCE));
    blocks.push(Block::Heading(title.into()));
    blocks.push(Block::Charts(charts));
    if !more.is_empty() {
        let title = format!("{} more like these", more.len());
        blocks.push(Block::Details(title, vec![Block::Charts(more)]));
    }
}

pub(super) fn ratio_bounds(interval: Interval) -> String {
    format!(
        "[{}, {}]",
        ratio_figure(interval.low),
        ratio_figure(interval.high)
    )
}

pub(super) fn missing() -> String {
    "–".into()
}

/// One row of the headline table on the terminal.
pub(super) fn headline_rows(analysis: &Analysis<'_>) -> Vec<[String; 6]> {
    let mut rows = Vec::new();
    for measure in headline_measures(analysis) {
        for (label, entries) in analysis.labels.iter().zip(&measure.entries) {
            for (subject, entry) in entries.iter().enumerate() {
                let Some(median) = entry.median() else {
                    continue;
                };
                let comparison = entry.against.as_ref();
                let ratio = comparison.and_then(|comparison| comparison.ratio);
                let interval = comparison.and_then(|comparison| comparison.interval);
                let verdict = comparison.map_or(Verdict::Same, |comparison| comparison.verdict);
                let words =
                    comparison.map_or_else(|| "baseline".into(), |_| measure.words(verdict));
                rows.push([
                    format!("{}: {label}", measure.title),
                    analysis.subject(subject).into(),
                    with_unit(median, &measure.unit),
                    ratio.map_or(String::new(), |ratio| format!("×{}", ratio_figure(ratio))),
                    interval.map_or(String::new(), ratio_bounds),
                    words,
                ]);
            }
        }
    }
    rows
}

const HOW_TO_READ: [&str; 5] = [
    "In each round every subject had its turn, one after the other, in rotating order. A ratio is taken within a \
     round, so what the machine did meanwhile cancels out; the number shown is the median of these ratios. \
     Absolute numbers hold for this machine and this hour only.",
    "In brackets is the 95 % confidence interval: from six rounds on by order statistics (at least 95 %, \
     whatever the distribution); with fewer it assumes that ratios scatter like a log-normal (differences: a \
     normal) distribution.",
    "\"faster\", \"slower\", \"more\" and \"less\" mean that the interval excludes no difference; \"within 5 %\" \
     that the difference is shown to be smaller than that (two one-sided tests, TOST, p < 0.05). \"no difference \
     shown\" does not mean equal: more rounds may show one. Of twenty comparisons of equals, one is expected to \
     show a difference by chance.",
    "a / b: a is the median of the ratios, b the ratio of the best rounds. d is Cohen's d with the pooled \
     deviation, d_z the mean difference in deviations of the differences; t, p, d and d_z are of the paired \
     differences.",
    "Added latency within its limit means: the whole interval lies below 5 % of the plain median or 2 µs, \
     whichever is more.",
];

/// More than these are a wall, not a picture.
const CHARTS_AT_ONCE: usize = 6;
