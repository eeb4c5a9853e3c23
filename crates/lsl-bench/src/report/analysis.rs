//! Analyses a run: every metric in every cell, each subject against the baseline, and encrypted
//! against plain. Serialized, it is what `--json` prints. Knows nothing of how a report looks.

use std::collections::BTreeSet;

use serde::Serialize;
use serde_json::Value;

use super::encryption::{Encryption, twins};
use super::format;
use crate::metrics::{Better, METRICS};
use crate::result::{Cell, Measurement, Results};
use crate::stats::{self, Interval, Paired};

/// A run with all statistics that a report shows.
#[derive(Debug)]
pub(super) struct Analysis<'a> {
    pub(super) results: &'a Results,
    /// Labels of the cells, which tell them apart.
    pub(super) labels: Vec<String>,
    /// Parameters that are the same in all cells, in words.
    pub(super) common: Vec<String>,
    /// Names of the parameters that vary.
    pub(super) varying: Vec<String>,
    /// Metrics that occur, known ones first and in their order.
    pub(super) measures: Vec<Measure>,
    /// Indices of (plain, encrypted) twins among the subjects.
    pub(super) twins: Vec<(usize, usize)>,
    /// Costs of encryption, by pair of twins.
    pub(super) encryption: Vec<Encryption>,
}

/// One metric in all cells.
#[derive(Debug, Serialize)]
pub(super) struct Measure {
    pub(super) name: String,
    pub(super) title: String,
    pub(super) unit: String,
    /// Unknown for metrics that a newer `lsl` wrote.
    #[serde(skip)]
    pub(super) better: Option<Better>,
    /// Whether it is shown first: those marked so, or all if none is.
    pub(super) headline: bool,
    /// Results by cell, then by subject.
    pub(super) entries: Vec<Vec<SubjectResult>>,
}

/// One metric of one subject in one cell.
#[derive(Debug, Serialize)]
pub(super) struct SubjectResult {
    #[serde(flatten)]
    pub(super) compared: Compared,
    pub(super) quartiles: Option<Interval>,
    pub(super) best: Option<f64>,
    pub(super) tone: Tone,
    /// Number of turns that failed.
    failures: usize,
    /// Whether samples are missing, so that the values are of those that came.
    lossy: bool,
}

/// One metric of one subject in one cell, as `--json` prints it. `None` is what cannot be worked out.
#[derive(Debug, Serialize)]
pub(super) struct Compared {
    metric: String,
    cell: Value,
    pub(super) subject: String,
    rounds: usize,
    pub(super) median: Option<f64>,
    /// Against the baseline in the same rounds; empty for the baseline.
    #[serde(flatten)]
    pub(super) against: Comparison,
}

/// One subject against another, paired by round.
#[derive(Debug, Default, Serialize)]
pub(super) struct Comparison {
    /// Median of the ratios of each round.
    pub(super) ratio: Option<f64>,
    /// Best round of one to the best of the other.
    pub(super) ratio_best: Option<f64>,
    /// 95 % confidence interval of the ratio.
    pub(super) ratio_interval: Option<Interval>,
    pub(super) t: Option<f64>,
    pub(super) p: Option<f64>,
    /// Cohen's d with the pooled deviation.
    pub(super) d: Option<f64>,
    pub(super) d_z: Option<f64>,
    /// p of the equivalence tests of the ratios.
    pub(super) tost_1_percent_p: Option<f64>,
    pub(super) tost_5_percent_p: Option<f64>,
    /// Conclusion of the comparison, in words that suit the metric.
    pub(super) verdict: Option<String>,
}

/// Emphasis with which a verdict is shown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Tone {
    #[default]
    Plain,
    Good,
    Bad,
    Muted,
}

impl<'a> Analysis<'a> {
    pub(super) fn of(results: &'a Results) -> Self {
        let (varying, common) = split_parameters(&results.cells);
        let measures = measures(results);
        let twins = twins(results);
        let pairs = twins.iter();
        let encryption = pairs.map(|pair| Encryption::of(results, &measures, *pair));
        let labels = results.cells.iter().map(|cell| label(cell, &varying));
        Self {
            results,
            labels: labels.collect(),
            common,
            encryption: encryption.collect(),
            varying,
            measures,
            twins,
        }
    }

