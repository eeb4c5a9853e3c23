//! Plain text tables for people: columns as wide as their widest cell, two blanks between them.
//! Knows nothing about streams, except that text from the network must not steer the terminal.

use std::io::{self, Write};

use lsl_platform::terminal;

/// Side of its column on which a cell stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Align {
    /// On the left, for text.
    Left,
    /// On the right, for numbers.
    Right,
}

/// Rows of cells under a header.
#[derive(Debug)]
pub struct Table {
    columns: Vec<(&'static str, Align)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Creates a table without rows, from headings and their alignment.
    pub fn new(columns: &[(&'static str, Align)]) -> Self {
        Self {
            columns: columns.to_vec(),
            rows: Vec::new(),
        }
    }

    /// Adds a row. Missing cells are empty, surplus ones are not shown.
    pub fn push(&mut self, cells: impl IntoIterator<Item = impl AsRef<str>>) {
        self.rows.push(
            cells
                .into_iter()
                .map(|cell| printable(cell.as_ref()))
                .collect(),
        );
    }

    /// Writes header and rows, each line after `indent`; no blanks at line ends.
    pub fn write(&self, out: &mut impl Write, indent: &str) -> io::Result<()> {
        let header: Vec<String> = self
            .columns
            .iter()
            .map(|(name, _)| (*name).into())
            .collect();
        let lines = || std::iter::once(&header).chain(&self.rows);
        let width = |column: usize| {
            lines()
                .filter_map(|row| row.get(column))
                .map(|cell| cell.chars().count())
                .max()
        };
        let widths: Vec<usize> = (0..header.len()).map(|i| width(i).unwrap_or(0)).collect();
        for row in lines() {
            let mut line = String::from(indent);
            for (index, ((_, align), width)) in self.columns.iter().zip(&widths).enumerate() {
                let cell = row.get(index).map_or("", String::as_str);
                let gap = if index == 0 { "" } else { "  " };
                let blanks = " ".repeat(width.saturating_sub(cell.chars().count()));
                match align {
                    Align::Left => line.extend([gap, cell, &blanks]),
                    Align::Right => line.extend([gap, &blanks, cell]),
                }
            }
            writeln!(out, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

/// Returns foreign text of any length as one harmless line: a stream may be called anything, escape
/// sequences included.
pub fn printable(text: &str) -> String {
    terminal::printable(text.as_bytes(), usize::MAX)
}

/// Formats seconds as people say them: `4 s`, `12 min`, `3.5 h`, `2.1 d`.
pub fn age(secs: f64) -> String {
    let units = [(86_400.0, "d"), (3600.0, "h")];
    match units.iter().find(|(unit, _)| secs >= *unit) {
        Some((unit, name)) => format!("{:.1} {name}", secs / unit),
        None if secs >= 60.0 => format!("{:.0} min", (secs / 60.0).floor()),
        None => format!("{:.0} s", secs.max(0.0).floor()),
    }
}

/// Formats a nominal rate: `500 Hz`, `0.5 Hz`, `irregular`.
pub fn rate(hertz: f64) -> String {
    if hertz == lsl_core::IRREGULAR_RATE {
        "irregular".into()
    } else {
        format!("{hertz} Hz")
    }
}

/// Formats a number with its noun: `1 stream`, `2 streams`.
pub fn count(number: usize, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{plural}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_needed() {
        let mut table = Table::new(&[
            ("name", Align::Left),
            ("n", Align::Right),
            ("", Align::Left),
        ]);
        table.push(["Größe", "7", "x"]);
        table.push(["a", "1234", ""]);
        table.push(["short"]);
        let mut text = Vec::new();
        table.write(&mut text, "> ").unwrap();
        let expected = "> name      n\n> Größe     7  x\n> a      1234\n> short\n";
        assert_eq!(String::from_utf8(text).unwrap(), expected);
    }

    #[test]
    fn counts() {
        let counted = [0, 1, 2].map(|number| count(number, "stream"));
        assert_eq!(counted, ["0 streams", "1 stream", "2 streams"]);
    }

    #[test]
    fn ages_and_rates() {
        for (secs, expected) in [
            (-1.0, "0 s"),
            (0.0, "0 s"),
            (59.9, "59 s"),
            (60.0, "1 min"),
            (3599.0, "59 min"),
            (5400.0, "1.5 h"),
            (181_440.0, "2.1 d"),
        ] {
            assert_eq!(age(secs), expected);
        }
        for (hertz, expected) in [(0.0, "irregular"), (500.0, "500 Hz"), (0.5, "0.5 Hz")] {
            assert_eq!(rate(hertz), expected);
        }
    }
}
