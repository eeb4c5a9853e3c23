//! Drawing: a canvas of SVG elements, and axes. Knows nothing of metrics. Written out by hand, because
//! all of it is shorter than what a chart library needs to be told to follow the reader's light or dark
//! colours.

use std::fmt::Write;

use lsl_cli::table::printable;

/// Width of every chart: text stays legible when a phone shows it in full.
pub(super) const WIDTH: f64 = 440.0;

/// An SVG under construction. Coordinates are pixels from the upper left corner.
#[derive(Debug)]
pub(super) struct Canvas {
    height: f64,
    title: String,
    body: String,
}

/// Which end of a text stands at its coordinates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// How a subject looks: encrypted ones have the colour of their plain twin, but dashed and hollow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Look {
    pub(super) colour: usize,
    pub(super) hollow: bool,
}

impl Look {
    fn class(self) -> String {
        let hollow = if self.hollow { " h" } else { "" };
        format!("c{}{hollow}", self.colour % COLOURS)
    }
}

impl Canvas {
    /// An empty chart with its title and a line under it.
    pub(super) fn new(height: f64, title: &str, remark: &str) -> Self {
        let mut canvas = Self {
            height,
            title: title.into(),
            body: String::new(),
        };
        canvas.text(0.0, 16.0, Anchor::Start, "title", &fit(title, WIDTH, 8.3));
        canvas.text(
            0.0,
            33.0,
            Anchor::Start,
            "muted",
            &fit(remark, WIDTH, LETTER),
        );
        canvas
    }

    /// The finished `<svg>`, without style.
    pub(super) fn finish(self) -> String {
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"-{EDGE} 0 {} {}\" role=\"img\" \
             aria-label=\"{}\">{}</svg>",
            coordinate(WIDTH + 2.0 * EDGE),
            coordinate(self.height),
            escape(&self.title),
            self.body
        )
    }

    pub(super) fn text(&mut self, x: f64, y: f64, anchor: Anchor, class: &str, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "",
            Anchor::Middle => " text-anchor=\"middle\"",
            Anchor::End => " text-anchor=\"end\"",
        };
        self.add(format_args!(
            "<text x=\"{}\" y=\"{}\" class=\"{class}\"{anchor}>{}</text>",
            coordinate(x),
            coordinate(y),
            escape(text)
        ));
    }

    /// A text that reads upwards, for the vertical axis.
    pub(super) fn upright(&mut self, x: f64, y: f64, text: &str) {
        let (x, y) = (coordinate(x), coordinate(y));
        self.add(format_args!(
            "<text x=\"{x}\" y=\"{y}\" class=\"muted\" text-anchor=\"middle\" \
             transform=\"rotate(-90 {x} {y})\">{}</text>",
            escape(text)
        ));
    }

    pub(super) fn line(&mut self, from: (f64, f64), to: (f64, f64), class: &str) {
        self.add(format_args!(
            "<line x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\" class=\"{class}\"/>",
            coordinate(from.0),
            coordinate(from.1),
            coordinate(to.0),
            coordinate(to.1)
        ));
    }

    /// A line in the colour of a subject, thin for a spread.
    pub(super) fn whisker(&mut self, from: (f64, f64), to: (f64, f64), look: Look) {
        self.line(from, to, &format!("w c{}", look.colour % COLOURS));
    }

    pub(super) fn curve(&mut self, points: &[(f64, f64)], look: Look) {
        let mut path = String::new();
        for (index, (x, y)) in points.iter().enumerate() {
            let letter = if index == 0 { 'M' } else { 'L' };
            let _ = write!(path, "{letter}{} {}", coordinate(*x), coordinate(*y));
        }
        self.add(format_args!(
            "<path d=\"{path}\" class=\"l {}\"/>",
            look.class()
        ));
    }

    pub(super) fn dot(&mut self, x: f64, y: f64, look: Look) {
        self.add(format_args!(
            "<circle cx=\"{}\" cy=\"{}\" r=\"4\" class=\"d {}\"/>",
            coordinate(x),
            coordinate(y),
            look.class()
        ));
    }

    pub(super) fn bar(&mut self, x: f64, y: f64, width: f64, height: f64, look: Look) {
        self.add(format_args!(
            "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" rx=\"2\" class=\"b {}\"/>",
            coordinate(x),
            coordinate(y),
            coordinate(width.max(0.5)),
            coordinate(height),
            look.class()
        ));
    }

    /// An area behind the rest.
    pub(super) fn area(&mut self, x: f64, y: f64, width: f64, height: f64) {
        self.add(format_args!(
            "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" class=\"area\"/>",
            coordinate(x),
            coordinate(y),
            coordinate(width),
            coordinate(height)
        ));
    }

    /// An arrow head: it goes on beyond the edge.
    pub(super) fn arrow(&mut self, x: f64, y: f64, direction: f64, look: Look) {
        let tip = x + 5.0 * direction;
        self.add(format_args!(
            "<path d=\"M{} {}L{} {}L{} {}Z\" class=\"d c{}\"/>",
            coordinate(tip),
            coordinate(y),
            coordinate(x),
            coordinate(y - 4.0),
            coordinate(x),
            coordinate(y + 4.0),
            look.colour % COLOURS
        ));
    }

    /// Who is who, from `top` on. See [`legend_height`].
    pub(super) fn legend(&mut self, top: f64, subjects: &[(String, Look)]) {
        for ((x, row), (name, look)) in legend_places(subjects).into_iter().zip(subjects) {
            let y = top + row * LEGEND_ROW + 9.0;
            self.curve(&[(x, y), (x + 20.0, y)], *look);
            self.dot(x + 10.0, y, *look);
            self.text(
                x + 25.0,
                y + 4.0,
                Anchor::Start,
                "",
                &fit(name, WIDTH / 2.0, LETTER),
            );
        }
    }

    fn add(&mut self, element: std::fmt::Arguments<'_>) {
        let _ = write!(self.body, "{element}");
    }
}

