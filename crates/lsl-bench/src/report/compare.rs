//! What the numbers of a run say: every metric in every cell, each subject against the baseline, and
//! encrypted against plain. Works on `Results`, knows nothing of how a report looks.

use std::collections::BTreeSet;

use serde_json::Value;

use super::figures;
use crate::result::{Better, Cell, METRICS, Measurement, Results};
use crate::stats::{self, Interval, Paired};

/// A run, understood.
#[derive(Debug)]
pub(super) struct Analysis<'a> {
    pub(super) results: &'a Results,
    /// Per cell what tells it from the others.
    pub(super) labels: Vec<String>,
    /// What is the same in all cells.
    pub(super) common: Vec<String>,
    /// Names of the parameters that vary.
    pub(super) varying: Vec<String>,
    /// Metrics that occur, known ones first and in their order.
    pub(super) measures: Vec<Measure>,
    /// Indices of (plain, encrypted) twins among the subjects.
    pub(super) twins: Vec<(usize, usize)>,
}

/// One metric in all cells.
#[derive(Debug)]
pub(super) struct Measure {
    pub(super) name: String,
    pub(super) title: String,
    pub(super) unit: String,
    /// Unknown for metrics that a newer `lsl` wrote.
    pub(super) better: Option<Better>,
    pub(super) headline: bool,
    /// By cell, then by subject.
    pub(super) entries: Vec<Vec<Entry>>,
}

/// One metric of one subject in one cell.
#[derive(Debug, Default)]
pub(super) struct Entry {
    /// By round, where there is one.
    pub(super) values: Vec<f64>,
    /// Turns that failed.
    pub(super) failures: usize,
    /// Whether samples are missing, so that the values are of those that came.
    pub(super) lossy: bool,
    /// Against the baseline in the same rounds.
    pub(super) against: Option<Comparison>,
}

impl Entry {
    pub(super) fn median(&self) -> Option<f64> {
        stats::median(&self.values)
    }

    /// First and third quartile.
    pub(super) fn quartiles(&self) -> Option<Interval> {
        Some(Interval {
            low: stats::quantile(&self.values, 0.25)?,
            high: stats::quantile(&self.values, 0.75)?,
        })
    }

    /// The best round.
    pub(super) fn best(&self, better: Option<Better>) -> Option<f64> {
        let values = self.values.iter().copied();
        match better {
            Some(Better::Higher) => values.reduce(f64::max),
            _ => values.reduce(f64::min),
        }
    }
}

/// One subject against another, paired by round.
#[derive(Debug)]
pub(super) struct Comparison {
    /// Median of the ratios of each round. `None` where something is 0 or negative.
    pub(super) ratio: Option<f64>,
    /// 95 % confidence interval of the ratio.
    pub(super) interval: Option<Interval>,
    /// Best round of one to the best of the other.
    pub(super) best: Option<f64>,
    /// The paired t-test of the differences.
    pub(super) paired: Option<Paired>,
    /// Cohen's d with the pooled deviation.
    pub(super) d: Option<f64>,
    /// p of the equivalence test of the ratios at plus and minus 1 % and 5 %.
    pub(super) equivalence: Option<[f64; 2]>,
    pub(super) verdict: Verdict,
}

/// What a comparison shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// One round or none says nothing.
    TooFew,
    /// The same in every round.
    Same,
    /// The interval holds 1, and is too wide to say more.
    NotShown,
    /// Within 5 %, shown by TOST.
    Equivalent,
    /// More, and perhaps shown to be by less than 5 %.
    Higher {
        slight: bool,
    },
    Lower {
        slight: bool,
    },
}

/// How to show a verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tone {
    Plain,
    Good,
    Bad,
    Muted,
}

impl<'a> Analysis<'a> {
    pub(super) fn of(results: &'a Results) -> Self {
        let (varying, common) = split_parameters(&results.cells);
        let labels = results
            .cells
            .iter()
            .map(|cell| label(cell, &varying))
            .collect();
        Self {
            results,
            labels,
            common,
            varying,
            measures: measures(results),
            twins: twins(results),
        }
    }

    pub(super) fn subject(&self, index: usize) -> &str {
        self.results
            .subjects
            .get(index)
            .map_or("?", |subject| &subject.name)
    }

