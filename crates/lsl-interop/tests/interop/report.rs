//! What a run prints at its end: the matrix of routes against topics, with the number of cells.

use std::collections::BTreeMap;
use std::fmt::{self, Display};

use crate::cell::{Place, Topic};

/// Every cell that began so far.
#[derive(Default)]
pub(crate) struct Report {
    /// In the order in which cells are listed, since they run in any order.
    rows: Vec<String>,
    fields: BTreeMap<Place, Tally>,
}

/// How the cells of one field of the matrix went.
#[derive(Clone, Copy, Default)]
struct Tally {
    begun: usize,
    passed: usize,
}

impl Report {
    pub(crate) fn list(&mut self, place: &Place) {
        if !self.rows.contains(&place.row) {
            self.rows.push(place.row.clone());
        }
    }

    /// The cell will not begin.
    pub(crate) fn ignored(&mut self, place: &Place) {
        self.tally(place);
    }

    /// From here on the cell counts as failed until it has `passed`, even if it panics.
    pub(crate) fn begun(&mut self, place: &Place) {
        self.tally(place).begun += 1;
    }

    pub(crate) fn passed(&mut self, place: &Place) {
        self.tally(place).passed += 1;
    }

    fn tally(&mut self, place: &Place) -> &mut Tally {
        self.fields.entry(place.clone()).or_default()
    }
}

impl Display for Report {
    /// Rows without any cell are left out: a filter may ask for few.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.rows.iter().map(String::len).max().unwrap_or_default();
        write!(f, "{:width$}", "cells passed")?;
        for topic in Topic::ALL {
            write!(f, " {:>8}", topic.name())?;
        }
        writeln!(f)?;
        for row in &self.rows {
            if !self.fields.keys().any(|place| place.row == *row) {
                continue;
            }
            write!(f, "{row:width$}")?;
            for topic in Topic::ALL {
                let row = row.clone();
                let tally = self.fields.get(&Place { row, topic });
                let text = tally.map_or_else(|| "-".to_owned(), ToString::to_string);
                write!(f, " {text:>8}")?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

impl Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self { begun: 0, .. } => write!(f, "ignored"),
            Self { begun, passed, .. } if passed < begun => write!(f, "{passed}/{begun} !"),
            Self { passed, .. } => write!(f, "{passed}"),
        }
    }
}
