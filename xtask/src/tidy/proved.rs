//! What people are told of systems: how far each is proved, in the words of `PROVED` and no others.

use super::Source;
use crate::systems::PROVED;

/// Files that say it of every system: `Windows: tested ...`.
const PLACES: &[&str] = &[
    "README.md",
    "crates/ARCHITECTURE.md",
    "crates/lsl-cli/src/lib.rs",
    "crates/lsl-ffi/python/README.md",
    "docs/install.md",
];

/// Made by what it tells of.
const CAMPAIGN: &str = "docs/campaign.md";

/// Words by which a paragraph says how far something is proved.
const CLAIMS: &[&str] = &[
    "tested",
    "proved",
    "supported",
    "never run",
    "runs on",
    "works on",
];

/// Every place that does not say it, and every paragraph that says something else of a system.
pub(super) fn check(sources: &[Source]) -> Vec<String> {
    let mut problems = Vec::new();
    for place in PLACES {
        let source = sources.iter().find(|source| source.path == *place);
        let text = source.map_or_else(String::new, |source| one_line(&source.text));
        for (system, words) in PROVED {
            let wanted = format!("{system}: {words}");
            if !text.contains(&wanted) {
                problems.push(format!("{place}: does not say \"{wanted}\""));
            }
        }
    }
    for source in sources
        .iter()
        .filter(|source| source.has_extension(&["md"]))
    {
        let path = source.path.as_str();
        let is_of_book = path.starts_with("docs/") && !path.starts_with("docs/spec/");
        if PLACES.contains(&path) || is_of_book && path != CAMPAIGN {
            let others = others(&source.text).into_iter();
            problems.extend(others.map(|other| format!("{path}: {other}")));
        }
    }
    problems
}

/// Paragraphs that claim something of a system in other words.
fn others(text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    for paragraph in paragraphs(text) {
        let lower = paragraph.to_lowercase();
        let is_claim = CLAIMS.iter().any(|claim| lower.contains(claim));
        for (system, words) in PROVED {
            if is_claim && paragraph.contains(system) && !paragraph.contains(words) {
                problems.push(format!(
                    "{system} is \"{words}\", nothing else: {paragraph}"
                ));
            }
        }
    }
    problems
}

/// Paragraphs, points of lists and rows of tables, each as one line.
fn paragraphs(text: &str) -> Vec<String> {
    let mut paragraphs = vec![String::new()];
    for line in text.lines() {
        let is_new = line.is_empty()
            || ["|", "* ", "- ", "#"]
                .iter()
                .any(|head| line.starts_with(head));
        if is_new {
            paragraphs.push(String::new());
        }
        if let Some(paragraph) = paragraphs.last_mut() {
            *paragraph += " ";
            *paragraph += line;
        }
    }
    paragraphs
        .iter()
        .map(|paragraph| one_line(paragraph))
        .collect()
}

/// A text without marks, each run of blanks as one.
fn one_line(text: &str) -> String {
    let text = text.replace("**", "");
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_paragraph_says_more_or_less_than_is_proved() {
        for (text, is_good) in [
            ("Windows: tested under Wine 8.0,\nnot on Windows.", true),
            ("Windows: tested.", false),
            ("Windows: tested under Wine 8.0.", false),
            ("It runs on macOS.", false),
            ("macOS: **linked, never run**.", true),
            ("For macOS a file.\n\nAll is tested.", true),
            ("| Windows |\n| tested |", true),
            ("* Windows\n  is supported", false),
            ("Supported on macOS.", false),
            ("- Works on Windows.", false),
            ("Linux is what is tested.", true),
        ] {
            assert_eq!(others(text).is_empty(), is_good, "{text}");
        }
    }
}
