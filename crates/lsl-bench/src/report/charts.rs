//! Draws charts as SVG with plotters: rows of bars or of intervals, and curves. Knows nothing of metrics.

use lsl_cli::failure::{Failure, Outcome};
use lsl_cli::ui::text::printable;
use plotters::coord::Shift;
use plotters::element::DashedPathElement;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::axis::{Axis, range};
use crate::stats::Interval;

type Root<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Plot<'a> = DrawingArea<SVGBackend<'a>, Cartesian2d<Axis, Axis>>;
type Error = DrawingAreaErrorKind<std::io::Error>;
type Pixel = (i32, i32);

/// Colour of a subject; encrypted ones are hollow and dashed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Style {
    colour: RGBColor,
    is_hollow: bool,
}

impl Style {
    pub(super) fn new(colour: usize, is_hollow: bool) -> Self {
        let colour = COLOURS[colour % COLOURS.len()];
        Self { colour, is_hollow }
    }

    pub(super) fn is_hollow(self) -> bool {
        self.is_hollow
    }

    fn line(self, root: &Root<'_>, points: Vec<Pixel>) -> Result<(), Error> {
        let style = self.colour.stroke_width(2);
        if self.is_hollow {
            root.draw(&DashedPathElement::new(points, 7, 4, style))
        } else {
            root.draw(&PathElement::new(points, style))
        }
    }

    fn dot(self, root: &Root<'_>, at: Pixel) -> Result<(), Error> {
        let inside = if self.is_hollow { WHITE } else { self.colour };
        root.draw(&Circle::new(at, 4, inside.filled()))?;
        root.draw(&Circle::new(at, 4, self.colour.stroke_width(2)))
    }
}

/// Text above a chart: title, and a line under it.
pub(super) type Frame<'a> = [&'a str; 2];

/// A bar or an interval, between its name and a note.
#[derive(Debug)]
pub(super) struct ChartRow {
    pub(super) name: String,
    pub(super) style: Style,
    pub(super) value: f64,
    pub(super) interval: Option<Interval>,
    pub(super) note: String,
    /// Limit of the value, drawn as a mark.
    pub(super) limit: Option<f64>,
}

/// A line through points, with a style and a name.
#[derive(Debug)]
pub(super) struct Curve {
    pub(super) name: String,
    pub(super) style: Style,
    pub(super) points: Vec<(f64, f64)>,
    /// One for each point; points are marked where there are any.
    pub(super) intervals: Vec<Interval>,
}

