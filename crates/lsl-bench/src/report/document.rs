//! A report as blocks, before it has a form. `markdown` and `html` render it; both escape every text,
//! so the blocks hold what was measured as it is.

use super::compare::Tone;

#[derive(Debug)]
pub(super) struct Document {
    pub(super) title: String,
    pub(super) blocks: Vec<Block>,
}

#[derive(Debug)]
pub(super) enum Block {
    Heading(String),
    Text(String),
    /// Something to be seen before all else, good or bad.
    Notice(Tone, String),
    Command(String),
    List(Vec<String>),
    Table(Grid),
    Charts(Vec<Chart>),
    /// Folded away until asked for.
    Details(String, Vec<Self>),
}

#[derive(Debug)]
pub(super) struct Grid {
    pub(super) columns: Vec<(String, Side)>,
    pub(super) rows: Vec<Vec<Field>>,
}

/// Where a column's text stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Left,
    Right,
}

#[derive(Debug)]
pub(super) struct Field {
    pub(super) text: String,
    pub(super) tone: Tone,
}

/// A picture: `<svg>` without its style, which page or file adds.
#[derive(Debug)]
pub(super) struct Chart {
    /// Without directory and `.svg`.
    pub(super) file: String,
    pub(super) title: String,
    pub(super) svg: String,
    pub(super) caption: String,
}

impl Grid {
    pub(super) fn new<'a>(columns: impl IntoIterator<Item = (&'a str, Side)>) -> Self {
        Self {
            columns: columns
                .into_iter()
                .map(|(title, side)| (title.into(), side))
                .collect(),
            rows: Vec::new(),
        }
    }

    pub(super) fn push(&mut self, row: impl IntoIterator<Item = Field>) {
        self.rows.push(row.into_iter().collect());
    }
}

impl Field {
    pub(super) fn toned(text: impl Into<String>, tone: Tone) -> Self {
        Self {
            text: text.into(),
            tone,
        }
    }
}

impl<T: Into<String>> From<T> for Field {
    fn from(text: T) -> Self {
        Self::toned(text, Tone::Plain)
    }
}

impl Document {
    /// All charts, in order.
    pub(super) fn charts(&self) -> Vec<&Chart> {
        fn collect<'a>(blocks: &'a [Block], charts: &mut Vec<&'a Chart>) {
            for block in blocks {
                match block {
                    Block::Charts(more) => charts.extend(more),
                    Block::Details(_, blocks) => collect(blocks, charts),
                    _ => {}
                }
            }
        }
        let mut charts = Vec::new();
        collect(&self.blocks, &mut charts);
        charts
    }
}