/// How much room a legend takes.
pub(super) fn legend_height(subjects: &[(String, Look)]) -> f64 {
    legend_places(subjects)
        .last()
        .map_or(0.0, |(_, row)| (row + 1.0) * LEGEND_ROW)
}

fn legend_places(subjects: &[(String, Look)]) -> Vec<(f64, f64)> {
    let (mut x, mut row) = (0.0, 0.0);
    let mut places = Vec::new();
    for (name, _) in subjects {
        let width = 40.0 + (text_width(name, LETTER)).min(WIDTH / 2.0);
        if x > 0.0 && x + width > WIDTH {
            x = 0.0;
            row += 1.0;
        }
        places.push((x, row));
        x += width;
    }
    places
}

/// A range of values on a stretch of pixels.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scale {
    low: f64,
    high: f64,
    logarithmic: bool,
    /// Between ticks of a linear scale.
    step: f64,
    from: f64,
    to: f64,
}

impl Scale {
    /// From `low` to `high`, widened to round numbers, on the pixels `from` to `to`.
    pub(super) fn linear(low: f64, high: f64, (from, to): (f64, f64)) -> Self {
        let (low, high) = if low < high {
            (low, high)
        } else {
            (low, low + low.abs().max(1.0))
        };
        let step = step(high - low);
        Self {
            low: (low / step + 1e-9).floor() * step,
            high: (high / step - 1e-9).ceil() * step,
            logarithmic: false,
            step,
            from,
            to,
        }
    }

    /// The same for logarithms; what is not above 0 has no place there.
    pub(super) fn logarithmic(low: f64, high: f64, (from, to): (f64, f64)) -> Self {
        let low = low.max(1e-300);
        let high = if high > low { high } else { low * 10.0 };
        let marks = marks(low / 10.0, high * 10.0);
        Self {
            low: marks
                .iter()
                .copied()
                .filter(|mark| *mark <= low * 1.0001)
                .fold(low / 10.0, f64::max),
            high: marks
                .iter()
                .copied()
                .filter(|mark| *mark >= high / 1.0001)
                .fold(high * 10.0, f64::min),
            logarithmic: true,
            step: 1.0,
            from,
            to,
        }
    }

    /// Exactly this range, without widening.
    pub(super) fn exact(low: f64, high: f64, logarithmic: bool, (from, to): (f64, f64)) -> Self {
        let high = if high > low { high } else { low + 1.0 };
        Self {
            low,
            high,
            logarithmic,
            step: step(high - low),
            from,
            to,
        }
    }

