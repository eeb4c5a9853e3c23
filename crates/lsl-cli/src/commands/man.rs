//! `lsl man`: the help texts as manual pages, for packagers of the command. The same command
//! writes the same bytes: a date comes from `SOURCE_DATE_EPOCH` alone.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Command};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};
use lsl_platform::calendar::Date;

use crate::failure::{Failure, Outcome};
use crate::ui::notice::note;

/// Arguments of the hidden command `lsl man`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Manual {
    /// Where to write lsl.1, lsl-gen.1 and so on; made if it does not exist
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

const EXAMPLES: &str = "\
Examples:
  lsl man ~/.local/share/man/man1      then: man lsl-gen
  lsl man ./man1 && man -l ./man1/lsl.1

One page per subcommand. The pages carry a date only where SOURCE_DATE_EPOCH gives one (seconds
since 1970), so that packages can be built twice and compared. The Debian package has installed
them.";

impl Manual {
    /// Writes the pages of `command`.
    pub fn run(&self, command: Command) -> Outcome {
        let date = match std::env::var("SOURCE_DATE_EPOCH") {
            Ok(text) => day(&text)?,
            Err(_) => String::new(),
        };
        let written = write(&self.dir, command, &date)
            .map_err(|error| Failure::Runtime(format!("{}: {error}", self.dir.display())))?;
        note(format_args!(
            "{written} pages written to {}",
            self.dir.display()
        ));
        Ok(())
    }
}

/// Returns the day of a moment in seconds since 1970.
fn day(epoch: &str) -> Outcome<String> {
    let secs: u64 = epoch.trim().parse().ok().filter(|secs| *secs < YEAR_10000).ok_or_else(|| {
        Failure::Usage(format!(
            "SOURCE_DATE_EPOCH is '{epoch}', which is no number of seconds since 1970; correct or unset it"
        ))
    })?;
    Ok(Date::from_unix_time(Duration::from_secs(secs)).to_string())
}

/// Writes the pages of the command and of all its subcommands; returns their number.
fn write(dir: &Path, mut command: Command, date: &str) -> io::Result<usize> {
    fs::create_dir_all(dir)?;
    command.build();
    let mut pending = vec![command];
    let mut written = 0;
    while let Some(command) = pending.pop() {
        let shown = command
            .get_subcommands()
            .filter(|below| !below.is_hide_set());
        pending.extend(shown.cloned());
        let name = command.get_display_name().unwrap_or("lsl").to_owned();
        fs::write(dir.join(format!("{name}.1")), page(command, &name, date)?)?;
        written += 1;
    }
    Ok(written)
}

fn page(command: Command, name: &str, date: &str) -> io::Result<String> {
    let extra = command.get_after_help().map(ToString::to_string);
    let has_options = command
        .get_arguments()
        .any(|argument| !argument.is_hide_set());
    let has_subcommands = command.get_subcommands().any(|below| !below.is_hide_set());
    let man = Man::new(command);
    let mut out = Vec::new();
    // clap_mangen leaves an empty date out, and the next field would become the date.
    writeln!(
        out,
        ".TH {} 1 \"{date}\" \"lsl {}\" \"Lab Streaming Layer\"",
        name.to_uppercase(),
        env!("CARGO_PKG_VERSION")
    )?;
    man.render_name_section(&mut out)?;
    man.render_synopsis_section(&mut out)?;
    man.render_description_section(&mut out)?;
    if has_options {
        man.render_options_section(&mut out)?;
    }
    if has_subcommands {
        man.render_subcommands_section(&mut out)?;
    }
    if let Some(extra) = extra {
        render_extra(&extra, &mut out)?;
    }
    if name != "lsl" {
        let mut roff = Roff::new();
        roff.control("SH", ["SEE ALSO"]);
        roff.text([roman("lsl(1)")]);
        roff.to_writer(&mut out)?;
    }
    Ok(ascii(&String::from_utf8_lossy(&out)))
}

/// Replaces other characters by their names, since not every formatter reads UTF-8.
fn ascii(page: &str) -> String {
    let named = |character: char| {
        if character.is_ascii() {
            character.to_string()
        } else {
            format!("\\[u{:04X}]", u32::from(character))
        }
    };
    page.chars().map(named).collect()
}

/// Renders the text below the options: examples keep their lines, the rest is prose.
fn render_extra(text: &str, out: &mut Vec<u8>) -> io::Result<()> {
    let mut roff = Roff::new();
    let mut in_notes = false;
    for paragraph in text.split("\n\n") {
        let mut lines = paragraph.lines().peekable();
        if lines.next_if_eq(&"Examples:").is_some() {
            roff.control("SH", ["EXAMPLES"]);
            in_notes = false;
        } else if in_notes {
            roff.control("PP", []);
        } else {
            roff.control("SH", ["NOTES"]);
            in_notes = true;
        }
        let mut verbatim = false;
        for line in lines {
            if line.starts_with("  ") != verbatim {
                verbatim = !verbatim;
                roff.control(if verbatim { "nf" } else { "fi" }, []);
            }
            roff.text([roman(line)]);
        }
        if verbatim {
            roff.control("fi", []);
        }
    }
    roff.to_writer(out)
}

const YEAR_10000: u64 = 253_402_300_800;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days() {
        assert_eq!(day("951782400").unwrap(), "2000-02-29");
        for wrong in ["", "yesterday", "-1", "999999999999999"] {
            let failure = day(wrong).unwrap_err();
            assert_eq!(failure.status(), 2, "{failure}");
        }
    }

    #[test]
    fn characters_that_are_not_ascii_are_named() {
        assert_eq!(ascii("10 \u{b5}s\n"), "10 \\[u00B5]s\n");
    }

    #[test]
    fn examples_keep_their_lines_and_prose_does_not() {
        let mut out = Vec::new();
        render_extra(
            "Examples:\n  lsl a\n  lsl b\n\nOne.\nTwo.\n\nThree.",
            &mut out,
        )
        .unwrap();
        let text = String::from_utf8(out).unwrap();
        let expected =
            ".SH EXAMPLES\n.nf\n  lsl a\n  lsl b\n.fi\n.SH NOTES\nOne.\nTwo.\n.PP\nThree.\n";
        assert!(text.ends_with(expected), "{text}");
    }
}