    /// The most rounds of any cell.
    pub(super) fn rounds(&self) -> (usize, usize) {
        let counts = || self.results.cells.iter().map(|cell| cell.rounds.len());
        (counts().min().unwrap_or(0), counts().max().unwrap_or(0))
    }

    pub(super) fn measure(&self, name: &str) -> Option<&Measure> {
        self.measures.iter().find(|measure| measure.name == name)
    }
}

impl Measure {
    /// The verdict in words that suit the metric.
    pub(super) fn words(&self, verdict: Verdict) -> String {
        let is_speed = ["latency", "push", "samples", "mib", "write", "read"]
            .iter()
            .any(|start| self.name.starts_with(start));
        let (up, down) = match (is_speed, self.better) {
            (true, Some(Better::Lower)) => ("slower", "faster"),
            (true, Some(Better::Higher)) => ("faster", "slower"),
            (_, Some(_)) => ("more", "less"),
            (_, None) => ("higher", "lower"),
        };
        let word = |word: &str, slight: bool| {
            if slight {
                format!("{word}, within 5 %")
            } else {
                word.into()
            }
        };
        match verdict {
            Verdict::TooFew => "too few rounds".into(),
            Verdict::Same => "the same".into(),
            Verdict::NotShown => "no difference shown".into(),
            Verdict::Equivalent => "equivalent within 5 %".into(),
            Verdict::Higher { slight } => word(up, slight),
            Verdict::Lower { slight } => word(down, slight),
        }
    }

    /// Whether the verdict is good news.
    pub(super) fn tone(&self, verdict: Verdict) -> Tone {
        match (verdict, self.better) {
            (Verdict::Higher { slight: false }, Some(Better::Higher))
            | (Verdict::Lower { slight: false }, Some(Better::Lower)) => Tone::Good,
            (Verdict::Lower { slight: false }, Some(Better::Higher))
            | (Verdict::Higher { slight: false }, Some(Better::Lower)) => Tone::Bad,
            (Verdict::TooFew | Verdict::NotShown, _) => Tone::Muted,
            _ => Tone::Plain,
        }
    }
}

impl Comparison {
    /// Compares the second of each pair with the first. `None` without a pair.
    pub(super) fn of(pairs: &[(f64, f64)], better: Option<Better>) -> Option<Self> {
        if pairs.is_empty() {
            return None;
        }
        let paired = Paired::of(pairs);
        let mut comparison = Self {
            ratio: None,
            interval: None,
            best: None,
            paired,
            d: stats::cohens_d(pairs),
            equivalence: None,
            verdict: Verdict::TooFew,
        };
        if pairs
            .iter()
            .all(|(first, second)| *first > 0.0 && *second > 0.0)
        {
            comparison.take_ratios(pairs, better);
        } else if let Some(paired) = paired {
            comparison.verdict = verdict(paired.interval, 0.0, false);
        }
        let is_same = |(first, second): &(f64, f64)| first.total_cmp(second).is_eq();
        if pairs.len() > 1 && pairs.iter().all(is_same) {
            comparison.verdict = Verdict::Same;
        }
        Some(comparison)
    }

    fn take_ratios(&mut self, pairs: &[(f64, f64)], better: Option<Better>) {
        let ratios: Vec<f64> = pairs.iter().map(|(first, second)| second / first).collect();
        let (first, second): (Vec<f64>, Vec<f64>) = pairs.iter().copied().unzip();
        let best = |values: Vec<f64>| match better {
            Some(Better::Higher) => values.into_iter().fold(f64::MIN_POSITIVE, f64::max),
            _ => values.into_iter().fold(f64::INFINITY, f64::min),
        };
        self.ratio = stats::median(&ratios);
        self.best = Some(best(second) / best(first));
        // In logarithms twice as fast and half as fast are equally far from 1.
        let logarithms: Vec<f64> = ratios.iter().map(|ratio| ratio.ln()).collect();
        let Some(logs) = Paired::of_differences(&logarithms) else {
            return;
        };
        let interval = stats::median_interval(&ratios).unwrap_or_else(|| Interval {
            low: logs.interval.low.exp(),
            high: logs.interval.high.exp(),
        });
        let within =
            [0.01, 0.05].map(|share: f64| logs.equivalence((1.0 - share).ln(), (1.0 + share).ln()));
        self.interval = Some(interval);
        self.equivalence = Some(within);
        self.verdict = verdict(interval, 1.0, within[1] < 0.05);
    }
}

