//! Encrypted subjects against their plain twins.

use serde::Serialize;
use serde_json::Value;

use super::analysis::{Comparison, Measure, Tone, parameters};
use crate::result::{Cell, Results};
use crate::stats::{self, Interval, Paired};

/// Cost of encryption for one subject.
#[derive(Debug, Serialize)]
pub(super) struct Encryption {
    #[serde(flatten)]
    pub(super) summary: EncryptionSummary,
    /// Statistics by cell of the summary.
    pub(super) details: Vec<Overhead>,
    /// Cells shown to be within the limit.
    pub(super) within: usize,
    /// Costs in all other metrics than latency.
    pub(super) costs: Vec<Cost>,
}

/// Cost of encryption for one subject, as `--json` prints it.
#[derive(Debug, Serialize)]
pub(super) struct EncryptionSummary {
    pub(super) plain: String,
    pub(super) secure: String,
    pub(super) cells: Vec<OverheadSummary>,
}

/// Statistics of the time that encryption adds to the median latency of one cell.
#[derive(Debug, Serialize)]
pub(super) struct Overhead {
    /// Index of the cell in the results.
    pub(super) index: usize,
    /// The paired t-test; p of the equivalence tests is at shares of the plain mean.
    #[serde(flatten)]
    against: Comparison,
    /// Pairs it would take for an interval of plus and minus 1 %.
    pairs_for_percent: Option<usize>,
    rounds: usize,
}

/// Time that encryption adds to the median latency of one cell, as `--json` prints it.
#[derive(Debug, Serialize)]
pub(super) struct OverheadSummary {
    cell: Value,
    pub(super) plain_us: f64,
    secure_us: f64,
    /// Median of the differences in µs.
    pub(super) added_us: f64,
    /// 95 % interval of the added time: of the median from six rounds on, else of the mean.
    pub(super) added_us_interval: Option<Interval>,
    /// Median of the ratios, less 1.
    pub(super) added_percent: f64,
    /// Limit of the added time: 5 % or 2 µs, the larger of both.
    pub(super) limit_us: f64,
    /// `None` where it is not shown either way.
    pub(super) within_limit: Option<bool>,
}

/// Another metric of an encrypted subject against its plain twin.
#[derive(Debug, Serialize)]
pub(super) struct Cost {
    /// Index of the cell in the results.
    index: usize,
    title: String,
    unit: String,
    plain: Option<f64>,
    secure: Option<f64>,
    against: Comparison,
    tone: Tone,
}

impl Encryption {
    pub(super) fn of(
        results: &Results,
        measures: &[Measure],
        (plain, secure): (usize, usize),
    ) -> Self {
        let indexed = || results.cells.iter().enumerate();
        let cells = indexed().filter_map(|(index, cell)| {
            Overhead::of(index, cell, &cell.pairs(JUDGED, plain, secure))
        });
        let (cells, details): (Vec<OverheadSummary>, Vec<Overhead>) = cells.unzip();
        let others = measures.iter().filter(|measure| measure.name != JUDGED);
        let costs = others.flat_map(|measure| {
            indexed().filter_map(move |(index, cell)| {
                let pairs = cell.pairs(&measure.name, plain, secure);
                let (against, tone) = measure.compare(&pairs);
                let (plain, secure): (Vec<f64>, Vec<f64>) = pairs.into_iter().unzip();
                against.verdict.is_some().then(|| Cost {
                    index,
                    title: measure.title.clone(),
                    unit: measure.unit.clone(),
                    plain: stats::median(&plain),
                    secure: stats::median(&secure),
                    against,
                    tone,
                })
            })
        });
        let is_within = |cell: &&OverheadSummary| cell.within_limit == Some(true);
        let name = |index: usize| results.subjects[index].name.clone();
        Self {
            within: cells.iter().filter(is_within).count(),
            summary: EncryptionSummary {
                plain: name(plain),
                secure: name(secure),
                cells,
            },
            details,
            costs: costs.collect(),
        }
    }
}

impl Overhead {
    fn of(index: usize, cell: &Cell, pairs: &[(f64, f64)]) -> Option<(OverheadSummary, Self)> {
        let (first, second): (Vec<f64>, Vec<f64>) = pairs.iter().copied().unzip();
        let added: Vec<f64> = pairs.iter().map(|(plain, secure)| secure - plain).collect();
        let plain = stats::median(&first)?;
        let mean = stats::mean(&first)?;
        let paired = Paired::of(pairs);
        let interval = stats::median_interval(&added).or_else(|| Some(paired?.interval));
        let limit = (0.05 * plain).max(2.0);
        let within = |share: f64| Some(paired?.equivalence(-share * mean, share * mean));
        let summary = OverheadSummary {
            cell: parameters(cell),
            plain_us: plain,
            secure_us: stats::median(&second)?,
            added_us: stats::median(&added)?,
            added_us_interval: interval,
            added_percent: (stats::median_ratio(pairs)? - 1.0) * 100.0,
            limit_us: limit,
            within_limit: match interval {
                Some([_, high]) if high <= limit => Some(true),
                Some([low, _]) if low > limit => Some(false),
                _ => None,
            },
        };
        let details = Self {
            index,
            against: Comparison {
                tost_1_percent_p: within(0.01),
                tost_5_percent_p: within(0.05),
                ..Comparison::of(pairs, paired)
            },
            pairs_for_percent: paired.and_then(|paired| paired.pairs_needed(mean * 0.01)),
            rounds: pairs.len(),
        };
        Some((summary, details))
    }
}

/// Finds the plain subject that each encrypted one belongs to: the one without the word `secure`, or
/// with the longest name that the encrypted one's name begins with (`raw:tcp`, `raw:tcp-aesgcm`).
pub(super) fn twins(results: &Results) -> Vec<(usize, usize)> {
    let subjects = || results.subjects.iter().enumerate();
    let stem = |name: &str| {
        let words = name.split_whitespace();
        let words = words.filter(|word| !word.eq_ignore_ascii_case("secure"));
        words.collect::<Vec<_>>().join(" ")
    };
    let separates = |rest: &str| rest.starts_with([' ', '-', '+', '/', ':', ',', '(']);
    let belongs = |secure: &str, plain: &str| {
        stem(secure) == plain || secure.strip_prefix(plain).is_some_and(separates)
    };
    let secure = subjects().filter(|(_, subject)| subject.secure);
    secure
        .filter_map(|(index, secure)| {
            let (twin, _) = subjects()
                .filter(|(_, plain)| !plain.secure && belongs(&secure.name, &plain.name))
                .max_by_key(|(_, plain)| plain.name.len())?;
            Some((twin, index))
        })
        .collect()
}

/// The metric that encryption is judged by.
pub(super) const JUDGED: &str = "latency_p50_us";
