//! The shapes of charts, over plain numbers: lines along a parameter, bars from zero, intervals, and
//! cumulative distributions.

use super::figures::figure;
use super::svg::{self, Anchor, Canvas, LETTER, Look, Scale, WIDTH};
use crate::stats::Interval;

/// Name, look and points of a line.
pub(super) type Curve = (String, Look, Vec<(f64, f64)>);

/// What stands around every chart.
#[derive(Debug, Clone, Copy)]
pub(super) struct Frame<'a> {
    pub(super) title: &'a str,
    pub(super) remark: &'a str,
    /// Of the axis of values.
    pub(super) unit: &'a str,
}

/// One subject along a parameter.
#[derive(Debug)]
pub(super) struct Series {
    pub(super) name: String,
    pub(super) look: Look,
    pub(super) points: Vec<Point>,
}

/// A median with the spread of the rounds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Point {
    pub(super) x: f64,
    pub(super) y: f64,
    pub(super) spread: Interval,
}

/// A row of bars or intervals under the name of its cell.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) label: String,
    pub(super) rows: Vec<Row>,
}

#[derive(Debug)]
pub(super) struct Row {
    pub(super) name: String,
    pub(super) look: Look,
    pub(super) value: f64,
    pub(super) spread: Option<Interval>,
    /// At the right end.
    pub(super) note: String,
    /// What it must stay below.
    pub(super) limit: Option<f64>,
}

/// Medians along a parameter. From zero, or in logarithms where the values are too far apart.
pub(super) fn lines(frame: Frame<'_>, axis: &str, series: &[Series]) -> String {
    let legend: Vec<(String, Look)> = series
        .iter()
        .map(|series| (series.name.clone(), series.look))
        .collect();
    let top = 54.0 + svg::legend_height(&legend);
    let (left, right, bottom) = (56.0, WIDTH - 16.0, top + 210.0);
    let points = || series.iter().flat_map(|series| &series.points);
    let (low, high) =
        range(points().flat_map(|point| [point.spread.low, point.spread.high, point.y]));
    let logarithmic = low > 0.0 && high / low > 20.0;
    let y = if logarithmic {
        Scale::logarithmic(low, high, (bottom, top))
    } else {
        Scale::linear(low.min(0.0), high, (bottom, top))
    };
    let mut places: Vec<f64> = points().map(|point| point.x).collect();
    places.sort_by(f64::total_cmp);
    places.dedup();
    let (first, last) = range(places.iter().copied());
    let x = Scale::exact(
        first,
        last,
        first > 0.0 && last / first >= 4.0,
        (left + 14.0, right - 10.0),
    );

    let mut canvas = Canvas::new(bottom + 42.0, frame.title, frame.remark);
    canvas.legend(42.0, &legend);
    horizontal_grid(&mut canvas, &y, (left, right));
    let scale = if logarithmic { ", log scale" } else { "" };
    canvas.upright(
        11.0,
        f64::midpoint(top, bottom),
        &format!("{}{scale}", frame.unit),
    );
    let mut free = 0.0;
    for place in places {
        let at = x.at(place);
        canvas.line((at, bottom), (at, bottom + 4.0), "axis");
        let text = figure(place);
        let half = svg::text_width(&text, LETTER) / 2.0;
        if at - half > free {
            canvas.text(at, bottom + 17.0, Anchor::Middle, "muted", &text);
            free = at + half + 4.0;
        }
    }
    canvas.text(
        f64::midpoint(left, right),
        bottom + 35.0,
        Anchor::Middle,
        "muted",
        axis,
    );
    let count = series.len() as f64;
    for (index, series) in series.iter().enumerate() {
        // Side by side, so that whiskers at the same place can be told apart.
        let shift = (index as f64 - (count - 1.0) / 2.0) * 3.0;
        let place = |point: &Point| (x.at(point.x) + shift, y.at(point.y));
        for point in &series.points {
            let (at, _) = place(point);
            let ends = (y.at(point.spread.low), y.at(point.spread.high));
            canvas.whisker((at, ends.0), (at, ends.1), series.look);
        }
        let mut curve: Vec<(f64, f64)> = series.points.iter().map(place).collect();
        curve.sort_by(|(one, _), (other, _)| one.total_cmp(other));
        canvas.curve(&curve, series.look);
        for (x, y) in curve {
            canvas.dot(x, y, series.look);
        }
    }
    canvas.finish()
}