    pub(super) fn subject(&self, index: usize) -> &str {
        let subject = self.results.subjects.get(index);
        subject.map_or("?", |subject| &subject.name)
    }

    /// The fewest and the most rounds of any cell.
    pub(super) fn rounds(&self) -> (usize, usize) {
        let counts = || self.results.cells.iter().map(|cell| cell.rounds.len());
        (counts().min().unwrap_or(0), counts().max().unwrap_or(0))
    }

    pub(super) fn measure(&self, name: &str) -> Option<&Measure> {
        self.measures.iter().find(|measure| measure.name == name)
    }
}

impl Measure {
    fn new(results: &Results, name: &str) -> Self {
        let known = METRICS.iter().find(|metric| metric.name == name);
        let title = known.map_or(name, |metric| metric.title);
        let mut measure = Self {
            name: name.into(),
            title: match title.strip_prefix("latency,") {
                Some(which) => format!("{},{which}", results.latency_title()),
                None => title.into(),
            },
            unit: known.map_or("", |metric| metric.unit).into(),
            better: known.map(|metric| metric.better),
            headline: known.is_some_and(|metric| metric.headline),
            entries: Vec::new(),
        };
        let entries = |cell| {
            (0..results.subjects.len())
                .map(|index| measure.entry(results, cell, index))
                .collect()
        };
        measure.entries = results.cells.iter().map(entries).collect();
        measure
    }

    fn entry(&self, results: &Results, cell: &Cell, subject: usize) -> SubjectResult {
        let values = cell.values(subject, &self.name);
        let (against, tone) = if subject == results.baseline {
            Default::default()
        } else {
            self.compare(&cell.pairs(&self.name, results.baseline, subject))
        };
        let compared = Compared {
            metric: self.name.clone(),
            cell: parameters(cell),
            subject: results.subjects[subject].name.clone(),
            rounds: values.len(),
            median: stats::median(&values),
            against,
        };
        let mut turns = cell.measurements(subject);
        let failed = |turn: &&Measurement| turn.failure.is_some();
        SubjectResult {
            compared,
            quartiles: stats::quartiles(&values),
            best: self.best(&values),
            tone,
            failures: cell.measurements(subject).filter(failed).count(),
            lossy: turns.any(|turn| turn.received < turn.expected),
        }
    }

    fn best(&self, values: &[f64]) -> Option<f64> {
        let best = if self.better == Some(Better::Higher) {
            f64::max
        } else {
            f64::min
        };
        values.iter().copied().reduce(best)
    }

    /// Compares the second of each pair with the first: by ratios where all are positive, else by differences.
    pub(super) fn compare(&self, pairs: &[(f64, f64)]) -> (Comparison, Tone) {
        if pairs.is_empty() {
            return Default::default();
        }
        let paired = Paired::of(pairs);
        let mut comparison = Comparison::of(pairs, paired);
        let (mut neutral, mut interval) = (0.0, paired.map(|paired| paired.interval));
        if pairs
            .iter()
            .all(|(first, second)| *first > 0.0 && *second > 0.0)
        {
            let ratios: Vec<f64> = pairs.iter().map(|(first, second)| second / first).collect();
            let (first, second): (Vec<f64>, Vec<f64>) = pairs.iter().copied().unzip();
            // In logarithms twice as fast and half as fast are equally far from 1.
            let logarithms: Vec<f64> = ratios.iter().map(|ratio| ratio.ln()).collect();
            let logs = Paired::of_differences(&logarithms);
            let within =
                |share: f64| Some(logs?.equivalence((1.0 - share).ln(), (1.0 + share).ln()));
            (comparison.tost_1_percent_p, comparison.tost_5_percent_p) =
                (within(0.01), within(0.05));
            comparison.ratio = stats::median(&ratios);
            comparison.ratio_best = self
                .best(&second)
                .zip(self.best(&first))
                .map(|(own, other)| own / other);
            let by_logs = || logs.map(|logs| logs.interval.map(f64::exp));
            comparison.ratio_interval = stats::median_interval(&ratios).or_else(by_logs);
            (neutral, interval) = (1.0, comparison.ratio_interval);
        }
        let is_same = |(first, second): &(f64, f64)| first.total_cmp(second).is_eq();
        let (verdict, tone) = if pairs.len() > 1 && pairs.iter().all(is_same) {
            ("the same".into(), Tone::Plain)
        } else {
            let is_close = comparison.tost_5_percent_p.is_some_and(|p| p < 0.05);
            self.verdict(interval, neutral, is_close)
        };
        comparison.verdict = Some(verdict);
        (comparison, tone)
    }

