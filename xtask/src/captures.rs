//! The pictures of the README: what `lsl` really prints in a terminal, as SVG.
//!
//! `script` gives each command a terminal, `xtask/book/captures.sh` is the stage on loopback. The text is
//! drawn as text, cell by cell, so that pictures are small, sharp and can be searched.

use std::fmt::Write as _;
use std::path::Path;

use xshell::{Shell, cmd};

use crate::Result;

/// A picture: file, what is typed, and what runs before that.
struct Capture {
    name: &'static str,
    typed: &'static str,
}

const CAPTURES: &[Capture] = &[
    Capture {
        name: "demo",
        typed: "lsl demo",
    },
    Capture {
        name: "list",
        typed: "lsl list",
    },
    Capture {
        name: "trust",
        typed: "lsl trust check",
    },
];

/// Prepares a machine for a capture and types its command.
const STAGE: &str = "xtask/book/captures.sh";

/// Columns of the terminal.
const WIDTH: usize = 120;

/// Run the commands and draw what they print.
pub(crate) fn run(sh: &Shell) -> Result {
    cmd!(sh, "cargo build --locked -p lsl-cli").run()?;
    let lsl = sh.current_dir().join("target/debug/lsl");
    for Capture { name, typed } in CAPTURES {
        let stage = format!("stty cols {WIDTH} rows 60; exec bash {STAGE} {name}");
        // `script` has no business with our keyboard.
        let printed = cmd!(sh, "script --quiet --return --command {stage} /dev/null")
            .env("LSL_CAPTURED", &lsl)
            .stdin("")
            .read()?;
        let printed = printed
            .split_once("@begin@")
            .ok_or("the stage did not begin")?
            .1;
        let mut screen = Screen::default();
        screen.print(&format!("\x1b[1m$ {typed}\x1b[0m\n"));
        screen.print(printed.trim_start_matches(['\r', '\n']));
        let path = Path::new("docs/images").join(format!("{name}.svg"));
        sh.create_dir("docs/images")?;
        sh.write_file(&path, screen.svg(typed))?;
        println!("captures: {}", path.display());
    }
    Ok(())
}

/// How a cell looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Style {
    is_bold: bool,
    is_dim: bool,
    colour: Option<u8>,
}

/// As much of a terminal as our commands use: text, colours, moving up, erasing.
#[derive(Debug, Default)]
struct Screen {
    rows: Vec<Vec<(char, Style)>>,
    row: usize,
    column: usize,
    style: Style,
    /// Whether long lines are cut off, not continued in the next row.
    is_cut: bool,
}

impl Screen {
    fn print(&mut self, text: &str) {
        let mut chars = text.chars();
        while let Some(c) = chars.next() {
            match c {
                '\n' => {
                    self.row += 1;
                    self.column = 0;
                }
                '\r' => self.column = 0,
                '\x1b' => {
                    let rest = chars.as_str();
                    let Some(sequence) = rest.strip_prefix('[') else {
                        continue;
                    };
                    let is_end = |c: char| ('@'..='~').contains(&c);
                    let Some(end) = sequence.find(is_end) else {
                        continue;
                    };
                    let (numbers, rest) = sequence.split_at(end);
                    let command = rest.chars().next().unwrap_or_default();
                    self.control(command, numbers);
                    chars = rest.get(command.len_utf8()..).unwrap_or_default().chars();
                }
                c if c < ' ' => {}
                c => self.put(c),
            }
        }
    }

    fn put(&mut self, c: char) {
        if self.column == WIDTH {
            if self.is_cut {
                return;
            }
            self.row += 1;
            self.column = 0;
        }
        while self.rows.len() <= self.row {
            self.rows.push(Vec::new());
        }
        let style = self.style;
        let row = &mut self.rows[self.row];
        while row.len() <= self.column {
            row.push((' ', Style::default()));
        }
        row[self.column] = (c, style);
        self.column += 1;
    }

    fn control(&mut self, command: char, numbers: &str) {
        let number = numbers.parse().unwrap_or(1);
        match command {
            'A' => self.row = self.row.saturating_sub(number),
            'F' => {
                self.row = self.row.saturating_sub(number);
                self.column = 0;
            }
            'G' => self.column = number.saturating_sub(1),
            // To the end of the screen, and of the line.
            'J' => {
                self.rows.truncate(self.row + 1);
                self.erase_line();
            }
            'K' => self.erase_line(),
            'h' | 'l' if numbers == "?7" => self.is_cut = command == 'l',
            'm' => {
                for number in numbers.split(';') {
                    self.render(number.parse().unwrap_or(0));
                }
            }
            _ => {}
        }
    }

