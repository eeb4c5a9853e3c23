//! A report as one HTML page: charts inline, no script, nothing from elsewhere, for phones and for
//! dark rooms.

use std::fmt::Write;

use lsl_cli::table::printable;

use super::compare::Tone;
use super::document::{Block, Document, Field, Grid, Side};
use super::svg;

/// Renders `document`.
pub(super) fn render(document: &Document) -> String {
    let title = svg::escape(&document.title);
    let mut out = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <title>{title}</title>\n<style>\n:root{{{}}}\n@media(prefers-color-scheme:dark){{:root{{{}}}}}\n{}{}</style>\n\
         </head>\n<body>\n<main>\n<h1>{title}</h1>\n",
        svg::LIGHT,
        svg::DARK,
        svg::RULES,
        PAGE,
    );
    write_blocks(&mut out, &document.blocks);
    out.push_str("</main>\n</body>\n</html>\n");
    out
}

fn write_blocks(out: &mut String, blocks: &[Block]) {
    for block in blocks {
        // Writing to a `String` cannot fail.
        let _ = match block {
            Block::Heading(text) => writeln!(out, "<h2>{}</h2>", svg::escape(text)),
            Block::Text(text) => writeln!(out, "<p>{}</p>", svg::escape(text)),
            Block::Notice(tone, text) => {
                let class = class_of(*tone);
                writeln!(out, "<p class=\"notice{class}\">{}</p>", svg::escape(text))
            }
            Block::Command(text) => {
                writeln!(out, "<pre>{}</pre>", svg::escape(&printable(text)))
            }
            Block::List(items) => {
                out.push_str("<ul>\n");
                for item in items {
                    let _ = writeln!(out, "<li>{}</li>", svg::escape(item));
                }
                writeln!(out, "</ul>")
            }
            Block::Table(grid) => write_grid(out, grid),
            Block::Charts(charts) => {
                out.push_str("<div class=\"charts\">\n");
                for chart in charts {
                    let caption = svg::escape(&chart.caption);
                    let _ = writeln!(
                        out,
                        "<figure>\n{}\n<figcaption>{caption}</figcaption>\n</figure>",
                        chart.svg
                    );
                }
                writeln!(out, "</div>")
            }
            Block::Details(title, blocks) => {
                let title = svg::escape(title);
                let _ = writeln!(out, "<details>\n<summary>{title}</summary>");
                write_blocks(out, blocks);
                writeln!(out, "</details>")
            }
        };
    }
}

fn write_grid(out: &mut String, grid: &Grid) -> std::fmt::Result {
    out.push_str("<div class=\"table\"><table>\n<thead><tr>");
    for (title, side) in &grid.columns {
        let class = if *side == Side::Right {
            " class=\"r\""
        } else {
            ""
        };
        write!(out, "<th{class}>{}</th>", svg::escape(title))?;
    }
    out.push_str("</tr></thead>\n<tbody>\n");
    for row in &grid.rows {
        out.push_str("<tr>");
        for (Field { text, tone }, (_, side)) in row.iter().zip(&grid.columns) {
            let right = if *side == Side::Right { "r" } else { "" };
            let class = format!("{right}{}", class_of(*tone));
            match class.trim() {
                "" => write!(out, "<td>{}</td>", svg::escape(text))?,
                class => write!(out, "<td class=\"{class}\">{}</td>", svg::escape(text))?,
            }
        }
        out.push_str("</tr>\n");
    }
    writeln!(out, "</tbody>\n</table></div>")
}

fn class_of(tone: Tone) -> &'static str {
    match tone {
        Tone::Plain => "",
        Tone::Good => " good",
        Tone::Bad => " bad",
        Tone::Muted => " muted",
    }
}

const PAGE: &str = "\
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--ink);font:16px/1.5 system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif}
main{max-width:1180px;margin:0 auto;padding:16px}
h1{font-size:1.6rem;line-height:1.25;margin:.6rem 0}
h2{font-size:1.2rem;margin:2.2rem 0 .6rem}
p,li,figcaption,pre,summary{overflow-wrap:anywhere}
p,ul{max-width:75ch}
.charts{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,350px),1fr));gap:16px;align-items:start}
figure{margin:0;padding:12px;background:var(--card);border:1px solid var(--grid);border-radius:10px}
figure svg{width:100%;height:auto}
figcaption{font-size:.8rem;color:var(--muted)}
.table{overflow-x:auto;border:1px solid var(--grid);border-radius:10px;background:var(--card);margin:.6rem 0}
table{border-collapse:collapse;font-size:.85rem;font-variant-numeric:tabular-nums;width:100%}
th,td{padding:6px 10px;text-align:left;vertical-align:top;white-space:nowrap}
th{color:var(--muted);font-weight:600;border-bottom:1px solid var(--grid)}
tbody tr+tr td{border-top:1px solid var(--grid)}
th:first-child,td:first-child{position:sticky;left:0;background:var(--card)}
.r{text-align:right}
td.good{color:var(--good)}
td.bad{color:var(--bad)}
td.muted{color:var(--muted)}
.notice{padding:8px 12px;border-left:4px solid var(--muted);background:var(--card);border-radius:0 8px 8px 0}
.notice.good{border-color:var(--good)}
.notice.bad{border-color:var(--bad)}
pre{white-space:pre-wrap;background:var(--card);border:1px solid var(--grid);border-radius:8px;padding:8px 12px;font-size:.85rem}
details{margin:.8rem 0}
summary{cursor:pointer;font-weight:600;padding:4px 0}
";