/// Draws groups of rows under their labels: bars from zero, or intervals about a neutral value.
pub(super) fn rows(
    frame: Frame<'_>,
    unit: &str,
    groups: &[(String, Vec<ChartRow>)],
    neutral: Option<f64>,
) -> Outcome<String> {
    let all: Vec<&ChartRow> = groups.iter().flat_map(|(_, rows)| rows).collect();
    let highs = all
        .iter()
        .flat_map(|row| [row.value, row.interval.map_or(0.0, |ends| ends[1])]);
    let x = match neutral {
        Some(neutral) => {
            let values = all.iter().flat_map(|row| [Some(row.value), row.limit]);
            let values: Vec<f64> = values.flatten().collect();
            let intervals: Vec<Interval> = all.iter().filter_map(|row| row.interval).collect();
            Axis::about(unit, neutral, &values, &intervals)
        }
        None => Axis::linear(unit, [0.0, range(highs)[1].max(f64::MIN_POSITIVE)]),
    };
    let widest = |text: fn(&ChartRow) -> &str| all.iter().map(|row| width(text(row), LETTER)).max();
    let names = widest(|row| &row.name).unwrap_or(0).min(WIDTH / 4) + 14;
    let notes = widest(|row| &row.note).unwrap_or(0).min(WIDTH / 3) + 14;
    let lines = groups.len() + all.len();
    let height = LINE * i32::try_from(lines).unwrap_or(0);
    sheet(frame, TOP + height + BOTTOM, |root| {
        let plot = plot(root, [names, TOP, notes], &x, None)?;
        let at = |value: f64| plot.map_coordinate(&(value, 0.0)).0;
        let [left, right] = x.ends.map(at);
        let mut top = TOP;
        for (label, rows) in groups {
            let label = fit(label, WIDTH - 16, LETTER);
            root.draw_text(
                &label,
                &text(14, FontStyle::Bold, HPos::Left),
                (8, top + 12),
            )?;
            top += LINE;
            let first = top;
            for row in rows {
                let (middle, colour) = (top + LINE / 2, row.style.colour);
                let name = fit(&row.name, names - 12, LETTER);
                let [after, before] =
                    [HPos::Left, HPos::Right].map(|side| text(14, FontStyle::Normal, side));
                root.draw_text(&name, &before, (left - 6, middle))?;
                root.draw_text(&row.note, &after, (right + 8, middle))?;
                if let Some(limit) = row.limit {
                    let area = [(at(0.0), top + 1), (at(limit), top + LINE - 1)];
                    root.draw(&Rectangle::new(area, ALLOWED.filled()))?;
                }
                if neutral.is_none() {
                    let bar = [(left, top + 3), (at(row.value), top + LINE - 3)];
                    let inside = colour.mix(if row.style.is_hollow { 0.3 } else { 1.0 });
                    root.draw(&Rectangle::new(bar, inside.filled()))?;
                    root.draw(&Rectangle::new(bar, colour.stroke_width(1)))?;
                }
                if let Some(ends) = row.interval {
                    let line = ends.map(|end| (at(end), middle)).to_vec();
                    let style = if neutral.is_none() {
                        INK.stroke_width(1)
                    } else {
                        colour.stroke_width(2)
                    };
                    root.draw(&PathElement::new(line, style))?;
                    for (is_beyond, edge, tip) in [
                        (ends[0] < x.ends[0], left, left - 5),
                        (ends[1] > x.ends[1], right, right + 5),
                    ] {
                        if is_beyond && neutral.is_some() {
                            let arrow = vec![(tip, middle), (edge, middle - 4), (edge, middle + 4)];
                            root.draw(&Polygon::new(arrow, colour.filled()))?;
                        }
                    }
                }
                if neutral.is_some() {
                    row.style.dot(root, (at(row.value), middle))?;
                }
                top += LINE;
            }
            if let Some(neutral) = neutral {
                let line = [(at(neutral), first), (at(neutral), top)];
                root.draw(&DashedPathElement::new(line, 3, 3, INK.stroke_width(1)))?;
            }
        }
        Ok(())
    })
}

/// Draws curves under their legend.
pub(super) fn curves(frame: Frame<'_>, x: &Axis, y: &Axis, curves: &[Curve]) -> Outcome<String> {
    let (mut places, mut next) = (Vec::new(), (8, TOP));
    for curve in curves {
        let room = 44 + width(&fit(&curve.name, WIDTH / 2, LETTER), LETTER);
        if next.0 > 8 && next.0 + room > WIDTH {
            next = (8, next.1 + LINE);
        }
        places.push(next);
        next.0 += room;
    }
    let top = next.1 + LINE + 8;
    sheet(frame, top + HEIGHT + BOTTOM, |root| {
        let plot = plot(root, [8, top, 20], x, Some(y))?;
        for (number, (curve, (left, top))) in (0..).zip(curves.iter().zip(places)) {
            // Side by side, so that intervals at the same place can be told apart.
            let count = i32::try_from(curves.len()).unwrap_or(0);
            let aside = if curve.intervals.is_empty() {
                0
            } else {
                3 * number - 3 * (count - 1) / 2
            };
            let at = |point: (f64, f64)| {
                let (across, down) = plot.map_coordinate(&point);
                (across + aside, down)
            };
            let points: Vec<Pixel> = curve.points.iter().map(|point| at(*point)).collect();
            curve.style.line(root, points.clone())?;
            for ((point, (across, _)), ends) in
                points.into_iter().zip(&curve.points).zip(&curve.intervals)
            {
                let line = ends.map(|end| at((*across, end))).to_vec();
                root.draw(&PathElement::new(line, curve.style.colour.stroke_width(1)))?;
                curve.style.dot(root, point)?;
            }
            let middle = top + LINE / 2;
            curve
                .style
                .line(root, vec![(left, middle), (left + 25, middle)])?;
            let name = fit(&curve.name, WIDTH / 2, LETTER);
            root.draw_text(
                &name,
                &text(14, FontStyle::Normal, HPos::Left),
                (left + 30, middle),
            )?;
        }
        Ok(())
    })
}