    /// The pixel of a value; values beyond the ends stand at the ends.
    pub(super) fn at(&self, value: f64) -> f64 {
        let share = if self.logarithmic {
            (value.max(1e-300) / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        self.from + share.clamp(0.0, 1.0) * (self.to - self.from)
    }

    pub(super) fn holds(&self, value: f64) -> bool {
        self.low <= value && value <= self.high
    }

    /// Round numbers on the axis.
    pub(super) fn ticks(&self) -> Vec<f64> {
        if self.logarithmic {
            let all = marks(self.low, self.high * 1.0001);
            if all.len() <= 7 {
                return all;
            }
            let decades: Vec<f64> = all
                .into_iter()
                .filter(|mark| (mark.log10() - mark.log10().round()).abs() < 1e-6)
                .collect();
            let every = decades.len().div_ceil(7);
            return decades.into_iter().step_by(every.max(1)).collect();
        }
        let step = self.step;
        let first = (self.low / step - 1e-9).ceil();
        (0..=12)
            .map(|index| (first + f64::from(index)) * step)
            .take_while(|tick| *tick <= self.high + step * 1e-6)
            // 0.1 + 0.2 must not print as what it is; nor -0.
            .map(|tick| if tick.abs() < step * 1e-6 { 0.0 } else { tick })
            .collect()
    }
}

/// 1, 2 or 5 times a power of ten, so that four to eight of them fill the range.
fn step(range: f64) -> f64 {
    let rough = range / 5.0;
    let power = 10_f64.powf(rough.log10().floor());
    let choice = [1.0, 2.0, 5.0]
        .into_iter()
        .find(|choice| choice * power >= rough * 0.999);
    choice.unwrap_or(10.0) * power
}

/// 1, 2, 5, 10, 20, … from `low` to `high`.
fn marks(low: f64, high: f64) -> Vec<f64> {
    let (mut power, mut marks) = (low.log10().floor(), Vec::new());
    while 10_f64.powf(power) <= high && marks.len() < 2000 {
        let decade = 10_f64.powf(power);
        let fitting = [1.0, 2.0, 5.0].map(|factor| factor * decade);
        marks.extend(
            fitting
                .into_iter()
                .filter(|mark| low * 0.9999 <= *mark && *mark <= high),
        );
        power += 1.0;
    }
    marks
}

/// How wide a text is, near enough.
pub(super) fn text_width(text: &str, letter: f64) -> f64 {
    text.chars().count() as f64 * letter
}

/// Shortens a text that would not fit.
pub(super) fn fit(text: &str, width: f64, letter: f64) -> String {
    let text = printable(text);
    if text_width(&text, letter) <= width {
        return text;
    }
    let mut kept = String::new();
    for c in text.chars() {
        if text_width(&kept, letter) + 2.0 * letter > width {
            break;
        }
        kept.push(c);
    }
    kept.push('…');
    kept
}

/// Text for HTML and SVG, in elements and in quoted attributes. What XML cannot hold is written out.
pub(super) fn escape(text: &str) -> String {
    let mut out = String::new();
    for c in printable(text).chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            _ => out.push(c),
        }
    }
    out
}

/// An `<svg>` as a file of its own: with its style.
pub(super) fn standalone(svg: &str) -> String {
    let style = format!(
        "<style>svg{{{LIGHT}background:var(--card)}}@media(prefers-color-scheme:dark){{svg{{{DARK}}}}}{RULES}</style>"
    );
    let (start, rest) = svg.split_once('>').unwrap_or((svg, ""));
    format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n{start}>{style}{rest}\n")
}

fn coordinate(value: f64) -> String {
    let value = if value.is_finite() { value } else { 0.0 };
    let text = format!("{value:.1}");
    text.strip_suffix(".0").unwrap_or(&text).to_owned()
}

/// Width of a letter of ordinary text, on average.
pub(super) const LETTER: f64 = 6.5;
/// Left free at both sides.
const EDGE: f64 = 6.0;
const LEGEND_ROW: f64 = 18.0;
const COLOURS: usize = 8;

/// Colours by day; the first is for the baseline. Told apart by people who see fewer colours too.
pub(super) const LIGHT: &str = "--page:#f6f6f4;--card:#fff;--ink:#1c1c1a;--muted:#66655f;--grid:#e2e1dc;\
    --axis:#b4b3ac;--area:#dcebde;--good:#0a7d32;--bad:#c0302b;--c0:#6b7280;--c1:#2a78d6;--c2:#e0622a;\
    --c3:#169a6c;--c4:#8b5fc7;--c5:#b8860b;--c6:#d0478a;--c7:#0e8fa8;";
