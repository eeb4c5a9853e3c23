//! Plain text tables for people: columns as wide as their widest cell, two blanks between them.
//! Knows nothing about streams, except that text from the network must not steer the terminal.

use std::io::{self, Write};

use super::text::printable;

/// Side of its column on which a cell stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Align {
    /// Aligned on the left, for text.
    Left,
    /// Aligned on the right, for numbers.
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
}
