//! What others published, by table, row and column, and what of ours is held against it.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use crate::result::Results;

/// All pages.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Published {
    pub(super) pages: Vec<Page>,
}

impl Published {
    pub(super) fn parts(&self) -> impl Iterator<Item = (&Page, &Part)> {
        let pages = self.pages.iter();
        pages.flat_map(|page| page.parts.iter().map(move |part| (page, part)))
    }
}

/// A page that somebody published.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Page {
    /// Name of our page.
    pub(super) name: String,
    pub(super) parts: Vec<Part>,
    pub(super) tables: Vec<Table>,
    #[serde(default)]
    pub(super) bars: Vec<Bar>,
}

/// A run of `lsl bench`, whose result is kept.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Part {
    pub(super) name: String,
    pub(super) minutes: u32,
    /// Words behind `lsl bench`; `{lib}` is our C library beside the program.
    pub(super) args: Vec<String>,
    /// Between two namespaces with such a wire; the words are those behind `lsl bench net client HOST` then.
    #[serde(default)]
    pub(super) wire: Option<String>,
    /// Program to run, from the root of the repository, and how it is built, if not this one.
    #[serde(default)]
    pub(super) program: Option<[String; 2]>,
}

impl Part {
    /// Whether a result, as slim as it is kept, was made by its words.
    pub(super) fn is_of(&self, results: &Results) -> bool {
        let words = self.args.iter().map(|word| match word.as_str() {
            "{lib}" => "liblsl.so",
            word => word,
        });
        let found = results.args.iter().skip(1).map(String::as_str);
        self.wire.is_none() && words.eq(found)
    }
}

/// A table of theirs.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Table {
    pub(super) name: String,
    pub(super) columns: Vec<Pick>,
    pub(super) rows: Vec<Row>,
    /// Why something is not there yet, and what would measure it.
    #[serde(default)]
    pub(super) open: Option<String>,
    #[serde(default)]
    pub(super) figure: Option<Figure>,
}

/// Curves of rows along the columns, where they say more than the table.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Figure {
    /// Its file below `images/`, without `.svg`.
    pub(super) file: String,
    pub(super) title: String,
    /// Parameter of the columns.
    pub(super) along: String,
    pub(super) unit: String,
    /// Rows that it has; all, if none is named.
    #[serde(default)]
    pub(super) rows: Vec<String>,
}

/// A row of theirs, a value for each column, and ours.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Row {
    pub(super) name: String,
    pub(super) theirs: Vec<Value>,
    /// Drawn dashed, in the colour of the curve before.
    #[serde(default)]
    pub(super) encrypted: bool,
    #[serde(default)]
    pub(super) ours: Vec<Pick>,
}

/// A number that test 13, 14 or 15 of the specification sets.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Bar {
    pub(super) ours: Pick,
    #[serde(default)]
    pub(super) least: Option<f64>,
    #[serde(default)]
    pub(super) most: Option<f64>,
    /// Whether the project says that it is met, which then has to be so.
    pub(super) claimed: bool,
}

/// Which of our measurements. A row says one half, its columns the other.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Pick {
    pub(super) name: String,
    /// Whose it is, if not ours.
    #[serde(default)]
    pub(super) of: Option<String>,
    #[serde(default)]
    pub(super) encrypted: bool,
    #[serde(default)]
    pub(super) part: Option<String>,
    #[serde(default)]
    pub(super) subject: Option<String>,
    /// The subject that differences and ratios are taken to.
    #[serde(default)]
    pub(super) to: Option<String>,
    #[serde(default)]
    pub(super) metric: Option<String>,
    /// Parameters of the cell; `bytes` of 2, for example.
    #[serde(default, rename = "where")]
    pub(super) cell: BTreeMap<String, Value>,
    #[serde(default)]
    pub(super) show: Option<Show>,
    /// Factor of a unit.
    #[serde(default)]
    pub(super) times: Option<f64>,
}

/// What is shown of the rounds of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Show {
    /// Median with its 95 % interval.
    Median,
    /// Mean and standard deviation.
    Mean,
    /// Largest of all rounds.
    Largest,
    /// Median of the reciprocals.
    Inverse,
    /// Median of the ratios in each round, with its interval.
    Ratio,
    /// Mean of the differences in each round.
    Added,
    /// The same in percent of the other's mean.
    AddedPercent,
    /// 95 % interval of that mean.
    Interval,
    /// Student's t of the pairs, and its chance.
    T,
    P,
    /// Cohen's d, by the pooled deviation and by that of the differences.
    D,
    DZ,
    /// Chance of the equivalence test at 1 and 5 % of the other's mean.
    Tost1,
    Tost5,
    /// Median of the differences, by the larger of 2 µs and 5 % of the other's median.
    Excess,
    /// Samples that came, in percent.
    Delivered,
    /// Whether all rounds have it.
    Yes,
}

impl Pick {
    /// Names whose it is, and the machine if it is not that of the project.
    pub(super) fn label(&self, machine: &str) -> String {
        let of = self.of.as_deref().unwrap_or("ours");
        format!("{of}: {}", on(&self.name, machine))
    }

    /// Fills in what this does not say, from a column.
    pub(super) fn with(&self, column: &Self) -> Self {
        let mut cell = self.cell.clone();
        cell.extend(column.cell.clone());
        let or =
            |own: &Option<String>, other: &Option<String>| own.clone().or_else(|| other.clone());
        Self {
            name: self.name.clone(),
            of: self.of.clone(),
            encrypted: self.encrypted,
            part: or(&self.part, &column.part),
            subject: or(&self.subject, &column.subject),
            to: or(&self.to, &column.to),
            metric: or(&self.metric, &column.metric),
            cell,
            show: self.show.or(column.show),
            times: match (self.times, column.times) {
                (Some(own), Some(other)) => Some(own * other),
                (own, other) => own.or(other),
            },
        }
    }
}

/// A name with the machine, if it is not that of the project.
pub(super) fn on(name: &str, machine: &str) -> String {
    match machine {
        "" => name.to_owned(),
        machine => format!("{name}, on {machine}"),
    }
}