fn verdict(interval: Interval, neutral: f64, equivalent: bool) -> Verdict {
    if interval.low > neutral {
        Verdict::Higher { slight: equivalent }
    } else if interval.high < neutral {
        Verdict::Lower { slight: equivalent }
    } else if equivalent {
        Verdict::Equivalent
    } else {
        Verdict::NotShown
    }
}

/// What one subject did in all rounds.
fn turns(cell: &Cell, subject: usize) -> impl Iterator<Item = &Measurement> {
    cell.rounds
        .iter()
        .filter_map(move |round| round.measurements.get(subject))
}

/// Values of two subjects in the rounds that have both.
pub(super) fn pairs(cell: &Cell, metric: &str, first: usize, second: usize) -> Vec<(f64, f64)> {
    let rounds = cell.rounds.iter();
    rounds
        .filter_map(|round| {
            let value = |subject: usize| {
                let value = round.measurements.get(subject)?.values.get(metric)?;
                value.is_finite().then_some(*value)
            };
            Some((value(first)?, value(second)?))
        })
        .collect()
}

fn measures(results: &Results) -> Vec<Measure> {
    let mut unknown: BTreeSet<&str> = results
        .cells
        .iter()
        .flat_map(|cell| &cell.rounds)
        .flat_map(|round| &round.measurements)
        .flat_map(|measurement| measurement.values.keys())
        .map(String::as_str)
        .filter(|name| !(results.is_of_slowest() && name.starts_with("slowest_")))
        .collect();
    let known = METRICS.iter().filter(|metric| unknown.remove(metric.name));
    let mut measures: Vec<Measure> = known
        .map(|metric| Measure {
            name: metric.name.into(),
            title: match metric.title.strip_prefix("latency,") {
                Some(which) => format!("{},{which}", results.latency_title()),
                None => metric.title.into(),
            },
            unit: metric.unit.into(),
            better: Some(metric.better),
            headline: metric.headline,
            entries: entries(results, metric.name, Some(metric.better)),
        })
        .collect();
    measures.extend(unknown.into_iter().map(|name| Measure {
        name: name.into(),
        title: name.into(),
        unit: String::new(),
        better: None,
        headline: false,
        entries: entries(results, name, None),
    }));
    measures
}

fn entries(results: &Results, metric: &str, better: Option<Better>) -> Vec<Vec<Entry>> {
    let of_cell = |cell: &Cell| {
        let subjects = 0..results.subjects.len();
        let entry = |subject: usize| Entry {
            values: pairs(cell, metric, subject, subject)
                .into_iter()
                .map(|(value, _)| value)
                .collect(),
            failures: turns(cell, subject)
                .filter(|turn| turn.failure.is_some())
                .count(),
            lossy: turns(cell, subject).any(|turn| turn.received < turn.expected),
            against: (subject != results.baseline)
                .then(|| Comparison::of(&pairs(cell, metric, results.baseline, subject), better))
                .flatten(),
        };
        subjects.map(entry).collect()
    };
    results.cells.iter().map(of_cell).collect()
}

/// Names of the parameters that vary, and the rest in words.
fn split_parameters(cells: &[Cell]) -> (Vec<String>, Vec<String>) {
    let names: BTreeSet<&String> = cells
        .iter()
        .flat_map(|cell| cell.parameters.keys())
        .collect();
    let (mut varying, mut common) = (Vec::new(), Vec::new());
    for name in names {
        let mut values = cells.iter().map(|cell| cell.parameters.get(name));
        let first = values.next().flatten();
        match first {
            Some(value) if values.all(|other| other == first) => {
                common.push(figures::parameter(name, value));
            }
            _ => varying.push(name.clone()),
        }
    }
    (varying, common)
}

/// What tells a cell from the others; with a single cell, all of it.
fn label(cell: &Cell, varying: &[String]) -> String {
    let told = |name: &String| varying.is_empty() || varying.contains(name);
    let parts: Vec<String> = cell
        .parameters
        .iter()
        .filter(|(name, _)| told(name))
        .map(|(name, value)| figures::parameter(name, value))
        .collect();
    if parts.is_empty() {
        "all".into()
    } else {
        parts.join(", ")
    }
}

