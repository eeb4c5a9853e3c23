//! Results of a benchmark: the one form that every `lsl bench` command writes as JSON and that the
//! report reads. Numbers only; `stats` draws the conclusions.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use lsl_cli::failure::{Failure, Outcome};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::stats;

/// Name and version of the form; a report refuses others.
pub(crate) const SCHEMA: &str = "lsl-bench/1";

/// One run of one benchmark.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Results {
    /// Equals [`SCHEMA`]; other forms are refused.
    pub(crate) schema: String,
    /// Name of the action: `latency`, `fanout`, …
    pub(crate) benchmark: String,
    pub(crate) machine: Machine,
    /// The command line, to run it again.
    pub(crate) args: Vec<String>,
    /// Libraries compared, in the order given; ratios refer to `baseline`.
    pub(crate) subjects: Vec<Subject>,
    pub(crate) baseline: usize,
    /// One per point of the grid.
    pub(crate) cells: Vec<Cell>,
}

impl Results {
    /// Names the samples that `latency_*` and the histograms count, for people.
    pub(crate) fn latency_title(&self) -> &'static str {
        if self.is_of_slowest() {
            "latency of the slowest reader"
        } else {
            "latency"
        }
    }

    /// Whether that is each sample once, as late as its slowest reader had it, so that `slowest_*` says
    /// the same again.
    pub(crate) fn is_of_slowest(&self) -> bool {
        self.benchmark == "fanout"
    }

    /// The folder for these results: `chosen`, or one named after benchmark and time.
    pub(crate) fn folder(&self, chosen: Option<&Path>) -> PathBuf {
        let started = self.machine.started.replace([':', '-'], "");
        let named = || Path::new("lsl-bench").join(format!("{}-{started}", self.benchmark));
        chosen.map_or_else(named, Path::to_owned)
    }

    /// Writes `results.json` into this folder, which is made if it is not there; an older file is
    /// replaced as a whole.
    pub(crate) fn write(&self, folder: &Path) -> Outcome {
        let attempt = || -> Outcome {
            fs::create_dir_all(folder)?;
            let unfinished = folder.join("results.json.part");
            let mut text = serde_json::to_string_pretty(self)?;
            text.push('\n');
            fs::write(&unfinished, text)?;
            Ok(fs::rename(&unfinished, folder.join("results.json"))?)
        };
        let what = folder.display().to_string();
        attempt().map_err(|failure: Failure| failure.context(&what))
    }
}

/// Machine and time of the run.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Machine {
    /// Start of the run: RFC 3339, UTC.
    pub(crate) started: String,
    pub(crate) host: String,
    pub(crate) cpu: String,
    pub(crate) cores: usize,
    pub(crate) kernel: String,
    /// `scaling_governor`, where there is one.
    pub(crate) governor: Option<String>,
    /// Load of 1, 5 and 15 minutes, at the start.
    pub(crate) load: [f64; 3],
    /// Version of `lsl` that measured.
    pub(crate) version: String,
    /// What else the machine did, if that was too much.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) busy: Option<String>,
}

/// One of those that are compared.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Subject {
    /// Short and unique in the run: `ours`, `ours secure`, `liblsl 1.18`, `raw:tcp`.
    pub(crate) name: String,
    /// Path of the library and its own description, or the cipher.
    pub(crate) detail: String,
    pub(crate) secure: bool,
}

/// One point of the grid, such as 64 channels at 1 kHz with one inlet.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Cell {
    /// Names and values of what varies, for example `channels`: 64.
    pub(crate) parameters: BTreeMap<String, Value>,
    /// Interleaved: in each round every subject had its turn, in rotating order.
    pub(crate) rounds: Vec<Round>,
}

impl Cell {
    /// Returns the measurements of one subject, round by round.
    pub(crate) fn measurements(&self, subject: usize) -> impl Iterator<Item = &Measurement> {
        let rounds = self.rounds.iter();
        rounds.filter_map(move |round| round.measurements.get(subject))
    }

    /// A metric of one subject, in the rounds that have it.
    pub(crate) fn values(&self, subject: usize, metric: &str) -> Vec<f64> {
        let values = self.measurements(subject);
        values
            .filter_map(|measurement| measurement.values.get(metric).copied())
            .filter(|value| value.is_finite())
            .collect()
    }

    /// A metric of two subjects, in the rounds that have both.
    pub(crate) fn pairs(&self, metric: &str, first: usize, second: usize) -> Vec<(f64, f64)> {
        let pair = |round: &Round| {
            let value = |subject: usize| {
                let value = round.measurements.get(subject)?.values.get(metric)?;
                value.is_finite().then_some(*value)
            };
            Some((value(first)?, value(second)?))
        };
        self.rounds.iter().filter_map(pair).collect()
    }

    /// The median of a metric of one subject for people, `-` without any.
    pub(crate) fn median_text(&self, subject: usize, metric: &str, digits: usize) -> String {
        match stats::median(&self.values(subject, metric)) {
            Some(value) => format!("{value:.digits$}"),
            None => "-".into(),
        }
    }
}

/// One turn of every subject.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Round {
    /// Measurements by index of the subject.
    pub(crate) measurements: Vec<Measurement>,
}

/// Values of one subject in one round.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Measurement {
    /// Values by name of the metric, see [`METRICS`](crate::metrics::METRICS).
    pub(crate) values: BTreeMap<String, f64>,
    /// Samples that should have arrived, over all readers, and those that did. 0 of 0 where a
    /// benchmark moves no samples.
    pub(crate) expected: u64,
    pub(crate) received: u64,
    /// Numbers of the first samples missing, and how many are missing from there on.
    pub(crate) gaps: Vec<Gap>,
    /// Latencies in microseconds as (upper bound, count), for charts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) histogram: Vec<(f64, u64)>,
    /// Reason for the missing values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) failure: Option<String>,
}

/// A run of consecutive samples that never came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Gap {
    /// Index of the reader, from 0.
    pub(crate) reader: u32,
    pub(crate) first: u64,
    pub(crate) count: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_are_shown_or_that_there_is_none() {
        let measured = |value: f64| Measurement {
            values: [("open_ms".to_owned(), value)].into(),
            ..Measurement::default()
        };
        let round = |value| Round {
            measurements: vec![measured(value), Measurement::default()],
        };
        let cell = Cell {
            parameters: BTreeMap::new(),
            rounds: vec![round(1.0), round(9.0), round(2.0)],
        };
        assert_eq!(cell.median_text(0, "open_ms", 1), "2.0");
        assert_eq!(cell.median_text(1, "open_ms", 1), "-");
        assert_eq!(cell.median_text(2, "open_ms", 1), "-");
    }
}