/// Bars, from zero.
pub(super) fn bars(frame: Frame<'_>, groups: &[Group]) -> String {
    let rows = || groups.iter().flat_map(|group| &group.rows);
    let right = right_edge(rows());
    let (_, high) = range(rows().flat_map(|row| [row.value, row.spread.map_or(0.0, |s| s.high)]));
    let scale = Scale::linear(0.0, high.max(f64::MIN_POSITIVE), (NAMES, right));
    rows_chart(frame, groups, &scale, Some(0.0), |canvas, row, y| {
        canvas.bar(
            NAMES,
            y + 2.0,
            scale.at(row.value) - NAMES,
            ROW - 6.0,
            row.look,
        );
        if let Some(spread) = row.spread {
            let middle = y + ROW / 2.0 - 1.0;
            canvas.line(
                (scale.at(spread.low), middle),
                (scale.at(spread.high), middle),
                "spread",
            );
        }
    })
}

/// Points with their intervals about a neutral value: ratios about 1, differences about 0.
pub(super) fn intervals(frame: Frame<'_>, groups: &[Group], neutral: f64) -> String {
    let rows = || groups.iter().flat_map(|group| &group.rows);
    let right = right_edge(rows());
    let limits = rows().filter_map(|row| row.limit);
    let (low, high) = range(rows().map(|row| row.value).chain(limits).chain([neutral]));
    let ends = || {
        rows()
            .filter_map(|row| row.spread)
            .flat_map(|spread| [spread.low, spread.high])
    };
    let (outer_low, outer_high) = range(ends().chain([low, high]));
    // An interval that says nothing must not squeeze the others: it gets an arrow at the edge.
    let ratios = (neutral - 1.0).abs() < 1e-9;
    let (low, high) = if ratios {
        (outer_low.max(low / 2.0), outer_high.min(high * 2.0))
    } else {
        let room = (high - low).max(1e-9);
        (outer_low.max(low - room), outer_high.min(high + room))
    };
    let logarithmic = ratios && low > 0.0 && high / low > 3.0;
    let scale = if logarithmic {
        Scale::logarithmic(low, high, (NAMES, right))
    } else {
        Scale::linear(low, high, (NAMES, right))
    };
    let unit = if logarithmic {
        format!("{}, log scale", frame.unit)
    } else {
        frame.unit.into()
    };
    let frame = Frame {
        unit: &unit,
        ..frame
    };
    rows_chart(frame, groups, &scale, Some(neutral), |canvas, row, y| {
        let middle = y + ROW / 2.0 - 1.0;
        if let Some(limit) = row.limit {
            canvas.area(scale.at(0.0), y, scale.at(limit) - scale.at(0.0), ROW - 2.0);
            canvas.line(
                (scale.at(limit), y),
                (scale.at(limit), y + ROW - 2.0),
                "axis",
            );
        }
        if let Some(spread) = row.spread {
            canvas.whisker(
                (scale.at(spread.low), middle),
                (scale.at(spread.high), middle),
                row.look,
            );
            if !scale.holds(spread.low) {
                canvas.arrow(NAMES, middle, -1.0, row.look);
            }
            if !scale.holds(spread.high) {
                canvas.arrow(right, middle, 1.0, row.look);
            }
        }
        canvas.dot(scale.at(row.value), middle, row.look);
    })
}

/// Shares of samples that came within a time. `points` are (time, share) in rising order.
pub(super) fn distribution(frame: Frame<'_>, curves: &[Curve]) -> String {
    let legend: Vec<(String, Look)> = curves
        .iter()
        .map(|(name, look, _)| (name.clone(), *look))
        .collect();
    let top = 54.0 + svg::legend_height(&legend);
    let (left, right, bottom) = (48.0, WIDTH - 16.0, top + 210.0);
    let (low, high) = range(
        curves
            .iter()
            .flat_map(|(_, _, points)| points)
            .map(|(time, _)| *time),
    );
    let x = Scale::logarithmic(low, high, (left, right));
    let y = Scale::exact(0.0, 1.0, false, (bottom, top));
    let mut canvas = Canvas::new(bottom + 42.0, frame.title, frame.remark);
    canvas.legend(42.0, &legend);
    for share in [0.0, 0.25, 0.5, 0.75, 0.95, 1.0] {
        let at = y.at(share);
        canvas.line(
            (left, at),
            (right, at),
            if share == 0.0 { "axis" } else { "grid" },
        );
        let text = format!("{:.0} %", share * 100.0);
        // 95 % and 100 % are closer than a line of text.
        let down = if (share - 0.95).abs() < 1e-9 {
            8.0
        } else {
            4.0
        };
        canvas.text(left - 6.0, at + down, Anchor::End, "muted", &text);
    }
    vertical_ticks(&mut canvas, &x, top, bottom);
    let title = format!("{}, log scale", frame.unit);
    canvas.text(
        f64::midpoint(left, right),
        bottom + 35.0,
        Anchor::Middle,
        "muted",
        &title,
    );
    for (_, look, points) in curves {
        let mut path: Vec<(f64, f64)> = Vec::new();
        for (time, share) in points {
            path.push((x.at(*time), y.at(*share)));
        }
        canvas.curve(&path, *look);
    }
    canvas.finish()
}