/// A chart of this height with what stands above it.
fn sheet(
    [title, remark]: Frame<'_>,
    height: i32,
    draw: impl FnOnce(&Root<'_>) -> Result<(), Error>,
) -> Outcome<String> {
    let (title, remark) = (
        fit(title, WIDTH - 16, 8),
        fit(remark, WIDTH - 16, LETTER - 1),
    );
    let mut svg = String::new();
    let size = (WIDTH.unsigned_abs(), height.unsigned_abs());
    let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
    let drawn = root
        .fill(&WHITE)
        .and_then(|()| root.draw_text(&title, &text(17, FontStyle::Bold, HPos::Left), (8, 14)))
        .and_then(|()| root.draw_text(&remark, &text(13, FontStyle::Normal, HPos::Left), (8, 33)))
        .and_then(|()| draw(&root))
        .and_then(|()| root.present());
    drop(root);
    drawn.map_err(|error| Failure::Runtime(format!("cannot draw: {error}")))?;
    Ok(svg)
}

/// Draws the axes inside these margins, and gives the area between them.
fn plot<'a>(
    root: &Root<'a>,
    [left, top, right]: [i32; 3],
    x: &Axis,
    y: Option<&Axis>,
) -> Result<Plot<'a>, Error> {
    let labels = if y.is_some() { LABELS } else { 0 };
    let hidden = Axis::linear("", [0.0, 1.0]);
    let mut chart = ChartBuilder::on(root)
        .margin_left(left)
        .margin_top(top)
        .margin_right(right)
        .x_label_area_size(BOTTOM)
        .y_label_area_size(labels)
        .build_cartesian_2d(
            x.on(WIDTH - left - right - labels, |label| width(label, LETTER)),
            y.unwrap_or(&hidden).clone(),
        )?;
    let mut mesh = chart.configure_mesh();
    mesh.label_style(text(13, FontStyle::Normal, HPos::Center))
        .bold_line_style(GRID)
        .axis_style(GRID);
    mesh.x_desc(&x.title).set_all_tick_mark_size(4);
    match y {
        Some(y) => mesh.y_desc(&y.title).draw()?,
        None => mesh.disable_y_mesh().disable_y_axis().draw()?,
    }
    Ok(chart.plotting_area().clone())
}

fn text(size: i32, weight: FontStyle, side: HPos) -> TextStyle<'static> {
    let font = ("sans-serif", size, weight).into_font();
    font.color(&INK).pos(Pos::new(side, VPos::Center))
}

/// Estimates the width of a text in pixels.
fn width(text: &str, letter: i32) -> i32 {
    letter * i32::try_from(text.chars().count()).unwrap_or(WIDTH)
}

/// Shortens a text that would not fit.
fn fit(text: &str, room: i32, letter: i32) -> String {
    let text = printable(text);
    if width(&text, letter) <= room {
        return text;
    }
    let kept = usize::try_from(room / letter)
        .unwrap_or(0)
        .saturating_sub(1);
    text.chars().take(kept).chain(['…']).collect()
}

/// Width of a chart in pixels: text stays legible when a phone shows it in full.
const WIDTH: i32 = 480;
/// Heights of title and remark, of a line of text, of the curves, and of what is below an axis.
const TOP: i32 = 46;
const LINE: i32 = 20;
const HEIGHT: i32 = 250;
const BOTTOM: i32 = 44;
/// Width of the labels left of an axis.
const LABELS: i32 = 62;
/// Width of a letter of ordinary text, on average.
const LETTER: i32 = 7;

const INK: RGBColor = RGBColor(0x1c, 0x1c, 0x1a);
const GRID: RGBColor = RGBColor(0xd5, 0xd4, 0xce);
const ALLOWED: RGBColor = RGBColor(0xdc, 0xeb, 0xde);
/// The first is for the baseline. Told apart by people who see fewer colours too.
const COLOURS: [RGBColor; 8] = [
    RGBColor(0x6b, 0x72, 0x80),
    RGBColor(0x2a, 0x78, 0xd6),
    RGBColor(0xe0, 0x62, 0x2a),
    RGBColor(0x16, 0x9a, 0x6c),
    RGBColor(0x8b, 0x5f, 0xc7),
    RGBColor(0xb8, 0x86, 0x0b),
    RGBColor(0xd0, 0x47, 0x8a),
    RGBColor(0x0e, 0x8f, 0xa8),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_cut() {
        assert_eq!(fit("short", 100, 5), "short");
        assert_eq!(fit("much too long", 30, 5), "much …");
    }
}
