//! Draws folded stacks as a flame graph: one SVG file, without script. Spec: audit §1.5.

use std::collections::BTreeMap;
use std::fmt::Write;

/// What stacks have in common up to one name.
#[derive(Debug, Default)]
struct Frame<'a> {
    /// With what lies on it.
    weight: u64,
    above: BTreeMap<&'a str, Self>,
}

impl<'a> Frame<'a> {
    fn add(&mut self, path: &'a str, weight: u64) {
        self.weight = self.weight.saturating_add(weight);
        if path.is_empty() {
            return;
        }
        let (name, rest) = path.split_once(';').unwrap_or((path, ""));
        self.above.entry(name).or_default().add(rest, weight);
    }

    fn height(&self) -> u32 {
        let heights = self.above.values().map(Self::height);
        1 + heights.max().unwrap_or(0)
    }
}

/// Draws stacks with their weights, which are times in microseconds or numbers of events.
pub(super) fn draw(stacks: &BTreeMap<String, u64>, are_times: bool) -> String {
    let mut root = Frame::default();
    for (path, weight) in stacks {
        root.add(path, *weight);
    }
    let height = root.height() * ROW + 2 * MARGIN;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" \
         height=\"{height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n"
    );
    let width = f64::from(WIDTH - 2 * MARGIN);
    let whole = root.weight.max(1);
    let picture = Picture {
        per_weight: width / as_f64(whole),
        whole,
        unit: if are_times { " µs" } else { "" },
    };
    let row = root.height() - 1;
    picture.draw("all", &root, f64::from(MARGIN), row, &mut svg);
    svg.push_str("</svg>\n");
    svg
}

struct Picture {
    per_weight: f64,
    whole: u64,
    unit: &'static str,
}

impl Picture {
    /// Draws a frame and, above it, what lies on it.
    fn draw(&self, name: &str, frame: &Frame<'_>, x: f64, row: u32, svg: &mut String) {
        let width = as_f64(frame.weight) * self.per_weight;
        let y = row * ROW + MARGIN;
        let label = escaped(name);
        let percent = 100.0 * as_f64(frame.weight) / as_f64(self.whole);
        // Writing to a string cannot fail.
        let _ = write!(
            svg,
            "<g><title>{label}: {}{} ({percent:.1} %)</title><rect x=\"{x:.1}\" y=\"{y}\" \
             width=\"{width:.1}\" height=\"{}\" rx=\"2\" fill=\"{}\"/>",
            frame.weight,
            self.unit,
            ROW - 1,
            colour(name)
        );
        // Seven units a letter; half a name says little.
        if width >= 7.0 * as_f64(name.chars().count() as u64) + 6.0 {
            let (x, y) = (x + 3.0, y + ROW - 6);
            let _ = write!(svg, "<text x=\"{x:.1}\" y=\"{y}\">{label}</text>");
        }
        svg.push_str("</g>\n");
        let mut x = x;
        for (name, above) in &frame.above {
            self.draw(name, above, x, row.saturating_sub(1), svg);
            x += as_f64(above.weight) * self.per_weight;
        }
    }
}

/// A warm colour that a name has in every picture.
fn colour(name: &str) -> String {
    let sum = name
        .bytes()
        .fold(5381_u32, |sum, byte| sum.wrapping_mul(33) ^ u32::from(byte));
    format!("hsl({}, 75%, 68%)", 15 + sum % 40)
}

fn escaped(name: &str) -> String {
    let name = name.replace('&', "&amp;").replace('<', "&lt;");
    name.replace('>', "&gt;").replace('"', "&quot;")
}

#[expect(clippy::cast_precision_loss, reason = "a picture is not that exact")]
fn as_f64(weight: u64) -> f64 {
    weight as f64
}

const WIDTH: u32 = 1200;
const MARGIN: u32 = 10;
const ROW: u32 = 18;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_has_every_name_and_no_script() {
        let stacks = [("a;b", 30), ("a;<c>", 10), ("a", 60)];
        let stacks = stacks.map(|(path, weight)| (path.to_owned(), weight));
        let svg = draw(&BTreeMap::from(stacks), true);
        for part in [
            "<title>all: 100 µs (100.0 %)</title>",
            "<title>a: 100 µs (100.0 %)</title>",
            "<title>b: 30 µs (30.0 %)</title>",
            "<title>&lt;c&gt;: 10 µs (10.0 %)</title>",
            "width=\"354.0\"",
            ">b</text>",
        ] {
            assert!(svg.contains(part), "{part} in {svg}");
        }
        assert!(!svg.contains("script") && !svg.contains("<c>"), "{svg}");
        assert!(draw(&BTreeMap::new(), false).contains("all: 0 (0.0 %)"));
    }
}
