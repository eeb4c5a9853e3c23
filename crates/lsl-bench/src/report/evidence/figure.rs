//! Curves of a table, theirs and ours along its columns.

use lsl_cli::failure::Outcome;
use serde_json::Value;

use super::super::axis::Axis;
use super::super::charts::{self, Curve, Style};
use super::Stored;
use super::cell;
use super::published::{Figure, Page, Pick, Show, Table};

/// Draws it; `None` as long as there is nothing of ours.
pub(super) fn draw(
    page: &Page,
    table: &Table,
    figure: &Figure,
    stored: &Stored,
) -> Outcome<Option<String>> {
    let places = table.columns.iter();
    let places = places.map(|it| it.cell.get(&figure.along).and_then(Value::as_f64));
    let places: Vec<Option<f64>> = places.collect();
    let mut drawing = Drawing::default();
    let is_wanted = |name: &String| figure.rows.is_empty() || figure.rows.contains(name);
    let mut has_ours = false;
    for row in table.rows.iter().filter(|row| is_wanted(&row.name)) {
        let theirs = places.iter().zip(&row.theirs);
        let theirs = theirs.filter_map(|(at, value)| Some(((*at)?, value.as_f64()?)));
        drawing.add(row.name.clone(), row.encrypted, theirs.collect());
        for ours in &row.ours {
            if !matches!(ours.show, None | Some(Show::Mean | Show::Median)) {
                continue;
            }
            let point = |(at, column): (&Option<f64>, &Pick)| {
                let pick = ours.with(column);
                let results = stored.of(page, pick.part.as_deref()?, "")?;
                let shown = cell::find(results, &pick).into_iter().next()?;
                Some(((*at)?, shown.value))
            };
            let points = places.iter().zip(&table.columns).filter_map(point);
            let points: Vec<_> = points.collect();
            has_ours |= !points.is_empty();
            drawing.add(ours.label(""), ours.encrypted, points);
        }
    }
    if !has_ours {
        return Ok(None);
    }
    let curves = drawing.curves;
    let dashed = if curves.iter().any(|it| it.style.is_hollow()) {
        "; dashed: encrypted"
    } else {
        ""
    };
    let remark = format!("theirs on their machines, ours on ours{dashed}");
    let points = || curves.iter().flat_map(|curve| &curve.points);
    let y = Axis::of(&figure.unit, points().map(|(_, value)| *value));
    let places: Vec<f64> = places.into_iter().flatten().collect();
    let x = Axis::at(&figure.along, &places);
    charts::curves([&figure.title, &remark], &x, &y, &curves).map(Some)
}

#[derive(Default)]
struct Drawing {
    curves: Vec<Curve>,
    colour: usize,
}

impl Drawing {
    fn add(&mut self, name: String, is_encrypted: bool, points: Vec<(f64, f64)>) {
        if points.is_empty() {
            return;
        }
        self.colour += usize::from(!is_encrypted);
        self.curves.push(Curve {
            name,
            style: Style::new(self.colour, is_encrypted),
            intervals: points.iter().map(|(_, value)| [*value; 2]).collect(),
            points,
        });
    }
}
