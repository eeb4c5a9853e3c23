//! A report as Markdown (GitHub's flavour), with the charts as files beside it.

use std::fmt::{self, Write};

use lsl_cli::table::printable;

use super::compare::Tone;
use super::document::{Block, Document, Grid, Side};

/// Renders `document`; charts are linked from `charts/`.
pub(super) fn render(document: &Document) -> String {
    let mut out = format!("# {}\n", escape(&document.title));
    write_blocks(&mut out, &document.blocks);
    out
}

fn write_blocks(out: &mut String, blocks: &[Block]) {
    for block in blocks {
        out.push('\n');
        // Writing to a `String` cannot fail.
        let _ = match block {
            Block::Heading(text) => writeln!(out, "## {}", escape(text)),
            Block::Text(text) => writeln!(out, "{}", escape(text)),
            Block::Notice(tone, text) => {
                let mark = if *tone == Tone::Bad { "⚠ " } else { "" };
                writeln!(out, "> {mark}**{}**", escape(text))
            }
            Block::Command(text) => writeln!(out, "    {}", printable(text)),
            Block::List(items) => items
                .iter()
                .try_for_each(|item| writeln!(out, "- {}", escape(item))),
            Block::Table(grid) => write_grid(out, grid),
            Block::Charts(charts) => charts.iter().enumerate().try_for_each(|(index, chart)| {
                let space = if index == 0 { "" } else { "\n" };
                let (title, file) = (escape(&chart.title), &chart.file);
                writeln!(out, "{space}![{title}](charts/{file}.svg)\n")?;
                writeln!(out, "*{}*", escape(&chart.caption))
            }),
            Block::Details(title, blocks) => {
                let _ = writeln!(out, "<details><summary>{}</summary>", escape(title));
                write_blocks(out, blocks);
                writeln!(out, "\n</details>")
            }
        };
    }
}

fn write_grid(out: &mut String, grid: &Grid) -> fmt::Result {
    write_row(out, grid.columns.iter().map(|(title, _)| title.as_str()))?;
    out.push('|');
    for (_, side) in &grid.columns {
        out.push_str(if *side == Side::Right {
            "---:|"
        } else {
            "---|"
        });
    }
    out.push('\n');
    for row in &grid.rows {
        write_row(out, row.iter().map(|field| field.text.as_str()))?;
    }
    Ok(())
}

fn write_row<'a>(out: &mut String, fields: impl Iterator<Item = &'a str>) -> fmt::Result {
    out.push('|');
    for field in fields {
        write!(out, " {} |", escape(field))?;
    }
    writeln!(out)
}

/// Text in which nothing is markup, neither Markdown's nor HTML's.
pub(super) fn escape(text: &str) -> String {
    let mut out = String::new();
    for c in printable(text).chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '#' | '~' | '!' | '$' => {
                out.push('\\');
                out.push(c);
            }
            _ => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_from_outside_is_markup() {
        assert_eq!(
            escape("a|b <img src=x> `rm` [x](y) *_#\n& ok"),
            "a\\|b &lt;img src=x&gt; \\`rm\\` \\[x\\](y) \\*\\_\\#\\\\n&amp; ok"
        );
    }
}