/// Finds the plain subject that each encrypted one belongs to: the one without the word `secure`, or
/// with the longest name that the encrypted one's name begins with (`raw:tcp`, `raw:tcp-aesgcm`).
fn twins(results: &Results) -> Vec<(usize, usize)> {
    let subjects = || results.subjects.iter().enumerate();
    let stem = |name: &str| {
        let words = name
            .split_whitespace()
            .filter(|word| !word.eq_ignore_ascii_case("secure"));
        words.collect::<Vec<_>>().join(" ")
    };
    let belongs = |secure: &str, plain: &str| {
        stem(secure) == plain
            || secure
                .strip_prefix(plain)
                .is_some_and(|rest| rest.starts_with([' ', '-', '+', '/', ':', ',', '(']))
    };
    subjects()
        .filter(|(_, subject)| subject.secure)
        .filter_map(|(index, secure)| {
            let (twin, _) = subjects()
                .filter(|(_, plain)| !plain.secure && belongs(&secure.name, &plain.name))
                .max_by_key(|(_, plain)| plain.name.len())?;
            Some((twin, index))
        })
        .collect()
}

/// The number that a cell has for a parameter.
pub(super) fn number(cell: &Cell, parameter: &str) -> Option<f64> {
    cell.parameters.get(parameter).and_then(Value::as_f64)
}

/// The metric that encryption is judged by.
pub(super) const JUDGED: &str = "latency_p50_us";

/// What encryption adds to the median latency of one cell.
#[derive(Debug)]
pub(super) struct Overhead {
    pub(super) cell: usize,
    pub(super) plain: f64,
    pub(super) secure: f64,
    /// Median of the differences, in microseconds.
    pub(super) added: f64,
    /// Median of the ratios, less 1.
    pub(super) share: f64,
    /// 95 % interval of the added time: of the median from six rounds on, else of the mean.
    pub(super) interval: Option<Interval>,
    pub(super) paired: Option<Paired>,
    pub(super) d: Option<f64>,
    /// p of the equivalence tests at 1 % and 5 % of the plain mean.
    pub(super) equivalence: Option<[f64; 2]>,
    /// Pairs it would take for an interval of plus and minus 1 %.
    pub(super) pairs_for_percent: Option<usize>,
    pub(super) rounds: usize,
    /// What is allowed: 5 % or 2 µs, whichever is more.
    pub(super) limit: f64,
}

/// Whether encryption stays within its limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Within {
    /// The whole interval does.
    Yes,
    /// The median does, or does not, but the interval holds the limit.
    Unsure,
    No,
}

impl Overhead {
    /// What `secure` adds to `plain` in each cell that has both.
    pub(super) fn of(results: &Results, plain: usize, secure: usize) -> Vec<Self> {
        let cells = results.cells.iter().enumerate();
        cells
            .filter_map(|(index, cell)| Self::of_cell(index, &pairs(cell, JUDGED, plain, secure)))
            .collect()
    }

    fn of_cell(cell: usize, pairs: &[(f64, f64)]) -> Option<Self> {
        let (first, second): (Vec<f64>, Vec<f64>) = pairs.iter().copied().unzip();
        let added: Vec<f64> = pairs.iter().map(|(plain, secure)| secure - plain).collect();
        let ratios: Vec<f64> = pairs.iter().map(|(plain, secure)| secure / plain).collect();
        let plain = stats::median(&first)?;
        let paired = Paired::of(pairs);
        let mean = stats::mean(&first)?;
        Some(Self {
            cell,
            plain,
            secure: stats::median(&second)?,
            added: stats::median(&added)?,
            share: stats::median(&ratios)? - 1.0,
            interval: stats::median_interval(&added)
                .or_else(|| paired.map(|paired| paired.interval)),
            paired,
            d: stats::cohens_d(pairs),
            equivalence: paired.map(|paired| {
                [0.01, 0.05].map(|share| paired.equivalence(-share * mean, share * mean))
            }),
            pairs_for_percent: paired.and_then(|paired| paired.pairs_needed(mean * 0.01)),
            rounds: pairs.len(),
            limit: (0.05 * plain).max(2.0),
        })
    }

    pub(super) fn within(&self) -> Within {
        match self.interval {
            Some(interval) if interval.high <= self.limit => Within::Yes,
            Some(interval) if interval.low > self.limit => Within::No,
            _ => Within::Unsure,
        }
    }
}

#[cfg(test)]
mod tests;