    fn erase_line(&mut self) {
        if let Some(row) = self.rows.get_mut(self.row) {
            row.truncate(self.column);
        }
    }

    fn render(&mut self, number: u8) {
        match number {
            0 => self.style = Style::default(),
            1 => self.style.is_bold = true,
            2 => self.style.is_dim = true,
            30..=37 => self.style.colour = Some(number - 30),
            90..=97 => self.style.colour = Some(number - 90),
            39 => self.style.colour = None,
            _ => {}
        }
    }

    /// The screen as a picture that works on light and on dark pages.
    fn svg(&self, title: &str) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or_default();
        let (width, height) = (
            at(columns) + 2 * MARGIN,
            self.rows.len() * LINE + 2 * MARGIN,
        );
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
             viewBox=\"0 0 {width} {height}\">\n<title>{}</title>\n\
             <rect width=\"100%\" height=\"100%\" rx=\"6\" fill=\"#1b1f27\"/>\n\
             <g font-family=\"ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace\" \
             font-size=\"13\" fill=\"#d8dee9\" xml:space=\"preserve\">\n",
            escape(title)
        );
        for (index, row) in self.rows.iter().enumerate() {
            let y = MARGIN + index * LINE + 13;
            let mut start = 0;
            for run in row.chunk_by(|(a, before), (b, after)| {
                // Runs end at wide gaps, or fonts of another width would shift columns.
                before == after && !(*a == ' ' && *b != ' ')
            }) {
                let text: String = run.iter().map(|(c, _)| c).collect();
                let shown = text.trim_end();
                if !shown.is_empty() {
                    let length = at(shown.chars().count());
                    let _ = writeln!(
                        svg,
                        "<text x=\"{}\" y=\"{y}\" textLength=\"{length}\"{}>{}</text>",
                        MARGIN + at(start),
                        look(run[0].1),
                        escape(shown)
                    );
                }
                start += run.len();
            }
        }
        svg += "</g>\n</svg>\n";
        svg
    }
}

/// Where a column begins, in pixels.
fn at(column: usize) -> usize {
    column * 39 / 5
}

fn look(style: Style) -> String {
    let mut look = String::new();
    if style.is_bold {
        look += " font-weight=\"bold\"";
    }
    if style.is_dim {
        look += " opacity=\"0.6\"";
    }
    if let Some(colour) = style
        .colour
        .and_then(|colour| COLOURS.get(usize::from(colour)))
    {
        let _ = write!(look, " fill=\"{colour}\"");
    }
    look
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

const MARGIN: usize = 14;
const LINE: usize = 18;
const COLOURS: [&str; 8] = [
    "#4c566a", "#e06c75", "#98c379", "#e5c07b", "#61afef", "#c678dd", "#56b6c2", "#eceff4",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(printed: &str, expected: &[&str]) {
        let mut screen = Screen::default();
        screen.print(printed);
        let rows = screen.rows.iter();
        let texts: Vec<String> = rows
            .map(|row| row.iter().map(|(c, _)| c).collect())
            .collect();
        assert_eq!(texts, expected, "{printed:?}");
    }

    #[test]
    fn what_a_terminal_would_show() {
        check("a\r\nb\r\n", &["a", "b"]);
        check("abc\rx", &["xbc"]);
        check("old\nold\n\x1b[2A\x1b[Jnew\n", &["new"]);
        check("abc\r\x1b[1Cx\x1b[K", &["x"]);
        check("\x1b[1;31mred\x1b[0m", &["red"]);
        let line = "x".repeat(WIDTH);
        check(&format!("{line}y"), &[&line, "y"]);
        check(&format!("\x1b[?7l{line}y\x1b[?7h\nz"), &[&line, "z"]);
    }

    #[test]
    fn text_is_escaped_and_columns_stay() {
        let mut screen = Screen::default();
        screen.print("\x1b[31m<a>\x1b[0m  b&c");
        let svg = screen.svg("t");
        assert!(
            svg.contains("&lt;a&gt;") && svg.contains("b&amp;c"),
            "{svg}"
        );
        assert!(svg.contains(COLOURS[1]), "{svg}");
        assert!(svg.contains(&format!("x=\"{}\"", MARGIN + at(5))), "{svg}");
    }
}
