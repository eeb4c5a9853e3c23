//! Pages that are made from the program itself, and the checks that they are what it says.

use std::fmt::Write as _;

use libtest_mimic::Trial;
use lsl_core::secure::config::sample;
use lsl_proto::config::KEYS;

use super::shown::{help, subcommands};
use super::{Outcome, repository, trial};

const CONFIGURATION: &str = "docs/configuration.md";
const COMMANDS: &str = "docs/commands.md";

/// A page, the name of a part of it, and what makes that.
type Part = (&'static str, &'static str, fn() -> String);

/// Everything that is generated.
const PARTS: &[Part] = &[
    (CONFIGURATION, "lsl_api.cfg", api_keys),
    (CONFIGURATION, "lsl-secure.toml", secure_keys),
    (COMMANDS, "commands", commands),
];

/// Set, this rewrites the pages.
const UPDATE: &str = "LSL_DOCS_UPDATE";

pub(crate) fn trials() -> Vec<Trial> {
    PARTS
        .iter()
        .map(|(page, part, text)| {
            trial(&format!("generated: {page}: {part}"), move || {
                compare(page, part, &text())
            })
        })
        .collect()
}

/// Holds a part of a page against what it has to be.
fn compare(page: &str, part: &str, text: &str) -> Outcome {
    // One at a time: two parts may be of one page.
    static TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let _turn = TURN
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let path = repository().join(page);
    let committed = std::fs::read_to_string(&path).map_err(|error| format!("{page}: {error}"))?;
    let begin = format!("<!-- begin: {part}, made by `cargo xtask book --update` -->\n");
    let end = format!("<!-- end: {part} -->");
    let (before, rest) = committed
        .split_once(&begin)
        .ok_or_else(|| format!("{page} has no line {begin}"))?;
    let (old, after) = rest
        .split_once(&end)
        .ok_or_else(|| format!("{page} has no line {end}"))?;
    let text = format!("\n{}\n\n", text.trim());
    if old == text {
        return Ok(());
    }
    if std::env::var_os(UPDATE).is_some() {
        let whole = format!("{before}{begin}{text}{end}{after}");
        return std::fs::write(&path, whole).map_err(|error| format!("{page}: {error}"));
    }
    let differs = old.lines().zip(text.lines()).find(|(old, new)| old != new);
    Err(format!(
        "{page} is not what the program says; run: cargo xtask book --update\n{differs:?}"
    ))
}

/// The table of keys of `lsl_api.cfg`.
fn api_keys() -> String {
    let mut text = String::new();
    let mut section = "";
    for key in KEYS {
        if key.section != section {
            section = key.section;
            let _ = write!(
                text,
                "\n### `[{section}]`\n\n| key | default | values | what it does |\n|---|---|---|---|\n"
            );
        }
        let default = match key.default {
            "" => "(empty)".to_owned(),
            default => format!("`{default}`"),
        };
        let range = key
            .range
            .map(|(low, high)| match high {
                UNBOUNDED.. => format!(", at least {low}"),
                _ => format!(", {low} to {high}"),
            })
            .unwrap_or_default();
        let since = key
            .since
            .map(|version| format!(" Since liblsl {version}."))
            .unwrap_or_default();
        // The page is for Windows, too.
        let effect = if key.effective || key.name == "TimerResolution" {
            ""
        } else {
            " Accepted, because liblsl has it; changes nothing here."
        };
        let _ = writeln!(
            text,
            "| `{}` | {default} | {}{range} | {}{since}{effect} |",
            key.name, key.kind, key.doc
        );
    }
    text
}

/// A limit that is there for arithmetic, not for people.
const UNBOUNDED: f64 = 1e9;

/// The keys of `lsl-secure.toml`: its sample has each with its default and what it is for, which
/// `lsl-secure` tests.
fn secure_keys() -> String {
    let mut text = String::from("| key | default | what it does |\n|---|---|---|\n");
    let mut about = String::new();
    let mut table = String::new();
    for line in sample("NAME").lines() {
        let line = line.trim();
        if let Some(words) = line.strip_prefix("# ") {
            if !about.is_empty() {
                about += " ";
            }
            about += words.trim();
        } else if let Some((key, default)) = line.split_once(" = ") {
            let (key, default) = match key.strip_prefix('#') {
                Some(key) => (key, "(none)".to_owned()),
                None => (key, format!("`{default}`")),
            };
            let default = if key == "name" { "(host)" } else { &default };
            let _ = writeln!(text, "| `{table}{key}` | {default} | {about} |");
            about.clear();
        } else if let Some(name) = line.strip_prefix("#[[") {
            table = name.replace("]]", ".");
        } else {
            // The head of the file and of its table say nothing about a key.
            about.clear();
        }
    }
    text
}

/// Every command with the line that its parent's help has about it.
fn commands() -> String {
    let mut text = String::from("| command | what it does |\n|---|---|\n");
    push(&mut text, &[]);
    text
}

fn push(text: &mut String, path: &[String]) {
    let help = help(path);
    for command in subcommands(&help) {
        let about = help
            .lines()
            .filter_map(|line| line.trim().strip_prefix(command.as_str()))
            .find_map(|rest| rest.strip_prefix("  "))
            .unwrap_or_default();
        let path = [path, &[command]].concat();
        let _ = writeln!(text, "| `lsl {}` | {} |", path.join(" "), about.trim());
        push(text, &path);
    }
}