/// And by night.
pub(super) const DARK: &str = "--page:#131312;--card:#1d1d1b;--ink:#f0efe9;--muted:#a6a59d;--grid:#33332f;\
    --axis:#66655f;--area:#25392b;--good:#4cc27a;--bad:#f27872;--c0:#a3a9b5;--c1:#5a9cf0;--c2:#f08350;\
    --c3:#3cc18f;--c4:#b08ff0;--c5:#dcae3a;--c6:#f07ab4;--c7:#43bdd6;";
/// What the elements of a chart look like.
pub(super) const RULES: &str = "\
svg text{font:12px system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif;fill:var(--ink)}\
svg .title{font-size:14.5px;font-weight:600}svg .muted{fill:var(--muted);font-size:11.5px}svg .strong{font-weight:600}\
svg .grid{stroke:var(--grid)}svg .axis{stroke:var(--axis)}svg .mark{stroke:var(--ink);stroke-dasharray:2 3}\
svg .spread{stroke:var(--ink);stroke-width:1.2;opacity:.7}\
svg .area{fill:var(--area)}\
svg .l{fill:none;stroke:currentColor;stroke-width:2;stroke-linejoin:round}svg .l.h{stroke-dasharray:6 4}\
svg .w{stroke:currentColor;stroke-width:1.5;opacity:.75}\
svg .d{fill:currentColor;stroke:currentColor;stroke-width:1.5}svg .d.h{fill:var(--card)}\
svg .b{fill:currentColor;stroke:currentColor}svg .b.h{fill-opacity:.25}\
.c0{color:var(--c0)}.c1{color:var(--c1)}.c2{color:var(--c2)}.c3{color:var(--c3)}.c4{color:var(--c4)}\
.c5{color:var(--c5)}.c6{color:var(--c6)}.c7{color:var(--c7)}\n";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round() {
        let check = |scale: Scale, expected: &[f64]| {
            let ticks = scale.ticks();
            assert_eq!(ticks.len(), expected.len(), "{ticks:?}");
            for (tick, expected) in ticks.iter().zip(expected) {
                assert!(
                    (tick - expected).abs() <= expected.abs() * 1e-9,
                    "{ticks:?}"
                );
            }
        };
        let pixels = (0.0, 100.0);
        check(
            Scale::linear(0.0, 87.0, pixels),
            &[0.0, 20.0, 40.0, 60.0, 80.0, 100.0],
        );
        check(
            Scale::linear(-0.3, 0.62, pixels),
            &[-0.4, -0.2, 0.0, 0.2, 0.4, 0.6, 0.8],
        );
        check(
            Scale::linear(5.0, 5.0, pixels),
            &[5.0, 6.0, 7.0, 8.0, 9.0, 10.0],
        );
        check(
            Scale::logarithmic(3.0, 40.0, pixels),
            &[2.0, 5.0, 10.0, 20.0, 50.0],
        );
        check(
            Scale::logarithmic(0.9, 9.0e3, pixels),
            &[1.0, 10.0, 100.0, 1e3, 1e4],
        );
        assert!(Scale::logarithmic(1e-300, 1e300, pixels).ticks().len() <= 8);
        assert!(Scale::linear(0.0, 0.0, pixels).ticks().len() > 1);
    }

    #[test]
    fn values_have_places() {
        let scale = Scale::linear(0.0, 10.0, (100.0, 0.0));
        assert!((scale.at(2.5) - 75.0).abs() < 1e-9);
        assert!((scale.at(11.0) - 0.0).abs() < 1e-9);
        let scale = Scale::exact(1.0, 100.0, true, (0.0, 10.0));
        assert!((scale.at(10.0) - 5.0).abs() < 1e-9);
        assert!(scale.at(-1.0).abs() < 1e-9);
        assert!(scale.holds(100.0) && !scale.holds(101.0));
    }

    #[test]
    fn text_is_cut_and_escaped() {
        assert_eq!(fit("short", 100.0, 5.0), "short");
        assert_eq!(fit("much too long", 30.0, 5.0), "much …");
        assert_eq!(
            escape("<script>\"a\" & 'b'\u{1b}\u{ffff}"),
            "&lt;script&gt;&quot;a&quot; &amp; &#39;b&#39;\\u{1b}\u{fffd}"
        );
    }
}