/// What bars and intervals have in common: names left, notes right, an axis below.
fn rows_chart(
    frame: Frame<'_>,
    groups: &[Group],
    scale: &Scale,
    neutral: Option<f64>,
    mut draw: impl FnMut(&mut Canvas, &Row, f64),
) -> String {
    let top = 44.0;
    let height = |group: &Group| LABEL + group.rows.len() as f64 * ROW + 6.0;
    let bottom = top + groups.iter().map(height).sum::<f64>();
    let mut canvas = Canvas::new(bottom + 40.0, frame.title, frame.remark);
    vertical_ticks(&mut canvas, scale, top, bottom);
    let right = right_edge(groups.iter().flat_map(|group| &group.rows));
    canvas.text(
        f64::midpoint(NAMES, right),
        bottom + 35.0,
        Anchor::Middle,
        "muted",
        frame.unit,
    );
    let mut y = top;
    let mut marks = Vec::new();
    for group in groups {
        canvas.text(
            0.0,
            y + 13.0,
            Anchor::Start,
            "strong",
            &svg::fit(&group.label, WIDTH, 7.0),
        );
        y += LABEL;
        marks.push((y, y + group.rows.len() as f64 * ROW));
        for row in &group.rows {
            let name = svg::fit(&row.name, NAMES - 8.0, LETTER);
            canvas.text(NAMES - 8.0, y + 13.0, Anchor::End, "muted", &name);
            draw(&mut canvas, row, y);
            canvas.text(WIDTH, y + 13.0, Anchor::End, "", &row.note);
            y += ROW;
        }
        y += 6.0;
    }
    if let Some(neutral) = neutral.filter(|neutral| scale.holds(*neutral)) {
        for (from, to) in marks {
            canvas.line(
                (scale.at(neutral), from - 2.0),
                (scale.at(neutral), to),
                "mark",
            );
        }
    }
    canvas.finish()
}

fn horizontal_grid(canvas: &mut Canvas, scale: &Scale, (left, right): (f64, f64)) {
    for (index, tick) in scale.ticks().into_iter().enumerate() {
        let at = scale.at(tick);
        canvas.line(
            (left, at),
            (right, at),
            if index == 0 { "axis" } else { "grid" },
        );
        canvas.text(left - 6.0, at + 4.0, Anchor::End, "muted", &figure(tick));
    }
}

fn vertical_ticks(canvas: &mut Canvas, scale: &Scale, top: f64, bottom: f64) {
    let mut free = f64::NEG_INFINITY;
    for tick in scale.ticks() {
        let at = scale.at(tick);
        canvas.line((at, top), (at, bottom), "grid");
        let text = figure(tick);
        let half = svg::text_width(&text, LETTER) / 2.0;
        if at - half > free {
            canvas.text(at, bottom + 17.0, Anchor::Middle, "muted", &text);
            free = at + half + 4.0;
        }
    }
}

fn right_edge<'a>(rows: impl Iterator<Item = &'a Row>) -> f64 {
    let widest = rows
        .map(|row| svg::text_width(&row.note, LETTER))
        .fold(0.0, f64::max);
    (WIDTH - widest - 12.0).max(NAMES + 100.0)
}

fn range(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values
        .filter(|value| value.is_finite())
        .fold(None, |range: Option<(f64, f64)>, value| {
            let (low, high) = range.unwrap_or((value, value));
            Some((low.min(value), high.max(value)))
        })
        .unwrap_or((0.0, 1.0))
}

/// Room for the names of subjects at the left.
const NAMES: f64 = 116.0;
/// Height of a row and of the label above a group.
const ROW: f64 = 19.0;
const LABEL: f64 = 20.0;