    /// Judges an interval that may lie above or below `neutral`, and may be shown to be close to
    /// it.
    fn verdict(&self, interval: Option<Interval>, neutral: f64, is_close: bool) -> (String, Tone) {
        let is_speed = ["latency", "push", "samples", "mib", "write", "read"]
            .iter()
            .any(|start| self.name.starts_with(start));
        let (up, down) = match (is_speed, self.better) {
            (true, Some(Better::Lower)) => ("slower", "faster"),
            (true, Some(Better::Higher)) => ("faster", "slower"),
            (_, Some(_)) => ("more", "less"),
            (_, None) => ("higher", "lower"),
        };
        let (word, good) = match interval {
            None => return ("too few rounds".into(), Tone::Muted),
            Some([low, _]) if low > neutral => (up, Better::Higher),
            Some([_, high]) if high < neutral => (down, Better::Lower),
            Some(_) if is_close => return ("equivalent within 5 %".into(), Tone::Plain),
            Some(_) => return ("no difference shown".into(), Tone::Muted),
        };
        match self.better {
            _ if is_close => (format!("{word}, within 5 %"), Tone::Plain),
            None => (word.into(), Tone::Plain),
            Some(better) if better == good => (word.into(), Tone::Good),
            Some(_) => (word.into(), Tone::Bad),
        }
    }
}

impl Comparison {
    /// Fills in the results of the paired t-test.
    pub(super) fn of(pairs: &[(f64, f64)], paired: Option<Paired>) -> Self {
        Self {
            t: paired.map(|paired| paired.t),
            p: paired.map(|paired| paired.p),
            d: stats::cohens_d(pairs),
            d_z: paired.map(|paired| paired.d_z),
            ..Self::default()
        }
    }
}

pub(super) fn parameters(cell: &Cell) -> Value {
    cell.parameters.clone().into_iter().collect()
}

fn measures(results: &Results) -> Vec<Measure> {
    let rounds = results.cells.iter().flat_map(|cell| &cell.rounds);
    let mut names: BTreeSet<&str> = rounds
        .flat_map(|round| &round.measurements)
        .flat_map(|measurement| measurement.values.keys().map(String::as_str))
        .filter(|name| !(results.is_of_slowest() && name.starts_with("slowest_")))
        .collect();
    let known = METRICS.iter().map(|metric| metric.name);
    let known: Vec<&str> = known.filter(|name| names.remove(name)).collect();
    let all = known.into_iter().chain(names);
    let mut measures: Vec<Measure> = all.map(|name| Measure::new(results, name)).collect();
    if !measures.iter().any(|measure| measure.headline) {
        for measure in &mut measures {
            measure.headline = true;
        }
    }
    measures
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
        match values.next().flatten() {
            Some(first) if values.all(|other| other == Some(first)) => {
                common.push(format::parameter(name, first));
            }
            _ => varying.push(name.clone()),
        }
    }
    (varying, common)
}

/// Labels a cell by its varying parameters; a single cell by all of them.
fn label(cell: &Cell, varying: &[String]) -> String {
    let parts = cell.parameters.iter();
    let parts = parts.filter(|(name, _)| varying.is_empty() || varying.contains(name));
    let parts: Vec<String> = parts
        .map(|(name, value)| format::parameter(name, value))
        .collect();
    if parts.is_empty() {
        "all".into()
    } else {
        parts.join(", ")
    }
}

#[cfg(test)]
mod tests;
